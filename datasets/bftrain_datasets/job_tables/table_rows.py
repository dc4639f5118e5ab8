"""Tables in batches of columns: text with any delimiter, JSON lines, a JSON array or object, and Parquet."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from operator import itemgetter
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import first_lines, names_slurm_jobs
from bftrain_datasets.job_tables import json_records
from bftrain_datasets.job_tables.cell_values import Cells
from bftrain_datasets.job_tables.column_choice import SAMPLE_ROWS, recognised

ROWS_AT_ONCE: Final = 1 << 16
TEXT_ROWS_AT_ONCE: Final = 1 << 13  # bounds the work of the garbage collector
SEPARATORS: Final = "|\t;,"
HEADER_WITHIN: Final = 5  # lines
MOST_COLUMNS: Final = 4096


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Rows of a table as columns; ``lines`` are their line numbers."""

    lines: NDArray[np.int64]
    columns: Mapping[str, Cells]


class TableRows(Protocol):
    """A table that is read once: its columns, its first rows, then batches of the required columns."""

    names: tuple[str, ...]

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first rows, column by column."""
        ...

    def batches(self, columns: Sequence[str]) -> Iterator[ColumnBatch]:
        """Yield all rows, from the first on."""
        ...


@dataclass(frozen=True, slots=True)
class TextHeader:
    """The columns of a header line, and the separator; ``" "`` for any blanks."""

    names: tuple[str, ...]
    separator: str

    def cells(self, lines: Iterator[str]) -> Iterator[list[str]]:
        """Yield the cells of lines; quotes apply only with commas, semicolons or tabs as separators."""
        if self.separator == " ":
            return (line.split() for line in lines)
        if self.separator == "|":
            return _forgiving(csv.reader(lines, delimiter=self.separator, quoting=csv.QUOTE_NONE))
        return _forgiving(csv.reader(lines, delimiter=self.separator))


def _forgiving(rows: Iterator[list[str]]) -> Iterator[list[str]]:
    """Yield rows; a row with an unterminated quote is empty."""
    while True:
        try:
            yield next(rows)
        except csv.Error:
            yield []
        except StopIteration:
            return


def header_of(line: str) -> TextHeader:
    """Parse a line as a header: its most frequent separator is used."""
    text = line.strip("\ufeff\r\n").removeprefix("#").strip(" ")
    separator = max(SEPARATORS, key=text.count)
    if not text.count(separator):
        separator = " "
    cells = next(TextHeader((), separator).cells(iter([text])), [])
    return TextHeader(tuple(cell.strip().strip('"') for cell in cells[:MOST_COLUMNS]), separator)


def find_header(head: bytes) -> tuple[int, TextHeader] | None:
    """Return the first line with the columns of a table of jobs, and its number."""
    for number, line in enumerate(first_lines(head)[:HEADER_WITHIN]):
        header = header_of(line)
        of_sacct = header.separator != " " and names_slurm_jobs(header.names)
        if len(header.names) > 1 and recognised(header.names) and not of_sacct:
            return number, header
    return None


class TextTable:
    """A table of text. The header is the first possible line, unless ``names`` are given."""

    def __init__(self, file: RawFile, tally: FindingsTally, names: Sequence[str] | None) -> None:
        self._tally = tally
        self._number = 0
        self._lines = file.lines()
        found = find_header(file.head)
        skipped = found[0] if found else 0
        lines = [line for line in first_lines(file.head) if line.strip()]
        header = found[1] if found else header_of(lines[0] if lines else "")
        if names:
            self._header = TextHeader(tuple(names), header.separator)
        else:
            self._header = header
            for number, _ in self._lines:
                if number > skipped:
                    break
        self.names = self._header.names
        self._rows = zip(self._header.cells(self._text()), iter(lambda: self._number, None), strict=False)
        self._first = list(islice(self._rows, SAMPLE_ROWS))

    def _text(self) -> Iterator[str]:
        for number, line in self._lines:
            if line.strip():
                self._number = number
                yield line

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first rows, column by column."""
        whole = [cells for cells, _ in self._first if len(cells) == len(self.names)]
        return {name: [cells[place] for cells in whole] for place, name in reversed(list(enumerate(self.names)))}

    def batches(self, columns: Sequence[str]) -> Iterator[ColumnBatch]:
        """Yield all rows; set rows with another number of cells aside."""
        width = len(self.names)
        places = [self.names.index(name) for name in columns]
        pick: Callable[[list[str]], Any] = itemgetter(*places, places[0])  # a tuple, even for one column
        rows = chain(self._first, self._rows)
        self._first = []
        while True:
            good, numbers, number = [], array("q"), 0
            for cells, number in islice(rows, TEXT_ROWS_AT_ONCE):
                if len(cells) == width:
                    good.append(pick(cells))
                    numbers.append(number)
                else:
                    self._tally.row(number)
                    self._tally.set_aside("malformed")
            if good:
                found = zip(*good, strict=True)
                yield ColumnBatch(np.array(numbers), dict(zip(columns, found, strict=False)))
            if not number:
                return


class JsonTable:
    """JSON records, as lines or in an array. ``rows`` is the name of a list in each record with one row per entry."""

    def __init__(self, file: RawFile, tally: FindingsTally) -> None:
        self._tally = tally
        self._records = json_records.records(file, tally)
        self._first = list(islice(self._records, SAMPLE_ROWS))
        self.rows = ""
        names: dict[str, None] = {}
        for _, record in self._first:
            names.update(dict.fromkeys(json_records.leaf_names(record)))
        self.names = tuple(names)[:MOST_COLUMNS]
        if any(isinstance(value, dict) and "0" in value for _, record in self._first[:1] for value in record.values()):
            raise BadInput("JSON by columns", where=file.where, fix="write one object a row: orient='records'")
        if not names:
            raise BadInput("JSON without records of jobs", where=file.where, fix="see docs/readers.md, tables of jobs")

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first rows, column by column."""
        records = [record for _, each in self._first for record in json_records.split_rows(each, self.rows)]
        return {name: [json_records.dig(record, name) for record in records] for name in self.names}

    def batches(self, columns: Sequence[str]) -> Iterator[ColumnBatch]:
        """Yield all rows."""
        paths = [tuple(name.split(".")) for name in columns]
        numbered = chain(self._first, self._records)
        self._first = []
        rows = ((number, row) for number, each in numbered for row in json_records.split_rows(each, self.rows))
        while some := list(islice(rows, ROWS_AT_ONCE)):
            lines = np.fromiter((number for number, _ in some), dtype=np.int64, count=len(some))
            found = {
                name: [json_records.dig_path(row, path) for _, row in some]
                for name, path in zip(columns, paths, strict=True)
            }
            yield ColumnBatch(lines, found)
