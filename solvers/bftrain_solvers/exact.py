"""``exact``: optimal sizes with a proof."""

from __future__ import annotations

from time import perf_counter
from typing import Final

from msgspec.structs import replace

from bftrain.deciding.levels import GroupLevels, LevelCoupling
from bftrain.ports import Availability, SolverCapabilities
from bftrain.values.solution import Limits, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain.version import __version__
from bftrain_solvers.answers import DeadlinePassed, answer, unchanged
from bftrain_solvers.knapsack.best_sizes import best_sizes
from bftrain_solvers.knapsack.compiled_knapsack import compiled_knapsack, why_numpy


class ExactSolver:
    """A multiple-choice knapsack over integer sizes: see :mod:`bftrain_solvers.knapsack.best_sizes`.

    The table's entries are rounded to a grid of 2**-42 of the largest entry for 1,000 tasks of 64 nodes, finer for
    fewer. On this grid the result is optimal without any tolerance, and the bound equals the value. Ties are
    broken by the fewest rescales, then the fewest nodes, then the larger size of the first task that differs. The gap
    and the number of threads in the limits are not used.

    Max-min objectives are solved level by level: see :mod:`bftrain_solvers.max_min`. Several node kinds have a search
    of their own: see :mod:`bftrain_solvers.node_kinds`; HiGHS solves the remainder if that search gives up.
    """

    name: Final = "exact"
    capabilities: Final = SolverCapabilities(level_coupling=True, node_kinds=True)

    def available(self) -> Availability:
        """Return that it is always available, and whether it has compiled code."""
        if compiled_knapsack() is not None:
            return Availability(ok=True, version=__version__)
        reason, fix = why_numpy()
        return Availability(ok=True, version=__version__, reason=f"numpy only, so it takes longer: {reason}", fix=fix)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        """Choose one size per task."""
        started = perf_counter()
        if table.coupled and not isinstance(table.coupling, LevelCoupling | GroupLevels):
            return Solution.failed(
                self.name,
                f"the objective '{table.problem.objective}' ties tasks together, which 'exact' cannot express; "
                "use highs, gurobi or cbc",
            )
        try:
            return self._solved(table, limits, started)
        except DeadlinePassed:
            return unchanged(table, self.name, started)

    def _solved(self, table: ValueTable, limits: Limits, started: float) -> Solution:
        coupling, problem, several = table.coupling, table.problem, table.columns.several
        termination, bound, words = Termination.OPTIMAL, None, ""
        if not problem.tasks:
            sizes: list[int] = []
        elif isinstance(coupling, LevelCoupling | GroupLevels):
            if several:
                from bftrain_solvers.max_min.several_kinds import worst_first_over_kinds  # noqa: PLC0415 - 50 ms

                return replace(worst_first_over_kinds(table, coupling, limits), solver=self.name)
            from bftrain_solvers.max_min import one_kind  # noqa: PLC0415 - for fair objectives only

            sizes, words = one_kind.worst_first(table, coupling, started + limits.deadline_s)
        elif several:
            from bftrain_solvers.highs import solver as highs  # noqa: PLC0415 - most replays have one kind
            from bftrain_solvers.node_kinds.search import solved  # noqa: PLC0415 - most replays have one kind

            return solved(table, limits, self.name, highs)
        else:
            present = [task.size for task in problem.tasks]
            stop_at = started + limits.deadline_s
            found = best_sizes(table.values, present, problem.pool, stop_at)
            sizes, bound = found.sizes, found.bound
            termination = Termination.OPTIMAL if bound is None else Termination.TIME_LIMIT
        return answer(
            table, sizes, self.name, termination, proven=bound is None, bound=bound, words=words, started=started
        )


solver = ExactSolver()
