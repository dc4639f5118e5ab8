"""Batch jobs of a log: submissions, starts, ends and nodes, with their users.

A log holds states of nodes and no jobs, so these are read again from the records. Times and nodes are those that the
import decided on; users and submissions are known from tables with such columns and from some forms of lines.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.nodesets import expand
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.import_options import ImportOptions
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.job_columns import place_of
from bftrain_datasets.importing.pipeline import import_files
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import moments
from bftrain_datasets.job_tables.table_reading import read_table
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.provenance import ProvenanceSource
from bftrain_datasets.log.time_formats import RecordClock, zone
from bftrain_datasets.readers import swf
from bftrain_datasets.scheduling.schedule_settings import ScheduleSettings
from bftrain_datasets.scheduling.scheduling import MADE_BY, read, simulate

Floats = NDArray[np.float64]

_UNKNOWN: Final = -1
_USER = 11  # field of the Standard Workload Format
_NO_NAMES: Final = "name no nodes, so which jobs would have waited is not known"


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchJobs:
    """Jobs in order of their starts, seconds UTC. The nodes of job i are ``nodes[offsets[i]:offsets[i + 1]]``.

    ``submit_s`` is NaN, and ``user`` is -1, where the records do not say it.
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


# Lines of records that are no table with a header, with the user and the submission of a job
_LINES: Final = tuple(
    re.compile(form)
    for form in (
        r"[^;]*;[A-Za-z];[^;]*;(?=.*\buser=(?P<user>\S+)).*\bctime=(?P<submit>\d+)",  # PBS
        r"(?:[^|]*\|){8}(?P<user>[^|]*)\|[^|]*\|(?P<submit>\d{4}-[^|]*)\|",  # sacct in the order of Open XDMoD
        r"(?:[^:]*:){3}(?P<user>[^:]*):(?:[^:]*:){4}(?P<submit>\d{10,13}):",  # Grid Engine
        r'"JOB_FINISH" "[^"]*" (?:\d+ ){5}(?P<submit>\d+) (?:\d+ ){3}"(?P<user>[^"]*)"',  # LSF
    )
)


class _Owners(NamedTuple):
    """A user and a submission of jobs, by file and line."""

    place: NDArray[np.int64]
    submit_s: Floats
    user: list[str]


def jobs_of(
    paths: Sequence[Path],
    log: EventLog,
    options: ImportOptions | None = None,
    tell: Callable[[int], object] | None = None,
) -> BatchJobs:
    """Read the jobs that ran within a log; raise ``BadInput`` if the log was not made of these records.

    Without ``options`` they are read as for the log; those of a simulated schedule are scheduled again.
    """
    if log.provenance.made_by.startswith(MADE_BY):
        return _scheduled(paths, log)
    options = options or msgspec.convert(dict(log.provenance.options), ImportOptions)
    kept: list[RecordIntake] = []
    made = import_files(paths, options, tell=tell, keep=kept.append)
    _check_sources(made.log.provenance.sources, log, paths)
    return _joined(kept[0], log, [_owners(path, number, options) for number, path in enumerate(paths, 1)], paths)


def _check_sources(sources: Sequence[ProvenanceSource], log: EventLog, paths: Sequence[Path]) -> None:
    if {each.sha256 for each in sources} != {each.sha256 for each in log.provenance.sources}:
        what = "are not the records that the log was made of"
        names = ", ".join(each.name for each in log.provenance.sources)
        raise BadInput(what, where=", ".join(map(str, paths)), fix=f"name {names}, and no others")


def _scheduled(paths: Sequence[Path], log: EventLog) -> BatchJobs:
    """Schedule the jobs of a derived log again, with its settings: the same policy gives the same schedule."""
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


def _joined(intake: RecordIntake, log: EventLog, owners: Sequence[_Owners | None], paths: Sequence[Path]) -> BatchJobs:
    stays = intake.stays.columns()
    inside = (stays.end > log.start_s) & (stays.start < log.end_s) & (stays.sets >= 0)
    if not inside.any():
        raise BadInput(_NO_NAMES, where=", ".join(map(str, paths)), fix="leave the delay out")
    chosen = np.flatnonzero(inside)
    chosen = chosen[np.argsort(stays.start[chosen], kind="stable")]
    # Node sets as places in the log; what a log leaves out of a job's nodes is left out here too
    places = {name: place for place, name in enumerate(log.node_names)}
    own = np.array([places.get(name, _UNKNOWN) for name in intake.node_names], dtype=np.int64)
    parts = [
        own[stays.set_nodes[stays.set_offsets[number] : stays.set_offsets[number + 1]]]
        for number in stays.sets[chosen].tolist()
    ]
    parts = [part[part >= 0] for part in parts]
    submit_s, user = np.full(chosen.size, np.nan), [""] * chosen.size
    row_of = {place: row for row, place in enumerate(stays.place[chosen].tolist())}
    for found in filter(None, owners):
        for place, submitted_s, name in zip(found.place.tolist(), found.submit_s.tolist(), found.user, strict=True):
            row = row_of.get(place)
            if row is not None:
                submit_s[row], user[row] = submitted_s, name
    users = tuple(dict.fromkeys(filter(None, user)))
    user_place = {name: place for place, name in enumerate(users)}
    return BatchJobs(
        start_s=stays.start[chosen],
        end_s=np.minimum(stays.end[chosen], log.end_s),
        offsets=np.concatenate(([0], np.cumsum([part.size for part in parts]))),
        nodes=np.concatenate(parts),
        submit_s=submit_s,
        user=np.array([user_place.get(name, _UNKNOWN) for name in user]),
        users=users,
    )


def _owners(path: Path, number: int, options: ImportOptions) -> _Owners | None:
    """Return who submitted the jobs and when, by a table's columns or a known form of lines; ``None`` if unknown."""
    tally = FindingsTally()
    clock = RecordClock(zone(options.timezone) if options.timezone else UTC, lambda: tally.where)
    places, submits, users = [], [], list[str]()
    try:
        with RawFile(path, tally, None) as file:
            tally.file = file.name
            if swf.recognises(file.head):
                return _swf_owners(file, number, tally)
            table = read_table(file, tally, options, clock)
            for batch, jobs in table.batches():
                places.append(np.array([place_of(number, line) for line in jobs.lines.tolist()], dtype=np.int64))
                submits.append(table.times(batch, "submit") if "submit" in table.map else np.full(len(jobs), np.nan))
                users += table.words(batch, "user") or [""] * len(jobs)
    except BadInput:
        places = []
    if places:
        return _Owners(np.concatenate(places), np.concatenate(submits), users)
    with RawFile(path, tally, None) as file:
        return _line_owners(file, number, clock)


def _line_owners(file: RawFile, number: int, clock: RecordClock) -> _Owners | None:
    places, submits, names, form = list[int](), list[float](), list[str](), None
    for place, line in file.lines():
        form = form or next((each for each in _LINES if each.match(line)), None)
        found = form.match(line) if form else None
        if found is not None:
            places.append(place_of(number, place))
            submits.append(moments(clock.seconds, found["submit"])[0] or math.nan)
            names.append(found["user"])
    return _Owners(np.array(places, dtype=np.int64), np.array(submits), names) if places else None


def _swf_owners(file: RawFile, number: int, tally: FindingsTally) -> _Owners:
    header, places, submits, names = swf.SwfHeader(), list[int](), list[float](), list[str]()
    for parts, values in swf.rows(file.lines(), tally, header):
        places.append(place_of(number, tally.line))
        submits.append(header.epoch(values[swf.SUBMIT]))
        names.append("" if parts[_USER] == str(_UNKNOWN) else parts[_USER])
        tally.use()
    return _Owners(np.array(places, dtype=np.int64), np.array(submits), names)
