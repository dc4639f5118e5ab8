"""``bftrain journal`` and ``journal replay``: steps, plan, verification, exports and learned profiles."""

from __future__ import annotations

import json
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from bftrain import (
    Journal,
    NodesJoined,
    Run,
    Settings,
    SpeedCurve,
    TaskFinished,
    TaskSpec,
    TaskSubmitted,
    load_log,
    load_tasks,
)
from bftrain.live.daemon.task_store import CLUSTER, TaskStore
from bftrain.live.model.schemas import LiveTaskRecord, LiveTaskState, Progress
from tests.helpers.in_process import CommandLine

SPEC = TaskSpec(name="a", max_nodes=4, curve=SpeedCurve(nodes=(4,), rate=(4.0,)))


def record(number: int, script: str = "a", **progress: object) -> LiveTaskRecord:
    """Return a task of a live run and its progress."""
    return LiveTaskRecord(
        number=number, name=f"t{number}", uid=1, user="ada", launcher="fake", spec=replace(SPEC, name=f"t{number}"),
        guessed=True, run=Run(argv=(f"/home/ada/{script}.py",)), submitted_s=0.0,
        progress=Progress(**progress),  # type: ignore[arg-type]  # fields
    )  # fmt: skip


def test_show_prints_a_row_per_step(bftrain: CommandLine, journal: Path) -> None:
    with Journal.open(journal) as opened:
        (*_, last) = (step.decision for step in opened.steps() if step.decision is not None)
        opened.append_events([NodesJoined(time_s=2000, nodes=("n9",))])
    shown = bftrain("journal", "show", journal).out
    assert f"{journal}: 6 steps" in shown
    for words in ("n[1-6] became idle", "-> resnet loses n[1-2] (preempted)", "no decision was recorded"):
        assert words in shown
    with Journal.open(journal) as opened:
        for _ in range(2):  # as after a restart
            opened.append_decision(replace(last, at_once=(), actions=(), notes=()))
    assert "it was decided again, with no change" in bftrain("journal", "show", journal).out


def test_show_finds_steps_by_task_node_and_time(bftrain: CommandLine, journal: Path) -> None:
    def numbers(*words: str | Path | float) -> list[int]:
        ended = bftrain("journal", "show", journal, "--json", *words)
        assert ended.code == 0, ended.err
        return [json.loads(line)["number"] for line in ended.out.splitlines()]

    assert numbers("--task", "vgg") == [2, 3, 4, 5]
    assert numbers("--node", "n[7-8]") == [3, 4, 5]
    assert numbers("--since", "60", "--until", "900") == [2, 3, 4]
    assert numbers("--task", "resnet", "--node", "n1") == [1, 4]
    assert numbers("--since", "2001-01-01") == []
    assert f"{journal}: 2 of 5 steps" in bftrain("journal", "show", journal, "--node", "n8").out
    steps = [json.loads(line) for line in bftrain("journal", "show", "--json", journal).out.splitlines()]
    assert steps[3]["events"][0]["nodes"] == ["n1", "n2", "n7"]


def test_steps_of_a_live_run_have_dates_and_its_cluster(bftrain: CommandLine, tmp_path: Path) -> None:
    at_s = 1_795_628_733.0
    with Journal.create(tmp_path / "live.db", Settings()) as live:
        live.append_events([NodesJoined(time_s=at_s, nodes=("n1",))])
        store = TaskStore(live)
        store.record_fact(CLUSTER, "physics")
        store.write()
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))
    assert clock in bftrain("journal", "show", tmp_path / "live.db", "--since", clock[:10]).out
    assert (
        "0 of 1 step on cluster physics" in bftrain("journal", "show", tmp_path / "live.db", "--until", clock[:10]).out
    )


def test_plan_lists_who_has_what_at_the_end(bftrain: CommandLine, journal: Path) -> None:
    held = json.loads(bftrain("journal", "plan", journal, "--json").out)["holdings"]
    assert (set(held), set(held["resnet"])) == ({"resnet"}, {"n3", "n4", "n5", "n6", "n8"})


def test_verify_and_replay_name_the_steps_that_were_changed(bftrain: CommandLine, journal: Path) -> None:
    assert json.loads(bftrain("journal", "verify", "--json", journal).out) == {"steps": 5, "different": []}
    with closing(sqlite3.connect(journal)) as connection:
        body = """replace(body, '"sizes":{"resnet":6', '"sizes":{"resnet":2')"""
        connection.execute(f"UPDATE entry SET body = {body} WHERE kind = 'decision'")  # noqa: S608 - a constant
        connection.commit()
    ended = bftrain("journal", "verify", journal)
    first, last = ended.err.splitlines()[0], ended.err.splitlines()[-1]
    assert (ended.code, "recorded {'resnet': 2" in first, "decisions differ" in last) == (3, True, True)
    assert bftrain("journal", "verify", "-q", journal).err == f"{last}\n"
    different = json.loads(bftrain("journal", "verify", "--json", "-q", journal).out)["different"]
    replayed = bftrain("journal", "replay", journal, "--json")
    assert (replayed.code, json.loads(replayed.out)["different"], 1 in different) == (3, different, True)


def test_a_journal_is_shown_and_written_like_a_replay(bftrain: CommandLine, journal: Path, tmp_path: Path) -> None:
    ended = bftrain("journal", "replay", journal, "-o", tmp_path / "done", "--baseline", "greedy")
    assert (ended.code, "greedy" in ended.out, "5 steps, every decision the same" in ended.err) == (0, True, True)
    summary = json.loads((tmp_path / "done" / "summary.json").read_text())
    assert (summary["decisions"], summary["complete"], summary["inputs"]["log"]["name"]) == (5, True, str(journal))
    assert bftrain("report", tmp_path / "done", "-o", tmp_path / "page.html").code == 0
    shown = json.loads(bftrain("journal", "replay", journal, "--json").out)
    assert (shown["steps"], shown["different"], shown["harvested"]) == (5, [], summary["harvested"])


def test_an_export_replays(bftrain: CommandLine, journal: Path, tmp_path: Path) -> None:
    log, tasks, config = (tmp_path / name for name in ("log.npz", "tasks.toml", "config.toml"))
    ended = bftrain("journal", "export", journal, "-o", log, "--tasks", tasks, "--config", config, "--json")
    assert ended.code == 0, ended.err
    assert {name: json.loads(ended.out)[name] for name in ("log", "nodes", "task_count")} == {
        "log": str(log), "nodes": 8, "task_count": 2,
    }  # fmt: skip
    assert load_log(log).provenance.made_by == "journal"
    resnet, vgg = load_tasks(tasks)
    assert resnet.work_samples is None
    assert vgg.work_samples == pytest.approx(15_624.0)
    again = bftrain("replay", log, "--tasks", tasks, "--config", config, "-o", tmp_path / "what-if", "--json")
    recorded = bftrain("journal", "replay", journal, "--json")
    assert json.loads(again.out)["idle_node_h"] == json.loads(recorded.out)["idle_node_h"]


def test_what_tasks_reported_is_their_work(bftrain: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    with Journal.create(path, Settings()) as journal:
        store = TaskStore(journal)
        for number in 1, 2:
            task = replace(record(number), name="a", spec=SPEC)
            store.add(task)
            store.change(replace(task, state=LiveTaskState.DONE, progress=Progress(samples=1234.0 * number)))
            joined = [NodesJoined(time_s=0.0, nodes=("n1",))] if number == 1 else []
            journal.append_events([*joined, TaskSubmitted(time_s=10.0 * number, spec=SPEC)], store.due())
            journal.append_events([TaskFinished(time_s=10.0 * number + 5, task="a")])
    assert bftrain("journal", "export", path, "-o", tmp_path / "log.npz", "--tasks", tmp_path / "tasks.toml").code == 0
    found = {task.name: task.work_samples for task in load_tasks(tmp_path / "tasks.toml")}
    assert found == {"a": 1234.0, "a-2": 2468.0}
