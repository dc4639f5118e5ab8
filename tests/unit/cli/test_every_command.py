"""Every command, for programs: one JSON value on stdout and nothing else, or plain lines that are not wrapped."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from bftrain.cli.main import COMMANDS
from tests.helpers.every_command import CALLS, LONG, SHORT, commands_that_do_something, prepare, words_of
from tests.helpers.in_process import CommandLine, Ended


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("every") / LONG
    folder.mkdir()
    prepare(folder)
    return folder


@pytest.fixture
def folder(prepared: Path, bftrain: CommandLine) -> Path:
    journal = prepared / "journal.db"
    if not journal.exists():
        assert bftrain("decide", prepared / "events.jsonl", "--journal", journal).code == 0
    return prepared


def test_no_command_is_forgotten() -> None:
    """A new command gets a row in tests/helpers/every_command.py that says how it is called."""
    assert sorted(CALLS) == sorted(commands_that_do_something())
    assert {name.split()[0] for name in CALLS} == set(COMMANDS)


@pytest.mark.parametrize("name", CALLS)
def test_every_command_has_the_options_of_all(name: str) -> None:
    command = commands_that_do_something()[name]
    options = {option for parameter in command.params for option in parameter.opts}
    assert {"--json", "-q", "-v"} <= options


def values(ended: Ended, name: str) -> list[object]:
    """Read what was printed as JSON: one value on one line, or lines of them; nothing where no live run answers."""
    if CALLS[name].nothing:
        assert ended.out == ""
        assert ended.err.startswith("bftrain: ")
        return []
    lines = ended.out.splitlines()
    assert ended.out.endswith("\n")
    if not CALLS[name].lines:
        assert len(lines) == 1
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", SHORT)
def test_json_is_all_there_is_on_stdout(name: str, bftrain: CommandLine, folder: Path) -> None:
    ended = bftrain(*words_of(name, folder, "--json", "-v"))
    assert ended.code == CALLS[name].code, ended.err
    assert all(isinstance(value, dict | list) for value in values(ended, name))
    assert not [line for line in ended.err.splitlines() if line.startswith(("{", "["))]


@pytest.mark.parametrize("name", SHORT)
def test_quiet_leaves_the_result_alone(name: str, bftrain: CommandLine, folder: Path) -> None:
    loud = bftrain(*words_of(name, folder))
    (folder / "repaired.db").unlink(missing_ok=True)  # which is never replaced
    quiet = bftrain(*words_of(name, folder, "-q"))
    assert quiet.code == CALLS[name].code
    assert bool(quiet.out) is not CALLS[name].nothing
    said = [line for line in quiet.err.splitlines() if not line.startswith("warning: ")]
    assert len(said) == (1 if CALLS[name].nothing else 0)
    kept = 4 if name == "import" else len(loud.out.splitlines())  # its findings are no part of the result
    assert len(quiet.out.splitlines()) == kept


@pytest.mark.parametrize("name", SHORT)
def test_in_a_pipe_lines_are_plain_and_names_are_whole(name: str, bftrain: CommandLine, folder: Path) -> None:
    ended = bftrain(*words_of(name, folder))
    for said in (ended.out, ended.err):
        assert "\x1b" not in said
        assert "\r" not in said
        assert [line for line in said.splitlines() if line != line.rstrip()] == []
        assert not said or said.endswith("\n")
        together = "".join(line.strip() for line in said.splitlines())
        assert said.count(LONG) == together.count(LONG)  # a name that was broken into lines is found together only


@pytest.mark.parametrize("name", SHORT)
def test_what_goes_wrong_is_said_on_stderr_in_words(name: str, bftrain: CommandLine, folder: Path) -> None:
    ended = bftrain(*words_of(name, folder, "--json", "--no-such-option"))
    assert (ended.code, ended.out) == (2, "")
    assert "--no-such-option" in ended.err
    words = words_of(name, folder)
    read = [word for before, word in pairwise(words) if before not in {"-o", "--to"} and (folder / word).is_file()]
    for file in () if CALLS[name].nothing else read:
        ended = bftrain(*(f"{folder}/no such file" if word == file else word for word in words), "--json")
        assert ended.code in {2, 3, 4}
        assert ended.out == ""
        assert "no such file" in ended.err
        assert "Traceback" not in ended.err
