"""The API as it is reached: who gets in where, what every address answers, and what never brings it down."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bftrain.errors import Fault
from bftrain.live.api.openapi import Route
from bftrain.live.api.routes import ROUTES
from bftrain.live.api.server import ApiServer
from bftrain.live.model import callers
from tests.helpers.asking import ApiReply, ask, connect
from tests.helpers.live_callers import ANN, BOB, everywhere, token_of
from tests.helpers.live_inside import Api as ApiSettings
from tests.helpers.live_inside import Inside, SiteSettings, decided, in_a_loop, live_inside, site_of, submit, until
from tests.helpers.live_limits import set_limits

TCP = ApiSettings(tcp="127.0.0.1:0")
SUBMISSION = {"run": {"argv": ["train.py"]}, "max_nodes": 2, "name": "a"}


@in_a_loop
async def test_every_address_answers_as_it_says_on_the_socket_and_over_tcp(tmp_path: Path) -> None:
    async with live_inside(tmp_path, api=TCP) as inside:
        await submit(inside.service, "a")
        inside.world.lend("n1")
        await decided(inside.daemon)
        for address in everywhere(inside):
            for route in ROUTES:
                if route.kind == "text/event-stream":
                    continue  # it goes on
                path = route.path.replace("{task}", "a").replace("{file}", "n1.log")
                bodies = {
                    "drain": {"nodes": ["n7"]},
                    "undrain": {"nodes": ["n7"]},
                    "pause": {"for_s": 0.1},
                    "edit": {"max_nodes": 2},
                }
                body = bodies.get(path.rpartition("/")[2], SUBMISSION) if route.takes else None
                answered = await ask(address, f"{route.method} {path}", body, authorization=token_of(inside))
                # A second submission has the name of the first; there is no log; what is over stays so
                # and this is no site with members
                odd = {"/v1/tasks": {200, 409}, "/v1/tasks/{task}/logs/{file}": {404}}
                expected = (odd | {"/v1/site": {409}, "/v1/members": {400, 409}}).get(route.path, {200})
                after_cancel = {409} if route.path.endswith(("/cancel", "/pause", "/resume", "/edit")) else set()
                assert answered.status in expected | after_cancel, f"{route.method} {path}: {answered}"
                kind = route.kind if answered.status == 200 else "application/json"
                assert answered.headers["content-type"].partition(";")[0] == kind.partition(";")[0]


@pytest.mark.parametrize(
    ("request_", "body", "more", "status", "words"),
    [
        ("GET /", None, {}, 200, ""),
        ("GET /v2/status", None, {}, 404, "nothing at this address"),
        ("GET /v1/status/", None, {}, 404, "nothing at this address"),
        ("GET /v1/../v1/status", None, {}, 404, "nothing at this address"),
        ("DELETE /v1/tasks", None, {}, 405, "only GET, HEAD, POST here"),
        ("GET /v1/drain", None, {}, 405, "only POST here"),
        ("GET /v1/tasks?al=true", None, {}, 400, "no parameter is called 'al'"),
        ("GET /v1/tasks?all=yes", None, {}, 400, "must be true or false, not 'yes'"),
        ("GET /v1/tasks/a/logs/x?offset=1.5", None, {}, 400, "must be a whole number"),
        ("GET /v1/tasks/a/logs/x?offset=" + "9" * 5000, None, {}, 400, "must be a whole number"),
        ("GET /v1/tasks/a/logs/x?offset=" + "0" * 30 + "9" * 400, None, {}, 400, "must be a whole number"),
        ("GET /v1/tasks/a/logs/x?offset=-", None, {}, 400, "must be a whole number"),
        ("GET /v1/tasks/%23" + "9" * 5000, None, {}, 404, "no task is called"),
        ("GET /v1/tasks/%00", None, {}, 404, "no task is called"),
        ("GET /v1/tasks/%ff", None, {}, 400, "cannot be read"),
        ("POST /v1/tasks", {"run": {"argv": ["x"]}}, {}, 400, "max_nodes"),
        ("POST /v1/tasks", {**SUBMISSION, "nmae": "x"}, {}, 400, "nmae"),
        ("POST /v1/tasks", {**SUBMISSION, "max_nodes": 10**30}, {}, 400, "too large"),
        ("POST /v1/tasks", {**SUBMISSION, "name": "../x"}, {}, 400, "letters, digits"),
        ("POST /v1/tasks", SUBMISSION, {"content_type": "text/plain"}, 415, "application/json"),
        ("POST /v1/tasks", None, {}, 415, "application/json"),
        ("POST /v1/drain", {"nodes": []}, {}, 400, "1 to 100000 names"),
        ("POST /v1/drain", {"nodes": ["a", 1]}, {}, 400, "nodes"),
    ],
)
@in_a_loop
async def test_what_is_wrong_is_said(
    request_: str, body: object, more: dict[str, str], status: int, words: str, tmp_path: Path
) -> None:
    async with live_inside(tmp_path) as inside:
        await submit(inside.service, "a")
        answered = await ask(inside.api.addresses[0], request_, body, **more)
        assert answered.status == status, answered
        if words:
            assert words in answered.what, answered.json
            assert set(answered.json["error"]) == {"what", "where", "fix"}
        assert [task.name for task in inside.service.tasks(callers.ourselves(), over=True)] == ["a"]


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"null", b"\xff", b'{"nodes": "n1"}', b"[" * 100_000])
@in_a_loop
async def test_a_body_that_is_none_is_refused(raw: bytes, tmp_path: Path) -> None:
    async with live_inside(tmp_path) as inside:
        answered = await ask(inside.api.addresses[0], "POST /v1/drain", raw=raw, content_type="application/json")
        assert answered.status == 400, answered


@in_a_loop
async def test_the_socket_knows_who_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    who = [ANN]
    monkeypatch.setattr(callers, "caller_at_socket", lambda *_: who[0])
    async with live_inside(tmp_path) as inside:
        address = inside.api.addresses[0]
        assert (await ask(address, "POST /v1/tasks", SUBMISSION)).json["user"] == "ann"
        who[0] = BOB
        assert (await ask(address, "GET /v1/tasks?all=true")).json == []
        for request in (
            "GET /v1/tasks/a",
            "GET /v1/tasks/a/logs",
            "POST /v1/tasks/a/cancel",
            "POST /v1/tasks/%231/pause",
        ):
            assert (await ask(address, request)).status == 404
        for request in ("POST /v1/drain", "POST /v1/undrain"):
            refused = await ask(address, request, {"nodes": ["n1"]})
            assert (refused.status, refused.what) == (403, "'bob' is no operator")
            assert (await ask(address, request, raw=b"nonsense")).status == 403
        who[0] = ANN
        assert [task["name"] for task in (await ask(address, "GET /v1/tasks")).json] == ["a"]
        assert (await ask(address, "POST /v1/tasks/a/cancel")).json["state"] == "cancelled"


@in_a_loop
async def test_over_tcp_only_the_token_opens(tmp_path: Path) -> None:
    async with live_inside(tmp_path, api=TCP) as inside:
        tcp = inside.api.addresses[1]
        token = token_of(inside)
        for wrong in ("", "Bearer", "Bearer x", f"{token}x", token.replace("Bearer", "Basic"), token.lower()):
            for request in ("GET /v1/status", "GET /v1/nothing", "POST /v1/tasks"):
                refused = await ask(tcp, request, authorization=wrong)
                assert (refused.status, refused.headers["www-authenticate"]) == (401, "Bearer")
        assert (await ask(tcp, "GET /v1/status", authorization=token)).status == 200
        assert (await ask(tcp, "POST /v1/tasks", SUBMISSION, authorization=token)).json[
            "user"
        ] == callers.ourselves().user


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8765", 200),
        ("127.0.0.1:1", 200),
        ("[::1]", 200),
        ("evil.example", 421),
        ("evil.example:8765", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1.evil.example:80", 421),
    ],
)
@in_a_loop
async def test_a_name_that_a_user_made_point_to_us_is_refused(host: str, status: int, tmp_path: Path) -> None:
    async with live_inside(tmp_path, api=TCP) as inside:
        for request in ("GET /v1/status", "GET /"):
            answered = await ask(inside.api.addresses[1], request, host=host, authorization=token_of(inside))
            assert answered.status == status


@in_a_loop
async def test_beyond_loopback_any_name_may_lead_to_us(tmp_path: Path) -> None:
    settings = ApiSettings(tcp="0.0.0.0:0", beyond_loopback=True)
    async with live_inside(tmp_path, api=settings) as inside:
        port = inside.api.addresses[1].rpartition(":")[2]
        answered = await ask(
            f"http://127.0.0.1:{port}", "GET /v1/status", host="login1.site", authorization=token_of(inside)
        )
        assert answered.status == 200


def broken(error: Exception) -> Route:
    def answer(*_: object) -> Any:  # noqa: ANN401 - it never gives anything
        raise error

    return Route(method="GET", path="/broken", about="", answer=answer, gives=bytes)


async def _asked_of(route: Route, site: SiteSettings, inside: Inside, request: str) -> ApiReply:
    api = ApiServer(inside.service, site, (route,))
    await api.open()
    try:
        return await ask(api.addresses[0], request)
    finally:
        await api.close()


@pytest.mark.parametrize("error", [ZeroDivisionError("oh"), Fault("oh")])
@in_a_loop
async def test_a_fault_of_ours_is_said_and_we_go_on(error: Exception, tmp_path: Path) -> None:
    said: list[str] = []
    async with live_inside(tmp_path, said=said) as inside:
        site = site_of(tmp_path, inside.world, api=ApiSettings(socket=str(tmp_path / "other.sock")))
        answered = await _asked_of(broken(error), site, inside, "GET /broken")
        assert answered.status == 500
        assert "oh" in answered.what
        assert any("oh" in words for words in said)
        assert (await ask(inside.daemon.site.socket, "GET /v1/status")).status == 200


@in_a_loop
async def test_no_user_keeps_the_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    who = [ANN]
    monkeypatch.setattr(callers, "caller_at_socket", lambda *_: who[0])
    set_limits(monkeypatch, api_connections_of_user=3)
    set_limits(monkeypatch, api_connections=5)
    async with live_inside(tmp_path) as inside:
        path = inside.daemon.site.socket
        taken = [await _held(path) for _ in range(3)]
        refused = await ask(path, "GET /v1/status")
        assert (refused.status, refused.what) == (503, "there are too many connections at a time")
        who[0] = BOB
        taken += [await _held(path) for _ in range(2)]
        assert (await ask(path, "GET /v1/status")).status == 503
        for writer in taken:
            writer.close()
        answered = [await ask(path, "GET /v1/status")]
        await until(lambda: not inside.api._talks)  # noqa: SLF001 - to see that none is forgotten
        answered.append(await ask(path, "GET /v1/status"))
        assert answered[-1].status == 200


async def _held(path: Path) -> asyncio.StreamWriter:
    """Return a connection that was answered once, so that it counts."""
    reader, writer = await connect(path)
    writer.write(b"GET /v1/status HTTP/1.1\r\nHost: a\r\n\r\n")
    assert b" 200 " in await reader.readline()
    return writer


@in_a_loop
async def test_silent_connections_over_tcp_keep_out_neither_the_socket_nor_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_limits(monkeypatch, api_connections_of_user=8)
    set_limits(monkeypatch, api_connections=10)
    async with live_inside(tmp_path, api=TCP) as inside:
        socket, tcp = everywhere(inside)
        silent = [await connect(tcp)]
        for count in range(200):
            silent.append(await connect(tcp))
            if count % 20:
                continue
            assert (await ask(socket, "GET /v1/status")).status == 200
            assert (await ask(tcp, "GET /v1/status", authorization=token_of(inside))).status == 200
            assert (await ask(tcp, "GET /v1/status")).status == 401
        assert await silent[0][0].read() == b"", "those that said nothing gave their places to others"
        held = [await _held(inside.daemon.site.socket) for _ in range(8)]
        assert (await ask(socket, "GET /v1/status")).status == 503, "an operator has as many places as any user"
        assert (await ask(tcp, "GET /v1/status", authorization=token_of(inside))).status == 200
        for writer in (*held, *(one for _, one in silent)):
            writer.close()


@in_a_loop
async def test_its_end_is_the_end_of_all_talks(tmp_path: Path) -> None:
    async with live_inside(tmp_path, api=TCP) as inside:
        talks = [await connect(address) for address in everywhere(inside) for _ in range(3)]
        streams = [await connect(inside.daemon.site.socket) for _ in range(2)]
        for _, writer in streams:
            writer.write(b"GET /v1/watch HTTP/1.1\r\nHost: a\r\n\r\n")
        for reader, _ in streams:
            assert b" 200 " in await reader.readline()
        async with asyncio.timeout(5):
            await inside.api.close()
        for reader, writer in (*talks, *streams):
            with suppress(ConnectionError):
                async with asyncio.timeout(5):
                    await reader.read()
            writer.close()
        with pytest.raises(OSError, match=r"No such file|refused"):
            await connect(inside.daemon.site.socket)
