"""A non-blocking stream socket in a loop around ``selectors``."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_CHUNK: Final = 65536
_UNHEARD_MS: Final = 10_000  # a machine that fails silently sends no acknowledgements
_OUT_LIMIT: Final = 64 * 1024 * 1024  # bytes: a peer with a larger backlog has stopped reading


class NonblockingSocket:
    """Passes received bytes to ``on_data``, and sends as soon as the other side accepts data.

    ``on_end`` is called once, with a reason, when the connection is closed. It is never called from within ``write``.
    """

    def __init__(
        self,
        selector: selectors.BaseSelector,
        connection: socket.socket,
        on_data: Callable[[bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        connection.settimeout(0)
        if connection.family in {socket.AF_INET, socket.AF_INET6}:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNHEARD_MS)
        self._selector = selector
        self._connection = connection
        self._on_data = on_data
        self._on_end = on_end
        self._out = bytearray()
        self._waits = False  # True until the connection takes more bytes
        self._broken = ""  # reason why sending is impossible
        self.open = True
        selector.register(connection, selectors.EVENT_READ, self.ready)

    def write(self, data: bytes) -> None:
        """Send, now or as soon as possible."""
        if not self.open or self._broken:
            return
        self._out += data
        self._flush()

    def ready(self, events: int) -> None:
        """Handle the events that the selector reported."""
        if self.open and events & selectors.EVENT_WRITE:
            self._flush()
        if self.open and events & selectors.EVENT_READ:
            try:
                data = self._connection.recv(_CHUNK)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self.end(self._broken or error.strerror or str(error))
                return
            if data:
                self._on_data(data)
            else:
                self.end(self._broken or "the connection was closed")

    def end(self, reason: str) -> None:
        """Close the connection."""
        if not self.open:
            return
        self.open = False
        self._selector.unregister(self._connection)
        self._connection.close()
        self._on_end(reason)

    def _flush(self) -> None:
        try:
            while self._out:
                sent = self._connection.send(self._out)
                del self._out[:sent]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self._break(error.strerror or str(error))
        if len(self._out) > _OUT_LIMIT:
            self._break("the other side does not read")
        if bool(self._out) != self._waits:
            self._waits = not self._waits
            wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._waits else 0)
            self._selector.modify(self._connection, wanted, self.ready)

    def _break(self, reason: str) -> None:
        """Stop sending; the loop notices the closed connection after the received data, such as a goodbye."""
        self._broken = reason
        self._out.clear()
        with suppress(OSError):  # the other side was first
            self._connection.shutdown(socket.SHUT_RDWR)
