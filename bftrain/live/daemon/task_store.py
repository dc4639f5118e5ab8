"""Tasks, hours and other state that survives restarts, in tables of the journal's database.

Changes are buffered: the journal commits them in the same transaction as the next event. UsageLedger counts node-hours,
GPU-hours, energy and samples between journaled events and decisions, so the sums match the journal. Days are cut at
midnight of the machine's time zone.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bftrain.errors import BadConfig, BadInput
from bftrain.journal import Journal, Statement, damage_remedy
from bftrain.live.model.schemas import UNFINISHED, Harvested, LiveTaskRecord, LiveTaskState, Progress, UsageRow
from bftrain.live.model.site_config import NodeRates
from bftrain.values import wire

Sum = tuple[float, float, float, float]  # node-seconds, GPU-seconds, samples, joules

_USED_TABLE: Final = """CREATE TABLE IF NOT EXISTS used (
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
_GROUP_COLUMNS: Final[Mapping[str, str]] = {
    "user": "user",
    "project": "project",
    "campaign": "CASE campaign WHEN '' THEN user ELSE user || '/' || campaign END",
    "month": "substr(day, 1, 7)",
    "day": "day",
    "task": "CASE task WHEN 0 THEN 'removed' ELSE '#' || task END",
}
GROUPINGS: Final = tuple(_GROUP_COLUMNS)
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

    def __init__(self, journal: Journal, rates: NodeRates) -> None:
        self._rates = rates
        self._seen: dict[int, Progress] = {}  # unfinished task -> progress already counted
        self.day = ""
        self._pending: dict[tuple[str | int, ...], Sum] = {}  # day, task, user, uid, project and campaign -> new work
        select = f"SELECT day, {_SUMS} FROM used GROUP BY day ORDER BY day DESC LIMIT {_DAYS}"  # noqa: S608 - constants only
        self._days = {row[0]: (row[3], row[1]) for row in journal.rows(select)}  # samples and node-seconds
        users = journal.rows(f"SELECT user, {_SUMS} FROM used GROUP BY user")  # noqa: S608 - as above
        self.by_user: dict[str, Sum] = {user: tuple(sums) for user, *sums in users}

    def begin(self, record: LiveTaskRecord, progress: Progress) -> None:
        """Mark the earlier work of a task as counted."""
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
        """Return the statements for the work counted since the last call."""
        rows = tuple((_ADD, (*row, *sums)) for row, sums in self._pending.items())
        self._pending.clear()
        return rows

    @property
    def days(self) -> tuple[Harvested, ...]:
        """Return the last days with work, in order."""
        return tuple(
            Harvested(day=day, samples=samples, node_s=node_s) for day, (samples, node_s) in sorted(self._days.items())
        )


def counted_before(records: Iterable[LiveTaskRecord]) -> Iterator[Statement]:
    """Yield the rows of tasks from versions without daily hours: each on its day of finish, start or submission."""
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
    """Return sums of a journal's ledger from a day on; with ``uid`` of this user's tasks alone.

    Days and months are in order, other rows start with the largest.
    """
    if by not in _GROUP_COLUMNS:
        raise BadConfig(f"must be one of {', '.join(_GROUP_COLUMNS)}, not {by[:30]!r}", where="by")
    if since and not _DAY.fullmatch(since):
        raise BadConfig(f"must be a day such as 2026-11-01, not {since[:30]!r}", where="since")
    if not journal.has_table("used"):
        return ()
    whose = "" if uid is None else "AND uid = ?"
    select = f"SELECT {_GROUP_COLUMNS[by]}, {_SUMS} FROM used WHERE day >= ? {whose} GROUP BY 1 ORDER BY 1"  # noqa: S608 - as above
    found = journal.rows(select, (since, *(() if uid is None else (uid,))))
    rows = [
        UsageRow(of=str(of), node_s=node_s, gpu_s=gpu_s, samples=samples, energy_j=energy_j)
        for of, node_s, gpu_s, samples, energy_j in found
    ]
    return tuple(rows if by in {"month", "day"} else sorted(rows, key=attrgetter("node_s"), reverse=True))


def _added(one: Sum, other: Sum) -> Sum:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2], one[3] + other[3]


_LONGEST_NUMBER: Final = len("#") + 18  # characters; 18 digits always fit SQLite's integers
_REMEMBERED: Final = 500  # finished tasks kept in memory for display

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS task (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, body TEXT NOT NULL, progress TEXT NOT NULL
) STRICT""",
    "CREATE UNIQUE INDEX IF NOT EXISTS task_name ON task (name) WHERE state IN ('submitted', 'paused')",
    "CREATE INDEX IF NOT EXISTS task_names ON task (name, number)",
    "CREATE TABLE IF NOT EXISTS fact (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    _USED_TABLE,
    """CREATE TABLE IF NOT EXISTS drained (
    node TEXT PRIMARY KEY, user TEXT NOT NULL, since_s REAL NOT NULL
) STRICT""",
    """CREATE TABLE IF NOT EXISTS begun (
    number INTEGER PRIMARY KEY, time_s REAL NOT NULL, step INTEGER NOT NULL, digest TEXT NOT NULL, site TEXT NOT NULL
) STRICT""",
)
# Tasks of 0.1.0 may wait until other tasks are done
_SELECT_DEPENDENT: Final = """SELECT name FROM task WHERE state = 'submitted' AND EXISTS (
    SELECT 1 FROM json_each(body, '$.after') WHERE value NOT IN (SELECT number FROM task WHERE state = 'done')
)"""
_LAST_DELETED: Final = "last number of a task that is forgotten"
_VERSION_KEY: Final = "version of tables"
_VERSION: Final = 2  # 1: no table of hours
CLUSTER: Final = "cluster"  # its name, as a fact
_SELECT_FINISHED: Final = "WHERE state NOT IN ('submitted', 'paused') ORDER BY number DESC LIMIT ?"
_SELECT: Final = "SELECT body, state, progress FROM task"


class EndedTask(NamedTuple):
    """A finished task, with the facts required to remove its remains."""

    number: int
    ended_s: float
    folder: str


class TaskStore:
    """All unfinished tasks by name, the most recently finished tasks, drained nodes, and single facts."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        journal.change(*((text, ()) for text in _TABLES))
        self._pending: list[Statement] = []
        self._tasks = {record.name: record for record in _records(journal, "WHERE state IN ('submitted', 'paused')")}
        self._finished: OrderedDict[int, LiveTaskRecord] = OrderedDict(
            (record.number, record) for record in _records(journal, _SELECT_FINISHED, _REMEMBERED)[::-1]
        )
        self._drained: dict[str, str] = dict(journal.rows("SELECT node, user FROM drained"))
        self._facts: dict[str, str] = dict(journal.rows("SELECT key, value FROM fact"))
        last = int(journal.rows("SELECT coalesce(max(number), 0) FROM task")[0][0])
        self.next_number = max(last, int(self.fact(_LAST_DELETED) or 0)) + 1  # numbers are never reused
        self._bring_up_to_date()

    def _bring_up_to_date(self) -> None:
        """Migrate tables of an earlier version; reject a later version."""
        given = self.fact(_VERSION_KEY) or "1"
        if not given.isdecimal() or int(given) > _VERSION:
            what = f"has tables of version {given[:20]}, and this bftrain knows version {_VERSION}"
            raise BadInput(what, where=str(self._journal.path), fix="use the version of bftrain that wrote it")
        if int(given) < _VERSION:
            self.add_writes(counted_before(all_kept(self._journal)))
            self.record_fact(_VERSION_KEY, str(_VERSION))
        for (name,) in self._journal.rows(_SELECT_DEPENDENT):
            reason = "it waited for other tasks by --after, which this version does not have: resume it"
            self.change(msgspec.structs.replace(self._tasks[name], state=LiveTaskState.PAUSED, reason=reason))

    @property
    def unfinished(self) -> tuple[LiveTaskRecord, ...]:
        """All unfinished tasks, by submission."""
        return tuple(self._tasks.values())

    @property
    def finished(self) -> tuple[LiveTaskRecord, ...]:
        """The latest finished tasks, the oldest first."""
        return tuple(self._finished.values())

    def get(self, name: str) -> LiveTaskRecord | None:
        """Return the unfinished task called ``name``."""
        return self._tasks.get(name)

    def find(self, name: str) -> LiveTaskRecord | None:
        """Return the task with this ``name``, or ``#number``: the unfinished one, or otherwise the latest."""
        if name in self._tasks:
            return self._tasks[name]
        if name.startswith("#") and name[1:].isdecimal() and len(name) <= _LONGEST_NUMBER:
            number = int(name[1:])
            among = next(
                (record for record in self._tasks.values() if record.number == number), self._finished.get(number)
            )
            return among or next(iter(_records(self._journal, "WHERE number = ?", number)), None)
        lately = (record for record in self._finished.values() if record.name == name)  # may not be written yet
        if (last := max(lately, key=lambda record: record.number, default=None)) is not None:
            return last
        return next(iter(_records(self._journal, "WHERE name = ? ORDER BY number DESC LIMIT 1", name)), None)

    def free_name(self, stem: str, ending: str) -> str:
        """Return an unused name with the prefix ``stem`` and the suffix ``ending``."""
        names = (f"{stem}{number}{ending}" for number in itertools.chain(("",), itertools.count(-2, -1)))
        return next(name for name in names if name not in self._tasks)

    def add(self, record: LiveTaskRecord) -> None:
        """Store a new task."""
        if record.name in self._tasks:
            raise BadInput(f"a task '{record.name}' already exists", where="name", fix="give it another name")
        self.next_number = max(self.next_number, record.number + 1)
        self._tasks[record.name] = record
        row = (record.number, record.name, *_texts(record))
        self._pending.append(("INSERT INTO task (number, name, state, body, progress) VALUES (?, ?, ?, ?, ?)", row))

    def change(self, record: LiveTaskRecord) -> None:
        """Store a changed task; a finished one leaves the unfinished ones."""
        if record.state in UNFINISHED:
            self._tasks[record.name] = record
        else:
            self._tasks.pop(record.name, None)
            self._finished[record.number] = record
            while len(self._finished) > _REMEMBERED:
                self._finished.popitem(last=False)
        values = (*_texts(record), record.number)
        self._pending.append(("UPDATE task SET state = ?, body = ?, progress = ? WHERE number = ?", values))

    def progressed(self, name: str, progress: Progress) -> None:
        """Store the progress of a task; it is written with the next event, or by :meth:`write`."""
        record = self._tasks.get(name)
        if record is not None and record.progress != progress:
            self._tasks[name] = msgspec.structs.replace(record, progress=progress)
            text = wire.encode(progress).decode()
            self._pending.append(("UPDATE task SET progress = ? WHERE number = ?", (text, record.number)))

    def ended(self) -> list[EndedTask]:
        """Return all finished tasks, sorted by finish time."""
        fields = ("number", "json_extract(body, '$.ended_s')", "json_extract(body, '$.run.folder')")
        select = f"SELECT {', '.join(fields)} FROM task WHERE state NOT IN ('submitted', 'paused') ORDER BY 2"  # noqa: S608 - constants only
        rows = self._journal.rows(select)
        return [EndedTask(number, float(ended_s or 0), str(folder or "")) for number, ended_s, folder in rows]

    def forget(self, numbers: Collection[int]) -> None:
        """Forget finished tasks. Their numbers are never reused."""
        for number in numbers:
            self._finished.pop(number, None)
        self.record_fact(_LAST_DELETED, str(max(*numbers, int(self.fact(_LAST_DELETED) or 0))))
        self.add_writes(("DELETE FROM task WHERE number = ?", (number,)) for number in numbers)

    @property
    def drained(self) -> frozenset[str]:
        """The nodes that must not be used until they are released by an operator."""
        return frozenset(self._drained)

    def drain(self, nodes: Iterable[str], user: str, time_s: float) -> None:
        """Record that nodes must not be used, and who requested it."""
        for node in nodes:
            self._drained[node] = user
            self._pending.append(("INSERT OR REPLACE INTO drained VALUES (?, ?, ?)", (node, user, time_s)))

    def undrain(self, nodes: Iterable[str]) -> None:
        """Record that nodes can be used again."""
        for node in nodes:
            if self._drained.pop(node, None) is not None:
                self._pending.append(("DELETE FROM drained WHERE node = ?", (node,)))

    def fact(self, key: str) -> str:
        """Return the value stored under ``key`` (default: "")."""
        return self._facts.get(key, "")

    def record_fact(self, key: str, value: str) -> None:
        """Store a value under ``key``."""
        if self._facts.get(key) != value:
            self._facts[key] = value
            self._pending.append(("INSERT OR REPLACE INTO fact VALUES (?, ?)", (key, value)))

    def begin(self, time_s: float, site: object) -> None:
        """Record the start of a run, and its settings."""
        row = (time_s, len(self._journal), "", wire.encode(site).decode())  # digest: unused
        self._pending.append(("INSERT INTO begun (time_s, step, digest, site) VALUES (?, ?, ?, ?)", row))

    def add_writes(self, statements: Iterable[Statement]) -> None:
        """Buffer changes of other tables for the same transaction."""
        self._pending += statements

    def due(self) -> list[Statement]:
        """Take the buffered changes; the caller writes them."""
        due, self._pending = self._pending, []
        return due

    def write(self) -> None:
        """Write due changes in a transaction of their own, synced to disk."""
        if self._pending:
            self._journal.change(*self.due(), sync=True)


def last_site(journal: Journal) -> Mapping[str, object]:
    """Return the settings of the last live run on a journal; empty if there was none."""
    if not journal.has_table("begun"):
        return {}
    rows = journal.rows("SELECT site FROM begun ORDER BY number DESC LIMIT 1")
    return wire.decode(rows[0][0], dict[str, object], where=f"{journal.path}: begun") if rows else {}


def last_cluster(journal: Journal) -> str:
    """Return the cluster's name, as the scheduler gave it, of the live run that wrote the journal; "" if unknown."""
    rows = journal.rows("SELECT value FROM fact WHERE key = ?", (CLUSTER,)) if journal.has_table("fact") else ()
    return str(rows[0][0]) if rows else ""


def all_kept(journal: Journal) -> tuple[LiveTaskRecord, ...]:
    """Return all tasks in a journal, sorted by number; empty for journals not written by a live run."""
    return tuple(_records(journal, "ORDER BY number")) if journal.has_table("task") else ()


def _records(journal: Journal, where: str, *values: object) -> list[LiveTaskRecord]:
    return [
        read_record(body, state, progress, journal.path)
        for body, state, progress in journal.rows(f"{_SELECT} {where}", values)
    ]


def read_record(body: object, state: object, progress: object, path: Path) -> LiveTaskRecord:
    """Read a task from the columns of its row."""
    source, fix = f"{path}: task", damage_remedy(path)
    if not isinstance(body, str) or not isinstance(progress, str) or state not in set(LiveTaskState):
        raise BadInput("is damaged: a task has no text or no state", where=source, fix=fix)
    return msgspec.structs.replace(
        wire.decode(body, LiveTaskRecord, where=source, fix=fix),
        state=LiveTaskState(str(state)),
        progress=wire.decode(progress, Progress, where=source, fix=fix),
    )


def _texts(record: LiveTaskRecord) -> tuple[str, str, str]:
    """Return state, body and progress as texts; the body excludes the other two."""
    plain = msgspec.structs.replace(record, state=LiveTaskState.SUBMITTED, progress=Progress())
    return str(record.state), wire.encode(plain).decode(), wire.encode(record.progress).decode()
