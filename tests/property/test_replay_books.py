"""For any log and tasks: the accounts balance, nothing runs backwards, and it repeats."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any, TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn
from msgspec.structs import replace

import bftrain
from bftrain import EventLog, NodeState, ReplaySettings, Settings, SpeedCurve, SpreadSpeed, SpreadSpeeds, TaskSpec
from tests.helpers.transitions import log_from_transitions

seconds = st.one_of(st.integers(0, 1000), st.floats(0.0, 1000.0)).map(float)
costs = st.one_of(st.just(0.0), st.floats(0.0, 200.0))

shares = st.sampled_from((0.0, 0.3, 1.0))
spreads = st.none() | st.builds(
    lambda share, per_place: SpreadSpeeds(per_place=per_place, speeds=(SpreadSpeed(share=share),)),
    shares,
    st.sampled_from((None, 3)),
)


@st.composite
def logs(draw: DrawFn) -> EventLog:
    name = draw(st.sampled_from(("n{0}", "n{1}/gpu{2}")))  # whole nodes, or GPUs, three of a node
    number = st.integers(0, draw(st.integers(0, 11)))
    nodes = number.map(lambda number: name.format(number, number // 3, number % 3))
    transitions = draw(st.lists(st.tuples(seconds, nodes, st.sampled_from(NodeState)), max_size=60))
    start_s = draw(st.sampled_from((0.0, -500.0, 1.6e9)))
    moved = [(start_s + time_s, node, state) for time_s, node, state in transitions]
    end_s = start_s + draw(st.sampled_from((1000.0, 1500.5)))
    return log_from_transitions(moved, node_names=[name.format(0, 0, 0)], begin_s=start_s, end_s=end_s)


@st.composite
def tasks(draw: DrawFn, number: int) -> TaskSpec:
    nodes = sorted(draw(st.sets(st.integers(1, 8), min_size=1, max_size=4)))
    rates = st.one_of(st.just(0.0), st.floats(1e-3, 100.0))  # relative to smaller ones an objective is no number
    rate = draw(st.lists(rates, min_size=len(nodes), max_size=len(nodes)))
    smallest = draw(st.integers(1, 4))
    return TaskSpec(
        name=f"t{number}",
        curve=SpeedCurve(nodes=tuple(nodes), rate=tuple(rate)),
        min_nodes=smallest,
        max_nodes=draw(st.integers(smallest, 10)),
        work_samples=draw(st.one_of(st.none(), st.floats(0.1, 20_000.0))),
        submit_s=draw(st.one_of(st.just(0.0), st.floats(-100.0, 1600.0))),
        grow_cost_s=draw(costs),
        shrink_cost_s=draw(costs),
        start_cost_s=draw(costs),
        spread=draw(spreads),
    )


task_lists = st.integers(0, 5).flatmap(lambda count: st.tuples(*(tasks(number) for number in range(count))))
solvers = st.sampled_from(("exact", "equal-share", "greedy"))
objectives = st.sampled_from(("throughput", "deadline"))
kept = st.sampled_from(({}, {"progress": "task"})) | st.floats(0.5, 500.0).map(
    lambda seconds: {"progress": f"disk:{seconds!r}"}
)
keep_for = st.one_of(st.none(), st.integers(0, 20))


ReplayResult: TypeAlias = Any  # what bftrain.replay() returns as .result


def replayed(log: EventLog, specs: tuple[TaskSpec, ...], how: Settings, stop_after: int | None) -> ReplayResult:
    def watch(name: str, _simulated_s: float, decisions: int) -> bool:
        return name == how.solver and (stop_after is None or decisions < stop_after)  # and no replay for comparison

    return bftrain.replay(log, specs, how, watch=watch).result


def idle_until(log: EventLog, time_s: float) -> float:
    """Return the idle node-seconds of the first ``time_s`` seconds."""
    if time_s >= log.span_s:
        return log.idle_node_s
    return log.select(window=(None, log.start_s + time_s)).idle_node_s if time_s > 0.0 else 0.0


@st.composite
def ways(draw: DrawFn) -> ReplaySettings:
    """Ways to replay: published, or realistic with all options of the virtual clock."""
    plain = ReplaySettings(solver=draw(solvers), max_tasks=draw(st.integers(1, 6)), objective=draw(objectives))
    if draw(st.booleans()):
        return replace(plain, semantics="published")
    return replace(
        plain,
        decision_latency_s=draw(st.sampled_from((0.0, 3.5, 200.0))),
        min_interval_s=draw(st.sampled_from((0.0, 60.0))),
        **draw(kept),
    )


@settings(max_examples=100)
@given(logs(), task_lists, ways(), keep_for)
def test_books_balance(log: EventLog, specs: tuple[TaskSpec, ...], how: ReplaySettings, stop_after: int | None) -> None:
    result = replayed(log, specs, how, stop_after)
    booked = math.fsum((result.used_node_s, *result.unused_node_s.values()))
    assert math.isclose(booked, idle_until(log, result.simulated_s), rel_tol=1e-9, abs_tol=1e-6)
    if result.complete:
        assert result.simulated_s == log.span_s
        assert math.isclose(booked, log.idle_node_s, rel_tol=1e-9, abs_tol=1e-6)  # times of 1e9 are 2e-7 coarse
    assert min(result.unused_node_s.values()) >= 0.0
    if how.semantics == "realistic":  # published costs are taken off at once, whether or not there is time for them
        spent = math.fsum(result.lost_node_s.values())
        assert spent <= result.used_node_s * (1 + 1e-9) + 1e-9
    stretches = list(result.over_time_rows())
    for column, node_s in ((2, result.idle_node_s), (3, result.used_node_s)):
        in_table = math.fsum((row[1] - row[0]) * row[column] for row in stretches)
        assert math.isclose(in_table, node_s, rel_tol=1e-9, abs_tol=1e-6)
    harvest = [row[4] for row in stretches]
    assert (stretches[-1][1], harvest[-1]) == (result.simulated_s, result.harvested_samples)
    if how.semantics == "realistic":
        assert all(before <= after * (1 + 1e-12) for before, after in pairwise(harvest))
    again = replayed(log, specs, how, stop_after)
    assert (again.tasks, again.summary()) == (result.tasks, result.summary())


@settings(max_examples=100)
@given(logs(), task_lists, ways())
def test_every_sample_is_accounted_for(log: EventLog, specs: tuple[TaskSpec, ...], how: ReplaySettings) -> None:
    result = replayed(log, specs, how, None)
    for spec, record in zip(specs, result.tasks, strict=True):
        lost = (
            record.lost_preemption_samples,
            record.lost_rescaling_samples,
            record.lost_start_up_samples,
            record.lost_unnoticed_samples,
        )
        fastest = max(spec.curve.speeds(spec.max_nodes).tolist())
        assert min(*lost, record.owed_samples) >= 0.0
        # What it did and lost was produced on the nodes it held, in the time it held them
        assert record.done_samples + sum(lost) <= fastest * record.node_s * (1 + 1e-9) + 1e-6
        if spec.work_samples is not None:
            assert record.done_samples <= spec.work_samples
        assert (record.state == "finished") == (record.done_samples == spec.work_samples)
        if record.finish_s is not None and record.first_start_s is not None:
            assert spec.submit_s <= record.first_start_s <= record.finish_s <= log.span_s + 1e-6
            assert record.owed_samples == 0.0
        if how.semantics == "realistic":
            assert record.done_samples >= 0.0
            assert record.lost_unnoticed_samples == 0.0
        if how.progress in {None, "task"} and spec.grow_cost_s == spec.shrink_cost_s == spec.start_cost_s == 0.0:
            assert sum(lost[:3]) == record.owed_samples == 0.0


@settings(max_examples=50)
@given(logs(), task_lists, solvers, st.integers(1, 6))
def test_the_tables_agree(log: EventLog, specs: tuple[TaskSpec, ...], solver: str, max_tasks: int) -> None:
    how = Settings(solver=solver, max_tasks=max_tasks)
    result = replayed(log, specs, how, None)
    held: dict[str, list[float]] = {}
    of_node: dict[str, list[tuple[float, float]]] = {}
    for row in result.table("allocations").itertuples(index=False):
        held.setdefault(row.task, []).append(row.to_s - row.from_s)
        of_node.setdefault(row.node, []).append((row.from_s, row.to_s))
    for record in result.tasks:
        assert math.isclose(math.fsum(held.get(record.name, ())), record.node_s, rel_tol=1e-9, abs_tol=1e-6)
        lives_s = result.simulated_s if record.finish_s is None else record.finish_s
        if record.state != "not_arrived":
            assert 0.0 <= record.waited_s <= lives_s - max(record.submit_s, 0.0) + 1e-6
            assert record.waits <= record.starts + 1
    for stretches in of_node.values():
        assert all(before[1] <= after[0] for before, after in pairwise(sorted(stretches)))
    for row, sizes in zip(result.decisions.rows(), result.decisions.sizes(), strict=True):
        assert sum(sizes.values()) == row[3]
        assert all(sizes.values())
