"""``bftrain decide``: events in, actions out, all of it on record before it is acted on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bftrain import Entity, Journal, NotAvailable, ReplaySettings, Settings
from bftrain.config import dump
from tests.helpers.in_process import CommandLine, Ended

Record = dict[str, Any]


def joined(time_s: float, *nodes: str, **more: str) -> Record:
    return {"event": "nodes_joined", "time_s": time_s, "nodes": nodes, **more}


def left(time_s: float, *nodes: str) -> Record:
    return {"event": "nodes_left", "time_s": time_s, "nodes": nodes}


def submitted(time_s: float, name: str, least: int, most: int, **more: object) -> Record:
    spec = {"name": name, "min_nodes": least, "max_nodes": most, "curve": {"nodes": [1, 4], "rate": [10.0, 40.0]}}
    return {"event": "task_submitted", "time_s": time_s, "spec": {**spec, **more}}


def lines(events: list[Any]) -> str:
    """Return a line for each event, or for each list of events of one moment."""
    return "".join(json.dumps(event) + "\n" for event in events)


NODES = ("n1", "n2", "n3", "n4")
A_DAY = [joined(0, "n1", "n2", "n3"), submitted(5, "a", 2, 4), [left(9, "n1", "n2"), joined(9, "n4")]]
ACTIONS = [
    {"action": "start", "nodes": ["n1", "n2", "n3"], "task": "a"},
    {"action": "release", "nodes": ["n1", "n2"]},
    {"action": "stop", "nodes": ["n1", "n2", "n3"], "task": "a", "cause": "below_minimum"},
    {"action": "start", "nodes": ["n3", "n4"], "task": "a"},
]


def actions(ended: Ended) -> list[Record]:
    assert ended.code == 0, ended.err
    return [json.loads(line) for line in ended.out.splitlines()]


def test_events_become_actions_from_a_pipe_or_a_file_with_blank_lines(bftrain: CommandLine, tmp_path: Path) -> None:
    assert actions(bftrain("decide", stdin=lines(A_DAY))) == ACTIONS
    (tmp_path / "events.jsonl").write_text("\n" + lines(A_DAY).replace("\n", "\n \n"))
    assert actions(bftrain("decide", tmp_path / "events.jsonl")) == ACTIONS


def test_a_list_is_one_moment_and_one_decision(bftrain: CommandLine, tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    assert actions(bftrain("decide", "--journal", journal, stdin=lines([A_DAY[:2], [], A_DAY[2]]))) == ACTIONS
    assert json.loads(bftrain("journal", "verify", journal, "--json").out)["steps"] == 2


def test_settings_come_from_a_file_and_options_win(bftrain: CommandLine, tmp_path: Path) -> None:
    config, journal = tmp_path / "b.toml", tmp_path / "j.db"
    config.write_text('max_tasks = 1\nsolver = "greedy"\nhorizon_s = 60\n')
    text = lines([[joined(0, *NODES), submitted(0, "a", 1, 2), submitted(0, "b", 1, 2)]])
    assert [action["task"] for action in actions(bftrain("decide", "--config", config, stdin=text))] == ["a"]
    both = ("--config", config, "--max-tasks", 2, "--horizon", "1.5min", "--journal", journal)
    assert sorted(action["task"] for action in actions(bftrain("decide", *both, stdin=text))) == ["a", "b"]
    with Journal.open(journal) as opened:
        assert opened.settings == Settings(solver="greedy", horizon_s=90.0, max_tasks=2)


def test_every_setting_has_an_option(bftrain: CommandLine, tmp_path: Path) -> None:
    odd = Settings(
        solver="greedy", fallback="", objective="speedup", horizon_s=7.5, max_tasks=3, solver_deadline_s=2.5,
        solver_gap=0.25, solver_threads=2, max_failures=5, entities={"a": Entity(weight=3)}, prices={"v100": 2},
    )  # fmt: skip
    shares, journal = tmp_path / "shares.toml", tmp_path / "j.db"
    shares.write_text("[entities]\na = 3\n[prices]\nv100 = 2\n")
    given = {name: getattr(odd, name) for name in odd.__struct_fields__ if name not in {"entities", "prices", "racks"}}
    options = [f"--{name.removesuffix('_s').replace('_', '-')}={value}" for name, value in given.items()]
    assert bftrain("decide", *options, f"--shares={shares}", "--journal", journal).code == 0
    shares.unlink()  # the journal needs it no more
    with Journal.open(journal) as opened:
        assert opened.settings == odd
    assert bftrain("journal", "verify", journal).code == 0


def test_notes_go_to_stderr_unless_quiet(bftrain: CommandLine) -> None:
    loud = bftrain("decide", stdin=lines([left(0, "x")]))
    assert (loud.out, "note: node 'x'" in loud.err) == ("", True)
    assert bftrain("decide", "-q", stdin=lines([left(0, "x")])).err == ""


def test_what_came_before_a_bad_line_is_done(bftrain: CommandLine) -> None:
    first = lines([A_DAY[:2]]).encode()
    ended = bftrain("decide", stdin=first + b"\xff\xfe\n" + first)
    assert (ended.code, ended.err.startswith("bftrain: stdin:2: not valid JSON")) == (3, True)
    assert [json.loads(line) for line in ended.out.splitlines()] == ACTIONS[:1]


def test_a_journal_is_begun_and_gone_on_with(bftrain: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "j"
    assert actions(bftrain("decide", "--journal", path, stdin=lines(A_DAY[:2]))) == ACTIONS[:1]
    more = bftrain("decide", "--journal", path, stdin=lines(A_DAY[2:]))
    assert (actions(more), "after 2 steps" in more.err) == (ACTIONS[1:], True)
    with Journal.open(path) as journal:
        assert [len(step.events) for step in journal.steps()] == [1, 1, 2]
        assert journal.settings == Settings()
    for options, words in ((("--horizon", 60), "horizon_s"), (("--solver", "greedy"), "solver = 'exact'")):
        other = bftrain("decide", "--journal", path, *options)
        assert (other.code, words in other.err) == (3, True)


def test_a_step_that_was_cut_off_is_decided_first(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, really = tmp_path / "j", Journal.append_decision

    def fail_third(journal: Journal, decision: Any) -> None:  # noqa: ANN401 - handed through
        if decision.at_once:
            raise NotAvailable("the disk is full")
        really(journal, decision)

    monkeypatch.setattr(Journal, "append_decision", fail_third)
    ended = bftrain("decide", "--journal", path, stdin=lines(A_DAY))
    assert (ended.code, "the disk is full" in ended.err) == (4, True)
    # What need not wait for the solver, such as a release, is written before the decision is on disk
    assert [json.loads(line) for line in ended.out.splitlines()] == ACTIONS[:3]
    monkeypatch.setattr(Journal, "append_decision", really)
    assert "no decision was recorded" in bftrain("journal", "show", path).out
    assert actions(bftrain("decide", "--journal", path))[-1] == ACTIONS[-1]
    assert json.loads(bftrain("journal", "verify", path, "--json").out) == {"steps": 3, "different": []}


def test_events_are_on_disk_before_their_actions_are_written(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    really = Journal.append_events

    def fail_last(journal: Journal, moment: Any) -> None:  # noqa: ANN401 - handed through
        if moment[0].time_s == 9:
            raise NotAvailable("the disk is full")
        really(journal, moment)

    monkeypatch.setattr(Journal, "append_events", fail_last)
    ended = bftrain("decide", "--journal", tmp_path / "j", stdin=lines(A_DAY))
    assert (ended.code, "the disk is full" in ended.err) == (4, True)
    assert [json.loads(line) for line in ended.out.splitlines()] == ACTIONS[:1]


def test_actions_come_out_while_the_pipe_is_still_open() -> None:
    command = [sys.executable, "-m", "bftrain", "decide"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines(A_DAY[:2]))
        process.stdin.flush()
        assert json.loads(process.stdout.readline()) == ACTIONS[0]
        process.stdin.close()
        assert process.wait(60) == 0


def test_a_journal_finds_an_objective_of_ones_own_from_another_folder(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "mine.py").write_text("def mine(task, sizes):\n    return sizes * 1.0\n")
    journal = tmp_path / "j.db"
    monkeypatch.chdir(tmp_path / "here")
    assert bftrain("decide", "--objective", "mine.py:mine", "--journal", journal, stdin=lines(A_DAY)).code == 0
    monkeypatch.chdir(tmp_path)
    assert bftrain("journal", "verify", journal).code == 0


def test_the_configuration_of_a_replay_decides_too(bftrain: CommandLine, events: Path, tmp_path: Path) -> None:
    plain = bftrain("decide", events, "--solver", "greedy", "--horizon", "60")
    settings = ReplaySettings(solver="greedy", horizon_s=60.0)
    config = tmp_path / "config.toml"
    config.write_text(dump(settings))
    output = bftrain("decide", events, "--config", config)
    assert (output.code, output.out) == (0, plain.out)
    assert f"{config}: [replay] is ignored" in output.err


FAST, SLOW = {"nodes": [1, 2], "rate": [10.0, 19.0]}, {"nodes": [1, 2], "rate": [4.0, 8.0]}
KINDS = [
    [
        joined(0, "k1", "k2", kind="k80"),
        submitted(0, "both", 1, 2, curves={"v100": FAST, "k80": SLOW}, start_cost_s=5.0, shrink_cost_s=5.0),
    ],
    joined(100, "v1", "v2", kind="v100"),
    left(200, "v1", "v2"),
]


def test_a_task_moves_between_kinds_and_so_does_its_journal(bftrain: CommandLine, tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    made = [action for part in (KINDS[:2], KINDS[2:]) for action in actions(
        bftrain("decide", "--journal", journal, stdin=lines(part)))]  # fmt: skip
    assert [(each["action"], each["nodes"], each.get("cause")) for each in made] == [
        ("start", ["k1", "k2"], None),
        ("stop", ["k1", "k2"], "decided"),
        ("start", ["v1", "v2"], None),
        ("release", ["v1", "v2"], None),
        ("stop", ["v1", "v2"], "preempted"),
        ("start", ["k1", "k2"], None),
    ]
    assert json.loads(bftrain("journal", "verify", journal, "--json").out) == {"steps": 3, "different": []}
    assert json.loads(bftrain("journal", "plan", journal, "--json").out)["holdings"] == {"both": ["k1", "k2"]}
    assert '"kinds":{"both":"v100"}' in bftrain("journal", "show", journal, "--json").out.replace(" ", "")
