"""A table of several kinds of nodes solved: by the search, and by HiGHS where the search gives up."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
from msgspec.structs import replace

from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain_solvers.answers import kinds_of, named, total
from bftrain_solvers.node_kinds.search import best_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bftrain.ports import Solver
    from bftrain_solvers.node_kinds.search import KindSearchResult


def solved(
    table: ValueTable, limits: Limits, name: str, further: Solver, start: Sequence[int] | None = None
) -> Solution:
    """Search, and have ``further`` look at what is left open within the time that is left; answers as ``name``.

    ``start`` is a plan that is known to fit, so that the answer is no worse.
    """
    started = perf_counter()
    found = best_columns(table, started + limits.deadline_s, limits.relative_gap, start)
    answer = _answer(table, found, name)
    left_s = limits.deadline_s - (perf_counter() - started)
    if found.open is not None and left_s > 0.0:
        found.open[:, 0] = True  # a table always allows no node
        few = ValueTable(problem=table.problem, values=np.where(found.open, table.values, -np.inf))
        tried = replace(limits, deadline_s=left_s)
        answer = _better(answer, further.solve(few, tried), f"search given up, {further.name} asked")
    return replace(answer, wall_s=perf_counter() - started)


def _answer(table: ValueTable, found: KindSearchResult, name: str) -> Solution:
    value = total(table, found.columns)
    return Solution(
        sizes=named(table, found.columns),
        kinds=kinds_of(table, found.columns),
        value=value,
        bound=value if found.bound is None else max(found.bound, value),
        termination=found.termination,
        quality=Quality.PROVEN if found.bound is None else Quality.FEASIBLE,
        solver=name,
    )


def _better(answer: Solution, second: Solution, words: str) -> Solution:
    """Give the better plan of the two with the better bound: all plans better than the first are open to the second."""
    words = f"{words}: {second.solver_words}"
    if second.value is None or answer.value is None:
        return replace(answer, solver_words=words)
    best = second if second.value >= answer.value else answer
    value = max(second.value, answer.value)
    proven = second.termination is Termination.OPTIMAL
    bounds = [bound for bound in (answer.bound, second.bound) if bound is not None]
    return replace(
        answer,
        sizes=best.sizes,
        kinds=best.kinds,
        value=value,
        bound=value if proven else max(value, min(bounds)),
        termination=second.termination,
        quality=Quality.PROVEN if proven else Quality.FEASIBLE,
        solver_words=words,
    )
