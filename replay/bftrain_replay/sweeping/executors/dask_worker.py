"""What a Dask worker does: one pass at a time, with inputs that came to it once.

Inputs travel as the files they are in, so a worker need not share a file system with the machine of the sweep.
"""

from __future__ import annotations

import io
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bftrain.values import wire
from bftrain.values.task import TaskSpec
from bftrain_datasets.log import npz_log
from bftrain_replay.sweeping.run_point import PassStopped, work
from bftrain_replay.sweeping.sweep_inputs import InputCache, InputShelf, Tasks
from bftrain_replay.sweeping.sweep_runs import SweepPass

if TYPE_CHECKING:
    from bftrain_datasets.log.eventlog import EventLog

_TELL_EVERY_S: Final = 0.5

# A worker with several threads would divide one core among several passes, and measure nonsense
_one_at_a_time = threading.Lock()
_inputs = InputCache()
_logs: InputShelf[EventLog] = InputShelf()
_tasks: InputShelf[Tasks] = InputShelf()


def packed_log(log: EventLog) -> bytes:
    """Give a log as it travels."""
    file = io.BytesIO()
    npz_log.save(log, file)
    return file.getvalue()


def packed_tasks(tasks: Tasks) -> bytes:
    """Give tasks as they travel."""
    return wire.encode(tasks)


def unchanged(data: bytes) -> bytes:
    """Give what is given: an input on the cluster."""
    return data


def do(message: bytes, log: bytes | None, tasks: bytes | None, topic: str, address: str) -> bytes:
    """Do a pass; gives its outcome, or nothing if it was stopped.

    An input that does not come along is generated here. ``topic`` is where progress is sent, with our ``address``, and
    the name of the event that says to stop.
    """
    job = wire.decode(message, SweepPass)
    seed = job.seed

    def the_log() -> EventLog:
        return _inputs.log(job.log, seed) if log is None else _logs.get(job.log_sha256, lambda: _unpacked_log(log))

    def the_tasks() -> Tasks:
        if tasks is None:
            return _inputs.tasks(job.tasks, seed)
        return _tasks.get(job.tasks_sha256, lambda: wire.decode(tasks, tuple[TaskSpec, ...]))

    with _one_at_a_time:
        link = _Link(topic, address, job.id)
        link.tell(0.0)
        try:
            return wire.encode(work(job, the_log, the_tasks, link.watch))
        except PassStopped:
            return b""


def _unpacked_log(log: bytes) -> EventLog:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.npz"
        path.write_bytes(log)
        return npz_log.load(path)


class _Link:
    """The way from a pass to the process of the sweep."""

    def __init__(self, topic: str, address: str, job_id: str) -> None:
        from distributed import Event, get_worker  # noqa: PLC0415 - only a worker of Dask has it for sure

        self._worker: Any = get_worker()
        self._topic = topic
        self._news = (address, job_id, str(self._worker.name))
        self._stop = Event(topic)
        self._shown_s = time.monotonic()

    def tell(self, share: float) -> None:
        """Say which share is done."""
        self._worker.log_event(self._topic, (*self._news, share))

    def watch(self, share: float) -> bool:
        """Tell now and then, and say whether to go on."""
        now_s = time.monotonic()
        if now_s - self._shown_s < _TELL_EVERY_S:
            return True
        self._shown_s = now_s
        self.tell(share)
        return not self._stop.is_set()
