"""Batch jobs of a log: submission, start and stop times, nodes and users.

A log contains node states and no jobs, so the jobs are imported again from the records, with their users and
submission times as far as the format records them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.nodesets import expand
from bftrain_datasets.importing.import_options import ImportOptions
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.pipeline import import_files
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.log_columns import first_mentioned
from bftrain_datasets.log.provenance import ProvenanceSource
from bftrain_datasets.scheduling.schedule_settings import ScheduleSettings
from bftrain_datasets.scheduling.scheduling import MADE_BY, read, simulate

Floats = NDArray[np.float64]

_UNKNOWN: Final = -1
_USER = 11  # field of the Standard Workload Format
_NO_NAMES: Final = "name no nodes, so which jobs would have waited is not known"


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchJobs:
    """Jobs ordered by start, in seconds UTC. The nodes of job i are ``nodes[offsets[i]:offsets[i + 1]]``.

    ``submit_s`` is NaN and ``user`` is -1 where the records lack them.
    """

    start_s: Floats
    end_s: Floats
    offsets: NDArray[np.int64]
    nodes: NDArray[np.int64]  # places in the log's node_names
    submit_s: Floats
    user: NDArray[np.int64]
    users: tuple[str, ...]

    def __len__(self) -> int:
        return self.start_s.size

    @property
    def sizes(self) -> NDArray[np.int64]:
        """The number of nodes of each job."""
        return np.diff(self.offsets)


def jobs_of(
    paths: Sequence[Path],
    log: EventLog,
    options: ImportOptions | None = None,
    tell: Callable[[int], object] | None = None,
) -> BatchJobs:
    """Read the jobs that ran within a log; raise ``BadInput`` if the log was made from different records.

    By default they are read with the log's options; jobs of a simulated schedule are scheduled again.
    """
    if log.provenance.made_by.startswith(MADE_BY):
        return _scheduled(paths, log)
    options = options or msgspec.convert(dict(log.provenance.options), ImportOptions)
    kept: list[RecordIntake] = []
    made = import_files(paths, options, tell=tell, keep=kept.append)
    _check_sources(made.log.provenance.sources, log, paths)
    return _of_intake(kept[0], log, paths)


def _check_sources(sources: Sequence[ProvenanceSource], log: EventLog, paths: Sequence[Path]) -> None:
    if {each.sha256 for each in sources} != {each.sha256 for each in log.provenance.sources}:
        what = "are not the records that the log was made of"
        names = ", ".join(each.name for each in log.provenance.sources)
        raise BadInput(what, where=", ".join(map(str, paths)), fix=f"name {names}, and no others")


def _scheduled(paths: Sequence[Path], log: EventLog) -> BatchJobs:
    """Schedule a derived log's jobs again with its settings: the same policy gives the same schedule."""
    settings = msgspec.convert(dict(log.provenance.options), ScheduleSettings)
    workload = read(paths[0], settings)
    _check_sources([workload.source], log, paths)
    done = simulate(workload, settings)
    table, names = workload.jobs, {name: place for place, name in enumerate(log.node_names)}
    start_s = np.array(done.schedule.start_s) + table.begin_s
    end_s = np.minimum(start_s + np.array(table.run_s), log.end_s)
    inside = np.flatnonzero((start_s < log.end_s) & (end_s > log.start_s))
    chosen = inside[np.argsort(start_s[inside], kind="stable")].tolist()
    nodes = [[names[name] for name in expand(done.places.node_sets[job]) if name in names] for job in chosen]
    known = np.array([name not in ("", str(_UNKNOWN)) for name in table.users])
    user = np.array(table.user)[chosen]
    return BatchJobs(
        start_s=start_s[chosen],
        end_s=end_s[chosen],
        offsets=np.concatenate(([0], np.cumsum([len(each) for each in nodes]))),
        nodes=np.array([node for each in nodes for node in each], dtype=np.int64),
        submit_s=np.array(table.submit_s)[chosen] + table.begin_s,
        user=np.where(known[user], user, _UNKNOWN),
        users=tuple(table.users),
    )


def _of_intake(intake: RecordIntake, log: EventLog, paths: Sequence[Path]) -> BatchJobs:
    stays = intake.stays.columns()
    inside = (stays.end > log.start_s) & (stays.start < log.end_s) & (stays.sets >= 0)
    if not inside.any():
        raise BadInput(_NO_NAMES, where=", ".join(map(str, paths)), fix="leave the delay out")
    chosen = np.flatnonzero(inside)
    chosen = chosen[np.argsort(stays.start[chosen], kind="stable")]
    # Node sets as indices into the log; a job's nodes outside the log are dropped
    places = {name: place for place, name in enumerate(log.node_names)}
    own = np.array([places.get(name, _UNKNOWN) for name in intake.node_names], dtype=np.int64)
    sets = stays.sets[chosen]
    sizes = np.diff(stays.set_offsets)[sets]
    first = np.repeat(stays.set_offsets[sets] - np.cumsum(sizes) + sizes, sizes)
    nodes = own[stays.set_nodes[first + np.arange(first.size)]]
    known = nodes >= 0
    user = stays.user[chosen]
    numbers, used = first_mentioned(user[user >= 0])
    user[user >= 0] = numbers
    return BatchJobs(
        start_s=stays.start[chosen],
        end_s=np.minimum(stays.end[chosen], log.end_s),
        offsets=np.concatenate(([0], np.cumsum(known)))[np.concatenate(([0], np.cumsum(sizes)))],
        nodes=nodes[known],
        submit_s=stays.submit[chosen],
        user=user.astype(np.int64),
        users=tuple(stays.user_names[code] for code in used.tolist()),
    )
