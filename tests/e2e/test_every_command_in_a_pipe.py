"""Every command as the installed program, in a pipe whose reader may leave early, and those that take their time."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from tests.helpers.every_command import CALLS, SHORT, prepare, words_of
from tests.helpers.program import bftrain, shell

LONG = [name for name, call in CALLS.items() if call.long]
PRINTS = [name for name, call in SHORT.items() if not call.nothing]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("every command")
    prepare(place)
    assert bftrain("decide", place / "events.jsonl", "--journal", place / "journal.db").code == 0
    return place


@pytest.mark.parametrize("name", PRINTS)
def test_who_leaves_early_hears_no_complaint(name: str, folder: Path) -> None:
    reader = "head -c 1" if name < "g" else "true"  # one that reads a little, or one that reads nothing
    ended = shell(f"bftrain {shlex.join(words_of(name, folder, '-q'))} | {reader}")
    assert ended.code in {0, CALLS[name].code}
    assert "Broken pipe" not in ended.err
    assert [line for line in ended.err.splitlines() if not line.startswith("warning: ")] == [] or CALLS[name].code


@pytest.mark.parametrize("name", LONG)
def test_json_is_all_there_is_on_stdout_of_those_that_take_their_time(name: str, folder: Path, no_torch: str) -> None:
    ended = bftrain(*words_of(name, folder, "--json", "-v"), PYTHONPATH=no_torch)
    assert ended.code == CALLS[name].code, ended.err
    assert ended.out.count("\n") == 1
    assert isinstance(json.loads(ended.out), dict | list)


@pytest.mark.parametrize("name", LONG)
def test_lines_are_plain_in_those_that_take_their_time(name: str, folder: Path, no_torch: str) -> None:
    ended = bftrain(*words_of(name, folder), PYTHONPATH=no_torch)
    assert ended.code == CALLS[name].code, ended.err
    for said in (ended.out, ended.err):
        assert "\x1b" not in said
        assert [line for line in said.splitlines() if line != line.rstrip()] == []
