"""Columns that grow row by row in bounded memory: what fills a block goes to a temporary file."""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Iterator, Mapping
from tempfile import SpooledTemporaryFile
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

BLOCK_ROWS: Final = 1 << 16
_MEMORY_BYTES: Final = 1 << 22  # before blocks go to a file
_TURNED_AT_ONCE: Final = 256  # rows: to turn many into columns takes half the time of one by one
_DTYPES: Final[Mapping[str, np.dtype[Any]]] = {"d": np.dtype(np.float64), "i": np.dtype(np.int32)}


class ColumnFile:
    """Columns by name, each of floats (``d``) or of whole numbers (``i``).

    Add single rows with :meth:`add`. To add many, append to every column in ``last``, which holds the block in hand,
    then call :meth:`add_block_if_full`.
    """

    __slots__ = ("__weakref__", "_file", "_lengths", "_new", "last")

    def __init__(self, columns: Mapping[str, str]) -> None:
        self.last: dict[str, array[Any]] = {name: array(kind) for name, kind in columns.items()}
        self._new: list[tuple[float, ...]] = []  # rows that are still to be turned into columns
        self._lengths: list[int] = []  # rows of the blocks in the file
        self._file = SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115 - open as long as this lives
        weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return sum(self._lengths) + self._waiting + len(self._new)

    def __getstate__(self) -> tuple[dict[str, str], list[dict[str, NDArray[Any]]]]:
        """Return what is pickled: the types of the columns, and all rows."""
        return {name: column.typecode for name, column in self.last.items()}, list(self.blocks())

    def __setstate__(self, state: tuple[dict[str, str], list[dict[str, NDArray[Any]]]]) -> None:
        """Store the rows in a file of this process."""
        ColumnFile.__init__(self, state[0])
        for block in state[1]:
            for name, column in block.items():
                self.last[name].frombytes(column.tobytes())
            self.add_block_if_full()

    @property
    def _waiting(self) -> int:
        return len(next(iter(self.last.values())))

    def add(self, *row: float) -> None:
        """Add a row: a value for each column, in their order."""
        self._new.append(row)
        if len(self._new) >= _TURNED_AT_ONCE:
            self._turn()

    def _turn(self) -> None:
        """Turn new rows into columns."""
        for column, values in zip(self.last.values(), zip(*self._new, strict=True), strict=False):
            column.fromlist(list(values))
        self._new.clear()
        self.add_block_if_full()

    def add_block_if_full(self) -> None:
        """Move the rows in hand to the file if they fill a block."""
        if self._waiting < BLOCK_ROWS:
            return
        self._lengths.append(self._waiting)
        self._file.seek(0, 2)
        for column in self.last.values():
            self._file.write(column.tobytes())
            del column[:]

    def blocks(self) -> Iterator[dict[str, NDArray[Any]]]:
        """Yield all rows, block by block, each column by its name."""
        self._turn()
        begin = 0
        for rows in self._lengths:
            block = {}
            for name, column in self.last.items():
                self._file.seek(begin)
                content = self._file.read(rows * column.itemsize)
                block[name] = np.frombuffer(content, dtype=_DTYPES[column.typecode])
                begin += len(content)
            yield block
        if self._waiting:
            yield {
                name: np.frombuffer(column.tobytes(), dtype=_DTYPES[column.typecode])
                for name, column in self.last.items()
            }

    def column(self, name: str) -> NDArray[Any]:
        """Return all of one column."""
        self._turn()
        found = np.empty(len(self), dtype=_DTYPES[self.last[name].typecode])
        begin = end = 0
        for rows in self._lengths:
            for other, column in self.last.items():
                if other == name:
                    self._file.seek(begin)
                    found[end : end + rows] = np.frombuffer(self._file.read(rows * column.itemsize), dtype=found.dtype)
                begin += rows * column.itemsize
            end += rows
        found[end:] = self.last[name]
        return found
