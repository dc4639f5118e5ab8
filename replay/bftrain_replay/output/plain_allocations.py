"""A large table of allocations read from CSV, many rows at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from bftrain_replay import tables
from bftrain_replay.accounting.allocations import StoredAllocations

_HEADER: Final = (",".join(column.name for column in tables.ALLOCATIONS) + "\n").encode()
_AT_ONCE: Final = 1 << 16  # bytes: what is made of them fits into the caches of a processor
_MOST_TIMES: Final = 100_000  # of which the texts are remembered; neighbouring rows share theirs
_COMMA, _NEWLINE = ord(","), ord("\n")
_UNUSUAL: Final = (b'"', b"\0")


class _Numbered(dict[bytes, int]):
    """Texts, numbered in order of their first appearance."""

    def __missing__(self, text: bytes) -> int:
        self[text] = number = len(self)
        return number


class _Times(dict[bytes, float]):
    """Times by their texts: most are there many times, and to look one up is faster than to parse it."""

    def __missing__(self, text: bytes) -> float:
        if len(self) >= _MOST_TIMES:
            self.clear()
        self[text] = time_s = float(text)
        return time_s


def plain_allocations(path: Path) -> StoredAllocations | None:
    """Return the rows of a table as this program writes it; ``None`` if any row has quotes or is not as it should be.

    Then the table has to be read row by row, which is several times slower and finds the row and what it lacks.
    """
    task_numbers, node_numbers, times_s, rows = _Numbered(), _Numbered(), _Times(), StoredAllocations.new_rows()
    try:
        for cells in _cells(path):
            count = len(cells) // len(tables.ALLOCATIONS)
            for name, column, numbers in (("task", 0, task_numbers), ("node", 1, node_numbers)):
                found = np.fromiter(map(numbers.__getitem__, cells[column:-1:4]), np.int32, count)
                rows.last[name].frombytes(found.tobytes())
            for name, column in (("from_s", 2), ("to_s", 3)):
                at_s = np.fromiter(map(times_s.__getitem__, cells[column:-1:4]), np.float64, count)
                rows.last[name].frombytes(at_s.tobytes())
            rows.add_block_if_full()
        names = [tuple(name.decode() for name in numbers) for numbers in (task_numbers, node_numbers)]
    except ValueError:  # a number or a text that is none
        return None
    return StoredAllocations(tasks=names[0], nodes=names[1], rows=rows)


def _cells(path: Path) -> Iterator[list[bytes]]:
    """Yield the cells of many rows, one after the other, and an empty one behind them.

    Raises ``ValueError`` if a line may not have the cells that it should have.
    """
    with path.open("rb") as file:
        if file.readline(len(_HEADER)) != _HEADER:
            raise ValueError("another header")
        rest = b""
        while part := file.read(_AT_ONCE):
            whole, newline, rest = (rest + part).rpartition(b"\n")
            if newline:
                yield _split(whole + newline)
        if rest:
            yield _split(rest + b"\n")


def _split(lines: bytes) -> list[bytes]:
    letters = np.frombuffer(lines, dtype=np.uint8)
    ends = letters[(letters == _COMMA) | (letters == _NEWLINE)] == _NEWLINE
    if (
        any(mark in lines for mark in _UNUSUAL)
        or ends.size % 4
        or (ends.reshape(-1, 4) != [False, False, False, True]).any()
    ):
        raise ValueError("a line with quotes or of another number of cells")
    return lines.replace(b"\n", b",").split(b",")
