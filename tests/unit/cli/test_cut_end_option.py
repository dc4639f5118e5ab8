"""Wherever a command says that the end of a dump was left out, it names ``--keep-end``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.in_process import CommandLine

HOUR_S = 3600


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Return a dump of ended jobs, the last of which ran for hours after the last start."""
    hours = [(number, number + (12 if number > 37 else 2)) for number in range(40)]
    rows = [
        f"{number}|{10**9 + start * HOUR_S}|{10**9 + end * HOUR_S}|{'abcd'[number % 4]}"
        for number, (start, end) in enumerate(hours)
    ]
    path = tmp_path / "dump.txt"
    path.write_text("JobID|Start|End|NodeList\n" + "\n".join(rows) + "\n")
    return path


def test_words_name_the_option(bftrain: CommandLine, dump: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.npz"
    for command in (("import", dump, "-o", log), ("check", log), ("inspect", log)):
        said = " ".join(bftrain(*command).out.split())
        assert "cut_end" in said
        assert "left out: the log ends when the last job starts" in said
        assert "; change it with --keep-end" in said


def test_programs_are_given_the_option(bftrain: CommandLine, dump: Path, tmp_path: Path) -> None:
    log = tmp_path / "log.npz"
    for command in (("import", dump, "-o", log), ("check", log), ("check", dump)):
        findings = json.loads(bftrain(*command, "--json").out)["findings"]
        assert {each["name"]: each["option"] for each in findings}["cut_end"] == "--keep-end"


def test_the_option_keeps_it(bftrain: CommandLine, dump: Path, tmp_path: Path) -> None:
    ended = bftrain("import", dump, "-o", tmp_path / "log.npz", "--keep-end")
    assert ended.code == 0
    assert "cut_end" not in ended.out
