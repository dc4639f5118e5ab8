"""Forming: how long a new group may take until it trains, and what to say of groups that never do.

Its members first meet, which takes moments. Then the state is loaded and spread, which takes as long as it is large.
"""

from __future__ import annotations

import math
from typing import Final

MEETING_S: Final = 20.0  # how long the members of a group may take to meet
LOADING_S: Final = 300.0  # how long the first state may take to be loaded and spread, before that is learned
LEAST_LOADING_S: Final = 60.0
LOADS: Final = 10.0  # times as long as it took before
LEAST_TOTAL_S: Final = 120.0  # for all groups in a row that do not form, even if the limit is smaller
REMARKED: Final = 2  # groups in a row that did not form before that is reported
_DOUBLINGS: Final = 10


class FormationWatch:
    """Follows the groups of one task from their start until they train. ``limit_s`` is for all that fail in a row."""

    def __init__(self, limit_s: float) -> None:
        self._total_s = max(limit_s, LEAST_TOTAL_S) if limit_s else math.inf
        self._began_at: float | None = None
        self._met_at: float | None = None
        self._why = ""  # the present group did not form, if no death explains it
        self._last_why = ""  # the one before it did not
        self._loading_s = 0.0  # as learned; 0: not yet
        self._failed = 0  # in a row
        self._spent_s = 0.0  # with them

    def began(self, now: float) -> str:
        """Know that a group starts to form; return what to tell of those before it, if anything."""
        note = ""
        if self._began_at is not None and self._why:
            self._failed, self._last_why = self._failed + 1, self._why
            self._spent_s += now - self._began_at
            if self._failed >= REMARKED:
                note = f"{self._words()}; it is tried again"
        self._began_at, self._met_at, self._why = now, None, ""
        return note

    def met(self, now: float) -> None:
        """Know that all members of the group have met."""
        if self._began_at is not None and self._met_at is None:
            self._met_at = now

    def confirmed(self, now: float, *, learn: bool) -> None:
        """Know that the group trains; ``learn`` how long its state took."""
        if learn and self._met_at is not None:
            self._loading_s = max(now - self._met_at, self._loading_s / 2)
        self.reset()

    def reset(self) -> None:
        """Forget the groups that did not form."""
        self._began_at, self._met_at, self._why, self._failed, self._spent_s = None, None, "", 0, 0.0

    def lost(self, why: str) -> None:
        """Know that the group did not form, and that no death explains it."""
        self._why = self._why or why

    def overdue(self, now: float) -> bool:
        """Return whether the group has taken too long."""
        if self._began_at is None:
            return False
        since, limit_s = self._began_at, MEETING_S
        if self._met_at is not None:
            since, limit_s = self._met_at, self._loading_limit_s
        if now - since <= limit_s:
            return False
        what = "its members did not meet" if self._met_at is None else "its state was not loaded and spread"
        self._why = self._why or f"{what} within {limit_s:.0f} s"
        return True

    def given_up(self, now: float) -> str:
        """Return why the task has failed if groups have not formed for too long, otherwise nothing."""
        if self._began_at is None or not (self._failed or self._why):
            return ""
        spent_s = self._spent_s + now - self._began_at
        if spent_s <= self._total_s:
            return ""
        return f"no step for {spent_s:.0f} s: {self._words()}"

    @property
    def _loading_limit_s(self) -> float:
        first_s = max(LEAST_LOADING_S, LOADS * self._loading_s) if self._loading_s else LOADING_S
        return float(min(self._total_s, first_s * 2 ** min(self._failed, _DOUBLINGS)))

    def _words(self) -> str:
        tries = max(1, self._failed)
        groups = "a group of its workers" if tries == 1 else f"{tries} groups of its workers in a row"
        return f"{groups} did not get to train, the last because {self._why or self._last_why}"
