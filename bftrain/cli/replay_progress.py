"""How far a replay is: a bar on a terminal, a line now and then in a log; with its rate and the time that is left.

A schedule is told of in the same way, in other words.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from bftrain.cli.output import Output

_REDRAW_S: Final = 0.1
_LINE_EVERY_S: Final = 30.0
_AN_HOUR_S: Final = 3600.0


class ReplayProgress:
    """Tells of several replays of the same log, one after the other.

    ``counted`` is what it counts, and ``done`` what becomes of the hours.
    """

    def __init__(
        self, bars: Progress, out: Output, span_s: float, *, counted: str = "decisions", done: str = "replayed"
    ) -> None:
        self._bars = bars
        self._out = out
        self._counted = counted
        self._hours = f"hours {done}"
        self._total_h = max(span_s / _AN_HOUR_S, 1.0)
        self._in_lines = not sys.stderr.isatty()
        self._name = ""
        self._bar: TaskID | None = None
        self._begun_s = self._told_s = time.monotonic()

    def tell(self, name: str, simulated_s: float, decisions: int) -> None:
        """Show how far the replay called ``name`` is, if that was not shown a moment ago."""
        now_s = time.monotonic()
        if name != self._name:
            self._begin(name, now_s)
        elif now_s - self._told_s < (_LINE_EVERY_S if self._in_lines else _REDRAW_S):
            return
        elif self._in_lines:
            self._out.say(self._line(simulated_s / _AN_HOUR_S, decisions, now_s - self._begun_s))
        self._told_s = now_s
        if self._bar is not None:
            rate = f", {decisions / (now_s - self._begun_s):,.0f} {self._counted}/s" if now_s > self._begun_s else ""
            self._bars.update(self._bar, completed=simulated_s / _AN_HOUR_S, description=f"{name}, {self._hours}{rate}")

    def _begin(self, name: str, now_s: float) -> None:
        if self._bar is not None:
            self._bars.update(self._bar, completed=self._total_h, description=f"{self._name}, {self._hours}")
        self._name = name
        self._begun_s = now_s
        self._bar = self._bars.add_task(f"{name}, {self._hours}", total=self._total_h)

    def _line(self, done_h: float, decisions: int, took_s: float) -> str:
        left = f", about {took_s * (self._total_h / done_h - 1):,.0f} s left" if done_h > 0 else ""
        return (
            f"{self._name}: {done_h:,.1f} of {self._total_h:,.1f} {self._hours}, "
            f"{decisions:,} {self._counted}, {decisions / took_s:,.0f} a second{left}"
        )
