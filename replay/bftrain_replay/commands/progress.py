"""Progress of replays and sweeps: a bar for each on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

import msgspec

from bftrain.cli.interruption import interruption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress, TaskID

    from bftrain.cli.output import Output

_REDRAW_S: Final = 0.1
_LINE_EVERY_S: Final = 30.0
AN_HOUR_S: Final = 3600.0


class _Shown(msgspec.Struct):
    begun_s: float
    shown_s: float
    done_at_first: float
    bar: TaskID | None


class ShownProgress:
    """The progress of any number of jobs by name, sequential or parallel."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._bars: Progress | None = None
        self._in_lines = not sys.stderr.isatty()
        self._shown: dict[str, _Shown] = {}

    def tell(
        self, name: str, done: float, total: float, bar: Callable[[float], str], line: Callable[[float], str]
    ) -> None:
        """Show how much of ``total`` is done, up to a few times per second.

        ``bar`` and ``line`` make the text of each from the seconds that the job took so far.
        """
        now_s, shown = time.monotonic(), self._shown.get(name)
        if shown is None:
            if not self._shown and not self._in_lines:
                # Started late: a thread that draws bars blocks forking of replay processes, and needs an import
                self._bars = self._out.progress()
                self._bars.start()
            task = None if self._bars is None else self._bars.add_task(bar(0.0), total=total)
            shown = self._shown[name] = _Shown(now_s, now_s, done, task)
        elif now_s - shown.shown_s < (_LINE_EVERY_S if self._in_lines else _REDRAW_S):
            return
        elif self._in_lines:
            took_s, gained = now_s - shown.begun_s, done - shown.done_at_first
            left = f", about {took_s * (total - done) / gained:,.0f} s left" if gained > 0.0 else ""
            self._out.say(f"{line(took_s)}{left}")
        shown.shown_s = now_s
        if self._bars is not None and shown.bar is not None:
            self._bars.update(shown.bar, completed=done, total=total, description=bar(now_s - shown.begun_s))

    def stop(self) -> None:
        """Stop drawing."""
        if self._bars is not None:
            self._bars.stop()


@contextmanager
def shown_progress(out: Output) -> Iterator[ShownProgress]:
    """Show progress while the block runs."""
    progress = ShownProgress(out)
    try:
        yield progress
    finally:
        progress.stop()


@contextmanager
def watched(
    out: Output,
    goal: float,
    *,
    unit: float = AN_HOUR_S,
    counted: str = "decisions",
    done: str = "hours replayed",
    interruptible: bool = True,
) -> Iterator[Callable[[str, float, int], bool]]:
    """Return a watcher of replays: it shows progress and returns False to stop.

    Ctrl-C or SIGTERM stop the replay early, a second Ctrl-C immediately. ``goal`` is the total: seconds (shown as
    hours), or items with a ``unit`` of 1. ``done`` describes the progress, and ``counted`` is the noun for the running
    count.
    """
    total, digits = max(goal / unit, 1.0), 1 if unit > 1.0 else 0
    with interruption() if interruptible else nullcontext(lambda: False) as interrupted, shown_progress(out) as shown:

        def watch(name: str, so_far: float, count: int) -> bool:
            part = so_far / unit

            def bar(took_s: float) -> str:
                return f"{name}, {done}" + (f", {count / took_s:,.0f} {counted}/s" if took_s > 0.0 else "")

            def line(took_s: float) -> str:
                rate = f"{count:,} {counted}, {count / took_s:,.0f} a second"
                return f"{name}: {part:,.{digits}f} of {total:,.{digits}f} {done}, {rate}"

            shown.tell(name, part, total, bar, line)
            return not interrupted()

        yield watch
