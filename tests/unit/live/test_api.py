"""The API as it is reached: sockets, users, tokens, requests of all kinds, and many connections."""

from __future__ import annotations

import asyncio
import grp
import os
import re
import runpy
import shutil
import socket
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from bftrain import BadConfig, NotAvailable
from bftrain.live.api import routes
from tests.helpers.asking import ask, connect
from tests.helpers.live_callers import ANN, BOB, everywhere, token_of
from tests.helpers.live_inside import Api, Caller, decided, in_a_loop, live_inside, ourselves, submit
from tests.helpers.live_inside import Api as ApiSettings
from tests.helpers.timeouts import set_limits, set_timeouts

TCP = Api(tcp="127.0.0.1:0")
SUBMISSION = {"run": {"argv": ["train.py"]}, "max_nodes": 2, "name": "a"}
HOST = b" HTTP/1.1\r\nHost: a\r\n"
STATUS = b"GET /v1/status" + HOST + b"\r\n"
UPLOAD = b"POST /v1/drain" + HOST + b"Content-Type: application/json\r\n"


@pytest.fixture
def at_socket(monkeypatch: pytest.MonkeyPatch) -> Callable[[Caller], None]:
    """Return a function that sets who connects to the socket."""
    return lambda caller: monkeypatch.setattr("bftrain.live.api.server.caller_at_socket", lambda *_: caller)


@in_a_loop
async def test_every_endpoint_answers_as_described_on_the_socket_and_over_tcp(tmp_path: Path) -> None:
    async with live_inside(tmp_path, api=TCP) as inside:
        await submit(inside.service, "a")
        inside.world.lend("n1")
        await decided(inside.daemon)
        paths = (await ask(inside.api.addresses[0], "GET /v1/openapi.json")).json["paths"]
        bodies = {"drain": {"nodes": ["n7"]}, "undrain": {"nodes": ["n7"]}, "pause": {"for_s": 0.1}}
        # A second submission has the name of the first; there is no log
        odd = {"/v1/tasks": 409, "/v1/tasks/{task}/logs/{file}": 404}
        asked = [(path, method, about) for path, methods in paths.items() for method, about in methods.items()]
        assert len(asked) >= 19
        for address in everywhere(inside):
            for path, method, about in asked:
                if "text/event-stream" in about["responses"]["200"]["content"]:
                    continue  # it does not end
                filled = path.replace("{task}", "a").replace("{file}", "n1.log")
                body = bodies.get(filled.rpartition("/")[2], SUBMISSION) if "requestBody" in about else None
                request = f"{method.upper()} {filled}"
                answered = await ask(address, request, body, authorization=token_of(inside))
                expected = {200, odd.get(path, 200)}
                if path.endswith(("/cancel", "/pause", "/resume")):
                    expected |= {409}  # a finished task stays so
                assert answered.status in expected, f"{request}: {answered}"
                kinds = about["responses"]["200"]["content"] if answered.status == 200 else ["application/json"]
                assert answered.headers["content-type"].partition(";")[0] in {kind.partition(";")[0] for kind in kinds}
                if address.startswith("http"):
                    refused = await ask(address, request, body)
                    assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer"), path


@in_a_loop
async def test_bad_requests_are_refused_with_their_reason(tmp_path: Path) -> None:
    drain = {"content_type": "application/json"}
    requests: list[tuple[str, object, dict[str, Any], int, str]] = [
        ("GET /", None, {}, 200, ""),
        ("HEAD /v1/drain", None, {}, 405, ""),
        ("GET /v2/status", None, {}, 404, "no such endpoint: GET /v2/status"),
        ("GET /v1/status/", None, {}, 404, ""),
        ("GET /v1/../v1/status", None, {}, 404, ""),
        ("DELETE /v1/tasks", None, {}, 405, "POST"),
        ("GET /v1/tasks?al=true", None, {}, 400, "'al'"),
        ("GET /v1/tasks?all=yes", None, {}, 400, "'yes'"),
        ("GET /v1/tasks/a/logs/x?offset=1.5", None, {}, 400, "whole number"),
        ("GET /v1/tasks/a/logs/x?offset=" + "9" * 5000, None, {}, 400, "whole number"),
        ("GET /v1/tasks/a/logs/x?offset=-", None, {}, 400, "whole number"),
        ("GET /v1/tasks/%23" + "9" * 5000, None, {}, 404, "no task"),
        ("GET /v1/tasks/%00", None, {}, 404, "no task"),
        ("GET /v1/tasks/%ff", None, {}, 400, ""),
        ("GET /v1/watch?span=0", None, {}, 400, "span"),
        ("GET /v1/watch?updates=-1", None, {}, 400, "updates"),
        ("POST /v1/tasks", {"run": {"argv": ["x"]}}, {}, 400, "max_nodes"),
        ("POST /v1/tasks", {**SUBMISSION, "nmae": "x"}, {}, 400, "nmae"),
        ("POST /v1/tasks", {**SUBMISSION, "max_nodes": 10**30}, {}, 400, "<= 1000000"),
        ("POST /v1/tasks", {**SUBMISSION, "name": "../x"}, {}, 400, "letters"),
        ("POST /v1/tasks", SUBMISSION, {"content_type": "text/plain"}, 415, "application/json"),
        ("POST /v1/tasks", None, {}, 415, "application/json"),
        ("POST /v1/drain", {"nodes": []}, {}, 400, ">= 1"),
        ("POST /v1/drain", {"nodes": ["a", 1]}, {}, 400, "nodes"),
        *(
            ("POST /v1/drain", None, {"raw": raw, **drain}, 400, "")
            for raw in (b"", b"{", b"[]", b"null", b"\xff", b'{"nodes": "n1"}', b"[" * 100_000)
        ),
    ]
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "a")
        for request, body, more, status, word in requests:
            answered = await ask(inside.api.addresses[0], request, body, **more)
            assert answered.status == status, (request[:80], answered)
            if status != 200 and not request.startswith("HEAD"):
                assert set(answered.json["error"]) == {"what", "where", "fix"}
                assert word in str(answered.json["error"]), request
        assert [task.name for task in inside.service.tasks(ourselves(), all=True)] == ["a"]


@in_a_loop
async def test_the_socket_knows_who_asks(tmp_path: Path, at_socket: Callable[[Caller], None]) -> None:
    at_socket(ANN)
    async with live_inside(tmp_path) as inside:
        address = inside.api.addresses[0]
        assert (await ask(address, "POST /v1/tasks", SUBMISSION)).json["user"] == "ann"
        at_socket(BOB)
        assert (await ask(address, "GET /v1/tasks?all=true")).json == []
        for request in ("GET /v1/tasks/a", "GET /v1/tasks/a/logs", "POST /v1/tasks/a/cancel"):
            assert (await ask(address, request)).status == 404
        for request in ("POST /v1/drain", "POST /v1/undrain"):
            assert (await ask(address, request, {"nodes": ["n1"]})).status == 403
            assert (await ask(address, request, raw=b"nonsense")).status == 403
        at_socket(ANN)
        assert [task["name"] for task in (await ask(address, "GET /v1/tasks")).json] == ["a"]
        assert (await ask(address, "POST /v1/tasks/a/cancel")).json["state"] == "cancelled"


@in_a_loop
async def test_over_tcp_only_the_token_and_a_name_of_this_machine_open(tmp_path: Path) -> None:
    async with live_inside(tmp_path, api=TCP) as inside:
        tcp = inside.api.addresses[1]
        token = token_of(inside)
        for wrong in ("", "Bearer", "Bearer x", f"{token}x", token.replace("Bearer", "Basic"), token.upper()):
            for request in ("GET /v1/status", "GET /v1/nothing", "POST /v1/tasks", "GET /metrics"):
                refused = await ask(tcp, request, authorization=wrong)
                assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert (await ask(tcp, "POST /v1/tasks", SUBMISSION, authorization=token)).json["user"] == ourselves().user
        # Nothing but the header counts: no address has the token, where logs would keep it
        assert (await ask(tcp, f"GET /v1/status?token={token.partition(' ')[2]}")).status == 401
        hosts = dict.fromkeys(("localhost", "LOCALHOST:8765", "127.0.0.1:1", "[::1]"), 200)
        foreign = ("evil.example:8765", "localhost.evil.example", "127.0.0.1.evil.example:80")
        for host, status in {**hosts, **dict.fromkeys(foreign, 421)}.items():
            for request in ("GET /v1/status", "GET /", "GET /page.js"):
                assert (await ask(tcp, request, host=host, authorization=token)).status == status
    async with live_inside(tmp_path, api=Api(tcp="0.0.0.0:0", beyond_loopback=True)) as inside:
        tcp = f"http://127.0.0.1:{inside.api.addresses[1].rpartition(':')[2]}"
        assert (await ask(tcp, "GET /v1/status", host="login1.site", authorization=token_of(inside))).status == 200


@in_a_loop
async def test_an_internal_error_is_reported_and_the_api_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("oh")

    said: list[str] = []
    async with live_inside(tmp_path, said=said) as inside:
        monkeypatch.setattr(inside.service.metrics, "text", broken)
        answered = await ask(inside.api.addresses[0], "GET /metrics")
        assert (answered.status, "oh" in answered.what) == (500, True)
        assert any("ZeroDivisionError: oh" in text and "broken:" in text for text in said), "with its place"
        assert (await ask(inside.api.addresses[0], "GET /v1/status")).status == 200


async def _held(path: Path) -> asyncio.StreamWriter:
    """Return a connection whose request has begun."""
    _, writer = await connect(path)
    writer.write(STATUS[:-2])
    return writer


@in_a_loop
async def test_no_user_keeps_the_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_socket: Callable[[Caller], None]
) -> None:
    set_limits(monkeypatch, connections_of_user=3, connections=5)
    at_socket(ANN)
    async with live_inside(tmp_path) as inside:
        path = inside.daemon.site.socket
        taken = [await _held(path) for _ in range(3)]
        assert (await ask(path, "GET /v1/status")).status == 503
        at_socket(BOB)
        taken += [await _held(path) for _ in range(2)]
        assert (await ask(path, "GET /v1/status")).status == 503
        at_socket(ourselves())
        assert (await ask(path, "GET /v1/status")).status == 200, "operators have places of their own"
        for writer in taken:
            writer.close()
        at_socket(BOB)
        for _ in range(1000):
            if (await ask(path, "GET /v1/status")).status == 200:
                return
        pytest.fail("closed connections still count")


@in_a_loop
async def test_silent_connections_over_tcp_keep_out_neither_the_socket_nor_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, connections_of_user=8, connections=10)
    async with live_inside(tmp_path, api=TCP) as inside:
        socket, tcp = everywhere(inside)
        silent = [await connect(tcp) for _ in range(60)]
        assert (await ask(socket, "GET /v1/status")).status == 200
        assert (await ask(tcp, "GET /v1/status", authorization=token_of(inside))).status == 200
        assert (await ask(tcp, "GET /v1/status")).status == 401
        assert await silent[0][0].read() == b"", "those that said nothing gave their places to others"
        for _, writer in silent:
            writer.close()


@in_a_loop
async def test_the_end_of_a_run_ends_all_connections(tmp_path: Path) -> None:
    async with live_inside(tmp_path, api=TCP) as inside:
        talks = [await connect(address) for address in everywhere(inside) for _ in range(3)]
        stream = await connect(inside.daemon.site.socket)
        stream[1].write(b"GET /v1/watch" + HOST + b"\r\n")
        assert b" 200 " in await stream[0].readline()
        async with asyncio.timeout(60):
            await inside.api.close()
            for reader, writer in (*talks, stream):
                with suppress(ConnectionError):
                    await reader.read()
                writer.close()
        with pytest.raises(OSError, match=r"No such file|refused"):
            await connect(inside.daemon.site.socket)


async def _answer(address: str, sent: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send bytes and return the response: status, headers and body."""
    reader, writer = await connect(address)
    try:
        writer.write(sent)
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
        return int(head[0].split()[1]), headers, await reader.read()
    finally:
        writer.close()


@in_a_loop
async def test_http_is_served_as_clients_expect(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        address = inside.api.addresses[0]
        status, headers, body = await _answer(address, b"HEAD /v1/status" + HOST + b"\r\n")
        assert (status, body, int(headers["content-length"]) > 100) == (200, b"", True)
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
        chunked = b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"nod\r\nb\r\nes":["n1"]}\r\n0\r\n\r\n'
        assert (await _answer(address, UPLOAD + chunked))[0] == 200
        reader, writer = await connect(address)
        writer.write(UPLOAD + b"Content-Length: 16\r\nExpect: 100-continue\r\n\r\n")
        assert b" 100 " in await reader.readuntil(b"\r\n\r\n")
        writer.write(b'{"nodes":["n1"]}')
        assert b" 200 " in await reader.readline()
        assert (await reader.read()).endswith(b"]"), "and then the connection is closed"
        writer.close()


@in_a_loop
async def test_requests_that_are_no_http_or_too_large_are_refused(tmp_path: Path) -> None:
    both = b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"
    requests = [
        (b"nonsense\r\n\r\n", {400}),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), {400}),
        (b"GET / HTTP/1.1\r\n\r\n", {400}),
        (b"GET /?" + b"a&" * 60 + HOST + b"\r\n", {400}),
        (b"GET http://b/c" + HOST + b"\r\n", {400}),
        (b"CONNECT b:80" + HOST + b"\r\n", {405}),
        (UPLOAD + b"Content-Length: x\r\n\r\n", {400}),
        (UPLOAD + b"Content-Length: -1\r\n\r\n", {400}),
        (UPLOAD + b"Content-Length: 2000000\r\n\r\n", {413}),
        (UPLOAD + b"Content-Length: 2000000\r\n\r\n" + bytes(2_000_000), {413}),
        (UPLOAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n", {400, 431}),
        (UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n" + 20 * (b"10000\r\n" + bytes(0x10000) + b"\r\n"), {413}),
        (UPLOAD + b"Transfer-Encoding: chunked\r\n\r\n" + 3000 * b"1\r\nx\r\n", {413}),
        (UPLOAD + both, {400}),
        (UPLOAD + b"Transfer-Encoding: gzip\r\n\r\n", {501}),
        (b"GET /" + HOST + b"X: " + b"x" * 70_000, {431}),
    ]
    async with live_inside(tmp_path) as inside:
        for sent, statuses in requests:
            status, headers, _ = await _answer(inside.api.addresses[0], sent)
            assert (status in statuses, headers["connection"]) == (True, "close"), (sent[:60], status)
        for sent in (b"", STATUS[:9], UPLOAD + b"Content-Length: 9\r\n\r\nabc"):  # and then the client leaves
            _, writer = await connect(inside.api.addresses[0])
            writer.write(sent)
            writer.close()
        assert (await _answer(inside.api.addresses[0], STATUS))[0] == 200


@in_a_loop
async def test_a_request_has_to_arrive_as_a_whole_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    set_timeouts(monkeypatch, request_s=0.2)
    async with live_inside(tmp_path) as inside:
        reader, writer = await connect(inside.api.addresses[0])
        writer.write(STATUS[:-2])
        answer = asyncio.create_task(reader.readline())
        while not answer.done():  # a header now and then does not keep it alive
            writer.write(b"X: y\r\n")
            await asyncio.sleep(0.02)
        assert b" 408 " in await answer
        writer.close()


def test_stray_files_beside_the_status_page_are_not_served(tmp_path: Path) -> None:
    folder = shutil.copytree(Path(routes.__file__).parent, tmp_path / "api")
    (folder / "page" / "page.js~").touch()
    (folder / "page" / "old").mkdir()
    copied = runpy.run_path(str(folder / "routes.py"))["ROUTES"]
    assert [route.path for route in copied] == [route.path for route in routes.ROUTES]


@in_a_loop
async def test_the_status_page_is_public_under_a_strict_policy_and_names_no_other_place(tmp_path: Path) -> None:
    async with live_inside(tmp_path, api=TCP) as inside:
        tcp = inside.api.addresses[1]
        html = (await ask(tcp, "GET /")).body.decode()
        script = (await ask(tcp, "GET /page.js")).body.decode()
        files = {*_links(html), *re.findall(r"""from ['"]\./(\w+\.js)['"]""", script)}
        assert len(files) >= 5
        scripts = [await ask(tcp, f"GET /{name}") for name in sorted(files)]
        for answered in (await ask(tcp, "GET /"), *scripts):
            assert answered.status == 200
            policy = dict(part.strip().split(" ", 1) for part in answered.headers["content-security-policy"].split(";"))
            closed = [policy.pop(name) for name in ("default-src", "frame-ancestors", "base-uri", "form-action")]
            assert (set(closed), set(policy.values())) == ({"'none'"}, {"'self'"})
            assert answered.headers["referrer-policy"] == "no-referrer"
            text = answered.body.decode().replace('xmlns="http://www.w3.org/2000/svg"', "")
            assert "http" not in text
            assert "innerHTML" not in text
        assert not [mark for mark in ("<style", " style=", " onclick=", " onload=") if mark in html]
        assert (await ask(tcp, "POST /")).status in {401, 405}


def _links(html: str) -> list[str]:
    return [piece.split('"')[0].lstrip("/") for mark in ('src="', 'href="') for piece in html.split(mark)[1:]]


@in_a_loop
async def test_without_tcp_only_a_private_socket_is_there(tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        (address,) = inside.api.addresses
        path = inside.daemon.site.socket
        assert address == f"unix:{path}"
        about = path.stat()
        assert stat.S_ISSOCK(about.st_mode)
        assert stat.S_IMODE(about.st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert inside.service.status().addresses == (address,)
    assert not path.exists()


@in_a_loop
async def test_no_client_can_connect_before_the_mode_is_what_it_should_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int] = []
    start = asyncio.start_unix_server

    async def started(callback: Any, path: Path, *, backlog: int) -> asyncio.Server:  # noqa: ANN401 - as asyncio has it
        server = await start(callback, path, backlog=backlog)
        made.append(stat.S_IMODE(os.lstat(path).st_mode))
        return server

    monkeypatch.setattr(asyncio, "start_unix_server", started)
    before = os.umask(0)
    try:
        async with live_inside(tmp_path, api=ApiSettings(mode="666")):
            pass
    finally:
        os.umask(before)
    assert made == [0o600]


@pytest.mark.parametrize("mode", ["660", "666"])
@in_a_loop
async def test_a_socket_is_opened_for_others_only_if_that_is_said(mode: str, tmp_path: Path) -> None:
    group = grp.getgrgid(os.getgid()).gr_name
    async with live_inside(tmp_path, api=ApiSettings(mode=mode, group=group)) as inside:
        about = inside.daemon.site.socket.stat()
        assert (stat.S_IMODE(about.st_mode), about.st_gid) == (int(mode, 8), os.getgid())


def test_mode_666_alone_lets_others_in_and_shows_them_nothing_else() -> None:
    @in_a_loop
    async def run(folder: Path, hinders: str) -> None:
        async with live_inside(folder, api=ApiSettings(mode="666")) as inside:
            state, path = folder / "live", inside.daemon.site.socket
            assert stat.S_IMODE(state.stat().st_mode) == 0o701
            assert [each.name for each in state.iterdir() if each.stat().st_mode & 0o077] == ["api.sock"]
            assert [hinders in text for text in inside.api.socket_warnings] == ([True] if hinders else [])
            if os.getuid() == 0 and not hinders:  # only root can try it as another user
                words = ("/usr/bin/env", "python3", "-c", f"import socket; socket.socket(1).connect({str(path)!r})")
                other = await asyncio.create_subprocess_exec(*words, user=65534, group=65534)
                assert await other.wait() == 0

    with TemporaryDirectory(prefix="bft-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        run(folder, "")
        folder.chmod(0o700)
        run(folder, f"{folder} is closed to them (set api.socket to a path that they can reach, or chmod o+x {folder})")


@in_a_loop
async def test_a_group_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="no-such-group"):
        async with live_inside(tmp_path, api=ApiSettings(mode="660", group="no-such-group")):
            pass


@in_a_loop
async def test_a_socket_left_behind_is_replaced_and_anything_else_is_not(tmp_path: Path) -> None:
    left = tmp_path / "left.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(left))
    async with live_inside(tmp_path, api=ApiSettings(socket=str(left))) as inside:
        assert (await ask(inside.api.addresses[0], "GET /v1/status")).status == 200
    file = tmp_path / "file"
    file.write_text("precious")
    with pytest.raises(BadConfig, match="is not a socket"):
        async with live_inside(tmp_path, api=ApiSettings(socket=str(file))):
            pass
    assert file.read_text() == "precious"


@in_a_loop
async def test_where_another_process_listens_we_cannot(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = ApiSettings(tcp=f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(NotAvailable, match="cannot listen"):
            async with live_inside(tmp_path, api=settings):
                pass


@pytest.mark.skipif(not socket.has_ipv6, reason="this machine has no IPv6")
@in_a_loop
async def test_ipv6_is_an_address_too(tmp_path: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    async with live_inside(tmp_path, api=ApiSettings(tcp="[::1]:0")) as inside:
        tcp = inside.api.addresses[1]
        assert tcp.startswith("http://[::1]:")
        answered = await ask(tcp, "GET /v1/status", host=tcp.removeprefix("http://"), authorization=token_of(inside))
        assert answered.status == 200


@in_a_loop
async def test_a_socket_that_another_run_made_at_the_same_path_stays_when_we_end(tmp_path: Path) -> None:
    path = tmp_path / "usual.sock"
    with socket.socket(socket.AF_UNIX) as other:
        async with live_inside(tmp_path, api=ApiSettings(socket=str(path))):
            path.unlink()
            other.bind(str(path))
        assert path.is_socket()
