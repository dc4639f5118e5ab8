"""HTTP/1.1 over asyncio streams: h11 parses the protocol; this module adds time-outs and limits.

Connections are served one request at a time; bodies are small; slow or silent clients are disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote

import h11

from bftrain.live import timeouts

JSON: Final = "application/json"
LARGEST_BODY: Final = 1 << 20
_TOO_LARGE: Final = f"the body is larger than {LARGEST_BODY} bytes"
_LARGEST_HEAD: Final = 32 * 1024
_MOST_PIECES: Final = 2048  # limit per body: reading byte by byte would block the server
_CHUNK: Final = 65536
_LINGER: Final = 4 << 20  # bytes accepted after the response


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``path`` is split at slashes and decoded; headers have lower-case names."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """A response: a complete ``body``, or a ``stream`` whose pieces are sent as they arrive."""

    status: int = 200
    body: bytes = b""
    kind: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncGenerator[bytes, None] | None = None


Handle = Callable[[Request], Awaitable[Response]]


class BadRequest(Exception):
    """The request cannot be parsed; ``status`` is the status of the answer."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handle, refuse: Refuse) -> None:
    """Answer all requests of a connection; ``refuse`` builds the response to a request that cannot be parsed."""
    connection = _ClientConnection(reader, writer)
    try:
        more = True
        while more:
            more = await connection.serve_one(handle, refuse)
            await asyncio.sleep(0)  # a client with many pipelined requests takes turns with other clients
    except (ConnectionError, TimeoutError, h11.LocalProtocolError):
        pass  # the client left, or was sent away
    finally:
        await _close(writer)


async def reject_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, response: Response) -> None:
    """Send an answer before any request is read, and close the connection."""
    try:
        await _ClientConnection(reader, writer).send_last(response)
    except (ConnectionError, TimeoutError):
        pass  # the client left first
    finally:
        await _close(writer)


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError, TimeoutError):
        async with asyncio.timeout(timeouts.TIMEOUTS.linger_s):
            await writer.wait_closed()


Refuse = Callable[[int, str], Response]


class _ClientConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._state = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST_HEAD)
        self._head_only = False  # the current request has a normal body again

    async def serve_one(self, handle: Handle, refuse: Refuse) -> bool:
        try:
            request = await self._request()
        except (BadRequest, h11.RemoteProtocolError) as error:
            status = error.status if isinstance(error, BadRequest) else error.error_status_hint
            await self.send_last(refuse(status, str(error)))
            return False
        if request is None:
            return False
        await self._answer(await handle(request))
        if self._state.our_state is not h11.DONE or self._state.their_state is not h11.DONE:
            await self._linger()
            return False
        self._state.start_next_cycle()
        return True

    async def send_last(self, response: Response) -> None:
        await self._answer(response, last=True)
        await self._linger()

    async def _linger(self) -> None:
        """Read and drop the client's remaining bytes.

        Closing earlier would reset the connection before our answer arrives.
        """
        with suppress(OSError, TimeoutError):
            self._writer.write_eof()
            async with asyncio.timeout(timeouts.TIMEOUTS.linger_s):
                left = _LINGER
                while left > 0 and (data := await self._reader.read(_CHUNK)):
                    left -= len(data)

    async def _request(self) -> Request | None:
        """Read a request; return ``None`` if the client closed the connection or timed out."""
        self._head_only = False
        event = self._state.next_event()
        if event is h11.NEED_DATA:
            async with asyncio.timeout(timeouts.TIMEOUTS.idle_connection_s):
                await self._read()
        try:
            async with asyncio.timeout(timeouts.TIMEOUTS.request_s):
                return await self._read_request(event)
        except TimeoutError:
            raise BadRequest(408, f"the request did not arrive within {timeouts.TIMEOUTS.request_s:g} s") from None

    async def _read_request(self, event: object) -> Request | None:
        head = await self._event() if event is h11.NEED_DATA else event
        if not isinstance(head, h11.Request):
            return None
        self._head_only = head.method == b"HEAD"
        fields = dict(head.headers)
        length = fields.get(b"content-length")
        if length is not None and b"transfer-encoding" in fields:  # a proxy may interpret the other header
            raise BadRequest(400, "it has both Transfer-Encoding and Content-Length")
        if int(length or 0) > LARGEST_BODY:
            raise BadRequest(413, _TOO_LARGE)
        body, pieces = bytearray(), 0
        if self._state.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            pieces += 1
            if len(body) > LARGEST_BODY or pieces > _MOST_PIECES:
                raise BadRequest(413, f"{_TOO_LARGE}, or in too many pieces")
        if not isinstance(event, h11.EndOfMessage):
            return None
        return _parsed(head, bytes(body))

    async def _event(self) -> object:
        while (event := self._state.next_event()) is h11.NEED_DATA:
            await self._read()
        return event

    async def _read(self) -> None:
        data = await self._reader.read(_CHUNK)
        self._state.receive_data(data)

    async def _answer(self, response: Response, *, last: bool = False) -> None:
        if self._state.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        headers = {
            "content-type": response.kind,
            "cache-control": "no-store",
            "x-content-type-options": "nosniff",
            **response.headers,
        }
        if response.stream is None:
            headers["content-length"] = str(len(response.body))
        if last:
            headers["connection"] = "close"
        head = h11.Response(status_code=response.status, headers=list(headers.items()))
        if response.stream is None:
            await self._send(head, h11.Data(data=b"" if self._head_only else response.body), h11.EndOfMessage())
            return
        await self._send(head)
        try:
            if not self._head_only:
                async for piece in response.stream:
                    await self._send(h11.Data(data=piece))
        finally:
            await response.stream.aclose()  # release its resources now
        await self._send(h11.EndOfMessage())

    async def _send(self, *events: h11.Event) -> None:
        self._writer.write(b"".join(self._state.send(event) or b"" for event in events))
        async with asyncio.timeout(timeouts.TIMEOUTS.send_s):
            await self._writer.drain()


def _parsed(head: h11.Request, body: bytes) -> Request:
    try:
        target = head.target.decode("ascii")
        path, _, query = target.partition("?")
        parts = tuple(unquote(part, errors="strict") for part in path.split("/")[1:])
        asked = dict(parse_qsl(query, keep_blank_values=True, errors="strict", max_num_fields=50))
    except (UnicodeDecodeError, ValueError) as error:
        raise BadRequest(400, f"the address cannot be read: {error}") from error
    if head.method == b"CONNECT":
        raise BadRequest(405, "this server is no proxy")
    if not target.startswith("/"):
        raise BadRequest(400, "the address must begin with '/'")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return Request(head.method.decode("ascii"), parts, asked, headers, body)
