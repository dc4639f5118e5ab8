"""Build solutions in one form: every solver here words refusals and computes values alike."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from bftrain.values.mapped import NOTHING
from bftrain.values.solution import Solution

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    """Value of the columns in the order of the tasks, correctly rounded in any order."""
    if table.coupled:
        return table.value_at(chosen)
    return fsum(map(float, table.values[range(len(chosen)), chosen])) if chosen else 0.0


def named(table: ValueTable, chosen: Sequence[int]) -> dict[str, int]:
    """Give each task, by name, the size that its column stands for."""
    sizes = table.nodes[list(chosen)].tolist() if table.columns.several else chosen
    return dict(zip((task.name for task in table.problem.tasks), sizes, strict=True))


def kinds_of(table: ValueTable, chosen: Sequence[int]) -> Mapping[str, str]:
    """Return the kind of every task's nodes, if nodes have kinds."""
    if not table.problem.pools:
        return NOTHING
    kinds = (*table.kinds, "")  # the last one for tasks that get nothing
    places = table.kind_of[list(chosen)].tolist()
    by_task = zip((task.name for task in table.problem.tasks), (kinds[place] for place in places), strict=True)
    return {task: kind for task, kind in by_task if kind}
