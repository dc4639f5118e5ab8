"""How far a sweep is: on a terminal a bar for all of it and one for each worker, elsewhere a line now and then."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress, TaskID

    from bftrain.cli.output import Output
    from bftrain_replay.sweeping.executors import AtWork
    from bftrain_replay.sweeping.sweep import SweepStatus

_REDRAW_S: Final = 0.1
_LINE_EVERY_S: Final = 30.0
_STEPS: Final = 1000  # of a pass: bars count whole numbers
_MOST_BARS: Final = 24  # more workers than this are not shown one by one


class SweepProgress:
    """Tells of one sweep."""

    def __init__(self, out: Output, bars: Progress) -> None:
        self._out = out
        self._bars = bars
        self._in_lines = not sys.stderr.isatty()
        self._total: TaskID | None = None
        self._bar_of: dict[str, TaskID] = {}
        self._shown: dict[str, AtWork] = {}
        self._begun_s = self._shown_s = time.monotonic()
        self._done_at_first = 0.0

    def tell(self, standing: SweepStatus) -> None:
        """Show how far it is, if that was not shown a moment ago."""
        now_s = time.monotonic()
        done = standing.passes_over + sum(what.share for what in standing.at_work.values() if what.job)
        if self._total is None:
            self._total = self._bars.add_task("", total=standing.passes * _STEPS)
            self._done_at_first = done
        elif now_s - self._shown_s < (_LINE_EVERY_S if self._in_lines else _REDRAW_S):
            return
        elif self._in_lines:
            self._out.say(self._line(standing, done, now_s))
        self._shown_s = now_s
        self._bars.update(self._total, completed=done * _STEPS, description=_points(standing))
        for what in standing.at_work.values():
            self._show(what)

    def _show(self, what: AtWork) -> None:
        """Bring the bar of a worker up to date."""
        bar = self._bar_of.get(what.worker)
        if bar is None:
            if len(self._bar_of) >= _MOST_BARS:
                return
            bar = self._bar_of[what.worker] = self._bars.add_task(what.worker, total=_STEPS)
        before = self._shown.get(what.worker)
        if before is None or before.job is not what.job:
            words = f"{what.job.words} ({what.job.kind})" if what.job else "waits"
            self._bars.reset(bar, description=f"{what.worker}: {words}")
        self._bars.update(bar, completed=what.share * _STEPS)
        self._shown[what.worker] = what

    def _line(self, standing: SweepStatus, done: float, now_s: float) -> str:
        at_work = sum(what.job is not None for what in standing.at_work.values())
        gained = done - self._done_at_first
        left_s = (now_s - self._begun_s) * (standing.passes - done) / gained if gained > 0 else None
        left = f", about {left_s:,.0f} s left" if left_s is not None else ""
        return f"{_points(standing)}, {at_work} at work{left}"


def _points(standing: SweepStatus) -> str:
    failed = f", {standing.failed:,} failed" if standing.failed else ""
    return f"{standing.over:,} of {standing.points:,} points{failed}"


@contextmanager
def progress(out: Output) -> Iterator[SweepProgress]:
    """Show bars on a terminal while the block runs, or lines elsewhere; nothing with ``-q``."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    bars = Progress(
        # A stranger's name is no markup, and a long one must not push the bar off the screen
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=3, no_wrap=True, overflow="ellipsis")),
        BarColumn(bar_width=None, table_column=Column(ratio=1)),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        expand=True,
        disable=out.level < 0 or not sys.stderr.isatty(),
    )
    with bars:
        yield SweepProgress(out, bars)
