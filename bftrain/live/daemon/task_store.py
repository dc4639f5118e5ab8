"""TaskStore: tasks and other state that survives restarts, in tables of the journal's database.

Changes are buffered: the journal commits them in the same transaction as the next event.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import msgspec

from bftrain.errors import BadInput
from bftrain.journal import Journal, Statement
from bftrain.journal_steps import damage_remedy
from bftrain.live.daemon import usage_ledger
from bftrain.live.model.task_record import UNFINISHED, LiveTaskRecord, LiveTaskState, Progress
from bftrain.taskfiles.records import Profile
from bftrain.values import wire
from bftrain.values.curve import SpeedCurve

_LONGEST_NUMBER: Final = len("#") + 18  # the largest number that fits SQLite's integers
_REMEMBERED: Final = 500  # finished tasks kept in memory for display

_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS task (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, body TEXT NOT NULL, progress TEXT NOT NULL
) STRICT""",
    "CREATE UNIQUE INDEX IF NOT EXISTS task_name ON task (name) WHERE state IN ('submitted', 'paused')",
    "CREATE INDEX IF NOT EXISTS task_names ON task (name, number)",
    "CREATE TABLE IF NOT EXISTS fact (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    usage_ledger.SCHEMA,
    """CREATE TABLE IF NOT EXISTS drained (
    node TEXT PRIMARY KEY, user TEXT NOT NULL, since_s REAL NOT NULL
) STRICT""",
    """CREATE TABLE IF NOT EXISTS begun (
    number INTEGER PRIMARY KEY, time_s REAL NOT NULL, step INTEGER NOT NULL, digest TEXT NOT NULL, site TEXT NOT NULL
) STRICT""",
)
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
        journal.change(*((text, ()) for text in _SCHEMA))
        self._pending: list[Statement] = []
        self._tasks = {record.name: record for record in self._select("WHERE state IN ('submitted', 'paused')")}
        self._finished: OrderedDict[int, LiveTaskRecord] = OrderedDict(
            (record.number, record) for record in self._select(_SELECT_FINISHED, _REMEMBERED)[::-1]
        )
        self._drained: dict[str, str] = dict(journal.rows("SELECT node, user FROM drained"))
        self._facts: dict[str, str] = dict(journal.rows("SELECT key, value FROM fact"))
        last = int(journal.rows("SELECT coalesce(max(number), 0) FROM task")[0][0])
        self.next_number = max(last, int(self.fact(_LAST_DELETED) or 0)) + 1  # also of tasks that are forgotten
        self._bring_up_to_date()

    def _bring_up_to_date(self) -> None:
        """Migrate tables of an earlier version; reject a later version."""
        given = self.fact(_VERSION_KEY) or "1"
        if not given.isdecimal() or int(given) > _VERSION:
            what = f"has tables of version {given[:20]}, and this bftrain knows version {_VERSION}"
            raise BadInput(what, where=str(self._journal.path), fix="use the version of bftrain that wrote it")
        if int(given) < _VERSION:
            self.add_writes(usage_ledger.counted_before(all_kept(self._journal)))
            self.record_fact(_VERSION_KEY, str(_VERSION))

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
        """Return the task called ``name``, or ``#number``; an unfinished task has priority, then the latest."""
        if name in self._tasks:
            return self._tasks[name]
        if name.startswith("#") and name[1:].isdecimal() and len(name) <= _LONGEST_NUMBER:
            number = int(name[1:])
            among = next(
                (record for record in self._tasks.values() if record.number == number), self._finished.get(number)
            )
            return among or next(iter(self._select("WHERE number = ?", number)), None)
        lately = (record for record in self._finished.values() if record.name == name)  # may not be written yet
        if (last := max(lately, key=lambda record: record.number, default=None)) is not None:
            return last
        return next(iter(self._select("WHERE name = ? ORDER BY number DESC LIMIT 1", name)), None)

    def free_name(self, stem: str, ending: str) -> str:
        """Return an unused name with the prefix ``stem`` and the suffix ``ending``."""
        names = (f"{stem}{number}{ending}" for number in itertools.chain(("",), itertools.count(-2, -1)))
        return next(name for name in names if name not in self._tasks)

    def add(self, record: LiveTaskRecord) -> None:
        """Store a new task."""
        if record.name in self._tasks:
            raise BadInput(f"a task '{record.name}' is there already", where="name", fix="give it another name")
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
        """Store the progress of a task; it is written with the next statement, or by :meth:`write`."""
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

    @property
    def runs(self) -> int:
        """The number of earlier live runs on this journal."""
        return int(self._journal.rows("SELECT count(*) FROM begun")[0][0])

    def begin(self, time_s: float, digest: str, site: object) -> None:
        """Record the start of a run, and its settings."""
        row = (time_s, len(self._journal), digest, wire.encode(site).decode())
        self._pending.append(("INSERT INTO begun (time_s, step, digest, site) VALUES (?, ?, ?, ?)", row))

    def add_writes(self, statements: Iterable[Statement]) -> None:
        """Write the changes of other tables together with these."""
        self._pending += statements

    def due(self) -> list[Statement]:
        """Return the changes to write; the caller writes them."""
        due, self._pending = self._pending, []
        return due

    def write(self, *, sync: bool = True) -> None:
        """Write due changes in a transaction of their own."""
        if self._pending:
            self._journal.change(*self.due(), sync=sync)

    def _select(self, where: str, *values: object) -> list[LiveTaskRecord]:
        return _records(self._journal, where, *values)


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


def script_of(argv: Iterable[str]) -> str:
    """Return the name of a command's profile: its first word, without folder and suffix.

    >>> script_of(["/home/ada/cnn.py", "--steps", "500"])
    'cnn'
    """
    return Path(next(iter(argv), "")).stem


def learned_profiles(records: Iterable[LiveTaskRecord], source: str) -> tuple[Profile, ...]:
    """Return a profile for each script with measured tasks: of each size and cost the median over its tasks.

    Only sizes with a reliable measured speed count.
    """
    rates: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    costs: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        script, progress = script_of(record.run.argv), record.progress
        for size in progress.settled:
            if progress.speeds.get(size, 0.0) > 0.0:
                rates[script][size].append(progress.speeds[size])
        for change, cost_s in progress.costs.items():
            costs[script][change].append(cost_s)
    return tuple(
        Profile(
            name=script,
            curve=SpeedCurve(
                nodes=tuple(sorted(by_size)), rate=tuple(median(by_size[size]) for size in sorted(by_size))
            ),
            grow_cost_s=median(costs[script].get("grow", [0.0])),
            shrink_cost_s=median(costs[script].get("shrink", [0.0])),
            start_cost_s=median(costs[script]["start"]) if "start" in costs[script] else None,
            source=source,
        )
        for script, by_size in rates.items()
    )
