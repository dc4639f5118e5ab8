"""Runs passes in processes of this machine, which a fork server starts."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final

import bftrain
from bftrain.errors import NotAvailable
from bftrain.values import wire
from bftrain_replay.sweeping.executors.fork_server import FromWorker, PreloadInputs, WorkerChange
from bftrain_replay.sweeping.run_point import Stopping, Tell, WorkerActivity, failed
from bftrain_replay.sweeping.sweep_inputs import MOST_KEPT, input_key
from bftrain_replay.sweeping.sweep_runs import PassOutcome, SweepPass

_LOOK_EVERY_S: Final = 0.1  # whether to stop
_PATIENCE_S: Final = 5.0  # for what takes milliseconds
_MESSAGE: Final = 1 << 16
_MOST_FAILED_SERVERS: Final = 3  # killed consecutively: no coincidence
_MOST_FAILED_WORKERS: Final = 5  # so many in a row that die without being given anything: that is no accident
_LAST_WORDS: Final = 2000
# A worker is one thread: several that each take all cores for their arrays are slower than one, and a fork server with
# several threads had better not fork
_ONE_THREAD: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


@dataclass(eq=False)
class WorkerProcess:
    """One worker, with the connection to it."""

    name: str
    connection: Connection
    pid: int = 0
    job: SweepPass | None = None
    begun_s: float = 0.0

    def hand(self, job: SweepPass) -> bool:
        """Send it a pass; return whether it still runs."""
        try:
            self.connection.send_bytes(wire.encode(job))
        except (BrokenPipeError, ConnectionResetError):
            return False
        self.job, self.begun_s = job, time.monotonic()
        return True

    def receive(self) -> FromWorker | None:
        """Return its next message; ``None`` if it is gone."""
        try:
            message: FromWorker = wire.decode(self.connection.recv_bytes(), FromWorker)
        except (EOFError, OSError):
            return None
        return message


class WorkerPool:
    """A fork server with its workers; a killed server is replaced. Workers' output goes to ``prints``."""

    def __init__(self, prints: Path) -> None:
        self._prints = prints
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._unborn: deque[WorkerProcess] = deque()
        self._codes: dict[int, int] = {}
        self._failed_servers = 0  # in a row, that died before they forked a worker

    def fork_worker(self, name: str, jobs: Sequence[SweepPass]) -> WorkerProcess:
        """Start a worker by a server that has loaded what ``jobs`` need."""
        while True:
            control = self._control or self._start(jobs)
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    socket.send_fds(control, [b"fork"], [theirs.fileno()])
                except (BrokenPipeError, ConnectionResetError):
                    ours.close()
                    self._lose_server()
                    continue
            worker = WorkerProcess(name, Connection(ours.detach()))
            self._unborn.append(worker)
            return worker

    @property
    def expecting(self) -> bool:
        """Whether workers are still to be forked."""
        return bool(self._unborn)

    def listen(self, wait_s: float = 0.0) -> None:
        """Read the server's messages, waiting at most this long."""
        while self._control is not None and select.select([self._control], [], [], wait_s)[0]:
            try:
                data = self._control.recv(_MESSAGE)
            except ConnectionResetError:
                data = b""
            if not data:
                self._lose_server()
                return
            change = wire.decode(data, WorkerChange)
            if change.code is None:
                self._failed_servers = 0
                self._unborn.popleft().pid = change.pid
            else:
                self._codes[change.pid] = change.code
            wait_s = 0.0

    def exit_reason(self, worker: WorkerProcess) -> str:
        """Return in words how a worker ended."""
        until = time.monotonic() + _PATIENCE_S
        while self._control is not None and worker.pid not in self._codes and time.monotonic() < until:
            self.listen(0.1)
        code = self._codes.pop(worker.pid, None)
        if code is None:
            return "its worker died"
        if code >= 0:
            return f"its worker ended with exit code {code}"
        hint = ", as happens when memory runs out" if -code == signal.SIGKILL else ""
        return f"its worker was killed by {signal.Signals(-code).name}{hint}"

    def close(self) -> None:
        """End the fork server, and with it all workers."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                self._process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        with suppress(OSError):
            if self._prints.stat().st_size == 0:
                self._prints.unlink()

    def _start(self, jobs: Sequence[SweepPass]) -> socket.socket:
        # Our packages are found as they are here
        paths = [Path(bftrain.__file__).parents[1], Path(__file__).parents[3], os.environ.get("PYTHONPATH")]
        found_in = {"PYTHONPATH": os.pathsep.join(str(path) for path in paths if path)}
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self._prints.open("ab") as prints:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, by our own Python
                # -P: what lies in the folder that we are in is none of our modules
                [sys.executable, "-P", "-m", "bftrain_replay.sweeping.executors.fork_server", str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=prints,
                stderr=prints,
                pass_fds=(theirs.fileno(),),
                env={**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), **found_in},
                start_new_session=True,  # an interrupt at the terminal is for the program, which then ends the workers
            )
        # Files and what is generated, as much as is kept; if that is too little, each worker loads what it needs
        logs = islice(dict.fromkeys(input_key(job.log, job.seed) for job in jobs), MOST_KEPT)
        tasks = islice(dict.fromkeys(input_key(job.tasks, job.seed) for job in jobs), MOST_KEPT)
        assert self._process.stdin is not None  # noqa: S101 - for the type checker: it was asked for
        with suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(wire.encode(PreloadInputs(logs=tuple(logs), tasks=tuple(tasks))))
        return self._control

    def _lose_server(self) -> None:
        """Forget a fork server that is gone; its workers run on."""
        assert self._process is not None  # noqa: S101 - for the type checker: there was one
        assert self._control is not None  # noqa: S101 - as above
        self._control.close()
        self._control = None
        code = self._process.wait()
        self._unborn.clear()  # their ends of the connections went with it
        self._failed_servers += 1
        if code >= 0 or self._failed_servers == _MOST_FAILED_SERVERS:
            words = self._prints.read_text(errors="replace")[-_LAST_WORDS:].strip()
            last = words.splitlines()[-1] if words else f"exit code {code}"
            raise NotAvailable(f"no worker can be started here: {last}", where=str(self._prints))


class LocalExecutor:
    """Runs this many processes at a time; the output of their code goes to a file."""

    def __init__(self, workers: int, prints: Path) -> None:
        self._count = workers
        self._pool = WorkerPool(prints)
        self._workers: list[WorkerProcess] = []
        self._failed_workers = 0

    def outcomes(self, jobs: Sequence[SweepPass], tell: Tell, stopping: Stopping) -> Iterator[PassOutcome]:
        """Run all passes."""
        waiting = deque(jobs)
        try:
            for number in range(min(self._count, len(jobs))):
                self._workers.append(self._pool.fork_worker(f"worker {number + 1}", jobs))
            while (waiting or any(worker.job for worker in self._workers)) and not stopping():
                self._pool.listen(_LOOK_EVERY_S if self._pool.expecting else 0.0)
                for worker in self._workers:
                    if waiting and worker.pid and worker.job is None and worker.hand(waiting[0]):
                        tell(WorkerActivity(worker.name, waiting.popleft()))
                ready = wait([worker.connection for worker in self._workers], _LOOK_EVERY_S)
                for worker in [each for each in self._workers if each.connection in ready]:
                    message = worker.receive()
                    if isinstance(message, float):
                        tell(WorkerActivity(worker.name, worker.job, message))
                    elif message is not None:
                        worker.job = None
                        self._failed_workers = 0
                        tell(WorkerActivity(worker.name, None))
                        yield message
                    else:
                        yield from self._fail_pass(worker, tell)
                        if waiting:
                            self._workers.append(self._pool.fork_worker(worker.name, jobs))
        finally:
            self._pool.close()
            for worker in self._workers:
                worker.connection.close()

    def _fail_pass(self, worker: WorkerProcess, tell: Tell) -> Iterator[PassOutcome]:
        """Handle a dead worker: its pass has failed."""
        worker.connection.close()
        self._workers.remove(worker)
        reason = self._pool.exit_reason(worker)
        tell(WorkerActivity(worker.name, None))
        if worker.job is not None:
            yield failed(worker.job, reason, time.monotonic() - worker.begun_s)
            return
        self._failed_workers += 1
        if self._failed_workers == _MOST_FAILED_WORKERS:
            raise NotAvailable(f"no worker lives here: {reason}", where="sweep")
