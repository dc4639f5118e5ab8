"""The group in which the workers of a task train now: its number, who leads it, and whether it is to end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

ABORT_S: Final = 0.5  # how long members may go on after another's death before their connections are cut


class PresentGroup:
    """What a course knows of the present group, or of the last one while there is none."""

    def __init__(self) -> None:
        self.generation = 0
        self.leader = ""  # the worker that is rank 0
        self.nodes: frozenset[str] = frozenset()
        self.confirmed = True  # it trains
        self.formed_at = 0.0
        self.gather_at = 0.0  # when its members were asked last to gather; 0: they were not
        self.broken_at = 0.0  # when it lost a member; 0: it has not
        self.stalled = False  # it was broken because it made no step

    def form(self, leader: str, nodes: Iterable[str], now: float) -> None:
        """Begin the next group."""
        self.generation += 1
        self.leader, self.nodes = leader, frozenset(nodes)
        self.confirmed, self.formed_at = False, now
        self.gather_at = self.broken_at = 0.0
        self.stalled = False

    def find(self, generation: int, now: float) -> None:
        """Know of a group that a former manager formed."""
        self.generation = max(self.generation, generation)
        self.confirmed, self.formed_at = False, now

    def lost_member(self, now: float) -> None:
        """Know that a member has died, or has left; the first one counts."""
        self.broken_at = self.broken_at or now

    def break_up(self, now: float) -> None:
        """Have all members leave at once, as when one of them has died a while ago."""
        self.broken_at = now - ABORT_S

    def end(self) -> None:
        """Know that no member is left."""
        self.gather_at = self.broken_at = 0.0
