"""OperatorNotices: recent notices for operators, de-duplicated."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from bftrain.live import timeouts
from bftrain.live.model.schemas import Remarked

_NOTICES: Final = 50


class OperatorNotices:
    """Keeps the latest notices, each once, with the number of its repetitions.

    ``aloud`` receives a notice that is new or was not repeated for a while.
    """

    def __init__(self, aloud: Callable[[str], None]) -> None:
        self._aloud = aloud
        self._known: OrderedDict[str, Remarked] = OrderedDict()

    def add(self, text: str, time_s: float) -> None:
        """Add a notice."""
        before = self._known.pop(text, None)
        self._known[text] = Remarked(time_s=time_s, text=text, times=1 + (before.times if before else 0))
        while len(self._known) > _NOTICES:
            self._known.popitem(last=False)
        if before is None or time_s - before.time_s > timeouts.TIMEOUTS.repeated_notice_s:
            self._aloud(text)

    @property
    def latest(self) -> tuple[Remarked, ...]:
        """Return the notices, the latest last."""
        return tuple(self._known.values())
