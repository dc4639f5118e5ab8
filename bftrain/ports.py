"""Ports: the protocols of exchangeable parts.

A part is found by name through :mod:`bftrain.registry`: built in, or from an installed package with an
entry point of the group ``bftrain.<port>``. Inheritance is not required; having the methods is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.values.events import AdmissionUpdate
from bftrain.values.problem import CompetingTask
from bftrain.values.sharing import Shares, SharingProblem
from bftrain.values.solution import Limits, Solution
from bftrain.values.table import ValueTable
from bftrain.values.task import TaskSpec


class SolverCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Features of a solver beyond one node kind and separate tasks, and the task fields it uses."""

    any_coupling: bool = False  # supports any coupling between tasks
    level_coupling: bool = False  # supports the couplings of bftrain.deciding.levels
    node_kinds: bool = False  # supports several node kinds
    uses_history: bool = False  # uses age, node-seconds and samples of tasks
    uses_work_left: bool = False  # uses the remaining work of tasks
    stateful: bool = False  # answers depend on earlier tables, so reruns repeat the recorded answers


class ObjectiveCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Requirements of an objective for solvers, and the task fields it uses."""

    any_coupling: bool = False  # has its own coupling between tasks
    level_coupling: bool = False  # uses couplings of bftrain.deciding.levels
    uses_history: bool = False  # uses age, node-seconds and samples of tasks
    uses_work_left: bool = True  # uses the remaining work; live runs update it before each decision

    def solved_by(self, solver: SolverCapabilities) -> bool:
        """Return whether a solver with the capabilities ``solver`` supports this objective."""
        if self.any_coupling:
            return solver.any_coupling
        return not self.level_coupling or solver.any_coupling or solver.level_coupling


WORK_LEFT: Final = ObjectiveCapabilities()
SPEED_ALONE: Final = ObjectiveCapabilities(uses_work_left=False)


def solver_capabilities(solver: object) -> SolverCapabilities:
    """Return the declared ``capabilities`` of ``solver``, or the default ones."""
    declared = getattr(solver, "capabilities", None)
    return declared if isinstance(declared, SolverCapabilities) else SolverCapabilities()


def objective_capabilities(objective: object) -> ObjectiveCapabilities:
    """Return the declared ``capabilities`` of ``objective``, or the default ones."""
    declared = getattr(objective, "capabilities", None)
    if isinstance(declared, ObjectiveCapabilities):
        return declared
    return ObjectiveCapabilities(any_coupling=hasattr(objective, "couple"))


class NamedPart(Protocol):
    """A part with a name."""

    @property
    def name(self) -> str:
        """The name under which settings refer to it."""


class Availability(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a part can be used here; if not, ``reason`` is the cause and ``fix`` a command or advice.

    A usable part may also have a ``reason``: its limitation.
    """

    ok: bool
    reason: str = ""
    fix: str = ""
    version: str = ""


@runtime_checkable
class Objective(NamedPart, Protocol):
    """The quantity that a decision maximises: a number per second for each task at each size.

    An objective on all tasks together also has ``recast(table)``: it receives the table of these numbers over the
    horizon, minus rescaling costs, and returns the table to solve, with other entries, a coupling, or both.
    With methods ``couple(model)`` and ``total(...)`` it is a coupling itself. ``capabilities``, an
    :class:`bftrain.ports.ObjectiveCapabilities`, declares this, and the required task fields.
    """

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the value per second of ``task`` at each of ``sizes`` (0, 1, 2, ...)."""


@runtime_checkable
class Solver(NamedPart, Protocol):
    """Finds the sizes with the largest total value.

    ``capabilities``, a :class:`bftrain.ports.SolverCapabilities`, declares the supported tables (by default only
    uncoupled tables of one node kind), and the required task fields (default: none).
    """

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        """Choose one size per task with a total within ``table.problem.pool``, also for each node kind.

        Reaching one of the ``limits`` or failing is a result, not an exception.
        """

    def available(self) -> Availability:
        """Return whether the solver can run here, without solving anything."""


class Queue(Protocol):
    """The input of an admission: the unfinished tasks that are not paused, and the nodes, at one moment."""

    @property
    def time_s(self) -> float:
        """The time, on the clock of the events."""

    @property
    def pools(self) -> Mapping[str, int]:
        """Number of idle nodes by kind, including allocated nodes; the empty name if nodes have no kinds."""

    @property
    def pool(self) -> int:
        """Number of idle nodes of all kinds."""

    def __iter__(self) -> Iterator[str]:
        """Iterate over the task names, by submission."""

    def __contains__(self, task: str) -> bool:
        """Return whether ``task`` is in the queue."""

    def spec(self, task: str) -> TaskSpec:
        """Return the latest description of ``task``: user, campaign, sizes, curves and so on, measurements included."""

    def size(self, task: str) -> int:
        """Return the number of nodes allocated to ``task``."""

    def work_left(self, task: str) -> float | None:
        """Return the remaining samples of ``task``; ``None`` if unknown or endless."""

    def most_nodes(self, task: str) -> int:
        """Return the size of ``task`` if it had all idle nodes; 0 if it needs more."""


@runtime_checkable
class Admission(NamedPart, Protocol):
    """Chooses the competing tasks from all available data.

    Created by a factory with the argument ``max_tasks``, keyword arguments for the user's settings, and the
    users' entities if it has a parameter ``entities``. A method ``remark(spec)`` is called for every submitted
    task, and its text becomes a note of the next decision.
    """

    def choose(self, queue: Queue) -> Sequence[str] | Mapping[str, int]:
        """Return the competing tasks of ``queue``, optionally with size limits; must not change any state."""


@runtime_checkable
class NotingAdmission(Admission, Protocol):
    """Chooses the competing tasks from the history, which it records and which survives a restart."""

    def note(self, news: AdmissionUpdate) -> None:
        """Process ``news``, the changes since the previous update."""

    def kept(self) -> Mapping[str, Any]:
        """Return the state as plain JSON data."""

    def take_up(self, kept: Mapping[str, Any]) -> None:
        """Restore the state ``kept``; called only before the first update."""


@runtime_checkable
class Metric(NamedPart, Protocol):
    """Computes numbers from a finished run. A plain function of a run is enough: it returns one number."""

    @property
    def figures(self) -> Sequence[str]:
        """The labels of its numbers, equal for every run."""

    def measure(self, run: Any) -> Mapping[str, object]:  # noqa: ANN401 - a bftrain_replay.run.result.ReplayResult
        """Return a number of ``run`` for each of ``figures``, ``None`` for unknown numbers."""


class Placement(Protocol):
    """Chooses nodes once sizes are decided. Nodes that became idle together carry the same group number."""

    name: str

    def give_up(self, held: Mapping[str, int], count: int) -> Sequence[str]:
        """Return ``count`` nodes for a shrinking task to release, from ``held`` (node -> group)."""

    def take(self, held: Mapping[str, int], free: Mapping[int, Mapping[str, None]], count: int) -> Sequence[str]:
        """Return ``count`` nodes of ``free`` (group -> nodes) for a task with the nodes ``held`` (node -> group)."""


@runtime_checkable
class Launcher(Protocol):
    """Executes actions with real processes; docs/how-to/parts.md shows how to test one.

    A factory creates it from the receiver of its messages and the hub of all agents. To need only the
    standard library, it exchanges JSON forms, which docs/how-to/parts.md describes.

    Each step leads to a ``report``, if possible with the running sum ``total`` of samples since step ``since``, which
    makes lost reports harmless. ``in_memory`` is the last step whose state is on two or more nodes,
    ``on_disk`` the last step whose state survives the loss of all nodes.
    """

    name: str

    def add(self, task: str, job: Mapping[str, Any]) -> None:
        """Receive the ``job`` of ``task``, before its first action.

        A job has ``argv``, ``folder``, ``cwd``, ``env``, ``stop_grace_s``, ``workers_per_node`` and ``identity``, which
        no other task ever has. ``finish_code``, ``finish_file``, ``work_samples``, ``stall_limit_s``, ``setup``,
        ``prefix`` and ``python`` are optional.
        """

    def apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Execute ``actions`` in JSON form without blocking; results arrive as messages."""

    def drop(self, task: str) -> None:
        """Forget the finished ``task`` and kill its remaining processes."""

    def close(self) -> None:
        """Stop all processes; return after they have exited."""


@runtime_checkable
class SharingPolicy(NamedPart, Protocol):
    """Divides the time of several node kinds among tasks with a fixed number of nodes.

    A policy that requires the remaining work has an attribute ``needs_work = True``: rounds then reject a task
    without an end at the start.
    """

    def share(self, problem: SharingProblem) -> Shares:
        """Return the shares of time of each task in ``problem``; together they must fit the nodes of each kind."""
