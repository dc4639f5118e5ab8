"""Raise the worst-off task first over several kinds of nodes, then give leftover nodes where they do most.

Once it is known how well off every task is, what is left is a sum in which falling below that costs more than all there
is to gain: the ordinary search divides it. Where it was a matter of choice who is at which level, a bound says how much
more another plan of the same levels might do.
"""

from __future__ import annotations

from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain_solvers.answers import kinds_of, named
from bftrain_solvers.max_min.equal_levels import alike
from bftrain_solvers.max_min.leftover_nodes import LeftoverNodes
from bftrain_solvers.max_min.milp_check import FeasibilityUnknown
from bftrain_solvers.max_min.several_kinds import LevelsReachedByKind
from bftrain_solvers.max_min.steps_by_kind import stairs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain.values.table import ValueTable

    Entries = NDArray[np.float64]

_ROUNDING: Final = 1e-12  # relative
_FOR_LEVELS: Final = 0.8  # of the time; the rest is for what is left over
_WORDS: Final = "raised step by step"
_UNSURE: Final = "some of those equally badly off were chosen by the last answer"


def over_kinds(
    table: ValueTable, scores: Entries, counted: Sequence[int], spare: Entries, first: int | None, limits: Limits
) -> Solution:
    """Raise the ``first`` worst-off of those ``counted``, or all, by ``scores``; then take most of ``spare``."""
    started = perf_counter()
    scores = scores.copy()
    scores[list(counted)] = alike(scores[list(counted)])
    rise = _begin(table, scores, counted, spare, started + _FOR_LEVELS * limits.deadline_s)
    try:
        rise.run(len(counted) if first is None else first)
        cut = False
    except FeasibilityUnknown:
        cut = True
    divided = LeftoverNodes(table, scores, counted, spare, rise, cut=cut).divide(started + limits.deadline_s)
    value = table.value_at(divided.columns)
    bound = max(value, _bound(rise, value))
    proven = value >= bound - _ROUNDING * abs(bound)
    sure_words = _WORDS if rise.sure else _UNSURE
    words = _cut_words(rise, [scores[place, divided.columns[place]] for place in counted]) if cut else sure_words
    return Solution(
        sizes=named(table, divided.columns),
        kinds=kinds_of(table, divided.columns),
        value=value,
        bound=bound,
        termination=_termination(divided.termination, cut=cut, proven=proven),
        quality=Quality.PROVEN if proven else Quality.FEASIBLE,
        solver="exact",
        solver_words="; ".join(filter(None, (words, divided.words))),
        wall_s=perf_counter() - started,
    )


def _begin(
    table: ValueTable, scores: Entries, counted: Sequence[int], spare: Entries, stop_at: float
) -> LevelsReachedByKind:
    return LevelsReachedByKind(
        stairs(scores, counted, table.columns),
        np.array(list(table.problem.by_kind.values()), dtype=np.int64),
        same=[scores[place].tobytes() for place in counted],
        spare=spare[list(counted)],
        stop_at=stop_at,
    )


def _bound(rise: LevelsReachedByKind, value: float) -> float:
    """Return the highest possible level of the worst-off, or how far prices leave it open."""
    if rise.worst is not None:
        return rise.worst
    within = rise.within_reach()
    return value if within == inf else within


def _cut_words(rise: LevelsReachedByKind, levels: Sequence[float]) -> str:
    """Say how much is proven of the ``levels`` that there was time for."""
    following = sorted(levels)[min(rise.known, len(levels) - 1)]
    return (
        f"out of time: the {rise.known} lowest levels are as high as can be, the next one is {following:.6g} and may "
        f"be {rise.within_reach():.6g} at most, the others are as time allowed"
    )


def _termination(rest: Termination, *, cut: bool, proven: bool) -> Termination:
    if cut or not proven:
        return Termination.TIME_LIMIT
    return rest
