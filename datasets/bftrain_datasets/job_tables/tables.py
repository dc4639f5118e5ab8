"""Tables of text, JSON or Parquet, in batches of the required columns: Arrow arrays, or numbers.

JSON records are one per line, or the elements of an array, which may be a field of an object. Lines are read one by
one. Any other JSON file is kept in memory as a whole, and its records are parsed one by one.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import chain, islice
from operator import itemgetter
from typing import IO, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import ArrowException, compute, parquet

from bftrain.errors import BadInput
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.raw_file import HEAD_BYTES, LARGE_BLOCK_BYTES, RawFile
from bftrain_datasets.importing.text_columns import HEADER_WITHIN, SEPARATORS, columns_of, first_lines, names_slurm_jobs
from bftrain_datasets.job_tables.cell_values import EPOCHS, Cells, column_of
from bftrain_datasets.job_tables.column_choice import SAMPLE_ROWS, recognised
from bftrain_datasets.log.arrow_arrays import EMPTY, arrow_texts, numpy_of
from bftrain_datasets.log.parquet_log import FORMAT_KEY

PARQUET_MARK: Final = b"PAR1"
MOST_COLUMNS: Final = 4096
_ROWS_AT_ONCE: Final = 1 << 17
_PARSED_AT_ONCE: Final = 1 << 13  # rows of Python texts; bounds the work of the garbage collector
_AGAIN: Final = "fetch the file again"
LARGEST_BYTES: Final = 1 << 32  # largest file that is kept in memory
_PIECE_BYTES: Final = 1 << 20
_SPLIT: Final = "import a part, or write a record on each line, for example by: jq -c '.jobs[]'"
MOST_DEPTH: Final = 5  # nesting of fields in a record
_LISTS: Final = ("jobs", "items", "data", "records", "rows", "results")  # keys of an object that contain its records
RESERVATIONS: Final = "slurm-reservations"  # has no reader, but is not a table of jobs either
# Keys that identify JSON that is not a table of jobs: all keys in one set must be present
KNOWN_BY: Final[Mapping[str, tuple[frozenset[str], ...]]] = {
    "oar": (
        frozenset({"assigned_network_address"}),
        frozenset({"dead_resources"}),
        frozenset({"network_address", "resource_id"}),
    ),
    "sge": (frozenset({"job_number", "qname"}),),
    RESERVATIONS: (frozenset({"reservations", "node_list"}), frozenset({"reservations", "last_update"})),
    "kubernetes": (
        frozenset({"apiVersion", "nodeName"}),
        frozenset({"apiVersion", "metadata", "containers"}),
        frozenset({"apiVersion", "involvedObject"}),
        frozenset({"apiVersion", "regarding"}),
    ),
    "htcondor": (
        frozenset({"ClusterId", "ProcId", "JobStatus"}),
        frozenset({"ClusterId", "ProcId", "LastRemoteHost"}),
        frozenset({"ClusterId", "ProcId", "RemoteHost"}),
    ),
    "flux": (frozenset({"t_run", "nodelist"}), frozenset({"t_submit", "urgency"})),
}
_START: Final = re.compile(r"\s*[\[{]")
_KEYS: Final = re.compile(rb'"([^"\\]{1,100})"\s*:')
_NUMBER: Final = {"set", "number"}  # Slurm's representation of a number that may be missing or infinite
_RESOURCE: Final = {"type", "name", "count"}  # Slurm's representation of a job's resource


def keys_in(head: bytes) -> list[str]:
    """Return the keys in the head of a JSON file, by first occurrence."""
    return list(dict.fromkeys(key.decode(errors="replace") for key in _KEYS.findall(head)))


def is_json(head: bytes) -> bool:
    """Return whether a file with this head contains JSON objects or arrays."""
    return head.lstrip().startswith((b"{", b"["))


def format_of(head: bytes) -> str:
    """Return the format in ``KNOWN_BY`` that the first JSON keys identify, or an empty text."""
    keys = set(keys_in(head)) if is_json(head) else set[str]()
    return next((name for name, sets in KNOWN_BY.items() if any(keys >= each for each in sets)), "")


def records(file: RawFile, tally: FindingsTally) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield each record with its line number, or its index in an array; skip other values."""
    head = file.head.lstrip()
    first = _parsed(head.partition(b"\n")[0]) if head.startswith(b"{") else None
    # A line is a record if it is a whole object without a list of records
    if isinstance(first, dict) and not any(isinstance(first.get(name), list) for name in _LISTS):
        found: Iterator[tuple[int, Any]] = ((line, _parsed(text)) for line, text in file.lines() if text.strip())
    else:
        found = enumerate(_elements(file), start=1)
    for number, record in found:
        if isinstance(record, dict):
            yield number, record
        else:
            tally.row(number)
            tally.set_aside("malformed")


def _parsed(text: str | bytes) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value, None if it is invalid."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        pass
    try:
        return json.loads(text)  # accepts NaN
    except (ValueError, RecursionError):
        return None


def content_of(file: RawFile, largest: int = LARGEST_BYTES, fix: str = _SPLIT) -> bytes:
    """Return the content of a JSON file; raise ``BadInput`` with this ``fix`` for a larger one."""
    stream, pieces = file.binary(), BytesIO()
    while pieces.tell() <= largest and (piece := stream.read(_PIECE_BYTES)):  # a read of the limit would allocate it
        pieces.write(piece)
    content = pieces.getvalue()
    if len(content) > largest:
        raise BadInput(f"JSON of more than {largest:,} bytes", where=file.where, fix=fix)
    return content


def _elements(file: RawFile) -> Iterator[Any]:
    """Yield consecutive objects, and the elements of arrays, or of the arrays in an object with records."""
    content = content_of(file)
    try:
        document = msgspec.json.decode(content, type=list[msgspec.Raw] | dict[str, msgspec.Raw])
        if isinstance(document, dict):
            lists = [raw for name, raw in document.items() if name in _LISTS and bytes(raw).startswith(b"[")]
            found = [each for raw in lists for each in msgspec.json.decode(raw, type=list[msgspec.Raw])]
            document = found if lists else [msgspec.Raw(content)]
    except (msgspec.DecodeError, UnicodeError, RecursionError):  # several values, or an invalid one
        yield from _values(content.decode(errors="replace"), file.where)
        return
    yield from (_parsed(bytes(raw).decode(errors="replace")) for raw in document)


def _values(text: str, where: str) -> Iterator[Any]:
    scan, place = json.JSONDecoder().raw_decode, 0
    while (start := _START.match(text, place)) is not None:
        try:
            value, place = scan(text, start.end() - 1)
        except (ValueError, RecursionError) as error:
            why = error if isinstance(error, ValueError) else "nested too deep"
            raise BadInput(f"incomplete JSON: {why}", where=where, fix=_AGAIN) from error
        inner = value.items() if isinstance(value, dict) else [(_LISTS[0], value)]
        lists = [each for name, each in inner if name in _LISTS and isinstance(each, list)]
        yield from chain(*lists) if lists else [value]


def leaf_names(record: object, before: str = "", depth: int = 0) -> Iterator[str]:
    """Yield a record's field names; nested fields have dotted names, and fields that contain others count too."""
    if depth == MOST_DEPTH:
        return
    if isinstance(record, list):
        resources = sorted({_resource(each) for each in record if _is_resource(each)})
        yield from (f"{before}.{name}" for name in resources)
        record = record[0] if record and isinstance(record[0], dict) else None
    if before:
        yield before
    if isinstance(record, dict) and not record.keys() >= _NUMBER:
        for name, inner in record.items():
            yield from leaf_names(inner, f"{before}.{name}" if before else name, depth + 1)


def dig(record: object, path: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return a field of a record; a list if there are several."""
    return dig_path(record, tuple(path.split(".")))


def dig_path(record: object, path: Sequence[str]) -> Any:  # noqa: ANN401 - any JSON value
    """Return the field at a path of names."""
    if isinstance(record, list):
        resources = [each for each in record if _is_resource(each)]
        if resources and path and path[0] not in _RESOURCE:
            return _amount(resources, path[0])
        found = [dig_path(each, path) for each in record] if path else record
        return [deep for each in found for deep in (each if isinstance(each, list) else [each])]
    if isinstance(record, dict):
        if path:
            whole = ".".join(path)
            if whole not in record:
                return dig_path(record.get(path[0]), path[1:])
            found = record[whole]
            return dig_path(found, ()) if isinstance(found, dict) and found.keys() >= _NUMBER else found
        if record.keys() >= _NUMBER:
            return record["number"] if record["set"] else None
    return None if path else record


def _is_resource(entry: object) -> bool:
    return isinstance(entry, dict) and entry.keys() >= _RESOURCE and isinstance(entry["count"], int)


def _resource(entry: Mapping[str, Any]) -> str:
    """Return the resource of an entry: ``cpu``, ``mem``, or the name of a generic resource, such as ``gpu``."""
    return str(entry["name"] or entry["type"]).partition(":")[0]


def _amount(resources: Sequence[Mapping[str, Any]], wanted: str) -> int | None:
    """Return the amount of a resource: the total if listed alongside types, as in ``gpu`` and ``gpu:a100``."""
    known = {str(each["name"] or each["type"]): each["count"] for each in resources if _resource(each) == wanted}
    return known.get(wanted, sum(known.values()) if known else None)


def field_of(records: Sequence[Mapping[str, Any]], path: str) -> list[Any]:
    """Return a field of each record."""
    found = [record.get(path) for record in records]
    if not {dict, list, type(None)} & set(map(type, found)):
        return found
    names = tuple(path.split("."))
    return [dig_path(record, names) for record in records]


def split_rows(record: Mapping[str, Any], rows: str) -> Iterator[Mapping[str, Any]]:
    """Yield a record unchanged, or once for each entry of its list ``rows``, reduced to that entry."""
    inner = record.get(rows) if rows else None
    if not isinstance(inner, list):
        yield record
        return
    entries: list[object] = inner or [{}]
    yield from ({**record, rows: each} for each in entries)


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Rows of a table as columns; ``lines`` are their line numbers, ``lists`` the cells of ``JsonTable.lists``."""

    lines: NDArray[np.int64]
    columns: Mapping[str, Cells]
    lists: Sequence[Any] = ()

    def first(self, rows: int) -> ColumnBatch:
        """Return the first rows."""
        columns = {name: cells[:rows] for name, cells in self.columns.items()}
        return ColumnBatch(self.lines[:rows], columns, self.lists[:rows])


@dataclass(frozen=True, slots=True)
class TextHeader:
    """The columns of a header line, and the separator; ``" "`` for any blanks."""

    names: tuple[str, ...]
    separator: str

    @property
    def has_quotes(self) -> bool:
        """Whether cells may be in quotes."""
        return self.separator != "|"

    def cells(self, lines: Iterable[str]) -> Iterator[list[str]]:
        """Yield the cells of each row; a row that the csv module rejects is empty."""
        if self.separator == " ":
            yield from (line.split() for line in lines)
            return
        rows = csv.reader(
            lines, delimiter=self.separator, quoting=csv.QUOTE_MINIMAL if self.has_quotes else csv.QUOTE_NONE
        )
        while True:
            try:
                yield next(rows)
            except csv.Error:
                yield []
            except StopIteration:
                return


def header_of(line: str) -> TextHeader:
    """Parse a line as a header: its most frequent separator is used."""
    text = line.strip("\r\n").removeprefix("#").strip(" ")
    separator = max(SEPARATORS, key=text.count)
    if not text.count(separator):
        separator = " "
    cells = next(TextHeader((), separator).cells([text]), [])
    return TextHeader(tuple(cell.strip().strip('"') for cell in cells[:MOST_COLUMNS]), separator)


def find_header(head: bytes) -> tuple[int, TextHeader] | None:
    """Return the index and the header of the first line with the columns of a table of jobs."""
    for index, line in enumerate(first_lines(head)[:HEADER_WITHIN]):
        header = header_of(line)
        of_sacct = header.separator != " " and names_slurm_jobs(header.names)
        if len(header.names) > 1 and recognised(header.names) and not of_sacct:
            return index, header
    return None


class TextTable:
    """A text table. The header is the first possible line, unless ``names`` are given."""

    def __init__(self, file: RawFile, tally: FindingsTally, names: Sequence[str] | None) -> None:
        self._file, self._tally = file, tally
        lines = first_lines(file.head)
        filled = next((index for index, line in enumerate(lines) if line.strip()), 0)
        index, self._header = find_header(file.head) or (filled, header_of(lines[filled] if lines else ""))
        if names:
            self._header = TextHeader(tuple(names), self._header.separator)
        self._above = 0 if names else index + 1  # lines up to the header
        self.names = self._header.names

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first rows, column by column."""
        lines = first_lines(self._file.head)[self._above :]
        if len(self._file.head) >= HEAD_BYTES:
            del lines[-1:]  # truncated
        rows = islice(self._header.cells(line for line in lines if line.strip()), SAMPLE_ROWS)
        whole = [cells for cells in rows if len(cells) == len(self.names)]
        # Reversed, so the first of several columns with the same name counts
        return {name: [cells[place] for cells in whole] for place, name in reversed(list(enumerate(self.names)))}

    def batches(self, columns: Sequence[str]) -> Iterator[ColumnBatch]:
        """Yield all rows; skip rows with another number of cells."""
        places, header = [self.names.index(name) for name in columns], self._header
        blocks = self._blocks()
        for first, block in blocks:
            found = None
            if header.separator != " ":
                found = columns_of(block, header.separator, len(self.names), places, quotes=header.has_quotes)
            if found is None:  # an irregular file
                yield from self._parsed(chain([(first, block)], blocks), columns, places)
                return
            rows, others, cells = found
            lines = block.split(b"\n") if others.size else []
            for index in others.tolist():
                if lines[index].strip():
                    self._reject(first + index)
            yield ColumnBatch(rows + first, dict(zip(columns, cells, strict=True)))

    def _blocks(self) -> Iterator[tuple[int, bytes]]:
        """Yield the blocks of the file without its header."""
        for first, block in self._file.blocks(LARGE_BLOCK_BYTES):
            above = max(self._above + 1 - first, 0)
            lines = block.split(b"\n", above)
            for number, line in enumerate(lines[:above], first):
                self._file.text(line, number)  # counts odd letters
            if len(lines) > above:
                yield first + above, lines[above]

    def _reject(self, number: int) -> None:
        self._tally.row(number)
        self._tally.set_aside("malformed")

    def _parsed(
        self, blocks: Iterable[tuple[int, bytes]], columns: Sequence[str], places: Sequence[int]
    ) -> Iterator[ColumnBatch]:
        """Yield rows line by line."""
        number = 0

        def texts() -> Iterator[str]:
            nonlocal number
            for first, block in blocks:
                for line_number, line in enumerate(block.split(b"\n"), first):
                    if text := self._file.text(line, line_number) if line.strip() else "":
                        number = line_number
                        yield text

        pick = itemgetter(*places, places[0])  # a tuple, even for one column
        # A row that continues over several lines has the number of its last line
        rows = ((number, cells) for cells in self._header.cells(texts()))
        while some := list(islice(rows, _PARSED_AT_ONCE)):
            good = [(line, pick(cells)) for line, cells in some if len(cells) == len(self.names)]
            for line, cells in some:
                if len(cells) != len(self.names):
                    self._reject(line)
            if good:
                lines, picked = zip(*good, strict=True)
                found = map(column_of, zip(*picked, strict=True))
                yield ColumnBatch(np.array(lines), dict(zip(columns, found, strict=False)))


class JsonTable:
    """JSON records, as lines or in an array.

    ``rows`` is the name of a list in each record with one row per entry, ``lists`` the name of a field that batches
    contain unchanged. Both are set before the rows are read; an empty name means none.
    """

    def __init__(self, file: RawFile, tally: FindingsTally) -> None:
        self._records = records(file, tally)
        self._first = list(islice(self._records, SAMPLE_ROWS))
        self.rows = self.lists = ""
        names: dict[str, None] = {}
        for _, record in self._first:
            names.update(dict.fromkeys(leaf_names(record)))
        self.names = tuple(names)[:MOST_COLUMNS]
        if any(isinstance(value, dict) and "0" in value for _, record in self._first[:1] for value in record.values()):
            raise BadInput("JSON by columns", where=file.where, fix="write one object a row: orient='records'")
        if not names:
            raise BadInput(
                "JSON without records of jobs", where=file.where, fix="see docs/reference/readers.md, Formats: jobs"
            )

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first rows, column by column."""
        records = [record for _, each in self._first for record in split_rows(each, self.rows)]
        return {name: field_of(records, name) for name in self.names}

    def batches(self, columns: Sequence[str]) -> Iterator[ColumnBatch]:
        """Yield all rows."""
        numbered = chain(self._first, self._records)
        self._first = []
        rows = ((number, row) for number, each in numbered for row in split_rows(each, self.rows))
        while some := list(islice(rows, _ROWS_AT_ONCE)):
            lines = np.fromiter((number for number, _ in some), dtype=np.int64, count=len(some))
            records = [row for _, row in some]
            found = {name: column_of(field_of(records, name)) for name in columns}
            yield ColumnBatch(lines, found, field_of(records, self.lists) if self.lists else [])


class ParquetTable:
    """A Parquet file. Times are returned as seconds UTC, or as texts if they have no zone."""

    def __init__(self, file: RawFile) -> None:
        self._where = file.where
        self._broken = (ArrowException, OSError, ValueError)
        stream: IO[bytes] = file.seekable()
        try:
            self._file: Any = parquet.ParquetFile(stream)
        except self._broken as error:
            raise BadInput(f"incomplete Parquet file: {error}", where=file.where, fix=_AGAIN) from error
        if FORMAT_KEY in (self._file.schema_arrow.metadata or {}):
            what, fix = "not a scheduler's records: this may be a log already", "try bftrain inspect"
            raise BadInput(what, where=file.where, fix=fix)
        self.names = tuple(self._file.schema_arrow.names)

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first rows, column by column."""
        for batch in self._batches(SAMPLE_ROWS, None):
            return {name: _python_cells(batch.column(name)) for name in self.names}
        return {name: [] for name in self.names}

    def batches(self, columns: Sequence[str]) -> Iterator[ColumnBatch]:
        """Yield all rows."""
        row = 1
        for batch in self._batches(_ROWS_AT_ONCE, list(columns)):
            lines = np.arange(row, row + batch.num_rows, dtype=np.int64)
            row += batch.num_rows
            yield ColumnBatch(lines, {name: _cells(batch.column(name)) for name in columns})

    def _batches(self, rows: int, columns: list[str] | None) -> Iterator[Any]:
        try:
            yield from self._file.iter_batches(batch_size=rows, columns=columns, use_threads=False)
        except self._broken as error:
            raise BadInput(f"cannot be read: {error}", where=self._where, fix=_AGAIN) from error


def _python_cells(column: Any) -> Sequence[Any]:  # noqa: ANN401 - pyarrow has no types
    cells = column if pa.types.is_nested(column.type) else _cells(column)
    return list(cells) if isinstance(cells, np.ndarray) else cells.to_pylist()


def _cells(column: Any) -> Cells:  # noqa: ANN401 - pyarrow has no types
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):  # texts, as written by older programs
        column = arrow_texts(["" if cell is None else cell.decode(errors="replace") for cell in column.to_pylist()])
    kind, types = column.type, pa.types
    if types.is_timestamp(kind) and kind.tz is None:
        column = compute.strftime(column.cast(pa.timestamp("s"), safe=False), "%Y-%m-%dT%H:%M:%S")
    elif types.is_timestamp(kind) or types.is_duration(kind):
        return _numbers(column.cast(pa.int64())) * EPOCHS[kind.unit]
    elif types.is_integer(kind) or types.is_floating(kind):
        return _numbers(column)
    elif types.is_decimal(kind):
        return _numbers(column.cast(pa.float64()))
    if types.is_string(column.type) or types.is_large_string(column.type):
        return column.cast(pa.string()).fill_null(EMPTY)
    return column_of(column.to_pylist())


def _numbers(column: Any) -> NDArray[np.float64]:  # noqa: ANN401 - pyarrow has no types
    return np.where(numpy_of(column.is_valid()), numpy_of(column), np.nan)


# Each has the column ``names``, the first rows as ``sample``, and ``batches`` of the required columns, read once
TableRows = TextTable | JsonTable | ParquetTable


def open_table(file: RawFile, tally: FindingsTally, names: Sequence[str] | None) -> TableRows:
    """Return the table in a file, by its content: Parquet, JSON or text."""
    if file.head.startswith(PARQUET_MARK):
        return ParquetTable(file)
    if is_json(file.head):
        return JsonTable(file, tally)
    return TextTable(file, tally, names)
