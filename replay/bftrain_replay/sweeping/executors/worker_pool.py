"""The crew: workers of this machine as their master sees them, and the foreman who forks them."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import bftrain
from bftrain.errors import NotAvailable
from bftrain.values import wire
from bftrain_replay.sweeping.executors.worker_messages import FromForeman, FromWorker, PreloadInputs, WorkerStarted
from bftrain_replay.sweeping.sweep_inputs import SweepLog, TaskFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bftrain_replay.sweeping.sweep_runs import SweepPass

_PATIENCE_S: Final = 5.0  # for what takes milliseconds
_MESSAGE: Final = 1 << 16
_BARREN: Final = 3  # foremen who are killed one after the other: that is no accident
_LAST_WORDS: Final = 2000
# A worker is one thread: several that each take all cores for their arrays are slower than one, and a foreman with
# several threads had better not fork
_ONE_THREAD: Final = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerProcess:
    """One process, by the connection to it."""

    def __init__(self, name: str, connection: socket.socket) -> None:
        self.name = name
        self.connection = connection
        self.pid = 0
        self.job: SweepPass | None = None
        self.begun_s = 0.0
        self.served = False  # whether it ever finished anything
        self._rest = b""

    def hand(self, job: SweepPass) -> bool:
        """Give it a pass; whether it is there to take it."""
        try:
            self.connection.sendall(wire.encode(job) + b"\n")
        except (BrokenPipeError, ConnectionResetError):
            return False
        self.job, self.begun_s = job, time.monotonic()
        return True

    def heard(self) -> Sequence[FromWorker] | None:
        """Give what it has said since; ``None`` if it is gone."""
        try:
            data = self.connection.recv(_MESSAGE)
        except ConnectionResetError:
            data = b""
        if not data:
            return None
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [wire.decode(line, FromWorker) for line in lines]


class WorkerPool:
    """A fork server with its workers; a killed server is replaced. What workers print goes to ``prints``."""

    def __init__(self, prints: Path) -> None:
        self._prints = prints
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._unborn: deque[WorkerProcess] = deque()
        self._codes: dict[int, int] = {}
        self._barren = 0  # servers in a row that died before they forked a worker

    def hire(self, name: str, jobs: Iterable[SweepPass]) -> WorkerProcess:
        """Have a worker forked, by a foreman who has loaded what ``jobs`` need."""
        while True:
            control = self._control or self._start(jobs)
            ours, theirs = socket.socketpair()
            worker = WorkerProcess(name, ours)
            with theirs:
                try:
                    socket.send_fds(control, [b"fork"], [theirs.fileno()])
                except (BrokenPipeError, ConnectionResetError):
                    ours.close()
                    self._lose_foreman()
                    continue
            self._unborn.append(worker)
            return worker

    @property
    def expecting(self) -> bool:
        """Whether workers are still to be forked."""
        return bool(self._unborn)

    def listen(self, wait_s: float = 0.0) -> None:
        """Take in what the foreman has to say, if anything within so many seconds."""
        while self._control is not None and select.select([self._control], [], [], wait_s)[0]:
            try:
                data = self._control.recv(_MESSAGE)
            except ConnectionResetError:
                data = b""
            if not data:
                self._lose_foreman()
                return
            message = wire.decode(data, FromForeman)
            if isinstance(message, WorkerStarted):
                self._barren = 0
                self._unborn.popleft().pid = message.pid
            else:
                self._codes[message.pid] = message.code
            wait_s = 0.0

    def fate_of(self, worker: WorkerProcess) -> str:
        """Say in words how a worker ended."""
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

    def _start(self, jobs: Iterable[SweepPass]) -> socket.socket:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, self._prints.open("ab") as prints:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, by our own Python
                # -P: what lies in the folder that we are in is none of our modules
                [sys.executable, "-P", "-m", "bftrain_replay.sweeping.executors.fork_server", str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=prints,
                stderr=prints,
                pass_fds=(theirs.fileno(),),
                env=_environment(),
                start_new_session=True,  # an interrupt at the terminal is for the program, which then ends the crew
            )
        assert self._process.stdin is not None  # noqa: S101 - for the type checker: it was asked for
        with suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(wire.encode(_preload(jobs)))
        return self._control

    def _lose_foreman(self) -> None:
        """Forget a fork server that is gone; its workers go on."""
        assert self._process is not None  # noqa: S101 - for the type checker: there was one
        assert self._control is not None  # noqa: S101 - as above
        self._control.close()
        self._control = None
        code = self._process.wait()
        self._unborn.clear()  # their ends of the connections went with it
        self._barren += 1
        if code >= 0 or self._barren == _BARREN:
            words = self._prints.read_text(errors="replace")[-_LAST_WORDS:].strip()
            last = words.splitlines()[-1] if words else f"exit code {code}"
            raise NotAvailable(f"no worker can be started here: {last}", where=str(self._prints))


def _preload(jobs: Iterable[SweepPass]) -> PreloadInputs:
    """Name the files that are needed; what is generated may be much, and is made by the worker that needs it."""
    jobs = list(jobs)
    logs = dict.fromkeys(job.log for job in jobs if isinstance(job.log, SweepLog))
    tasks = dict.fromkeys(job.tasks for job in jobs if isinstance(job.tasks, TaskFile))
    return PreloadInputs(logs=tuple(logs), tasks=tuple(tasks))


def _environment() -> dict[str, str]:
    """Give an environment in which our packages are found as they are here."""
    roots = [str(Path(bftrain.__file__).parents[1]), str(Path(__file__).parents[3])]
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([*roots, inherited] if inherited else roots)
    return {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": path}
