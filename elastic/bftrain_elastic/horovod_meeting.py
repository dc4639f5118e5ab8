"""Where the members of a Horovod group tell each other their addresses.

Horovod looks for a small HTTP service: ``PUT``, ``GET`` and ``DELETE`` of ``/scope/key``, 404 for what is not there
yet. Its own one listens on all interfaces; this one listens where it is told, and serves one group only.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

_VALUE_LIMIT: Final = 65536  # bytes
_REQUEST_S: Final = 3.0  # within which a request must have arrived
_PLACES: Final = "rank_and_size"  # what a member asks that forms its second group or a later one


def host_name(rank: int, workers: int) -> str:
    """What a member is to call its host: it says all that the meeting point has to know."""
    return f"rank{rank}of{workers}"


class MeetingPoint:
    """Serves at ``address`` until it is closed; ``port`` is where."""

    def __init__(self, address: str) -> None:
        self._server = _Server((address, 0), _Handler)
        self.host, self.port = address, int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._serve, name="bftrain-meeting", daemon=True)
        self._thread.start()

    def refuse(self) -> None:
        """Answer nothing any more, so that nobody waits here for a member that is dead."""
        self._server.refusing = True

    def close(self) -> None:
        """Listen no more; once is enough."""
        if not self._server.open:
            return
        self._server.open = False
        with suppress(OSError):
            self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
        self._thread.join()
        self._server.server_close()

    def _serve(self) -> None:
        while self._server.open:
            self._server.handle_request()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1024

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.values: dict[str, bytes] = {}
        self.open = True
        self.refusing = False

    def server_bind(self) -> None:
        """Bind, without asking name servers who we are."""
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()


class _Handler(BaseHTTPRequestHandler):
    timeout = _REQUEST_S
    server: _Server

    def do_GET(self) -> None:
        """Give a value, or say that it is not there yet."""
        value = self.server.values.get(self.path)
        scope, _, key = self.path.strip("/").partition("/")
        if scope == _PLACES:
            value = _place(key)
        self._answer(HTTPStatus.NOT_FOUND if value is None else HTTPStatus.OK, value or b"")

    def do_PUT(self) -> None:
        """Keep a value."""
        length = int(self.headers.get("Content-Length", "0"))
        if not 0 <= length <= _VALUE_LIMIT:
            self._answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        self.server.values[self.path] = self.rfile.read(length)
        self._answer(HTTPStatus.OK)

    def do_DELETE(self) -> None:
        """Know that a member needs no more; the group has no second meeting here, so nothing need be forgotten."""
        self._answer(HTTPStatus.OK)

    def _answer(self, status: HTTPStatus, value: bytes = b"") -> None:
        if self.server.refusing:
            status, value = HTTPStatus.GONE, b""
        self.send_response(status)
        self.send_header("Content-Length", str(len(value)))
        self.end_headers()
        self.wfile.write(value)

    def log_message(self, *_: object) -> None:
        """Say nothing: this is no web server."""


def _place(key: str) -> bytes | None:
    """Rank and size among all, on its host, and across hosts; every worker counts as a host of its own."""
    try:
        rank, workers = (int(text) for text in key.partition(":")[0].removeprefix("rank").split("of"))
    except ValueError:
        return None
    return f"{rank},{workers},0,1,{rank},{workers}".encode()
