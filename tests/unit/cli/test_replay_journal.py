"""``bftrain replay --journal`` and ``bftrain journal export``: what was recorded, and what else could have been."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

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
from bftrain.live.model.task_record import LiveTaskRecord, LiveTaskState, Progress
from bftrain.live.tasks.task_store import TaskStore
from tests.helpers.in_process import CommandLine


def test_a_journal_is_shown_and_written_like_a_replay(bftrain: CommandLine, journal: Path, tmp_path: Path) -> None:
    ended = bftrain("replay", "--journal", journal, "-o", tmp_path / "done", "--baseline", "greedy")
    assert ended.code == 0, ended.err
    assert "5 steps, every decision the same" in ended.err
    assert "greedy" in ended.out
    summary = json.loads((tmp_path / "done" / "summary.json").read_text())
    assert (summary["decisions"], summary["complete"], summary["inputs"]["log"]["name"]) == (5, True, str(journal))
    assert bftrain("report", tmp_path / "done", "-o", tmp_path / "page.html").code == 0
    shown = json.loads(bftrain("replay", "--journal", journal, "--json").out)
    assert (shown["steps"], shown["different"], shown["harvested"]) == (5, [], summary["harvested"])


def test_decisions_that_differ_are_a_failure(bftrain: CommandLine, journal: Path) -> None:
    with closing(sqlite3.connect(journal)) as connection:
        found = connection.execute("SELECT number, body FROM entry WHERE kind = 'decision' LIMIT 1").fetchone()
        body = json.loads(found[1])
        body["value"] += 1.0
        connection.execute("UPDATE entry SET body = ? WHERE number = ?", (json.dumps(body), found[0]))
        connection.commit()
    ended = bftrain("replay", "--journal", journal, "--json")
    assert ended.code == 3
    assert json.loads(ended.out)["different"] == [1]
    assert "1 of 5 decisions differ" in ended.err


@pytest.mark.parametrize(
    ("words", "where"), [(["--horizon", "3"], "--horizon"), (["{journal}"], "LOG"), (["--seed", "1"], "--seed")]
)
def test_what_a_journal_says_itself_is_refused(
    words: list[str], where: str, bftrain: CommandLine, journal: Path
) -> None:
    ended = bftrain("replay", "--journal", journal, *(word.format(journal=journal) for word in words))
    assert (ended.code, ended.out) == (2, "")
    assert f"bftrain: {where}: a journal was written with settings" in ended.err


def test_without_a_journal_all_the_rest_is_needed(bftrain: CommandLine, journal: Path, tmp_path: Path) -> None:
    for words, missing in ((), "LOG"), ((journal,), "-o"), ((journal, "--tasks", journal), "-o"):
        ended = bftrain("replay", *words)
        assert ended.code == 2
        assert f"bftrain: {missing}: is missing" in ended.err
    assert bftrain("replay", "--journal", tmp_path / "none").code == 2


def test_an_export_replays(bftrain: CommandLine, journal: Path, tmp_path: Path) -> None:
    log, tasks, config = (tmp_path / name for name in ("log.npz", "tasks.toml", "config.toml"))
    ended = bftrain("journal", "export", journal, "-o", log, "--tasks", tasks, "--config", config, "--json")
    assert ended.code == 0, ended.err
    output = json.loads(ended.out)
    assert (output["log"], output["nodes"], output["task_count"]) == (str(log), 8, 2)
    assert load_log(log).provenance.made_by == "journal"
    resnet, vgg = load_tasks(tasks)
    assert resnet.work_samples is None
    assert vgg.work_samples == pytest.approx(15_624.0)
    again = bftrain("replay", log, "--tasks", tasks, "--config", config, "-o", tmp_path / "what-if", "--json")
    assert again.code == 0, again.err
    assert (
        json.loads(again.out)["idle_node_h"]
        == json.loads(bftrain("replay", "--journal", journal, "--json").out)["idle_node_h"]
    )
    assert bftrain("journal", "export", journal, "-o", tmp_path / "log.what").code == 3


def test_what_tasks_reported_is_their_work(bftrain: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "live.db"
    spec = TaskSpec(name="a", curve=SpeedCurve(nodes=(1,), rate=(10.0,)), max_nodes=1)
    kept = LiveTaskRecord(
        number=1,
        name="a",
        uid=1,
        user="u",
        launcher="fake",
        spec=spec,
        guessed=False,
        run=Run(argv=("a",)),
        submitted_s=0,
    )
    with Journal.create(path, Settings()) as journal:
        memory = TaskStore(journal)
        for number in 1, 2:
            memory.add(
                LiveTaskRecord(**{**{name: getattr(kept, name) for name in kept.__struct_fields__}, "number": number})
            )
            done = {"state": LiveTaskState.DONE, "progress": Progress(samples=1234.0 * number), "number": number}
            memory.change(LiveTaskRecord(**{**{name: getattr(kept, name) for name in kept.__struct_fields__}, **done}))
            joined = [NodesJoined(time_s=0.0, nodes=("n1",))] if number == 1 else []
            journal.append_events([*joined, TaskSubmitted(time_s=10.0 * number, spec=spec)], memory.due())
            journal.append_events([TaskFinished(time_s=10.0 * number + 5, task="a")])
    assert bftrain("journal", "export", path, "-o", tmp_path / "log.npz", "--tasks", tmp_path / "tasks.toml").code == 0
    found = {task.name: task.work_samples for task in load_tasks(tmp_path / "tasks.toml")}
    assert found == {"a": 1234.0, "a-2": 2468.0}
