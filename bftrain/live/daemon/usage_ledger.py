"""UsageLedger: node-hours, GPU-hours, energy and samples by user, day and task.

The ledger is a table in the journal's database and is written together with the events. Node-time is counted between
journaled events and decisions, so the sums match the journal. Days are cut at midnight of the machine's time zone.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Final

from bftrain.errors import BadConfig
from bftrain.journal import Journal, Statement
from bftrain.live.model.schemas import Harvested, UsageRow
from bftrain.live.model.site_config import NodeRates
from bftrain.live.model.task_record import LiveTaskRecord, Progress

Sum = tuple[float, float, float, float]  # node-seconds, GPU-seconds, samples, joules

SCHEMA: Final = """CREATE TABLE IF NOT EXISTS used (
    day TEXT NOT NULL, task INTEGER NOT NULL, user TEXT NOT NULL, uid INTEGER NOT NULL, project TEXT NOT NULL,
    campaign TEXT NOT NULL, node_s REAL NOT NULL, gpu_s REAL NOT NULL, samples REAL NOT NULL, energy_j REAL NOT NULL,
    PRIMARY KEY (day, task, user, project, campaign)
) STRICT"""
_ADDED: Final = (
    "ON CONFLICT (day, task, user, project, campaign) DO UPDATE SET node_s = node_s + excluded.node_s, "
    "gpu_s = gpu_s + excluded.gpu_s, samples = samples + excluded.samples, energy_j = energy_j + excluded.energy_j"
)
_ADD: Final = f"INSERT INTO used VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) {_ADDED}"  # noqa: S608 - constants only
_SUMS: Final = "sum(node_s), sum(gpu_s), sum(samples), sum(energy_j)"
# Grouping of sums -> its columns
_BY: Final[Mapping[str, str]] = {
    "user": "user",
    "project": "project",
    "campaign": "CASE campaign WHEN '' THEN user ELSE user || '/' || campaign END",
    "month": "substr(day, 1, 7)",
    "day": "day",
    "task": "CASE task WHEN 0 THEN 'removed' ELSE '#' || task END",
}
GROUPINGS: Final = tuple(_BY)
_DAYS: Final = 31
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_NOTHING: Final[Sum] = (0.0, 0.0, 0.0, 0.0)


def day_of(time_s: float) -> str:
    """Return the day of a time here, as YYYY-MM-DD."""
    return time.strftime("%Y-%m-%d", time.localtime(time_s))


def midnight_before(time_s: float) -> float:
    """Return the start of the local day that contains a time."""
    return time.mktime((*time.localtime(time_s)[:3], 0, 0, 0, 0, 0, -1))


class UsageLedger:
    """Counts work in memory until it is written; ``due`` returns the pending writes."""

    def __init__(self, journal: Journal, rates: NodeRates | None = None) -> None:
        self._rates = rates or NodeRates()
        self._seen: dict[int, Progress] = {}  # unfinished task -> progress already counted
        self.day = ""
        self._pending: dict[tuple[str | int, ...], Sum] = {}  # day, task, user, uid, project and campaign -> new work
        select = f"SELECT day, {_SUMS} FROM used GROUP BY day ORDER BY day DESC LIMIT {_DAYS}"  # noqa: S608 - constants only
        self._days = {row[0]: (row[3], row[1]) for row in journal.rows(select)}  # samples and node-seconds
        users = journal.rows(f"SELECT user, {_SUMS} FROM used GROUP BY user")  # noqa: S608 - as above
        self.by_user: dict[str, Sum] = {user: tuple(sums) for user, *sums in users}

    def begin(self, record: LiveTaskRecord, progress: Progress) -> None:
        """Record the earlier work of a task."""
        self._seen[record.number] = progress

    def forget(self, number: int) -> None:
        """Forget a finished task."""
        self._seen.pop(number, None)

    def count(self, record: LiveTaskRecord, progress: Progress, node: str = "") -> None:
        """Add the task's new work to the current day, on nodes of the kind of ``node``."""
        before = self._seen.get(record.number, Progress())
        self._seen[record.number] = progress
        samples, node_s = progress.harvested - before.harvested, progress.node_s - before.node_s
        if not samples and not node_s:
            return
        gpus, watts = self._rates.of(node)
        more = (node_s, node_s * gpus, samples, node_s * watts)
        project = self._rates.projects.get(record.user, "")
        row = (self.day, record.number, record.user, record.uid, project, record.spec.campaign)
        self._pending[row] = _added(self._pending.get(row, _NOTHING), more)
        self.by_user[record.user] = _added(self.by_user.get(record.user, _NOTHING), more)
        done, used = self._days.get(self.day, (0.0, 0.0))
        self._days[self.day] = (done + samples, used + node_s)
        if len(self._days) > _DAYS:
            del self._days[min(self._days)]

    def due(self) -> tuple[Statement, ...]:
        """Return the statements that are due since the last call."""
        rows = tuple((_ADD, (*row, *sums)) for row, sums in self._pending.items())
        self._pending.clear()
        return rows

    @property
    def days(self) -> tuple[Harvested, ...]:
        """Return the last days, today last."""
        return tuple(
            Harvested(day=day, samples=samples, node_s=node_s) for day, (samples, node_s) in sorted(self._days.items())
        )


def counted_before(records: Iterable[LiveTaskRecord]) -> Iterator[Statement]:
    """Yield the rows of tasks from versions without daily hours: each on the day when it finished."""
    for record in records:
        progress = record.progress
        if progress.node_s or progress.harvested:
            day = day_of(next(filter(None, (record.ended_s, progress.started_s)), record.submitted_s))
            whose = (day, record.number, record.user, record.uid, "", record.spec.campaign)
            yield _ADD, (*whose, progress.node_s, 0.0, progress.harvested, 0.0)


def without_tasks(numbers: Collection[int]) -> tuple[Statement, ...]:
    """Return the statements that merge the hours of forgotten tasks by day, user, project and campaign."""
    among = f"task IN ({', '.join('?' * len(numbers))})"
    whose = "user, uid, project, campaign"
    together = (
        f"INSERT INTO used SELECT day, 0, {whose}, {_SUMS} FROM used WHERE {among} GROUP BY day, {whose} "  # noqa: S608 - as above
        f"{_ADDED}"
    )
    return (together, tuple(numbers)), (f"DELETE FROM used WHERE {among}", tuple(numbers))  # noqa: S608 - as above


def usage(journal: Journal, by: str, since: str = "", uid: int | None = None) -> tuple[UsageRow, ...]:
    """Return sums of a journal's ledger from a day on, the largest first; with ``uid`` of this user's tasks alone."""
    if by not in _BY:
        raise BadConfig(f"must be one of {', '.join(_BY)}, not {by[:30]!r}", where="by")
    if since and not _DAY.fullmatch(since):
        raise BadConfig(f"must be a day such as 2026-11-01, not {since[:30]!r}", where="since")
    if not journal.has_table("used"):
        return ()
    whose = "" if uid is None else "AND uid = ?"
    select = f"SELECT {_BY[by]}, {_SUMS} FROM used WHERE day >= ? {whose} GROUP BY 1 ORDER BY 1"  # noqa: S608 - as above
    found = journal.rows(select, (since, *(() if uid is None else (uid,))))
    rows = [
        UsageRow(of=str(of), node_s=node_s, gpu_s=gpu_s, samples=samples, energy_j=energy_j)
        for of, node_s, gpu_s, samples, energy_j in found
    ]
    return tuple(rows if by in {"month", "day"} else sorted(rows, key=attrgetter("node_s"), reverse=True))


def _added(one: Sum, other: Sum) -> Sum:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]
