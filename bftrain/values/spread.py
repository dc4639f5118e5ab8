"""SpreadSpeeds: the speed of a task whose nodes lie on more places than necessary, such as GPUs on two hosts."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import msgspec
import numpy as np

from bftrain.values import checks
from bftrain.values.curve import ANY_KIND, SpeedCurve

_LEAST_PLACES: Final = 2  # a task on a single place is not spread


class SpreadSpeed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, cache_hash=True):
    """Speed on ``places`` places, for nodes of ``kind`` or of any kind.

    It is either a ``share`` of the speed on the fewest places, or a ``curve`` of speeds by size.
    """

    places: int = _LEAST_PLACES
    kind: str = ANY_KIND
    share: float | None = None
    curve: SpeedCurve | None = None

    def __post_init__(self) -> None:
        checks.integer(self, "places", at_least=_LEAST_PLACES)
        checks.optional_text(self, "kind")
        checks.optional_number(self, "share", at_least=0.0)
        checks.instance(self, "curve", SpeedCurve | None)
        if self.share is not None and self.curve is not None:
            checks.reject(self, "curve", "is given in addition to share", "set one")
        if self.share is None and self.curve is None:
            checks.reject(self, "share", "and curve are both missing", "set one")

    def at(self, size: int, together: float) -> float:
        """Return the speed at ``size`` of a task with speed ``together`` on the fewest places."""
        return self.curve.speed(size) if self.curve is not None else together * (self.share or 0.0)


class SpreadSpeeds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, cache_hash=True):
    """The speeds of a task whose nodes lie on more places than necessary.

    A place is a host if GPUs or cores are counted, and a rack if the racks of whole nodes are known.
    ``per_place`` is the number of nodes on each place when the task's curve was measured (default: the size of the
    log's largest place). A size above it needs several places, and is spread only beyond the fewest that have room.
    Between the numbers of places in ``speeds`` the speed is linear, beyond the last it is constant.
    """

    per_place: int | None = None
    speeds: tuple[SpreadSpeed, ...]

    def __post_init__(self) -> None:
        if self.per_place is not None:
            checks.integer(self, "per_place", at_least=1)
        speeds = checks.instances(self, "speeds", SpreadSpeed)
        if not speeds:
            checks.reject(self, "speeds", "is empty", "give the speed on two places at least")
        for kind in {each.kind for each in speeds}:
            places = [each.places for each in speeds if each.kind == kind]
            if any(later <= earlier for earlier, later in pairwise(places)):
                whose = f" of '{kind}'" if kind else ""
                checks.reject(self, "speeds", f"must rise in places{whose}", "sort them and drop repeated ones")

    def fewest(self, size: int) -> int:
        """Return the fewest places for ``size`` nodes."""
        return 1 if self.per_place is None else -(-size // self.per_place)

    def speed(self, size: int, places: int, together: float, kind: str = ANY_KIND) -> float:
        """Return the speed of ``size`` nodes of a ``kind`` on ``places`` places; ``together``: on the fewest places."""
        fewest = self.fewest(size)
        if size == 0 or places <= fewest:
            return together
        of_kind = [each for each in self.speeds if each.kind == kind] or [
            each for each in self.speeds if each.kind == ANY_KIND
        ]
        more = [each for each in of_kind if each.places > fewest] or of_kind[-1:]
        if not more:
            return together
        if more[-1].places <= places:
            return more[-1].at(size, together)
        known = (fewest, *(each.places for each in more))
        return float(np.interp(places, known, (together, *(each.at(size, together) for each in more))))
