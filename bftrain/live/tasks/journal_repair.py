"""Repair of a damaged journal: copies the intact part into a new journal; the damaged one is only read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from bftrain.config import Settings, recorded_settings
from bftrain.deciding.allocation_state import HarvesterSnapshot
from bftrain.errors import BadInput, BftrainError
from bftrain.journal import Journal
from bftrain.journal_file import check_format
from bftrain.journal_parts import JournalPart
from bftrain.journal_steps import read_steps
from bftrain.journal_wal import damaged_tail
from bftrain.live.tasks.task_store import TaskStore, read_record
from bftrain.rerun import followed
from bftrain.values import wire

# Tables of a live run beside the steps -> their columns
_TABLES: Final = {
    "task": ("number", "name", "state", "body", "progress"),
    "fact": ("key", "value"),
    "drained": ("node", "user", "since_s"),
    "used": ("day", "task", "user", "uid", "project", "campaign", "node_s", "gpu_s", "samples", "energy_j"),
    "begun": ("number", "time_s", "step", "digest", "site"),
}


class JournalRepaired(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a repaired journal; ``stopped`` is why it ends there, ``lost`` what else is missing."""

    journal: str
    steps: int
    stopped: str = ""
    lost: tuple[str, ...] = ()


def repair(path: Path, target: Path) -> JournalRepaired:
    """Copy the steps of ``path`` up to the first damaged one into the new journal ``target``."""
    if not path.is_file():
        raise BadInput("there is no such journal", where=str(path))
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as source:
        try:
            check_format(source, path)
            (text,) = source.execute("SELECT value FROM about WHERE key = 'settings'").fetchone() or (None,)
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise BadInput(f"nothing of it can be read: {error}", where=str(path), fix="take a backup of it") from error
        if not isinstance(text, str):
            raise BadInput("has lost its settings, without which no step has a meaning", where=str(path))
        settings = recorded_settings(text, f"{path}: settings")
        with Journal.create(target, settings) as journal:
            return _filled(journal, source, path)


def _filled(journal: Journal, source: sqlite3.Connection, path: Path) -> JournalRepaired:
    lost, stopped = list[str](), damaged_tail(path)
    names = ("first", "last", "digest", "file")
    parts = [JournalPart(**dict(zip(names, row, strict=True))) for row in _rows(source, "part", names, lost)]
    cut = parts[-1].last if parts else 0  # the steps up to there are in other files, and stay there
    standing = list(_rows(source, f"standing WHERE step = {cut:d}", ("step", "settings", "changed", "body"), lost))
    journal.fill((), standing if cut else (), parts)
    changes = dict(_changes(source, path, lost, cut))
    select = "SELECT step, number, kind, body FROM entry WHERE step > ? ORDER BY number"
    try:
        with closing(source.execute(select, (cut,))) as rows:
            for step, harvester in followed(read_steps(rows, path, cut), journal.settings, changes, path, cut):
                if step is not None:
                    journal.append(step.events, step.decision)
                elif (settings := changes[len(journal)][0]) != journal.settings_now:
                    journal.keep(settings, harvester.snapshot)
    except (BftrainError, sqlite3.DatabaseError, UnicodeDecodeError) as error:
        stopped = str(BadInput(error.what, where=error.where) if isinstance(error, BftrainError) else error)
    TaskStore(journal)  # makes the tables
    for table, columns in _TABLES.items():
        _copy(journal, source, table, columns, path, lost)
    return JournalRepaired(journal=str(journal.path), steps=len(journal), stopped=stopped, lost=tuple(lost))


def _changes(
    source: sqlite3.Connection, path: Path, lost: list[str], cut: int
) -> Iterator[tuple[int, tuple[Settings, HarvesterSnapshot]]]:
    """Yield the first step and those after which settings were changed, with the state at that time."""
    where = f"standing WHERE (changed AND step >= {cut:d}) OR (step = {cut:d} AND step > 0)"
    for step, settings, snapshot in _rows(source, where, ("step", "settings", "body"), lost):
        try:
            where = f"{path}: standing {step}"
            yield int(step), (recorded_settings(settings, where), wire.decode(snapshot, HarvesterSnapshot))
        except (BftrainError, TypeError, ValueError) as error:
            lost.append(f"a change of settings after step {step}: {error}")


def _copy(
    journal: Journal, source: sqlite3.Connection, table: str, columns: tuple[str, ...], path: Path, lost: list[str]
) -> None:
    values = f"({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    for row in _rows(source, table, columns, lost):
        try:
            if table == "task":
                read_record(row[3], row[2], row[4], path)
            if table == "begun" and isinstance(row[4], str):
                wire.decode(row[4], dict[str, object])
            journal.change((f"INSERT INTO {table} {values}", row))
        except (BftrainError, sqlite3.Error) as error:
            lost.append(f"{table} {row[0]}: {error}")


def _rows(source: sqlite3.Connection, table: str, columns: tuple[str, ...], lost: list[str]) -> Iterator[Any]:
    with suppress(sqlite3.OperationalError):  # a journal of no live run has no such table
        try:
            yield from source.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY {columns[0]}")  # noqa: S608 - names of ours
        except sqlite3.OperationalError:
            raise
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            lost.append(f"the rest of table {table.partition(' ')[0]}: {error}")
