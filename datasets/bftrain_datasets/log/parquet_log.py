"""The ``.parquet`` log file: the rows of the ``.csv`` file, for pandas, DuckDB and other Parquet readers.

Imports pyarrow only when reading or writing such a file, because the import is slow.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.files import check_unpacked
from bftrain_datasets.log import table_log
from bftrain_datasets.log.eventlog import FORMAT, STATE_WORDS, EventLog, LogBuilder
from bftrain_datasets.log.log_columns import epochs, first_mentioned

KIND: Final = "Parquet"
FORMAT_KEY: Final = b"bftrain.format"
END_KEY: Final = b"bftrain.end_s"
CHECKSUM_KEY: Final = b"bftrain.sha256"
PROVENANCE_KEY: Final = b"bftrain.provenance"
_TAIL_BYTES: Final = 8  # length of the metadata, and the end mark
_ROWS_AT_ONCE: Final = 1 << 16
_GROUP_ROWS: Final = 1 << 18
_ROW_BYTES: Final = 13  # bytes of a time, a node and a state in memory


def save(log: EventLog, file: IO[bytes]) -> None:
    """Write the log."""
    import pyarrow as pa  # noqa: PLC0415 - takes a moment
    from pyarrow import parquet  # noqa: PLC0415 - takes a moment

    times, nodes, states = table_log.rows_of(log)
    columns = {
        "time": pa.array(times),
        "node": pa.DictionaryArray.from_arrays(pa.array(nodes), pa.array(log.node_names, pa.string())),
        "state": pa.DictionaryArray.from_arrays(pa.array(states), pa.array(STATE_WORDS)),
    }
    if log.kind_names:
        kinds = pa.array(log.node_kinds[nodes])
        columns[table_log.KIND_COLUMN] = pa.DictionaryArray.from_arrays(kinds, pa.array(log.kind_names, pa.string()))
    table = pa.table(columns).replace_schema_metadata(
        {
            FORMAT_KEY: FORMAT.encode(),
            END_KEY: repr(log.end_s).encode(),
            CHECKSUM_KEY: log.sha256.encode(),
            PROVENANCE_KEY: log.provenance.in_json(),
        }
    )
    parquet.write_table(
        table, file, row_group_size=_GROUP_ROWS, compression="zstd", use_dictionary=True, write_page_checksum=True
    )


def is_own(path: Path) -> bool:
    """Return whether the metadata of a Parquet file contain the log format, without pyarrow."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - _TAIL_BYTES, 0))
        metadata_bytes = int.from_bytes(file.read(4), "little")
        file.seek(max(size - _TAIL_BYTES - metadata_bytes, 0))
        return FORMAT_KEY in file.read(metadata_bytes)


def load(path: Path) -> EventLog:
    """Load the log. Rows may be in any order; ``end_s`` defaults to the last row's time."""
    import pyarrow as pa  # noqa: PLC0415 - takes a moment
    from pyarrow import parquet  # noqa: PLC0415 - takes a moment

    builder = LogBuilder()
    with path.open("rb") as opened:
        try:
            file = parquet.ParquetFile(opened, page_checksum_verification=True)
            schema = file.schema_arrow
            if sorted(schema.names) not in (
                sorted(table_log.COLUMNS),
                sorted((*table_log.COLUMNS, table_log.KIND_COLUMN)),
            ):
                shown = ", ".join(schema.names)[:100]
                raise BadInput(f"not a log: the columns are {shown or 'none'}", where=str(path), fix=table_log.REMEDY)
            metadata = file.metadata
            groups = (metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
            unpacked = max(sum(groups), metadata.num_rows * _ROW_BYTES)
            check_unpacked(unpacked, path.stat().st_size, where=str(path), fix="save it as .csv")
            story = dict(schema.metadata or {})
            row = 0
            for batch in file.iter_batches(_ROWS_AT_ONCE, use_threads=False):
                _add(builder, batch, row, path)
                row += batch.num_rows
        except (pa.ArrowException, ValueError, OSError, MemoryError, OverflowError) as error:
            reason = " ".join(str(error).split())[:200]
            raise BadInput(
                f"not a readable Parquet file: {reason}", where=str(path), fix="fetch the file again"
            ) from error
    end_s = table_log.seconds(story[END_KEY], str(path), END_KEY.decode()) if END_KEY in story else None
    log = table_log.built(builder, end_s, KIND, str(path))
    return table_log.with_provenance(
        log, path, KIND, _note(story, PROVENANCE_KEY, path), _note(story, CHECKSUM_KEY, path)
    )


def _add(builder: LogBuilder, batch: Any, row: int, path: Path) -> None:  # noqa: ANN401 - pyarrow has no types
    """Add the rows of a batch; ``row`` is the number of the first row, from 0."""
    for name in batch.schema.names:
        column = batch.column(name)
        if column.null_count:
            place = row + int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0]) + 1
            raise BadInput(f"row {place} has no {name}", where=str(path), fix=table_log.REMEDY)
    times = _seconds(batch.column("time"), row, path)
    nodes = _codes(batch.column("node"), "node", path)
    states = _codes(batch.column("state"), "state", path)
    numbers = np.array([table_log.state_of(word, str(path)) for word in states[1]], dtype=np.int8)
    places = np.array([builder.place(table_log.checked_name(name, str(path))) for name in nodes[1]], dtype=np.int32)
    builder.add_columns(times, places[nodes[0]], numbers[states[0]])
    if table_log.KIND_COLUMN in batch.schema.names:
        kinds, words = _codes(batch.column(table_log.KIND_COLUMN), table_log.KIND_COLUMN, path)
        pairs = np.unique(np.stack((nodes[0], kinds)), axis=1)
        for node, kind in pairs.T.tolist():
            table_log.set_kind(builder, nodes[1][node], words[kind], str(path))


def _seconds(column: Any, row: int, path: Path) -> NDArray[np.float64]:  # noqa: ANN401 - pyarrow has no types
    """Return numbers or timestamps in seconds UTC."""
    values = column.to_numpy(zero_copy_only=False)
    if values.dtype.kind == "M":
        return epochs(values)
    if values.dtype.kind not in "iuf":
        raise BadInput(f"time: {column.type} is not a type of times", where=str(path), fix=table_log.REMEDY)
    times: NDArray[np.float64] = values.astype(np.float64)
    if not np.isfinite(times).all():
        place = row + int(np.flatnonzero(~np.isfinite(times))[0]) + 1
        what = f"row {place}: time: {times[place - row - 1]} is not a time"
        raise BadInput(what, where=str(path), fix=table_log.REMEDY)
    return times


def _codes(column: Any, name: str, path: Path) -> tuple[NDArray[np.int32], list[str]]:  # noqa: ANN401 - pyarrow has no types
    """Return texts as codes, and the distinct texts by first occurrence."""
    import pyarrow as pa  # noqa: PLC0415 - takes a moment

    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    words = column.dictionary.to_pylist()
    if not all(isinstance(word, str) for word in words):
        raise BadInput(f"{name}: {column.dictionary.type} is not text", where=str(path), fix=table_log.REMEDY)
    codes = column.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    if codes.size and not 0 <= int(codes.min()) <= int(codes.max()) < len(words):
        raise BadInput(f"the {name}s are damaged", where=str(path), fix="fetch the file again")
    numbers, used = first_mentioned(codes)
    return numbers, [words[code] for code in used.tolist()]


def _note(story: dict[bytes, bytes], key: bytes, path: Path) -> table_log.Note | None:
    return (story[key], f"{path} ({key.decode()})") if key in story else None
