"""Raising the worst-off first over one and several kinds of nodes, on tables full of ties, against every division."""

from __future__ import annotations

import re
from math import inf

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain import AllocationProblem, CompetingTask, Limits, Solution, SpeedCurve, ValueTable
from bftrain.deciding.levels import LevelCoupling
from tests.helpers.named_parts import EXACT
from tests.helpers.policy_cases import divisions

_LARGEST = 3  # nodes that a task may have
_ABOUT_LEVELS = "chosen by"
_MORE = re.compile(r"([0-9.e+-]+)( %)? more could be done, at most")


@st.composite
def tables(draw: st.DrawFn) -> ValueTable:
    """Few different levels, so that many are equally badly off, and some tasks that are the same as others."""
    kinds = draw(st.integers(1, 3))
    pools = {f"k{kind}": draw(st.integers(0, 3 if kinds > 1 else 7)) for kind in range(kinds)}
    width = sum(min(_LARGEST, count) for count in pools.values())
    least = st.sampled_from([0.0, 0.0, 0.5, 1.0])
    levels = st.lists(st.sampled_from([-inf, 0.0, 0.0, 1.0, 1.0, 2.0, 3.0, 4.0]), min_size=width, max_size=width)
    row = st.tuples(least, levels).map(lambda parts: [parts[0], *parts[1]])
    different = draw(st.lists(row, min_size=1, max_size=4))
    rows = draw(st.lists(st.sampled_from(different), min_size=1, max_size=4))
    done = st.lists(st.integers(0, 5).map(float), min_size=width, max_size=width).map(lambda rest: [0.0, *rest])
    spare = draw(st.lists(done, min_size=len(rows), max_size=len(rows)))
    counted = draw(st.sets(st.integers(0, len(rows) - 1)))
    coupling = LevelCoupling(
        counted=tuple(sorted(counted)),
        spare=np.array(spare),
        first=draw(st.one_of(st.none(), st.integers(1, len(rows)))),
    )
    curve = SpeedCurve(nodes=(1,), rate=(1.0,))
    tasks = tuple(CompetingTask(name=f"t{place}", max_nodes=_LARGEST, curve=curve) for place in range(len(rows)))
    by_kind = pools if kinds > 1 else {}
    problem = AllocationProblem(pool=sum(pools.values()), pools=by_kind, horizon_s=1.0, tasks=tasks)
    return ValueTable(problem=problem, values=np.array(rows), coupling=coupling)


def reached(table: ValueTable, chosen: tuple[int, ...]) -> tuple[list[float], float]:
    """Return the levels that matter, the worst first, and what is done."""
    coupling = table.coupling
    assert isinstance(coupling, LevelCoupling)
    levels = sorted(table.values[place, chosen[place]] for place in coupling.counted)
    return levels[: coupling.first], sum(coupling.spare[place, column] for place, column in enumerate(chosen))


def found_in(table: ValueTable, solution: Solution) -> tuple[list[float], float]:
    assert table.allowed(solution.sizes, solution.kinds)
    chosen = table.chosen(solution.sizes, solution.kinds)
    assert chosen is not None
    return reached(table, tuple(chosen))


@settings(max_examples=150, deadline=None)
@given(tables())
def test_no_task_could_be_better_off_and_what_is_not_the_most_is_said(table: ValueTable) -> None:
    best_levels, most = max(reached(table, chosen) for chosen in divisions(table))
    solution = EXACT.solve(table, Limits())
    levels, done = found_in(table, solution)
    if _ABOUT_LEVELS in solution.solver_words:
        assert levels[:1] == best_levels[:1]
        return
    assert levels == best_levels
    bounds_named = [
        float(figure) / 100.0 * (done if percent else 100.0) for figure, percent in _MORE.findall(solution.solver_words)
    ]
    assert done <= most <= done + max(bounds_named, default=0.0) + 1e-9
