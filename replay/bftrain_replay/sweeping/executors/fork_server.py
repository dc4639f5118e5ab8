"""Fork server: a process that imports and loads what all workers need, and forks them.

So a worker starts in milliseconds, and a log is in memory once for any number of workers. The server has one thread and
forks nothing but itself, which makes forking safe in any program. It is run as ``python -m
bftrain_replay.sweeping.executors.fork_server SOCKET``, reads from its standard input what to load, and from the socket,
with each message, one end of a connection for the next worker. It ends with its parent program, and all workers with
it.

``multiprocessing`` has such a server too, but it loads modules only, is one for the whole program, and imports the
caller's main module again.
"""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import sys
import time
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Final

import msgspec

from bftrain.errors import BftrainError
from bftrain.values import wire
from bftrain_replay.sweeping.run_point import work
from bftrain_replay.sweeping.sweep_inputs import InputCache, LogSource, TaskSource
from bftrain_replay.sweeping.sweep_runs import PassOutcome, SweepPass

_TELL_EVERY_S: Final = 0.1
_MESSAGE: Final = 1024


class PreloadInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Message to the fork server: inputs that all workers share, each with its seed."""

    logs: tuple[tuple[LogSource, int], ...]
    tasks: tuple[tuple[TaskSource, int], ...]


class WorkerChange(msgspec.Struct, frozen=True, kw_only=True):
    """Message from the fork server: a worker has started, or ended with this exit code or (negative) signal."""

    pid: int
    code: int | None = None


FromWorker = PassOutcome | float  # of its pass, or which share of it is done


class ForkServer:
    """The event loop around the parent program's socket and the workers' exits."""

    def __init__(self, master: socket.socket, inputs: InputCache) -> None:
        self._master = master
        self._inputs = inputs
        self._workers: set[int] = set()
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def run(self) -> None:
        """Serve the parent program until it is gone."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._woken, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(self._master, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._master:
                        message, numbers, _, _ = socket.recv_fds(self._master, _MESSAGE, 1)
                        if not message:
                            return
                        self._fork(numbers[0])
                    else:
                        with suppress(BlockingIOError):
                            os.read(self._wake, _MESSAGE)
                        self._reap()

    def end_all(self) -> None:
        """Kill all workers, and reap them."""
        for pid in self._workers:
            os.kill(pid, signal.SIGKILL)  # its number is still its own: only we reap it
        for pid in self._workers:
            os.waitpid(pid, 0)

    def _fork(self, connection: int) -> None:
        pid = os.fork()
        if pid:
            os.close(connection)
            self._workers.add(pid)
            self._tell(WorkerChange(pid=pid))
            return
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._master.close()
            os.close(self._wake)
            os.close(self._woken)
            serve(Connection(connection), self._inputs)
            code = 0
        except (BrokenPipeError, ConnectionResetError):
            code = 0  # the master is gone, and the rest is of no use
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._workers.discard(ended[0])
                self._tell(WorkerChange(pid=ended[0], code=os.waitstatus_to_exitcode(ended[1])))

    def _tell(self, message: WorkerChange) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):
            self._master.send(wire.encode(message))


def serve(connection: Connection, inputs: InputCache) -> None:
    """Run the passes that come over a connection, one after the other, until it is closed."""
    reported_s = 0.0

    def watch(share: float) -> bool:
        nonlocal reported_s
        now_s = time.monotonic()
        if now_s - reported_s >= _TELL_EVERY_S:
            reported_s = now_s
            connection.send_bytes(wire.encode(share))
        return True

    with suppress(EOFError):
        while True:
            job = wire.decode(connection.recv_bytes(), SweepPass)
            reported_s = time.monotonic()
            log, tasks = partial(inputs.log, job.log, job.seed), partial(inputs.tasks, job.tasks, job.seed)
            connection.send_bytes(wire.encode(work(job, log, tasks, watch)))


def main() -> None:
    """Load the inputs, then fork workers until the parent program is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    master = socket.socket(fileno=int(sys.argv[1]))
    inputs = InputCache()
    preload = wire.decode(sys.stdin.buffer.read(), PreloadInputs)
    # A pass that needs an input that cannot be loaded will say so
    for log, seed in preload.logs:
        with suppress(BftrainError, OSError):
            inputs.log(log, seed)
    for tasks, seed in preload.tasks:
        with suppress(BftrainError, OSError):
            inputs.tasks(tasks, seed)
    gc.collect()
    gc.freeze()  # or the first collection in each worker would copy all of it
    server = ForkServer(master, inputs)
    try:
        server.run()
    finally:
        server.end_all()


if __name__ == "__main__":
    main()
