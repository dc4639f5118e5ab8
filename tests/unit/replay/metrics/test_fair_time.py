"""The n-th part of everything: against hand calculations, and against a simulation in small steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain import SpeedCurve, TaskSpec
from bftrain_replay.run.fair_time import IdlePools, alone_s, shortest_s
from tests.unit.replay.cases import curve_of, task

ANY_KIND = ""


def pool(*steps: tuple[float, int], end_s: float) -> IdlePools:
    times, nodes = zip(*steps, strict=True)
    return IdlePools(np.array(times, dtype=np.float64), {ANY_KIND: np.array(nodes)}, end_s)


def test_alone_on_all_nodes_while_no_other_is_there() -> None:
    # 10 s on two nodes at 18 samples/s, then one node at 10
    found = alone_s([task(work_samples=250.0)], pool((0.0, 2), (10.0, 1), end_s=100.0))
    assert found == [pytest.approx(10.0 + 70.0 / 10.0)]


def test_two_divide_what_is_there_until_one_is_through() -> None:
    tasks = [task("short", work_samples=50.0), task("long", work_samples=140.0)]
    # One node each for 5 s; then the long one has both, for the 90 that are left
    assert alone_s(tasks, pool((0.0, 2), end_s=100.0)) == [pytest.approx(5.0), pytest.approx(5.0 + 90.0 / 18.0)]


def test_who_comes_later_divides_from_then_on_and_who_came_before_the_log_came_at_its_begin() -> None:
    tasks = [task("early", work_samples=100.0, submit_s=-50.0), task("late", work_samples=50.0, submit_s=2.0)]
    # 18 samples/s for 2 s, then 10 each: the late one is through at 7 s, and the early one has 14 left
    early, late = alone_s(tasks, pool((0.0, 2), end_s=100.0))
    assert late == pytest.approx(5.0)
    assert early == pytest.approx(7.0 + (100.0 - 36.0 - 50.0) / 18.0)


def test_with_less_than_its_smallest_size_a_task_runs_at_times() -> None:
    gang = task("gang", rate=(1.0, 1.0, 1.0, 40.0), min_nodes=4, max_nodes=4, work_samples=100.0)
    other = task("other", rate=(1.0,), work_samples=None)
    assert alone_s([gang, other], pool((0.0, 4), end_s=1e3)) == [pytest.approx(100.0 / 20.0), None]


def test_who_never_ends_takes_a_part_for_ever_and_what_cannot_be_used_is_lost() -> None:
    small = task("small", rate=(10.0,), max_nodes=1, work_samples=100.0)
    endless = task("endless", rate=(1.0,))
    assert alone_s([small, endless], pool((0.0, 1), end_s=1e3))[0] == pytest.approx(20.0)
    assert alone_s([small, endless], pool((0.0, 8), end_s=1e3))[0] == pytest.approx(10.0)  # not faster on four nodes


def test_after_the_log_the_pool_is_what_it_was_on_average() -> None:
    one = task(rate=(10.0, 20.0, 30.0, 40.0), work_samples=1000.0)
    # 5 s on 4 nodes and 5 s on none are 200 samples; then 2 nodes for 800
    assert alone_s([one], pool((0.0, 4), (5.0, 0), end_s=10.0)) == [pytest.approx(10.0 + 800.0 / 20.0)]


def test_no_end_no_nodes_and_no_tasks_have_no_time() -> None:
    assert alone_s([task()], pool((0.0, 4), end_s=10.0)) == [None]
    assert alone_s([task(work_samples=5.0)], pool((0.0, 0), end_s=10.0)) == [None]
    assert alone_s([], pool((0.0, 1), end_s=10.0)) == []
    useless = task("useless", rate=(0.0, 0.0), work_samples=1.0)
    assert alone_s([useless, task("fine", work_samples=9.0)], pool((0.0, 2), end_s=10.0)) == [None, pytest.approx(0.9)]


@pytest.mark.parametrize("work", [5e-324, 1e-318, 1e-300])
def test_work_that_takes_no_measurable_time_is_done_at_once(work: float) -> None:
    tasks = [task("least", work_samples=work), task("other", work_samples=50.0)]
    for pools in (pool((0.0, 2), end_s=100.0), pool((0.0, 2), (1.0, 2), (2.0, 2), end_s=100.0)):
        assert alone_s(tasks, pools) == [pytest.approx(0.0), pytest.approx(50.0 / 18.0)]


def test_sizes_that_are_no_faster_are_not_used_and_dents_are_bridged() -> None:
    dented = TaskSpec(name="d", curve=curve_of(10.0, 8.0, 30.0, 20.0), max_nodes=4, work_samples=300.0)
    assert alone_s([dented], pool((0.0, 4), end_s=1e3)) == [pytest.approx(10.0)]  # on three of the four
    # Two on average, of four, are three for half of the time and one for the other, at 20 samples/s
    assert alone_s([dented] * 2, pool((0.0, 4), end_s=1e3)) == [pytest.approx(15.0)] * 2
    assert alone_s([dented], pool((0.0, 2), end_s=1e3)) == [pytest.approx(30.0)]  # where there are no three, on one


def test_sizes_that_there_are_no_nodes_for_are_not_used() -> None:
    gang = {"a": curve_of(0.5, 1.0), "b": curve_of(3.0, 6.0)}
    pair = TaskSpec(name="g", curve=gang["a"], curves=gang, min_nodes=2, max_nodes=2, work_samples=3600.0)
    one_b = IdlePools(np.array([0.0]), {"a": np.array([2]), "b": np.array([1])}, 1e5)
    assert alone_s([pair], one_b) == [pytest.approx(3600.0)]
    # The second of kind b is there from 100 s to 200 s: 100 + 600 samples, and then at one sample/s again
    steps = np.array([0.0, 100.0, 200.0])
    two_b = IdlePools(steps, {"a": np.array([2, 2, 2]), "b": np.array([1, 2, 1])}, 1e5)
    assert alone_s([pair], two_b) == [pytest.approx(200.0 + 2900.0)]
    assert alone_s([pair], IdlePools(steps, {"b": np.array([1, 1, 1])}, 1e5)) == [None]


def test_where_nodes_are_few_a_task_cannot_do_its_work_of_them_in_less_time() -> None:
    kinds = {"a": curve_of(1.0, 2.0, 3.0, 4.0), "b": curve_of(0.5, 1.0, 1.5, 2.0)}
    able = TaskSpec(name="x", curve=kinds["a"], curves=kinds, max_nodes=4, work_samples=60.0)
    pools = IdlePools(np.array([0.0]), {"a": np.array([1]), "b": np.array([1])}, 1e5)
    assert alone_s([able], pools) == [pytest.approx(60.0)]  # all the time on a; not a quarter of it on four of them
    steps = np.arange(40.0)
    pools = IdlePools(steps, {kind: np.ones(40, dtype=np.int64) for kind in "ab"}, 1e5)
    assert alone_s([able], pools) == [pytest.approx(60.0)]


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_no_task_is_faster_on_a_part_of_all_than_with_all_of_it(data: st.DataObject) -> None:
    counts = st.integers(0, 9)
    rates = st.lists(st.sampled_from((0.0, 0.5, 1.0, 3.0, 8.0, 20.0)), min_size=1, max_size=8)
    steps = data.draw(st.integers(1, 6))
    kinds = data.draw(st.sampled_from((("",), ("a", "b"), ("a", "b", "c"))))
    pools = IdlePools(
        np.cumsum([0.0, *data.draw(st.lists(st.floats(0.1, 9.0), min_size=steps - 1, max_size=steps - 1))]),
        {kind: np.array(data.draw(st.lists(counts, min_size=steps, max_size=steps))) for kind in kinds},
        60.0,
    )
    specs = []
    for number in range(data.draw(st.integers(1, 4))):
        curves = {kind: curve_of(*data.draw(rates)) for kind in kinds}
        low, more = data.draw(st.integers(1, 6)), data.draw(st.integers(0, 6))
        specs.append(
            TaskSpec(
                name=f"t{number}",
                curve=curves[kinds[0]],
                curves={} if kinds == ("",) else curves,
                min_nodes=low,
                max_nodes=low + more,
                work_samples=data.draw(st.floats(1.0, 300.0)),
                submit_s=data.draw(st.floats(0.0, 20.0)),
            )
        )
    for spec, alone in zip(specs, alone_s(specs, pools), strict=True):
        least = shortest_s(spec, pools.largest)
        assert (alone is None) == (least is None)
        assert alone is None or least is None or alone >= least * (1.0 - 1e-9)


def test_kinds_are_divided_one_by_one_and_the_fastest_comes_first() -> None:
    kinds = {"fast": curve_of(10.0), "slow": curve_of(2.0)}
    tasks = [
        TaskSpec(name=name, curve=kinds["fast"], curves=kinds, max_nodes=1, work_samples=60.0) for name in ("a", "b")
    ]
    pools = IdlePools(np.array([0.0]), {"fast": np.array([1]), "slow": np.array([2])}, 1e3)
    # Each has half of the fast node, and a slow one for the other half of its time: 5 + 1 samples/s
    assert alone_s(tasks, pools) == [pytest.approx(10.0)] * 2
    # The same in many steps, which are looked at in one go; in one of them there is neither fast nor slow node
    steps = np.arange(9.0)
    fast, slow = (np.where(steps == 4.0, 0, count) for count in (1, 2))
    assert alone_s(tasks, IdlePools(steps, {"fast": fast, "slow": slow}, 1e3)) == [pytest.approx(11.0)] * 2
    elsewhere = TaskSpec(name="c", curve=kinds["fast"], curves={"other": curve_of(9.0)}, max_nodes=1, work_samples=1.0)
    assert alone_s([elsewhere], pools) == [None]
    assert shortest_s(elsewhere, pools.largest) is None
    assert shortest_s(tasks[0], pools.largest) == pytest.approx(6.0)


def test_the_shortest_is_at_the_fastest_size_that_there_are_nodes_for() -> None:
    dented = task(rate=(10.0, 30.0, 20.0), work_samples=60.0)
    assert shortest_s(dented, {"": 3}) == pytest.approx(2.0)
    assert shortest_s(dented, {"": 1}) == pytest.approx(6.0)
    assert shortest_s(task(rate=(1.0, 2.0), min_nodes=2, work_samples=1.0), {"": 1}) is None
    assert shortest_s(task(), {"": 1}) is None


def stepped(specs: Sequence[TaskSpec], pools: IdlePools, *, step_s: float) -> list[float]:
    """Do the same in small steps, for tasks whose curves are concave."""
    left = [spec.work_samples or math.inf for spec in specs]
    ends: dict[int, float] = {}
    now_s = 0.0
    while len(ends) < len(specs):
        place = int(np.searchsorted(pools.times_s, now_s, side="right")) - 1
        nodes = float(pools.counts[""][place]) if now_s < pools.end_s else pools.mean[""]
        there = [place for place, spec in enumerate(specs) if spec.submit_s <= now_s and place not in ends]
        for place in there:
            spec = specs[place]
            part = min(nodes / len(there), spec.max_nodes)
            left[place] -= step_s * float(np.interp(part, (0, *spec.curve.nodes), (0.0, *spec.curve.rate)))
            if left[place] <= 0.0:
                ends[place] = now_s + step_s
        now_s += step_s
    return [ends[place] - spec.submit_s for place, spec in enumerate(specs)]


@pytest.mark.parametrize("seed", range(2))
def test_like_a_simulation_in_small_steps(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    curves = [SpeedCurve(nodes=(1, 2, 4), rate=(10.0, 18.0, 30.0)), SpeedCurve(nodes=(1, 3), rate=(5.0, 12.0))]
    specs = [
        TaskSpec(
            name=f"t{number}",
            curve=curves[number % 2],
            max_nodes=int(drawn.integers(1, 5)),
            work_samples=float(drawn.uniform(20.0, 200.0)),
            submit_s=float(drawn.uniform(0.0, 30.0)),
        )
        for number in range(7)
    ]
    times = np.concatenate(([0.0], np.sort(drawn.uniform(0.0, 50.0, 400))))  # more steps than are looked at at once
    pools = IdlePools(times, {ANY_KIND: drawn.integers(0, 9, times.size)}, 50.0)
    assert alone_s(specs, pools) == pytest.approx(stepped(specs, pools, step_s=0.004), abs=0.3)
