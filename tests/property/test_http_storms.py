"""For any bytes: HTTP never raises, always hangs up in the end, answers in HTTP, and takes little memory."""

from __future__ import annotations

import asyncio
import re
import socket
import tracemalloc
from contextlib import suppress

import h11
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain.live.api.routes import Request, Response
from bftrain.live.api.server import LARGEST_BODY, serve

_HEAD = 32 * 1024
GO_ON = b"HTTP/1.1 100 \r\n\r\n"

requests = st.builds(
    lambda method, target, headers, body, said: (
        method
        + b" "
        + target
        + b" HTTP/1.1\r\nHost: a\r\n"
        + headers
        + b"Content-Length: %d\r\n\r\n" % (len(body) + said)
        + body
    ),
    st.sampled_from([b"GET", b"POST", b"HEAD", b"OPTIONS", b"CONNECT", b"X"]),
    st.one_of(
        st.sampled_from([b"/", b"/a?b=c", b"*", b"//", b"/%ff", b"/a%2Fb", b"http://x/", b"x:80"]),
        st.binary(min_size=1, max_size=20),
    ),
    st.sampled_from(
        [b"", b"Expect: 100-continue\r\n", b"Connection: close\r\n", b"Upgrade: h2c\r\n", b"X: \xff\r\n", b"\0: y\r\n"]
    ),
    st.binary(max_size=50),
    st.sampled_from([0, 0, 0, -1, 1, 10**6, 10**30]),
)
chunked = st.builds(
    lambda size, body, end: (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\n" + body + b"\r\n" + end
    ),
    st.sampled_from([b"3", b"0", b"-1", b"ffffffffffffffffffff", b"3;x=y", b"zz"]),
    st.binary(max_size=5),
    st.sampled_from([b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b""]),
)
storms = st.lists(st.one_of(requests, chunked, st.binary(max_size=200)), max_size=6)


class Talk:
    """What was asked and answered."""

    def __init__(self) -> None:
        self.asked: list[Request] = []

    async def handle(self, request: Request) -> Response:
        self.asked.append(request)
        if request.path == ("a",):
            return Response(status=404)
        return Response(body=b"x" * 1000)

    async def hold(self, pieces: list[bytes], cut: bool) -> bytes:  # noqa: FBT001 - drawn by hypothesis
        """Say all pieces, hang up (rudely if ``cut``), and give all that was heard."""
        ours, theirs = socket.socketpair()
        served = asyncio.create_task(self._serve(ours))
        reader, writer = await asyncio.open_unix_connection(sock=theirs)
        heard = asyncio.create_task(reader.read())
        with suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            if not cut:
                writer.write_eof()
        if cut:
            writer.transport.abort()
        async with asyncio.timeout(20):
            await served
            seen = b""
            with suppress(ConnectionError):
                seen = await heard
        writer.close()
        return seen

    async def _serve(self, ours: socket.socket) -> None:
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        await serve(reader, writer, self.handle)
        assert writer.transport.is_closing()


@given(storms, st.booleans(), st.integers(1, 300))
@settings(max_examples=75, deadline=None)
def test_any_bytes_in_any_pieces(storm: list[bytes], cut: bool, size: int) -> None:  # noqa: FBT001 - drawn
    data = b"".join(storm)
    talk = Talk()
    seen = asyncio.run(talk.hold([data[at : at + size] for at in range(0, len(data), size)], cut))
    for request in talk.asked:
        assert len(request.body) <= LARGEST_BODY
        assert sum(map(len, request.headers.values())) <= _HEAD
    if not cut:
        assert re.match(rb"(HTTP/1\.1 [1-5]\d\d |$)", seen), seen[:100]
        statuses = statuses_of(seen, talk.asked)
        assert len(statuses) - len(talk.asked) in {0, 1}, "one answer to each request, and at most one refusal after"
        assert all(status in {200, 404} for status in statuses[: len(talk.asked)])


def statuses_of(seen: bytes, asked: list[Request]) -> list[int]:
    """Read answers as a client does that knows what it asked for."""
    found: list[int] = []
    methods = [request.method for request in asked]
    rest = seen
    while rest and rest != GO_ON:  # asked to go on, it went
        # What was refused is not among the requests: its answer has a body, or was to a HEAD
        ways = [methods[len(found)]] if len(found) < len(methods) else ["GET", "HEAD"]
        answers = [answer for method in ways if (answer := one_answer(rest, method)) is not None]
        assert answers, f"an answer without an end: {rest[:200]!r}"
        status, rest = answers[0]
        found.append(status)
    return found


def one_answer(data: bytes, method: str) -> tuple[int, bytes] | None:
    """Read the answer to one request, and give what follows; nothing if it has no end."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method=method, target="/", headers=[("host", "a")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    status = 0
    while not isinstance(event := client.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            return None
        if isinstance(event, h11.Response):
            status = event.status_code
    return status, client.trailing_data[0]


def test_a_flood_takes_little_memory() -> None:
    """Heads and bodies without an end, and requests without a pause: what is kept of them is bounded."""
    floods = [
        [b"GET / HTTP/1.1\r\nHost: a\r\nX: ", *[b"x" * 65536] * 256],
        [b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", *[b"x" * 65536] * 256],
        [b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", *[b"1\r\nx\r\n" * 10922] * 64],
        [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 400] * 2,
    ]
    for flood in floods:
        talk = Talk()
        tracemalloc.start()
        seen = asyncio.run(talk.hold(flood, cut=False))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        theirs = 2 * len(seen) + 4000 * len(talk.asked)  # what the test itself keeps
        assert peak - theirs < 4 << 20, f"{peak / 1e6:.1f} MB for {flood[0][:60]!r}"
        assert seen.startswith(b"HTTP/1.1 ")
