"""The picture that ``bftrain inspect`` draws, on terminals of several widths, in a pipe, and without Unicode."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import sample_log, save_log
from tests.helpers.program import ANSI, Ended, bftrain, on_terminal

MIDDLE = "idle nodes ("


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "log.npz"
    save_log(sample_log(), path)
    return path


def picture(ended: Ended) -> list[str]:
    assert ended.code == 0, ended.err
    lines = ANSI.sub("", ended.out).splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(MIDDLE))
    return [line.rstrip() for line in lines[begin : begin + 11]]


@pytest.mark.parametrize("columns", [40, 200])
def test_it_is_as_wide_as_the_terminal(log: Path, columns: int) -> None:
    lines = picture(on_terminal("inspect", log, columns=columns))
    assert max(map(len, lines)) == columns
    assert lines[9].endswith("─")
    assert len(lines[9]) == columns
    assert lines[10].strip().startswith("0 ")  # the sample log counts from its own begin


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_without_unicode_it_is_drawn_in_ascii(log: Path, encoding: str) -> None:
    lines = picture(bftrain("inspect", log, PYTHONIOENCODING=encoding))
    assert lines[0] == "idle nodes (# mean, . largest)"
    assert "\n".join(lines).isascii()
    assert lines[9] == "  0 +" + "-" * 75
