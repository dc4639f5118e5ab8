"""Runs the passes of a sweep on a Dask cluster: a running one, processes of this machine, or Slurm jobs.

A client of a Dask scheduler can run code as the user who started it. So our own clusters use TLS with certificates made
for one sweep, and serve Dask's web pages on this machine only.
"""

from __future__ import annotations

import inspect
import io
import logging
import signal
import tempfile
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Self

from bftrain import toml_io
from bftrain.errors import BadConfig, NotAvailable, UsageError
from bftrain.values import wire
from bftrain.values.task import TaskSpec
from bftrain_datasets.log import npz_log
from bftrain_datasets.log.eventlog import EventLog
from bftrain_elastic.errors import install_hint
from bftrain_replay.sweeping.run_point import PassStopped, Stopping, Tell, WorkerActivity, failed, work
from bftrain_replay.sweeping.sweep_inputs import InputCache, InputSlot, SweepLog, TaskFile, Tasks
from bftrain_replay.sweeping.sweep_runs import PassOutcome, SweepPass

# A Dask client, and a function to call about once a second with the number of remaining passes
Cluster = tuple[Any, Callable[[int], None]]

_LOOK_EVERY_S: Final = 0.1
_ASK_EVERY_S: Final = 0.5  # a worker, whether to stop; and we, which workers there are
_PATIENCE_S: Final = 10.0  # for a scheduler to answer
_GRACE_S: Final = 1.5  # for running passes to notice that they are to stop
_LOST_AFTER: Final = "distributed.deploy.lost-worker-timeout"  # until then a lost Slurm job is not replaced
_WORKER: Final[dict[str, object]] = {"cores": 1, "processes": 1, "memory": "2 GiB"}  # of a Slurm job, by default
_LOGS: Final = "worker-logs"  # what Slurm jobs print
_ONLY_HERE: Final = "127.0.0.1:0"

_one_at_a_time = threading.Lock()  # a worker with several threads would divide one core among several passes
_inputs = InputCache()
_logs: InputSlot[EventLog] = InputSlot()
_tasks: InputSlot[Tasks] = InputSlot()


def run_on_worker(message: bytes, log: bytes | None, tasks: bytes | None, stop: str) -> bytes:
    """Run a pass on a worker; return its outcome, or nothing once the event ``stop`` is set.

    An input that is not sent is generated here.
    """
    from distributed import Event  # noqa: PLC0415 - only a worker of Dask has it for sure

    job, event, asked_s = wire.decode(message, SweepPass), Event(stop), 0.0

    def the_log() -> EventLog:
        return _inputs.log(job.log, job.seed) if log is None else _logs.get(job.log_sha256, lambda: _unpacked_log(log))

    def the_tasks() -> Tasks:
        if tasks is None:
            return _inputs.tasks(job.tasks, job.seed)
        return _tasks.get(job.tasks_sha256, lambda: wire.decode(tasks, tuple[TaskSpec, ...]))

    def watch(_share: float) -> bool:
        nonlocal asked_s
        if time.monotonic() - asked_s < _ASK_EVERY_S:
            return True
        asked_s = time.monotonic()
        return not event.is_set()

    with _one_at_a_time, suppress(PassStopped):
        return wire.encode(work(job, the_log, the_tasks, watch))
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


class DaskExecutor:
    """An executor for any cluster; no more passes are submitted than there are workers, so each gets one at a time."""

    def __init__(self, cluster: Callable[[], AbstractContextManager[Cluster]]) -> None:
        self._cluster = cluster
        self._topic = f"bftrain-sweep-{uuid.uuid4().hex}"
        self._parcels: dict[str, Any] = {}
        self._inputs = InputCache()

    def outcomes(self, jobs: Sequence[SweepPass], tell: Tell, stopping: Stopping) -> Iterator[PassOutcome]:
        """Run all passes."""
        distributed = required("distributed")
        try:
            with _quiet(), self._cluster() as (client, tend):
                running: dict[Any, SweepPass] = {}  # by future
                try:
                    yield from self._outcomes(client, tend, deque(jobs), running, tell, stopping)
                finally:
                    if running:
                        with suppress(Exception):  # a lost cluster has nothing to stop
                            distributed.Event(self._topic, client).set()
                            client.cancel(list(running))
                            time.sleep(_GRACE_S)
        except (OSError, RuntimeError) as error:  # Dask's errors for a broken connection
            if isinstance(error, RuntimeError) and "Timeout" not in str(error):
                raise
            raise NotAvailable(f"the Dask scheduler is lost: {error}", where="sweep") from error

    def _outcomes(
        self,
        client: Any,  # noqa: ANN401 - a class without types
        tend: Callable[[int], None],
        waiting: deque[SweepPass],
        running: dict[Any, SweepPass],
        tell: Tell,
        stopping: Stopping,
    ) -> Iterator[PassOutcome]:
        completed = required("distributed").as_completed(loop=client.loop, with_results=True, raise_errors=False)
        looked_s, shown = 0.0, dict[str, SweepPass | None]()
        while (waiting or running) and not stopping():
            if client.status not in {"running", "connecting"}:
                raise NotAvailable("the Dask scheduler is lost", where="sweep")
            if time.monotonic() - looked_s > _ASK_EVERY_S:
                looked_s = time.monotonic()
                tend(len(waiting) + len(running))
                by_key = {future.key: job for future, job in running.items()}
                at_work = {
                    name: next(filter(None, map(by_key.get, keys)), None) for name, keys in client.processing().items()
                }
                for name in shown.keys() | at_work.keys():
                    if (job := at_work.get(name)) is not shown.get(name):
                        tell(WorkerActivity(name, job))
                shown = at_work
            for _ in range(min(len(shown) - len(running), len(waiting))):
                future = self._submit(client, waiting.popleft(), running)
                completed.add(future)
            for future, result in completed.next_batch(block=False):
                yield _outcome(running.pop(future), future, result)
            time.sleep(_LOOK_EVERY_S)

    def _submit(self, client: Any, job: SweepPass, running: dict[Any, SweepPass]) -> Any:  # noqa: ANN401 - as above
        log = tasks = None
        if isinstance(source := job.log, SweepLog):
            log = self._sent(client, job.log_sha256, lambda: _packed_log(self._inputs.log(source, 0)))
        if isinstance(file := job.tasks, TaskFile):
            tasks = self._sent(client, job.tasks_sha256, lambda: wire.encode(self._inputs.tasks(file, 0)))
        key = f"{self._topic}-{job.id}"
        future = client.submit(run_on_worker, wire.encode(job), log, tasks, self._topic, key=key, pure=False)
        running[future] = job
        return future

    def _sent(self, client: Any, sha256: str, pack: Callable[[], bytes]) -> Any:  # noqa: ANN401 - as above
        """Return an input on the cluster, sent once: the result of a task, so that a lost one is made again."""
        if sha256 not in self._parcels:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that it is large; once is not too often
                key = f"{self._topic}-{sha256}"
                self._parcels[sha256] = client.submit(bytes, pack(), key=key, pure=False)
        return self._parcels[sha256]


def _outcome(job: SweepPass, future: Any, result: Any) -> PassOutcome:  # noqa: ANN401 - as above
    if future.status == "finished":
        return wire.decode(result, PassOutcome)
    if future.status != "error":
        raise NotAvailable("the Dask scheduler has lost its work", where="sweep")
    error = future.exception(timeout=_PATIENCE_S)
    if isinstance(error, ImportError) and "bftrain" in str(error):
        what = f"the workers of this Dask cluster cannot import bftrain: {error}"
        raise NotAvailable(what, fix="install the same version there as here")
    if type(error).__name__ == "KilledWorker":
        return failed(job, f"its worker died, {error.allowed_failures + 1} times")
    return failed(job, f"{type(error).__name__}: {error}")


@contextmanager
def running_cluster(address: str) -> Iterator[Cluster]:
    """Connect to a scheduler by its address, or the file that holds it."""
    distributed = required("distributed")
    if ":" not in address and not Path(address).is_file():
        raise UsageError("is no address, file of a scheduler, local or slurm", where=f"--dask {address}")
    place = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
    try:
        client = distributed.Client(**place, timeout=_PATIENCE_S, set_as_default=False, name="bftrain-sweep")
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        what = f"no Dask scheduler answers there: {error}"
        raise NotAvailable(what, where=address, fix="see that it runs, and that TLS is as it asks") from error
    with client:
        yield client, lambda _: None


@contextmanager
def own_processes(workers: int) -> Iterator[Cluster]:
    """Start a scheduler and workers on this machine; they end with the sweep."""
    distributed = required("distributed")
    required("cryptography")
    tls = {"host": "127.0.0.1", "protocol": "tls://", "security": distributed.Security.temporary()}
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": None, **tls}
    with (
        distributed.LocalCluster(**options, silence_logs=logging.CRITICAL + 1) as cluster,
        distributed.Client(cluster, set_as_default=False, name="bftrain-sweep") as client,
    ):
        yield client, lambda _: None


@contextmanager
def slurm_jobs(workers: int, options: Sequence[tuple[str, object]], folder: Path) -> Iterator[Cluster]:
    """Start a scheduler, and up to this many Slurm jobs as workers; lost jobs are replaced."""
    distributed, config = required("distributed"), required("dask.config")
    timeout_s, errors, wanted = config.get(_LOST_AFTER), _SubmissionErrors(), 0
    with (
        config.set({_LOST_AFTER: "1s" if timeout_s == "15s" else timeout_s}),  # unless the user has set it
        tempfile.TemporaryDirectory(prefix=".certificates-", dir=folder) as certificates,
        errors,
    ):
        cluster = _slurm_cluster(dict(options), folder, certificates)

        def tend(jobs: int) -> None:
            nonlocal wanted
            if errors.last and not cluster.scheduler_info["workers"]:
                raise NotAvailable(f"Slurm takes no job: {errors.last}", where="--dask slurm")
            wanted = max(wanted, min(workers, jobs))  # never fewer: Dask might end a busy one
            cluster.scale(jobs=wanted)

        try:
            with distributed.Client(cluster, set_as_default=False) as client:
                yield client, tend
        finally:
            with suppress(AssertionError):  # about jobs that never started
                cluster.close()
            with suppress(OSError):  # no job printed anything
                (folder / _LOGS).rmdir()


def slurm_option(text: str) -> tuple[str, object]:
    """Parse ``NAME=VALUE``: an option of dask_jobqueue.SLURMCluster; other values than numbers and lists are text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"{text!r} is not NAME=VALUE", where="--dask-option", fix="for example queue=main")
    try:
        found = toml_io.parse(f"value = {value}", text)["value"]
    except BadConfig:
        return name, value
    return name, found if isinstance(found, int | float | list) else value


def _slurm_cluster(options: dict[str, object], folder: Path, certificates: str) -> Any:  # noqa: ANN401 - as above
    """Make the cluster by our arguments, the user's configuration of Dask, and options."""
    made_of, site = _jobqueue().SLURMCluster, required("dask.config").get("jobqueue.slurm")
    required("cryptography")
    # Dask's own message on an unknown name shows all settings, including paths of keys
    makers = (made_of.__init__, *(base.__init__ for base in made_of.job_cls.__mro__ if "__init__" in vars(base)))
    parameters = [one for maker in makers for one in inspect.signature(maker).parameters.values()]
    known = {one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD} - {"self"}
    for name in options.keys() - known:
        what = f"dask_jobqueue.SLURMCluster has no option '{name}'"
        raise UsageError(what, where="--dask-option", fix=f"known are {', '.join(sorted(known))}")
    ours = {name: value for name, value in _WORKER.items() if site.get(name) is None}
    if site.get("log-directory") is None:
        ours["log_directory"] = str(folder / _LOGS)
    has_interface = options.get("interface") or site.get("interface")
    host = {} if has_interface else {"host": required("distributed.utils").get_ip()}
    arguments = {
        "job_name": "bftrain-sweep",
        "scheduler_options": {"dashboard_address": _ONLY_HERE, **host},
        "worker_extra_args": [*(site.get("worker-extra-args") or ()), "--dashboard-address", _ONLY_HERE],
        "security": required("distributed").Security.temporary(),
        "shared_temp_directory": certificates,
        **ours,
        **options,
    }
    try:
        return made_of(**arguments)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UsageError(f"no cluster can be made: {error}", where="--dask slurm") from error


class _SubmissionErrors(logging.Handler):
    """Records failed submissions of jobs, which Dask only logs."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.last = ""
        self._logger = logging.getLogger("tornado.application")

    def __enter__(self) -> Self:
        self._before = (self._logger.handlers, self._logger.propagate)
        self._logger.handlers, self._logger.propagate = [self], False
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.handlers, self._logger.propagate = self._before

    def emit(self, record: logging.LogRecord) -> None:
        """Record the message of a Slurm command."""
        error = record.exc_info[1] if record.exc_info else None
        text = str(error or record.getMessage()).rpartition("stderr:")[2]
        self.last = "; ".join(line for line in text.splitlines() if line.strip())


def _jobqueue() -> Any:  # noqa: ANN401 - a module without types
    """Import dask-jobqueue, and keep our handlers of Ctrl-C and SIGTERM, which it replaces."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return required("dask_jobqueue")
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def required(module: str) -> Any:  # noqa: ANN401 - as above
    """Import a module of an extra, or raise an error that says how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        raise NotAvailable(f"{module} is not installed", where="--dask", fix=install_hint("dask")) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask from logging what our errors report."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)
