"""Columns of text files, parsed by Arrow: lines with the usual number of cells, and the usual time formats.

A reader's line parser handles all other lines and times. Imports pyarrow at first use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute, csv

from bftrain_datasets.importing.text_cells import NO_TIME
from bftrain_datasets.log.time_formats import RecordClock

_ISO_LETTERS: Final = 19
_EPOCH_DIGITS: Final = 10
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - local times have no zone

Column = Any  # an Arrow array; pyarrow is untyped


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
        table = csv.read_csv(
            pa.BufferReader(block + b"\n"),
            csv.ReadOptions(use_threads=False, block_size=len(block) + 2, column_names=names),
            csv.ParseOptions(
                delimiter=separator,
                quote_char='"' if quotes else False,
                escape_char=False,
                ignore_empty_lines=False,
                invalid_row_handler=skip,
            ),
            csv.ConvertOptions(
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
    """Return some of the cells."""
    return column.filter(pa.array(rows))


def merged(columns: Sequence[Column], more: Sequence[Sequence[str]], order: NDArray[np.int64]) -> list[Column]:
    """Return the columns with further rows appended."""
    further = [pa.array(cells, pa.string()) for cells in zip(*more, strict=True)]
    whole = [pa.concat_arrays(pair) for pair in zip(columns, further, strict=True)] if columns else further
    return [column.take(pa.array(order)) for column in whole]


def without(column: Column, nothing: frozenset[str]) -> Column:
    """Return a column with nulls for the texts in ``nothing``, ignoring case."""
    short = lengths_of(column) <= max(map(len, nothing))
    if short.any():
        texts = column.filter(pa.array(short))
        short[short] = compute.is_in(compute.utf8_lower(texts), value_set=pa.array(sorted(nothing)))
        column = compute.if_else(pa.array(short), None, column) if short.any() else column
    return column


def contains(column: Column, text: str) -> NDArray[np.bool_]:
    """Return which cells contain a text."""
    found: NDArray[np.bool_] = compute.match_substring(column, text).to_numpy(zero_copy_only=False)
    return found


def lengths_of(column: Column) -> NDArray[np.int32]:
    """Return the number of bytes of each text."""
    offsets = np.frombuffer(column.buffers()[1], dtype=np.int32, offset=4 * column.offset, count=len(column) + 1)
    return np.diff(offsets)


def coded(column: Column) -> Texts:
    """Return a column with each of its texts once; empty cells and nulls have none."""
    encoded = column.dictionary_encode()
    texts: list[str] = encoded.dictionary.to_pylist()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
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
    nothing = compute.is_in(compute.utf8_lower(column), value_set=pa.array(sorted(NO_TIME)))
    read = nothing.to_numpy(zero_copy_only=False).copy()
    local = letters == _ISO_LETTERS
    # Not utf8_is_decimal, which is true for digits of other scripts
    digits = compute.ascii_is_decimal(column).to_numpy(zero_copy_only=False) & (letters <= _EPOCH_DIGITS) & ~read
    if digits.any():
        times[digits] = column.filter(pa.array(digits)).cast(pa.int64()).to_numpy(zero_copy_only=False)
        times[times == 0] = np.nan
        read |= digits
    if local.any():
        try:
            moments = column.filter(pa.array(local)).cast(pa.timestamp("s")).cast(pa.int64())
        except pa.ArrowException:
            return times, read, np.zeros(letters.size, dtype=np.bool_)
        times[local] = _utc(moments.to_numpy(zero_copy_only=False), clock)
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
