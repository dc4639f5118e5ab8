"""Agents of one program that share the import of slow modules: a fork server forks them."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_MODULE: Final = "bftrain_elastic.agent"
_LOST: Final = -int(signal.SIGKILL)


class ForkedAgent:
    """A forked agent with the used part of the interface of ``subprocess.Popen``; only ``pid`` and ``wait`` block.

    ``lost`` says that the fork server ended, and the agent never began.
    """

    def __init__(self, answer: socket.socket) -> None:
        self._answer: socket.socket | None = answer
        self._pidfd = -1
        self._pid = 0
        self._cancelled = False
        self.lost = False

    @property
    def pid(self) -> int:
        """Its process id; 0 if it never began."""
        self._hear(None)
        return self._pid

    @property
    def begun(self) -> bool:
        """Whether it has begun, as far as is known."""
        self._hear(0.0)
        return self._pid > 0

    def poll(self) -> int | None:
        """Return ``None`` while it runs or is starting, then some exit code: it is no child of this process."""
        self._hear(0.0)
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self._hear(timeout)
        code = self._ended(None if deadline is None else max(0.0, deadline - time.monotonic()))
        if code is None:
            raise subprocess.TimeoutExpired("agent", timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send it a signal; if it has not begun, it never will."""
        self._hear(0.0)
        if self._answer is not None and number != signal.SIGCONT:
            self._answer.shutdown(socket.SHUT_RD)  # from now on it cannot begin
            self._cancelled = True
            self._hear(None)  # unless it was faster
        if self._pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, number)

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send it SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _ended(self, timeout_s: float | None) -> int | None:
        if self._answer is None and not self._pid:
            return _LOST
        if self._pid and _readable(self._pidfd, timeout_s):
            return 0
        return None

    def _hear(self, timeout_s: float | None) -> None:
        """Record whether it began, if the fork server reports that within this time."""
        if self._answer is None or not _readable(self._answer.fileno(), timeout_s):
            return
        with self._answer as answer:
            self._answer = None
            data, descriptors, _, _ = socket.recv_fds(answer, 64, 1)
        self.lost = not data and not self._cancelled
        if data:
            self._pid, self._pidfd = int(data), descriptors[0]

    def __del__(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
        if self._answer is not None:
            self._answer.close()


def _readable(descriptor: int, timeout_s: float | None) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if timeout_s is None else timeout_s * 1000))


class AgentForkServer:
    """Forks agents through one server process, which is started on demand.

    ``remove`` is a folder that is removed if this process is killed before an agent has begun.
    """

    def __init__(self, modules: Sequence[str], environment: Mapping[str, str], remove: Path | None = None) -> None:
        self._words = [str(os.getpid()), str(remove or ""), *modules]
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._first: ForkedAgent | None = None  # of the server that runs

    @classmethod
    def of(cls, command: Sequence[str]) -> AgentForkServer:
        """Return the fork server for agents of this command; it is not ``useful`` for other programs."""
        words = list(command[3:]) if tuple(command[:3]) == (sys.executable, "-m", _MODULE) else []
        modules = words[words.index("--preload") + 1] if "--preload" in words[:-1] else ""
        return cls([*filter(None, modules.split(","))], dict(os.environ))

    @property
    def useful(self) -> bool:
        """Whether agents can be forked: not on old kernels, or if the last server ended without a fork."""
        if not self._words[2:]:
            return False
        try:
            os.close(os.pidfd_open(os.getpid()))
            os.fstat(1), os.fstat(2)
        except (AttributeError, OSError):  # an old kernel or Python; or we have no output
            return False
        return self._first is None or not self._first.lost

    def start(self, words: Sequence[str], out: int = 1, err: int = 2, note: Path | None = None) -> ForkedAgent:
        """Fork an agent with these arguments; it writes its ``/proc/PID/stat`` to ``note`` before it begins."""
        order = json.dumps({"words": list(words), "note": str(note or "")}).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        folder = os.open(".", os.O_PATH | os.O_DIRECTORY)
        try:
            with theirs, suppress(ConnectionError):  # the server ended just now: then the agent is lost
                socket.send_fds(self._server(), [order], [folder, out, err, theirs.fileno()])
        finally:
            os.close(folder)
        started = ForkedAgent(ours)
        self._first = self._first or started
        return started

    def _server(self) -> socket.socket:
        """Return the socket to the server, started if necessary."""
        if self._socket is not None and self._process is not None and self._process.poll() is None:
            return self._socket
        self.close()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                [sys.executable, "-m", f"{_MODULE}.agent_fork_server", str(theirs.fileno()), *self._words],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=self._environment,
            )
        return self._socket

    def close(self) -> None:
        """End the server; agents that have begun run on, and the others never begin."""
        self._first = None
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._socket = None
