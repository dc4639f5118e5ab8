"""Result tables as files: CSV or Parquet. Written row by row, read back in batches by pyarrow."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

from bftrain.errors import BadInput, UsageError, suggestion
from bftrain.files import whole_file
from bftrain.values import wire
from bftrain_datasets.log.parquet_log import FORMAT_KEY

CSV: Final = "csv"
PARQUET: Final = "parquet"
FORMS: Final = (CSV, PARQUET)
RUN_AGAIN: Final = "repeat the run, and do not edit its files"
_ROWS_AT_ONCE: Final = 8192


class ColumnType(StrEnum):
    """The type of the cells of a column; any but ``sizes`` may be empty."""

    TEXT = "text"
    NAME = "name"  # text with few distinct values
    NUMBER = "number"  # 64-bit floating point
    WHOLE = "whole number"
    TRUTH = "true or false"
    SIZES = "sizes"  # number of nodes by task name; only in the last column


class TableColumn(NamedTuple):
    """One column of a table."""

    name: str
    kind: ColumnType


# Columns by name; an empty cell is None
Table = Mapping[str, Sequence[Any]]


def rows(table: Table) -> Iterable[tuple[Any, ...]]:
    """Return the rows of a table."""
    return zip(*table.values(), strict=True)


def columns_of(table: Table) -> list[TableColumn]:
    """Return the columns of a table in memory; the first cell with a value determines a column's type."""
    known = {bool: ColumnType.TRUTH, int: ColumnType.WHOLE, float: ColumnType.NUMBER}
    types = (type(next((cell for cell in cells if cell is not None), 0.0)) for cells in table.values())
    return [TableColumn(name, known.get(kind, ColumnType.TEXT)) for name, kind in zip(table, types, strict=True)]


def write(
    folder: Path,
    name: str,
    columns: Sequence[TableColumn],
    rows: Iterable[Sequence[object]],
    form: str,
    file_format: str,
) -> None:
    """Write a table atomically; ``form`` is one of ``FORMS``, ``file_format`` the format name in a Parquet file."""
    with created(folder, name, form) as file:
        if form == CSV:
            _write_csv(file, columns, rows)
            return
        rows = iter(rows)
        with parquet_writer(file, columns, file_format) as (writer, schema):
            while chunk := list(islice(rows, _ROWS_AT_ONCE)):
                cells = zip(columns, zip(*chunk, strict=True), strict=True)
                writer.write_table(_arrow().table([_array(*each) for each in cells], schema=schema))


def check_form(form: str) -> None:
    """Raise ``UsageError`` for an unknown form of tables."""
    if form not in FORMS:
        raise UsageError(f"there is no form '{form}'", where="tables", fix=suggestion(form, FORMS))


@contextmanager
def created(folder: Path, name: str, form: str) -> Iterator[IO[bytes]]:
    """Open the file of a table for writing; then delete a table of an earlier run in another form."""
    check_form(form)
    with whole_file(folder / f"{name}.{form}") as file:
        yield file
    for other in FORMS:
        if other != form:
            (folder / f"{name}.{other}").unlink(missing_ok=True)


def _write_csv(file: IO[bytes], columns: Sequence[TableColumn], rows: Iterable[Sequence[object]]) -> None:
    """Write UTF-8 with a header line; numbers in shortest lossless form, missing values empty."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(column.name for column in columns)
    if columns[-1].kind is ColumnType.SIZES:
        open_ended = csv.writer(text, lineterminator=",")
        sizes, end = object(), ""
        for row in rows:
            if row[-1] is not sizes:  # unchanged sizes are the same object
                sizes = row[-1]
                end = _sizes_cell(sizes) + "\n"  # type: ignore[arg-type]  # the last column contains sizes
            open_ended.writerow(row[:-1])
            text.write(end)
    elif any(column.kind is ColumnType.TRUTH for column in columns):
        writer.writerows([str(cell).lower() if isinstance(cell, bool) else cell for cell in row] for row in rows)
    else:
        writer.writerows(rows)
    text.detach()


def _sizes_cell(sizes: Mapping[str, int]) -> str:
    """Return a cell with sizes as JSON, quoted as the csv module quotes it."""
    return f'"{wire.encode(sizes).decode().replace(chr(34), chr(34) * 2)}"' if sizes else "{}"


def _arrow() -> Any:  # noqa: ANN401 - pyarrow has no types
    import pyarrow as pa  # noqa: PLC0415 - takes a moment

    return pa


def _type_of(kind: ColumnType) -> Any:  # noqa: ANN401 - as above
    pa = _arrow()
    return {
        ColumnType.TEXT: pa.string(),
        ColumnType.NAME: pa.dictionary(pa.int32(), pa.string()),
        ColumnType.NUMBER: pa.float64(),
        ColumnType.WHOLE: pa.int64(),
        ColumnType.TRUTH: pa.bool_(),
        ColumnType.SIZES: pa.map_(pa.string(), pa.int32()),
    }[kind]


def _array(column: TableColumn, cells: Sequence[Any]) -> Any:  # noqa: ANN401 - as above
    if column.kind is ColumnType.SIZES:
        cells = [list(cell.items()) for cell in cells]
    elif column.kind is ColumnType.TEXT:
        cells = [None if cell is None else str(cell) for cell in cells]
    return _arrow().array(cells, type=_type_of(column.kind))


@contextmanager
def parquet_writer(file: IO[bytes], columns: Sequence[TableColumn], file_format: str) -> Iterator[tuple[Any, Any]]:
    """Open a Parquet writer; return it and its schema, which has the ``file_format`` in its metadata."""
    from pyarrow import parquet  # noqa: PLC0415 - takes a moment

    fields = [(column.name, _type_of(column.kind)) for column in columns]
    schema = _arrow().schema(fields, metadata={FORMAT_KEY: file_format.encode()})
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        yield writer, schema


def read(folder: Path, name: str, columns: Sequence[TableColumn], later: Collection[str] = ()) -> Iterator[Any]:
    """Yield these columns of a table in Arrow batches; older files may lack the ``later`` columns, which are null."""
    from pyarrow import csv as arrow_csv  # noqa: PLC0415 - takes a moment
    from pyarrow import parquet  # noqa: PLC0415 - as above

    pa, names, path = _arrow(), [column.name for column in columns], _path(folder, name)
    try:
        if path.suffix == f".{CSV}":
            cells = {column.name: column.kind for column in columns}
            options = arrow_csv.ConvertOptions(
                column_types={
                    each: pa.string() if kind is ColumnType.SIZES else _type_of(kind) for each, kind in cells.items()
                },
                include_columns=names,
                include_missing_columns=True,
                null_values=[""],
                true_values=["true"],
                false_values=["false"],
            )
            with path.open(encoding="utf-8", newline="") as file:
                _check_columns(path, names, next(csv.reader(file), []), later)
            parsing = arrow_csv.ParseOptions(newlines_in_values=True)
            yield from arrow_csv.open_csv(path, parse_options=parsing, convert_options=options)
            return
        with parquet.ParquetFile(path) as content:
            known = content.schema_arrow.names
            _check_columns(path, names, known, later)
            for batch in content.iter_batches(_ROWS_AT_ONCE, columns=[each for each in names if each in known]):
                arrays = [
                    batch.column(each) if each in known else pa.nulls(batch.num_rows, _type_of(kind))
                    for each, kind in columns
                ]
                yield pa.record_batch(arrays, names=names)
    except (pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(f"not the table it should be: {error}", where=str(path), fix=RUN_AGAIN) from error


def _path(folder: Path, name: str) -> Path:
    for form in FORMS:
        if (path := folder / f"{name}.{form}").is_file():
            return path
    raise BadInput(f"contains no table of {name.replace('_', ' ')}", where=str(folder), fix=RUN_AGAIN)


def saved_columns(folder: Path, name: str, known: Sequence[TableColumn]) -> list[TableColumn]:
    """Return all columns of a saved table; the file determines the types of those that are not ``known``."""
    from pyarrow import csv as arrow_csv  # noqa: PLC0415 - takes a moment
    from pyarrow import parquet  # noqa: PLC0415 - as above

    pa, path, kinds = _arrow(), _path(folder, name), dict(known)
    try:
        if path.suffix == f".{CSV}":
            parsing = arrow_csv.ParseOptions(newlines_in_values=True)
            with arrow_csv.open_csv(path, parse_options=parsing) as content:
                schema = content.schema
        else:
            schema = parquet.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"not the table it should be: {error}", where=str(path), fix=RUN_AGAIN) from error

    def kind_of(field: Any) -> ColumnType:  # noqa: ANN401 - as above
        if pa.types.is_string(field.type):
            return ColumnType.TEXT
        if pa.types.is_boolean(field.type):
            return ColumnType.TRUTH
        return ColumnType.WHOLE if pa.types.is_integer(field.type) else ColumnType.NUMBER

    return [TableColumn(field.name, kinds.get(field.name) or kind_of(field)) for field in schema]


def _check_columns(path: Path, names: Sequence[str], known: Collection[str], later: Collection[str]) -> None:
    missing = [name for name in names if name not in known and name not in later]
    if missing:
        raise BadInput(f"has no column '{missing[0]}'", where=str(path), fix=RUN_AGAIN)


def read_rows(
    folder: Path, name: str, columns: Sequence[TableColumn], later: Collection[str] = ()
) -> Iterator[tuple[Any, ...]]:
    """Yield these columns of a table row by row; an empty cell is ``None``, or ``""`` for texts in CSV."""
    kinds = [column.kind for column in columns]
    for batch in read(folder, name, columns, later):
        cells = (column.to_pylist() for column in batch.columns)
        yield from zip(
            *(map(_sizes, each) if kind is ColumnType.SIZES else each for kind, each in zip(kinds, cells, strict=True)),
            strict=True,
        )


def _sizes(cell: str | list[tuple[str, int]]) -> dict[str, int]:
    """Return the sizes in a cell: JSON in CSV, pairs in Parquet."""
    return wire.decode(cell.encode(), dict[str, int]) if isinstance(cell, str) else dict(cell)
