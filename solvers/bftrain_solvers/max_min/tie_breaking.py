"""LevelTie: several tasks are equally badly off and not all can be raised. Find those whose rise is best for all.

As many as possible are raised; that alone often says who. Else all that is left is searched: the best that the first
tasks can do with so many nodes is part of the best that all can do, since of two plans the better one stays the better
one with the same addition to both. Only levels are looked at: of tasks with the same steps and
next levels those that do more on their next rung are raised, without a further search for the plan that does most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain_solvers.max_min.steps import LevelSteps

_LARGEST: Final = 20_000_000  # numbers looked at; about a second


@dataclass(frozen=True, slots=True)
class LevelTie:
    """Those of ``movable`` stand equally low and could each be raised alone, but not all; ``others`` stand higher."""

    ladders: Sequence[LevelSteps]
    rungs: list[int]
    free: int
    movable: list[int]
    others: list[int]

    def step(self, place: int) -> int:
        """Nodes to the next rung of one of ``movable``."""
        rung = self.rungs[place]
        return self.ladders[place].sizes[rung + 1] - self.ladders[place].sizes[rung]

    def next_level(self, place: int) -> float:
        """Level of the next rung of one of ``movable``."""
        return self.ladders[place].levels[self.rungs[place] + 1]

    def gain(self, place: int) -> float:
        """How much more is done on the next rung of one of ``movable``."""
        return self.ladders[place].gain(self.rungs[place])


@dataclass(frozen=True, slots=True)
class TieResult:
    """Who is ``raised``; or, where all was searched, the ``rungs`` on which every task ends."""

    raised: list[int]
    sure: bool = True
    rungs: dict[int, int] | None = None


def best_of_tie(tie: LevelTie, wanted: int) -> TieResult:
    """Decide who is raised; if no more than ``wanted`` who are not matter, it is all the same who."""
    order = sorted(tie.movable, key=lambda place: (tie.step(place), -tie.next_level(place), -tie.gain(place), place))
    fits = np.searchsorted(np.cumsum([tie.step(place) for place in order]), tie.free, side="right")
    raised, left = order[: int(fits)], order[int(fits) :]
    if len(left) >= wanted or _no_other(tie, raised, left) or _alike(tie) or _nothing_follows(tie, raised, left):
        return TieResult(raised)
    options = {place: _options(tie, place) for place in (*tie.movable, *tie.others)}
    numbers = sum(map(len, options.values())) * (tie.free + 1) * len(options)
    if numbers > _LARGEST:
        return TieResult(raised, sure=False)
    return TieResult([], rungs=_searched(tie, options))


def _no_other(tie: LevelTie, raised: list[int], left: list[int]) -> bool:
    """Say whether no other choice of as many fits: not even with the largest step changed for the smallest."""
    idle = tie.free - sum(map(tie.step, raised))
    return tie.step(left[0]) - tie.step(raised[-1]) > idle


def _alike(tie: LevelTie) -> bool:
    first, *more = tie.movable
    ladder = tie.ladders[first].rest(tie.rungs[first])
    return all(tie.ladders[place].rest(tie.rungs[place]) == ladder for place in more)


def _nothing_follows(tie: LevelTie, raised: list[int], left: list[int]) -> bool:
    """Say whether all steps are alike and use up all nodes: then the best next levels are all that matters."""
    used = sum(map(tie.step, raised))
    return used == tie.free and tie.step(raised[0]) == tie.step(left[-1])


def _options(tie: LevelTie, place: int) -> list[tuple[int, int]]:
    """Give the rungs that one could end on, and how many nodes they are from here."""
    ladder, rung = tie.ladders[place], tie.rungs[place]
    found = []
    for further in range(rung, len(ladder.sizes)):
        nodes = ladder.sizes[further] - ladder.sizes[rung]
        if nodes > tie.free:
            break
        found.append((further, nodes))
    return found


def _searched(tie: LevelTie, options: dict[int, list[tuple[int, int]]]) -> dict[int, int]:
    """Add one after the other; ``best[n]`` are the levels, lowest first, of the best that n nodes can do so far."""
    levels = sorted({tie.ladders[place].levels[rung] for place, rungs in options.items() for rung, _ in rungs})
    rank = {level: place for place, level in enumerate(levels)}
    best = np.empty((tie.free + 1, 0), dtype=np.int32)
    taken: list[tuple[int, NDArray[np.int32]]] = []
    for place, rungs in options.items():
        longer = np.full((tie.free + 1, best.shape[1] + 1), -1, dtype=np.int32)
        choice = np.zeros(tie.free + 1, dtype=np.int32)
        for number, (rung, nodes) in enumerate(rungs):
            given = np.full((tie.free + 1 - nodes, 1), rank[tie.ladders[place].levels[rung]], dtype=np.int32)
            tried = np.sort(np.concatenate((best[: tie.free + 1 - nodes], given), axis=1), axis=1)
            better = _better(tried, longer[nodes:])
            longer[nodes:][better] = tried[better]
            choice[nodes:][better] = number
        best = longer
        taken.append((place, choice))
    ends, left = {}, tie.free
    for place, choice in reversed(taken):
        rung, nodes = options[place][int(choice[left])]
        ends[place] = rung
        left -= nodes
    return ends


def _better(tried: NDArray[np.int32], known: NDArray[np.int32]) -> NDArray[np.bool_]:
    """Compare rows from their first number on."""
    differ = tried != known
    first = differ.argmax(axis=1)
    rows = np.arange(len(tried))
    better: NDArray[np.bool_] = tried[rows, first] > known[rows, first]
    return better
