"""How every solver here answers: the same words for a refusal, the same arithmetic for a value."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from bftrain.values.solution import Solution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bftrain.values.table import ValueTable


def refusal(table: ValueTable, solver: str) -> Solution | None:
    """Refuse a table whose entries are not the whole objective; ``None`` if they are."""
    if not table.coupled:
        return None
    return Solution.failed(
        solver,
        f"the objective '{table.problem.objective}' ties tasks together, which '{solver}' cannot express; "
        "use highs, gurobi or cbc",
    )


def total(table: ValueTable, chosen: Sequence[int]) -> float:
    """Value of the sizes in the order of the tasks, correctly rounded whatever that order is."""
    return fsum(map(float, table.values[range(len(chosen)), chosen])) if chosen else 0.0


def named(table: ValueTable, chosen: Sequence[int]) -> dict[str, int]:
    """Give each size to the name of its task."""
    return dict(zip((task.name for task in table.problem.tasks), chosen, strict=True))
