"""Saving in the background: a thread writes a copy of the state while training continues with another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

AT_ONCE_BYTES: Final = 4 * 1024 * 1024  # smaller states are written immediately, in the calling thread
_MEMORY_SHARE: Final = 0.5  # maximum share of the free memory for another copy
_CGROUP: Final = Path("/sys/fs/cgroup")


class SavingStopped(Exception):
    """A save was abandoned, because a newer state is due or other workers write now."""


class BackgroundJob:
    """Runs one job at a time in a thread, on ``tree`` if it has one; the tree must not change until it finishes."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()
        self.tree: Any = None
        self.step = -1  # step being written
        self.error: Exception | None = None  # error of the previous job, until it is raised

    @property
    def busy(self) -> bool:
        """Whether the job is running."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def stopped(self) -> bool:
        """Whether the job should stop, or has stopped early."""
        return self._stopped.is_set()

    def holds(self, tree: object) -> bool:
        """Return whether a tree is being written."""
        return tree is not None and self.busy and self.tree is tree

    def start(self, work: Callable[[], None], tree: object = None, step: int = -1) -> None:
        """Start a job; it may end by :class:`SavingStopped`, which :meth:`go_on` raises."""
        self._stopped.clear()
        self.tree, self.step = tree, step
        self._thread = threading.Thread(target=self._do, args=(work,), name="bftrain-saving", daemon=True)
        self._thread.start()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            with suppress(SavingStopped):
                work()
        except Exception as error:  # noqa: BLE001 - it is raised by the training's own thread
            self.error = error

    def go_on(self) -> None:
        """Raise :class:`SavingStopped` if the job should stop; called by the job itself."""
        if self.stopped:
            raise SavingStopped

    def stop(self, timeout_s: float | None = None) -> None:
        """Stop the job, and wait until it has noticed."""
        self._stopped.set()
        self.wait(timeout_s)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the job; return whether it has finished."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_s)
        return not self.busy

    def raise_error(self) -> None:
        """Raise the error of the last job, once."""
        error, self.error = self.error, None
        if error is not None:
            raise error


def fits_in_memory(needed_bytes: int) -> bool:
    """Return whether the machine and the control group have room for this many bytes."""
    return needed_bytes <= _MEMORY_SHARE * available_memory()


def available_memory() -> int:
    """Return the bytes that the machine and the control group have left."""
    return max(0, min([free_memory(), *left_by_limits()]))


def free_memory() -> int:
    """Return the free memory of the machine."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def left_by_limits() -> Sequence[int]:
    """Return the memory left by the control groups' limits; missing files, or ``max``, are no limit."""
    left = []
    with suppress(OSError):
        own = Path("/proc/self/cgroup").read_text().rpartition("::")[2].strip().strip("/")
        for group in (_CGROUP / own, *(_CGROUP / own).parents):
            with suppress(OSError, ValueError):
                used = int((group / "memory.current").read_text())
                left.append(int((group / "memory.max").read_text()) - used)
    return left
