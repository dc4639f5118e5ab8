"""An agent's records of its workers, kept until a manager has acknowledged their exits."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from bftrain_elastic.wire.agent_messages import GroupPlace, LeftWorker, SpawnWorker, WorkerExit
from bftrain_elastic.wire.messages import Message, WireMessage, encode
from bftrain_elastic.wire.worker_messages import (
    NO_STEP,
    FormGroup,
    StepReport,
    TrainingDone,
    TrainingStopped,
    WorkerReady,
    WorkFinished,
)

_TAIL_BYTES: Final = 4096
_KEPT: Final = 256  # maximum number of remembered exits
_ENDED_BYTES: Final = 512 * 1024  # maximum bytes of exits in one message, half the message limit
_LEAST_BYTES: Final = 65_536  # free bytes on a disk that is not full
_LAST: Final = 4 * 1024 * 1024  # maximum bytes kept from the end of a log that is cut
_LINE: Final = 4096  # bytes searched for a line break
_KILLED_BY_KERNEL: Final = "bftrain: the kernel's out-of-memory killer was at work on this node"


def out_of_memory_kills() -> int:
    """Return the number of out-of-memory kills on this node; 0 if unknown."""
    try:
        counters = Path("/proc/vmstat").read_bytes()
    except OSError:
        return 0
    _, _, rest = counters.partition(b"\noom_kill ")
    return int(rest.split(b"\n", 1)[0]) if rest else 0


class WorkerRecord:
    """An agent's record of a worker, created by the manager's ``order``."""

    def __init__(self, order: SpawnWorker) -> None:
        self.order = order
        self.name = order.worker
        self.log, self.log_start = Path(order.log), 0
        self.port = 0
        self.pid = 0
        self.pending: SpawnWorker | None = None  # order to its prefork server; None once sent
        self.ordered_at = 0.0  # monotonic time of an order to start or kill it that is not carried out yet; 0: none
        self.kill_at = 0.0  # monotonic time; 0: not to be killed
        self.kill_ordered = False  # SIGKILL was sent, or will be as soon as it has started
        self.forgotten = False  # its task was dropped: no manager will ask for its exit
        self.oom_kills = out_of_memory_kills()  # number at the worker's start
        # Its messages about the exit: "done": training has finished, "finished": the work is done, or "stopped"
        self.message_types: set[str] = set()
        self.asked_to_end = False  # it handles the SIGTERM it got, so an exit with 0 may be the reaction
        # Its description for a later manager
        self.left = LeftWorker(worker=order.worker, task=order.task, slot=order.slot, step=NO_STEP, go=order.place)

    def record_order(self, message: Message) -> None:
        """Record a message to it."""
        if message.get("type") == FormGroup.type:
            place = GroupPlace(*(message[name] for name in ("generation", "rank", "workers")))
            self.left = replace(self.left, go=place, ready=None)

    def record_message(self, message: WireMessage) -> None:
        """Record a message from it."""
        self.left = replace(self.left, step=getattr(message, "step", self.left.step))
        match message:
            case WorkerReady():
                self.left = replace(self.left, ready=message)
            case StepReport():
                self.left = replace(self.left, report=message)
            case TrainingDone() | WorkFinished() | TrainingStopped():
                self.message_types.add(message.type)
                self.left = replace(self.left, done="done" in self.message_types)

    def ended(self, code: int, tail: str = "") -> WorkerExit:
        """Return its exit: exit code, last output, and its own last message."""
        finished = "finished" in self.message_types or code == self.order.finish_code
        finished = finished or (code == 0 and ("done" in self.message_types or self._finish_file_is_there()))
        killed_by_us = self.kill_ordered and code == -signal.SIGKILL
        stopped = "stopped" in self.message_types or (code == 0 and self.asked_to_end) or killed_by_us
        return WorkerExit(code, tail or self._tail(code), finished, stopped)

    def _finish_file_is_there(self) -> bool:
        try:
            return bool(self.order.finish_file) and Path(self.order.finish_file).exists()
        except OSError:
            return False

    def _tail(self, code: int) -> str:
        try:
            with self.log.open("rb") as log:
                log.seek(max(self.log_start, log.seek(0, os.SEEK_END) - _TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except OSError:
            text = ""
        if code == -signal.SIGKILL and not self.kill_ordered and out_of_memory_kills() > self.oom_kills:
            text = f"{text.rstrip()}\n{_KILLED_BY_KERNEL}\n".lstrip()
        elif code > 0 and self._disk_is_full():  # its last output may be missing from the log
            text = f"{text.rstrip()}\nbftrain: no space is left in {self.log.parent}\n".lstrip()
        return text

    def _disk_is_full(self) -> bool:
        try:
            disk = os.statvfs(self.log.parent)
        except OSError:
            return False
        return (disk.f_bavail if os.getuid() else disk.f_bfree) * disk.f_frsize < _LEAST_BYTES


class EndedWorkers:
    """Worker exits, kept for the next manager until it acknowledges them."""

    def __init__(self) -> None:
        self._ended: dict[str, tuple[WorkerRecord, WorkerExit, float]] = {}  # worker, exit and time

    def __contains__(self, worker: str) -> bool:
        return worker in self._ended

    def add(self, worker: WorkerRecord, exit_: WorkerExit) -> None:
        """Record the exit of a worker."""
        self._ended[worker.name] = worker, exit_, time.monotonic()
        while len(self._ended) > _KEPT:
            del self._ended[next(iter(self._ended))]

    def forget(self, task: str, worker: str = "", slot: int | None = None) -> None:
        """Drop the exits of a task's workers, optionally only those with this name or on this slot."""
        for name, (one, *_) in list(self._ended.items()):
            if one.left.task == task and worker in {"", name} and slot in {None, one.left.slot}:
                del self._ended[name]

    def summaries(self) -> Iterator[LeftWorker]:
        """Yield the descriptions for a new manager, latest first; leaves out last outputs that do not fit."""
        room = _ENDED_BYTES
        for worker, exit_, ended_at in reversed(list(self._ended.values())):
            summary = replace(exit_, ago_s=round(time.monotonic() - ended_at, 3))
            size = len(encode(replace(worker.left, exit=summary).to_dict()))
            if size > room:
                summary = replace(summary, tail="")
            else:
                room -= size
            yield replace(worker.left, exit=summary)


def limit_logs(workers: Collection[WorkerRecord], limit: int) -> None:
    """Cut the logs that are longer than ``limit`` bytes."""
    for log in {worker.log for worker in workers}:
        with suppress(OSError):  # the file system may be unavailable now; the next beat retries
            if removed := cut_middle(log, limit):
                for worker in workers:
                    if worker.log == log:
                        worker.log_start = max(0, worker.log_start - removed)


def cut_middle(path: Path, limit: int) -> int:
    """Cut the middle out of a file that is longer than ``limit`` bytes; return the number of removed bytes.

    Lines appended meanwhile are kept, except in the very last moment.
    """
    if path.lstat().st_size <= limit:
        return 0
    file = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            return 0
        half = limit // 2
        before = os.pread(file, min(_LINE, half), max(0, half - _LINE))
        place = half - len(before) + before.rfind(b"\n") + 1 if b"\n" in before else half
        start = about.st_size - min(_LAST, limit // 4)
        start += os.pread(file, _LINE, start).find(b"\n") + 1
        mark = f"[bftrain: lines are left out here, for this log became longer than {limit / 1e6:g} MB]\n".encode()
        place += os.pwrite(file, mark, place)
        enough = about.st_size + _LAST  # a worker may write faster than this reads
        while start < enough and (piece := os.pread(file, _LAST, start)):
            place += os.pwrite(file, piece, place)
            start += len(piece)
        os.ftruncate(file, place)
        return start - place
    finally:
        os.close(file)
