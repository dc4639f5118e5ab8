"""Conversion of tables to jobs: choose and interpret the columns of any table, and yield batches of jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.node_units import NODE
from bftrain.nodesets import MOST_NODES
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.import_options import ALL_CLUSTERS, ImportOptions
from bftrain_datasets.importing.job_columns import JobTable, keys_of
from bftrain_datasets.importing.machine_nodes import Share, Units, size_of
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.states import JobState, apply_job_states, job_states_of
from bftrain_datasets.importing.text_columns import Texts, by_text, coded, contains
from bftrain_datasets.job_tables import cell_values
from bftrain_datasets.job_tables.cell_values import Cells
from bftrain_datasets.job_tables.column_choice import MEANING_OF_UNIT, TableMap, choose, named_set, public_set_of
from bftrain_datasets.job_tables.tables import ColumnBatch, JsonTable, TableRows, open_table
from bftrain_datasets.log import time_formats
from bftrain_datasets.log.arrow_arrays import Column, numpy_of
from bftrain_datasets.log.time_formats import RecordClock

# Numbers of states in tables of Slurm's database, which have the column ``id_job``
SLURM_CODES: Final = {
    "0": "PENDING", "1": "RUNNING", "2": "SUSPENDED", "7": "NODE_FAIL", "8": "PREEMPTED", "9": "BOOT_FAIL",
}  # fmt: skip
_STEP: Final = re.compile(r"\d+(?:_\d+|\+\d+)?\.(?:batch|extern|interactive|\d+)\Z")
_LAST_NUMBER: Final = re.compile(r"\d+\Z")
_STEP_ROW, _OTHER_CLUSTER = 0, 1  # indices in REASONS
REASONS: Final = ("other_record", "not_selected")  # why rows are skipped


@dataclass(slots=True)
class JobTableReader:
    """A table with known column meanings.

    ``clusters`` are the clusters found so far. If there are several, ``cluster`` must select one, because their nodes
    may share names.
    """

    rows: TableRows
    map: TableMap
    clock: RecordClock
    where: str
    cluster: str | None = None
    clusters: set[str] = field(default_factory=set)
    unit: str = NODE
    sized: bool = False  # require the number of nodes even if the table only names them

    def batches(self) -> Iterator[tuple[ColumnBatch, JobTable]]:
        """Yield all rows, unchanged and as jobs."""
        if isinstance(self.rows, JsonTable):
            self.rows.lists = self._list_of_nodes()
        for batch in self.rows.batches(self.map.columns):
            yield batch, self.jobs(batch)
        pa.default_memory_pool().release_unused()  # otherwise tens of megabytes remain allocated

    def cells(self, batch: ColumnBatch, meaning: str) -> Cells | None:
        """Return the cells of a meaning, or ``None``."""
        return batch.columns[self.map.uses[meaning].column] if meaning in self.map else None

    def times(self, batch: ColumnBatch, meaning: str) -> NDArray[np.float64]:
        """Return times; NaN where the table has no time."""
        cells = self.cells(batch, meaning)
        if cells is None:
            return np.full(batch.lines.size, np.nan)
        unit = self.map.unit(meaning)
        return cell_values.read_times(cells, unit, self.clock, zero_is_none=not self.map.relative)

    def spans(self, batch: ColumnBatch, meaning: str) -> NDArray[np.float64]:
        """Return durations in seconds; NaN where the table has no duration."""
        cells = self.cells(batch, meaning)
        if cells is None:
            return np.full(batch.lines.size, np.nan)
        return cell_values.read_spans(cells, self.map.unit(meaning))

    def counts(self, batch: ColumnBatch, meaning: str) -> NDArray[np.int64]:
        """Return numbers, 0 where the table has no number; for a list, its length."""
        cells = self.cells(batch, meaning)
        return np.zeros(batch.lines.size, dtype=np.int64) if cells is None else cell_values.read_counts(cells)

    def names(self, batch: ColumnBatch) -> list[str]:
        """Return the job names; unnamed jobs have an empty text."""
        cells = self.cells(batch, "job")
        return [""] * batch.lines.size if cells is None else cell_values.read_names(cells)

    def texts(self, batch: ColumnBatch, meaning: str) -> Texts | None:
        """Return texts, or ``None`` if the table has no such column."""
        cells = self.cells(batch, meaning)
        return None if cells is None else cell_values.read_texts(cells)

    def jobs(self, batch: ColumnBatch) -> JobTable:
        """Return rows as jobs."""
        cells = self.cells(batch, "nodes")
        nodes = None if cells is None else cell_values.read_nodes(cells)
        start, end = self._times(batch)
        states = self._states(batch)
        named = np.zeros(len(start), dtype=np.bool_) if nodes is None else numpy_of(nodes.is_valid())
        end[(states == JobState.RUNNING) & np.isneginf(end)] = np.nan  # such as "-"
        apply_job_states(states, start, end, named)
        names = self.cells(batch, "job")
        reason = np.full(batch.lines.size, -1, dtype=np.int8)
        if names is not None and not isinstance(names, np.ndarray):
            steps = np.flatnonzero(contains(names, ".")).tolist()
            reason[[row for row in steps if _STEP.match(names[row].as_py())]] = _STEP_ROW
        self._choose_cluster(batch, reason)
        by_units = self.unit != NODE and self.map.by_count
        return JobTable(
            lines=batch.lines,
            job=np.zeros(batch.lines.size, dtype=np.int64) if names is None else keys_of(names),
            start=start,
            end=end,
            nodes=nodes,
            count=self.counts(batch, MEANING_OF_UNIT[self.unit]) if by_units else self._sizes(batch, nodes),
            queue=self.texts(batch, "partition"),
            user=self.texts(batch, "user"),
            submit=self.times(batch, "submit") if "submit" in self.map else None,
            preempted=states == JobState.PREEMPTED,
            node_failed=states == JobState.NODE_FAILED,
            reason=reason,
            reasons=REASONS,
            units=self._units(batch) if self.unit != NODE and not by_units else None,
            most=self._most(batch),
        )

    def _list_of_nodes(self) -> str:
        """Return the name of the JSON list with a job's nodes and the units used on each, or an empty text."""
        meaning = MEANING_OF_UNIT.get(self.unit, "")
        if meaning not in self.map or "nodes" not in self.map:
            return ""
        of_nodes, of_units = (self.map.uses[each].column.rpartition(".")[0] for each in ("nodes", meaning))
        return of_nodes if of_nodes == of_units and isinstance(self.rows, JsonTable) else ""

    def _units(self, batch: ColumnBatch) -> list[Units]:
        """Return for each row the GPUs or cores used, in total or by node."""
        meaning = MEANING_OF_UNIT[self.unit]
        if not self._list_of_nodes():
            totals: list[Units] = np.maximum(self.counts(batch, meaning), 0).tolist()
            return totals
        keys = [self.map.uses[each].column.rpartition(".")[2] for each in ("nodes", meaning)]
        return [
            tuple(share for each in cell if isinstance(each, dict) for share in _shares(*map(each.get, keys)))
            if isinstance(cell, list)
            else 0
            for cell in batch.lists
        ]

    def _sizes(self, batch: ColumnBatch, nodes: Column | None) -> NDArray[np.int64]:
        """Return each job's number of nodes; 0 if unknown, or if only the names are needed."""
        if "count" in self.map:
            return self.counts(batch, "count")
        whole = self.map.per_node()
        if whole is not None:
            meaning, each = whole
            return -(-self.counts(batch, meaning) // each)
        if nodes is None or not self.sized:
            return np.zeros(batch.lines.size, dtype=np.int64)
        expand = cell_values.EXPAND[self.map.unit("nodes")]
        return by_text(coded(nodes), lambda text: size_of(text, expand), np.int64)

    def _most(self, batch: ColumnBatch) -> NDArray[np.int64] | None:
        """Return the largest number of nodes that each job may have used, if only its cores or GPUs are known.

        It is 0 if these fill whole nodes.
        """
        whole = self.map.per_node()
        if self.unit != NODE or whole is None or {"count", "nodes"} & self.map.uses.keys():
            return None
        procs = self.counts(batch, whole[0])
        return np.where(procs % whole[1], np.minimum(procs, MOST_NODES), 0)

    def _times(self, batch: ColumnBatch) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the start and end of each row, without regard to its state."""
        start, end = self.times(batch, "start"), self.times(batch, "end")
        elapsed_s = self.spans(batch, "elapsed")
        if "start" not in self.map:
            waited = self.times(batch, "submit") + self.spans(batch, "wait")
            start = np.where(np.isnan(waited), end - elapsed_s, waited)
            if self.map.to_schedule:  # any start will do: the schedule replaces it
                start = np.where(np.isnan(start), self.times(batch, "submit"), start)
        return start, np.where(np.isnan(end), start + elapsed_s, end)

    def _states(self, batch: ColumnBatch) -> NDArray[np.int8]:
        texts = self.texts(batch, "state")
        if texts is None:
            return np.zeros(batch.lines.size, dtype=np.int8)
        words = SLURM_CODES if "id_job" in self.map.columns else {}
        return job_states_of(Texts(texts.codes, [words.get(text, text) for text in texts.texts]))

    def _choose_cluster(self, batch: ColumnBatch, reason: NDArray[np.int8]) -> None:
        names = self.texts(batch, "cluster")
        if names is None:
            return
        chosen, column = self.map.unit("cluster"), self.map.uses["cluster"].column
        self.clusters.update(names.texts, *([""] if (names.codes < 0).any() else []))
        wanted = chosen or self.cluster
        if wanted in ALL_CLUSTERS:
            return
        if wanted:
            reason[by_text(names, lambda name: name != wanted, np.bool_) & (reason < 0)] = _OTHER_CLUSTER
            return
        if len(self.clusters) > 1:
            some = sorted(self.clusters)
            what = f"jobs of {len(some)} clusters, and node names may coincide: {', '.join(some[:5])}"
            fix = (
                f"select one: --map cluster={column}:{some[-1]}, or {column}:all; or import with --cluster NAME or all"
            )
            raise BadInput(what, where=self.where, fix=fix)


def _shares(node: object, held: object) -> Iterator[Share]:
    """Yield the units used on a node: GPUs by name or number, or their count."""
    names = [str(each) for each in held] if isinstance(held, list) else []
    numbers = [match[0] for match in map(_LAST_NUMBER.search, names) if match]
    if numbers and len(set(numbers)) == len(names):
        yield from ((str(node), -1 - int(number)) for number in numbers)
    else:
        text = cell_values.cell_text(held)
        yield str(node), len(names) or (int(text[:9]) if text.isdecimal() else 0)


def read_table(
    file: RawFile, tally: FindingsTally, options: ImportOptions, clock: RecordClock, *, to_schedule: str = ""
) -> JobTableReader:
    """Return the table and its column meanings.

    Times with no zone use the zone of the public set unless an option sets one, otherwise the zone of ``clock``.
    """
    rows = open_table(file, tally, options.columns)
    public_set = named_set(options.preset) if options.preset else public_set_of(rows.names)
    if public_set is not None and isinstance(rows, JsonTable):
        rows.rows = public_set.rows
    if public_set is not None and public_set.zone and options.timezone is None:
        clock.zone = time_formats.zone(public_set.zone)
    chosen = choose(rows.names, rows.sample(), public_set, options.map, file.where, options.unit, to_schedule)
    sized = options.counts or options.unit != NODE or bool(to_schedule)
    return JobTableReader(rows, chosen, clock, file.where, options.cluster, unit=options.unit, sized=sized)
