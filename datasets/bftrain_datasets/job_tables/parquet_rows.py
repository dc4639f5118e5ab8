"""Parquet tables, read in batches of the required columns. Imports pyarrow at first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any, Final

import numpy as np

from bftrain.errors import BadInput
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.job_tables.cell_values import Cells
from bftrain_datasets.job_tables.column_choice import SAMPLE_ROWS
from bftrain_datasets.job_tables.table_rows import ColumnBatch
from bftrain_datasets.log.parquet_log import FORMAT_KEY

ROWS_AT_ONCE: Final = 1 << 14
MARK: Final = b"PAR1"
_EPOCH_UNITS: Final = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


class ParquetTable:
    """A Parquet file. Times are returned as seconds UTC, those without a zone as texts."""

    def __init__(self, file: RawFile) -> None:
        from pyarrow import ArrowException, parquet  # noqa: PLC0415 - takes a moment

        self._where = file.where
        self._broken = (ArrowException, OSError, ValueError)
        stream: IO[bytes] = file.seekable()
        try:
            self._file: Any = parquet.ParquetFile(stream)
        except self._broken as error:
            raise BadInput(f"incomplete Parquet file: {error}", where=file.where, fix="fetch the file again") from error
        if FORMAT_KEY in (self._file.schema_arrow.metadata or {}):
            what, fix = "not a scheduler's records: this may be a log already", "try bftrain inspect"
            raise BadInput(what, where=file.where, fix=fix)
        self.names = tuple(self._file.schema_arrow.names)

    def sample(self) -> Mapping[str, Sequence[Any]]:
        """Return the first rows, column by column."""
        for batch in self._batches(SAMPLE_ROWS, None):
            return {name: list(_cells(batch.column(name))) for name in self.names}
        return {name: [] for name in self.names}

    def batches(self, columns: Sequence[str]) -> Iterator[ColumnBatch]:
        """Yield all rows."""
        row = 1
        for batch in self._batches(ROWS_AT_ONCE, list(columns)):
            lines = np.arange(row, row + batch.num_rows, dtype=np.int64)
            row += batch.num_rows
            yield ColumnBatch(lines, {name: _cells(batch.column(name)) for name in columns})

    def _batches(self, rows: int, columns: list[str] | None) -> Iterator[Any]:
        try:
            yield from self._file.iter_batches(batch_size=rows, columns=columns, use_threads=False)
        except self._broken as error:
            raise BadInput(f"cannot be read: {error}", where=self._where, fix="fetch the file again") from error


def _cells(column: Any) -> Cells:  # noqa: ANN401 - pyarrow has no types
    import pyarrow as pa  # noqa: PLC0415 - takes a moment
    from pyarrow import compute  # noqa: PLC0415 - takes a moment

    kind = column.type
    types = pa.types
    if types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if types.is_timestamp(kind):
        if kind.tz is None:
            texts: list[Any] = compute.strftime(
                column.cast(pa.timestamp("s"), safe=False), "%Y-%m-%dT%H:%M:%S"
            ).to_pylist()
            return texts
        return _numbers(column.cast(pa.int64()), _EPOCH_UNITS[kind.unit])
    if types.is_duration(kind):
        return _numbers(column.cast(pa.int64()), _EPOCH_UNITS[kind.unit])
    if types.is_integer(kind) or types.is_floating(kind):
        return _numbers(column, 1.0)
    if types.is_decimal(kind):
        return _numbers(column.cast(pa.float64()), 1.0)
    if not (types.is_string(kind) or types.is_large_string(kind)):
        found: list[Any] = column.to_pylist()
        return found
    encoded = column.dictionary_encode()  # equal texts share an object, whose hash is cached
    texts = [*encoded.dictionary.to_pylist(), None]
    return [texts[place] for place in encoded.indices.fill_null(len(texts) - 1).to_pylist()]


def _numbers(column: Any, factor: float) -> Cells:  # noqa: ANN401 - pyarrow has no types
    found = np.asarray(column.to_numpy(zero_copy_only=False)).astype(np.float64)
    return found * factor if factor != 1.0 else found
