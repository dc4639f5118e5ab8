"""RuleSolver: a solver that follows a rule; it always ends, gives allowed sizes, and proves nothing."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from bftrain.ports import Availability
from bftrain.values.capabilities import SolverCapabilities
from bftrain.values.solution import Quality, Solution, Termination
from bftrain.version import __version__
from bftrain_solvers.answers import kinds_of, named, total

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bftrain.values.solution import Limits
    from bftrain.values.table import ValueTable


class RuleSolver:
    """Divides by ``rule``, which gives the columns in the order of the tasks; ``words`` tell what it looks at.

    One that does not look at the entries at all ignores the objective, so it can say that it solves any coupling.

    As a fall-back it also answers where an objective ties tasks together: its sizes are allowed, if not the best.
    """

    def __init__(
        self,
        name: str,
        words: str,
        rule: Callable[[ValueTable], Sequence[int]],
        capabilities: SolverCapabilities,
    ) -> None:
        self.name: Final = name
        self.capabilities: Final = capabilities
        self._words = words
        self._rule = rule

    def available(self) -> Availability:
        """It is always available."""
        return Availability(ok=True, version=__version__)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:  # noqa: ARG002 - it is done before any limit
        """Choose one size per task."""
        started = perf_counter()
        chosen = self._rule(table)
        return Solution(
            sizes=named(table, chosen),
            value=total(table, chosen),
            bound=None,
            termination=Termination.HEURISTIC,
            quality=Quality.FEASIBLE,
            solver=self.name,
            solver_words=self._words,
            wall_s=perf_counter() - started,
            kinds=kinds_of(table, chosen),
        )
