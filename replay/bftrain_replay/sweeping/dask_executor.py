"""Runs the passes of a sweep on a Dask cluster: a running one or Slurm jobs.

A client of a Dask scheduler can run code as the user who started it. Workers in Slurm jobs therefore use TLS with
certificates made for one sweep, and Dask's web pages are served on this machine only.
"""

from __future__ import annotations

import logging
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bftrain.errors import NotAvailable, UsageError
from bftrain.values import wire
from bftrain_datasets.log.eventlog import EventLog
from bftrain_elastic.errors import install_hint
from bftrain_replay.sweeping.sweep_inputs import SweepLog, TaskFile, Tasks
from bftrain_replay.sweeping.sweep_passes import PassOutcome, PassStopped, Stopping, SweepPass, Tell, failed, work

SLURM: Final = "slurm"
_LOCAL: Final = "127.0.0.1:0"
_JOB: Final = {"job_name": "bftrain-sweep", "cores": 1, "processes": 1, "memory": "2 GiB"}
# Replace lost jobs soon; do not warn about large inputs, which are sent once each
_SET: Final = {"distributed.deploy.lost-worker-timeout": "1s", "distributed.admin.large-graph-warning-threshold": "1TB"}
_TEST: Final = ("sbatch", "--test-only")  # prints the reason for which Slurm would reject a job
_one_at_a_time = threading.Lock()  # a worker with several threads would divide one core among several passes


@dataclass(frozen=True)
class DaskExecutor:
    """Runs passes on the cluster at an address, or in Slurm jobs."""

    address: str  # scheduler address or file, or "slurm"
    workers: int = 0  # Slurm jobs
    options: Mapping[str, object] = field(default_factory=dict)  # arguments of dask_jobqueue.SLURMCluster
    folder: Path = Path()  # folder for certificates and output of Slurm jobs

    def outcomes(self, jobs: Sequence[SweepPass], tell: Tell, stopping: Stopping) -> Iterator[PassOutcome]:
        """Run all passes."""
        in_slurm = self.address == SLURM
        with (
            _dask() as distributed,
            self._slurm_jobs(distributed) if in_slurm else _client(distributed, self.address) as client,
        ):
            running = _submitted(client, jobs)
            ids = {future.key: job.id for future, job in running.items()}
            completed = distributed.as_completed(list(running), loop=client.loop, with_results=True, raise_errors=False)
            while running and not stopping():
                if in_slurm:  # starts jobs, and replaces lost ones
                    client.cluster.scale(jobs=min(self.workers, len(jobs)))
                # A worker runs one pass at a time; its other passes are queued
                first = (next(filter(ids.get, keys), None) for keys in client.processing().values())
                tell({ids[key]: 0.0 for key in first if key})
                for future, result in completed.next_batch(block=False):
                    job = running.pop(future)
                    if isinstance(result, bytes):
                        yield wire.decode(result, PassOutcome)
                    elif isinstance(result, tuple):
                        yield failed(job, f"{type(result[1]).__name__}: {result[1]}")
                    else:
                        raise OSError("it has cancelled passes")
                time.sleep(0.2)

    @contextmanager
    def _slurm_jobs(self, distributed: Any) -> Iterator[Any]:  # noqa: ANN401 - untyped
        """Start a scheduler and Slurm jobs, from our defaults, the user's Dask configuration, and ``options``."""
        handler = signal.getsignal(signal.SIGINT)
        from dask_jobqueue import SLURMCluster  # noqa: PLC0415 - an extra

        signal.signal(signal.SIGINT, handler)  # the import has replaced it
        site, logs = distributed.config["jobqueue"]["slurm"], self.folder / "worker-logs"
        host = {} if self.options.get("interface") or site.get("interface") else {"host": distributed.utils.get_ip()}
        with tempfile.TemporaryDirectory(prefix=".certificates-", dir=self.folder) as certificates:
            security = distributed.Security.temporary()
            for name in ("tls_ca_file", "tls_worker_cert", "tls_worker_key"):
                path = Path(certificates, name).absolute()
                path.touch(mode=0o600)
                path.write_text(getattr(security, name))
                setattr(security, name, str(path))
            worker = [*(site.get("worker-extra-args") or ()), "--dashboard-address", _LOCAL]
            own = {"log_directory": str(logs), "worker_extra_args": worker, "security": security}
            own["scheduler_options"] = {"dashboard_address": _LOCAL, **host}
            try:
                cluster = SLURMCluster(**{**_JOB, **own, **self.options})
            except (ValueError, TypeError, RuntimeError) as error:
                raise UsageError(f"no cluster: {str(error).split('. Very likely')[0]}", where="--dask slurm") from error
            try:
                tested = subprocess.run(_TEST, input=cluster.job_script(), capture_output=True, text=True, check=False)  # noqa: S603 - a constant
                if tested.returncode:
                    raise NotAvailable(f"Slurm takes no job: {tested.stderr.strip()}", where="--dask slurm")
                with distributed.Client(cluster, set_as_default=False) as client:
                    yield client
            finally:
                with suppress(AssertionError):  # raised for jobs that never started
                    cluster.close()
                with suppress(OSError):  # no job printed anything
                    logs.rmdir()


def run_on_worker(job: SweepPass, log: EventLog | None, tasks: Tasks | None) -> bytes | None:
    """Run a pass on a worker; return ``None`` if it is cancelled. The worker generates inputs that are not sent."""
    from distributed.worker import get_worker, thread_state  # noqa: PLC0415 - an extra

    task = get_worker().state.tasks[thread_state.key]
    with _one_at_a_time, suppress(PassStopped):
        return wire.encode(work(job, lambda _: task.state == "executing", log, tasks))
    return None


def _submitted(client: Any, jobs: Sequence[SweepPass]) -> dict[Any, SweepPass]:  # noqa: ANN401 - untyped
    """Submit all passes, and the content of each input file once, as a task: Dask recomputes it if a worker is lost."""
    sent, futures = dict[str, Any](), {}
    for job in jobs:
        for source, sha256 in ((job.log, job.log_sha256), (job.tasks, job.tasks_sha256)):
            if isinstance(source, SweepLog | TaskFile) and sha256 not in sent:
                sent[sha256] = client.submit(lambda content: content, source.load(0), pure=False)
        inputs = sent.get(job.log_sha256), sent.get(job.tasks_sha256)
        futures[client.submit(run_on_worker, job, *inputs, pure=False)] = job
    return futures


def _client(distributed: Any, address: str) -> Any:  # noqa: ANN401 - untyped
    """Connect to a scheduler by its address, or by a file with the address."""
    kind = "scheduler_file" if Path(address).is_file() else "address"
    try:
        return distributed.Client(**{kind: address}, timeout=10, set_as_default=False)
    except (ValueError, TypeError) as error:
        raise UsageError(f"is not a scheduler: {error}", where=f"--dask {address}") from error


@contextmanager
def _dask() -> Iterator[Any]:
    """Return ``distributed``; raise our errors for a missing package and a lost scheduler, which Dask would log."""
    try:
        import distributed  # noqa: PLC0415 - an extra; it sets the levels of its loggers
        from dask import config  # noqa: PLC0415 - as above

        with config.set(_SET), ExitStack() as stack:
            for logger in map(logging.getLogger, ("distributed", "distributed.client", "tornado.application")):
                stack.callback(logger.setLevel, logger.level)
                logger.setLevel(logging.CRITICAL + 1)
            yield distributed
    except ImportError as error:
        raise NotAvailable(f"a package is missing: {error}", where="--dask", fix=install_hint("dask")) from error
    except (OSError, RuntimeError) as error:  # Dask's errors for a broken connection
        if isinstance(error, RuntimeError) and "Timeout" not in str(error):
            raise
        raise NotAvailable(f"the Dask scheduler does not answer: {error}", where="sweep") from error
