"""Rows of a table of jobs in the fields of the Standard Workload Format, for the simulated main scheduler."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from bftrain.errors import BadInput
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.import_options import ImportOptions
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.job_tables.table_reading import read_table
from bftrain_datasets.log import time_formats

FIELDS: Final = 18
JOB, SUBMIT, WAIT, RUN, PROCS, LIMIT, STATUS, USER, QUEUE = 0, 1, 2, 3, 4, 8, 10, 11, 14
UNKNOWN: Final = "-1"
COMPLETED, CANCELLED = 1, 5


class TableWorkload:
    """The jobs of a table: submission time, run time and size of each.

    A size is all cores of the job's nodes, or with shared nodes the number of cores in the table.
    ``nodes`` is the size of the machine, if the public set has it.
    """

    def __init__(
        self, file: RawFile, tally: FindingsTally, options: ImportOptions, *, shared: bool, cores_per_node: int | None
    ) -> None:
        self._tally = tally
        clock = time_formats.RecordClock(where=lambda: tally.where)
        self._table = read_table(file, tally, options, clock, to_schedule="cores" if shared else "count")
        found = self._table.map
        known = found.public_set
        self.nodes = known.nodes or 0 if known is not None else 0
        self._zone_is_known = known is not None and known.zone is not None
        if known is not None and known.zone:
            self._table.clock.zone = time_formats.zone(known.zone)
        self._by_cores = shared
        self._per_node = cores_per_node or 1
        if shared and cores_per_node is None:
            raise BadInput("the number of cores per node is unknown", where=file.where, fix="--cores-per-node N")

    def rows(self) -> Iterator[tuple[list[str], list[float]]]:
        """Yield the 18 fields of every job, as text and as numbers; the caller uses or rejects each row."""
        for batch, jobs in self._table.batches():
            start, submit = jobs.start, self._table.times(batch, "submit")
            with np.errstate(invalid="ignore"):
                run, wait = jobs.end - start, start - submit
            limit = self._table.spans(batch, "limit")
            size = self._table.counts(batch, "cores") if self._by_cores else jobs.count * self._per_node
            users = jobs.user.cells() if jobs.user is not None else None
            queues = jobs.queue.cells() if jobs.queue is not None else None
            for row in range(len(jobs)):
                self._tally.row(int(jobs.lines[row]))
                if jobs.reason is not None and jobs.reason[row] >= 0:
                    self._tally.set_aside(jobs.reasons[jobs.reason[row]])
                    continue
                ended = np.isfinite(run[row]) and np.isfinite(submit[row])
                numbers = [-1.0] * FIELDS
                numbers[SUBMIT] = float(submit[row])
                numbers[WAIT] = float(max(wait[row], 0.0)) if ended else -1.0
                numbers[RUN] = float(run[row]) if ended else -1.0
                numbers[PROCS], numbers[LIMIT] = float(size[row]), _known(limit[row])
                numbers[STATUS] = COMPLETED if np.isfinite(start[row]) else CANCELLED
                parts = [f"{number:.15g}" for number in numbers]
                parts[JOB] = _word(jobs.job[row]) if jobs.job[row] else str(int(jobs.lines[row]))
                parts[USER] = _word(users[row]) if users else UNKNOWN
                parts[QUEUE] = _word(queues[row]) if queues else UNKNOWN
                yield parts, numbers
        self._tally.note_clock(self._table.clock, zone_is_known=self._zone_is_known)


def _known(number: np.float64) -> float:
    return float(number) if np.isfinite(number) else -1.0


def _word(text: str) -> str:
    return "_".join(text.split()) or UNKNOWN
