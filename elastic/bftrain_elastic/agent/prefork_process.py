"""A server process of an agent (its prefork server or copy server): started, given orders, and replaced when lost."""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import time
import traceback
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Final, NoReturn

from bftrain_elastic.agent.prefork_server import NOTICES
from bftrain_elastic.agent.process_tree import end_descendants, kill, state_of
from bftrain_elastic.retry import RetryDelay
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.agent_messages import FROM_PREFORK, PreforkWarm
from bftrain_elastic.wire.messages import LINE_LIMIT, MessageLines, WireMessage, decode, encode, read_message
from bftrain_elastic.wire.nonblocking_socket import NonblockingSocket

_BLOCKED: Final = frozenset({*NOTICES, signal.SIGINT})  # signals blocked until a fork has its own handlers


@dataclass(eq=False)
class PreforkProcess:
    """Passes the messages of a server to ``on_message``.

    ``serve`` is called in its process, with the descriptor of its socket and the pid of the agent. ``on_lost`` is
    called when the server exits. Both callbacks receive this object.
    """

    selector: selectors.BaseSelector
    _: KW_ONLY
    serve: Callable[[int, int], None]
    nice: int
    on_message: Callable[[PreforkProcess, WireMessage], None]
    on_lost: Callable[[PreforkProcess], None]

    def __post_init__(self) -> None:
        """Start no process yet."""
        self._wire: NonblockingSocket | None = None
        self.pid = 0
        self._lines = MessageLines(LINE_LIMIT)
        self._delay = RetryDelay(TIMEOUTS.prefork_retry_s, TIMEOUTS.prefork_longest_retry_s)
        self.warm = False

    @property
    def runs(self) -> bool:
        """Whether its process runs."""
        return self._wire is not None

    def start(self) -> None:
        """Start the server, unless it runs or its backoff has not expired.

        If a module is broken on this node, immediate retries would use up a core.
        """
        if self.runs or self._delay.waits(time.monotonic()):
            return
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                self.pid = self._fork(theirs.fileno())
            except OSError:  # no process can be created now
                ours.close()
                self._delay.failed(time.monotonic())
                return
        self._lines, self.warm = MessageLines(LINE_LIMIT), False
        self._wire = NonblockingSocket(self.selector, ours, self._arrived, self._lost)

    def send(self, message: WireMessage) -> None:
        """Send it an order."""
        if self._wire is not None:
            self._wire.write(encode(message.to_dict()) + b"\n")

    def read_pending(self) -> None:
        """Read its pending messages."""
        if self._wire is not None:
            self._wire.ready(selectors.EVENT_READ)

    def kill_if_stopped(self) -> bool:
        """Kill its process if SIGSTOP has stopped it; return whether this happened. ``on_lost`` follows."""
        if not self.pid or state_of(self.pid) not in {"T", "t"}:
            return False
        kill(self.pid)
        return True

    def kill_remaining(self, keep: Collection[int]) -> dict[int, int]:
        """Kill it and all descendants of the agent but those of ``keep``; return exit codes that it had not reaped."""
        exit_codes: dict[int, int] = {}
        if self.pid:
            kill(self.pid)
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
            self.pid = 0
        end_descendants(exit_codes=exit_codes, keep=keep)
        return exit_codes

    def _arrived(self, data: bytes) -> None:
        for line in self._lines.feed(data):
            message = read_message(FROM_PREFORK, decode(line))
            self.warm = self.warm or isinstance(message, PreforkWarm)
            if message is not None:
                self.on_message(self, message)

    def _lost(self, _reason: str) -> None:
        if self.warm:
            self._delay.succeeded()
        else:
            self._delay.failed(time.monotonic())
        self._wire, self.warm = None, False
        self.on_lost(self)

    def _fork(self, socket_to_us: int) -> int:
        """Fork its process from this one, which is small and has no threads."""
        # A signal during the fork would run our handlers in the child
        signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
        try:
            return os.fork() or self._become_server(socket_to_us)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)

    def _become_server(self, socket_to_us: int) -> NoReturn:
        code = 1
        try:
            gc.freeze()  # objects of the agent must not close descriptors of this process
            os.setsid()
            os.nice(self.nice)  # also lowers its I/O priority
            signal.set_wakeup_fd(-1)
            for number in _BLOCKED:
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(socket_to_us, 3)
            os.set_inheritable(3, True)  # noqa: FBT003 - the function takes it so
            os.closerange(4, 4096)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)
            self.serve(3, os.getppid())
            code = 0
        except BaseException:  # noqa: BLE001 - as at the end of a program
            traceback.print_exc()
        finally:
            os._exit(code)
