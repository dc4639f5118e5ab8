"""SIGTERM handling of a worker while it trains."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

GRACE: Final = "BFTRAIN_GRACE_S"  # seconds between the scheduler's warning and a preemption; 0: no warning
_LEAST_S: Final = 10.0  # minimum time after SIGTERM within which an error may be its consequence
_LATE_S: Final = 1.0  # SIGTERM may reach a process this much later than its children on a busy node
_POLL_S: Final = 0.01
_received_at: list[float] = []  # monotonic time of the latest SIGTERM
_replaced: list[Any] = []  # the handlers that on_sigterm replaced, the innermost last
_forking = threading.local()  # signal mask of a thread before its fork


@contextmanager
def on_sigterm(act: Callable[[], None]) -> Iterator[None]:
    """Call only ``act`` on SIGTERM; restore the previous handler afterwards.

    Child processes forked meanwhile, such as DataLoader workers, still die of the signal, which their parent uses to
    stop them.
    """

    def answer(_number: int, _frame: object) -> None:
        _received_at[:] = [time.monotonic()]
        act()

    try:
        before = signal.signal(signal.SIGTERM, answer)
    except ValueError:  # only the main thread may set handlers
        yield
        return
    _replaced.append(signal.SIG_DFL if before is None else before)
    try:
        yield
    finally:
        if _replaced:  # a forked process has already restored the previous handler
            signal.signal(signal.SIGTERM, _replaced.pop())


def _hold_back() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])


def _let_through() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _in_a_forked_process() -> None:
    if _replaced:
        signal.signal(signal.SIGTERM, _replaced[0])
        _replaced.clear()
    _let_through()


# Python forgets signals between a fork and the child's first line; blocked signals stay pending
os.register_at_fork(before=_hold_back, after_in_parent=_let_through, after_in_child=_in_a_forked_process)


def grace_s() -> float:
    """Return the scheduler's warning time before a preemption in seconds; 0 if there is no warning."""
    try:
        return float(os.environ.get(GRACE) or 0.0)
    except ValueError:
        return 0.0


def follows_sigterm(within_s: float) -> bool:
    """Return whether an error may be due to a SIGTERM that schedulers send to all processes of the node.

    An example is the error of a DataLoader after the signal killed its workers.
    """
    deadline = time.monotonic() + _LATE_S
    while not _received_at and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return bool(_received_at) and time.monotonic() - _received_at[0] <= max(within_s, _LEAST_S)
