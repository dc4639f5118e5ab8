"""API: JSON over HTTP, on a Unix socket and, if asked for, over TCP. Which address does what: ``routes.py``."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import Awaitable, Mapping
from pathlib import Path
from typing import Any, Final

from bftrain.errors import BadConfig, BadInput, BftrainError, NotAvailable, UnknownName
from bftrain.live.api import http_connection
from bftrain.live.api.http_connection import JSON, Request, Response
from bftrain.live.api.route import Route, RouteRequest
from bftrain.live.api.routes import BYTES, METRICS, ROUTES
from bftrain.live.api.service import LiveService
from bftrain.live.model import callers
from bftrain.live.model.callers import ApiToken, Caller
from bftrain.live.model.schemas import NotAllowed, NotFound, NotNow, Problem, Refused
from bftrain.live.model.site_config import SiteSettings
from bftrain.values import wire

_CONNECTIONS: Final = 512  # at a time
_OF_ONE: Final = 128  # of one user, so that none keeps the others out; so many may also come over TCP
_CLOSING_S: Final = 2.0
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_STATUS: Final[Mapping[type[BftrainError], int]] = {
    NotFound: 404,
    NotAllowed: 403,
    NotNow: 409,
    NotAvailable: 503,
    BadInput: 400,
}


class ApiServer:
    """Listens, finds out who asks, and has the office answer."""

    def __init__(self, office: LiveService, site: SiteSettings, routes: tuple[Route, ...] = ROUTES) -> None:
        self._office = office
        self._site = site
        self._routes = routes
        self._servers: list[asyncio.Server] = []
        self._talks: dict[asyncio.Task[None], str] = {}  # and whose they are
        self._token: ApiToken | None = None
        self._made = False  # the socket is ours

    # -- listening

    async def open(self) -> None:
        """Listen."""
        try:
            await self._open_socket()
            if self._site.api.tcp:
                await self._open_tcp()
        except BftrainError:
            await self.close()
            raise
        self._office.addresses = self.addresses

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens."""
        found = []
        for server in self._servers:
            for listening in server.sockets:
                name = listening.getsockname()
                found.append(f"unix:{name}" if isinstance(name, str) else f"http://{_host(name[0])}:{name[1]}")
        return tuple(found)

    async def close(self) -> None:
        """Listen no more, and end all talks."""
        for server in self._servers:
            server.close()
        self._office.watch.close()
        while self._talks:  # one may have begun just now
            for talk in tuple(self._talks):
                talk.cancel()
            await asyncio.wait(tuple(self._talks), timeout=_CLOSING_S)
        if self._made:
            self._site.socket.unlink(missing_ok=True)

    async def _open_socket(self) -> None:
        path = self._site.socket
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_socket():
            path.unlink()  # of a former run: the lock says that no other run uses it
        elif path.exists():
            raise BadConfig("is there, and is no socket", where=str(path), fix="set api.socket to another path")
        before = os.umask(0o177)  # no connection is possible before its mode is right
        try:
            server = await asyncio.start_unix_server(self._met_at_socket, path)
        except OSError as error:
            raise NotAvailable(f"cannot listen: {error.strerror}", where=str(path)) from error
        finally:
            os.umask(before)
        self._servers.append(server)
        self._made = True
        if self._site.api.group:
            _give_to_group(path, self._site.api.group)
        path.chmod(int(self._site.api.mode, 8))

    async def _open_tcp(self) -> None:
        host, _, port = self._site.api.tcp.rpartition(":")
        self._token = ApiToken(self._site.token)
        try:
            server = await asyncio.start_server(self._met_over_tcp, host.strip("[]"), int(port))
        except OSError as error:
            raise NotAvailable(f"cannot listen on {self._site.api.tcp}: {error}", where="[api] tcp") from error
        self._servers.append(server)

    async def _met_at_socket(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer: socket.socket = writer.get_extra_info("socket")
        try:
            caller = callers.at_socket(peer, self._site.api.operators)
        except OSError:  # gone already
            writer.close()
            return
        await self._talk(
            reader, writer, f"user {caller.uid}", lambda request: self._counted(self._answer(request, caller))
        )

    async def _met_over_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._talk(reader, writer, "TCP", lambda request: self._counted(self._answer_over_tcp(request)))

    async def _talk(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, whose: str, handle: http_connection.Handle
    ) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        full = len(self._talks) >= _CONNECTIONS or list(self._talks.values()).count(whose) >= _OF_ONE
        self._talks[task] = whose
        try:
            if full:
                await http_connection.turn_away(
                    reader, writer, _refusal(503, "there are too many connections at a time")
                )
            else:
                await http_connection.serve(reader, writer, handle, _refusal)
        except asyncio.CancelledError:
            pass  # we end
        except Exception as error:  # noqa: BLE001 - nothing that a client sends may end the others
            self._office.fault(error)
        finally:
            del self._talks[task]

    # -- answering

    async def _counted(self, answer: Awaitable[Response]) -> Response:
        response = await answer
        self._office.metrics.answered(response.status)
        return response

    async def _answer_over_tcp(self, request: Request) -> Response:
        """Answer who has the token; a page of another site in a browser of ours has not."""
        if not self._meant_for_us(request):
            return _refusal(421, "this server is not called so")
        found = self._find(request)
        public = not isinstance(found, Response) and self._public(found[0])
        if not public and (self._token is None or not self._token.admits(request.headers.get("authorization", ""))):
            return _refusal(401, "a token is needed: Authorization: Bearer TOKEN", {"www-authenticate": "Bearer"})
        return await self._answer(request, callers.ourselves())

    def _public(self, route: Route) -> bool:
        return route.public or (route.path == METRICS and self._site.api.open_metrics)

    def _meant_for_us(self, request: Request) -> bool:
        """Refuse foreign names that point to us, which makes a browser believe that we are theirs."""
        given = request.headers.get("host", "").lower()
        name = given.rpartition(":")[0] if given.rpartition(":")[2].isdecimal() else given
        return self._site.api.beyond_loopback or name in {*_LOCAL_NAMES, self._site.api.tcp.rpartition(":")[0].lower()}

    async def _answer(self, request: Request, caller: Caller) -> Response:
        found = self._find(request)
        if isinstance(found, Response):
            return found
        route, names = found
        try:
            return await self._carry_out(route, request, caller, names)
        except BftrainError as error:
            status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), None)
            if status is None:
                self._office.fault(error)
            return _refused(status or 500, Problem(what=error.what, where=error.where, fix=error.fix))
        except Exception as error:  # noqa: BLE001 - our own mistake; it must not be the end of everything
            self._office.fault(error)
            return _refusal(500, f"a fault of ours: {type(error).__name__}: {error}")

    def _find(self, request: Request) -> tuple[Route, dict[str, str]] | Response:
        """Give the route that is asked for, and the names in its address; or why there is none."""
        allowed = []
        for route in self._routes:
            names = route.match(request.path)
            if names is None:
                continue
            if route.method == ("GET" if request.method == "HEAD" else request.method):
                return route, names
            allowed.append(route.method)
        if allowed:
            may = ", ".join(sorted({*allowed, *(["HEAD"] if "GET" in allowed else [])}))
            return _refusal(405, f"only {may} here", {"allow": may})
        return _refusal(404, "there is nothing at this address")

    async def _carry_out(self, route: Route, request: Request, caller: Caller, names: dict[str, str]) -> Response:
        if route.operators:
            callers.insist_on_operator(caller)
        for parameter in request.query:
            if parameter not in route.query:
                raise UnknownName.among("parameter", parameter, route.query, where=route.path)
        body: Any = None
        if route.takes is not None:
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
                return _refusal(415, f"the body must be {JSON}")
            body = wire.decode(request.body, route.takes, where="body")
        answer = route.answer(self._office, RouteRequest(caller=caller, names=names, query=request.query, body=body))
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, Response):
            return answer
        if isinstance(answer, bytes):
            return Response(body=answer, kind=BYTES if route.kind == JSON else route.kind)
        return Response(body=wire.encode(answer))


def _host(name: str) -> str:
    return f"[{name}]" if ":" in name else name


def _refusal(status: int, words: str, headers: Mapping[str, str] | None = None) -> Response:
    return _refused(status, Problem(what=words), headers)


def _refused(status: int, problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return Response(status=status, body=wire.encode(Refused(error=problem)), headers=headers or {})


def _give_to_group(path: Path, group: str) -> None:
    try:
        shutil.chown(path, group=group)
    except (LookupError, OSError) as error:
        raise BadConfig(f"cannot be given to group '{group}': {error}", where=str(path)) from error
