"""``exact``: the best sizes there are, and their proof."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np
from msgspec.structs import replace

from bftrain.deciding.levels import GroupLevels, LevelCoupling
from bftrain.ports import Availability
from bftrain.values.capabilities import SolverCapabilities
from bftrain.values.solution import Quality, Solution, Termination
from bftrain.version import __version__
from bftrain_solvers.answers import kinds_of, named, refusal, total
from bftrain_solvers.highs import solver as highs
from bftrain_solvers.knapsack.search import best_sizes

if TYPE_CHECKING:
    from bftrain.values.solution import Limits
    from bftrain.values.table import ValueTable


class ExactSolver:
    """A multiple-choice knapsack over sizes, solved in whole numbers: see :mod:`bftrain_solvers.knapsack`.

    The entries of the table are rounded to a grid of at most 2**-42 of the largest (1,000 tasks of 64 nodes; finer
    for fewer), and on it the answer is the optimum without any tolerance: that is what "bound equals value"
    says. Of equal plans it gives the one with fewest rescales, then with fewest nodes, then the one that gives more to
    the first task in which they differ. The gap and the number of threads in the limits are not needed.

    Where the worst-off is to be raised first it climbs: see :mod:`bftrain_solvers.max_min`. Over several kinds of nodes
    it has a search of its own, see :mod:`bftrain_solvers.node_kinds`; what that gives up, HiGHS looks at.
    """

    name: Final = "exact"
    capabilities: Final = SolverCapabilities(level_coupling=True, node_kinds=True)

    def available(self) -> Availability:
        """It is always available: it needs numpy only."""
        return Availability(ok=True, version=__version__)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        """Choose one size per task."""
        coupling = table.coupling
        if isinstance(coupling, LevelCoupling | GroupLevels):
            return self._worst_first(table, coupling, limits)
        started = perf_counter()
        refused = refusal(table, self.name)
        if refused is not None:
            return refused
        problem = table.problem
        if not problem.tasks:
            return _answer(table, [], None, self.name, started)
        if table.columns.several and not table.coupled:
            return self._over_kinds(table, limits)
        present = np.array([task.size for task in problem.tasks])
        found = best_sizes(table.values, present, problem.pool, started + limits.deadline_s)
        return _answer(table, found.sizes, found.bound, self.name, started)

    def _worst_first(self, table: ValueTable, coupling: LevelCoupling | GroupLevels, limits: Limits) -> Solution:
        """Raise the worst-off first."""
        from bftrain_solvers.max_min.search import worst_first, worst_first_over_kinds  # noqa: PLC0415 - 50 ms

        started = perf_counter()
        if not table.problem.tasks:
            return _answer(table, [], None, self.name, started)
        if table.columns.several:
            return replace(worst_first_over_kinds(table, coupling, limits), solver=self.name)
        sizes, words = worst_first(table, coupling, started + limits.deadline_s)
        return _answer(table, sizes, None, self.name, started, words)

    def _over_kinds(self, table: ValueTable, limits: Limits) -> Solution:
        """Choose sizes over several kinds of nodes."""
        from bftrain_solvers.node_kinds.solving import solved  # noqa: PLC0415 - most replays have one kind

        return solved(table, limits, self.name, highs)


def _answer(
    table: ValueTable, sizes: list[int], bound: float | None, solver: str, started: float, words: str = ""
) -> Solution:
    value = total(table, sizes)
    proven = bound is None
    return Solution(
        sizes=named(table, sizes),
        value=value,
        bound=value if bound is None else max(bound, value),
        termination=Termination.OPTIMAL if proven else Termination.TIME_LIMIT,
        quality=Quality.PROVEN if proven else Quality.FEASIBLE,
        solver=solver,
        solver_words=words,
        wall_s=perf_counter() - started,
        kinds=kinds_of(table, sizes),
    )


solver = ExactSolver()
