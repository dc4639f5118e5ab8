"""Local: passes done by processes of this machine."""

from __future__ import annotations

import os
import selectors
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from bftrain.errors import NotAvailable
from bftrain_replay.sweeping.executors import AtWork
from bftrain_replay.sweeping.executors.worker_messages import PassProgress
from bftrain_replay.sweeping.executors.worker_pool import WorkerPool
from bftrain_replay.sweeping.run_point import failed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from bftrain_replay.sweeping.executors import Stopping, Tell
    from bftrain_replay.sweeping.executors.worker_pool import WorkerProcess
    from bftrain_replay.sweeping.run_outcomes import PassOutcome
    from bftrain_replay.sweeping.sweep_runs import SweepPass

_LOOK_EVERY_S: Final = 0.1  # whether to stop
_STILLBORN: Final = 5  # so many workers in a row that die without being given anything: that is no accident


def usable_cpus() -> int:
    """Count the processors that this process may use."""
    return len(os.sched_getaffinity(0))


class LocalExecutor:
    """So many processes at a time; what their code prints goes to a file."""

    def __init__(self, workers: int, prints: Path) -> None:
        self._count = workers
        self._prints = prints

    def outcomes(self, jobs: Sequence[SweepPass], tell: Tell, stopping: Stopping) -> Iterator[PassOutcome]:
        """Do all passes."""
        shift = _Shift(WorkerPool(self._prints), jobs, tell)
        try:
            for number in range(min(self._count, len(jobs))):
                shift.hire(f"worker {number + 1}")
            while shift.going and not stopping():
                yield from shift.turn()
        finally:
            shift.close()


class _Shift:
    """One run of the executor: its workers and what is left to do."""

    def __init__(self, crew: WorkerPool, jobs: Sequence[SweepPass], tell: Tell) -> None:
        self._crew = crew
        self._jobs = jobs
        self._waiting = deque(jobs)
        self._tell = tell
        self._workers: list[WorkerProcess] = []
        self._selector = selectors.DefaultSelector()
        self._stillborn = 0

    @property
    def going(self) -> bool:
        """Whether there is work left."""
        return bool(self._waiting) or any(worker.job for worker in self._workers)

    def hire(self, name: str) -> None:
        """Take on a worker."""
        worker = self._crew.hire(name, self._jobs)
        self._workers.append(worker)
        self._selector.register(worker.connection, selectors.EVENT_READ, worker)

    def turn(self) -> Iterator[PassOutcome]:
        """Hand out work, and take in what comes within a moment."""
        self._crew.listen(_LOOK_EVERY_S if self._crew.expecting else 0.0)
        for worker in self._workers:
            if self._waiting and worker.pid and worker.job is None and worker.hand(self._waiting[0]):
                self._tell(AtWork(worker.name, self._waiting.popleft()))
        for key, _ in self._selector.select(_LOOK_EVERY_S):
            yield from self._hear(key.data)

    def close(self) -> None:
        """End all workers."""
        self._crew.close()
        for worker in self._workers:
            worker.connection.close()
        self._selector.close()

    def _hear(self, worker: WorkerProcess) -> Iterator[PassOutcome]:
        messages = worker.heard()
        if messages is None:
            yield from self._bury(worker)
            return
        for message in messages:
            if isinstance(message, PassProgress):
                self._tell(AtWork(worker.name, worker.job, message.share))
            else:
                worker.job = None
                self._stillborn = 0
                self._tell(AtWork(worker.name, None))
                yield message.outcome

    def _bury(self, worker: WorkerProcess) -> Iterator[PassOutcome]:
        """A worker is gone: its pass has failed, and another one takes its place."""
        self._selector.unregister(worker.connection)
        worker.connection.close()
        self._workers.remove(worker)
        fate = self._crew.fate_of(worker)
        self._tell(AtWork(worker.name, None))
        if worker.job is not None:
            yield failed(worker.job, fate, time.monotonic() - worker.begun_s)
        else:
            self._stillborn += 1
            if self._stillborn == _STILLBORN:
                raise NotAvailable(f"no worker lives here: {fate}", where="sweep")
        if self._waiting:
            self.hire(worker.name)
