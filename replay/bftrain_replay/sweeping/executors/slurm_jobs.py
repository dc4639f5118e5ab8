"""Slurm: a Dask cluster for one sweep, whose workers are jobs of a batch queue.

A client of a Dask scheduler can run code as the user who started it. So scheduler and workers use TLS with certificates
made for this sweep, in a folder that only their owner can read; the scheduler listens on one interface; and its web
pages are served on this machine only.
"""

from __future__ import annotations

import inspect
import logging
import signal
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from bftrain import toml_io
from bftrain.errors import BadConfig, NotAvailable, UsageError
from bftrain_replay.sweeping.executors.dask_client import required

LOGS: Final = "worker-logs"  # what the jobs print
_TEND_EVERY_S: Final = 1.0
_LOST_AFTER: Final = "distributed.deploy.lost-worker-timeout"  # until then Dask hopes that a lost worker comes back
_LOST_AFTER_DEFAULT, _LOST_AFTER_OURS = "15s", "1s"  # another worker has its pass by then
_ROLES: Final = ("scheduler", "worker", "client")
_ONLY_HERE: Final = "127.0.0.1:0"
# What a worker needs, where neither the options nor dask-jobqueue's own configuration says otherwise
_DEFAULTS: Final[Mapping[str, object]] = {"cores": 1, "processes": 1, "memory": "2 GiB"}


def option(text: str) -> tuple[str, object]:
    """Parse ``NAME=VALUE``: an option of dask_jobqueue.SLURMCluster; other values than numbers and lists are text."""
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"{text!r} is not NAME=VALUE", where="--dask-option", fix="for example queue=main")
    try:
        found = toml_io.parse(f"value = {value}", text)["value"]
    except BadConfig:
        return name, value
    return name, found if isinstance(found, int | float | list) else value


class SlurmJobs:
    """Up to the requested number of workers; lost ones are replaced."""

    def __init__(self, workers: int, options: Iterable[tuple[str, object]], folder: Path) -> None:
        self._workers = workers
        self._options = dict(options)
        self._folder = folder
        self._cluster: Any = None
        self._wanted = 0
        self._tended_s = 0.0
        self._complaints = _SubmissionErrors()

    @contextmanager
    def client(self) -> Iterator[Any]:
        """Start the scheduler, and connect."""
        distributed, config = required("distributed"), required("dask.config")
        with _our_signals():
            jobqueue = required("dask_jobqueue")
        _check_names(self._options, jobqueue.SLURMCluster)
        said = config.get(_LOST_AFTER)
        soon = config.set({_LOST_AFTER: _LOST_AFTER_OURS if said == _LOST_AFTER_DEFAULT else said})
        # A private folder, where the nodes see it too
        with soon, tempfile.TemporaryDirectory(prefix=".certificates-", dir=self._folder) as folder, self._complaints:
            try:
                self._cluster = jobqueue.SLURMCluster(**self._how(), security=_security(Path(folder)))
            except (ValueError, TypeError, RuntimeError) as error:
                raise UsageError(f"no cluster can be made: {error}", where="--dask slurm") from error
            try:
                with distributed.Client(self._cluster, set_as_default=False) as client:
                    yield client
            finally:
                with suppress(AssertionError):  # what Dask has to say last of jobs that were never taken
                    self._cluster.close()
                with suppress(OSError):  # no job printed anything
                    (self._folder / LOGS).rmdir()

    def tend(self, jobs: int) -> None:
        """Request workers, and replace those whose time limit was reached."""
        if self._complaints.last and not self._cluster.scheduler_info["workers"]:
            raise NotAvailable(f"Slurm takes no job: {self._complaints.last}", where="--dask slurm")
        now_s = time.monotonic()
        if now_s - self._tended_s < _TEND_EVERY_S:
            return
        self._tended_s = now_s
        # Never fewer than before: which of them would go is Dask's choice, and it might be one at work
        self._wanted = max(self._wanted, min(self._workers, jobs))
        self._cluster.scale(jobs=self._wanted)

    def _how(self) -> dict[str, object]:
        """Return the arguments of the cluster: ours, the user's configuration of Dask, and options."""
        config, utils = required("dask.config"), required("distributed.utils")
        site = config.get("jobqueue.slurm")
        how: dict[str, object] = {name: value for name, value in _DEFAULTS.items() if site.get(name) is None}
        if site.get("log-directory") is None:
            how["log_directory"] = str(self._folder / LOGS)
        how |= self._options
        host = {} if how.get("interface") or site.get("interface") else {"host": utils.get_ip()}
        extra = [*(site.get("worker-extra-args") or ()), "--dashboard-address", _ONLY_HERE]
        options = {"dashboard_address": _ONLY_HERE, **host}
        return {"job_name": "bftrain-sweep", "scheduler_options": options, "worker_extra_args": extra, **how}


def _check_names(options: Mapping[str, object], cluster: Any) -> None:  # noqa: ANN401 - a class without types
    """Raise for options that the cluster does not know: its own message shows all settings, including paths of keys."""
    makers = (cluster.__init__, *(one.__init__ for one in cluster.job_cls.__mro__ if "__init__" in vars(one)))
    parameters = [one for maker in makers for one in inspect.signature(maker).parameters.values()]
    known = {one.name for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD} - {"self"}
    for name in options.keys() - known:
        what = f"dask_jobqueue.SLURMCluster has no option '{name}'"
        raise UsageError(what, where="--dask-option", fix=f"known are {', '.join(sorted(known))}")


class _SubmissionErrors(logging.Handler):
    """Records failed submissions of jobs, which are reported nowhere else."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.last = ""
        self._logger = logging.getLogger("tornado.application")

    def emit(self, record: logging.LogRecord) -> None:
        """Record the message of a Slurm command."""
        error = record.exc_info[1] if record.exc_info else None
        words = str(error or record.getMessage()).rpartition("stderr:")[2]
        self.last = "; ".join(line for line in words.splitlines() if line.strip())

    def __enter__(self) -> Self:
        self._before = (self._logger.handlers, self._logger.propagate)
        self._logger.handlers, self._logger.propagate = [self], False
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.handlers, self._logger.propagate = self._before


@contextmanager
def _our_signals() -> Iterator[None]:
    """Keep our handlers of Ctrl-C and SIGTERM: importing dask-jobqueue replaces them."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _security(folder: Path) -> Any:  # noqa: ANN401 - a class of a module without types
    """Make certificates for this sweep, in files that only this user can read."""
    required("cryptography")
    made_of = required("distributed.security").Security
    files = {}
    for part, content in made_of.temporary().get_tls_config_for_role("worker").items():
        if content and "\n" in content:
            files[part] = folder / part
            files[part].touch(mode=0o600)
            files[part].write_text(content)
    parts = {f"tls_{role}_{part}": str(files[part]) for role in _ROLES for part in ("cert", "key")}
    return made_of(require_encryption=True, tls_ca_file=str(files["ca_file"]), **parts)
