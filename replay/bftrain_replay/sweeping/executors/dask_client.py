"""Runs passes on the workers of a Dask cluster, our own or another."""

from __future__ import annotations

import io
import logging
import math
import queue
import tempfile
import threading
import time
import uuid
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

from bftrain.errors import NotAvailable, UsageError
from bftrain.values import wire
from bftrain.values.task import TaskSpec
from bftrain_datasets.log import npz_log
from bftrain_datasets.log.eventlog import EventLog
from bftrain_elastic.errors import install_hint
from bftrain_replay.sweeping.run_point import PassStopped, Stopping, Tell, WorkerActivity, failed, work
from bftrain_replay.sweeping.sweep_inputs import InputCache, InputSlot, SweepLog, TaskFile, Tasks
from bftrain_replay.sweeping.sweep_runs import PassOutcome, SweepPass

_TELL_EVERY_S: Final = 0.5

# A worker with several threads would divide one core among several passes, and measure nonsense
_one_at_a_time = threading.Lock()
_inputs = InputCache()
_logs: InputSlot[EventLog] = InputSlot()
_tasks: InputSlot[Tasks] = InputSlot()


def do(message: bytes, log: bytes | None, tasks: bytes | None, topic: str, address: str) -> bytes:
    """Run a pass on a worker, one at a time; return its outcome, or nothing if it was stopped.

    An input that is not sent is generated here. ``topic`` is where progress is sent, with our ``address``, and the name
    of the event that stops it.
    """
    from distributed import Event, get_worker  # noqa: PLC0415 - only a worker of Dask has it for sure

    job = wire.decode(message, SweepPass)
    worker, stop, shown_s = get_worker(), Event(topic), -math.inf

    def the_log() -> EventLog:
        if log is None:
            return _inputs.log(job.log, job.seed)
        return _logs.get(job.log_sha256, lambda: _unpacked_log(log))

    def the_tasks() -> Tasks:
        if tasks is None:
            return _inputs.tasks(job.tasks, job.seed)
        return _tasks.get(job.tasks_sha256, lambda: wire.decode(tasks, tuple[TaskSpec, ...]))

    def watch(share: float) -> bool:
        nonlocal shown_s
        now_s = time.monotonic()
        if now_s - shown_s < _TELL_EVERY_S:
            return True
        shown_s = now_s
        worker.log_event(topic, (address, job.id, str(worker.name), share))
        return not stop.is_set()

    with _one_at_a_time:
        watch(0.0)
        try:
            return wire.encode(work(job, the_log, the_tasks, watch))
        except PassStopped:
            return b""


def _packed_log(log: EventLog) -> bytes:
    file = io.BytesIO()
    npz_log.save(log, file)
    return file.getvalue()


def _unpacked_log(log: bytes) -> EventLog:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.npz"
        path.write_bytes(log)
        return npz_log.load(path)


# A module that may not be there, and whose types are not ours to check
Client = Any
Future = Any

INSTALL: Final = install_hint("dask")
_LOOK_EVERY_S: Final = 0.1
_LOOK_AT_WORKERS_EVERY_S: Final = 0.5
_ATTEMPTS: Final = 3  # workers come and go; but one that dies of a pass takes others along
_PATIENCE_S: Final = 10.0  # for a scheduler to answer
_GRACE_S: Final = 1.5  # for passes in hand to notice that they are to stop


class ClusterSource(Protocol):
    """Provides a client."""

    def client(self) -> AbstractContextManager[Client]:
        """Connect."""

    def tend(self, jobs: int) -> None:
        """Maintain the workers while ``jobs`` passes remain; called several times a second."""


@dataclass(slots=True)
class _InHand:
    job: SweepPass
    address: str
    future: Future
    worker: str | None = None  # by name, once it is known


class DaskExecutor:
    """An executor for any cluster.

    Each worker is sent one pass at a time, by name. By default the scheduler would queue several at a worker, and blame
    all of them when it dies.
    """

    def __init__(self, cluster: ClusterSource) -> None:
        self._cluster = cluster
        self._topic = f"bftrain-sweep-{uuid.uuid4().hex}"
        self._parcels: dict[str, Future] = {}
        self._inputs = InputCache()
        self._workers: set[str] = set()  # by their addresses
        self._looked_s = -math.inf
        self._hands: dict[str, _InHand] = {}  # by the address of the worker
        self._attempts: Counter[str] = Counter()
        self._news: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()

    def outcomes(self, jobs: Sequence[SweepPass], tell: Tell, stopping: Stopping) -> Iterator[PassOutcome]:
        """Run all passes."""
        required("distributed")  # it sets the levels of its loggers when it is imported
        self._waiting, self._tell = deque(jobs), tell
        try:
            with _quiet(), self._cluster.client() as client:
                self._client = client
                client.subscribe_topic(self._topic, lambda event: self._news.put(event[1]))
                try:
                    while (still := len(self._waiting) + len(self._hands)) and not stopping():
                        self._cluster.tend(still)
                        yield from self._hand_out()
                        yield from self._turn()
                finally:
                    self._close()
        except (OSError, RuntimeError) as error:  # what a broken connection is to Dask
            if isinstance(error, RuntimeError) and "Timeout" not in str(error):  # one of a time-out that ends just then
                raise
            raise NotAvailable(f"the Dask scheduler is lost: {error}", where="sweep") from error

    def _hand_out(self) -> Iterator[PassOutcome]:
        """Look up the workers; send a pass to each free one."""
        now_s = time.monotonic()
        if now_s - self._looked_s > _LOOK_AT_WORKERS_EVERY_S:
            self._looked_s = now_s
            self._workers = set(self._client.nthreads())
            for address in self._hands.keys() - self._workers:
                yield from self._lose(self._hands[address])
        for address in self._workers - self._hands.keys():
            if not self._waiting:
                break
            self._hand(self._waiting.popleft(), address)

    def _hand(self, job: SweepPass, address: str) -> None:
        self._attempts[job.id] += 1
        key = f"{self._topic}-{job.id}-{self._attempts[job.id]}"
        log = tasks = None
        if isinstance(job.log, SweepLog):
            source = job.log
            log = self._sent(job.log_sha256, lambda: _packed_log(self._inputs.log(source, 0)))
        if isinstance(job.tasks, TaskFile):
            file = job.tasks
            tasks = self._sent(job.tasks_sha256, lambda: wire.encode(self._inputs.tasks(file, 0)))
        given = (wire.encode(job), log, tasks, self._topic, address)
        future = self._client.submit(do, *given, key=key, pure=False, workers=[address])
        self._hands[address] = _InHand(job, address, future)
        future.add_done_callback(lambda _: self._news.put((address, key, None, 0.0)))

    def _turn(self) -> Iterator[PassOutcome]:
        with suppress(queue.Empty):
            news = self._news.get(timeout=_LOOK_EVERY_S)
            while True:
                yield from self._hear(*news)
                news = self._news.get_nowait()
        if self._client.status not in {"running", "connecting"}:
            raise NotAvailable("the Dask scheduler is lost", where="sweep")

    def _close(self) -> None:
        with suppress(Exception):  # of a cluster that is gone, nothing is left to stop
            self._client.unsubscribe_topic(self._topic)
            if self._hands:
                stop = required("distributed").Event(self._topic, self._client)
                stop.set()
                self._client.cancel([hand.future for hand in self._hands.values()])
                time.sleep(_GRACE_S)
                stop.clear()
        self._hands.clear()

    def _hear(self, address: str, key: str, name: str | None, share: float) -> Iterator[PassOutcome]:
        """Handle a progress message of the worker called ``name``, or without a name the end of a pass."""
        hand = self._hands.get(address)
        if hand is None or key not in {hand.job.id, hand.future.key}:
            return
        if name is not None:
            hand.worker = name
            self._tell(WorkerActivity(name, hand.job, share))
            return
        try:
            message = hand.future.result(timeout=_PATIENCE_S)
        except Exception as error:
            if hand.future.status == "cancelled":
                raise NotAvailable("the Dask scheduler has lost its work", where="sweep") from error
            yield from self._give_up(hand, error)
        else:
            self._put_down(hand)
            yield wire.decode(message, PassOutcome)

    def _give_up(self, hand: _InHand, error: Exception) -> Iterator[PassOutcome]:
        if isinstance(error, ImportError) and "bftrain" in str(error):
            what = f"the workers of this Dask cluster cannot import bftrain: {error}"
            raise NotAvailable(what, fix="install the same version there as here")
        if isinstance(error, TimeoutError) or type(error).__name__ == "KilledWorker":
            self._parcels = {name: future for name, future in self._parcels.items() if future.status != "error"}
            yield from self._lose(hand)
        else:
            self._put_down(hand)
            yield failed(hand.job, f"{type(error).__name__}: {error}")

    def _lose(self, hand: _InHand) -> Iterator[PassOutcome]:
        """Handle a lost worker: another one gets its pass, a limited number of times."""
        self._client.cancel([hand.future])
        self._put_down(hand)
        self._workers.discard(hand.address)
        if self._attempts[hand.job.id] < _ATTEMPTS:
            self._waiting.appendleft(hand.job)
        else:
            yield failed(hand.job, f"its worker died, {_ATTEMPTS} times")

    def _put_down(self, hand: _InHand) -> None:
        del self._hands[hand.address]
        if hand.worker is not None:
            self._tell(WorkerActivity(hand.worker, None))

    def _sent(self, sha256: str, pack: Callable[[], bytes]) -> Future:
        """Return an input on the cluster, sent only once.

        It is the result of a task and not scattered data, so it is made again when the worker that holds it is lost.
        """
        if sha256 not in self._parcels:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that it is large; once is not too often
                key = f"{self._topic}-{sha256}"
                self._parcels[sha256] = self._client.submit(bytes, pack(), key=key, pure=False)
        return self._parcels[sha256]


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """A running cluster: the address of its scheduler, or the file that holds it."""

    address: str

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Connect."""
        distributed = required("distributed")
        if ":" not in self.address and not Path(self.address).is_file():
            raise UsageError("is no address, file of a scheduler, local or slurm", where=f"--dask {self.address}")
        place = {"scheduler_file": self.address} if Path(self.address).is_file() else {"address": self.address}
        try:
            client = distributed.Client(**place, timeout=_PATIENCE_S, set_as_default=False, name="bftrain-sweep")
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            what = f"no Dask scheduler answers there: {error}"
            raise NotAvailable(what, where=self.address, fix="see that it runs, and that TLS is as it asks") from error
        with client:
            yield client

    def tend(self, jobs: int) -> None:
        """Do nothing: the workers are not ours."""


@dataclass(frozen=True, slots=True)
class OwnWorkers:
    """Worker processes on this machine; connections use TLS, because a client can run code as their user."""

    workers: int

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Start scheduler and workers, and connect; they end with the sweep."""
        distributed = required("distributed")
        required("cryptography")
        own = {"host": "127.0.0.1", "protocol": "tls://", "security": distributed.Security.temporary()}
        how = {"n_workers": self.workers, "threads_per_worker": 1, "dashboard_address": None, **own}
        with (
            distributed.LocalCluster(**how, silence_logs=logging.CRITICAL + 1) as cluster,
            distributed.Client(cluster, set_as_default=False, name="bftrain-sweep") as client,
        ):
            yield client

    def tend(self, jobs: int) -> None:
        """Leave the workers as they are; one that dies is started again."""


def required(module: str) -> Any:  # noqa: ANN401 - a module without types
    """Import a module of an extra, or raise an error that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise NotAvailable(f"{module} is not installed", where="--dask", fix=INSTALL) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask from logging what errors here say already."""
    logging.getLogger("distributed")  # at least this one is there
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    before = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in before:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in before.items():
            logger.setLevel(level)
