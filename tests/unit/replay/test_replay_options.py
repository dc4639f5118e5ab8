"""Options of the virtual clock: latency, intervals, commits, start-up, and the part of the log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import bftrain
from bftrain import (
    Action,
    BadInput,
    BadValue,
    Decision,
    Event,
    EventLog,
    ReplaySettings,
    Settings,
    TaskMeasured,
    TaskSpec,
    build_harvester,
    config,
)
from bftrain_replay.simulation.engine import run
from tests.unit.replay.cases import START_S, ReplayResult, TaskRecord, log_of, task

ONE_LOSS = log_of((0.0, "ab", ""), (100.0, "", "b"), end_s=300.0)
ONE_JOIN = log_of((0.0, "a", ""), (50.0, "b", ""), end_s=100.0)
THREE = log_of((0.0, ("n1", "n2"), ()), (40.0, ("n3",), ()), (70.0, (), ("n1",)), end_s=100.0)


def result_of(log: EventLog, *tasks: TaskSpec, **settings: object) -> ReplayResult:
    return bftrain.replay(log, tasks, ReplaySettings(**settings)).result  # type: ignore[arg-type]  # the fields' own types


def record_of(log: EventLog, spec: TaskSpec, **settings: object) -> TaskRecord:
    (record,) = result_of(log, spec, **settings).tasks
    return record


def test_new_sizes_take_effect_after_the_latency() -> None:
    result = result_of(ONE_JOIN, task(), decision_latency_s=20.0)
    assert result.harvested_samples == 50 * 10.0 + 30 * 18.0  # starts at 20 s, grows at 70 s
    assert {str(why): node_s for why, node_s in result.unused_node_s.items() if node_s} == {"undecided": 40.0}
    assert len(result.decisions) == 2


def test_nodes_are_given_back_at_once_regardless_of_the_latency() -> None:
    record = record_of(ONE_LOSS, task(shrink_cost_s=1.0), decision_latency_s=20.0)
    assert (record.preemptions, record.node_s) == (1, 80 * 2 + 200.0)


def test_a_task_that_ends_frees_its_nodes_for_a_decision_to_come() -> None:
    first, second = task("t", rate=(10.0,), work_samples=300.0), task("u", rate=(10.0,))
    result = result_of(log_of((0.0, "a", ""), end_s=100.0), first, second, decision_latency_s=20.0)
    assert [record.first_start_s for record in result.tasks] == [20.0, 70.0]
    assert result.tasks[0].finish_s == 50.0


def test_after_the_last_task_no_node_awaits_a_decision() -> None:
    result = result_of(log_of((0.0, "a", ""), end_s=100.0), task(work_samples=300.0), decision_latency_s=20.0)
    assert {str(why): node_s for why, node_s in result.unused_node_s.items() if node_s} == {
        "undecided": 20.0,
        "no_task": 50.0,  # it ends at 50 s, and nothing is left to decide
    }


def test_decisions_keep_their_distance() -> None:
    result = result_of(ONE_JOIN, task(), min_interval_s=60.0)
    assert result.harvested_samples == 60 * 10.0 + 40 * 18.0
    assert len(result.decisions) == 2


def test_a_latency_longer_than_the_log_never_decides() -> None:
    result = result_of(ONE_LOSS, task(), decision_latency_s=1000.0)
    assert (result.harvested_samples, len(result.decisions), result.complete) == (0.0, 0, True)


def test_every_cost_may_be_set_for_all_tasks_and_multiplied() -> None:
    spec = task(grow_cost_s=5.0, shrink_cost_s=3.0, start_cost_s=7.0)
    grown = log_of((0.0, "a", ""), (50.0, "b", ""), (100.0, "", "b"), end_s=300.0)

    def lost(**settings: object) -> tuple[float, float, float]:
        record = record_of(grown, spec, horizon_s=1000.0, **settings)
        return record.lost_start_up_samples, record.lost_rescaling_samples, record.lost_preemption_samples

    assert lost() == (70.0, 50.0, 54.0)
    assert lost(cost_factor=0.5) == (35.0, 25.0, 27.0)
    assert lost(cost_factor=2.0, grow_cost_s=1.0) == (140.0, 20.0, 108.0)
    assert lost(shrink_cost_s=0.0) == (70.0, 50.0, 0.0)
    assert lost(semantics="published", cost_factor=2.0) == (0.0, 100.0, 108.0)
    assert lost(cost_factor=0.0) == (0.0, 0.0, 0.0)


class Listening:
    """A decision core that remembers how much work was reported to be left."""

    chooses_batches = False

    def __init__(self, *, wants: bool) -> None:
        self._core = build_harvester(Settings())
        self.uses_work_left = wants
        self.measured: list[tuple[float, str, float | None]] = []

    def absorb(self, *events: Event) -> Sequence[Action]:
        self.measured += [(e.time_s, e.task, e.work_left_samples) for e in events if isinstance(e, TaskMeasured)]
        return self._core.absorb(*events)

    def decide(self, time_s: float) -> Decision:
        return self._core.decide(time_s)


def test_work_left_is_passed_to_objectives_that_use_it() -> None:
    log = log_of((0.0, "ab", ""), (100.0, "", "b"), (150.0, "", "a"), (170.0, "c", ""), end_s=300.0)
    core = Listening(wants=True)
    run(log, [task(work_samples=3000.0, shrink_cost_s=3.0), task("endless", submit_s=200.0)], core)
    # 54 are to be done again from 100 s on; 446 of 500 count by 150 s; stopping costs 30 and then it waits
    assert core.measured == [(100.0, "t", 1254.0), (150.0, "t", 784.0), (200.0, "t", 484.0)]


def test_work_left_costs_nothing_where_it_is_not_used() -> None:
    core = Listening(wants=False)
    run(ONE_LOSS, [task(work_samples=3000.0)], core)
    assert core.measured == []
    assert not build_harvester(Settings()).uses_work_left
    assert build_harvester(Settings(objective="deadline")).uses_work_left


def test_a_deadline_is_weighed_against_the_work_that_is_really_left() -> None:
    due = task("due", rate=(10.0, 20.0), work_samples=4000.0, deadline_s=250.0)
    other = task("other", rate=(15.0,), weight=2.0, submit_s=100.0)
    result = result_of(log_of((0.0, "ab", ""), end_s=400.0), due, other, objective="deadline")
    # At 100 s half of the work is left: both nodes keep the deadline. The whole work could not be done in time any
    # more, and then the other task would get a node.
    assert [record.first_start_s for record in result.tasks] == [0.0, 200.0]
    assert result.tasks[0].finish_s == 200.0


def test_a_window_is_cut_out_first_then_events_are_skipped_then_nodes_chosen() -> None:
    given = {"window": f"{START_S + 10}:", "skip_events": 1, "nodes": "n[1-2]"}
    part = bftrain.replay(THREE, [task()], **given)  # type: ignore[arg-type]  # the fields' own types
    assert part.part.span_s == 60.0
    rows = list(zip(part.result.times_s.tolist(), part.result.pool.tolist(), strict=True))
    assert rows[-2:] == [(0.0, 2), (30.0, 1)]
    assert set(bftrain.replay(THREE, [task()], nodes="1:").result.table("allocations")["node"]) == {"n2", "n3"}
    alone = bftrain.replay(THREE, [task()], nodes="2:3", semantics="published", events="chosen")
    assert alone.result.times_s.tolist()[-2:] == [0.0, 40.0]


def test_the_clock_of_the_tasks_begins_with_the_part() -> None:
    record = record_of(THREE, task(submit_s=5.0), skip_events=1)
    assert (record.submit_s, record.first_start_s, record.node_s) == (5.0, 5.0, 55 * 2.0)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"window": "10:20"}, "window: '10:20' is not within the log (the log covers 1000000.0 to 1000100.0"),
        ({"window": "yesterday:"}, "is not a window"),
        ({"skip_events": 3}, "skip_events: 3 events cannot be skipped (there are 3, including the start)"),
        ({"nodes": "2:9"}, "nodes: '2:9' selects no nodes from 0:3"),
        ({"nodes": "n[1-9]"}, "nodes: the log has no 'n4', 'n5', 'n6' and 3 others"),
        ({"nodes": "n[1-"}, "nodes: 'n[1-' is not a node set"),
    ],
)
def test_a_part_that_is_not_there_is_named(settings: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput) as caught:
        bftrain.replay(THREE, [task()], ReplaySettings(**settings))  # type: ignore[arg-type]  # the fields' own types
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("semantics", "publshed"),
        ("events", "some"),
        ("events", "chosen"),  # means something to the published rules only
        ("skip_events", -1),
        ("decision_latency_s", "soon"),
        ("decision_latency_s", -1.0),
        ("min_interval_s", np.nan),
        ("start_cost_s", -1.0),
        ("grow_cost_s", -1.0),
        ("shrink_cost_s", np.inf),
        ("cost_factor", -0.5),
        ("seed", -1),
        ("window", " "),
    ],
)
def test_a_wrong_setting_is_refused(name: str, value: object) -> None:
    with pytest.raises(BadValue, match=rf"ReplaySettings\.{name}: "):
        ReplaySettings(**{name: value})  # type: ignore[arg-type]  # that is what is tested


def test_settings_survive_their_file(tmp_path: Path) -> None:
    odd = ReplaySettings(
        semantics="realistic", window="1:2", nodes="0:4", skip_events=3, seed=5,
        decision_latency_s="measured", min_interval_s=2.0, start_cost_s=3.0, progress="disk:60", max_tasks=7,
        grow_cost_s=1.0, shrink_cost_s=2.0, cost_factor=1.5,
    )  # fmt: skip
    for settings in (odd, ReplaySettings(), ReplaySettings(semantics="published", events="chosen")):
        path = tmp_path / "config.toml"
        path.write_text(config.dump(settings))
        assert config.load(path, ReplaySettings) == settings
