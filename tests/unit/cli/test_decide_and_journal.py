"""``bftrain decide`` and ``bftrain journal``: events in, actions out, all of it on record."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helpers.in_process import CommandLine

JOINED = '{"event": "nodes_joined", "time_s": 0, "nodes": ["n1", "n2"]}\n'
SUBMITTED = (
    '{"event": "task_submitted", "time_s": 1, '
    '"spec": {"name": "a", "curve": {"nodes": [1, 2], "rate": [10, 19]}, "max_nodes": 2}}\n'
)
LEFT = '{"event": "nodes_left", "time_s": 500, "nodes": ["n2"]}\n'


def actions(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_events_become_actions(bftrain: CommandLine) -> None:
    ended = bftrain("decide", stdin=JOINED + "\n" + SUBMITTED + LEFT)
    assert ended.code == 0
    assert actions(ended.out) == [
        {"action": "start", "nodes": ["n1", "n2"], "task": "a"},
        {"action": "release", "nodes": ["n2"]},
        {"action": "shrink", "nodes": ["n2"], "task": "a", "cause": "preempted"},
    ]


def test_events_of_one_moment_lead_to_one_decision(bftrain: CommandLine, tmp_path: Path) -> None:
    moment = f"[{JOINED.strip()}, {SUBMITTED.strip()}]\n[]\n".replace('"time_s": 1', '"time_s": 0')
    assert bftrain("decide", "--journal", tmp_path / "j.db", stdin=moment).code == 0
    assert json.loads(bftrain("journal", "verify", tmp_path / "j.db", "--json").out)["steps"] == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"event": "nodes_jumped", "time_s": 3}', "stdin:3"),
        ("no JSON at all", "stdin:3"),
        ('{"event": "nodes_joined", "time_s": 2, "nodes": ["n3", "n3"]}', "stdin:3"),
        ('{"event": "nodes_left", "time_s": -1, "nodes": ["n1"]}', "stdin:3"),
    ],
)
def test_a_bad_line_ends_it_and_is_named(bftrain: CommandLine, line: str, words: str) -> None:
    ended = bftrain("decide", stdin=f"{JOINED}{SUBMITTED}{line}\n")
    assert ended.code == 3
    assert words in ended.err
    assert actions(ended.out)[0]["action"] == "start"  # what came before was answered


def test_settings_come_from_a_file_and_options_win(bftrain: CommandLine, tmp_path: Path) -> None:
    config = tmp_path / "site.toml"
    config.write_text('solver = "greedy"\nhorizon_s = 60\n')
    journal = tmp_path / "j.db"
    ended = bftrain("decide", "--config", config, "--horizon", 90, "--journal", journal, stdin=JOINED)
    assert ended.code == 0
    with sqlite3.connect(journal) as connection:
        (settings,) = connection.execute("SELECT value FROM about WHERE key = 'settings'").fetchone()
    connection.close()
    assert json.loads(settings)["solver"] == "greedy"
    assert json.loads(settings)["horizon_s"] == 90.0


def test_it_goes_on_where_the_journal_ends(bftrain: CommandLine, tmp_path: Path) -> None:
    whole = bftrain("decide", stdin=JOINED + SUBMITTED + LEFT)
    journal = tmp_path / "j.db"
    first = bftrain("decide", "--journal", journal, stdin=JOINED + SUBMITTED)
    second = bftrain("decide", "--journal", journal, stdin=LEFT)
    assert first.out + second.out == whole.out
    assert "going on after 2 steps" in second.err
    assert bftrain("decide", "--journal", journal, "-q").err == ""


def test_other_settings_than_the_journals_are_refused(bftrain: CommandLine, journal: Path) -> None:
    ended = bftrain("decide", "--journal", journal, "--solver", "greedy")
    assert ended.code == 3
    assert "was begun with solver = 'exact'" in ended.err


def test_a_step_that_was_cut_off_is_completed(bftrain: CommandLine, tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    assert bftrain("decide", "--journal", journal, stdin=JOINED + SUBMITTED + LEFT).code == 0
    with sqlite3.connect(journal) as connection:  # as if the power had gone before the last decision
        connection.execute("DELETE FROM entry WHERE number = (SELECT max(number) FROM entry)")
    connection.close()
    shown = bftrain("journal", "show", journal).out
    assert "none was recorded" in shown
    ended = bftrain("decide", "--journal", journal)
    assert [action["action"] for action in actions(ended.out)] == ["release", "shrink"]
    assert bftrain("journal", "verify", journal).out == "3 steps, every decision the same\n"


def test_show_tells_every_step(bftrain: CommandLine, journal: Path) -> None:
    words = bftrain("journal", "show", journal)
    assert words.code == 0
    assert f"{journal}: 5 steps" in words.out
    assert "nodes_joined, task_submitted" in words.out
    steps = [json.loads(line) for line in bftrain("journal", "show", journal, "--json").out.splitlines()]
    assert [step["number"] for step in steps] == [1, 2, 3, 4, 5]
    assert steps[3]["events"][0]["nodes"] == ["n1", "n2", "n7"]


def test_plan_tells_who_holds_what_at_the_end(bftrain: CommandLine, journal: Path) -> None:
    held = json.loads(bftrain("journal", "plan", journal, "--json").out)["holdings"]
    assert set(held) == {"resnet"}
    assert set(held["resnet"]) <= {f"n{number}" for number in (3, 4, 5, 6, 8)}
    assert "resnet" in bftrain("journal", "plan", journal).out


def test_verify_names_the_steps_that_differ(bftrain: CommandLine, journal: Path) -> None:
    with sqlite3.connect(journal) as connection:
        row = connection.execute("SELECT number, body FROM entry WHERE step = 3 AND kind = 'decision'").fetchone()
        decision = json.loads(row[1])
        decision["sizes"] = dict.fromkeys(decision["sizes"], 0)
        connection.execute("UPDATE entry SET body = ? WHERE number = ?", (json.dumps(decision), row[0]))
    connection.close()
    ended = bftrain("journal", "verify", journal)
    assert ended.code == 3
    assert "step 3: recorded" in ended.err
    assert "of 5 decisions differ" in ended.err
    told = bftrain("journal", "verify", journal, "--json", "-q")
    assert told.code == 3
    assert 3 in json.loads(told.out)["different"]
