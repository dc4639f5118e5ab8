"""ClockCheck: says when the machine's clock was set back behind the journal, whose times never run backwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_BEHIND_S: Final = 60.0


class ClockCheck:
    """Remarks a clock that is behind, and again when it has caught up."""

    def __init__(self, remark: Callable[[str], None]) -> None:
        self._remark = remark
        self._behind = False

    def __call__(self, last_s: float) -> None:
        """Compare the clock with the time of the last entry."""
        behind_s = last_s - time.time()
        if not self._behind and behind_s > _BEHIND_S:
            self._behind = True
            what = f"the clock of this machine is {behind_s:,.0f} s behind the last entry of the journal"
            self._remark(f"{what}: set it, or no hours are counted and no deadline comes nearer until it has caught up")
        elif self._behind and behind_s <= 0.0:
            self._behind = False
            self._remark("the clock of this machine has caught up with the journal")
