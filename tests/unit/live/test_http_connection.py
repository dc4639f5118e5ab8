"""HTTP on streams: what is read, what is answered, and how slow, rude and broken clients are sent away."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bftrain.live.api import http_connection
from bftrain.live.api.http_connection import Request, Response
from tests.helpers.live_inside import in_a_loop
from tests.helpers.live_limits import set_limits

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"


def refuse(status: int, words: str) -> Response:
    return Response(status=status, body=words.encode())


class Client:
    """The other end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def says(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def hears(self) -> tuple[int, dict[str, str], bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        body = await self.reader.readexactly(int(headers.get("content-length", 0)))
        return int(head[0].split()[1]), headers, body

    async def rest(self) -> bytes:
        """Return all that comes until the end."""
        return await self.reader.read()

    def hangs_up(self) -> None:
        self.writer.write_eof()


@asynccontextmanager
async def talk(handle: http_connection.Handle | None = None) -> AsyncIterator[tuple[Client, asyncio.Task[None]]]:
    """Yield a client, and what serves it."""
    ours, theirs = socket.socketpair()
    served = asyncio.create_task(_serve(ours, handle or _echo))
    reader, writer = await asyncio.open_unix_connection(sock=theirs)
    try:
        yield Client(reader, writer), served
    finally:
        writer.close()
        async with asyncio.timeout(20):
            await served


async def _serve(ours: socket.socket, handle: http_connection.Handle) -> None:
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    await http_connection.serve(reader, writer, handle, refuse)
    assert writer.transport.is_closing()


async def _echo(request: Request) -> Response:
    words = f"{request.method} {request.path} {dict(request.query)} {len(request.body)}"
    return Response(body=words.encode(), kind="text/plain")


@in_a_loop
async def test_a_request_is_read_and_answered() -> None:
    async with talk() as (client, _):
        await client.says(b"POST /a%20b//c?x=1&y=%C3%A9&z= HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
        status, headers, body = await client.hears()
    assert (status, body.decode()) == (200, "POST ('a b', '', 'c') {'x': '1', 'y': 'é', 'z': ''} 3")
    assert headers["content-type"] == "text/plain"
    assert headers["cache-control"] == "no-store"
    assert headers["x-content-type-options"] == "nosniff"


@in_a_loop
async def test_requests_sent_ahead_are_answered_one_after_the_other() -> None:
    async with talk() as (client, served):
        await client.says(b"".join(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number for number in range(20)))
        bodies = [(await client.hears())[2] for _ in range(20)]
        assert [body.split(b"'")[1] for body in bodies] == [b"%d" % number for number in range(20)]
        client.hangs_up()
        assert await client.rest() == b""
        await served


@in_a_loop
async def test_a_client_may_ask_to_go_on_and_to_close() -> None:
    async with talk() as (client, _):
        await client.says(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
        assert (await client.hears())[0] == 100
        await client.says(b"ok")
        assert (await client.hears())[2].endswith(b" 2")
        await client.says(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (await client.hears())[0] == 200
        assert await client.rest() == b""


@in_a_loop
async def test_head_has_the_head_alone_also_when_it_is_refused() -> None:
    async with talk() as (client, _):
        await client.says(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b"200" in head.split(b"\r\n")[0]
        await client.says(GET)
        assert (await client.hears())[2].startswith(b"GET")
        await client.says(b"HEAD /%ff HTTP/1.1\r\nHost: a\r\n\r\n")
        seen = await client.rest()
    assert seen.startswith(b"HTTP/1.1 400 ")
    assert seen.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [
        (b"nonsense\r\n\r\n", 400, ""),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), 400, ""),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "Host"),
        (b"GET /%ff HTTP/1.1\r\nHost: a\r\n\r\n", 400, "cannot be read"),
        (b"GET /?" + b"a&" * 60 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 400, "cannot be read"),
        (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400, "begin with '/'"),
        (b"GET http://b/c HTTP/1.1\r\nHost: a\r\n\r\n", 400, "begin with '/'"),
        (b"CONNECT b:80 HTTP/1.1\r\nHost: a\r\n\r\n", 405, "nowhere else"),
        (b"CONNECT / HTTP/1.1\r\nHost: a\r\n\r\n", 405, "nowhere else"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400, ""),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400, ""),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n", 413, "larger"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\nExpect: 100-continue\r\n\r\n", 413, "larger"),
        (b"POST / HTTP/1.1\r\nHost: a\r\ncontent-length:  " + b"9" * 5000 + b" \r\n\r\n", 413, "larger"),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n" + GET,
            400,
            "both Transfer-Encoding and Content-Length",
        ),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501, ""),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 70_000, 431, ""),
    ],
)
@in_a_loop
async def test_what_cannot_be_read_is_refused_in_words(sent: bytes, status: int, words: str) -> None:
    async with talk() as (client, served):
        await client.says(sent)
        found, headers, body = await client.hears()
        assert (found, headers["connection"]) == (status, "close")
        assert words in body.decode()
        client.hangs_up()
        await served


@in_a_loop
async def test_a_body_that_is_too_large_is_refused_while_it_is_sent() -> None:
    async with talk() as (client, served):
        size = 2 * http_connection.LARGEST_BODY
        await client.says(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % size + bytes(size))
        status, _, body = await client.hears()
        assert (status, str(http_connection.LARGEST_BODY).encode() in body) == (413, True)
        client.hangs_up()
        assert await client.rest() == b""
        await served


@in_a_loop
async def test_a_body_in_chunks_is_counted_too() -> None:
    async with talk() as (client, _):
        chunk = b"10000\r\n" + bytes(0x10000) + b"\r\n"
        await client.says(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + 20 * chunk)
        assert (await client.hears())[0] == 413
        client.hangs_up()


@in_a_loop
async def test_nonsense_after_a_head_is_refused_in_words() -> None:
    async with talk() as (client, _):
        await client.says(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n")
        await client.reader.readuntil(b"\r\n\r\n")
        await client.says(b"\0")
        status, _, body = await client.hears()
        assert (status, body != b"") == (400, True)
        client.hangs_up()


@in_a_loop
async def test_an_answer_reaches_a_client_that_sends_more_than_was_asked_for() -> None:
    async with talk() as (client, served):
        await client.says(b"GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" + GET)
        for _ in range(20):
            await asyncio.sleep(0)
        await client.says(GET * 100)
        assert (await client.hears())[2].startswith(b"GET ('a',)")
        assert await client.rest() == b""
        client.hangs_up()
        await served


@in_a_loop
async def test_a_body_in_very_many_pieces_is_not_read_to_its_end() -> None:
    async with talk() as (client, _):
        await client.says(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + 3000 * b"1\r\nx\r\n")
        status, _, body = await client.hears()
        assert (status, b"too many pieces" in body) == (413, True)
        client.hangs_up()


@in_a_loop
async def test_a_client_that_asks_much_at_once_keeps_no_other_waiting() -> None:
    async with talk() as (client, _), talk() as (other, _):
        await client.says(GET * 500)
        await other.says(GET)
        assert (await other.hears())[0] == 200
        seen = 0
        while client.reader._buffer:  # type: ignore[attr-defined]  # noqa: SLF001 - what it was answered so far
            await client.hears()
            seen += 1
        assert seen < 100


@in_a_loop
async def test_a_client_that_leaves_in_the_middle_does_no_harm() -> None:
    for sent in (b"", GET[:9], b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"):
        async with talk() as (client, served):
            await client.says(sent)
            client.writer.close()
            await served


@in_a_loop
async def test_silence_between_requests_ends_the_talk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "_IDLE_S", 0.05)
    async with talk() as (client, served):
        await client.says(GET)
        assert (await client.hears())[0] == 200
        assert await client.rest() == b""
        await served


@pytest.mark.parametrize("sent", [b"G", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nab"])
@in_a_loop
async def test_a_request_that_does_not_come_to_an_end_is_given_up(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    set_limits(monkeypatch, request_s=0.05)
    monkeypatch.setattr(http_connection, "_CLOSING_S", 0.05)
    async with talk() as (client, served):
        await client.says(sent)
        assert (await client.hears())[0] == 408
        await served


@in_a_loop
async def test_drops_do_not_keep_a_request_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole of a request has to be there in time, and not only something of it now and then."""
    set_limits(monkeypatch, request_s=0.2)
    async with talk() as (client, _):
        dripping = asyncio.create_task(_drip(client))
        status, _, _ = await client.hears()
        dripping.cancel()
    assert status == 408


async def _drip(client: Client) -> None:
    await client.says(b"GET / HTTP/1.1\r\n")
    while True:
        await client.says(b"X: y\r\n")
        await asyncio.sleep(0.02)


@in_a_loop
async def test_a_client_that_does_not_take_the_answer_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "_SEND_S", 0.05)
    monkeypatch.setattr(http_connection, "_CLOSING_S", 0.05)

    async def much(_: Request) -> Response:
        return Response(body=bytes(32 << 20))

    ours, theirs = socket.socketpair()
    theirs.settimeout(5)  # and it is not read
    with theirs:
        theirs.send(GET)
        async with asyncio.timeout(10):
            await _serve(ours, much)


class Pieces:
    """A stream, and whether it was let go of."""

    def __init__(self) -> None:
        self.closed = False
        self.more = asyncio.Event()

    async def stream(self) -> AsyncGenerator[bytes, None]:
        try:
            yield b"one"
            while True:
                await self.more.wait()
                yield b"two" * 100_000
        finally:
            self.closed = True


@in_a_loop
async def test_a_stream_is_sent_as_it_comes_and_let_go_of_when_the_client_leaves() -> None:
    pieces = Pieces()

    async def handle(_: Request) -> Response:
        return Response(stream=pieces.stream(), kind="text/event-stream")

    async with talk(handle) as (client, served):
        await client.says(GET)
        head = await client.reader.readuntil(b"\r\n\r\n")
        assert b"text/event-stream" in head
        assert await client.reader.readexactly(len(b"3\r\none\r\n")) == b"3\r\none\r\n"
        assert not pieces.closed
        client.writer.close()
        pieces.more.set()
        await served
    assert pieces.closed


@in_a_loop
async def test_head_of_a_stream_begins_none() -> None:
    pieces = Pieces()

    async def handle(_: Request) -> Response:
        return Response(stream=pieces.stream())

    async with talk(handle) as (client, _):
        await client.says(b"HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (await client.rest()).endswith(b"\r\n\r\n")


@in_a_loop
async def test_a_refused_client_receives_the_refusal_even_with_data_on_its_way() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    client = Client(*await asyncio.open_unix_connection(sock=theirs))
    away = asyncio.create_task(http_connection.reject_connection(reader, writer, refuse(503, "full")))
    await client.says(GET)
    status, headers, body = await client.hears()
    client.writer.close()
    await away
    assert (status, headers["connection"], body) == (503, "close", b"full")


@in_a_loop
async def test_a_fault_of_the_handler_goes_to_the_server() -> None:
    async def broken(_: Request) -> Any:  # noqa: ANN401 - it never gives anything
        raise ZeroDivisionError

    ours, theirs = socket.socketpair()
    client = Client(*await asyncio.open_unix_connection(sock=theirs))
    await client.says(GET)
    with pytest.raises(ZeroDivisionError):
        await _serve(ours, broken)
    assert await client.rest() == b""
    client.writer.close()
