"""SIGTERM: what it does to a worker while it trains."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

GRACE: Final = "BFTRAIN_GRACE_S"  # how many seconds before it is taken the scheduler warns a node; 0: it does not
_LEAST_S: Final = 10.0  # how long after SIGTERM an error may be its consequence, even if the notice is shorter
_LATE_S: Final = 0.3  # by which SIGTERM may come later to a process than to those that it started
_POLL_S: Final = 0.01
_received_at: list[float] = []  # on the monotonic clock: when SIGTERM came last


@contextmanager
def on_sigterm(act: Callable[[], None]) -> Iterator[None]:
    """Call ``act`` when SIGTERM comes, and nothing else; afterwards SIGTERM does again what it did before.

    Processes that are forked meanwhile, such as those of a DataLoader, inherit the handler. They end of the signal as
    ever: whoever started them ends them that way.
    """
    own = os.getpid()

    def answer(number: int, _frame: object) -> None:
        if os.getpid() == own:
            _received_at[:] = [time.monotonic()]
            act()
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    try:
        before = signal.signal(signal.SIGTERM, answer)
    except ValueError:  # only the main thread may ask for signals
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL if before is None else before)


def grace_s() -> float:
    """Return how long before a node is taken its scheduler warns; 0 if it does not."""
    try:
        return float(os.environ.get(GRACE) or 0.0)
    except ValueError:
        return 0.0


def follows_sigterm(within_s: float) -> bool:
    """Return whether an error may be due to a SIGTERM that came to all processes of the node, as schedulers send it.

    It ends a DataLoader's processes, for example, and then the script raises that they are gone.
    """
    deadline = time.monotonic() + _LATE_S
    while not _received_at and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return bool(_received_at) and time.monotonic() - _received_at[0] <= max(within_s, _LEAST_S)
