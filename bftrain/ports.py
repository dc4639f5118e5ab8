"""Ports: the small contracts behind which parts can be exchanged.

A part is found by name through :mod:`bftrain.registry`: built in, or brought by any installed package through an
entry point of the group ``bftrain.<port>``. Nothing here has to be inherited from; having the methods is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.values.events import Event
from bftrain.values.problem import CompetingTask
from bftrain.values.solution import Limits, Solution
from bftrain.values.table import ValueTable

if TYPE_CHECKING:  # types only: whoever imports the ports still touches no file, and no sibling
    from bftrain_datasets.importing.intake import Intake
    from bftrain_datasets.importing.rawfile import RawFile


class Availability(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a part can be used here; if not, ``reason`` says why and ``fix`` is the command that mends it."""

    ok: bool
    reason: str = ""
    fix: str = ""
    version: str = ""


@runtime_checkable
class Objective(Protocol):
    """What a decision maximises: a number per second for each task at each size."""

    @property
    def name(self) -> str:
        """The name it is asked for by."""
        ...

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Value per second of ``task`` at every one of ``sizes`` (0, 1, 2, ...)."""
        ...


@runtime_checkable
class Solver(Protocol):
    """Finds the sizes of largest total value.

    One that also solves tables with a coupling says so by an attribute ``couples = True``; others refuse these.
    """

    @property
    def name(self) -> str:
        """The name it is asked for by."""
        ...

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        """Choose one size per task with a sum of at most ``table.problem.pool``.

        Reaching a limit or failing is a result, not an exception.
        """
        ...

    def available(self) -> Availability:
        """Say whether it can run here, without solving anything."""
        ...


@runtime_checkable
class Admission(Protocol):
    """Chooses who competes."""

    name: str

    def admit(self, waiting_or_running: Iterator[str], pool: int) -> Sequence[str]:
        """Give the names that compete, out of all unfinished tasks in the order they were submitted."""
        ...


@runtime_checkable
class Placement(Protocol):
    """Chooses nodes once sizes are decided. Nodes that became idle together carry the same group number."""

    name: str

    def give_up(self, held: Mapping[str, int], count: int) -> Sequence[str]:
        """Choose ``count`` of the nodes a shrinking task holds (node -> group)."""
        ...

    def take(self, held: Mapping[str, int], free: Mapping[int, Mapping[str, None]], count: int) -> Sequence[str]:
        """Choose ``count`` of the free nodes (group -> nodes) for a task that holds ``held`` (node -> group)."""
        ...


@runtime_checkable
class EventSource(Protocol):
    """Where events come from: a recorded log, or a running scheduler."""

    def events(self) -> Iterator[Event]:
        """Events in order of time."""
        ...


@runtime_checkable
class Launcher(Protocol):
    """Carries actions out with real processes. ``bftrain_elastic.conformance`` checks one.

    It is made by a factory that is given whom to tell and the hub of all agents, and it can be written with the
    standard library alone: so it takes and tells JSON forms, which ``bftrain.launching`` makes and reads.
    docs/elastic.md describes them.
    """

    name: str

    def add(self, task: str, job: Mapping[str, Any]) -> None:
        """Know what to run for a task, before its first action."""
        ...

    def apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Carry out actions, given in their JSON form; returns at once, results are told."""
        ...

    def drop(self, task: str) -> None:
        """Forget a task that is over; what is left of it is killed."""
        ...

    def close(self) -> None:
        """End all that was started; returns when it is gone."""
        ...


@runtime_checkable
class LogReader(Protocol):
    """Reads one format of what schedulers write. A module with these names will do."""

    @property
    def name(self) -> str:
        """The name it is asked for by."""
        ...

    @property
    def about(self) -> str:
        """Which scheduler, and what of it: one line."""
        ...

    def recognises(self, head: bytes) -> bool:
        """Say whether a file that begins with ``head`` is of this format."""
        ...

    def read(self, file: RawFile, intake: Intake) -> None:
        """Tell the intake of every row in the file."""
        ...
