"""How far a replay is: a bar on a terminal, a line now and then in a log; with its rate and the time that is left.

Schedules use the same display. Where the length of a run is unknown, progress counts the work to be done.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from bftrain.cli.interruption import interruption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress, TaskID

    from bftrain.cli.output import Output

_REDRAW_S: Final = 0.1
_LINE_EVERY_S: Final = 30.0
_AN_HOUR_S: Final = 3600.0


class ReplayProgress:
    """Tells of several replays of the same log, one after the other.

    ``goal`` is how far they go: seconds, which are shown as hours, or with a ``unit`` of 1 things. ``done`` says of
    what, and what becomes of it; ``counted`` is what is counted on the way.
    """

    def __init__(
        self,
        bars: Progress,
        out: Output,
        goal: float,
        *,
        unit: float = _AN_HOUR_S,
        counted: str = "decisions",
        done: str = "hours replayed",
    ) -> None:
        self._bars = bars
        self._out = out
        self._counted = counted
        self._done = done
        self._unit = unit
        self._digits = 1 if unit > 1.0 else 0
        self._total = max(goal / unit, 1.0)
        self._in_lines = not sys.stderr.isatty()
        self._name = ""
        self._bar: TaskID | None = None
        self._begun_s = self._shown_s = time.monotonic()

    def tell(self, name: str, done: float, count: int) -> None:
        """Show how far the replay called ``name`` is, if that was not shown a moment ago."""
        now_s = time.monotonic()
        if name != self._name:
            self._begin(name, now_s)
        elif now_s - self._shown_s < (_LINE_EVERY_S if self._in_lines else _REDRAW_S):
            return
        elif self._in_lines:
            self._out.say(self._line(done / self._unit, count, now_s - self._begun_s))
        self._shown_s = now_s
        if self._bar is not None:
            rate = f", {count / (now_s - self._begun_s):,.0f} {self._counted}/s" if now_s > self._begun_s else ""
            self._bars.update(self._bar, completed=done / self._unit, description=f"{name}, {self._done}{rate}")

    def _begin(self, name: str, now_s: float) -> None:
        if self._bar is not None:
            self._bars.update(self._bar, completed=self._total, description=f"{self._name}, {self._done}")
        self._name = name
        self._begun_s = now_s
        self._bar = self._bars.add_task(f"{name}, {self._done}", total=self._total)

    def _line(self, done: float, count: int, took_s: float) -> str:
        left = f", about {took_s * (self._total / done - 1):,.0f} s left" if done > 0 else ""
        return (
            f"{self._name}: {done:,.{self._digits}f} of {self._total:,.{self._digits}f} {self._done}, "
            f"{count:,} {self._counted}, {count / took_s:,.0f} a second{left}"
        )


@contextmanager
def watched(out: Output, span_s: float) -> Iterator[Callable[[str, float, int], bool]]:
    """Return a watcher of a replay of ``span_s`` seconds: it shows progress and answers whether to go on.

    Ctrl-C or SIGTERM end it early, a second Ctrl-C at once.
    """
    with interruption() as interrupted, out.progress() as bars:
        progress = ReplayProgress(bars, out, span_s)

        def watch(name: str, simulated_s: float, decisions: int) -> bool:
            progress.tell(name, simulated_s, decisions)
            return not interrupted()

        yield watch
