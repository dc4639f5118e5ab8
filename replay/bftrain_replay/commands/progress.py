"""Progress of replays and sweeps: bars on a terminal, otherwise a line every half minute."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, Self

import msgspec

from bftrain.cli.interruption import interruption

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.progress import Progress, TaskID

    from bftrain.cli.output import Output

_REDRAW_S: Final = 0.1
_LINE_EVERY_S: Final = 30.0
AN_HOUR_S: Final = 3600.0  # not imported: ``--help`` must not wait for numpy


class _Shown(msgspec.Struct):
    begun_s: float
    shown_s: float
    done_at_first: float
    bar: TaskID | None


class ShownProgress:
    """The progress of jobs by name, one after another or in parallel. Use it in a ``with`` block."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._bars: Progress | None = None
        self._in_lines = not sys.stderr.isatty()
        self._shown: dict[str, _Shown] = {}

    def tell(
        self, name: str, done: float, total: float, bar: Callable[[float], str], line: Callable[[float], str]
    ) -> None:
        """Show how much of ``total`` is done: up to ten times a second on a terminal, otherwise every half minute.

        ``bar`` and ``line`` make the text of each from the seconds that the job took so far.
        """
        now_s, shown = time.monotonic(), self._shown.get(name)
        if shown is None:
            if not self._shown and not self._in_lines:
                # Started late: the import takes a moment, and processes must be forked before this thread exists
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()


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
    """Return a watcher of replays, which shows progress and returns false to stop.

    Ctrl-C or SIGTERM stop the replay early, a second Ctrl-C immediately, if ``interruptible``. ``goal`` is the
    total: seconds, shown as hours, or items with a ``unit`` of 1. ``done`` is the noun for the progress, and
    ``counted`` the noun for the third argument of the watcher, whose rate is shown.
    """
    total, digits = max(goal / unit, 1.0), 1 if unit > 1.0 else 0
    with interruption() if interruptible else nullcontext(lambda: False) as interrupted, ShownProgress(out) as shown:

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
