"""LevelsReached: the worst-off task takes its next step until it does not fit; then it stays, and others go on.

All that are raised hold the fewest nodes that make them better off than the one that stays, so no task could have made
room for it. That is the largest smallest level, then the largest second smallest, and so on; but for ties. Where
several are equally badly off and not all can be raised, as many as possible are, and who they are may matter later:
:mod:`bftrain_solvers.max_min.tie_breaking` finds the best.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from bftrain_solvers.max_min.tie_breaking import LevelTie, best_of_tie

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bftrain_solvers.max_min.steps import LevelSteps


@dataclass(slots=True)
class LevelsReached:
    """The step of every task: ``rungs``; ``stuck`` names those who are not raised any more, the worst-off first.

    ``sure`` says that no other plan is better at any place; if not, some tie was too large to look through. ``chosen``
    is how many were stuck before it was first a matter of choice who is; it is none among those who are the ``same``.
    """

    ladders: Sequence[LevelSteps]
    rungs: list[int]
    free: int
    stuck: list[int] = field(default_factory=list)
    sure: bool = True
    same: Sequence[bytes] = ()
    chosen: int | None = None

    @classmethod
    def begin(cls, ladders: Sequence[LevelSteps], pool: int, same: Sequence[bytes] = ()) -> LevelsReached:
        """Stand at the bottom."""
        return cls(ladders, [0] * len(ladders), pool, same=same)

    def level(self, place: int) -> float:
        """Return how well off a task is now."""
        return self.ladders[place].levels[self.rungs[place]]

    def size(self, place: int) -> int:
        """Return how many nodes a task holds now."""
        return self.ladders[place].sizes[self.rungs[place]]

    def sizes(self) -> list[int]:
        """Return how many nodes every task holds now."""
        return [self.size(place) for place in range(len(self.ladders))]

    def run(self, first: int | None = None) -> LevelsReached:
        """Raise the worst-off until no task can be, or the ``first`` worst-off are known."""
        wanted = len(self.ladders) if first is None else min(first, len(self.ladders))
        queue = [(self.level(place), place) for place in range(len(self.ladders))]
        heapify(queue)
        while queue and len(self.stuck) < wanted:
            if not self.free:  # no task moves any more
                self.stuck.extend(place for _, place in sorted(queue))
                break
            lowest = queue[0][0]
            tied = []
            while queue and queue[0][0] == lowest:
                tied.append(heappop(queue)[1])
            raised = self._raised(tied, [place for _, place in queue], wanted - len(self.stuck))
            if raised is None:  # it was decided for all at once
                break
            self.stuck.extend(place for place in tied if place not in raised)
            for place in raised:
                self.free -= self.ladders[place].step(self.rungs[place]) or 0
                self.rungs[place] += 1
                heappush(queue, (self.level(place), place))
        return self

    def landings(self) -> Iterator[tuple[int, list[int]]]:
        """Climb as if there were always room: gives how many nodes are used, and the rungs, each time a level is left.

        With fewer nodes the climb goes the same way up to the last landing that it has the nodes for.
        """
        used = 0
        yield used, list(self.rungs)
        queue = [(self.level(place), place) for place in range(len(self.ladders))]
        heapify(queue)
        while queue:
            lowest = queue[0][0]
            while queue and queue[0][0] == lowest:
                place = heappop(queue)[1]
                step = self.ladders[place].step(self.rungs[place])
                if step is not None:
                    used += step
                    self.rungs[place] += 1
                    heappush(queue, (self.level(place), place))
            yield used, list(self.rungs)

    def _raised(self, tied: list[int], others: list[int], wanted: int) -> Sequence[int] | None:
        """Choose who of the ``tied`` is raised: all, or as many as possible."""
        steps = {place: step for place in tied if (step := self.ladders[place].step(self.rungs[place])) is not None}
        movable = [place for place, step in steps.items() if step <= self.free]
        if sum(steps[place] for place in movable) <= self.free:
            return movable
        if self.chosen is None and (not self.same or len({self.same[place] for place in movable}) > 1):
            self.chosen = len(self.stuck)
        tie = LevelTie(self.ladders, self.rungs, self.free, movable, others)
        found = best_of_tie(tie, wanted - len(tied) + len(movable))
        self.sure &= found.sure
        if found.rungs is None:
            return found.raised
        before = sum(map(self.size, found.rungs))
        for place, rung in found.rungs.items():
            self.rungs[place] = rung
        self.free -= sum(map(self.size, found.rungs)) - before
        self.stuck.extend(sorted({*tied, *others}, key=lambda place: (self.level(place), place)))
        return None
