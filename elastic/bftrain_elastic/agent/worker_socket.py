"""The Unix socket on which an agent's workers reach it, open to its own user only."""

from __future__ import annotations

import os
import selectors
import shutil
import socket
import struct
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.wire.messages import PACKET_LIMIT, Message, decode, encode, text_of
from bftrain_elastic.worker.agent_channel import reachable

_PREFIX: Final = "bftrain-agent-"
_NAME: Final = "agent"


def sweep() -> None:
    """Remove the sockets of our user's agents that were killed."""
    for home in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            if home.stat().st_uid != os.getuid() or home.is_symlink():
                continue
            try:
                with reachable(str(home / _NAME)) as name:
                    probe.connect(name)
            except ConnectionRefusedError:
                shutil.rmtree(home, ignore_errors=True)


class WorkerSocket:
    """Hands what a worker says to ``on_message``, with its name; ``known`` says which names there are."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        *,
        known: Callable[[str], bool],
        on_message: Callable[[str, Message], None],
        note: Callable[[str], None],
    ) -> None:
        self._selector = selector
        self._known = known
        self._on_message = on_message
        self._note = note
        self._guests: dict[socket.socket, str] = {}  # who has not said its name has none
        sweep()
        self.home = Path(tempfile.mkdtemp(prefix=_PREFIX))  # of our own: its mode is 0700
        self.path = str(self.home / _NAME)
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._door.settimeout(0)
        with reachable(f"{self.path}.new") as name:
            self._door.bind(name)
        self._door.listen(64)
        Path(f"{self.path}.new").rename(self.path)  # once it is visible workers can connect
        self._waits = False  # no worker can be let in at the moment
        selector.register(self._door, selectors.EVENT_READ, lambda _: self._let_in_all())

    def let_in(self) -> None:
        """Let workers in again, if that was not possible."""
        if self._waits:
            self._waits = False
            self._selector.register(self._door, selectors.EVENT_READ, lambda _: self._let_in_all())

    def tell(self, worker: str, message: Message) -> None:
        """Send a worker a message, if it is there and listens."""
        for guest in [one for one, name in self._guests.items() if name == worker]:
            try:
                guest.send(encode(message, limit=PACKET_LIMIT), socket.MSG_DONTWAIT)
            except OSError as error:
                self._note(f"{worker} does not listen: {error}")

    def drain(self, worker: str) -> None:
        """Take in all that a worker has said; it has ended, and the agent may have heard of that first."""
        self._let_in_all()
        for guest in [one for one, name in self._guests.items() if name in {"", worker}]:
            while guest in self._guests and self._arrived(guest):
                pass

    def close(self) -> None:
        """Take the door away; those who are inside find out by themselves."""
        self._door.close()
        shutil.rmtree(self.home, ignore_errors=True)

    def _let_in_all(self) -> None:
        try:
            while True:
                self._let_in(self._door.accept()[0])
        except (BlockingIOError, ConnectionError):
            pass
        except OSError as error:  # no descriptor is free: the selector would report the workers that wait without end
            if not self._waits:
                self._waits = True
                self._selector.unregister(self._door)
                self._note(f"no worker can connect: {error.strerror}; it is tried again")

    def _let_in(self, guest: socket.socket) -> None:
        guest.settimeout(0)
        _, user, _ = struct.unpack("3i", guest.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.getuid():
            guest.close()
            return
        self._guests[guest] = ""
        self._selector.register(guest, selectors.EVENT_READ, lambda _: self._arrived(guest))

    def _arrived(self, guest: socket.socket) -> bool:
        """Take in one packet; return whether there was one."""
        if guest not in self._guests:  # it left while others were heard
            return False
        try:
            packet = guest.recv(PACKET_LIMIT)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            packet = b""
        if not packet:
            self._selector.unregister(guest)
            self._guests.pop(guest, None)
            guest.close()
            return False
        try:
            self._heard(guest, decode(packet))
        except BadMessage as error:
            self._note(f"{self._guests[guest] or 'a worker'}: {error}")
        return True

    def _heard(self, guest: socket.socket, message: Message) -> None:
        name = self._guests[guest]
        if message.get("type") == "hello":
            name = text_of(message, "worker")
            if self._known(name):
                self._guests[guest] = name
        elif name:
            self._on_message(name, message)
