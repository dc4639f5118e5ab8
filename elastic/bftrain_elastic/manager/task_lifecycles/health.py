"""GroupHealth: what is noticed about a group while it trains, and what may be wrong with it."""

from __future__ import annotations

from typing import Final

HANG_S: Final = 60.0  # who has not come back from a broken group then never will,
HANG_STEPS: Final = 5.0  # or after so many steps, if these are long
UNHEEDED: Final = 20  # steps without a commit after which a note says why nothing changes


class GroupHealth:
    """Of one group after the other."""

    def __init__(self) -> None:
        self._reported_at = 0.0
        self._pace_s = 0.0  # how long a step may take
        self._unheeded = 0  # steps that were reported since a change was asked for
        self._lost = ""  # why a member lost the others
        self._explained = False  # one of them died, or was ordered to end

    def reported(self, t: float, *, asked: bool) -> str:
        """Know of a step, and whether members were asked to gather; returns a note about that, if any.

        What took long once is soon forgotten.
        """
        if self._reported_at:
            self._pace_s = max(t - self._reported_at, self._pace_s / 2)
        self._reported_at = t
        self._unheeded += asked
        if self._unheeded != UNHEEDED:
            return ""
        return f"{UNHEEDED} steps were done since a change was asked for, and no state.commit() where it could happen"

    @property
    def hang_s(self) -> float:
        """For how long a member may not be heard of after its group broke."""
        return max(HANG_S, HANG_STEPS * self._pace_s)

    def lost(self, reason: str) -> None:
        """Know that a member lost the others."""
        self._lost = self._lost or reason

    def died(self) -> None:
        """Record that a member died, or was ordered to end."""
        self._explained = True

    def left(self) -> str:
        """Forget the group, which all have left; returns why one lost it if no death explains that."""
        unexplained = "" if self._explained else self._lost
        self._lost, self._explained, self._unheeded = "", False, 0
        return unexplained
