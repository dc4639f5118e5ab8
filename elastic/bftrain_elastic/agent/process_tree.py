"""Process trees: children that die with their parent, adopted orphans, and killing all descendants."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterator
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
    """Make the kernel send signal ``number`` to this process when its parent ``parent`` dies."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it died before the request
        os.kill(os.getpid(), number)


def adopt_orphans() -> None:
    """Become the parent of all orphaned descendants, instead of init (PR_SET_CHILD_SUBREAPER)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children(pid: int) -> list[int]:
    """Return the child processes of ``pid``; empty if there is no such process."""
    pids: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - called often: no Path for each thread
            with suppress(FileNotFoundError, ProcessLookupError):
                pids += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_bytes().split())
    except (FileNotFoundError, ProcessLookupError):
        return []
    return pids


def descendants(pid: int, keep: Collection[int] = ()) -> Iterator[int]:
    """Yield the descendants of ``pid``, parents first; skips the processes in ``keep``."""
    waiting = children(pid)
    while waiting:
        next_pid = waiting.pop()
        if next_pid not in keep:
            yield next_pid
            waiting += children(next_pid)


def handles_sigterm(pid: int) -> bool:
    """Return whether a running process catches, ignores, blocks or waits for SIGTERM, and thus survives it."""
    return any(_handles_sigterm(thread) for thread in Path(f"/proc/{pid}/task").glob("*"))


def _handles_sigterm(thread: Path) -> bool:
    for _ in range(5):
        try:
            status = (thread / "status").read_text(encoding="utf-8", errors="replace")
            waits_in = (thread / "wchan").read_text(encoding="utf-8")
        except OSError:
            return False  # it has exited
        masks = [line.split()[1] for line in status.splitlines() if line.startswith(("SigBlk", "SigIgn", "SigCgt"))]
        # The kernel unblocks a signal while sigwait() waits for it
        if "sigtimedwait" in waits_in or any(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in masks):
            return True
        if "\nState:\tS" not in status or waits_in not in {"", "0"}:
            return False
        time.sleep(0.001)  # it is waking up, or the kernel hides where it waits
    return True


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process; ignores a missing process."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def state_of(pid: int) -> str:
    """Return the state of a process in Linux's notation (``R``, ``S``, ``T``, ...); "" for a missing process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return stat.rpartition(b")")[2].split()[0].decode()


def group_alive(leader: int) -> bool:
    """Return whether the process group of ``leader`` has any process."""
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def end_descendants(
    patience_s: float = 5.0, exit_codes: dict[int, int] | None = None, keep: Collection[int] = ()
) -> bool:
    """Kill all our descendants and reap them; return whether all are gone.

    The children in ``keep`` and their descendants survive. Orphans are killed only if this process adopts them.
    ``exit_codes`` receives the exit code of each reaped process.
    """
    deadline = time.monotonic() + patience_s
    while True:
        alive = list(descendants(os.getpid(), keep))
        for pid in alive:
            kill(pid)
        with suppress(ChildProcessError):
            while (reaped := os.waitpid(-1, os.WNOHANG))[0]:
                if exit_codes is not None:
                    exit_codes[reaped[0]] = os.waitstatus_to_exitcode(reaped[1])
        if not alive:  # the loop above also reaped zombies that /proc did not list
            return True
        if time.monotonic() > deadline:  # a process that hangs in the kernel cannot be killed
            return False
        time.sleep(0.001)
