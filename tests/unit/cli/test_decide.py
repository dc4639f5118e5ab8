"""``bftrain decide``: events in, actions out, all of it on record before it is acted on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import asdict, fields

from bftrain import Entity, Journal, ReplaySettings, Settings, errors
from bftrain.cli.settings import OPTIONS, TABLES, DurationType, SecondsOrWord
from bftrain.config import dump
from tests.helpers.in_process import CommandLine, Ended
from tests.helpers.lines import lines
from tests.unit.core.samples import A_DAY, joined, left, nodes, spec, submitted

ACTIONS = [
    {"action": "start", "nodes": ["n1", "n2", "n3"], "task": "a"},
    {"action": "release", "nodes": ["n1", "n2"]},
    {"action": "stop", "nodes": ["n1", "n2", "n3"], "task": "a", "cause": "below_minimum"},
    {"action": "start", "nodes": ["n3", "n4"], "task": "a"},
]


def actions(ended: Ended) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ended.out.splitlines()]


def test_events_become_actions(bftrain: CommandLine) -> None:
    ended = bftrain("decide", stdin=lines(A_DAY))
    assert (ended.code, actions(ended)) == (0, ACTIONS)
    smaller = bftrain("decide", stdin=lines([joined(0, "n1", "n2"), submitted(1, spec("a", 1, 2)), left(500, "n2")]))
    assert actions(smaller)[1:] == [
        {"action": "release", "nodes": ["n2"]},
        {"action": "shrink", "nodes": ["n2"], "task": "a", "cause": "preempted"},
    ]


def test_a_file_is_read_and_blank_lines_are_passed_over(bftrain: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").write_text("\n" + lines(A_DAY).replace("\n", "\n \n"))
    assert actions(bftrain("decide", tmp_path / "events.jsonl")) == ACTIONS


def test_a_list_is_one_moment_and_one_decision(bftrain: CommandLine, tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    ended = bftrain("decide", "--journal", journal, stdin=lines([A_DAY[:2], [], A_DAY[2:]]))
    assert actions(ended) == ACTIONS
    assert json.loads(bftrain("journal", "verify", journal, "--json").out)["steps"] == 2
    together = lines([[*A_DAY[:2], submitted(0, spec("b", 4, 4))]])
    assert actions(bftrain("decide", stdin=together)) == [{"action": "start", "nodes": [*nodes(1, 4)], "task": "b"}]


def test_settings_come_from_a_file_and_options_win(bftrain: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "b.toml").write_text('max_tasks = 1\nsolver = "greedy"\nhorizon_s = 60\n')
    config = ("--config", tmp_path / "b.toml")
    text = lines([[joined(0, *nodes(1, 4)), submitted(0, spec("a", 1, 2)), submitted(0, spec("b", 1, 2))]])
    assert [action["task"] for action in actions(bftrain("decide", *config, stdin=text))] == ["a"]
    journal = tmp_path / "j.db"
    both = bftrain("decide", *config, "--max-tasks", 2, "--horizon", 90, "--journal", journal, stdin=text)
    assert sorted(action["task"] for action in actions(both)) == ["a", "b"]
    with Journal.open(journal) as opened:
        assert opened.settings == Settings(solver="greedy", horizon_s=90.0, max_tasks=2)


def test_the_options_tell_the_types_and_defaults_of_the_settings() -> None:
    flat = [field for field in fields(Settings) if field.name not in TABLES]
    kinds = {name: float if isinstance(kind, DurationType) else kind for name, (kind, _) in OPTIONS.items()}
    assert isinstance(kinds.pop("horizon_s"), SecondsOrWord)
    assert kinds == {field.name: field.type for field in flat if field.name != "horizon_s"}
    for field in flat:
        default = field.default if isinstance(field.default, str) else f"{field.default:g}"
        assert OPTIONS[field.name][1].endswith(f" [{default}].")


def test_every_setting_has_an_option(bftrain: CommandLine, tmp_path: Path) -> None:
    odd = Settings(
        solver="greedy", fallback="", objective="speedup", horizon_s=7.5, max_tasks=3, solver_deadline_s=2.5,
        solver_gap=0.25, solver_threads=2, max_failures=5, entities={"a": Entity(weight=3)}, prices={"v100": 2},
    )  # fmt: skip
    (tmp_path / "shares.toml").write_text("[entities]\na = 3\n[prices]\nv100 = 2\n")
    given = {name: value for name, value in asdict(odd).items() if name not in TABLES}
    options = [f"--{name.removesuffix('_s').replace('_', '-')}={value}" for name, value in given.items()]
    options.append(f"--shares={tmp_path / 'shares.toml'}")
    journal = tmp_path / "j.db"
    assert bftrain("decide", *options, "--journal", journal).code == 0
    with Journal.open(journal) as opened:
        assert opened.settings == odd


def test_notes_go_to_stderr_unless_quiet(bftrain: CommandLine) -> None:
    text = lines([left(0, "x")])
    loud = bftrain("decide", stdin=text)
    assert (loud.out, loud.err) == ("", "note: node 'x' left but was not in the pool\n")
    assert bftrain("decide", "-q", stdin=text).err == ""


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "not valid JSON: Input data was truncated"),
        ("nodes n1 n2", "not valid JSON: "),
        (b"\xff\xfe", "not valid JSON: "),
        ('"nodes_joined"', "Expected `object`, got `str`"),
        ('{"event": "nodes_joind", "time_s": 0, "nodes": []}', "Invalid value 'nodes_joind' - at `event`"),
        ('{"event": "nodes_left", "time_s": 0, "nodes": "n1"}', "Expected `array`, got `str` - at `nodes`"),
        ('{"event": "nodes_joined", "time_s": 2, "nodes": ["n3", "n3"]}', "NodesJoined.nodes: names 'n3' twice"),
        ('[{"event": "nodes_left", "time_s": 0}]', "Object missing required field `nodes` - at `[0]`"),
        (
            '{"event": "nodes_left", "time_s": -1, "nodes": []}',
            "NodesLeft: an event of time -1 came after one of time 0 (hand events in by their time)",
        ),
    ],
)
def test_a_bad_line_is_named_after_what_came_before_it_was_done(
    bftrain: CommandLine, line: str | bytes, words: str
) -> None:
    line = line if isinstance(line, bytes) else line.encode()
    first = lines([A_DAY[:2]]).encode()
    ended = bftrain("decide", stdin=first + line + b"\n" + first)
    assert ended.code == 3
    assert ended.err.startswith(f"bftrain: stdin:2: {words}")
    assert actions(ended) == ACTIONS[:1]


def test_an_unknown_solver_is_suggested(bftrain: CommandLine) -> None:
    ended = bftrain("decide", "--solver", "exat")
    assert (ended.code, ended.err) == (3, "bftrain: no solver is called 'exat' (did you mean 'exact'?)\n")


def test_a_file_that_is_not_there_is_a_matter_of_usage(bftrain: CommandLine, tmp_path: Path) -> None:
    ended = bftrain("decide", tmp_path / "none")
    assert (ended.code, ended.out) == (2, "")
    assert "No such file or directory" in ended.err
    assert bftrain("decide", "--config", tmp_path / "none").code == 2
    assert bftrain("decide", "--journal", tmp_path).code == 2


def test_a_journal_is_begun_and_gone_on_with(bftrain: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "j"
    assert actions(bftrain("decide", "--journal", path, stdin=lines(A_DAY[:2]))) == ACTIONS[:1]
    more = bftrain("decide", "--journal", path, stdin=lines(A_DAY[2:]))
    assert actions(more) == ACTIONS[1:]
    assert more.err == f"{path}: continuing after 2 steps\n"
    with Journal.open(path) as journal:
        assert [len(step.events) for step in journal.steps()] == [1, 1, 1]
        assert journal.settings == Settings()
    assert bftrain("decide", "--journal", path, "-q").err == ""


def test_a_step_that_was_cut_off_is_decided_first(bftrain: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "j"
    bftrain("decide", "--journal", path, stdin=lines(A_DAY[:2]))
    with Journal.open(path) as journal:
        journal.append_events(A_DAY[2:])
    assert "no decision was recorded" in bftrain("journal", "show", path).out
    assert actions(bftrain("decide", "--journal", path)) == ACTIONS[1:]
    assert bftrain("journal", "verify", path).out == "3 steps, every decision the same\n"


def disk_full(given: object) -> None:
    raise errors.NotAvailable(f"cannot be written: {type(given).__name__}")


def test_events_are_on_disk_before_what_they_demand_is_written(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Journal.append_events
    monkeypatch.setattr(
        Journal,
        "append_events",
        lambda self, moment: disk_full(moment) if moment == (A_DAY[2],) else kept(self, moment),
    )
    ended = bftrain("decide", "--journal", tmp_path / "j", stdin=lines(A_DAY))
    assert (ended.code, ended.err) == (4, "bftrain: cannot be written: tuple\n")
    assert actions(ended) == ACTIONS[:1]


def test_a_decision_is_on_disk_before_its_actions_are_written(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Journal.append_decision
    monkeypatch.setattr(
        Journal, "append_decision", lambda self, made: disk_full(made) if made.at_once else kept(self, made)
    )
    ended = bftrain("decide", "--journal", tmp_path / "j", stdin=lines(A_DAY))
    assert (ended.code, ended.err) == (4, "bftrain: cannot be written: Decision\n")
    assert actions(ended) == ACTIONS[:3]


def test_other_settings_than_the_journals_are_refused(bftrain: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "j"
    bftrain("decide", "--journal", path, "--horizon", 60)
    for options, words in (
        ((), "has horizon_s = 60.0, but 'auto' is requested"),
        (("--horizon", 60, "--solver", "greedy"), "has solver = 'exact'"),
    ):
        refused = bftrain("decide", "--journal", path, *options)
        assert refused.code == 3
        assert words in refused.err
    assert bftrain("decide", "--journal", path, "--horizon", 60).code == 0


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


def test_a_wrong_option_is_named_as_it_was_typed(bftrain: CommandLine) -> None:
    ended = bftrain("decide", "--max-tasks", 0, stdin="")
    assert (ended.code, ended.err) == (3, "bftrain: --max-tasks: must be at least 1, not 0\n")


def test_a_wrong_name_leaves_no_journal_behind(bftrain: CommandLine, tmp_path: Path) -> None:
    assert bftrain("decide", "--solver", "none", "--journal", tmp_path / "j.db", stdin="").code == 3
    assert list(tmp_path.iterdir()) == []


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
    monkeypatch.chdir(tmp_path / "here")
    assert bftrain("decide", "--objective", "mine.py:mine", "--journal", journal, stdin="").code == 0


def test_the_configuration_of_a_replay_decides_too(bftrain: CommandLine, events: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(dump(ReplaySettings(solver="greedy", horizon_s=60.0)))
    plain = bftrain("decide", events, "--solver", "greedy", "--horizon", "60")
    same = bftrain("decide", events, "--config", config)
    assert (same.code, same.out, same.err) == (0, plain.out, plain.err)
    config.write_text(dump(ReplaySettings(solver="greedy", horizon_s=60.0, window="0..100", start_cost_s=5.0)))
    output = bftrain("decide", events, "--config", config)
    assert (output.code, output.out) == (0, plain.out)
    assert f"{config}: window is ignored: it is for replays only\n" in output.err
    assert f"{config}: start_cost_s is ignored: it is for replays only\n" in output.err
    config.write_text('solver = "greedy"\nwindwo = "0..1"\n')
    refused = bftrain("decide", events, "--config", config)
    assert refused.code == 3
    assert f"{config}:2: unknown key 'windwo'" in refused.err
