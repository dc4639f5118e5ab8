"""ForkedPass: one pass of a study or of a sweep in a child process, which shares the log and the tasks with this one.

A fork needs no file, no start of Python and no copy of the log, and objectives may be functions. It is safe only while
this process has one thread, and uses no library with its own threads, connections or licences.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final, Generic, NamedTuple, TypeVar

from bftrain_elastic.agent.process_tree import die_with
from bftrain_replay.run.result import ReplayResult
from bftrain_replay.simulation.engine import KeepGoing
from bftrain_replay.simulation.run_records import RowFile

T = TypeVar("T")

# Runs a pass and calls the argument at every moment; False stops it
RunPass = Callable[[KeepGoing], ReplayResult | None]

_REPORT_EVERY_S: Final = 0.1
_EXIT_PATIENCE_S: Final = 5.0  # a child with much memory, or with a core dump to write, takes long to exit
_UNSAFE_TO_FORK: Final = ("gurobipy", "mip", "scipy.optimize", "torch")
# These signals stop the parent, and the parent stops its children
_HANDLED_SIGNALS: Final = frozenset({signal.SIGINT, signal.SIGTERM})


class PassProgress(NamedTuple):
    """The progress of a pass."""

    simulated_s: float
    decisions: int


class _PassEnd(NamedTuple):
    result: Any


def usable_cpus() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def may_fork() -> bool:
    """Return whether this process can be forked safely."""
    return threading.active_count() == 1 and not any(name in sys.modules for name in _UNSAFE_TO_FORK)


class ForkedPass(Generic[T]):
    """A pass in a child process; the child exits with this process, even if this process crashes.

    An error in the child is printed with its traceback. Without a result, ``exit_code`` is the child's exit code or its
    negative signal.
    """

    def __init__(self, run: Callable[[KeepGoing], T | None]) -> None:
        self.progress = PassProgress(0.0, 0)
        self.running = True
        self.result: T | None = None
        self.exit_code = 0
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run_in_child, args=(run, theirs, self.connection, os.getpid()), daemon=True
        )
        # Until the child ignores it, Ctrl-C would end it with a traceback
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED_SIGNALS)
        try:
            with warnings.catch_warnings():
                # The warning is about numpy's linear algebra threads, which it stops and restarts around a fork
                warnings.simplefilter("ignore", DeprecationWarning)
                self._process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        theirs.close()

    def refresh(self, wait_s: float = 0.0) -> None:
        """Receive the child's messages within this time; a child that died leaves no result."""
        while self.running and self.connection.poll(wait_s):
            try:
                message = self.connection.recv()
            except (EOFError, OSError):
                self._process.join(_EXIT_PATIENCE_S)  # the closed connection makes it exit
                message = _PassEnd(None)
            if isinstance(message, _PassEnd):
                self.result = message.result
                self.stop()
            else:
                self.progress = message
            wait_s = 0.0

    def stop(self) -> None:
        """Kill the child, even if it hangs."""
        if self.running:
            self.running = False
            self._process.kill()
            self._process.join()
            self.exit_code = self._process.exitcode or 0
            self._process.close()
            self.connection.close()


class ParallelPasses:
    """Passes in children, by name, watched together: ``report`` receives a name, simulated seconds and decisions."""

    def __init__(self, report: Callable[[str, float, int], bool]) -> None:
        self._report = report
        self._passes: dict[str, ForkedPass[ReplayResult]] = {}
        self._next_s = 0.0

    def __contains__(self, name: str) -> bool:
        return name in self._passes

    def start(self, name: str, run: RunPass) -> None:
        """Start a pass; its child inherits no other pass."""

        def alone(keep_going: KeepGoing) -> ReplayResult | None:
            self._passes.clear()
            try:
                return run(keep_going)
            except Exception:  # noqa: BLE001 - this process repeats a pass that failed, and reports the error
                return None

        self._passes[name] = ForkedPass(alone)

    def refresh(self, wait_s: float = 0.0) -> None:
        """Report each pass's progress, up to ten times per second unless there is time to wait."""
        if not self._passes or (not wait_s and time.monotonic() < self._next_s):
            return
        for name, each in self._passes.items():
            each.refresh(wait_s)
            if each.running:
                self._report(name, *each.progress)
        self._next_s = time.monotonic() + _REPORT_EVERY_S

    def result(self, name: str, going: Callable[[], bool]) -> ReplayResult | None:
        """Wait for a pass while ``going()``; return ``None`` if it is unknown, has failed, or waiting stopped."""
        found = self._passes.get(name)
        while found is not None and found.running and going():
            self.refresh(_REPORT_EVERY_S)
        return found.result if found is not None and going() else None

    def stop(self) -> None:
        """Kill all running passes."""
        for each in self._passes.values():
            each.stop()


def _run_in_child(
    run: Callable[[KeepGoing], object], to_parent: Connection, of_parent: Connection, parent: int
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    die_with(parent)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED_SIGNALS)
    os.nice(1)  # the parent has work outside its own pass; lower priority makes all finish at about the same time
    of_parent.close()
    next_s = time.monotonic()

    def keep_going(simulated_s: float, decisions: int) -> bool:
        nonlocal next_s
        if (now_s := time.monotonic()) >= next_s:
            next_s = now_s + _REPORT_EVERY_S
            to_parent.send(PassProgress(simulated_s, decisions))
        return True

    found = run(keep_going)  # multiprocessing prints the traceback of an error, and exits with 1
    RowFile.names_its_file = True
    try:
        to_parent.send(_PassEnd(found))  # a result that cannot be pickled is a fault to be seen
    except OSError:  # the parent has exited, or the disk is full
        return
    while True:  # waits for the parent to open the files and kill this process
        signal.pause()
