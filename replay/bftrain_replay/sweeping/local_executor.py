"""Runs the passes of a sweep in processes of this machine.

A runner process, ``python -m bftrain_replay.sweeping.local_executor``, forks one child for each pass. A child shares
the loaded inputs with its siblings, and its death costs its pass alone. The runner has one thread, which makes forking
safe even if the calling program has threads.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

import bftrain
from bftrain import registry
from bftrain.errors import BftrainError, NotAvailable
from bftrain.values import wire
from bftrain_elastic.agent.process_tree import die_with
from bftrain_replay.simulation.engine import KeepGoing
from bftrain_replay.study.forked_pass import ForkedPass
from bftrain_replay.sweeping.sweep_inputs import MOST_KEPT, input_key, log_of, tasks_of
from bftrain_replay.sweeping.sweep_passes import (
    PassOutcome,
    Stopping,
    SweepPass,
    Tell,
    WorkerActivity,
    failed,
    solver_of,
    work,
)

_LOOK_EVERY_S: Final = 0.1
_PATIENCE_S: Final = 5.0  # seconds for the runner to stop its children
_MOST_KILLED_RUNNERS: Final = 3  # consecutive losses without an outcome
_LAST_WORDS: Final = 2000
_USUAL_SOLVER: Final = "exact"  # other solvers may start threads, and forked children would lack them
_MODULE: Final = "bftrain_replay.sweeping.local_executor"
# Several passes that each take all cores for their arrays are slower than one, and threads make forking unsafe
_ONE_THREAD: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class _Request(msgspec.Struct, frozen=True):
    """The passes for a runner."""

    workers: int
    jobs: tuple[SweepPass, ...]
    parent: int  # its process ID


class _Progress(NamedTuple):
    """Message from the runner: the number of a worker, the ID of its pass ("" while it waits), and the progress."""

    worker: int
    job: str = ""
    share: float = 0.0


class LocalExecutor:
    """Runs this many passes at a time; prints of their code go to a file."""

    def __init__(self, workers: int, prints: Path) -> None:
        self._workers = workers
        self._prints = prints
        self._killed_runners = 0

    def outcomes(self, jobs: Sequence[SweepPass], tell: Tell, stopping: Stopping) -> Iterator[PassOutcome]:
        """Run all passes. A killed runner is replaced, and its unfinished passes start again."""
        remaining = {job.id: job for job in jobs}
        try:
            while remaining and not stopping():
                yield from self._outcomes_of_runner(remaining, tell, stopping)
        finally:
            with suppress(OSError):
                if self._prints.stat().st_size == 0:
                    self._prints.unlink()

    def _outcomes_of_runner(
        self, remaining: dict[str, SweepPass], tell: Tell, stopping: Stopping
    ) -> Iterator[PassOutcome]:
        request = _Request(self._workers, tuple(remaining.values()), os.getpid())
        with self._runner() as (process, connection):
            for message in _messages(connection, request):
                if isinstance(message, PassOutcome):
                    del remaining[message.id]
                    self._killed_runners = 0
                    yield message
                elif message is not None:
                    job = remaining.get(message.job)
                    tell(WorkerActivity(f"worker {message.worker}", job, message.share))
                if not remaining or stopping():
                    return
            self._check_lost(_ended(process))

    @contextmanager
    def _runner(self) -> Iterator[tuple[subprocess.Popen[bytes], Connection]]:
        # Our packages are found as they are here
        paths = [Path(bftrain.__file__).parents[1], Path(__file__).parents[2], os.environ.get("PYTHONPATH")]
        found_in = {"PYTHONPATH": os.pathsep.join(str(path) for path in paths if path)}
        ours, theirs = socket.socketpair()
        with theirs, self._prints.open("ab") as prints:
            process = subprocess.Popen(  # noqa: S603 - our own module, by our own Python
                # -P: files in the current folder must not shadow our modules
                [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=prints,
                stderr=prints,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), **found_in},
                start_new_session=True,  # Ctrl-C reaches only the main program, which then stops the runner
            )
        try:
            with Connection(ours.detach()) as connection:
                yield process, connection
        finally:
            process.terminate()
            _ended(process)

    def _check_lost(self, code: int) -> None:
        """Raise if runners cannot live here: one failed, or several were killed consecutively."""
        self._killed_runners += 1
        if code >= 0 or self._killed_runners == _MOST_KILLED_RUNNERS:
            words = self._prints.read_text(errors="replace")[-_LAST_WORDS:].strip()
            last = words.splitlines()[-1] if words else f"the runner {_exit_reason(code)}"
            raise NotAvailable(f"no worker can be started here: {last}", where=str(self._prints))


def _messages(connection: Connection, request: _Request) -> Iterator[PassOutcome | _Progress | None]:
    """Send the request and yield the runner's messages until it is lost; yield ``None`` after a silent interval.

    Only errors of the connection end the messages: errors of the caller are raised where they occur.
    """
    with suppress(EOFError, OSError):
        connection.send_bytes(wire.encode(request))
        while True:
            yield (
                wire.decode(connection.recv_bytes(), PassOutcome | _Progress)
                if connection.poll(_LOOK_EVERY_S)
                else None
            )


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Wait until the process exits, kill it if that takes long, and return its exit code."""
    try:
        return process.wait(_PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


class _Running(NamedTuple):
    job: SweepPass
    child: ForkedPass[bytes]  # its outcome, encoded
    start_s: float


class _Runner:
    """One runner process's passes and their children."""

    def __init__(self, request: _Request) -> None:
        self._waiting = deque(request.jobs)
        self._workers = range(1, min(request.workers, len(request.jobs)) + 1)
        self._running: dict[int, _Running] = {}
        # Limited by the cache size; a child loads any other input itself
        logs = dict.fromkeys(input_key(job.log, job.seed) for job in request.jobs)
        tasks = dict.fromkeys(input_key(job.tasks, job.seed) for job in request.jobs)
        self._shared = {*islice(logs, MOST_KEPT), *islice(tasks, MOST_KEPT)}
        if _USUAL_SOLVER in {solver_of(job.how) for job in request.jobs}:
            registry.load("solver", _USUAL_SOLVER)  # saves an import in each child

    def messages(self) -> Iterator[bytes]:
        """Run all passes; yield outcomes and progress, encoded."""
        try:
            while self._waiting or self._running:
                for number in self._workers:
                    if self._waiting and number not in self._running:
                        yield self._start(number, self._waiting.popleft())
                # A child reports progress up to ten times per second
                ready = wait([each.child.connection for each in self._running.values()], _LOOK_EVERY_S)
                for number, (job, child, start_s) in list(self._running.items()):
                    if child.connection not in ready:
                        continue
                    shown = child.progress.simulated_s
                    child.refresh()
                    if child.running:
                        if child.progress.simulated_s != shown:
                            yield wire.encode(_Progress(number, job.id, child.progress.simulated_s))
                        continue
                    del self._running[number]
                    yield wire.encode(_Progress(number))
                    died = f"its worker {_exit_reason(child.exit_code)}"
                    yield child.result or wire.encode(failed(job, died, time.monotonic() - start_s))
        finally:
            for each in self._running.values():
                each.child.stop()

    def _start(self, number: int, job: SweepPass) -> bytes:
        with suppress(BftrainError, OSError):  # the pass reports an input that cannot be loaded
            if input_key(job.log, job.seed) in self._shared:
                log_of(job.log, job.seed)
            if input_key(job.tasks, job.seed) in self._shared:
                tasks_of(job.tasks, job.seed)

        def run(keep_going: KeepGoing) -> bytes:
            self._running.clear()
            gc.freeze()  # prevents copies of all inputs by the first collection
            outcome = work(job, lambda share: keep_going(share, 0))
            sys.stdout.flush()
            return wire.encode(outcome)

        self._running[number] = _Running(job, ForkedPass(run), time.monotonic())
        return wire.encode(_Progress(number, job.id))


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    hint = ", as happens when memory runs out" if -code == signal.SIGKILL else ""
    return f"was killed by {signal.Signals(-code).name}{hint}"


def main() -> None:
    """Run the requested passes, until all are done or SIGTERM."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with Connection(int(sys.argv[1])) as connection, suppress(BrokenPipeError, ConnectionResetError):
        request = wire.decode(connection.recv_bytes(), _Request)
        die_with(request.parent)
        runner = _Runner(request)
        for message in runner.messages():
            connection.send_bytes(message)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a SystemExit while Python shuts down would be printed


if __name__ == "__main__":
    main()
