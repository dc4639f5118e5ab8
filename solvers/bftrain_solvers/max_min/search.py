"""Solve a table with a LevelCoupling: raise the worst-off task first, then give leftover nodes where they do most."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import numpy as np

from bftrain.deciding.levels import LevelCoupling
from bftrain_solvers.highs import solver as highs
from bftrain_solvers.max_min.equal_levels import alike
from bftrain_solvers.max_min.equal_plans import SettledPlan, of_equals
from bftrain_solvers.max_min.fill_leftover import filled
from bftrain_solvers.max_min.kinds_search import over_kinds
from bftrain_solvers.max_min.one_kind import LevelsReached
from bftrain_solvers.max_min.steps import ladder
from bftrain_solvers.max_min.user_groups import GroupBudget, divided

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain.deciding.levels import GroupLevels
    from bftrain.values.solution import Limits, Solution
    from bftrain.values.table import ValueTable

    Entries = NDArray[np.float64]

_UNSURE = "some of those equally badly off were chosen by a rule: who of them is raised was too much to look through"


def worst_first(table: ValueTable, coupling: LevelCoupling | GroupLevels, stop_at: float) -> tuple[list[int], str]:
    """Give sizes in the order of the tasks, and what is not proven of them."""
    if isinstance(coupling, LevelCoupling):
        return by_levels(table, coupling, stop_at)
    return by_groups(table, coupling, stop_at)


def worst_first_over_kinds(table: ValueTable, coupling: LevelCoupling | GroupLevels, limits: Limits) -> Solution:
    """Give sizes and kinds; where a group is one participant, as a programme."""
    if isinstance(coupling, LevelCoupling):
        return over_kinds(table, table.values, coupling.counted, coupling.spare, coupling.first, limits)
    if any(group.fifo for group in coupling.groups):
        return highs.solve(table, limits)
    scores, counted = table.values.copy(), []
    for group in coupling.groups:
        for place, weight in zip(group.places, group.weights, strict=True):
            scores[place] *= sum(group.weights) / (group.weight * weight)
            counted.append(place)
    return over_kinds(table, scores, counted, coupling.spare, None, limits)


def by_levels(table: ValueTable, coupling: LevelCoupling, stop_at: float) -> tuple[list[int], str]:
    """Give sizes in the order of the tasks, and what is not proven of them."""
    counted, scores = coupling.counted, _scores(table, coupling.counted)
    pool, spare = table.problem.pool, coupling.spare
    ladders = [ladder(scores[place], pool, spare[place]) for place in counted]
    same = [scores[place].tobytes() + spare[place].tobytes() for place in counted]
    climb = LevelsReached.begin(ladders, pool, same).run(coupling.first)
    known = climb.stuck if coupling.first is None else climb.stuck[: coupling.first]
    floors = dict.fromkeys(counted, climb.level(known[-1]) if known else -inf)
    floors.update({counted[place]: climb.level(place) for place in known})
    sizes = filled(table, scores, spare, floors, stop_at)
    words = "" if climb.sure else _UNSURE
    if climb.chosen is None or not climb.sure:
        return sizes, words
    return of_equals(table, scores, coupling, SettledPlan(climb, known, sizes), stop_at)


def by_groups(table: ValueTable, coupling: GroupLevels, stop_at: float) -> tuple[list[int], str]:
    """Give sizes in the order of the tasks, and what is not proven of them."""
    pool = table.problem.pool
    purses = [GroupBudget(group, table.values[list(group.places)], pool) for group in coupling.groups]
    sizes, sure = divided(purses, pool)
    scores = _scores(table, list(sizes))
    floors = {place: float(scores[place, size]) for place, size in sizes.items()}
    return filled(table, scores, coupling.spare, floors, stop_at), "" if sure else _UNSURE


def _scores(table: ValueTable, counted: Sequence[int]) -> Entries:
    """Give the entries, of those ``counted`` with what differs by rounding only made equal."""
    scores = table.values.copy()
    scores[list(counted)] = alike(scores[list(counted)])
    return scores
