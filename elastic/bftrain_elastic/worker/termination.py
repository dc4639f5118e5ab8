"""SIGTERM handling of a worker while it trains."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

GRACE: Final = "BFTRAIN_GRACE_S"  # how many seconds before it is taken the scheduler warns a node; 0: it does not
_LEAST_S: Final = 10.0  # how long after SIGTERM an error may be its consequence, even if the notice is shorter
_LATE_S: Final = 1.0  # by which SIGTERM may come later to a process than to those that it started, on a busy node
_POLL_S: Final = 0.01
_received_at: list[float] = []  # on the monotonic clock: when SIGTERM came last
_replaced: list[Any] = []  # the handlers that on_sigterm replaced, the innermost last
_forking = threading.local()  # the signals that a thread held back before it forks


@contextmanager
def on_sigterm(act: Callable[[], None]) -> Iterator[None]:
    """Call ``act`` on SIGTERM, and do nothing else; restore the former handler afterwards.

    Processes that are forked meanwhile, such as those of a DataLoader, still end on the signal, by which their parent
    ends them.
    """

    def answer(_number: int, _frame: object) -> None:
        _received_at[:] = [time.monotonic()]
        act()

    try:
        before = signal.signal(signal.SIGTERM, answer)
    except ValueError:  # only the main thread may ask for signals
        yield
        return
    _replaced.append(signal.SIG_DFL if before is None else before)
    try:
        yield
    finally:
        if _replaced:  # not in a forked process, which has what was before already
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


# Python forgets signals that come between a fork and the forked process's first line: held back, they wait
os.register_at_fork(before=_hold_back, after_in_parent=_let_through, after_in_child=_in_a_forked_process)


def grace_s() -> float:
    """Return how long before taking a node its scheduler warns; 0 if it does not."""
    try:
        return float(os.environ.get(GRACE) or 0.0)
    except ValueError:
        return 0.0


def follows_sigterm(within_s: float) -> bool:
    """Return whether an error may be due to a SIGTERM to all processes of the node, as schedulers send it.

    Such as that of a DataLoader whose processes were ended by the signal.
    """
    deadline = time.monotonic() + _LATE_S
    while not _received_at and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return bool(_received_at) and time.monotonic() - _received_at[0] <= max(within_s, _LEAST_S)
