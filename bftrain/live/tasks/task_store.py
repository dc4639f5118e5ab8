"""TaskStore: the tasks and what else must survive us, in tables beside the record of events, changed together with it.

What is changed here is only due until it is written: the code that journals an event takes the ``due`` changes along.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec

from bftrain.errors import BadInput
from bftrain.journal import Journal, Statement
from bftrain.live.model.task_record import UNFINISHED, LiveTaskRecord, LiveTaskState, Progress
from bftrain.values import wire

_LONGEST_NUMBER: Final = len("#") + 18  # what SQLite holds for certain
_REMEMBERED: Final = 500  # tasks that are over and can be shown without reading them again

_SCHEMA: Final = (
    """CREATE TABLE IF NOT EXISTS task (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL, state TEXT NOT NULL, body TEXT NOT NULL, progress TEXT NOT NULL
) STRICT""",
    "CREATE UNIQUE INDEX IF NOT EXISTS task_name ON task (name) WHERE state IN ('submitted', 'paused')",
    "CREATE INDEX IF NOT EXISTS task_names ON task (name, number)",
    "CREATE TABLE IF NOT EXISTS fact (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT",
    """CREATE TABLE IF NOT EXISTS drained (
    node TEXT PRIMARY KEY, user TEXT NOT NULL, since_s REAL NOT NULL
) STRICT""",
    """CREATE TABLE IF NOT EXISTS begun (
    number INTEGER PRIMARY KEY, time_s REAL NOT NULL, step INTEGER NOT NULL, digest TEXT NOT NULL, site TEXT NOT NULL
) STRICT""",
)
_OVER: Final = "WHERE state NOT IN ('submitted', 'paused') ORDER BY number DESC LIMIT ?"
_SELECT: Final = "SELECT body, state, progress FROM task"


class TaskStore:
    """All unfinished tasks by name, the latest of those that are over, drained nodes, and single facts."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        journal.change(*((text, ()) for text in _SCHEMA))
        self._due: list[Statement] = []
        self._tasks = {kept.name: kept for kept in self._select("WHERE state IN ('submitted', 'paused')")}
        self._over: OrderedDict[int, LiveTaskRecord] = OrderedDict(
            (kept.number, kept) for kept in self._select(_OVER, _REMEMBERED)[::-1]
        )
        self._next = int(journal.rows("SELECT coalesce(max(number), 0) + 1 FROM task")[0][0])
        self._drained: dict[str, str] = dict(journal.rows("SELECT node, user FROM drained"))
        self._facts: dict[str, str] = dict(journal.rows("SELECT key, value FROM fact"))

    # -- tasks

    @property
    def unfinished(self) -> tuple[LiveTaskRecord, ...]:
        """Give all unfinished tasks, in the order in which they were handed in."""
        return tuple(self._tasks.values())

    @property
    def over(self) -> tuple[LiveTaskRecord, ...]:
        """Give the latest tasks that are over, the oldest first."""
        return tuple(self._over.values())

    @property
    def next_number(self) -> int:
        """The number of the next task."""
        return self._next

    def get(self, name: str) -> LiveTaskRecord | None:
        """Give the unfinished task called ``name``."""
        return self._tasks.get(name)

    def find(self, name: str) -> LiveTaskRecord | None:
        """Give the task called ``name``, or ``#number``; of several the unfinished or else the last one."""
        if name in self._tasks:
            return self._tasks[name]
        if name.startswith("#") and name[1:].isdecimal() and len(name) <= _LONGEST_NUMBER:
            number = int(name[1:])
            among = next((kept for kept in self._tasks.values() if kept.number == number), self._over.get(number))
            return among or self._one("WHERE number = ?", number)
        return self._one("WHERE name = ? ORDER BY number DESC LIMIT 1", name)

    def free_name(self, stem: str) -> str:
        """Give a name that begins with ``stem`` and that no unfinished task has."""
        number = 1
        name = stem
        while name in self._tasks:
            number += 1
            name = f"{stem}-{number}"
        return name

    def add(self, kept: LiveTaskRecord) -> None:
        """Remember a new task."""
        if kept.name in self._tasks:
            raise BadInput(f"a task '{kept.name}' is there already", where="name", fix="give it another name")
        self._next = max(self._next, kept.number + 1)
        self._tasks[kept.name] = kept
        body, state, progress = _texts(kept)
        row = (kept.number, kept.name, state, body, progress)
        self._due.append(("INSERT INTO task (number, name, state, body, progress) VALUES (?, ?, ?, ?, ?)", row))

    def change(self, kept: LiveTaskRecord) -> None:
        """Remember that a task is other than it was; if it is over it leaves the unfinished ones."""
        if kept.state in UNFINISHED:
            self._tasks[kept.name] = kept
        else:
            self._tasks.pop(kept.name, None)
            self._over[kept.number] = kept
            while len(self._over) > _REMEMBERED:
                self._over.popitem(last=False)
        body, state, progress = _texts(kept)
        values = (state, body, progress, kept.number)
        self._due.append(("UPDATE task SET state = ?, body = ?, progress = ? WHERE number = ?", values))

    def progressed(self, name: str, progress: Progress) -> None:
        """Remember how far a task came; it is written with the next thing that is, or by :meth:`write`."""
        kept = self._tasks.get(name)
        if kept is not None and kept.progress != progress:
            self._tasks[name] = msgspec.structs.replace(kept, progress=progress)
            text = wire.encode(progress).decode()
            self._due.append(("UPDATE task SET progress = ? WHERE number = ?", (text, kept.number)))

    # -- nodes and facts

    @property
    def drained(self) -> frozenset[str]:
        """The nodes that must not be used until they are said to be free again."""
        return frozenset(self._drained)

    def drain(self, nodes: Iterable[str], user: str, time_s: float) -> None:
        """Remember that nodes must not be used, and who said so."""
        for node in nodes:
            self._drained[node] = user
            self._due.append(("INSERT OR REPLACE INTO drained VALUES (?, ?, ?)", (node, user, time_s)))

    def undrain(self, nodes: Iterable[str]) -> None:
        """Remember that nodes can be used again."""
        for node in nodes:
            if self._drained.pop(node, None) is not None:
                self._due.append(("DELETE FROM drained WHERE node = ?", (node,)))

    def fact(self, key: str) -> str:
        """Give what is remembered under ``key``; "" for nothing."""
        return self._facts.get(key, "")

    def know(self, key: str, value: str) -> None:
        """Remember a fact."""
        if self._facts.get(key) != value:
            self._facts[key] = value
            self._due.append(("INSERT OR REPLACE INTO fact VALUES (?, ?)", (key, value)))

    def begin(self, time_s: float, digest: str, site: object) -> None:
        """Write down that a run begins, and with which settings."""
        row = (time_s, len(self._journal), digest, wire.encode(site).decode())
        self._due.append(("INSERT INTO begun (time_s, step, digest, site) VALUES (?, ?, ?, ?)", row))

    # -- writing

    def due(self) -> list[Statement]:
        """Return the changes to write; the caller writes them."""
        due, self._due = self._due, []
        return due

    def write(self, *, sync: bool = True) -> None:
        """Write what is due, by itself."""
        if self._due:
            self._journal.change(*self.due(), sync=sync)

    def _one(self, where: str, value: object) -> LiveTaskRecord | None:
        return next(iter(self._select(where, value)), None)

    def _select(self, where: str, *values: object) -> list[LiveTaskRecord]:
        return _kept(self._journal, where, *values)


def all_kept(journal: Journal) -> tuple[LiveTaskRecord, ...]:
    """Give all tasks that a journal ever knew, in the order of their numbers; none if no live run wrote it."""
    there = journal.rows("SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'task'")
    return tuple(_kept(journal, "ORDER BY number")) if there else ()


def _kept(journal: Journal, where: str, *values: object) -> list[LiveTaskRecord]:
    source = f"{journal.path}: task"
    return [
        msgspec.structs.replace(
            wire.decode(body, LiveTaskRecord, where=source),
            state=LiveTaskState(state),
            progress=wire.decode(progress, Progress, where=source),
        )
        for body, state, progress in journal.rows(f"{_SELECT} {where}", values)
    ]


def _texts(kept: LiveTaskRecord) -> tuple[str, str, str]:
    """Give body, state and progress; the body holds neither of the others."""
    plain = msgspec.structs.replace(kept, state=LiveTaskState.SUBMITTED, progress=Progress())
    return wire.encode(plain).decode(), str(kept.state), wire.encode(kept.progress).decode()
