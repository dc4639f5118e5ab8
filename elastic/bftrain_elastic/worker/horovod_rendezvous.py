"""Where the members of a Horovod group tell each other their addresses.

Horovod looks for a small HTTP service: ``PUT``, ``GET`` and ``DELETE`` of ``/scope/key``, 404 for what is not there
yet. Its own one listens on all interfaces; this one listens on the given address, and serves one group only.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from bftrain_elastic.errors import ElasticError

_VALUE_LIMIT: Final = 65536  # bytes
_REQUEST_S: Final = 3.0  # within which a request must have arrived
_PLACES: Final = "rank_and_size"  # what a member asks that forms its second group or a later one
_ARRIVED: Final = "arrived"  # where members say that they are there
_POLL_S: Final = 0.0025  # times the number of members: rank 0 answers as often, however many ask
_LONGEST_POLL_S: Final = 0.25


class NotAllCame(ElasticError):
    """A group cannot form: some of its members did not come to the meeting point."""


def host_name(rank: int, workers: int) -> str:
    """What a member is to call its host: it says all that the meeting point has to know."""
    return f"rank{rank}of{workers}"


class HorovodRendezvous:
    """Serves at ``address`` until it is closed; ``port`` is where."""

    def __init__(self, address: str) -> None:
        self._server = _Server((address, 0), _Handler)
        self.host, self.port = address, int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._serve, name="bftrain-meeting", daemon=True)
        self._thread.start()

    def refuse(self) -> None:
        """Answer nothing any more, so that no member waits here for a dead one."""
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


def all_came(meeting: tuple[str, int], rank: int, workers: int, timeout_s: float, given_up: Callable[[], bool]) -> None:
    """Say at a meeting point that we are there, and wait until all members are.

    Horovod ends the process of a member that waited in vain for another, so it is not asked before all are there.
    """
    deadline = time.monotonic() + timeout_s
    said = False
    while time.monotonic() < deadline and not given_up():
        with suppress(OSError, HTTPException):  # rank 0 may not be there yet
            said = said or _ask(meeting, "PUT", f"/{_ARRIVED}/rank{rank}") == HTTPStatus.OK
            status = _ask(meeting, "GET", f"/{_ARRIVED}/of{workers}")
            if status == HTTPStatus.OK and said:
                return
            if status == HTTPStatus.GONE:
                raise NotAllCame("a member is dead, and the group does not form")
        time.sleep(min(_LONGEST_POLL_S, _POLL_S * workers))
    raise NotAllCame(f"the connection to other members was not made: not all {workers} came within {timeout_s:g} s")


def _ask(meeting: tuple[str, int], method: str, path: str) -> int:
    connection = HTTPConnection(*meeting, timeout=_REQUEST_S)
    try:
        connection.request(method, path, b"" if method == "PUT" else None)
        return connection.getresponse().status
    finally:
        connection.close()


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
        elif scope == _ARRIVED:
            there = sum(path.startswith(f"/{_ARRIVED}/rank") for path in list(self.server.values))
            value = b"all" if f"of{there}" == key else None
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
