"""Processes: children that die with their parent, orphans that come back to us, and families that end as a whole."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterator
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
    """Let the kernel send us signal ``number`` (0: none any more) when our parent, process ``parent``, dies."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if number and os.getppid() != parent:  # it died before we asked
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Become the parent of all descendants that lose theirs, instead of the machine's first process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children(pid: int) -> list[int]:
    """Give the processes whose parent is ``pid``; none if there is no such process."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - called often: no Path for each thread
            with suppress(FileNotFoundError, ProcessLookupError):
                found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    except (FileNotFoundError, ProcessLookupError):
        return []
    return found


def descendants(pid: int) -> Iterator[int]:
    """Give the children of ``pid``, their children, and so on: parents before their children."""
    waiting = children(pid)
    while waiting:
        next_pid = waiting.pop()
        yield next_pid
        waiting += children(next_pid)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that may be gone already."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_session(leader: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to the process group that ``leader`` founded; it may be gone already."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, number)


def end_family(patience_s: float = 5.0) -> bool:
    """Kill all our descendants and reap them; orphans come to us if we adopt them. Tell whether all are gone."""
    deadline = time.monotonic() + patience_s
    while True:
        alive = list(descendants(os.getpid()))
        for pid in alive:
            kill(pid)
        if not alive:
            return True
        _reap_all()
        if time.monotonic() > deadline:  # a process that hangs in the kernel cannot be killed
            return False
        time.sleep(0.001)


def _reap_all() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
