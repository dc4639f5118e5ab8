"""Shared code for readers of text: lines, numbers, times, and columns parsed by Arrow.

Arrow parses lines with the usual number of cells, and the usual time formats. A reader's line parser handles all other
lines and times.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute
from pyarrow import csv as arrow_csv

from bftrain.nodesets import MOST_NODES
from bftrain_datasets.log.arrow_arrays import NULL, Column, arrow_of, arrow_texts, numpy_of
from bftrain_datasets.log.time_formats import RecordClock

V = TypeVar("V")
LOOKED_AT: Final = 1000  # lines searched for a format
HEADER_WITHIN: Final = 5  # maximum line number of a header
SEPARATORS: Final = "|\t;,"  # marks between columns
MOST_DIGITS: Final = 9  # maximum length of a node or job number; Python rejects thousands of digits


def first_lines(head: bytes) -> list[str]:
    """Return the first lines of a file; the final line may be truncated."""
    return head.decode(errors="replace").splitlines()[:LOOKED_AT]


def unquoted(line: str) -> list[str]:
    """Split a line of a CSV table into its cells; return none if its quotes are invalid."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a carriage return in the middle, or an overlong quoted cell
        return []


def whole_number(text: str) -> int | None:
    """Return a whole number of reasonable length, or None."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else None


def count_of(text: str) -> int:
    """Return a job's node count: 0 if missing, a number above ``MOST_NODES`` if it has too many digits."""
    number = whole_number(text)
    if number is None:
        return MOST_NODES + 1 if text.isdecimal() else 0
    return number


NO_TIME: Final = frozenset({"", "0", "unknown", "none", "n/a"})
NO_NODES: Final = frozenset({"", "none assigned", "none", "unknown", "n/a", "(null)"})


def moment_of(text: str, seconds: Callable[[str], float]) -> float | None:
    """Return seconds UTC, or None for Slurm's terms for no time, such as 0."""
    try:
        return seconds(text) or None
    except ValueError:
        if text.lower() in NO_TIME:
            return None
        raise


def moments(read: Callable[[V], float | None], *values: V) -> tuple[float | None, ...]:
    """Return several times from a row; an unreadable time is NaN, and the intake then skips the row."""

    def each(value: V) -> float | None:
        try:
            return read(value)
        except ValueError:
            return math.nan

    return tuple(map(each, values))


def names_slurm_jobs(columns: Collection[str]) -> bool:
    """Return whether these are columns of sacct, in its spelling or with underscores as in other tools."""
    names = {column.strip().lower().partition("%")[0] for column in columns}
    plain = {name.replace("_", "") for name in names}
    times = bool(plain & {"start", "starttime"}) and bool(plain & {"end", "endtime"})
    return bool(plain & {"jobid", "jobidraw"}) and times and ("nodelist" in plain or {"jobid", "start", "end"} <= names)


_ISO_LETTERS: Final = 19
_EPOCH_DIGITS: Final = 10
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local times have no zone


@dataclass(frozen=True, slots=True)
class Texts:
    """A column of texts: ``texts[codes[row]]``, or none where the code is -1."""

    codes: NDArray[np.int32]
    texts: Sequence[str]

    @classmethod
    def of(cls, cells: Sequence[str]) -> Texts:
        """Return a column of these cells; empty cells have no text."""
        texts = dict.fromkeys(cells)
        texts.pop("", None)
        codes = dict(zip(texts, range(len(texts)), strict=True))
        codes[""] = -1
        return cls(np.fromiter(map(codes.__getitem__, cells), np.int32, len(cells)), list(texts))

    def cells(self) -> list[str]:
        """Return the text of each row."""
        texts = [*self.texts, ""]
        return [texts[code] for code in self.codes.tolist()]


def columns_of(
    block: bytes, separator: str, width: int, places: Sequence[int], *, quotes: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64], list[Column]] | None:
    """Return the indices of lines with ``width`` cells, the indices of the other lines, and the texts at ``places``.

    None if the block is not plain UTF-8, if a quoted cell may extend over several lines, or if there are quotes between
    commas without ``quotes``, which removes them.
    """
    if (b"\r" in block and (block + b"\n").count(b"\r\n") != block.count(b"\r")) or (
        _splits_lines(block) if quotes else separator == "," and b'"' in block
    ):
        return None
    others: list[int] = []

    def skip(row: Any) -> str:  # noqa: ANN401 - of Arrow
        others.append(row.number)
        return "skip"

    names = [str(place) for place in range(width)]
    wanted = [names[place] for place in places]
    try:
        if not block.isascii():
            block.decode()
        table = arrow_csv.read_csv(
            pa.BufferReader(block + b"\n"),
            arrow_csv.ReadOptions(use_threads=False, block_size=len(block) + 2, column_names=names),
            arrow_csv.ParseOptions(
                delimiter=separator,
                quote_char='"' if quotes else False,
                escape_char=False,
                ignore_empty_lines=False,
                invalid_row_handler=skip,
            ),
            arrow_csv.ConvertOptions(
                include_columns=list(dict.fromkeys(wanted)),
                column_types=dict.fromkeys(wanted, pa.string()),
                strings_can_be_null=False,
                check_utf8=False,
            ),
        )
    except (UnicodeDecodeError, pa.ArrowException):
        return None
    regular = np.ones(block.count(b"\n") + 1, dtype=np.bool_)
    regular[np.array(others, dtype=np.int64) - 1] = False
    if regular.size - len(others) != table.num_rows:
        return None
    columns = [table.column(name).combine_chunks() for name in wanted]
    if columns and not lengths_of(columns[0]).all():  # Arrow returns a row for each empty line
        letters = np.frombuffer(block + b"\n", dtype=np.uint8)
        filled = np.diff(np.cumsum(letters > ord(" "))[letters == ord("\n")], prepend=0) > 0
        columns = [chosen(column, filled[regular]) for column in columns]
        regular &= filled
    rows = np.flatnonzero(regular)
    return (rows, np.flatnonzero(~regular), columns) if rows.size else None


def _splits_lines(block: bytes) -> bool:
    """Return whether a line has an odd number of quotes."""
    letters = np.frombuffer(block + b"\n", dtype=np.uint8)
    return b'"' in block and bool((np.cumsum(letters == ord('"'))[letters == ord("\n")] % 2).any())


def chosen(column: Column, rows: NDArray[np.bool_]) -> Column:
    """Return the cells in a mask of rows."""
    return column.filter(arrow_of(rows))


def merged(columns: Sequence[Column], more: Sequence[Sequence[str]], order: NDArray[np.int64]) -> list[Column]:
    """Return the columns with further rows appended, in this order of all rows."""
    further = [arrow_texts(cells) for cells in zip(*more, strict=True)]
    whole = [pa.concat_arrays(pair) for pair in zip(columns, further, strict=True)] if columns else further
    return [column.take(arrow_of(order)) for column in whole]


def without(column: Column, nothing: frozenset[str]) -> Column:
    """Return a column with nulls for the texts in ``nothing``, ignoring case."""
    short = lengths_of(column) <= max(map(len, nothing))
    if short.any():
        texts = column.filter(arrow_of(short))
        short[short] = numpy_of(compute.is_in(compute.utf8_lower(texts), value_set=arrow_texts(sorted(nothing))))
        column = compute.if_else(arrow_of(short), NULL, column) if short.any() else column
    return column


def contains(column: Column, text: str) -> NDArray[np.bool_]:
    """Return which cells contain a text."""
    return numpy_of(compute.match_substring(column, text))


def lengths_of(column: Column) -> NDArray[np.int32]:
    """Return the number of bytes of each text."""
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32, offset=4 * column.offset, count=len(column) + 1)
    return np.diff(offsets)


def coded(column: Column) -> Texts:
    """Return a column with each of its texts once; empty cells and nulls have none."""
    encoded = column.dictionary_encode()
    texts: list[str] = encoded.dictionary.to_pylist()
    codes = np.where(numpy_of(encoded.is_valid()), numpy_of(encoded.indices), -1).astype(np.int32)
    if "" in texts:
        codes[codes == texts.index("")] = -1
    return Texts(codes, texts)


def by_text(column: Texts, value: Callable[[str], object], kind: type[np.generic]) -> NDArray[Any]:
    """Return the value of each row, computed once per text; rows without text get the value of an empty text."""
    values = np.array([*map(value, column.texts), value("")], dtype=kind)
    found: NDArray[Any] = values[column.codes]
    return found


def times_of(column: Column, clock: RecordClock) -> tuple[NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Parse times; return seconds UTC, a mask of the parsed cells, and a mask of the local times.

    Words such as ``Unknown`` are NaN. Parses epochs of up to ten digits and local times such as
    ``2020-09-13T12:26:40``, except local times in hours with a clock change. Local times are not counted yet.
    """
    letters = lengths_of(column)
    times = np.full(letters.size, np.nan)
    read = numpy_of(compute.is_in(compute.utf8_lower(column), value_set=arrow_texts(sorted(NO_TIME))))
    local = letters == _ISO_LETTERS
    # Not utf8_is_decimal, which is true for digits of other scripts
    digits = numpy_of(compute.ascii_is_decimal(column)) & (letters <= _EPOCH_DIGITS) & ~read
    if digits.any():
        times[digits] = numpy_of(column.filter(arrow_of(digits)).cast(pa.int64()))
        times[times == 0] = np.nan
        read |= digits
    if local.any():
        try:
            moments = column.filter(arrow_of(local)).cast(pa.timestamp("s")).cast(pa.int64())
        except pa.ArrowException:
            return times, read, np.zeros(letters.size, dtype=np.bool_)
        times[local] = _utc(numpy_of(moments), clock)
        local &= ~np.isnan(times)
        read |= local
    return times, read, local


def _utc(local_s: NDArray[np.int64], clock: RecordClock) -> NDArray[np.float64]:
    """Return seconds UTC of local times; NaN before 1970 and in hours with a clock change."""
    hours, which = np.unique(local_s // 3600, return_inverse=True)
    starts = np.full(hours.size, np.nan)
    for place, hour in enumerate(hours.tolist()):
        if hour > 0:
            begin = _EPOCH + timedelta(hours=hour)
            try:
                start_s = clock.start_of_hour(begin.isoformat()[:13], begin)
            except ValueError:
                continue
            starts[place] = np.nan if start_s is None else start_s
    found: NDArray[np.float64] = starts[which] + local_s % 3600
    found[found == 0] = np.nan
    return found
