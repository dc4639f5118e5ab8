"""Jobs of which the records tell start and end in different rows, which may even stand in different files."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing.job_columns import key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from bftrain_datasets.importing.findings import FindingsTally

MOST_ENDED: Final = 1 << 14  # jobs that are remembered for a while after they ended
SAME_START_S: Final = 60.0  # by which two records of one start may differ


@dataclass(slots=True)
class OpenJob:
    """A job that has begun to hold nodes. ``may_end_s`` is when it had to end, ``place`` its file and line.

    ``restarted`` says that it began again before its end was read.
    """

    job: str
    start_s: float
    nodes: str
    queue: str
    place: int
    also: tuple[str, ...] = ()
    may_end_s: float | None = None
    restarted: bool = False
    expand: Callable[[str], Sequence[str]] = expand_set


class JobSink(Protocol):
    """Takes in jobs that are known as a whole: the intake of an import."""

    tally: FindingsTally

    def where(self, place: int) -> str:
        """Return the name of a place: file and line."""
        ...

    def again(self, place: int) -> None:
        """Return to a row that was read before."""
        ...

    def job(
        self,
        job: str,
        start_s: float | None,
        end_s: float | None,
        nodes: str,
        *,
        queue: str = ...,
        expand: Callable[[str], Sequence[str]] = ...,
    ) -> None:
        """Take in one job."""
        ...


class OpenJobTable:
    """Keeps jobs from the row of their start to that of their end; what is left when all files are read still runs.

    ``also`` are other names of a job, such as that of the array it belongs to. An end that comes before its start,
    because the files are not in order, is kept as a few numbers and finds its start in the end. ``any_begun`` says
    whether the records are of this kind at all, ``first_begun_s`` when the first start was that they tell of.
    """

    def __init__(self) -> None:
        self.any_begun = False
        self.first_begun_s = math.inf
        self._open: dict[str, OpenJob] = {}
        self._by_name: dict[str, dict[str, None]] = {}
        self._unended: list[OpenJob] = []  # started again without a record of their end
        self._ended: dict[str, None] = {}
        self._end_job = array("q")
        self._end_s = array("d")
        self._end_start = array("d")
        self._end_place = array("q")
        self._end_counts = array("b")

    def get(self, job: str) -> OpenJob | None:
        """Give the job if it runs."""
        return self._open.get(job)

    def named(self, name: str) -> list[OpenJob]:
        """Give the jobs that run and have this name."""
        found = self._open.get(name)
        keys = dict.fromkeys(self._by_name.get(name, ()))
        return [self._open[key] for key in keys] or ([found] if found else [])

    def begin(self, job: OpenJob) -> bool:
        """Keep a job that starts; False if that start is known already."""
        self.first_begun_s = min(self.first_begun_s, job.start_s)
        known = self._open.get(job.job)
        if known is not None:
            if abs(known.start_s - job.start_s) <= SAME_START_S and known.nodes == job.nodes:
                return False
            if job.start_s < known.start_s:  # files that are not in order
                known, job = job, known
            known.restarted = known.may_end_s is None
            known.may_end_s = min(job.start_s, known.may_end_s or math.inf)
            self._forget(known)
            self._unended.append(known)
        self.any_begun = True
        self._open[job.job] = job
        self._ended.pop(job.job, None)
        for name in job.also:
            self._by_name.setdefault(name, {})[job.job] = None
        return True

    def end(self, job: str, end_s: float) -> OpenJob | None:
        """Give back a job that ends, if it runs; from now on it is none of ours."""
        known = self._open.get(job)
        if known is None or end_s < known.start_s:
            return None
        self._forget(known)
        del self._open[job]
        if len(self._ended) >= MOST_ENDED:
            del self._ended[next(iter(self._ended))]
        self._ended[job] = None
        return known

    def ended_lately(self, job: str) -> bool:
        """Whether the job is among the last that ended."""
        return job in self._ended

    def end_unseen(self, job: str, end_s: float, place: int, *, start_s: float = math.nan, counts: bool = True) -> None:
        """Keep the end of a job whose start was not read yet. If it never is, and that ``counts``, it is a doubt."""
        self._end_job.append(key_of(job))
        self._end_s.append(end_s)
        self._end_start.append(start_s)
        self._end_place.append(place)
        self._end_counts.append(counts)

    def close(self, intake: JobSink) -> None:
        """Tell the intake of the jobs that are left: they still run, unless an end that was read earlier fits."""
        matched = np.zeros(len(self._end_s), dtype=np.bool_)
        if self._open or self._unended:
            ends = self._ends_by_job()
            for job in (*self._unended, *self._open.values()):
                self._settle(job, ends, matched, intake)
        self._open.clear()
        self._unended.clear()
        lost = np.flatnonzero(~matched & np.array(self._end_counts, dtype=np.bool_))
        if lost.size:
            where = intake.where(self._end_place[int(lost[0])])
            intake.tally.unuse("no_start", where, int(lost.size), 0.0)

    def _forget(self, job: OpenJob) -> None:
        for name in job.also:
            keys = self._by_name.get(name, {})
            keys.pop(job.job, None)
            if not keys:
                self._by_name.pop(name, None)

    def _ends_by_job(self) -> dict[int, list[int]]:
        """For each open job the numbers of the ends that were recorded for it."""
        wanted = {key_of(name) for job in self._all() for name in (job.job, *job.also)}
        among = np.isin(np.array(self._end_job, dtype=np.int64), np.fromiter(wanted, dtype=np.int64))
        found: dict[int, list[int]] = {}
        for number in np.flatnonzero(among).tolist():
            found.setdefault(self._end_job[number], []).append(number)
        return found

    def _all(self) -> Iterator[OpenJob]:
        yield from self._unended
        yield from self._open.values()

    def _settle(self, job: OpenJob, ends: dict[int, list[int]], matched: NDArray[np.bool_], intake: JobSink) -> None:
        """Decide when a job that was left ended, and tell the intake."""
        numbers = [number for name in (job.job, *job.also) for number in ends.get(key_of(name), ())]
        after = [number for number in numbers if self._end_s[number] >= job.start_s]
        first = min(after, key=self._end_s.__getitem__, default=None)
        end_s = math.inf if job.may_end_s is None else job.may_end_s
        if first is not None:
            matched[first] = True
            start_s = self._end_start[first]
            if abs(start_s - job.start_s) <= SAME_START_S:
                return  # that row held all of the job
            end_s = min(end_s, self._end_s[first] if math.isnan(start_s) else start_s)
        elif job.restarted:
            intake.tally.note("restarted", where=intake.where(job.place))
        intake.again(job.place)
        intake.job(job.job, job.start_s, end_s, job.nodes, queue=job.queue, expand=job.expand)
