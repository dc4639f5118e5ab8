"""Keyboard: which keys are pressed while something is shown in a terminal, which afterwards is as it was before."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import threading
import tty
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import FrameType


class Keyboard:
    """Hears each key as it is pressed, without its letter on the screen; Ctrl-C and Ctrl-Z go on to be signals.

    ``terminal`` is the descriptor to read keys from; none: there are no keys, and it only waits.
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
        """End the waiting, from any thread or from a signal."""
        with self._lock, suppress(OSError):  # it is awake already, or no thread waits any more
            os.write(self._waker, b"!")

    def wait(self, patience_s: float) -> str:
        """Wait for a key, to be woken, or for as long as patience lasts; gives the key, if it was one."""
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
        """Stop this program, with the terminal as it was before, until the shell lets it go on."""
        self.suspended = False
        self._restore()
        os.kill(os.getpid(), signal.SIGSTOP)
        if self._terminal is not None:
            tty.setcbreak(self._terminal)

    def _restore(self) -> None:
        if self._terminal is not None and self._attributes is not None:
            with suppress(termios.error):  # it is gone
                termios.tcsetattr(self._terminal, termios.TCSADRAIN, self._attributes)

    def _suspended(self, _number: int, _frame: FrameType | None) -> None:
        self.suspended = True
        self.wake()


def keyboard_of_ours() -> int | None:
    """Give the descriptor of the keyboard that we are called from, if there is one."""
    try:
        return sys.stdin.fileno() if sys.stdin.isatty() else None
    except (OSError, ValueError):
        return None
