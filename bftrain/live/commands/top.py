"""``bftrain top``: a live view of a run in the terminal."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Self

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.interruption import interruption
from bftrain.cli.output import LITERAL, Output
from bftrain.errors import BftrainError
from bftrain.live.commands.tasks import talks

if TYPE_CHECKING:
    from rich.console import Console

    from bftrain.live.client.client import Client

_SPANS: Final = {"1": 600.0, "2": 3600.0, "3": 86400.0, "4": 864000.0}
_ENDS: Final = "q ends   1 ten minutes  2 an hour  3 a day  4 ten days"
_ENDING: Final = frozenset({"q", "Q", "\x1b", "\x04"})
_PATIENCE_S: Final = 0.5  # in which Ctrl-C and a new size of the terminal are noticed
_PIPE_WIDTH: Final = 100


@click.command(
    cls=DocumentedCommand,
    example="bftrain top",
    epilog="q or Ctrl-C end it. In a pipe it prints once what there is to see.",
)
@click.option("--once", is_flag=True, help="Print once what there is to see, and end.")
@talks
def command(client: Client, out: Output, *, once: bool) -> None:
    """Watch a live run: nodes, tasks with their sizes over time, speed, and what happens."""
    # A screen needs a terminal that can do more than print one line after the other
    if sys.stdout.isatty() and os.environ.get("TERM", "") not in {"", "dumb", "unknown"} and not (out.json or once):
        from rich.console import Console

        with Keyboard(own_keyboard()) as keyboard:
            watch(client, Console(**LITERAL), keyboard)
        return
    update = next(client.updates(most=1))

    def words() -> Any:  # noqa: ANN401 - what rich can render
        from bftrain.live.client.client import LiveView
        from bftrain.live.commands.top_screen import TopView

        return TopView(LiveView(update), width=None if sys.stdout.isatty() else _PIPE_WIDTH)

    out.result(update, words)


def watch(client: Client, console: Console, keyboard: Keyboard) -> None:
    """Show a live run until the user ends it."""
    from rich.live import Live as Screen

    from bftrain.live.client.client import LiveView, StreamClient
    from bftrain.live.commands.top_screen import TopView

    def draw(scene: LiveView, lost: tuple[float, str] | None) -> None:
        screen.update(TopView(scene, lost, height=console.size.height, ends_with=_ENDS), refresh=True)

    span = "1"
    follower = StreamClient(client, _SPANS[span], keyboard.wake)
    try:
        with (
            interruption(message=False) as interrupted,
            Screen(console=console, screen=True, auto_refresh=False) as screen,
        ):
            drawn: object = None
            while not interrupted():
                now = (follower, follower.changes, console.size)
                if now != drawn:
                    drawn = now
                    follower.look(draw)
                pressed = keyboard.wait(_PATIENCE_S)
                # An arrow, say, begins like Escape and is none
                for key in "" if pressed.startswith("\x1b") and len(pressed) > 1 else pressed:
                    if key in _ENDING:
                        return
                    if key in _SPANS and key != span:
                        with suppress(BftrainError):  # without contact, what is shown stays
                            other = StreamClient(client, _SPANS[key], keyboard.wake)
                            follower.end()
                            span, follower = key, other
                if keyboard.suspended:
                    screen.stop()
                    keyboard.suspend()
                    screen.start()
                    drawn = None
    finally:
        follower.end()


class Keyboard:
    """Reads single key presses without echo; Ctrl-C and Ctrl-Z remain signals.

    ``terminal`` is the file descriptor to read from; with ``None`` there are no keys and ``wait`` only sleeps.
    """

    def __init__(self, terminal: int | None) -> None:
        self._terminal = terminal
        self._attributes: list[Any] | None = None
        self._lock = threading.RLock()  # a signal may come while we hold it
        self.suspended = False  # Ctrl-Z was pressed

    def __enter__(self) -> Self:
        self._awake, self._waker = os.pipe()
        os.set_blocking(self._waker, False)
        self._before = signal.signal(signal.SIGTSTP, self._suspended)
        if self._terminal is not None:
            self._attributes = termios.tcgetattr(self._terminal)
            tty.setcbreak(self._terminal)
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        signal.signal(signal.SIGTSTP, self._before)
        with self._lock:  # another file may have these numbers soon
            for end in (self._awake, self._waker):
                os.close(end)
            self._waker = -1

    def wake(self) -> None:
        """Wake up ``wait``; may be called from any thread or signal handler."""
        with self._lock, suppress(OSError):  # it is awake already, or no thread waits any more
            os.write(self._waker, b"!")

    def wait(self, patience_s: float) -> str:
        """Wait for a key, a wake-up or the time-out; return the key, or ""."""
        sources = [self._awake, *([] if self._terminal is None else [self._terminal])]
        ready, _, _ = select.select(sources, [], [], patience_s)
        if self._awake in ready:
            os.read(self._awake, 4096)
        if self._terminal is None or self._terminal not in ready:
            return ""
        try:
            found = os.read(self._terminal, 64)
        except OSError:
            found = b""
        if not found:  # the terminal is gone
            self._terminal = None
        return found.decode(errors="replace")

    def suspend(self) -> None:
        """Suspend this program with the terminal restored, until the shell continues it."""
        self.suspended = False
        self._restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        if self._terminal is not None:
            tty.setcbreak(self._terminal)

    def _restore(self) -> None:
        if self._terminal is not None and self._attributes is not None:
            with suppress(termios.error):  # it is gone
                termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._attributes)

    def _suspended(self, *_: object) -> None:
        self.suspended = True
        self.wake()


def own_keyboard() -> int | None:
    """Return the file descriptor of the controlling terminal's keyboard, if there is one."""
    try:
        return sys.stdin.fileno() if sys.stdin.isatty() else None
    except (OSError, ValueError):
        return None
