"""A journal gone through again comes to the books of the replay that wrote it; and what only a live run knows."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
from msgspec.structs import replace

import bftrain
from bftrain import (
    Action,
    Decision,
    Event,
    EventLog,
    Harvester,
    Journal,
    NodesJoined,
    NodesLeft,
    Release,
    Settings,
    SpeedCurve,
    TaskCancelled,
    TaskEdited,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    TaskPaused,
    TaskResumed,
    TaskSpec,
    TaskSubmitted,
    build_harvester,
    generate_log,
    load_log,
    load_tasks,
)
from bftrain_replay.simulation.engine import run
from tests.helpers.in_process import CommandLine
from tests.unit.datasets.test_node_kinds import mixed_log
from tests.unit.replay.cases import mix, rows

BEGAN_S = 1_000_000.0
TASK = TaskSpec(name="a", curve=SpeedCurve(nodes=(1, 2), rate=(10.0, 20.0)), max_nodes=2, submit_s=BEGAN_S)


class Writing:
    """A decision core that writes a journal, as a live run does."""

    uses_work_left = chooses_batches = False

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


class Recording(NamedTuple):
    """A journal as a replay: its figures, its table of tasks, and the log and tasks for what-if replays."""

    code: int
    summary: dict[str, Any]
    tasks: dict[str, dict[str, str]]
    log: EventLog
    what_if: Sequence[TaskSpec]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(monkeypatch, capfd)


def gone_through(command: CommandLine, journal: Path, *options: object) -> Recording:
    """Replay a journal, and export it."""
    out, log, tasks = (journal.with_name(name) for name in ("out", "log.npz", "tasks.toml"))
    ended = command("journal", "replay", journal, "-o", out, "--json", "-q", *options)
    assert ended.code in {0, 3}, ended.err
    exported = command("journal", "export", journal, "-o", log, "--tasks", tasks)
    assert exported.code == 0, exported.err
    found = {row["name"]: row for row in rows(out / "tasks.csv")}
    return Recording(ended.code, json.loads(ended.out), found, load_log(log), load_tasks(tasks) if found else ())


def numbers(found: Recording, column: str) -> list[float]:
    return [float(row[column]) for row in found.tasks.values()]


BOOKS = ("done_samples", "node_h", "waited_s", "starts", "rescales", "preemptions")


@pytest.mark.parametrize("seed", range(4))
def test_the_books_are_those_of_the_replay_that_wrote_it(command: CommandLine, seed: int, tmp_path: Path) -> None:
    settings = Settings(max_tasks=4)
    log, tasks = generate_log(16, 0.1, seed), mix(12, seed, max_nodes=6, work_samples=3e6)
    with Journal.create(tmp_path / "journal", settings) as journal:
        writing = Writing(build_harvester(settings), journal)
        with mock.patch("bftrain_replay.study.study.build_harvester", return_value=writing):
            bftrain.replay(log, tasks, settings, watch=lambda name, *_: name == settings.solver)
        *_, end = journal.steps()
    found = gone_through(command, tmp_path / "journal")
    assert (found.code, found.summary["different"]) == (0, [])
    assert end.decision is not None
    actions = (*end.decision.at_once, *end.decision.actions)
    last = frozenset(action.task for action in actions if not isinstance(action, Release))
    assert found.summary["decisions"] > 10
    # Once more, on the log in the journal: it ends where the journal does
    start_s = found.log.start_s
    known = {spec.name: replace(spec, submit_s=spec.submit_s - start_s) for spec in tasks}
    done = bftrain.replay(found.log, [known[name] for name in found.tasks], settings)
    assert found.summary["used_node_h"] == pytest.approx(done.summary["used_node_h"])
    assert found.summary["idle_node_h"] == pytest.approx(done.summary["idle_node_h"])
    assert found.summary["harvested"] == pytest.approx(done.summary["harvested"])
    same = done.result.table("tasks").set_index("name")
    for name, row in found.tasks.items():
        books = BOOKS[:3] if name in last else BOOKS  # a replay is over at the end of its log, and starts nothing then
        for column in books:
            assert float(row[column]) == pytest.approx(float(same.loc[name, column]), rel=1e-5), (name, column)
    assert any(row["finish_s"] for row in found.tasks.values())


def test_a_name_may_be_used_again(command: CommandLine, tmp_path: Path) -> None:
    steps: list[list[Event]] = [
        [NodesJoined(time_s=BEGAN_S, nodes=("n1", "n2")), TaskSubmitted(time_s=BEGAN_S, spec=TASK)],
        [TaskSubmitted(time_s=BEGAN_S + 5, spec=TASK)],  # while it is there: no new one
        [TaskFinished(time_s=BEGAN_S + 10, task="a")],
        [TaskSubmitted(time_s=BEGAN_S + 20, spec=replace(TASK, name="a-2", submit_s=BEGAN_S + 20))],
        [TaskCancelled(time_s=BEGAN_S + 30, task="a-2")],
        [TaskSubmitted(time_s=BEGAN_S + 40, spec=replace(TASK, submit_s=BEGAN_S + 40, deadline_s=BEGAN_S + 100))],
        [NodesLeft(time_s=BEGAN_S + 60, nodes=("n1",))],
    ]
    written(tmp_path / "journal", steps).close()
    found = gone_through(command, tmp_path / "journal", "--baseline", "equal-share")
    assert [(spec.name, spec.submit_s, spec.deadline_s) for spec in found.what_if] == [
        ("a", 0.0, None),
        ("a-2", 20.0, None),
        ("a-3", 40.0, 100.0),
    ]
    assert [(name, row["state"]) for name, row in found.tasks.items()] == [
        ("a", "finished"),
        ("a-2", "dropped"),
        ("a-3", "running"),
    ]
    assert numbers(found, "done_samples") == [200.0, 200.0, 400.0]
    assert numbers(found, "waited_s") == [0.0, 0.0, 0.0]
    unused = {why: hours for why, hours in found.summary["unused_node_h"].items() if hours}
    assert unused == {"no_task": pytest.approx(40 / 3600)}


def test_tasks_that_fail_pause_and_are_measured(command: CommandLine, tmp_path: Path) -> None:
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
    written(tmp_path / "journal", steps).close()
    found = gone_through(command, tmp_path / "journal")
    assert (found.what_if[0].curve, found.what_if[0].start_cost_s) == (better, 1.0)
    first, second = found.tasks.values()
    assert (first["state"], first["starts"], second["state"]) == ("dropped", "4", "waiting")
    assert numbers(found, "waited_s")[0] == 20.0
    assert numbers(found, "node_h")[0] == pytest.approx(84.0 / 3600)
    # 42 s at two nodes, less a second for each start
    assert numbers(found, "done_samples") == pytest.approx([50.0 * (10 + 30 + 1 + 1 - 4), 200.0])


def test_a_renamed_task_trains_on(command: CommandLine, tmp_path: Path) -> None:
    steps: list[list[Event]] = [
        [NodesJoined(time_s=BEGAN_S, nodes=("n1", "n2")), TaskSubmitted(time_s=BEGAN_S, spec=TASK)],
        [TaskEdited(time_s=BEGAN_S + 10, spec=TASK, renamed="b")],
        [NodesLeft(time_s=BEGAN_S + 20, nodes=("n1",))],
        [TaskFinished(time_s=BEGAN_S + 30, task="b")],
    ]
    written(tmp_path / "journal", steps).close()
    found = gone_through(command, tmp_path / "journal")
    assert (found.tasks["a"]["state"], numbers(found, "done_samples")) == ("finished", [500.0])


def test_nodes_are_undecided_while_it_thinks(command: CommandLine, tmp_path: Path) -> None:
    steps: list[list[Event]] = [
        [NodesJoined(time_s=BEGAN_S, nodes=("n1", "n2")), TaskSubmitted(time_s=BEGAN_S, spec=TASK)],
        [NodesLeft(time_s=BEGAN_S + 10, nodes=("n1",))],
        [NodesJoined(time_s=BEGAN_S + 20, nodes=("n1",))],
        [TaskFinished(time_s=BEGAN_S + 30, task="a")],
    ]
    written(tmp_path / "journal", steps, thinks_s=1.0).close()
    found = gone_through(command, tmp_path / "journal")
    assert numbers(found, "node_h") == [pytest.approx((18.0 + 10.0 + 1.0 + 18.0) / 3600)]
    unused = {why: hours * 3600 for why, hours in found.summary["unused_node_h"].items() if hours}
    assert unused == {"undecided": pytest.approx(2.0 + 1.0), "no_task": pytest.approx(2.0)}
    assert found.summary["idle_node_h"] == pytest.approx(52.0 / 3600)


def test_how_often_a_task_may_fail_can_change(command: CommandLine, tmp_path: Path) -> None:
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
    found = gone_through(command, tmp_path / "journal")
    assert (found.code, found.summary["different"]) == (0, [])
    assert [row["state"] for row in found.tasks.values()] == ["dropped", "running"]


def test_a_run_whose_cap_was_lowered_has_no_proven_bound(command: CommandLine, tmp_path: Path) -> None:
    wide, narrow = Settings(max_tasks=3), Settings(max_tasks=1)
    nodes = ("n1", "n2", "n3")
    tasks = [replace(TASK, name=name, max_nodes=1, submit_s=0.0) for name in "abc"]
    with Journal.create(tmp_path / "journal", wide) as journal:
        harvester = build_harvester(wide)
        for events in (
            [NodesJoined(time_s=0.0, nodes=nodes), *(TaskSubmitted(time_s=0.0, spec=spec) for spec in tasks)],
            [NodesLeft(time_s=100.0, nodes=nodes)],
        ):
            journal.append_events(events)
            harvester.absorb(*events)
            journal.append_decision(harvester.decide(events[-1].time_s))
        journal.keep(narrow, harvester.snapshot)
    found = gone_through(command, tmp_path / "journal")
    assert found.summary["settings"]["max_tasks"] == 1
    assert found.summary["harvested"] == 3000.0
    assert found.summary["bound_samples"] is None


def test_what_was_decided_otherwise_is_found(command: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "journal"
    joined, submitted = NodesJoined(time_s=0.0, nodes=("n1", "n2")), TaskSubmitted(time_s=0.0, spec=TASK)
    written(path, [[joined, submitted]]).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("""UPDATE entry SET body = replace(body, '"value":2400.0', '"value":1.0')""")
        connection.commit()
    found = gone_through(command, path)
    assert (found.code, found.summary["different"]) == (3, [1])


def test_a_journal_without_a_decision_at_its_end_and_one_without_anything(command: CommandLine, tmp_path: Path) -> None:
    with written(tmp_path / "journal", [[NodesJoined(time_s=5.0, nodes=("n1",))]]) as journal:
        journal.append_events([NodesLeft(time_s=9.0, nodes=("n1",))])
    summary = gone_through(command, tmp_path / "journal").summary
    assert (summary["steps"], summary["complete"], summary["simulated_s"]) == (2, True, 4.0)
    assert summary["idle_node_h"] == pytest.approx(4.0 / 3600)
    Journal.create(tmp_path / "empty", Settings()).close()
    ended = command("journal", "replay", tmp_path / "empty", "-o", tmp_path / "none")
    assert (ended.code, "contains no event" in ended.err) == (3, True)


def test_a_journal_of_nodes_of_several_kinds_comes_to_the_same_books(command: CommandLine, tmp_path: Path) -> None:
    fast, slow = SpeedCurve(nodes=(1, 2), rate=(10.0, 18.0)), SpeedCurve(nodes=(1, 2), rate=(2.0, 3.0))
    tasks = [
        TaskSpec(name="a", curve=fast, curves={"fast": fast, "slow one": slow}, max_nodes=2, start_cost_s=3.0),
        TaskSpec(name="b", curve=slow, curves={"slow one": slow}, max_nodes=1, work_samples=60.0),
    ]
    log = mixed_log()
    settings = Settings()
    with closing(Journal.create(tmp_path / "live.db", settings)) as journal:
        run(log, tasks, Writing(build_harvester(settings), journal))
    found = gone_through(command, tmp_path / "live.db")
    assert found.log.kind_of == log.kind_of
    # A journal ends with its last step, and so is held against a log that ends there
    part = bftrain.replay(log.select(window=(0.0, found.log.end_s)), tasks, progress="task")
    assert numbers(found, "done_samples") == [record.done_samples for record in part.result.tasks]
    assert numbers(found, "done_samples")[1] == 60.0
    assert found.summary["unused_node_h"] == pytest.approx(part.summary["unused_node_h"])
    assert found.summary["unused_node_h"]["other_kind"] > 0.0


@pytest.mark.parametrize(("kind", "others"), [("v100", "other"), ("other", "other-2")])
def test_nodes_without_a_kind_are_a_kind_of_their_own_with_unchanged_speeds(
    command: CommandLine, kind: str, others: str, tmp_path: Path
) -> None:
    fast, slow = SpeedCurve(nodes=(1, 2), rate=(10.0, 20.0)), SpeedCurve(nodes=(1, 2), rate=(1.0, 2.0))
    events = [
        NodesJoined(time_s=BEGAN_S, nodes=("n1", "n2")),
        NodesJoined(time_s=BEGAN_S, nodes=("v1",), kind=kind),
        TaskSubmitted(time_s=BEGAN_S, spec=replace(TASK, curve=fast, curves={kind: slow})),
    ]
    written(tmp_path / "live.db", [events, [NodesLeft(time_s=BEGAN_S + 100.0, nodes=("v1",))]]).close()
    found = gone_through(command, tmp_path / "live.db")
    assert found.log.kind_of == {"n1": others, "n2": others, "v1": kind}
    assert dict(found.what_if[0].curves) == {kind: slow, others: fast}
    assert found.summary["harvested"] == found.summary["ceiling_samples"] == 2000.0
    assert found.summary["efficiency"] == 1.0
