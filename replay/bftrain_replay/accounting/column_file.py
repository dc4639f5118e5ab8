"""Append-only columns in bounded memory: full blocks go to a temporary file."""

from __future__ import annotations

import os
import weakref
from array import array
from collections.abc import Iterator, Mapping, Sequence
from tempfile import SpooledTemporaryFile
from typing import IO, Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

BLOCK_ROWS: Final = 1 << 16
_MEMORY_BYTES: Final = 1 << 22  # bytes in memory before blocks go to a file
TURNED_AT_ONCE: Final = 256  # rows; batching halves the time to convert rows to columns
_DTYPES: Final[Mapping[str, np.dtype[Any]]] = {"d": np.dtype(np.float64), "i": np.dtype(np.int32)}
# The columns with the block in hand, rows of the blocks in the file, and its content or name
_State: TypeAlias = "tuple[dict[str, array[Any]], list[int], bytes | str]"


class ColumnFile:
    """Columns by name, each of floats (``d``) or of whole numbers (``i``).

    Add single rows with :meth:`add`. To add many, append to every column in ``last``, the current block, then call
    :meth:`add_block_if_full`.
    """

    __slots__ = ("__weakref__", "_file", "_lengths", "_new", "last")

    # Whether a pickle refers to the file instead of its content, for a forked child that lives until its parent has
    # read it. The file is unlinked, so it vanishes when both processes exit
    names_its_file: ClassVar[bool] = False

    def __init__(self, columns: Mapping[str, str]) -> None:
        self.last: dict[str, array[Any]] = {name: array(kind) for name, kind in columns.items()}
        self._new: list[tuple[float, ...]] = []  # rows that are still to be turned into columns
        self._lengths: list[int] = []  # rows of the blocks in the file
        self._file: IO[bytes] = SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115 - open as long as this lives
        weakref.finalize(self, self._file.close)

    def __len__(self) -> int:
        return sum(self._lengths) + self._waiting + len(self._new)

    def __getstate__(self) -> _State:
        """Return the pickled state: the columns with the current block, and the file, by name or as its content."""
        self._turn()
        if not self._lengths or not self.names_its_file:
            self._file.seek(0)
            return self.last, self._lengths, self._file.read()
        self._file.flush()
        return self.last, self._lengths, f"/proc/{os.getpid()}/fd/{self._file.fileno()}"

    def __setstate__(self, state: _State) -> None:
        """Continue with the other process's file, or with a new file of the same content."""
        self.last, self._lengths, file = state
        self._new = []
        if isinstance(file, str):
            self._file = open(file, "r+b")  # noqa: SIM115, PTH123 - open as long as this lives; a path would be resolved
        else:
            self._file = SpooledTemporaryFile(max_size=_MEMORY_BYTES)  # noqa: SIM115 - open as long as this lives
            self._file.write(file)
        weakref.finalize(self, self._file.close)

    @property
    def _waiting(self) -> int:
        return len(next(iter(self.last.values())))

    def add(self, *row: float) -> None:
        """Add a row: a value for each column, in their order."""
        self._new.append(row)
        if len(self._new) >= TURNED_AT_ONCE:
            self._turn()

    def add_all(self, rows: Sequence[tuple[float, ...]]) -> None:
        """Add rows."""
        self._new.extend(rows)
        if len(self._new) >= TURNED_AT_ONCE:
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
        """Return a whole column."""
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
