"""Ctrl-C and SIGTERM while something long runs: what is done by then is kept."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType


@contextmanager
def unterminated() -> Iterator[None]:
    """Ignore SIGTERM but where it is listened to: it may come again while the part that is done is being written."""
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interruption() -> Iterator[Callable[[], bool]]:
    """Give a function that tells whether Ctrl-C was pressed; the second time it interrupts as usual.

    SIGTERM asks for the same, as a batch system sends it when a job's time is up.
    """
    pressed = False

    def press(number: int, _frame: FrameType | None) -> None:
        nonlocal pressed
        pressed = True
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, press) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: pressed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held_back() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back while what listens to them is only being imported; it lets them through itself."""
    both = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, both)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, both)
