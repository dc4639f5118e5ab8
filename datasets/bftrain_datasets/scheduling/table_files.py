"""Tables as files: CSV, or Parquet with pyarrow."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from bftrain.files import whole_file
from bftrain_datasets.log.parquet_log import FORMAT_KEY

# Column by column; a cell without a value is None
Table = Mapping[str, list[Any]]

CSV: Final = "csv"
PARQUET: Final = "parquet"
FORMS: Final = (CSV, PARQUET)


def write(tables: Mapping[str, Table], folder: Path, form: str, file_format: str) -> None:
    """Write all tables; each appears complete or not at all. Remove those of an earlier run in another form."""
    for name, table in tables.items():
        path = folder / f"{name}.{form}"
        if form == PARQUET:
            _write_parquet(table, path, file_format)
        else:
            # Write UTF-8 with one header line; numbers in shortest lossless form, missing values empty
            with whole_file(path) as file:
                text = io.TextIOWrapper(file, encoding="utf-8", newline="")
                writer = csv.writer(text, lineterminator="\n")
                writer.writerow(table)
                plain = {name: _words(column) for name, column in table.items()}
                writer.writerows(rows(plain))
                text.detach()
        for other in FORMS:
            if other != form:
                (folder / f"{name}.{other}").unlink(missing_ok=True)


def _words(column: list[Any]) -> list[Any]:
    if not isinstance(next((cell for cell in column if cell is not None), None), bool):
        return column
    return [str(cell).lower() if isinstance(cell, bool) else cell for cell in column]


def _write_parquet(table: Table, path: Path, file_format: str) -> None:
    pa: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    made = pa.table(dict(table)).replace_schema_metadata({FORMAT_KEY: file_format.encode()})
    with whole_file(path) as file:
        parquet.write_table(made, file, compression="zstd")


def rows(table: Table) -> Iterable[tuple[Any, ...]]:
    """Yield a table row by row."""
    return zip(*table.values(), strict=True)
