"""Tables as Parquet files, with pyarrow: typed, compressed, and quick to read in part."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.files import whole_file
from bftrain_datasets.log.parquet_log import FORMAT_KEY
from bftrain_replay import tables
from bftrain_replay.accounting.allocations import StoredAllocations
from bftrain_replay.accounting.column_file import BLOCK_ROWS
from bftrain_replay.results.result import ReplayResult
from bftrain_replay.tables import ColumnType, TableColumn

SUFFIX: Final = ".parquet"
_ROWS_AT_ONCE: Final = 8192
_READ_AGAIN: Final = "run the replay again, and leave its files as they are"


def pyarrow() -> Any:  # noqa: ANN401 - a module without types
    """Import pyarrow with its module for Parquet."""
    import_module("pyarrow.parquet")  # reached through the package
    return import_module("pyarrow")


@contextmanager
def _reading(path: Path) -> Iterator[Any]:
    """Open a table, and name it in errors."""
    pa = pyarrow()
    try:
        with pa.parquet.ParquetFile(path) as file:
            yield file
    except FileNotFoundError as error:
        raise BadInput("there is no such table", where=str(path), fix=_READ_AGAIN) from error
    except (pa.ArrowException, KeyError) as error:
        raise BadInput(f"not the table it should be: {error}", where=str(path), fix=_READ_AGAIN) from error


def rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Read these columns, row by row."""
    with _reading(path) as file:
        later = tables.LATER.difference(file.schema_arrow.names)
        known = [name for name in columns if name not in later]
        for batch in file.iter_batches(batch_size=_ROWS_AT_ONCE, columns=known):
            none = [None] * batch.num_rows
            yield from zip(
                *(none if name in later else batch.column(name).to_pylist() for name in columns), strict=True
            )


def stored_allocations(path: Path) -> StoredAllocations:
    """Read the table of allocations into a temporary file, many rows at once."""
    found = StoredAllocations.new_rows()
    numbers: dict[str, dict[str, int]] = {"task": {}, "node": {}}  # in order of first appearance
    with _reading(path) as file:
        for batch in file.iter_batches(batch_size=BLOCK_ROWS, columns=[column.name for column in tables.ALLOCATIONS]):
            if any(column.null_count for column in batch.columns):
                what = "a row of the table of allocations has an empty cell"
                raise BadInput(what, where=str(path), fix=_READ_AGAIN)
            for name, known in numbers.items():
                found.last[name].frombytes(_numbered(batch.column(name), known).tobytes())
            for name in ("from_s", "to_s"):
                found.last[name].frombytes(batch.column(name).cast("float64").to_numpy().tobytes())
            found.add_block_if_full()
    return StoredAllocations(tasks=tuple(numbers["task"]), nodes=tuple(numbers["node"]), rows=found)


def _numbered(column: Any, known: dict[str, int]) -> NDArray[np.int32]:  # noqa: ANN401 - a module without types
    """Return the number of each name; new names are added to the ``known`` ones."""
    named = column if hasattr(column, "indices") else column.dictionary_encode()
    places, first, which = np.unique(named.indices.to_numpy(), return_index=True, return_inverse=True)
    numbers = np.empty(len(places), dtype=np.int32)
    for each in np.argsort(first).tolist():
        numbers[each] = known.setdefault(named.dictionary[int(places[each])].as_py(), len(known))
    return numbers[which]


def write(result: ReplayResult, folder: Path, file_format: str) -> None:
    """Write all tables; each appears complete or not at all, and names its ``file_format`` in its metadata."""
    pa = pyarrow()
    for name, rows in result.table_rows().items():
        write_rows(folder / f"{name}{SUFFIX}", tables.TABLES[name], rows, file_format)
    if result.allocations is not None:
        with _writer(pa, folder / "allocations.parquet", tables.ALLOCATIONS, file_format) as add:
            task_names, node_names = (
                pa.array(result.allocations.tasks, pa.string()),
                pa.array(result.allocations.nodes, pa.string()),
            )
            for block in result.allocations.blocks():
                named = [
                    pa.DictionaryArray.from_arrays(pa.array(places), names)
                    for places, names in ((block.task, task_names), (block.node, node_names))
                ]
                add([*named, pa.array(block.from_s), pa.array(block.to_s)])


def write_rows(path: Path, columns: Sequence[TableColumn], rows: Iterable[Sequence[object]], file_format: str) -> None:
    """Write a table row by row; it appears complete or not at all, and names its ``file_format`` in its metadata."""
    pa = pyarrow()
    with _writer(pa, path, columns, file_format) as add:
        _add_rows(pa, columns, rows, add)


@contextmanager
def _writer(
    pa: Any,  # noqa: ANN401 - a module without types
    path: Path,
    columns: Sequence[TableColumn],
    file_format: str,
) -> Iterator[Callable[[list[Any]], None]]:
    schema = pa.schema(
        [(column.name, _type_of(pa, column)) for column in columns], metadata={FORMAT_KEY: file_format.encode()}
    )
    with whole_file(path) as file, pa.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        yield lambda arrays: writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _type_of(pa: Any, column: TableColumn) -> Any:  # noqa: ANN401 - a module without types
    names = pa.dictionary(pa.int32(), pa.string())
    if column in tables.ALLOCATIONS and column.kind is ColumnType.TEXT:
        return names  # a handful of names, each many times
    return {
        ColumnType.TEXT: pa.string(),
        ColumnType.NUMBER: pa.float64(),
        ColumnType.WHOLE: pa.int64(),
        ColumnType.SIZES: pa.map_(pa.string(), pa.int32()),
    }[column.kind]


def _add_rows(
    pa: Any,  # noqa: ANN401 - a module without types
    columns: Sequence[TableColumn],
    rows: Iterable[Sequence[object]],
    add: Callable[[list[Any]], None],
) -> None:
    rows = iter(rows)
    while chunk := list(islice(rows, _ROWS_AT_ONCE)):
        arrays = []
        for column, cells in zip(columns, zip(*chunk, strict=True), strict=True):
            content = [list(cell.items()) for cell in cells] if column.kind is ColumnType.SIZES else cells
            arrays.append(pa.array(content, type=_type_of(pa, column)))
        add(arrays)
