"""Handling of Ctrl-C, SIGTERM and a closed terminal during long commands: completed work is kept."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

_STDERR: Final = 2
_STOPPING: Final = b"\nbftrain: stopping after the current step; Ctrl-C again stops immediately\n"


@contextmanager
def on_sigterm(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    """Handle SIGTERM in this way, such as by ``default_int_handler``: like Ctrl-C."""
    before = signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def unterminated() -> AbstractContextManager[None]:
    """Ignore SIGTERM outside :func:`interruption`: it may arrive again while completed work is being written."""
    return on_sigterm(signal.SIG_IGN)


@contextmanager
def interruption(*, message: bool = True) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether a stop was requested; a second Ctrl-C interrupts as usual.

    Requests are Ctrl-C, SIGTERM (batch systems send it at a job's time limit) and SIGHUP. With ``message``, the first
    Ctrl-C prints how to stop immediately, because the current step, for example user code, may take long.
    """
    pressed = False

    def press(number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if message:
                with suppress(OSError):  # not through a stream: the handler may have interrupted a write to it
                    os.write(_STDERR, _STOPPING)

    nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # the command must survive a closed terminal
    numbers = (signal.SIGINT, signal.SIGTERM) if nohup else (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, press) for number in numbers}
    try:
        yield lambda: pressed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def blocked_signals() -> Iterator[None]:
    """Block Ctrl-C and SIGTERM until their handler is installed; the installing code unblocks them."""
    both = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, both)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
