"""Columns in a file: rows come back as they were added, in blocks, by column, and in another process."""

from __future__ import annotations

import copy

import pytest

from bftrain_replay.accounting import column_file
from bftrain_replay.accounting.column_file import ColumnFile


def filled(rows: int) -> ColumnFile:
    made = ColumnFile({"x": "d", "n": "i"})
    for number in range(rows):
        made.add(number / 4, number)
    return made


@pytest.mark.parametrize("rows", [0, 3, 8, 29])
def test_rows_come_back(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(column_file, "BLOCK_ROWS", 4)
    monkeypatch.setattr(column_file, "TURNED_AT_ONCE", 2)
    made = filled(rows)
    for each in (made, copy.deepcopy(made)):
        assert len(each) == rows
        assert each.column("x").tolist() == [number / 4 for number in range(rows)]
        assert each.column("n").tolist() == list(range(rows))
        assert [number for block in each.blocks() for number in block["n"].tolist()] == list(range(rows))
        assert all(len(block["x"]) == len(block["n"]) <= 4 for block in each.blocks())


def test_a_copy_goes_on_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_file, "BLOCK_ROWS", 4)
    monkeypatch.setattr(column_file, "TURNED_AT_ONCE", 2)
    made = filled(9)
    other = copy.deepcopy(made)
    for each, number in ((other, 100), (made, 9)):
        for _ in range(4):
            each.add(0.0, number)
    assert made.column("n").tolist() == [*range(9), 9, 9, 9, 9]
    assert other.column("n").tolist() == [*range(9), 100, 100, 100, 100]


def test_the_file_itself_can_be_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_file, "BLOCK_ROWS", 4)
    monkeypatch.setattr(column_file, "TURNED_AT_ONCE", 2)
    monkeypatch.setattr(ColumnFile, "names_its_file", True)
    made, other = filled(10), ColumnFile.__new__(ColumnFile)
    state = made.__getstate__()
    assert isinstance(state[2], str)  # and not the content
    other.__setstate__(state)
    del made  # the first process has ended
    for number in range(10, 20):
        other.add(number / 4, number)
    assert other.column("n").tolist() == list(range(20))
    assert other.column("x").tolist() == [number / 4 for number in range(20)]
