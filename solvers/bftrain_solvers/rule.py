"""A solver that is only a rule: it runs to its end, gives allowed sizes, and proves nothing."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Final

from bftrain import __version__
from bftrain.ports import Availability
from bftrain.values.solution import Quality, Solution, Termination
from bftrain_solvers.answers import named, refusal, total

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bftrain.values.solution import Limits
    from bftrain.values.table import ValueTable


class RuleSolver:
    """Divides by ``rule``, which gives the sizes in the order of the tasks; ``words`` tell what it looks at."""

    def __init__(self, name: str, words: str, rule: Callable[[ValueTable], Sequence[int]]) -> None:
        self.name: Final = name
        self._words = words
        self._rule = rule

    def available(self) -> Availability:
        """It is always available."""
        return Availability(ok=True, version=__version__)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:  # noqa: ARG002 - it is done before any limit
        """Choose one size per task."""
        started = perf_counter()
        refused = refusal(table, self.name)
        if refused is not None:
            return refused
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
        )
