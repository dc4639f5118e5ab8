"""The channel between a worker and the agent on its node: a Unix socket that preserves message boundaries.

Its name is in the worker's environment. A thread reads the messages, so that a computing script need not poll: requests
are stored in attributes.
"""

from __future__ import annotations

import errno
import os
import queue
import socket
import struct
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from bftrain_elastic.wire.messages import PACKET_LIMIT, Message, WireMessage, decode, encode, read_message
from bftrain_elastic.wire.worker_messages import (
    TO_WORKER,
    AbortGroup,
    AskPosition,
    GatherMembers,
    SendCopies,
    WorkerPosition,
)

SOCKET: Final = "BFTRAIN_SOCKET"  # name of the agent's socket in the abstract namespace
WORKER: Final = "BFTRAIN_WORKER"  # the agent's name for this worker
_STANDARD: Final = os.path.dirname(os.path.realpath(os.__file__)) + os.sep  # noqa: PTH120 - compared with paths as text
_PACKAGE_FOLDER: Final = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep  # noqa: PTH120 - as above
_PACKAGES: Final = ("site-packages", "dist-packages")
_SKIPPED: Final = ("torch", "horovod", "bftrain_elastic")


def is_ours(connection: socket.socket) -> bool:
    """Return whether the other side of a Unix socket has our user: any user can reach the abstract namespace."""
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return bool(user == os.getuid())


class AgentChannel:
    """A worker's side of the channel.

    ``gather`` is the largest generation it was asked to gather for. ``position`` returns the worker's activity and its
    group's number of commits; the script's current line is found in the thread that opened the channel.
    """

    def __init__(self, name: str, worker: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.connect(f"\0{name}")
            if not is_ours(self._socket):
                raise ConnectionRefusedError(errno.ECONNREFUSED, "another user listens there")
        except OSError:
            self._socket.close()
            raise
        self._arrived: queue.SimpleQueue[WireMessage | None] = queue.SimpleQueue()
        self.gather = 0
        self.on_abort: Callable[[], None] = lambda: None  # there is no group to abort yet
        self.on_copies: Callable[[SendCopies], None] = lambda _order: None
        self.position: Callable[[], tuple[str, int]] = lambda: ("script", 0)
        self._thread = threading.get_ident()
        self._unsent: dict[str, bytes] = {}  # latest unsent message of each kind
        self._send_all({"type": "hello", "worker": worker})
        self._reader: threading.Thread | None = None

    @classmethod
    def from_environment(cls) -> AgentChannel | None:
        """Connect to the agent named in the environment; return ``None`` if there is no agent."""
        name = os.environ.get(SOCKET)
        return cls(name, os.environ.get(WORKER, "")) if name else None

    def listen(self) -> None:
        """Start to read messages."""
        self._reader = threading.Thread(target=self._read, name="bftrain-channel", daemon=True)
        self._reader.start()

    def send(self, message: WireMessage) -> None:
        """Send a message; blocks until it can be sent."""
        self._send_unsent(0)
        self._send_all(message.to_dict())

    def _send_all(self, message: Message) -> None:
        self._socket.sendall(encode(message, limit=PACKET_LIMIT))

    def send_nonblocking(self, message: WireMessage) -> None:
        """Send a message without blocking. If the socket is full, the latest message of each kind is sent later."""
        self._unsent[message.type] = encode(message.to_dict())
        self._send_unsent(socket.MSG_DONTWAIT)

    def _send_unsent(self, flags: int) -> None:
        with suppress(KeyError):
            while True:
                kind, text = self._unsent.popitem()
                try:
                    self._socket.send(text, flags)
                except BlockingIOError:
                    self._unsent.setdefault(kind, text)
                    return

    def next(self) -> WireMessage | None:
        """Wait for the next order to form a group or to leave; return ``None`` if the agent is gone."""
        return self._arrived.get()

    def close(self) -> None:
        """Close the connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if self._reader is not None:
            self._reader.join()
        self._socket.close()

    def _read(self) -> None:
        try:
            while packet := self._socket.recv(PACKET_LIMIT):
                match message := read_message(TO_WORKER, decode(packet)):
                    case GatherMembers(generation=generation):
                        self.gather = max(self.gather, generation)
                    case AbortGroup():
                        self.on_abort()
                    case AskPosition():
                        place, commits = self.position()
                        self.send(WorkerPosition(place, script_line(self._thread), commits))
                    case SendCopies():
                        self.on_copies(message)
                    case None:  # message of a later version
                        pass
                    case _:
                        self._arrived.put(message)
        except OSError:
            pass
        finally:  # also after an error in a handler: a worker must not wait for orders that never arrive
            self._arrived.put(None)


def script_line(thread: int) -> str:
    """Return a thread's innermost line in the script or a library, such as ``fit.py:23 in train``; "" if none."""
    frame: FrameType | None = sys._current_frames().get(thread)  # noqa: SLF001 - the documented way to other threads
    while frame is not None:
        if _is_of_script(frame.f_code.co_filename):
            name = os.path.basename(frame.f_code.co_filename)  # noqa: PTH119 - some are no paths
            return f"{name}:{frame.f_lineno} in {frame.f_code.co_name}"
        frame = frame.f_back
    return ""


def _is_of_script(filename: str) -> bool:
    """Return whether code belongs neither to bftrain_elastic, torch or Horovod, nor to Python itself."""
    if filename.startswith("<frozen "):
        return False
    path = os.path.realpath(filename)
    parts = Path(path).parts
    for folder in _PACKAGES:
        if folder in parts[:-1]:
            return parts[parts.index(folder) + 1].removesuffix(".py") not in _SKIPPED
    return not path.startswith((_STANDARD, _PACKAGE_FOLDER))
