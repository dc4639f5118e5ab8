"""Builds solutions in one form, also for rules: RuleSolver."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType
from typing import Final, TypeVar

import numpy as np

from bftrain.ports import Availability, SolverCapabilities
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain.values.wire import NOTHING, unchecked
from bftrain.version import __version__
from bftrain_solvers.arrays import Floats, Integers

Item = TypeVar("Item")

_PROVEN: Final = Solution(
    sizes={}, value=0.0, bound=0.0, termination=Termination.OPTIMAL, quality=Quality.PROVEN, solver="exact"
)


class DeadlinePassed(Exception):
    """The deadline has passed."""


def in_time(items: Iterable[Item], stop_at: float) -> Iterator[Item]:
    """Yield the items until ``stop_at``, then raise :class:`DeadlinePassed`."""
    for item in items:
        if perf_counter() > stop_at:
            raise DeadlinePassed
        yield item


def answer(
    table: ValueTable,
    chosen: Sequence[int],
    solver: str,
    termination: Termination,
    *,
    proven: bool,
    bound: float | None = None,
    words: str = "",
    started: float,
) -> Solution:
    """Return the columns, in task sequence, as a solution; a proven solution without ``bound`` is its own bound."""
    value = table.value_at(chosen)
    if proven and bound is None and not table.problem.pools and not words:
        sizes, wall_s = MappingProxyType(named(table, chosen)), perf_counter() - started
        return unchecked(_PROVEN, sizes=sizes, value=value, bound=value, solver=solver, wall_s=wall_s)
    if bound is not None:
        bound = max(bound, value)
    return Solution(
        sizes=named(table, chosen),
        value=value,
        bound=value if proven and bound is None else bound,
        termination=termination,
        quality=Quality.PROVEN if proven else Quality.FEASIBLE,
        solver=solver,
        solver_words=words,
        wall_s=perf_counter() - started,
        kinds=kinds_of(table, chosen),
    )


def named(table: ValueTable, chosen: Sequence[int]) -> dict[str, int]:
    """Return the size of each task's column, by name."""
    sizes = table.nodes[list(chosen)].tolist() if table.columns.several else chosen
    return dict(zip(table.names, sizes, strict=True))


def kinds_of(table: ValueTable, chosen: Sequence[int]) -> Mapping[str, str]:
    """Return the kind of every task's nodes, if nodes have kinds."""
    if not table.problem.pools:
        return NOTHING
    kinds = (*table.kinds, "")  # the last entry is for tasks without nodes
    places = table.kind_of[list(chosen)].tolist()
    return {task: kinds[place] for task, place in zip(table.names, places, strict=True) if kinds[place]}


def staying(values: Floats, present: Integers) -> Integers:
    """Return the column at which each row stays: ``present`` if allowed, otherwise column 0."""
    inside = np.where(present < values.shape[1], present, 0)
    return np.where(values[np.arange(len(values)), inside] > -np.inf, inside, 0)


def unchanged(table: ValueTable, solver: str, started: float) -> Solution:
    """Return the solution after a missed deadline: tasks keep their sizes.

    Tasks at a size that is no longer allowed stop.
    """
    stay = staying(table.values, table.columns.present(table.problem.tasks)).tolist()
    words = "the deadline passed before there was a plan: no change"
    return answer(table, stay, solver, Termination.TIME_LIMIT, proven=False, words=words, started=started)


@dataclass(eq=False)
class RuleSolver:
    """A solver by ``rule``, which returns the columns in task sequence; ``words`` describe the rule.

    It returns allowed sizes without a proof. A rule that does not use the entries ignores the objective and may
    therefore claim to solve any coupling. A rule that misses its deadline changes no sizes, or returns its current
    choice.

    As a fallback it also answers for objectives that couple tasks: its sizes are allowed, if not optimal.
    """

    name: str
    words: str
    rule: Callable[[ValueTable, float], Sequence[int]]
    capabilities: SolverCapabilities

    def available(self) -> Availability:
        """Return that it is always available."""
        return Availability(ok=True, version=__version__)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        """Choose one size per task."""
        started = perf_counter()
        stop_at = started + limits.deadline_s
        try:
            chosen = self.rule(table, stop_at)
        except DeadlinePassed:
            return unchanged(table, self.name, started)
        termination = Termination.TIME_LIMIT if perf_counter() > stop_at else Termination.HEURISTIC
        return answer(table, chosen, self.name, termination, proven=False, words=self.words, started=started)
