"""Runs the passes of a sweep on a Dask cluster: a running one or Slurm jobs.

A client of a Dask scheduler can run code as the user who started it. Workers in Slurm jobs therefore use TLS with
certificates made for one sweep, and Dask's web pages are served on this machine only.
"""

from __future__ import annotations

import logging
import signal
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, Final

from bftrain import toml_io
from bftrain.errors import BadConfig, NotAvailable, UsageError
from bftrain.values import wire
from bftrain_datasets.log.eventlog import EventLog
from bftrain_elastic.errors import install_hint
from bftrain_replay.sweeping.sweep_inputs import SweepLog, TaskFile, Tasks
from bftrain_replay.sweeping.sweep_passes import (
    PassOutcome,
    PassStopped,
    Stopping,
    SweepPass,
    Tell,
    WorkerActivity,
    failed,
    work,
)

# A Dask client, and a function to call about once a second with the number of remaining passes
Cluster = tuple[Any, Callable[[int], None]]

_LOOK_EVERY_S: Final = 0.1
_ASK_EVERY_S: Final = 0.5  # polling interval: workers check for a stop, and the client for workers
_PATIENCE_S: Final = 10.0  # seconds for a scheduler to answer
_GRACE_S: Final = 1.5  # seconds for running passes to notice a stop
_LOST_AFTER: Final = "distributed.deploy.lost-worker-timeout"  # a lost Slurm job is replaced after this time
_WORKER: Final[dict[str, object]] = {"cores": 1, "processes": 1, "memory": "2 GiB"}  # defaults of a Slurm job
_ONLY_HERE: Final = {"dashboard_address": "127.0.0.1:0"}
_OURS: Final = {"set_as_default": False, "name": "bftrain-sweep"}

_one_at_a_time = threading.Lock()  # a worker with several threads would divide one core among several passes


def run_on_worker(message: bytes, log: EventLog | None, tasks: Tasks | None, stop: str) -> bytes:
    """Run a pass on a worker; return its outcome, or ``None`` once the event ``stop`` is set.

    Inputs that are not sent are generated on the worker.
    """
    from distributed import Event  # noqa: PLC0415 - only a worker of Dask has it for sure

    job, event, asked_s = wire.decode(message, SweepPass), Event(stop), 0.0

    def watch(_share: float) -> bool:
        nonlocal asked_s
        if time.monotonic() - asked_s < _ASK_EVERY_S:
            return True
        asked_s = time.monotonic()
        return not event.is_set()

    with _one_at_a_time, suppress(PassStopped):
        return wire.encode(work(job, watch, log, tasks))
    return b""


def _same(thing: object) -> object:
    return thing


class DaskExecutor:
    """An executor for any cluster."""

    def __init__(self, cluster: Callable[[], AbstractContextManager[Cluster]]) -> None:
        self._cluster = cluster
        self._topic = f"bftrain-sweep-{uuid.uuid4().hex}"
        self._sent: dict[str, Any] = {}

    def outcomes(self, jobs: Sequence[SweepPass], tell: Tell, stopping: Stopping) -> Iterator[PassOutcome]:
        """Run all passes."""
        distributed = required("distributed")
        try:
            with _quiet(), self._cluster() as (client, tend):
                running = {self._submit(client, job): job for job in jobs}  # pass of each future
                try:
                    yield from self._outcomes(client, tend, running, tell, stopping)
                finally:
                    if running:
                        with suppress(Exception):  # a lost cluster has no work to stop
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
        running: dict[Any, SweepPass],
        tell: Tell,
        stopping: Stopping,
    ) -> Iterator[PassOutcome]:
        completed = required("distributed").as_completed(
            list(running), loop=client.loop, with_results=True, raise_errors=False
        )
        by_key, shown, looked_s = {future.key: job for future, job in running.items()}, dict[str, Any](), 0.0
        while running and not stopping():
            if client.status not in {"running", "connecting"}:
                raise NotAvailable("the Dask scheduler is lost", where="sweep")
            if time.monotonic() - looked_s > _ASK_EVERY_S:
                looked_s = time.monotonic()
                tend(len(running))
                known = client.processing().items()
                at_work = {name: next(filter(None, map(by_key.get, keys)), None) for name, keys in known}
                for name in shown.keys() | at_work.keys():
                    if (job := at_work.get(name)) is not shown.get(name):
                        tell(WorkerActivity(name, job))
                shown = at_work
            for future, result in completed.next_batch(block=False):
                yield _outcome(running.pop(future), future, result)
            time.sleep(_LOOK_EVERY_S)

    def _submit(self, client: Any, job: SweepPass) -> Any:  # noqa: ANN401 - as above
        log = tasks = None
        if isinstance(source := job.log, SweepLog):
            log = self._future(client, job.log_sha256, lambda: source.load(0))
        if isinstance(file := job.tasks, TaskFile):
            tasks = self._future(client, job.tasks_sha256, lambda: file.load(0))
        key = f"{self._topic}-{job.id}"
        return client.submit(run_on_worker, wire.encode(job), log, tasks, self._topic, key=key, pure=False)

    def _future(self, client: Any, sha256: str, load: Callable[[], object]) -> Any:  # noqa: ANN401 - as above
        """Return a cluster input, sent once as a task result: Dask recomputes it after a loss."""
        if sha256 not in self._sent:
            # A different prefix from passes: Dask estimates the cost of tasks from the mean time of their prefix, and
            # moves no task that it expects to finish immediately to an idle worker
            key = f"input-of-{self._topic}-{sha256}"
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # size warning; it is sent only once
                self._sent[sha256] = client.submit(_same, load(), key=key, pure=False)
        return self._sent[sha256]


def _outcome(job: SweepPass, future: Any, result: Any) -> PassOutcome:  # noqa: ANN401 - as above
    if isinstance(result, bytes):  # the result survives a later death of its worker
        return wire.decode(result, PassOutcome)
    if future.status != "error":
        raise NotAvailable("the Dask scheduler has lost its work", where="sweep")
    error = future.exception(timeout=_PATIENCE_S)
    if isinstance(error, ImportError) and "bftrain" in str(error):
        what = f"the workers of this Dask cluster cannot import bftrain: {error}"
        raise NotAvailable(what, fix="install the same version there as here")
    killed = type(error).__name__ == "KilledWorker"
    return failed(
        job, f"its worker died, {error.allowed_failures + 1} times" if killed else f"{type(error).__name__}: {error}"
    )


@contextmanager
def running_cluster(address: str) -> Iterator[Cluster]:
    """Connect to a scheduler by its address, or by a file with the address."""
    distributed = required("distributed")
    if ":" not in address and not Path(address).is_file():
        raise UsageError("is not an address, scheduler file, or slurm", where=f"--dask {address}")
    place = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
    try:
        client = distributed.Client(**place, timeout=_PATIENCE_S, **_OURS)
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        what = f"no Dask scheduler answers there: {error}"
        raise NotAvailable(what, where=address, fix="see that it runs, and that TLS is as it asks") from error
    with client:
        yield client, lambda _: None


@contextmanager
def slurm_jobs(workers: int, options: Sequence[tuple[str, object]], folder: Path) -> Iterator[Cluster]:
    """Start a scheduler, and up to this many Slurm jobs as workers; lost jobs are replaced."""
    _jobqueue()  # the import adds its settings to Dask's
    config, logs, wanted, refusals = required("dask.config"), folder / "worker-logs", 0, _LastError(logging.ERROR)
    site, timeout_s = config.get("jobqueue.slurm"), config.get(_LOST_AFTER)
    with ExitStack() as stack:
        stack.enter_context(config.set({_LOST_AFTER: "1s" if timeout_s == "15s" else timeout_s}))
        certificates = stack.enter_context(tempfile.TemporaryDirectory(prefix=".certificates-", dir=folder))
        log = logging.getLogger("tornado.application")  # Dask's logger for rejected jobs
        stack.callback(setattr, log, "handlers", log.handlers)
        stack.callback(setattr, log, "propagate", log.propagate)
        log.handlers, log.propagate = [refusals], False
        given = {**({} if site.get("log-directory") else {"log_directory": str(logs)}), **dict(options)}
        cluster = _slurm_cluster(site, given, certificates)

        def tend(jobs: int) -> None:
            nonlocal wanted
            if refusals.text and not cluster.scheduler_info["workers"]:
                raise NotAvailable(f"Slurm takes no job: {refusals.text}", where="--dask slurm")
            wanted = max(wanted, min(workers, jobs))  # never fewer: Dask might end a busy one
            cluster.scale(jobs=wanted)

        try:
            with required("distributed").Client(cluster, set_as_default=False) as client:
                yield client, tend
        finally:
            with suppress(AssertionError):  # about jobs that never started
                cluster.close()
            with suppress(OSError):  # no job printed anything
                logs.rmdir()


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


def _slurm_cluster(site: dict[str, Any], options: dict[str, object], certificates: str) -> Any:  # noqa: ANN401 - as above
    """Make the cluster by our arguments, the user's configuration of Dask, and options."""
    made_of, distributed = _jobqueue().SLURMCluster, required("distributed")
    required("cryptography")
    # Dask's own error for an unknown name prints all settings, including key paths
    makers = (made_of.__init__, *(base.__init__ for base in made_of.job_cls.__mro__ if "__init__" in vars(base)))
    known = {
        name
        for maker in makers
        for name, one in signature(maker).parameters.items()
        if one.kind is one.POSITIONAL_OR_KEYWORD
    }
    for name in options.keys() - known:
        what, fix = f"dask_jobqueue.SLURMCluster has no option '{name}'", ", ".join(sorted(known - {"self"}))
        raise UsageError(what, where="--dask-option", fix=f"known are {fix}")
    has_interface = options.get("interface") or site.get("interface")
    host = {} if has_interface else {"host": required("distributed.utils").get_ip()}
    arguments = {
        "job_name": "bftrain-sweep",
        "scheduler_options": {**_ONLY_HERE, **host},
        "worker_extra_args": [*(site.get("worker-extra-args") or ()), "--dashboard-address", *_ONLY_HERE.values()],
        "security": distributed.Security.temporary(),
        "shared_temp_directory": certificates,
        **{name: value for name, value in _WORKER.items() if site.get(name) is None},
        **options,
    }
    try:
        return made_of(**arguments)
    except (ValueError, TypeError, RuntimeError) as error:
        raise UsageError(f"no cluster can be made: {error}", where="--dask slurm") from error


class _LastError(logging.Handler):
    text = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message of a Slurm command."""
        error = record.exc_info[1] if record.exc_info else None
        text = str(error or record.getMessage()).rpartition("stderr:")[2]
        self.text = "; ".join(line for line in text.splitlines() if line.strip())


def _jobqueue() -> Any:  # noqa: ANN401 - a module without types
    """Import dask-jobqueue, and keep our handlers of Ctrl-C and SIGTERM, which it replaces."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return required("dask_jobqueue")
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def required(module: str) -> Any:  # noqa: ANN401 - as above
    """Import a module of an extra, or raise an error with the install command."""
    try:
        return import_module(module)
    except ImportError as error:
        raise NotAvailable(f"{module} is not installed", where="--dask", fix=install_hint("dask")) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Dask from logging what our errors report."""
    with ExitStack() as stack:
        for name in logging.root.manager.loggerDict:
            if name.split(".")[0] == "distributed":
                logger = logging.getLogger(name)
                stack.callback(logger.setLevel, logger.level)
                logger.setLevel(logging.CRITICAL + 1)
        yield
