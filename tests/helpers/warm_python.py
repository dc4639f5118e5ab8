"""A Python that has imported slow modules, and forks the scripts of tests, which therefore start at once.

The prefork server of an agent runs workers in the same way. There is one of these for each process of pytest.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, NoReturn

from bftrain_elastic.agent.prefork_server import LATER, LAUNCHER, PRELOADED, run_script
from bftrain_elastic.agent.process_tree import die_with

ROOT = Path(__file__).parents[2]
ROOM = ROOT / "elastic"
PRELOAD = "TEST_PRELOAD"  # modules that a test's scripts need besides
_PACKET = 1 << 18
_SERVE = """
import sys
sys.path[:0] = [{room!r}, {root!r}]
from tests.helpers.warm_python import serve
sys.path[:3] = [{room!r}]  # also without the working directory
serve(int(sys.argv[1]))
"""


class WarmProcess:
    """A script that runs, with what tests use of ``subprocess.Popen``."""

    def __init__(self, python: WarmPython, pid: int) -> None:
        self._python = python
        self.pid = pid

    def poll(self) -> int | None:
        """Return its exit code, or nothing while it runs."""
        return self._python.exit_code(self.pid, 0.0)

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for its end, and return its exit code."""
        code = self._python.exit_code(self.pid, timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"script {self.pid}", timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class WarmPython:
    """The client of the process that forks."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = _SERVE.format(room=str(ROOM), root=str(ROOT))
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, "-c", program, str(theirs.fileno())],
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
            )
        self._codes: dict[int, int] = {}

    def start(self, argv: Sequence[str], env: Mapping[str, str], log: Path) -> WarmProcess:
        """Run a script with this environment; what it prints goes to the log."""
        with self._lock:
            order = {"argv": list(argv), "env": dict(env), "log": str(log), "cwd": str(Path.cwd())}
            self._socket.send(json.dumps(order).encode())
            while (answer := self._next(60.0)) is not None:
                if "pid" in answer:
                    self._codes.pop(answer["pid"], None)  # of a process before, with the same number
                    return WarmProcess(self, answer["pid"])
        raise AssertionError("the process that starts scripts does not answer")

    def exit_code(self, pid: int, timeout_s: float) -> int | None:
        """Return the exit code of a script, or nothing if it still runs when the time is up."""
        deadline = time.monotonic() + timeout_s
        with self._lock:
            while pid not in self._codes:
                if self._next(max(0.0, deadline - time.monotonic())) is None:
                    return None
            return self._codes[pid]

    def _next(self, timeout_s: float) -> dict[str, Any] | None:
        self._socket.settimeout(max(timeout_s, 1e-3))
        try:
            packet = self._socket.recv(_PACKET)
        except TimeoutError:
            return None
        if not packet:
            raise AssertionError("the process that starts scripts is gone")
        answer: dict[str, Any] = json.loads(packet)
        if "code" in answer:
            self._codes[answer["ended"]] = answer["code"]
        return answer

    def close(self) -> None:
        """End the process that forks, and with it all scripts."""
        self._socket.close()
        self._server.wait()


@functools.cache
def warm_python() -> WarmPython:
    """Return the one of this process; it is started by its first use."""
    python = WarmPython()
    atexit.register(python.close)
    return python


def serve(descriptor: int) -> None:
    """Fork scripts as they are asked for, and say how they ended, until the client is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for pytest to answer
    for module in PRELOADED:
        import_module(module)
    gc.collect()
    gc.freeze()
    running: dict[int, int] = {}  # descriptor -> process
    with socket.socket(fileno=descriptor) as client, selectors.DefaultSelector() as selector:
        selector.register(client, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not client:
                    pid = running.pop(key.fd)
                    selector.unregister(key.fd)
                    os.close(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    client.send(json.dumps({"ended": pid, "code": code}).encode())
                elif packet := client.recv(_PACKET):
                    order = json.loads(packet)
                    more = order["env"].get(PRELOAD, "").split()
                    for module in (*LATER.get(order["env"].get(LAUNCHER, ""), ()), *more):
                        import_module(module)
                    pid = os.fork() or _run(order)
                    client.send(json.dumps({"pid": pid}).encode())
                    descriptor = os.pidfd_open(pid)
                    running[descriptor] = pid
                    selector.register(descriptor, selectors.EVENT_READ)
                else:
                    return


def _run(order: dict[str, Any]) -> NoReturn:
    code = 1
    try:
        die_with(os.getppid())
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.closerange(3, 4096)
        os.environ.clear()
        os.environ.update(order["env"])
        os.chdir(order["cwd"])
        code = run_script(order["argv"])
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
