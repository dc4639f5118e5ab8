"""Ports: the small contracts behind which parts can be exchanged.

A part is found by name through :mod:`bftrain.registry`: built in, or brought by any installed package through an
entry point of the group ``bftrain.<port>``. Nothing here has to be inherited from; having the methods is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.values.events import AdmissionUpdate
from bftrain.values.problem import CompetingTask
from bftrain.values.sharing import Shares, SharingProblem
from bftrain.values.solution import Limits, Solution
from bftrain.values.table import ValueTable
from bftrain.values.task import TaskSpec

if TYPE_CHECKING:
    from bftrain.values.ordered_nodes import OrderedNodes


class SolverCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a solver can do besides one kind of nodes and separate tasks, and what of a task it looks at."""

    any_coupling: bool = False  # solves tables with any coupling between tasks
    level_coupling: bool = False  # solves the couplings of bftrain.deciding.levels
    node_kinds: bool = False  # divides several kinds of nodes
    uses_history: bool = False  # looks at age, node-seconds and samples of tasks
    uses_work_left: bool = False  # looks at the work that tasks have left


class ObjectiveCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an objective asks of a solver, and what of a task it looks at."""

    any_coupling: bool = False  # ties tasks together by a coupling of its own
    level_coupling: bool = False  # gives couplings of bftrain.deciding.levels
    uses_history: bool = False  # looks at age, node-seconds and samples of tasks
    uses_work_left: bool = True  # looks at the work that tasks have left: it is kept up to date if it may
    interruptible: bool = False  # ``recast`` takes ``late`` too, a function that says whether the time is over

    def solved_by(self, solver: SolverCapabilities) -> bool:
        """Return whether a solver can be asked about this objective at all."""
        if self.any_coupling:
            return solver.any_coupling
        return not self.level_coupling or solver.any_coupling or solver.level_coupling


WORK_LEFT: Final = ObjectiveCapabilities()
SPEED_ALONE: Final = ObjectiveCapabilities(uses_work_left=False)

# The attributes by which parts without ``capabilities`` say the same, one by one
_OF_A_SOLVER: Final = {"any_coupling": "couples", "level_coupling": "levels", "node_kinds": "kinds"}
_OF_AN_OBJECTIVE: Final = {"level_coupling": "coupled"}


def solver_capabilities(solver: object) -> SolverCapabilities:
    """Return what ``solver`` says of itself, by ``capabilities`` or by single attributes such as ``kinds = True``."""
    declared = getattr(solver, "capabilities", None)
    if isinstance(declared, SolverCapabilities):
        return declared
    return SolverCapabilities(**_flags(solver, SolverCapabilities(), _OF_A_SOLVER))


def objective_capabilities(objective: object) -> ObjectiveCapabilities:
    """Return what ``objective`` says of itself, by ``capabilities`` or by attributes such as ``coupled = True``."""
    declared = getattr(objective, "capabilities", None)
    if isinstance(declared, ObjectiveCapabilities):
        return declared
    flags = _flags(objective, ObjectiveCapabilities(), _OF_AN_OBJECTIVE)
    return ObjectiveCapabilities(**{**flags, "any_coupling": hasattr(objective, "couple")})


def _flags(part: object, default: msgspec.Struct, names: dict[str, str]) -> dict[str, bool]:
    fields = type(default).__struct_fields__
    return {field: bool(getattr(part, names.get(field, field), getattr(default, field))) for field in fields}


class NamedPart(Protocol):
    """A part that says what it is called."""

    @property
    def name(self) -> str:
        """The name it is asked for by."""


class Availability(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a part can be used here; if not, ``reason`` says why and ``fix`` is the command that mends it."""

    ok: bool
    reason: str = ""
    fix: str = ""
    version: str = ""


@runtime_checkable
class Objective(NamedPart, Protocol):
    """What a decision maximises: a number per second for each task at each size.

    One that looks at all tasks at once has ``recast(table)`` too: it is given the table of these numbers over the
    horizon, costs of rescaling taken off, and gives the one that is solved, with other entries, a coupling, or both.
    ``couple(model)`` and ``total(...)`` of its own make it a coupling itself. ``capabilities``, an
    :class:`bftrain.ports.ObjectiveCapabilities`, says so, and what of a task it looks at.
    """

    def values(self, task: CompetingTask, sizes: NDArray[np.int64]) -> NDArray[np.float64]:
        """Value per second of ``task`` at every one of ``sizes`` (0, 1, 2, ...)."""


@runtime_checkable
class Solver(NamedPart, Protocol):
    """Finds the sizes of largest total value.

    ``capabilities``, a :class:`bftrain.ports.SolverCapabilities`, says which tables it solves besides
    those of one kind of nodes without a coupling, and what of a task it looks at. Without it, it does neither.
    """

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        """Choose one size per task with a sum of at most ``table.problem.pool``, and of each kind what there is of it.

        Reaching a limit or failing is a result, not an exception.
        """

    def available(self) -> Availability:
        """Say whether it can run here, without solving anything."""


@runtime_checkable
class Admission(NamedPart, Protocol):
    """Chooses who competes, by nothing but names. It is made by a factory that is given ``max_tasks``."""

    def admit(self, waiting_or_running: Iterator[str], pool: int) -> Sequence[str]:
        """Give the names that compete, out of all unfinished tasks in the order they were submitted."""


class Queue(Protocol):
    """What an admission is shown: the unfinished tasks that are not paused, and the nodes, at one moment."""

    @property
    def time_s(self) -> float:
        """The time, on the clock of the events."""

    @property
    def pools(self) -> Mapping[str, int]:
        """How many nodes are idle, held by tasks or not, by kind; where nodes have no kinds, its name is empty."""

    @property
    def pool(self) -> int:
        """The same of all kinds together."""

    def __iter__(self) -> Iterator[str]:
        """Name the tasks, in the order they were submitted."""

    def __contains__(self, task: str) -> bool:
        """Say whether this one is among them."""

    def spec(self, task: str) -> TaskSpec:
        """What is known of it now: its user, campaign, sizes, curves and so on, measurements included."""

    def size(self, task: str) -> int:
        """How many nodes it holds."""

    def work_left(self, task: str) -> float | None:
        """How many samples it still has to do, as far as is known; ``None`` if it has no end."""

    def most_nodes(self, task: str) -> int:
        """How many nodes it could hold now, if it had all of them; 0 if they are too few for it."""


@runtime_checkable
class ChoosingAdmission(NamedPart, Protocol):
    """Chooses who competes, by all there is to know.

    It is made by a factory that is given ``max_tasks``, by name the other parameters that a user sets, and the
    users' entities if it has a parameter ``entities``. One that has ``remark(spec)`` is asked of every task that is
    submitted, and what it says is noted in the next decision.
    """

    def choose(self, queue: Queue) -> Sequence[str] | Mapping[str, int]:
        """Give the names that compete, or these with the most nodes that each may get; changes nothing."""


@runtime_checkable
class NotingAdmission(ChoosingAdmission, Protocol):
    """Chooses who competes by what has happened so far. It keeps books, which survive a restart."""

    def note(self, news: AdmissionUpdate) -> None:
        """Take in what happened since the news before."""

    def kept(self) -> Mapping[str, Any]:
        """Give the books as plain data, such as JSON has."""

    def take_up(self, kept: Mapping[str, Any]) -> None:
        """Go on from these books; only for one that has heard of nothing yet."""


@runtime_checkable
class Metric(NamedPart, Protocol):
    """Draws numbers out of a finished run. A plain function of a run will do: it gives one number, called like it."""

    @property
    def figures(self) -> Sequence[str]:
        """The names of its numbers, the same for every run."""

    def measure(self, run: Any) -> Mapping[str, object]:  # noqa: ANN401 - a bftrain_replay.results.result.ReplayResult
        """Give a number for each of the names, ``None`` for unknown ones."""


@runtime_checkable
class Placement(Protocol):
    """Chooses nodes once sizes are decided. Nodes that became idle together carry the same group number."""

    name: str

    def give_up(self, held: Mapping[str, int], count: int) -> Sequence[str]:
        """Choose ``count`` of the nodes a shrinking task holds (node -> group)."""

    def take(self, held: Mapping[str, int], free: Mapping[int, Mapping[str, None]], count: int) -> Sequence[str]:
        """Choose ``count`` of the free nodes (group -> nodes) for a task that holds ``held`` (node -> group)."""


@runtime_checkable
class OrderedPlacement(Placement, Protocol):
    """Chooses nodes by a position. The free ones are kept in its order, so that choosing is fast in any pool."""

    def position(self, node: str) -> int:
        """Return where a node lies, as a number of at most 63 bits that never changes."""

    def take_ordered(self, held: Mapping[str, int], free: OrderedNodes, count: int) -> Sequence[str]:
        """Choose ``count`` of the free nodes for a task that holds ``held`` (node -> group)."""


@runtime_checkable
class Launcher(Protocol):
    """Carries actions out with real processes. ``bftrain_elastic.conformance`` checks one.

    A factory makes it from the receiver of its messages and the hub of all agents. It can be written with the
    standard library alone: so it takes and sends JSON forms, which ``bftrain.launcher_orders`` makes and reads.
    docs/adding/launcher.md describes them.

    With each step it tells a ``report``, if it can with the running sum ``total`` of samples since step ``since``, so
    that nothing is missing where reports are lost. ``in_memory`` tells the step whose state at least two nodes hold,
    ``on_disk`` the one whose state survives the loss of all nodes.
    """

    name: str

    def add(self, task: str, job: Mapping[str, Any]) -> None:
        """Know what to run for a task, before its first action.

        A job has ``argv``, ``folder``, ``cwd``, ``env``, ``stop_grace_s`` and ``workers_per_node``. ``finish_code``,
        ``finish_file``, ``work_samples``, ``stall_limit_s``, ``setup``, ``prefix`` and ``python`` are there only if
        they say something.
        """

    def apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        """Carry out actions, given in their JSON form; returns at once, results come as messages."""

    def drop(self, task: str) -> None:
        """Forget a task that is over; what is left of it is killed."""

    def close(self) -> None:
        """End all that was started; returns when it is gone."""


@runtime_checkable
class SharingPolicy(NamedPart, Protocol):
    """Divides the time of nodes of several kinds over tasks that need a fixed number of them.

    One that cannot do without the work left says so by an attribute ``needs_work = True``: rounds then refuse a task
    without an end before they begin.
    """

    def share(self, problem: SharingProblem) -> Shares:
        """Give every task its shares of time; together they need no more nodes of a kind than there are."""
