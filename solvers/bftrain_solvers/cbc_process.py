"""The CBC worker seen from the program: started when needed, asked, given up when late, replaced when dead."""

from __future__ import annotations

import atexit
import os
import select
import subprocess
import sys
from pathlib import Path
from signal import Signals
from threading import Lock
from time import perf_counter
from typing import Final

import msgspec

import bftrain
from bftrain_solvers.cbc_messages import LENGTH, CbcReply, CbcRequest, framed

_GRACE_S: Final = 1.0  # CBC looks at its clock between steps only; this long after the deadline it is given up
_CHUNK: Final = 1 << 20
# CBC answers a crash with a stack trace that it allocates memory for. Struck while it allocates, it would wait for its
# own lock for good, but in a process of a single thread there is no lock: so linear algebra starts none
_ONE_THREAD: Final = {"OPENBLAS_NUM_THREADS": "1"}


class WorkerDied(Exception):
    """The worker is gone."""


class WorkerTimeout(Exception):
    """No answer within the deadline."""


class CbcProcess:
    """One worker process, used by one caller at a time; a process forked from this one gets a worker of its own."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = os.getpid()
        self._ready = False

    @property
    def pid(self) -> int | None:
        """Process id of the worker, if one has been started and is alive."""
        self._after_fork()
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def ask(self, request: CbcRequest, deadline_s: float) -> CbcReply:
        """Send a problem and wait for the answer, until a little after the deadline."""
        self._after_fork()
        until = perf_counter() + deadline_s + _GRACE_S
        if not self._lock.acquire(timeout=deadline_s):
            raise WorkerTimeout("the worker was busy with another problem until the deadline")
        try:
            return self._answer(request, deadline_s, until)
        finally:
            self._lock.release()

    def close(self) -> None:
        """End the worker."""
        self._after_fork()
        with self._lock:
            self._end(kill=False)

    def _answer(self, request: CbcRequest, deadline_s: float, until: float) -> CbcReply:
        process = self._running()
        if not self._ready:
            # A worker that is still starting is not given up: the next problem will find it warm
            self._receive(process, until, "the worker is still starting")
            self._ready = True
        # Waiting for the worker counts, but what it cannot do in time is not its fault: nothing is stopped then
        left = until - perf_counter() - _GRACE_S / 2
        if left <= 0.0:
            raise WorkerTimeout("the worker had no time left before the deadline")
        try:
            self._send(process, framed(msgspec.structs.replace(request, seconds=min(deadline_s, left))), until)
            return self._receive(process, until, f"overran the deadline of {deadline_s:g} s and was stopped")
        except WorkerTimeout:
            self._end(kill=True)
            raise

    def _after_fork(self) -> None:
        """Leave the worker, and a lock that no thread here will open, to the process that we were forked from."""
        if self._owner == os.getpid():
            return
        self._owner = os.getpid()
        self._lock = Lock()
        process, self._process = self._process, None
        if process is not None:
            process.returncode = 0  # not ours to wait for
            _close_pipes(process)  # while we hold them too, the worker would outlive its owner

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._end(kill=False)  # it died between two requests
        if self._process is None:
            self._start()
        assert self._process is not None  # noqa: S101 - for the type checker: it has just been started
        return self._process

    def _start(self) -> None:
        roots = [str(Path(bftrain.__file__).parents[1]), str(Path(__file__).parents[1])]
        inherited = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([*roots, inherited] if inherited else roots)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bftrain_solvers.cbc_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": path},
            bufsize=0,
            start_new_session=True,  # an interrupt at the terminal is for the program, which then closes the worker
        )
        self._ready = False
        atexit.register(self.close)

    def _send(self, process: subprocess.Popen[bytes], message: bytes, until: float) -> None:
        assert process.stdin is not None  # noqa: S101 - it was asked for
        rest = memoryview(message)
        while rest:
            _wait(process.stdin.fileno(), until, "the worker takes no problem", to_write=True)
            try:
                rest = rest[os.write(process.stdin.fileno(), rest[: select.PIPE_BUF]) :]
            except BrokenPipeError:
                raise self._death(process) from None

    def _receive(self, process: subprocess.Popen[bytes], until: float, otherwise: str) -> CbcReply:
        assert process.stdout is not None  # noqa: S101 - it was asked for
        found = b""
        while len(found) < LENGTH.size or len(found) < LENGTH.size + LENGTH.unpack_from(found)[0]:
            _wait(process.stdout.fileno(), until, otherwise, to_write=False)
            part = os.read(process.stdout.fileno(), _CHUNK)
            if not part:
                raise self._death(process)
            found += part
        return msgspec.msgpack.decode(found[LENGTH.size :], type=CbcReply)

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
        if kill:
            process.kill()
        _close_pipes(process)
        try:
            process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()


def _wait(descriptor: int, until: float, otherwise: str, *, to_write: bool) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT if to_write else select.POLLIN)
    if not poll.poll(max(0.0, until - perf_counter()) * 1000.0):
        raise WorkerTimeout(otherwise)
