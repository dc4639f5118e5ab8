"""A journal gone through again comes to the books of the replay that wrote it; and what only a live run knows."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from bftrain import (
    Action,
    BadInput,
    Decision,
    Event,
    Harvester,
    Journal,
    NodesJoined,
    NodesLeft,
    Release,
    ReplaySettings,
    Settings,
    SpeedCurve,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskPaused,
    TaskResumed,
    TaskSpec,
    TaskSubmitted,
    build_harvester,
    generate_log,
    generate_mix,
)
from bftrain_datasets.workloads.task_generators import TaskShape
from bftrain_replay.accounting.node_time_ledger import PLAIN
from bftrain_replay.journal_events import recorded
from bftrain_replay.journal_replay import process_steps, rerun
from bftrain_replay.results.result import result_of
from bftrain_replay.simulation.engine import EngineRun, run
from bftrain_replay.simulation.rules import ReplayRules
from bftrain_replay.simulation.task_progress import TaskProgress
from tests.unit.datasets.test_node_kinds import mixed_log

BEGAN_S = 1_000_000.0
TASK = TaskSpec(name="a", curve=SpeedCurve(nodes=(1, 2), rate=(10.0, 20.0)), max_nodes=2, submit_s=BEGAN_S)


class Writing:
    """A decision core that writes a journal, as a live run does."""

    def __init__(self, harvester: Harvester, journal: Journal) -> None:
        self._harvester = harvester
        self._journal = journal

    def absorb(self, *events: Event) -> Sequence[Action]:
        self._journal.append_events(events, sync=False)
        return self._harvester.absorb(*events)

    def decide(self, time_s: float) -> Decision:
        decision = self._harvester.decide(time_s)
        self._journal.append_decision(decision, sync=False)
        return decision


def written(journal: Path, steps: Sequence[Sequence[Event]], *, thinks_s: float = 0.0) -> Journal:
    """Write a journal of these steps, with a decision so long after each."""
    settings = Settings()
    harvester = build_harvester(settings)
    opened = Journal.create(journal, settings)
    for events in steps:
        opened.append_events(events, sync=False)
        harvester.absorb(*events)
        opened.append_decision(harvester.decide(events[-1].time_s + thinks_s), sync=False)
    return opened


def books(of: EngineRun, uncounted: frozenset[str]) -> list[tuple[object, ...]]:
    """Return the figures of tasks; without changes of tasks at the end of a log, where a replay is over."""
    found: list[tuple[object, ...]] = []
    for task in of.tasks:
        assert isinstance(task, TaskProgress)
        figures = (task.done_samples, task.node_s, task.waited_s, *task.lost_samples.values())
        counts = (task.starts, task.rescales, task.preemptions) if task.spec.name not in uncounted else ()
        found.append((task.spec.name, counts, *(float(f"{figure:.6g}") for figure in figures)))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_the_books_are_those_of_the_replay_that_wrote_it(seed: int, tmp_path: Path) -> None:
    settings = Settings(max_tasks=4)
    shape = TaskShape(max_nodes=6, work_samples=3e6)
    log, tasks = generate_log(16, 0.1, seed), generate_mix(12, seed, shape=shape)
    with Journal.create(tmp_path / "journal", settings) as journal:
        rules = ReplayRules(ReplaySettings.of(settings).progress_kept)
        run(log, tasks, Writing(build_harvester(settings), journal), semantics=rules)
        recording = recorded(journal)
        gone = process_steps(journal, recording)
        followed = process_steps(journal, recording, decide_again=False)
        *_, end = journal.steps()
    assert not gone.differences
    assert end.decision is not None
    actions = (*end.decision.at_once, *end.decision.actions)
    last = frozenset(action.task for action in actions if not isinstance(action, Release))
    assert len(gone.run.decisions) > 10
    names = [spec.name for spec in recording.tasks]
    known = sorted((task for task in tasks if task.name in names), key=lambda task: names.index(task.name))
    # Once more, on the log in the journal: it ends where the journal does
    same = run(
        recording.log,
        [replace(task, submit_s=task.submit_s - recording.log.start_s) for task in known],
        build_harvester(settings),
        semantics=rules,
    )
    assert gone.run.ledger.used_node_s == pytest.approx(same.ledger.used_node_s)
    assert gone.run.ledger.idle_node_s == pytest.approx(same.ledger.idle_node_s)
    assert books(gone.run, last) == books(same, last) == books(followed.run, last)
    assert gone.run.harvest.samples[-1] == pytest.approx(same.harvest.samples[-1])
    finished = {task.spec.name for task in same.tasks if isinstance(task, TaskProgress) and task.finish_s is not None}
    assert set(gone.work_samples) == finished != set()


def test_a_name_may_be_used_again(tmp_path: Path) -> None:
    steps: list[list[Event]] = [
        [NodesJoined(time_s=BEGAN_S, nodes=("n1", "n2")), TaskSubmitted(time_s=BEGAN_S, spec=TASK)],
        [TaskSubmitted(time_s=BEGAN_S + 5, spec=TASK)],  # while it is there: no new one
        [TaskFinished(time_s=BEGAN_S + 10, task="a")],
        [TaskSubmitted(time_s=BEGAN_S + 20, spec=replace(TASK, name="a-2", submit_s=BEGAN_S + 20))],
        [TaskCancelled(time_s=BEGAN_S + 30, task="a-2")],
        [TaskSubmitted(time_s=BEGAN_S + 40, spec=replace(TASK, submit_s=BEGAN_S + 40, deadline_s=BEGAN_S + 100))],
        [NodesLeft(time_s=BEGAN_S + 60, nodes=("n1",))],
    ]
    with written(tmp_path / "journal", steps) as journal:
        recording = recorded(journal)
        done = rerun(journal, recording, baseline="equal-share", reported={"a": 150.0, "a-2": 0.0})
    assert recording.names == ("a", "a-2", "a")
    assert [(spec.name, spec.submit_s, spec.deadline_s) for spec in recording.tasks] == [
        ("a", 0.0, None),
        ("a-2", 20.0, None),
        ("a-3", 40.0, 100.0),
    ]
    records = {record.name: record for record in done.study.result.tasks}
    assert [record.state for record in records.values()] == ["finished", "dropped", "running"]
    assert [record.done_samples for record in records.values()] == [150.0, 200.0, 400.0]
    assert [record.waited_s for record in records.values()] == [0.0, 0.0, 0.0]
    # For what-if replays a task has the work that it reported, or that its curve says
    assert [spec.work_samples for spec in done.study.tasks] == [150.0, 200.0, None]
    assert done.study.baseline is not None
    assert done.study.result.summary().unused_node_h == {**dict.fromkeys(PLAIN, 0.0), "no_task": 40 / 3600}


def test_tasks_that_fail_pause_and_are_measured(tmp_path: Path) -> None:
    better = SpeedCurve(nodes=(1, 2), rate=(30.0, 50.0))
    failed = [TaskFailed(time_s=BEGAN_S + 60 + number, task="a", reason="no") for number in range(3)]
    steps: list[list[Event]] = [
        [NodesJoined(time_s=BEGAN_S, nodes=("n1", "n2")), TaskSubmitted(time_s=BEGAN_S, spec=TASK)],
        [TaskPaused(time_s=BEGAN_S + 10, task="a")],
        [TaskResumed(time_s=BEGAN_S + 30, task="a")],
        [TaskMeasured(time_s=BEGAN_S + 40, task="a", curve=better, start_cost_s=1.0)],
        *[[event] for event in failed],
        [TaskSubmitted(time_s=BEGAN_S + 70, spec=TASK)],
        [NodesLeft(time_s=BEGAN_S + 80, nodes=("n1", "n2"))],
    ]
    with written(tmp_path / "journal", steps) as journal:
        recording = recorded(journal)
        result = result_of(process_steps(journal, recording).run, ReplaySettings())
    assert (recording.tasks[0].curve, recording.tasks[0].start_cost_s) == (better, 1.0)
    first, second = result.tasks
    assert (first.state, first.starts, first.waited_s, first.node_s) == ("dropped", 4, 20.0, 84.0)
    # 42 s at two nodes, less a second for each start
    assert first.done_samples == pytest.approx(50.0 * (10 + 30 + 1 + 1 - 4))
    assert (second.state, second.done_samples) == ("waiting", 200.0)


def test_nodes_are_undecided_while_it_thinks(tmp_path: Path) -> None:
    steps: list[list[Event]] = [
        [NodesJoined(time_s=BEGAN_S, nodes=("n1", "n2")), TaskSubmitted(time_s=BEGAN_S, spec=TASK)],
        [NodesLeft(time_s=BEGAN_S + 10, nodes=("n1",))],
        [NodesJoined(time_s=BEGAN_S + 20, nodes=("n1",))],
        [TaskFinished(time_s=BEGAN_S + 30, task="a")],
    ]
    with written(tmp_path / "journal", steps, thinks_s=1.0) as journal:
        result = result_of(process_steps(journal, recorded(journal)).run, ReplaySettings())
    assert result.tasks[0].node_s == 18.0 + 10.0 + 1.0 + 18.0
    assert result.unused_node_s["undecided"] == 2.0 + 1.0
    assert result.unused_node_s["no_task"] == 2.0
    assert (result.used_node_s, result.idle_node_s) == (47.0, 52.0)


def test_how_often_a_task_may_fail_can_change(tmp_path: Path) -> None:
    """As a site does when it starts again with other settings."""
    patient, strict = Settings(max_failures=3), Settings(max_failures=1)
    failed = TaskFailed(time_s=10.0, task="a", reason="no")
    with Journal.create(tmp_path / "journal", strict) as journal:
        harvester = build_harvester(strict)
        begin = [
            NodesJoined(time_s=0.0, nodes=("n1", "n2")),
            TaskSubmitted(time_s=0.0, spec=replace(TASK, submit_s=0.0)),
        ]
        for events in (begin, [failed]):
            journal.append_events(events)
            harvester.absorb(*events)
            journal.append_decision(harvester.decide(events[-1].time_s))
        journal.keep(patient, harvester.snapshot)
        again = build_harvester(patient)
        again.restore(harvester.snapshot)
        for events in ([TaskSubmitted(time_s=20.0, spec=replace(TASK, submit_s=20.0))], [replace(failed, time_s=30.0)]):
            journal.append_events(events)
            again.absorb(*events)
            journal.append_decision(again.decide(events[-1].time_s))
        recording = recorded(journal)
        gone = process_steps(journal, recording)
    assert recording.names == ("a", "a")
    assert not gone.differences
    assert [task.dropped for task in gone.run.tasks if isinstance(task, TaskProgress)] == [True, False]


def test_what_was_decided_otherwise_is_found(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    joined, submitted = NodesJoined(time_s=0.0, nodes=("n1", "n2")), TaskSubmitted(time_s=0.0, spec=TASK)
    written(path, [[joined, submitted]]).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("""UPDATE entry SET body = replace(body, '"value":2400.0', '"value":1.0')""")
        connection.commit()
    with Journal.open(path) as journal:
        recording = recorded(journal)
        assert [difference.step for difference in process_steps(journal, recording).differences] == [1]
        assert not process_steps(journal, recording, decide_again=False).differences


def test_a_journal_without_a_decision_at_its_end_and_one_without_anything(tmp_path: Path) -> None:
    with written(tmp_path / "journal", [[NodesJoined(time_s=5.0, nodes=("n1",))]]) as journal:
        journal.append_events([NodesLeft(time_s=9.0, nodes=("n1",))])
        done = rerun(journal, recorded(journal))
    assert (done.steps, done.study.complete, done.study.result.idle_node_s) == (2, True, 4.0)
    assert math.isclose(done.study.part.span_s, 4.0)
    with Journal.create(tmp_path / "empty", Settings()) as journal, pytest.raises(BadInput, match="holds no event"):
        recorded(journal)


def test_it_ends_early_when_asked(tmp_path: Path) -> None:
    steps = [[NodesJoined(time_s=float(number), nodes=(f"n{number}",))] for number in range(5)]
    with written(tmp_path / "journal", steps) as journal:
        done = rerun(journal, recorded(journal), watch=lambda _name, now_s, _decisions: now_s < 2)
    assert not done.study.complete
    assert done.study.result.simulated_s == 2.0
    assert (done.study.ceiling, done.study.result.yardsticks) == (None, None)


def test_a_journal_of_nodes_of_several_kinds_comes_to_the_same_books(tmp_path: Path) -> None:
    fast, slow = SpeedCurve(nodes=(1, 2), rate=(10.0, 18.0)), SpeedCurve(nodes=(1, 2), rate=(2.0, 3.0))
    tasks = [
        TaskSpec(name="a", curve=fast, curves={"fast": fast, "slow one": slow}, max_nodes=2, start_cost_s=3.0),
        TaskSpec(name="b", curve=slow, curves={"slow one": slow}, max_nodes=1, work_samples=60.0),
    ]
    log = mixed_log()
    settings = Settings()
    with closing(Journal.create(tmp_path / "live.db", settings)) as journal:
        run(log, tasks, Writing(build_harvester(settings), journal))
        recording = recorded(journal)
        again = process_steps(journal, recording).run
    assert recording.log.kind_of == log.kind_of
    # A journal ends with its last step, and so is held against a log that ends there
    part = run(log.select(window=(0.0, recording.log.end_s)), tasks, build_harvester(settings))
    done = [task.done_samples for task in again.tasks if isinstance(task, TaskProgress)]
    assert done == [task.done_samples for task in part.tasks if isinstance(task, TaskProgress)]
    assert done[1] == 60.0
    assert again.ledger.unused_node_s == part.ledger.unused_node_s
    assert again.ledger.unused_node_s["other_kind"] > 0.0


@pytest.mark.parametrize(("kind", "others"), [("v100", "other"), ("other", "other-2")])
def test_nodes_without_a_kind_are_a_kind_of_their_own_with_unchanged_speeds(
    kind: str, others: str, tmp_path: Path
) -> None:
    fast, slow = SpeedCurve(nodes=(1, 2), rate=(10.0, 20.0)), SpeedCurve(nodes=(1, 2), rate=(1.0, 2.0))
    events = [
        NodesJoined(time_s=BEGAN_S, nodes=("n1", "n2")),
        NodesJoined(time_s=BEGAN_S, nodes=("v1",), kind=kind),
        TaskSubmitted(time_s=BEGAN_S, spec=replace(TASK, curve=fast, curves={kind: slow})),
    ]
    steps = [events, [NodesLeft(time_s=BEGAN_S + 100.0, nodes=("v1",))]]
    with closing(written(tmp_path / "live.db", steps)) as journal:
        recording = recorded(journal)
        result = rerun(journal, recording).study.result
    assert recording.log.kind_of == {"n1": others, "n2": others, "v1": kind}
    assert dict(recording.tasks[0].curves) == {kind: slow, others: fast}
    assert result.harvested_samples == 2000.0
    assert result.yardsticks is not None
    assert result.yardsticks.ceiling_samples == 2000.0
    assert result.efficiency == 1.0
