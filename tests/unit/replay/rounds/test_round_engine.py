"""Rounds: who runs when, to the second, on clusters and on nodes that come and go."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pytest

from bftrain import BadInput, BadValue, EventLog, NodeState, SpeedCurve, TaskSpec, rounds
from tests.helpers.round_cases import gang, slowly
from tests.unit.replay.cases import LogBuilder, RoundResult

ONE = {"": 1}


def ends(result: RoundResult) -> dict[str, float]:
    table = result.tasks_table
    return dict(zip(table["name"], table["finish_s"], strict=True))


def column(result: RoundResult, name: str) -> list[Any]:
    return result.tasks_table[name]


def test_work_that_ends_inside_a_round_ends_there_or_at_its_end() -> None:
    tasks = [gang("a", 250.0), gang("b", 100.0, submit_s=10.0)]
    assert ends(rounds(ONE, tasks, round_s=100.0)) == {"a": 250.0, "b": 400.0}
    assert ends(rounds(ONE, tasks, round_s=100.0, finish="boundary")) == {"a": 300.0, "b": 400.0}


def test_who_leaves_inside_a_round_frees_its_nodes_for_the_next() -> None:
    result = rounds(ONE, [gang("a", 50.0), gang("b", 100.0)], round_s=100.0)
    assert ends(result) == {"a": 50.0, "b": 200.0}
    assert result.metrics["used_node_h"] * 3600 == pytest.approx(150.0)  # the node is idle for half a round
    assert result.metrics["idle_node_h"] * 3600 == pytest.approx(200.0)
    assert rounds(ONE, [gang("a", 50.0)], round_s=100.0, finish="boundary").summary["coverage"] == 1.0


def test_who_arrives_waits_for_the_next_round() -> None:
    result = rounds(ONE, [gang("a", 10.0, submit_s=1.0), gang("b", 10.0, submit_s=200.0)], round_s=100.0)
    assert column(result, "first_start_s") == [100.0, 200.0]
    assert column(result, "seen_s") == [200.0, 300.0]
    assert column(result, "waited_s") == [99.0, 0.0]
    assert column(result, "waits") == [1, 0]


def test_gangs_go_in_order_as_they_fit() -> None:
    tasks = [gang("two", 100.0, 2), gang("three", 100.0, 3), gang("one", 100.0, 1)]
    assert ends(rounds({"": 3}, tasks, round_s=100.0)) == {"two": 100.0, "three": 200.0, "one": 100.0}
    waits = rounds({"": 3}, tasks, round_s=100.0, overtaking="no")
    assert ends(waits) == {"two": 100.0, "three": 200.0, "one": 300.0}


def test_least_attained_service_takes_turns_and_counts_nodes_and_weights() -> None:
    tasks = [gang("a", 300.0), gang("b", 200.0)]
    result = rounds(ONE, tasks, round_s=100.0, policy="las")
    assert ends(result) == {"a": 500.0, "b": 400.0}
    assert column(result, "preemptions") == [2, 1]
    assert column(result, "starts") == [3, 2]
    heavy = [gang("a", 300.0), gang("b", 300.0, weight=2.0)]  # b has a turn for every two
    assert ends(rounds(ONE, heavy, round_s=100.0, policy="las")) == {"a": 600.0, "b": 500.0}
    wide = [gang("wide", 300.0, 2), gang("slim", 300.0, 1)]
    assert ends(rounds({"": 2}, wide, round_s=100.0, policy="las"))["slim"] == 500.0
    nothing = [gang("none", 100.0, weight=0.0), gang("some", 300.0)]
    assert ends(rounds(ONE, nothing, round_s=100.0, policy="las")) == {"none": 400.0, "some": 300.0}


def test_the_shortest_first() -> None:
    tasks = [gang("long", 500.0), gang("short", 100.0, submit_s=90.0)]
    result = rounds(ONE, tasks, round_s=100.0, policy="srtf")
    assert ends(result) == {"long": 600.0, "short": 200.0}
    assert column(result, "preemptions") == [1, 0]


def test_the_fastest_kind_that_is_free() -> None:
    speeds = {"fast": 4.0, "slow": 1.0}
    tasks = [gang(name, 400.0, speeds=speeds) for name in ("a", "b")]
    result = rounds({"slow": 1, "fast": 1}, tasks, round_s=100.0)
    assert ends(result) == {"a": 100.0, "b": 175.0}  # b moves on when the fast one is free: 100 + 300 / 4
    assert column(result, "moves") == [0, 1]
    assert column(result, "on_slow_s") == [0.0, 100.0]
    assert column(result, "on_fast_s") == [100.0, 75.0]
    assert result.summary["kinds"]["fast"]["used_node_h"] * 3600 == pytest.approx(175.0)


def test_a_kind_on_which_it_has_no_speed_is_no_choice() -> None:
    tasks = [gang("a", 400.0, speeds={"fast": 4.0}), gang("b", 400.0, speeds={"fast": 4.0, "slow": 0.0})]
    assert ends(rounds({"slow": 5, "fast": 1}, tasks, round_s=100.0)) == {"a": 100.0, "b": 200.0}


def test_a_start_costs_what_the_task_says() -> None:
    tasks = [gang("a", 300.0, start_cost_s=40.0), gang("b", 160.0, start_cost_s=20.0)]
    result = rounds(ONE, tasks, round_s=100.0, policy="las")
    assert ends(result) == {"a": 620.0, "b": 400.0}  # b: 80 samples a turn; a: 60, 60, and the rest alone
    assert column(result, "lost_start_up_samples") == [120.0, 40.0]
    free = rounds(ONE, tasks, round_s=100.0, policy="las", start_cost_s=0.0)
    assert free.summary["lost_start_up_samples"] == 0.0
    twice = rounds(ONE, tasks[:1], round_s=100.0, cost_factor=4.0)  # 160 s: longer than a round
    assert ends(twice) == {"a": 460.0}


@pytest.mark.parametrize("finish", ["moment", "boundary"])
@pytest.mark.parametrize("policy", ["fifo", "las", "srtf"])
@pytest.mark.parametrize("seed", range(4))
def test_all_is_as_task_by_task(seed: int, policy: str, finish: str) -> None:
    rng = np.random.default_rng(seed)
    nodes = {"v": 4, "p": 3} if seed % 2 else {"": 5}
    tasks = []
    for number in range(40):
        speeds = {kind: float(rng.choice([0.0, 1.0, 2.5, 4.0])) for kind in nodes} if seed % 2 else {}
        if not any(speeds.values()) and speeds:
            speeds["v"] = 1.0
        work, submit_s = float(rng.exponential(900.0)) + 1.0, float(rng.uniform(0.0, 9000.0))
        more = {"speeds": speeds, "weight": float(rng.choice([1.0, 2.0])), "start_cost_s": float(rng.choice([0, 17]))}
        tasks.append(gang(f"t{number}", work, int(rng.choice([1, 2, 3])), submit_s, **more))
    result = rounds(nodes, tasks, round_s=60.0, policy=policy, finish=finish)
    expected = slowly(tasks, nodes, policy, 60.0, finish)
    for place, name in enumerate(column(result, "name")):
        job = expected[name]
        assert column(result, "finish_s")[place] == pytest.approx(job.end_s, abs=1e-6)
        assert column(result, "first_start_s")[place] == job.start_s
        assert column(result, "starts")[place] == job.starts
        assert column(result, "preemptions")[place] == job.preemptions
        assert column(result, "node_h")[place] * 3600 == pytest.approx(job.got_node_s)
    assert result.ended == "all_done"


def log_of(
    *changes: tuple[float, str, NodeState], end_s: float, kinds: Mapping[str, str] = MappingProxyType({})
) -> EventLog:
    builder = LogBuilder()
    for node, kind in kinds.items():
        builder.set_kind(node, kind)
    for time_s, node, state in changes:
        builder.add(time_s, node, state)
    return builder.build(end_s=end_s)


IDLE, BUSY = NodeState.IDLE, NodeState.BUSY


def test_nodes_that_leave_stop_a_gang_at_that_moment() -> None:
    log = log_of((0, "a", IDLE), (0, "b", IDLE), (0, "c", IDLE), (130, "a", BUSY), (260, "a", IDLE), end_s=900)
    result = rounds(log, [gang("pair", 400.0, 2), gang("one", 500.0)], round_s=100.0)
    # pair: 130 s until a left, and from 200 s on, on both others; one goes on at 300 s, when a is back
    assert ends(result) == {"pair": 470.0, "one": 600.0}
    assert column(result, "taken") == [1, 0]
    assert column(result, "preemptions") == [1, 1]
    assert column(result, "waited_s") == [70.0, 100.0]
    assert result.summary["idle_node_h"] * 3600 == pytest.approx(3 * 600 - 130)
    assert result.summary["used_node_h"] * 3600 == pytest.approx(2 * 400 + 500)


def test_who_is_done_before_its_node_leaves_keeps_its_end() -> None:
    log = log_of((0, "a", IDLE), (60, "a", BUSY), end_s=300)
    assert ends(rounds(log, [gang("one", 50.0)], round_s=100.0)) == {"one": 50.0}
    assert ends(rounds(log, [gang("one", 50.0)], round_s=100.0, finish="boundary")) == {"one": 60.0}
    late = rounds(log, [gang("one", 61.0)], round_s=100.0)
    assert (ends(late), column(late, "done_samples"), late.ended) == ({"one": None}, [60.0], "log_end")
    assert column(late, "state") == ["waiting"]


def test_a_node_that_leaves_where_a_round_begins_takes_nothing() -> None:
    log = log_of((0, "a", IDLE), (0, "b", IDLE), (100, "a", BUSY), end_s=300)
    result = rounds(log, [gang("one", 150.0)], round_s=100.0)
    assert ends(result) == {"one": 150.0}  # on, on the other node
    assert column(result, "taken") == [1]


def test_kinds_of_a_log_count_by_themselves() -> None:
    changes = ((0, "a", IDLE), (0, "b", IDLE), (0, "c", IDLE), (150, "c", BUSY))
    log = log_of(*changes, end_s=1000, kinds={"a": "p", "b": "p", "c": "v"})
    task = gang("t", 1000.0, speeds={"v": 4.0, "p": 1.0})
    result = rounds(log, [task], round_s=100.0)
    assert column(result, "on_v_s") == [150.0]
    assert ends(result) == {"t": 200.0 + 400.0}  # 600 samples by 150 s; on p from the next round on
    with pytest.raises(BadInput, match="'wide': can never run: it needs 3 nodes of a kind"):
        rounds(log, [gang("wide", 1.0, 3, speeds={"v": 1.0, "p": 1.0})])


def test_a_part_of_a_log() -> None:
    log = log_of((0, "a", IDLE), (0, "b", IDLE), (100, "a", BUSY), end_s=1000)
    task = gang("t", 1e9)
    assert rounds(log, [task], round_s=50.0, window="100:300").summary["idle_node_h"] * 3600 == 200.0
    assert rounds(log, [task], round_s=50.0, nodes="b").summary["idle_node_h"] * 3600 == 1000.0
    with pytest.raises(BadInput, match="window: has no effect on a cluster"):
        rounds(ONE, [task], window="1:2")


def test_how_it_ends() -> None:
    until = rounds(ONE, [gang("a", 500.0), gang("b", 1.0, submit_s=900.0)], round_s=100.0, until_s=250.0)
    assert (until.ended, until.complete, until.summary["simulated_s"]) == ("until", True, 250.0)
    assert column(until, "state") == ["running", "not_arrived"]
    assert column(until, "done_samples") == [250.0, 0.0]
    tasks = [gang(str(number), 1000.0, submit_s=100.0 * number) for number in range(200)]
    overload = rounds(ONE, tasks, round_s=100.0, max_backlog_s=20_000.0)
    assert (overload.ended, overload.complete) == ("overload", False)
    assert 20 <= overload.summary["waiting"] <= 25
    batch = rounds(ONE, [gang(str(number), 1000.0) for number in range(50)], round_s=100.0, max_backlog_s=20_000.0)
    assert batch.ended == "all_done"  # much to do, but no task comes any more


@pytest.mark.parametrize("policy", ["fifo", "las", "srtf", "max-min"])
def test_a_task_of_many_days_is_no_queue(policy: str) -> None:
    days = 86_400.0
    tasks = [gang("a", 62 * days), gang("b", 3600.0, submit_s=500.0), gang("c", 3600.0, submit_s=9000.0)]
    for count in (1, 2):
        result = rounds({"": count}, tasks, policy=policy, round_s=3600.0, until_s=days)
        assert (result.ended, result.summary["not_arrived"]) == ("until", 0)
    speeds = {"v": 1.0, "k": 1.0}
    wide = [gang(str(number), 90 * days, 2, submit_s=100.0 * number, speeds=speeds) for number in range(6)]
    for limit_days, not_arrived in ((35.0, 3), (37.0, 2)):  # one runs on each kind; each that waits is 36 days of all
        more = {"round_s": 100.0, "max_backlog_s": limit_days * days, "until_s": days}
        result = rounds({"v": 3, "k": 2}, wide, policy=policy, **more)
        assert (result.ended, result.summary["not_arrived"]) == ("overload", not_arrived)


def test_means_over_some_tasks_end_when_these_are_done() -> None:
    tasks = [gang(str(number), 100.0, submit_s=50.0 * number) for number in range(10)]
    result = rounds(ONE, tasks, round_s=100.0, measure="1:2")
    assert (result.ended, result.summary["measured"], result.summary["measured_finished"]) == ("measured_done", 2, 2)
    assert ends(result)["3"] is None
    completion_s = result.task_figures.completion_s
    assert completion_s is not None
    assert completion_s.mean == (150.0 + 200.0) / 2
    assert rounds(ONE, tasks, round_s=100.0, measure="8:").summary["measured"] == 2
    with pytest.raises(BadValue, match="goes to 10"):
        rounds(ONE, tasks, measure="3:10")
    for wrong in ("5", "5:3", "a:b", "-1:3"):
        with pytest.raises(BadValue, match="write the first and last task"):
            rounds(ONE, tasks, measure=wrong)


def test_what_would_never_run_or_never_end_is_refused_by_name() -> None:
    with pytest.raises(BadInput, match="task 'wide': can never run: it needs 3 nodes"):
        rounds({"v": 2, "p": 2}, [gang("wide", 1.0, 3)])
    with pytest.raises(BadInput, match="task 'other': can never run"):
        rounds({"v": 2}, [gang("other", 1.0, speeds={"p": 1.0})])
    with pytest.raises(BadInput, match="task 'endless': has endless work"):
        rounds(ONE, [gang("endless", None)])
    ended = rounds(ONE, [gang("endless", None)], until_s=900.0, round_s=100.0)
    assert (ended.ended, column(ended, "done_samples")) == ("until", [900.0])


def test_elastic_tasks_need_a_size() -> None:
    curve = SpeedCurve(nodes=(1, 4), rate=(1.0, 2.0))
    task = TaskSpec(name="stretchy", curve=curve, max_nodes=4, work_samples=100.0)
    with pytest.raises(BadInput, match=r"task 'stretchy': runs on 1 to 4 nodes.*--set gang=min"):
        rounds({"": 4}, [task])
    assert ends(rounds({"": 4}, [task], gang="min")) == {"stretchy": 100.0}
    assert ends(rounds({"": 4}, [task], gang="max")) == {"stretchy": 50.0}


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_of_the_file_does_not_matter(order: tuple[int, ...]) -> None:
    tasks = [gang("a", 300.0), gang("b", 200.0, submit_s=10.0), gang("c", 100.0, submit_s=20.0)]
    assert ends(rounds(ONE, [tasks[place] for place in order])) == ends(rounds(ONE, tasks))


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"cost_factor": 1e308}, r"cost_factor: must not exceed 1e\+12, but is 1e\+308"),
        ({"cost_factor": float("nan")}, "cost_factor: must be a finite number, not nan"),
        ({"cost_factor": float("inf")}, "cost_factor: must be a finite number, not inf"),
        ({"cost_factor": -1.0}, "cost_factor: must be at least 0, not -1"),
        ({"start_cost_s": 1e308}, r"start_cost_s: must not exceed 1e\+12, but is 1e\+308"),
        ({"start_cost_s": float("nan")}, "start_cost_s: must be a finite number"),
        ({"start_cost_s": 1e10, "cost_factor": 1e3}, r"task 'a': takes 1e\+13 s to start, more than 1e\+12 s"),
    ],
)
def test_absurd_costs_are_refused(settings: dict[str, float], says: str) -> None:
    with pytest.raises(BadInput, match=says):
        rounds(ONE, [gang("a", 50.0)], **settings)


def test_an_absurd_cost_of_a_task_is_refused_with_its_name() -> None:
    tasks = [gang("a", 50.0), msgspec.structs.replace(gang("b", 50.0), start_cost_s=1e308)]
    for factor in (1.0, 1e12):
        with pytest.raises(BadInput, match=r"task 'b': takes (1e\+308|inf) s to start.*see start_cost_s"):
            rounds(ONE, tasks, cost_factor=factor)
    assert ends(rounds(ONE, tasks, cost_factor=0.0)) == {"a": 50.0, "b": 350.0}
    assert ends(rounds(ONE, tasks[:1], start_cost_s=1e12)) == {"a": 1e12 + 50.0}
