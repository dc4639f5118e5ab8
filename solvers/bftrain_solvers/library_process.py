"""LibraryProcess: a native library in a separate process: kept warm, killed when late, replaced after a crash.

Native libraries can abort their process, and check their clocks only between their own steps. In a separate process
this costs a failed solution and a new process, not the program.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
from pathlib import Path
from signal import Signals
from threading import Lock, Thread
from time import perf_counter
from typing import Final

import msgspec

import bftrain
from bftrain.values.solution import Limits, Termination
from bftrain_solvers.matrix import ModelMatrix
from bftrain_solvers.milp import RawAnswer
from bftrain_solvers.worker_loop import LENGTH, WorkerRequest, decoded, framed

# Grace period after the deadline, plus this share of the deadline: with the time to transfer the programme and to
# kill the process, the total stays below 50 ms plus a tenth
_GRACE_S: Final = 0.025
_MORE_GRACE: Final = 0.08
_END_S: Final = 1.0  # time for a worker to exit voluntarily
_CHUNK: Final = 1 << 20  # bytes in one read
_LEAST_S: Final = 1e-3  # a timeout of 0 would not wait at all
# After a crash, CBC allocates memory for a stack trace. If the crash interrupted an allocation, it would wait forever
# for the lock of its own allocation. A process with a single thread has no such lock, so linear algebra starts none
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}


class WorkerDied(Exception):
    """The worker has exited."""


class WorkerTimeout(Exception):
    """No answer within the deadline."""


class LibraryProcess:
    """A worker that solves with ``module``, used by one caller at a time.

    A forked process gets a worker of its own.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: socket.socket  # connects to the process
        self._owner = os.getpid()
        self._ready = False

    @property
    def pid(self) -> int | None:
        """Process id of the worker, if one has been started and is alive."""
        self._after_fork()
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def maximised(self, matrix: ModelMatrix, limits: Limits) -> RawAnswer:
        """Solve in the worker; a worker that dies is a failure, a late one has reached the limit of time."""
        try:
            return self._ask(matrix, limits)
        except WorkerDied as death:
            return RawAnswer(termination=Termination.FAILED, words=str(death))
        except WorkerTimeout as late:
            return RawAnswer(termination=Termination.TIME_LIMIT, words=str(late))

    def _ask(self, matrix: ModelMatrix, limits: Limits) -> RawAnswer:
        """Send a problem and wait for the answer, until a little after the deadline."""
        self._after_fork()
        deadline_s = limits.deadline_s
        grace_s = _GRACE_S + _MORE_GRACE * deadline_s
        until = perf_counter() + deadline_s + grace_s
        if not self._lock.acquire(timeout=deadline_s):
            raise WorkerTimeout("the worker was busy with another problem until the deadline")
        try:
            process = self._running()
            if not self._ready:
                # A starting worker is kept: the next problem will find it warm
                self._receive(process, until, "the worker is still starting")
                self._ready = True
            # Waiting for the worker takes time, too. Without enough time left, keep the worker: it is not late itself
            left = until - perf_counter() - grace_s / 2
            if left <= 0.0:
                raise WorkerTimeout("the worker had no time left before the deadline")
            try:
                limits = msgspec.structs.replace(limits, deadline_s=min(deadline_s, left))
                self._send(process, framed(WorkerRequest(matrix, limits)), until)
                return self._receive(process, until, "overran the deadline and was stopped")
            except WorkerTimeout:
                self._end(kill=True)
                raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """Stop the worker; the next solve starts a new worker."""
        self._after_fork()
        with self._lock:
            self._end(kill=False)

    def _after_fork(self) -> None:
        """In a forked process, leave the worker and its lock to the parent."""
        if self._owner == os.getpid():
            return
        self._owner = os.getpid()
        self._lock = Lock()
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # another process waits for it
            self._channel.close()  # a second copy here would keep the worker alive after its owner

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None:
            if self._process.poll() is None:
                return self._process
            self._end(kill=False)  # it died between two requests
        roots = [str(Path(bftrain.__file__).parents[1]), str(Path(__file__).parents[1])]
        inherited = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([*roots, inherited] if inherited else roots)
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-m", "bftrain_solvers.worker_loop", self._module],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=subprocess.DEVNULL,
                env={**os.environ, **_ONE_THREAD, "PYTHONPATH": path},
                # An interrupt at the terminal only reaches the program, which then closes the worker
                start_new_session=True,
            )
        self._ready = False
        atexit.register(self.close)
        return process

    def _send(self, process: subprocess.Popen[bytes], message: bytes, until: float) -> None:
        try:
            self._limit_wait(until)
            self._channel.sendall(message)
        except TimeoutError:
            raise WorkerTimeout("the worker did not read the problem before the deadline") from None
        except ConnectionError:
            raise self._death(process) from None

    def _receive(self, process: subprocess.Popen[bytes], until: float, otherwise: str) -> RawAnswer:
        found = b""
        try:
            while len(found) < LENGTH.size or len(found) < LENGTH.size + LENGTH.unpack_from(found)[0]:
                self._limit_wait(until)
                part = self._channel.recv(_CHUNK)
                if not part:
                    raise self._death(process)
                found += part
        except TimeoutError:
            raise WorkerTimeout(otherwise) from None
        except ConnectionError:
            raise self._death(process) from None
        return decoded(found[LENGTH.size :], RawAnswer)

    def _limit_wait(self, until: float) -> None:
        self._channel.settimeout(max(until - perf_counter(), _LEAST_S))

    def _death(self, process: subprocess.Popen[bytes]) -> WorkerDied:
        code = process.wait()
        self._end(kill=False)
        how = Signals(-code).name if code < 0 else f"exit code {code}"
        return WorkerDied(f"the worker process died ({how}); a new one serves the next problem")

    def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        atexit.unregister(self.close)
        if process is None:
            return
        self._channel.close()
        if kill or not self._ready:  # a worker that is still importing would not notice the closed input
            process.kill()
            Thread(target=process.wait, daemon=True).start()  # freeing its memory takes up to 60 ms
            return
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
