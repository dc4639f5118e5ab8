"""The agent's side of its nursery: start it, send it orders, hear what it says, and see whether it stands still."""

from __future__ import annotations

import os
import selectors
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from bftrain_elastic.agent.process_tree import end_family, state_of
from bftrain_elastic.retry import RetryDelay
from bftrain_elastic.wire.messages import LINE_LIMIT, Message, MessageLines, decode, encode
from bftrain_elastic.wire.nonblocking_socket import NonblockingSocket

_RETRY_S: Final = 0.2  # until another one is started after one that never was ready
_LONGEST_RETRY_S: Final = 60.0


class PreforkProcess:
    """Hands what the nursery says to ``on_message``, and calls ``on_lost`` when it is gone."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        *,
        door: Path,
        preload: Sequence[str],
        on_message: Callable[[Message], None],
        on_lost: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._words = [str(os.getpid()), str(door), *preload]
        self._on_message = on_message
        self._on_lost = on_lost
        self._wire: NonblockingSocket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lines = MessageLines(LINE_LIMIT)
        self._delay = RetryDelay(_RETRY_S, _LONGEST_RETRY_S)
        self.warm = False

    @property
    def runs(self) -> bool:
        """Whether it was started and is not lost."""
        return self._wire is not None

    def start(self) -> None:
        """Start it, unless it runs or it is too early after one that ended before it was ready.

        Python or bftrain may be replaced or broken on this node: trying without a pause would take a core of it.
        """
        if self.runs or self._delay.waits(time.monotonic()):
            return
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, no shell
                [sys.executable, "-m", "bftrain_elastic.agent.prefork_server", str(theirs.fileno()), *self._words],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._lines, self.warm = MessageLines(LINE_LIMIT), False
        self._wire = NonblockingSocket(self._selector, ours, self._arrived, self._lost)

    def send(self, message: Message) -> None:
        """Give it an order."""
        if self._wire is not None:
            self._wire.send(encode(message) + b"\n")

    def listen(self) -> None:
        """Take in what it has said until now."""
        if self._wire is not None:
            self._wire.ready(selectors.EVENT_READ)

    def stands_still(self) -> bool:
        """Return whether its process was stopped."""
        return self._process is not None and state_of(self._process.pid) in {"T", "t"}

    def kill(self) -> None:
        """Kill it; ``on_lost`` follows."""
        if self._process is not None:
            self._process.kill()

    def bury(self) -> dict[int, int]:
        """Kill all that it left behind; return the exit codes of the workers that it had not reaped."""
        exit_codes: dict[int, int] = {}
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        end_family(exit_codes=exit_codes)
        return exit_codes

    def _arrived(self, data: bytes) -> None:
        self._lines.feed(data)
        while (line := self._lines.next()) is not None:
            message = decode(line)
            self.warm = self.warm or message["type"] == "warm"
            self._on_message(message)

    def _lost(self, _reason: str) -> None:
        if self.warm:
            self._delay.succeeded()
        else:
            self._delay.failed(time.monotonic())
        self._wire, self.warm = None, False
        self._on_lost()
