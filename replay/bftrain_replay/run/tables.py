"""Columns of a replay's tables, task records, and the table of allocations as a file or a DataFrame.

docs/reference/results.md explains each column.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from msgspec.structs import fields
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain_datasets import result_tables
from bftrain_datasets.result_tables import CSV, RUN_AGAIN, ColumnType, TableColumn
from bftrain_replay.simulation.run_records import ALLOCATION_TYPES, AllocationRows, AllocationTable, RowFile

if TYPE_CHECKING:
    from pandas import DataFrame

SECONDS_AN_HOUR: Final = 3600.0
ALLOCATIONS: Final = "allocations"  # the table that is too large for memory, and has its own reader and writer


class TaskState(StrEnum):
    """A task's state when the replay stopped."""

    FINISHED = "finished"
    RUNNING = "running"
    WAITING = "waiting"  # arrived, without nodes
    DROPPED = "dropped"  # cancelled or permanently failed; in recorded journals only
    NOT_ARRIVED = "not_arrived"


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One task. Submission, start, finish and deadline are seconds since the log's start; ``node_s`` are node-seconds.

    ``waits`` counts the intervals after arrival without nodes; ``waited_s`` is their sum. The work takes ``shortest_s``
    without competition, and ``alone_s`` on 1/n of everything. ``owed_samples`` are losses that were not yet deducted.
    ``mean_batch`` and ``mean_goodput`` are means over the time with nodes, for a task that sets batches.
    """

    name: str
    state: TaskState
    submit_s: float
    first_start_s: float | None = None
    finish_s: float | None = None
    starts: int = 0
    rescales: int = 0
    preemptions: int = 0
    waits: int = 0
    waited_s: float = 0.0
    node_s: float = 0.0
    work_samples: float | None = None
    done_samples: float = 0.0
    lost_preemption_samples: float = 0.0
    lost_rescaling_samples: float = 0.0
    lost_start_up_samples: float = 0.0
    lost_unnoticed_samples: float = 0.0
    owed_samples: float = 0.0
    user: str = ""
    campaign: str = ""
    deadline_s: float | None = None
    shortest_s: float | None = None
    alone_s: float | None = None
    mean_batch: float | None = None
    mean_goodput: float | None = None
    wasted_starts: int = 0

    @property
    def node_h(self) -> float:
        """Allocated node-hours."""
        return self.node_s / SECONDS_AN_HOUR


LATER: Final = frozenset({"mean_batch", "mean_goodput", "wasted_starts"})  # columns that older results lack


def _columns_of(record: type[msgspec.Struct], **instead: str) -> Iterator[TableColumn]:
    """Yield a column for each field; ``instead`` names columns that replace a field."""
    for field in fields(record):
        kind = ColumnType.WHOLE if field.type is int else ColumnType.NUMBER
        if isinstance(field.type, type) and issubclass(field.type, str):
            kind = ColumnType.TEXT
        yield TableColumn(instead.get(field.name, field.name), kind)


DECISIONS: Final = (
    TableColumn("number", ColumnType.WHOLE),
    TableColumn("time_s", ColumnType.NUMBER),
    *(TableColumn(name, ColumnType.WHOLE) for name in ("pool", "used", "competing")),
    *(TableColumn(name, ColumnType.NUMBER) for name in ("value", "bound")),
    *(TableColumn(name, ColumnType.TEXT) for name in ("solver", "termination", "quality", "fallback")),
    TableColumn("sizes", ColumnType.SIZES),
)
TASKS: Final = tuple(_columns_of(TaskRecord, node_s="node_h"))
_ALLOCATION_COLUMNS: Final = (
    *(TableColumn(name, ColumnType.NAME) for name in ("task", "node")),
    *(TableColumn(name, ColumnType.NUMBER) for name in ("from_s", "to_s")),
)
OVER_TIME: Final = tuple(
    TableColumn(name, ColumnType.NUMBER) for name in ("from_s", "to_s", "idle", "used", "harvested")
)

TABLES: Final = {"decisions": DECISIONS, "tasks": TASKS, ALLOCATIONS: _ALLOCATION_COLUMNS, "over_time": OVER_TIME}
_DTYPES: Final = {ColumnType.NUMBER: "float64", ColumnType.WHOLE: "int64"}


def frame(columns: Sequence[TableColumn], rows: Iterable[Sequence[object]]) -> DataFrame:
    """Return rows as a DataFrame with the names and types of ``columns``."""
    import pandas as pd  # noqa: PLC0415 - heavy, and only those who ask for a frame need it

    table = pd.DataFrame(list(rows), columns=[column.name for column in columns])
    kinds = {name: kind for name, kind in columns if kind in _DTYPES}
    return table.astype(
        {name: _DTYPES[kind] if table[name].notna().all() else "float64" for name, kind in kinds.items()}
    )


def allocations_frame(held: AllocationTable) -> DataFrame:
    """Return the allocations as a DataFrame; names are categories to save memory."""
    import pandas as pd  # noqa: PLC0415 - as above

    named = {"task": (held.task, held.tasks), "node": (held.node, held.nodes)}
    cells = {name: pd.Categorical.from_codes(codes, pd.Index(names)) for name, (codes, names) in named.items()}
    return pd.DataFrame({**cells, "from_s": held.from_s, "to_s": held.to_s})


def write_allocations(held: AllocationRows, folder: Path, form: str, file_format: str) -> None:
    """Write the table as csv or parquet, block by block."""
    with result_tables.created(folder, ALLOCATIONS, form) as file:
        if form == CSV:
            names = _cells(held.tasks), _cells(held.nodes)
            file.write((",".join(column.name for column in _ALLOCATION_COLUMNS) + "\n").encode())
            for block in held.blocks():
                cells = names[0][block.task], names[1][block.node], _numbers(block.from_s), _numbers(block.to_s)
                rows = zip(*(column.tolist() for column in cells), strict=True)
                file.write("".join(f"{row}\n" for row in map(",".join, rows)).encode())
            return
        import pyarrow as pa  # noqa: PLC0415 - takes a moment

        task_names, node_names = pa.array(held.tasks, pa.string()), pa.array(held.nodes, pa.string())
        with result_tables.parquet_writer(file, _ALLOCATION_COLUMNS, file_format) as (writer, schema):
            for block in held.blocks():
                named = [
                    pa.DictionaryArray.from_arrays(pa.array(places), names)
                    for places, names in ((block.task, task_names), (block.node, node_names))
                ]
                writer.write_table(pa.table([*named, pa.array(block.from_s), pa.array(block.to_s)], schema=schema))


def _cells(names: Iterable[str]) -> NDArray[np.object_]:
    """Return names as CSV cells, quoted where necessary."""
    cells = []
    for name in names:
        line = io.StringIO()
        csv.writer(line, lineterminator="").writerow((name, ""))
        cells.append(line.getvalue().removesuffix(","))
    return np.array(cells, dtype=np.object_)


def _numbers(column: NDArray[np.float64]) -> NDArray[np.object_]:
    """Format each distinct number once, as most are repeated."""
    different, places = np.unique(column, return_inverse=True)
    return np.array(list(map(repr, different.tolist())), dtype=np.object_)[places]


def read_allocations(folder: Path) -> AllocationRows:
    """Read the table block by block into a temporary file."""
    found = RowFile(ALLOCATION_TYPES)
    numbers: dict[str, dict[str, int]] = {"task": {}, "node": {}}  # numbers by first appearance
    for batch in result_tables.read(folder, ALLOCATIONS, _ALLOCATION_COLUMNS):
        if any(column.null_count for column in batch.columns):
            what = "a row of the table of allocations has an empty cell"
            raise BadInput(what, where=str(folder), fix=RUN_AGAIN)
        named = {name: _numbered(batch.column(name), known) for name, known in numbers.items()}
        found.add_columns(**named, **{name: batch.column(name).to_numpy() for name in ("from_s", "to_s")})
    return AllocationRows(tasks=tuple(numbers["task"]), nodes=tuple(numbers["node"]), rows=found)


def _numbered(column: Any, known: dict[str, int]) -> NDArray[np.int32]:  # noqa: ANN401 - a module without types
    """Return the number of each name; new names are added to the ``known`` ones."""
    named = column if hasattr(column, "indices") else column.dictionary_encode()
    places, first, which = np.unique(named.indices.to_numpy(), return_index=True, return_inverse=True)
    numbers = np.empty(len(places), dtype=np.int32)
    for each in np.argsort(first).tolist():
        numbers[each] = known.setdefault(named.dictionary[int(places[each])].as_py(), len(known))
    return numbers[which]
