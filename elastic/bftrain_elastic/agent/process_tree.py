"""Process trees: children that die with their parent, adopted orphans, and killing all descendants."""

from __future__ import annotations

import ctypes
import os
import select
import selectors
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def die_with(parent: int, number: int = signal.SIGKILL) -> None:
    """Let the kernel send signal ``number`` (0: none any more) to this process when its parent ``parent`` dies."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if number and os.getppid() != parent:  # it died before we asked
        os.kill(os.getpid(), number)


class ProgramWatch:
    """Ends this process when ``program`` (0: none), which started it, ends: by SIGTERM if it is the parent."""

    def __init__(self, program: int, *, forked: bool) -> None:
        self._parent = 0 if forked else program
        self._pidfd = -1
        self._gone = False
        if self._parent:
            die_with(self._parent, signal.SIGTERM)
        elif program:
            try:
                self._pidfd = os.pidfd_open(program)
            except ProcessLookupError:
                self._gone = True

    def register(self, selector: selectors.BaseSelector, on_end: Callable[[int], None]) -> None:
        """Have ``on_end`` called, once, when a program that is not the parent ends."""

        def ended(_: int) -> None:
            selector.unregister(self._pidfd)
            on_end(signal.SIGTERM)

        if self._pidfd >= 0:
            selector.register(self._pidfd, selectors.EVENT_READ, ended)
        elif self._gone:
            on_end(signal.SIGTERM)

    def ended(self) -> bool:
        """Return whether the program has ended."""
        if self._pidfd >= 0:
            self._gone = self._gone or bool(select.select([self._pidfd], [], [], 0)[0])
        return self._gone or (self._parent > 0 and os.getppid() != self._parent)


def adopt_orphans() -> None:
    """Become the parent of all orphaned descendants, instead of init (PR_SET_CHILD_SUBREAPER)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children(pid: int) -> list[int]:
    """Return the processes whose parent is ``pid``; empty if there is no such process."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - called often: no Path for each thread
            with suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    except (FileNotFoundError, ProcessLookupError):
        return []
    return found


def descendants(pid: int) -> Iterator[int]:
    """Yield the children of ``pid``, their children, and so on: parents before their children."""
    waiting = children(pid)
    while waiting:
        next_pid = waiting.pop()
        yield next_pid
        waiting += children(next_pid)


def is_running(pid: int) -> bool:
    """Return whether a process exists and has not ended, reaped or not."""
    return state_of(pid) not in {"", "Z", "X"}


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that may be gone already."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def state_of(pid: int) -> str:
    """Return the state of a process as Linux names it (``R``, ``S``, ``T``, ...); "" if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(b")")[2].split()[0].decode()


def session_alive(leader: int) -> bool:
    """Return whether the process group of ``leader`` has any process."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def end_descendants(patience_s: float = 5.0, exit_codes: dict[int, int] | None = None) -> bool:
    """Kill all our descendants and reap them; return whether all are gone.

    Orphans are among them if we adopt them. ``exit_codes`` receives the exit code of each process that was reaped.
    """
    deadline = time.monotonic() + patience_s
    while alive := list(descendants(os.getpid())):  # parents first
        for pid in alive:
            kill(pid)
        with suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if exit_codes is not None:
                    exit_codes[reaped[0]] = os.waitstatus_to_exitcode(reaped[1])
        if time.monotonic() > deadline:  # a process that hangs in the kernel cannot be killed
            return False
        time.sleep(0.001)
    return True
