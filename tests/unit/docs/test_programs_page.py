"""What docs/programs.md tells programs is so: every command, every name of its value, every exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrain import errors
from tests.helpers.every_command import CALLS, SHORT, prepare, words_of
from tests.helpers.in_process import CommandLine

PAGE = (Path(__file__).parents[3] / "docs" / "programs.md").read_text(encoding="utf-8")
ROWS = {
    name: (kind, names)
    for name, kind, names in re.findall(r"^\| `([a-z ]+)` \| ([^|]+) \| (.+) \|$", PAGE, re.MULTILINE)
}
ELSEWHERE = ("replay", "schedule", "sweep", "decide")  # their names are on other pages, or in their files


def promised(name: str) -> set[str]:
    """Names that the row of a command tells, and those of the rows that it refers to."""
    text = ROWS[name][1]
    others = [other for other in re.findall(r"those of `([a-z ]+)`", text) if other in ROWS]
    others += [other for other in re.findall(r"and of `([a-z ]+)`", text) if other in ROWS]
    return set(re.findall(r"`(\w+)`", text)).union(*map(promised, others))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    prepare(folder)
    return folder


@pytest.fixture
def folder(prepared: Path, bftrain: CommandLine) -> Path:
    journal = prepared / "journal.db"
    if not journal.exists():
        assert bftrain("decide", prepared / "events.jsonl", "--journal", journal).code == 0
    return prepared


def test_every_command_has_its_row_in_the_order_of_the_help() -> None:
    assert list(ROWS) == list(CALLS)
    assert {name for name, (kind, _) in ROWS.items() if kind.startswith("lines")} == {
        name for name, call in CALLS.items() if call.lines
    }


@pytest.mark.parametrize("name", [name for name, call in SHORT.items() if name not in ELSEWHERE and not call.nothing])
def test_every_name_that_is_printed_is_promised(name: str, bftrain: CommandLine, folder: Path) -> None:
    lines = [json.loads(line) for line in bftrain(*words_of(name, folder, "--json", "-q")).out.splitlines()]
    assert lines
    value = lines if CALLS[name].lines else lines[0]
    assert isinstance(value, list) is ("list" in ROWS[name][0] or CALLS[name].lines)
    objects = value if isinstance(value, list) else [value]
    printed = {key for each in objects for key in each}
    assert printed
    assert printed - promised(name) == set()


def test_every_exit_code_is_documented() -> None:
    def codes(kind: type[errors.BftrainError]) -> Iterator[int]:
        yield kind.exit_code
        for each in kind.__subclasses__():
            yield from codes(each)

    codes_listed = {
        int(code)
        for code in re.findall(r"^\| (\d+) \|", PAGE.split("## Exit codes")[1].split("\n## ")[0], re.MULTILINE)
    }
    assert codes_listed == {0, *codes(errors.BftrainError)}
