"""The search that raises the worst-off first, on step_lists full of ties, against every division there is."""

from __future__ import annotations

from itertools import product
from math import inf

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain.deciding.levels import UserGroup
from bftrain_solvers.max_min.one_kind import GroupBudget, LevelsReached, divided, level_steps

# Few different numbers, so that many are equally badly off
_ROW = st.lists(st.sampled_from([-inf, 0.0, 0.0, 1.0, 1.0, 2.0, 3.0]), max_size=4).map(lambda rest: [0.0, *rest])
_ROWS = st.lists(_ROW, min_size=1, max_size=4)
_POOL = st.integers(0, 9)


def best(rows: list[list[float]], pool: int) -> list[float]:
    """Try all: the largest smallest level, then the largest second smallest, and so on."""
    choices = product(*([size for size, level in enumerate(row) if level > -inf] for row in rows))
    return max(
        sorted(row[size] for row, size in zip(rows, sizes, strict=True)) for sizes in choices if sum(sizes) <= pool
    )


def climbed(rows: list[list[float]], pool: int, first: int | None = None) -> LevelsReached:
    return LevelsReached.begin([level_steps(np.array(row), pool) for row in rows], pool).run(first)


@settings(max_examples=400)
@given(_ROWS, _POOL)
def test_no_task_could_be_better_off(rows: list[list[float]], pool: int) -> None:
    climb = climbed(rows, pool)
    assert climb.sure
    assert sum(climb.sizes()) == pool - climb.free <= pool
    assert sorted(row[size] for row, size in zip(rows, climb.sizes(), strict=True)) == best(rows, pool)
    assert sorted(climb.stuck) == list(range(len(rows)))


@settings(max_examples=200)
@given(_ROWS, _POOL, st.integers(1, 4))
def test_the_worst_off_are_known_first(rows: list[list[float]], pool: int, first: int) -> None:
    climb = climbed(rows, pool, first)
    known = [climb.level(place) for place in climb.stuck[:first]]
    assert known == best(rows, pool)[:first]
    assert sum(climb.sizes()) <= pool


@settings(max_examples=100)
@given(_ROWS, st.integers(0, 7))
def test_the_way_up_is_the_same_for_any_number_of_nodes(rows: list[list[float]], pool: int) -> None:
    """Worked out for all numbers of nodes at once, a group divides them as it would divide each alone."""
    group = UserGroup(name="", places=tuple(range(len(rows))), weights=(1.0,) * len(rows))
    width = max(map(len, rows))
    entries = np.array([row + [-inf] * (width - len(row)) for row in rows])
    budget = GroupBudget(group, entries, pool)
    for nodes in range(pool + 1):
        sizes = budget.sizes(nodes).values()
        assert sorted(row[size] for row, size in zip(rows, sizes, strict=True)) == best(rows, nodes)
    alone, sure = divided([budget], pool)
    assert sure
    assert sum(alone.values()) <= pool
    assert budget.worth.max() == sum(row[size] for row, size in zip(rows, alone.values(), strict=True))
