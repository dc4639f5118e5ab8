"""Content of ``bftrain import --explain``: the meaning of each column, and the first rows as parsed."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from bftrain.errors import BadInput
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.import_options import ImportOptions
from bftrain_datasets.importing.pipeline import reader_recognising
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.job_tables import cell_values
from bftrain_datasets.job_tables.column_choice import MEANINGS
from bftrain_datasets.job_tables.table_reading import JobTableReader, read_table
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.arrow_arrays import EMPTY

TABLES: Final = "jobs"  # the reader of tables
ROWS_SHOWN: Final = 5
NODES_SHOWN: Final = 4


class TableExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The ``columns`` with meaning, unit and reason, the ``unused`` columns, and ``rows``, the first jobs as parsed."""

    public_set: str | None
    timezone: str
    columns: list[dict[str, str]]
    unused: list[str]
    rows: list[dict[str, Any]]


def explain(path: Path | None, options: ImportOptions) -> TableExplanation:
    """Return the interpretation of a table of jobs; a ``path`` of ``None`` is standard input."""
    tally = FindingsTally()
    with RawFile(path, tally) as file:
        tally.file = file.name
        clock = time_formats.RecordClock(time_formats.zone(options.timezone or "UTC"))
        try:
            table = read_table(file, tally, options, clock)
        except BadInput as error:
            reader = reader_recognising(file.head)
            if reader is None or reader.name == TABLES:
                raise
            what = f"this is {reader.name}, a format with fixed fields"
            raise BadInput(what, where=file.where, fix="import it without --explain") from error
        known = table.map.public_set
        uses = table.map.uses
        return TableExplanation(
            public_set=None if known is None else known.name,
            timezone=options.timezone or (known.zone if known is not None else None) or "UTC",
            columns=[asdict(uses[meaning]) for meaning in MEANINGS if meaning in uses],
            unused=[name for name in table.map.names if name not in table.map.columns],
            rows=_first_rows(table),
        )


def _first_rows(table: JobTableReader) -> list[dict[str, Any]]:
    batch = next(table.rows.batches(table.map.columns), None)
    if batch is None:
        return []
    few = batch.first(ROWS_SHOWN)
    jobs = table.jobs(few)
    texts = {meaning: table.texts(few, meaning) for meaning in ("state", "user", "partition")}
    words = {meaning: column.cells() for meaning, column in texts.items() if column is not None}
    numbers = {meaning: table.counts(few, meaning) for meaning in ("cores", "gpus") if meaning in table.map}
    submit = table.times(few, "submit")
    names = table.names(few)
    nodes = jobs.nodes.fill_null(EMPTY).to_pylist() if jobs.nodes is not None else [""] * len(jobs)
    return [
        {
            "line": int(jobs.lines[row]),
            "job": names[row],
            "submit": _moment(submit[row]),
            "start": _moment(jobs.start[row]),
            "end": "still runs" if jobs.end[row] == math.inf else _moment(jobs.end[row]),
            "nodes": _nodes(text, table) or str(int(jobs.count[row])),
            **{meaning: int(values[row]) for meaning, values in numbers.items()},
            **{meaning: values[row] for meaning, values in words.items()},
        }
        for row, text in enumerate(nodes)
    ]


def _moment(time_s: np.float64) -> str:
    if math.isnan(time_s):
        return "none"
    return "unreadable" if math.isinf(time_s) else time_formats.time_text(float(time_s))


def _nodes(text: str, table: JobTableReader) -> str:
    if not text or table.map.by_count:
        return ""
    try:
        names = list(cell_values.EXPAND[table.map.unit("nodes")](text))
    except ValueError:
        return "unreadable"
    more = f" and {len(names) - NODES_SHOWN:,} more" if len(names) > NODES_SHOWN else ""
    return f"{', '.join(names[:NODES_SHOWN])}{more}"
