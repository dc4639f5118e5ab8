"""Steps of a journal, read from rows of its entries."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from bftrain.config import Settings
from bftrain.deciding.allocation_state import HarvesterSnapshot
from bftrain.errors import BadInput
from bftrain.values import wire
from bftrain.values.decision import Decision
from bftrain.values.events import Event


class StoredSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The state after ``step``, and the settings from there on; ``changed`` if these are new."""

    step: int
    settings: Settings
    changed: bool
    snapshot: HarvesterSnapshot


class JournalStep(msgspec.Struct, frozen=True, kw_only=True):
    """Simultaneous events and the resulting decision (``None`` if the run was cut off before)."""

    number: int
    events: tuple[Event, ...]
    decision: Decision | None


def read_steps(rows: Iterable[tuple[Any, ...]], path: Path, after: int = 0) -> Iterator[JournalStep]:
    """Read steps from rows of step, number, kind and body; raise ``BadInput`` where one is missing or damaged."""
    last_step, last_number = after, 0
    for step, entries in groupby(rows, key=lambda row: row[0]):
        events: list[Event] = []
        decision: Decision | None = None
        for _, number, kind, body in entries:
            where = f"{path}: entry {number}"
            if step != last_step + 1 or (last_number and number != last_number + 1) or decision is not None:
                raise BadInput("entries before it are missing", where=where, fix=damage_remedy(path))
            last_number = number
            if kind == "event":
                events.append(wire.decode(body, Event, where=where, fix=damage_remedy(path)))
            else:
                decision = wire.decode(body, Decision, where=where, fix=damage_remedy(path))
        last_step = step
        yield JournalStep(number=step, events=tuple(events), decision=decision)


def damage_remedy(path: Path) -> str:
    """Return how to recover from a damaged journal."""
    recover = f"umask 077; sqlite3 {shlex.quote(str(path))} .recover | sqlite3 NEW"
    return f"stop the live run, then put back a backup, or: {recover}"
