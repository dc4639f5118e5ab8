"""``bftrain journal``: what is in a journal, who holds what at its end, and does it lead there again?"""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

import pytest
from msgspec import structs

from bftrain import Journal, Run, Settings, SpeedCurve, TaskSpec
from bftrain.live.commands.submit import submission_of
from bftrain.live.model.task_record import LiveTaskRecord, Progress
from bftrain.live.tasks.task_store import CLUSTER, TaskStore
from bftrain.taskfiles.profile_files import load_profiles, save_profiles
from bftrain.taskfiles.records import Profile
from bftrain.values import wire
from tests.helpers.in_process import CommandLine
from tests.helpers.lines import lines
from tests.unit.core.samples import A_DAY, joined


@pytest.fixture
def recorded(bftrain: CommandLine, tmp_path: Path) -> Path:
    """Return a journal of three steps, whose figures can be counted by hand."""
    path = tmp_path / "run.journal"
    assert bftrain("decide", "--journal", path, stdin=lines(A_DAY)).code == 0
    return path


def test_show_prints_a_row_per_step(
    bftrain: CommandLine, recorded: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(recorded.parent)
    with Journal.open(recorded) as opened:
        opened.append_events([joined(10, "n9")])
    ended = bftrain("journal", "show", recorded.name)
    assert ended.code == 0
    shown = [" ".join(line.split()) for line in ended.out.splitlines()]
    assert shown[0] == "run.journal: 4 steps"
    assert "3 9 s n[1-2] left 2 2" in shown
    assert "4 10 s n9 became idle" in shown
    assert shown[shown.index("4 10 s n9 became idle") + 1] == "no decision was recorded"
    with Journal.open(recorded) as opened:
        (*_, last) = (step.decision for step in opened.steps() if step.decision is not None)
        opened.append_decision(structs.replace(last, at_once=(), actions=(), notes=()))
        opened.append_decision(structs.replace(last, at_once=(), actions=(), notes=()))  # as after a restart
    assert "it was decided again: nothing changes" in bftrain("journal", "show", recorded.name).out
    example = bftrain("journal", "show", journal).out
    assert f"{journal}: 5 steps" in example
    for words in (
        "1   0 s      n[1-6] became idle                                6      6",
        "task 'resnet' was submitted for 2 to 8 nodes",
        "-> resnet starts on 6 nodes: n[1-6]",
        "-> resnet loses n[1-2] (preempted)",
        "-> resnet grows to 5 nodes by n8",
    ):
        assert words in example


def test_profiles_are_what_was_measured_and_the_next_tasks_have_them(bftrain: CommandLine, tmp_path: Path) -> None:
    def record(number: int, script: str, **progress: object) -> LiveTaskRecord:
        spec = TaskSpec(name=f"t{number}", max_nodes=4, curve=SpeedCurve(nodes=(4,), rate=(4.0,)))
        return LiveTaskRecord(
            number=number, name=spec.name, uid=1, user="ada", launcher="fake", spec=spec, guessed=True,
            run=Run(argv=(f"/home/ada/{script}.py",)), submitted_s=0.0, progress=Progress(**progress),  # type: ignore[arg-type]  # fields
        )  # fmt: skip

    path, target = tmp_path / "live.db", tmp_path / "learned.toml"
    with Journal.create(path, Settings()) as opened:
        store = TaskStore(opened)
        costs = {"grow": 0.5, "start": 4.0}
        store.add(record(1, "cnn", speeds={1: 90.0, 2: 170.0, 4: 1.0}, settled=(1, 2), costs=costs))
        store.add(record(2, "cnn", speeds={1: 110.0}, settled=(1,)))
        store.add(record(3, "new"))
        store.write()
    old = SpeedCurve(nodes=(1,), rate=(7.0,))
    free = {"grow_cost_s": 0.0, "shrink_cost_s": 0.0}
    save_profiles([Profile(name=name, curve=old, source="", **free) for name in ("bert", "cnn")], target)
    ended = bftrain("journal", "profiles", path, "-o", target)
    assert (ended.code, "cnn" in ended.out, "1 2" in ended.out) == (0, True, True)
    bert, cnn = load_profiles(target)
    assert (bert.name, bert.curve.rate, cnn.name, cnn.curve) == (
        *("bert", (7.0,), "cnn"),
        SpeedCurve(nodes=(1, 2), rate=(100.0, 170.0)),
    )
    assert (cnn.grow_cost_s, cnn.shrink_cost_s, cnn.start_cost_s) == (0.5, 0.0, 4.0)
    (tmp_path / "cnn.py").write_text("", encoding="utf-8")
    learned = {each.name: each for each in (bert, cnn)}
    task = submission_of({"script": "cnn.py", "nodes": "1:8"}, "task.toml", tmp_path, learned)
    assert (task.curve, task.max_nodes, task.start_cost_s) == (cnn.curve, 8, 4.0)
    own = {"nodes": [1], "rate": [5.0]}
    assert submission_of({"script": "cnn.py", "curve": own}, "task.toml", tmp_path, learned).start_cost_s == 0.0
    assert submission_of({"command": "other", "nodes": "1:8"}, "task.toml", tmp_path, learned).curve is None


def test_a_journal_without_measured_tasks_gives_no_profiles(
    bftrain: CommandLine, recorded: Path, tmp_path: Path
) -> None:
    ended = bftrain("journal", "profiles", recorded, "-o", tmp_path / "learned.toml")
    assert (ended.code, "no task in it has a measured speed" in ended.err) == (3, True)
    assert not (tmp_path / "learned.toml").exists()
    assert bftrain("journal", "profiles", recorded, "-o", tmp_path / "learned.csv").code == 3


def test_show_finds_steps_by_task_node_and_time(bftrain: CommandLine, journal: Path, tmp_path: Path) -> None:
    def numbers(*words: object) -> list[int]:
        ended = bftrain("journal", "show", journal, "--json", *words)
        assert ended.code == 0, ended.err
        return [json.loads(line)["number"] for line in ended.out.splitlines()]

    assert numbers("--task", "vgg") == [2, 3, 4, 5]
    assert numbers("--node", "n[7-8]") == [3, 4, 5]
    assert numbers("--since", "60", "--until", "900") == [2, 3, 4]
    assert numbers("--task", "resnet", "--last", "1") == [5]
    assert numbers("--task", "resnet", "--node", "n1") == [1, 4]
    assert numbers("--since", "2001-01-01") == []
    shown = bftrain("journal", "show", journal, "--node", "n8").out
    assert f"{journal}: 2 of 5 steps" in shown
    for words in (("--since", "soon"), ("--node", "n[1-")):
        refused = bftrain("journal", "show", journal, *words)
        assert refused.code == 3
        assert "such as" in refused.err
    at_s = 1_795_628_733.0
    with Journal.create(tmp_path / "live.db", Settings()) as live:
        live.append_events([joined(at_s, "n1")])
        task_store = TaskStore(live)
        task_store.record_fact(CLUSTER, "physics")
        task_store.write()
    day = time.strftime("%Y-%m-%d", time.localtime(at_s))
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at_s))
    assert clock in bftrain("journal", "show", tmp_path / "live.db", "--since", day).out
    assert "0 of 1 step on cluster physics" in bftrain("journal", "show", tmp_path / "live.db", "--until", day).out


def test_show_as_json_gives_every_step_whole(bftrain: CommandLine, journal: Path) -> None:
    steps = [json.loads(line) for line in bftrain("journal", "show", "--json", journal).out.splitlines()]
    with Journal.open(journal) as opened:
        assert steps == [json.loads(wire.encode(step)) for step in opened.steps()]
    assert [step["number"] for step in steps] == [1, 2, 3, 4, 5]
    assert steps[3]["events"][0]["nodes"] == ["n1", "n2", "n7"]


def test_plan_says_who_holds_what_at_the_end(bftrain: CommandLine, recorded: Path, journal: Path) -> None:
    assert json.loads(bftrain("journal", "plan", "--json", recorded).out) == {"holdings": {"a": ["n3", "n4"]}}
    assert ["a", "2", "n3", "n4"] in [line.split() for line in bftrain("journal", "plan", recorded).out.splitlines()]
    held = json.loads(bftrain("journal", "plan", journal, "--json").out)["holdings"]
    assert set(held) == {"resnet"}
    assert set(held["resnet"]) <= {f"n{number}" for number in (3, 4, 5, 6, 8)}
    assert "resnet" in bftrain("journal", "plan", journal).out


def test_verify_finds_nothing_in_a_good_journal(bftrain: CommandLine, recorded: Path) -> None:
    assert bftrain("journal", "verify", recorded).out == "3 steps, every decision the same\n"
    assert json.loads(bftrain("journal", "verify", "--json", recorded).out) == {"steps": 3, "different": []}


def test_verify_names_the_steps_that_were_changed(bftrain: CommandLine, recorded: Path) -> None:
    connection = sqlite3.connect(recorded)
    change = """UPDATE entry SET body = replace(body, '"sizes":{"a":2}', '"sizes":{"a":0}') WHERE kind = 'decision'"""
    connection.execute(change)
    connection.commit()
    connection.close()
    ended = bftrain("journal", "verify", recorded)
    assert ended.code == 3
    first, last = ended.err.splitlines()
    assert first.startswith("step 3: recorded {'a': 0} worth ")
    assert last == f"bftrain: {recorded}: 1 of 3 decisions differ"
    assert bftrain("journal", "verify", "-q", recorded).err == f"{last}\n"
    as_json = bftrain("journal", "verify", "--json", "-q", recorded)
    assert (as_json.code, json.loads(as_json.out)) == (3, {"steps": 3, "different": [3]})


@pytest.mark.parametrize("what", ["show", "plan", "verify"])
def test_what_is_no_journal_is_bad_input(bftrain: CommandLine, tmp_path: Path, what: str) -> None:
    absent = bftrain("journal", what, tmp_path / "none")
    assert (absent.code, absent.err) == (3, f"bftrain: {tmp_path / 'none'}: no such journal\n")
    (tmp_path / "text").write_text("just text" * 100)
    text = bftrain("journal", what, tmp_path / "text")
    assert (text.code, text.err) == (3, f"bftrain: {tmp_path / 'text'}: is not a journal: file is not a database\n")
