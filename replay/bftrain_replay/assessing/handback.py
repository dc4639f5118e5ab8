"""Hand-back: the extra waits of batch jobs if a node with a task takes a while to become free.

A log contains node states and no jobs, so the jobs are imported again from the records, with their users and
submission times if the format records them.

Each job keeps its nodes, its run time and its turn on each node. It waits until earlier jobs, which may be late, have
left all its nodes. It also waits for the delay if one of its nodes was idle before: a node that is idle for longer than
the start of a task counts as allocated to a task. So the gaps of seconds that schedulers leave between jobs cause no
delay, but absorb lateness. Where jobs overlap on a node, it was not idle.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.nodesets import expand
from bftrain_datasets.importing.import_options import ImportOptions
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.pipeline import import_files
from bftrain_datasets.log.eventlog import BUSY, EventLog
from bftrain_datasets.log.log_columns import first_mentioned
from bftrain_datasets.log.provenance import ProvenanceSource
from bftrain_datasets.scheduling.jobs import read_workload
from bftrain_datasets.scheduling.schedule_settings import ScheduleSettings
from bftrain_datasets.scheduling.scheduling import MADE_BY, simulate
from bftrain_replay.run.harvest_by_block import EstimatedFigure, Floats, TimeBlocks
from bftrain_replay.run.tables import SECONDS_AN_HOUR

_UNKNOWN: Final = -1
_NO_NAMES: Final = "name no nodes, so which jobs would have waited is not known"


@dataclass(frozen=True, eq=False, kw_only=True)
class BatchJobs:
    """Jobs ordered by start, in seconds UTC. The nodes of job i are ``nodes[offsets[i]:offsets[i + 1]]``.

    ``submit_s`` is NaN and ``user`` is -1 where the records lack them.
    """

    start_s: Floats
    end_s: Floats
    offsets: NDArray[np.int64]
    nodes: NDArray[np.int64]  # indices into the log's node_names
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

    Records are read with ``options`` (default: the log's); jobs of a simulated schedule are scheduled again. ``tell``
    receives the numbers of bytes read.
    """
    if log.provenance.made_by.startswith(MADE_BY):
        return _scheduled(paths, log)
    if not log.provenance.sources:
        raise BadInput("the log was not imported from records", where="records", fix="omit them")
    options = options or msgspec.convert(dict(log.provenance.options), ImportOptions)
    kept: list[RecordIntake] = []
    made = import_files(paths, options, tell=tell, keep=kept.append)
    _check_sources(made.log.provenance.sources, log, paths)
    return _of_intake(kept[0], log, paths)


def _check_sources(sources: Sequence[ProvenanceSource], log: EventLog, paths: Sequence[Path]) -> None:
    if {each.sha256 for each in sources} != {each.sha256 for each in log.provenance.sources}:
        what = "are not the records of this log"
        names = ", ".join(each.name for each in log.provenance.sources)
        raise BadInput(what, where=", ".join(map(str, paths)), fix=f"pass only {names}")


def _scheduled(paths: Sequence[Path], log: EventLog) -> BatchJobs:
    """Schedule the jobs of a simulated log again: the same settings give the same schedule."""
    settings = msgspec.convert(dict(log.provenance.options), ScheduleSettings)
    workload = read_workload(paths[0], settings)
    _check_sources([workload.source], log, paths)
    done = simulate(workload, settings)
    table, names = workload.jobs, {name: place for place, name in enumerate(log.node_names)}
    start_s = np.array(done.schedule.start_s) + table.begin_s
    end_s = np.minimum(start_s + np.array(table.run_s), log.end_s)
    inside = np.flatnonzero((start_s < log.end_s) & (end_s > log.start_s))
    chosen = inside[np.argsort(start_s[inside], kind="stable")].tolist()
    nodes = [[names[name] for name in expand(done.node_sets[job]) if name in names] for job in chosen]
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
    """Return the jobs of an import that ran within the log on nodes with names."""
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


_LATE_S: Final = 1e-3  # shorter extra waits are rounding errors
_PROMPT_S: Final = 60.0  # shorter waits count as an immediate start
_PERCENTILES: Final = (50, 90, 99)
_MULTIPLES: Final = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)  # multiples of the delay, bounds of the distribution of extra waits


UPPER_BOUND: Final = (
    "This is an upper bound: a late job delays the jobs behind it, and each idle gap in such a chain adds the delay. "
    "For --handback-delay use the time that you measure: kill_s + exit_s of the hand-backs that GET /v1/harvesting of "
    "a live run lists, plus your epilog."
)


class WorstUser(msgspec.Struct, frozen=True, kw_only=True):
    """The user with the longest extra wait in all: the number of jobs, the hours, and the mean per job."""

    name: str
    jobs: int
    extra_h: float
    mean_s: float


class LaterJobs(msgspec.Struct, frozen=True, kw_only=True):
    """The number of jobs that start more than ``over_s`` seconds later, and their share of all."""

    over_s: float
    jobs: int
    share: float


class HandbackEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of a delay on batch jobs. Without records only ``moments_a_week`` and ``node_h_a_week`` are known.

    ``taking`` is the share of jobs that take idle nodes; ``delayed`` is the share of jobs that start later, including
    jobs behind late ones. ``mean_s`` is the mean extra wait over all jobs, ``most_s`` the longest; ``extra_s`` has
    percentiles over late jobs, and ``distribution`` counts these by lateness. ``own_wait_median_s`` is the median wait
    in the records, and ``prompt`` the share of jobs that started within a minute. ``moments_a_week`` counts the moments
    at which the batch queue takes idle nodes, ``node_h_a_week`` the node-hours for which it waits.
    """

    delay_s: float
    moments_a_week: EstimatedFigure
    node_h_a_week: EstimatedFigure
    jobs: int | None = None
    jobs_delayed: int | None = None
    taking: EstimatedFigure | None = None
    delayed: EstimatedFigure | None = None
    mean_s: EstimatedFigure | None = None
    extra_s: dict[int, float] | None = None
    most_s: float | None = None
    own_wait_median_s: float | None = None
    prompt: float | None = None
    worst_user: WorstUser | None = None
    distribution: tuple[LaterJobs, ...] = ()


def extra_waits(
    jobs: BatchJobs, nodes: int, delay_s: float, since_s: float = -math.inf, least_gap_s: float = 0.0
) -> tuple[Floats, NDArray[np.bool_]]:
    """Return the delay of each job's start in seconds, and whether the job takes idle nodes.

    Jobs that started by ``since_s``, the start of the log, do not wait; nodes that are idle for up to ``least_gap_s``
    have no task. Jobs that start together do not wait for each other, so record order is irrelevant.
    """
    # The end of each node's latest job: recorded, and with the extra wait
    recorded_end_s, late_end_s = np.full(nodes, -np.inf), np.full(nodes, -np.inf)
    extra, taking = np.zeros(len(jobs)), np.zeros(len(jobs), dtype=np.bool_)
    offsets = jobs.offsets.tolist()
    together: list[tuple[NDArray[np.int64], float, float]] = []  # nodes and both ends of jobs with a common start
    last_s = -math.inf
    for job, (start_s, end_s) in enumerate(zip(jobs.start_s.tolist(), jobs.end_s.tolist(), strict=True)):
        own = jobs.nodes[offsets[job] : offsets[job + 1]]
        if start_s > last_s:
            for used, recorded_s, late_s in together:
                recorded_end_s[used] = np.maximum(recorded_end_s[used], recorded_s)
                late_end_s[used] = np.maximum(late_end_s[used], late_s)
            together, last_s = [], start_s
        free_s = late_end_s[own][recorded_end_s[own] <= start_s]
        if free_s.size and start_s > since_s:
            ready_s = max(start_s, float(free_s.max()))
            taking[job] = ready_s - free_s.min() > least_gap_s
            extra[job] = ready_s - start_s + taking[job] * delay_s
        together.append((own, end_s, end_s + float(extra[job])))
    return extra, taking


def effect_of(
    log: EventLog, blocks: TimeBlocks, delay_s: float, jobs: BatchJobs | None = None, least_gap_s: float = 0.0
) -> HandbackEffect:
    """Return the effect of a delay, from the log alone or from its jobs (:func:`extra_waits`)."""
    taken = (log.leaves & (log.states == BUSY)).astype(np.float64)
    at_s = log.times[log.time_index] - log.start_s
    moments = np.unique(log.time_index[taken > 0.0])
    found = HandbackEffect(
        delay_s=delay_s,
        moments_a_week=blocks.a_week(_by_block(blocks, log.times[moments] - log.start_s)),
        node_h_a_week=blocks.a_week(_by_block(blocks, at_s, taken * delay_s / SECONDS_AN_HOUR)),
    )
    if jobs is None:
        return found
    extra, taking = extra_waits(jobs, len(log.node_names), delay_s, log.start_s, least_gap_s)
    inside = jobs.start_s > log.start_s
    late = inside & (extra > _LATE_S)
    start_s = jobs.start_s - log.start_s
    begun = _by_block(blocks, start_s, inside)
    wait_s = (jobs.start_s - jobs.submit_s)[inside & ~np.isnan(jobs.submit_s)]
    return msgspec.structs.replace(
        found,
        node_h_a_week=blocks.a_week(_by_block(blocks, start_s, extra * jobs.sizes / SECONDS_AN_HOUR)),
        jobs=int(inside.sum()),
        jobs_delayed=int(late.sum()),
        taking=blocks.estimate(blocks.ratio(_by_block(blocks, start_s, taking), begun)),
        delayed=blocks.estimate(blocks.ratio(_by_block(blocks, start_s, late), begun)),
        mean_s=blocks.estimate(blocks.ratio(_by_block(blocks, start_s, extra), begun)),
        extra_s={each: float(np.percentile(extra[late], each)) for each in _PERCENTILES} if late.any() else {},
        most_s=float(extra.max(initial=0.0)),
        own_wait_median_s=float(np.median(wait_s)) if wait_s.size else None,
        prompt=float((wait_s < _PROMPT_S).mean()) if wait_s.size else None,
        worst_user=_worst(jobs, extra, inside),
        distribution=tuple(_later_jobs(extra[inside], multiple * delay_s) for multiple in _MULTIPLES),
    )


def _later_jobs(extra: Floats, over_s: float) -> LaterJobs:
    later = int((extra > over_s + _LATE_S).sum())
    return LaterJobs(over_s=over_s, jobs=later, share=later / max(extra.size, 1))


def _by_block(blocks: TimeBlocks, at_s: Floats, amounts: NDArray[Any] | None = None) -> Floats:
    """Return the sum of the amounts in each block, or the number of times ``at_s``."""
    block = np.clip(np.searchsorted(blocks.begin_s, at_s, side="right") - 1, 0, len(blocks) - 1)
    return np.bincount(block, amounts, minlength=len(blocks)).astype(np.float64)


def _worst(jobs: BatchJobs, extra: Floats, inside: NDArray[np.bool_]) -> WorstUser | None:
    known = inside & (jobs.user >= 0)
    if not known.any():
        return None
    total, count = (
        np.bincount(jobs.user[known], weights, minlength=len(jobs.users)) for weights in (extra[known], None)
    )
    worst = int(total.argmax())
    return WorstUser(
        name=jobs.users[worst],
        jobs=int(count[worst]),
        extra_h=float(total[worst]) / SECONDS_AN_HOUR,
        mean_s=float(total[worst] / count[worst]),
    )
