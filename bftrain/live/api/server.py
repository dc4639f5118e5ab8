"""API server: JSON over HTTP/1.1 on a Unix socket and, optionally, over TCP. ``routes.py`` lists the routes.

h11 parses the protocol; this module adds timeouts and limits. Each connection serves one request; bodies are small;
slow or silent clients are disconnected.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import shutil
import socket
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, unquote

import h11

from bftrain.errors import BadConfig, BadInput, BftrainError, NotAvailable
from bftrain.live import timeouts
from bftrain.live.api.routes import JSON, METRICS, ROUTES, Request, Response, Route
from bftrain.live.api.service import LiveService
from bftrain.live.model.schemas import STATUS, Caller, Problem, Refused, caller_at_socket, ourselves, require_operator
from bftrain.live.model.site_config import SiteSettings
from bftrain.values import wire
from bftrain_elastic.errors import ElasticError
from bftrain_elastic.wire.authenticated_stream import make_secret, read_private

_SHORTEST: Final = 32  # minimum length of a token: its file may be written by people
_MOST_REJECTIONS: Final = 64  # connections rejected with a message at the same time; the rest are closed
_UNAUTHENTICATED: Final = "TCP without the token"
_AUTHENTICATED: Final = "TCP with the token"
_BACKLOG: Final = 1024  # connections not accepted yet; the server accepts them faster than a user can open them
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
LARGEST_BODY: Final = 1 << 20
_TOO_LARGE: Final = f"the body is larger than {LARGEST_BODY} bytes"
_LARGEST_HEAD: Final = 32 * 1024
_MOST_PIECES: Final = 2048  # limit per body: reading byte by byte would block the server
_CHUNK: Final = 65536
_LINGER: Final = 4 << 20  # bytes accepted after the response
Handle = Callable[[Request], Awaitable[Response]]
_STATUS: Final[Mapping[type[BftrainError], int]] = {**STATUS, NotAvailable: 503, BadInput: 400}


class ApiServer:
    """Accepts connections, identifies callers, and passes requests to the service."""

    def __init__(self, service: LiveService, site: SiteSettings) -> None:
        self._service = service
        self._site = site
        self._servers: list[asyncio.Server] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._slots: dict[asyncio.Task[None], str] = {}  # owners of the connections' slots, the oldest first
        self._token: ApiToken | None = None
        self.socket_warnings: tuple[str, ...] = ()  # why other users cannot reach the socket
        self._socket_identity: tuple[int, int] | None = None  # device and inode of our socket file

    async def open(self) -> None:
        """Start listening."""
        try:
            await self._open_socket()
            if tcp := self._site.api.tcp:
                host, _, port = tcp.rpartition(":")
                self._token = ApiToken(self._site.token)
                try:
                    self._servers.append(await asyncio.start_server(self._on_tcp_client, host.strip("[]"), int(port)))
                except OSError as error:
                    raise NotAvailable(f"cannot listen on {tcp}: {error}", where="[api] tcp") from error
        except BftrainError:
            await self.close()
            raise
        self._service.addresses = self.addresses

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the server."""
        found = []
        for server in self._servers:
            for listening in server.sockets:
                name = listening.getsockname()
                if isinstance(name, str):
                    found.append(f"unix:{name}")
                else:
                    found.append(f"http://[{name[0]}]:{name[1]}" if ":" in name[0] else f"http://{name[0]}:{name[1]}")
        return tuple(found)

    async def close(self) -> None:
        """Stop listening, and close all connections."""
        for server in self._servers:
            server.close()
        self._service.watch.close()
        while self._connections:  # a connection may have started just now
            for connection in tuple(self._connections):
                connection.cancel()
            await asyncio.wait(tuple(self._connections), timeout=timeouts.TIMEOUTS.close_s)
        if (
            self._socket_identity is not None and _identity(self._site.socket) == self._socket_identity
        ):  # not the socket of a later run
            self._site.socket.unlink(missing_ok=True)

    async def _open_socket(self) -> None:
        path = self._site.socket
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.is_socket():
            path.unlink()  # stale: the lock excludes other runs
        elif path.exists():
            raise BadConfig("exists and is not a socket", where=str(path), fix="set api.socket to another path")
        before = os.umask(0o177)  # connections must wait for the correct mode
        try:
            server = await asyncio.start_unix_server(self._on_unix_client, path, backlog=_BACKLOG)
        except OSError as error:
            raise NotAvailable(f"cannot listen: {error.strerror}", where=str(path)) from error
        finally:
            os.umask(before)
        self._servers.append(server)
        self._socket_identity = _identity(path)
        if group := self._site.api.group:
            try:
                shutil.chown(path, group=group)
            except (LookupError, OSError) as error:
                raise BadConfig(f"cannot be given to group '{group}': {error}", where=str(path)) from error
        path.chmod(int(self._site.api.mode, 8))
        self.socket_warnings = tuple(self._make_reachable(path)) if self._site.api.mode != "600" else ()

    def _make_reachable(self, path: Path) -> Iterator[str]:
        """Make the socket reachable for other users through the state folder; yield what prevents it."""
        all_users = self._site.api.mode == "666"
        through = stat.S_IXOTH if all_users else stat.S_IXGRP
        state = Path(self._site.state)
        if path.parent == state:
            for each in state.iterdir():
                if each != path and not each.is_symlink():
                    each.chmod(stat.S_IMODE(each.stat().st_mode) & 0o700)
            if (group := self._site.api.group) and not all_users:
                shutil.chown(state, group=group)
            state.chmod(stat.S_IMODE(state.stat().st_mode) | through)
        for folder in path.parents:
            mode = folder.stat().st_mode
            if not mode & stat.S_IXOTH and not (mode & through and folder.stat().st_gid == path.stat().st_gid):
                fix = f"set api.socket to a path that they can reach, or chmod o+x {folder}"
                yield f"{path}: other users may connect, but {folder} is closed to them ({fix})"

    async def _on_tcp_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._serve(reader, writer, _UNAUTHENTICATED, self._answer_over_tcp)

    async def _on_unix_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer: socket.socket = writer.get_extra_info("socket")
        try:
            caller = caller_at_socket(peer, self._site.api.operators)
        except OSError:  # gone already
            writer.close()
            return
        owner = f"operator {caller.uid}" if caller.operator else f"user {caller.uid}"
        await self._serve(reader, writer, owner, lambda request: self._answer(request, caller))

    def _reserve_slot(self, task: asyncio.Task[None], owner: str) -> bool:
        """Reserve one of the limited slots for a connection; return whether there is one.

        Operators and callers with the token have slots of their own. If TCP has no free slot, a new connection replaces
        the oldest tokenless one: otherwise silent connections would lock out callers that have the token.
        """
        limits, own = timeouts.LIMITS, [one for one, of in self._slots.items() if of == owner]
        if len(own) >= limits.connections_of_user:
            if owner != _UNAUTHENTICATED:
                return False
            del self._slots[own[0]]
            own[0].cancel()
        others = sum(not _has_own_slots(of) for of in self._slots.values())
        if others >= limits.connections and not _has_own_slots(owner):
            return False
        self._slots[task] = owner
        return True

    def _authenticated(self) -> None:
        """Move the current connection to the slots for callers with the token, if one is left."""
        task = asyncio.current_task()
        before = None if task is None else self._slots.pop(task, None)
        if task is not None and before is not None and not self._reserve_slot(task, _AUTHENTICATED):
            self._slots[task] = before

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, owner: str, handle: Handle
    ) -> None:
        task = asyncio.current_task()
        if task is None:
            return

        async def counted(request: Request) -> Response:
            response = await handle(request)
            self._service.metrics.answered(response.status)
            return response

        placed = self._reserve_slot(task, owner)
        if not placed and len(self._connections) - len(self._slots) >= _MOST_REJECTIONS:
            writer.transport.abort()
            return
        self._connections.add(task)
        try:
            await serve(reader, writer, counted if placed else None)
        except asyncio.CancelledError:
            pass  # shutdown
        except Exception as error:  # noqa: BLE001 - a client's data must not disturb other connections
            self._service.fault(error)
        finally:
            self._connections.discard(task)
            self._slots.pop(task, None)

    async def _answer_over_tcp(self, request: Request) -> Response:
        """Answer a request over TCP, which needs the token unless its route is public or opened by ``open_metrics``.

        Pages of other sites in the user's browser do not have the token.
        """
        api = self._site.api
        # A foreign host name that resolves to this server would make a browser treat it as that site (DNS rebinding)
        given = request.headers.get("host", "").lower()
        name = given.rpartition(":")[0] if given.rpartition(":")[2].isdecimal() else given
        if not api.beyond_loopback and name not in {*_LOCAL_NAMES, api.tcp.rpartition(":")[0].lower()}:
            return _refusal(421, f"unknown host name {name[:60]!r}: use localhost, or set api.tcp")
        found = self._find(request)
        public = not isinstance(found, Response) and (
            found[0].public or (found[0].path == METRICS and api.open_metrics)
        )
        known = self._token is not None and self._token.admits(request.headers.get("authorization", ""))
        if known:
            self._authenticated()
        elif not public:
            return _refusal(401, "a token is needed: Authorization: Bearer TOKEN", {"www-authenticate": "Bearer"})
        return await self._answer(request, ourselves())

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
                self._service.fault(error)
            return _refusal(status or 500, error.what, where=error.where, fix=error.fix)
        except Exception as error:  # noqa: BLE001 - an internal error must not stop the server
            self._service.fault(error)
            return _refusal(500, f"internal error: {type(error).__name__}: {error}")

    def _find(self, request: Request) -> tuple[Route, dict[str, str]] | Response:
        """Return the route of a request and the names in its path, or an error response with the reason."""
        allowed = []
        for route in ROUTES:
            names = route.match(request.path)
            if names is None:
                continue
            if route.method == ("GET" if request.method == "HEAD" else request.method):
                return route, names
            allowed.append(route.method)
        if allowed:
            may = ", ".join(sorted({*allowed, *(["HEAD"] if "GET" in allowed else [])}))
            return _refusal(405, f"only {may} here", {"allow": may})
        return _refusal(404, f"no such endpoint: {request.method} /{'/'.join(request.path)[:60]}")

    async def _carry_out(self, route: Route, request: Request, caller: Caller, names: dict[str, str]) -> Response:
        if route.operators:
            require_operator(caller)
        if route.takes and request.headers.get("content-type", "").partition(";")[0].strip().lower() != JSON:
            return _refusal(415, f"the body must be {JSON}")
        answer = route.call(self._service, caller, names, request)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, Response):
            return answer
        if isinstance(answer, bytes):
            return Response(body=answer, kind=route.kind)
        return Response(body=wire.encode(answer))


class ApiToken:
    """The token for HTTP over TCP: it grants the rights of the daemon's user."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            make_secret(path)
        try:
            self._token = read_private(path)
        except ElasticError as error:
            raise BadConfig(error.what, where=error.where, fix=error.fix) from error
        if len(self._token) < _SHORTEST or not self._token.isascii() or not self._token.isprintable():
            fix = f"remove it, and a new one is made: rm {path}"
            raise BadConfig(f"is not a token of at least {_SHORTEST} characters", where=str(path), fix=fix)

    def admits(self, authorization: str) -> bool:
        """Return whether a header ``Authorization: Bearer TOKEN`` has the token, in constant time."""
        kind, _, given = authorization.partition(" ")
        same = hmac.compare_digest(given.strip().encode(errors="replace"), self._token.encode())
        return kind.lower() == "bearer" and same


def _has_own_slots(owner: str) -> bool:
    """Return whether connections of an owner have slots of their own."""
    return owner.startswith("operator") or owner == _AUTHENTICATED


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a path; ``None`` if it does not exist."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _refusal(status: int, what: str, headers: Mapping[str, str] | None = None, **more: str | None) -> Response:
    return Response(status=status, body=wire.encode(Refused(error=Problem(what=what, **more))), headers=headers or {})


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handle: Handle | None) -> None:
    """Answer the request of a connection; without ``handle`` reject the connection."""
    try:
        await _ClientConnection(reader, writer).serve(handle)
    except (ConnectionError, TimeoutError, h11.LocalProtocolError):
        pass  # the client left, or was disconnected
    finally:
        writer.close()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(timeouts.TIMEOUTS.linger_s):
                await writer.wait_closed()


class _ClientConnection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._state = h11.Connection(h11.SERVER, max_incomplete_event_size=_LARGEST_HEAD)
        self._head_only = False

    async def serve(self, handle: Handle | None) -> None:
        try:
            request = await self._request() if handle else None
        except h11.RemoteProtocolError as error:
            await self._answer(_refusal(error.error_status_hint, str(error)))
        else:
            if handle is None:
                await self._answer(_refusal(503, "all connections are in use"))
            elif request is not None:
                await self._answer(await handle(request))
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
        """Read a request; return ``None`` if the client closed the connection."""
        try:
            async with asyncio.timeout(timeouts.TIMEOUTS.request_s):
                return await self._read_request()
        except TimeoutError:
            raise h11.RemoteProtocolError(
                f"the request did not arrive within {timeouts.TIMEOUTS.request_s:g} s", 408
            ) from None

    async def _read_request(self) -> Request | None:
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        self._head_only = head.method == b"HEAD"
        fields = dict(head.headers)
        length = fields.get(b"content-length")
        if length is not None and b"transfer-encoding" in fields:  # a proxy may interpret the other header
            raise h11.RemoteProtocolError("it has both Transfer-Encoding and Content-Length", 400)
        if int(length or 0) > LARGEST_BODY:
            raise h11.RemoteProtocolError(_TOO_LARGE, 413)
        body, pieces = bytearray(), 0
        if self._state.they_are_waiting_for_100_continue:
            await self._send(h11.InformationalResponse(status_code=100, headers=[]))
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            pieces += 1
            if len(body) > LARGEST_BODY or pieces > _MOST_PIECES:
                raise h11.RemoteProtocolError(f"{_TOO_LARGE}, or in too many pieces", 413)
        if not isinstance(event, h11.EndOfMessage):
            return None
        return _parsed(head, bytes(body))

    async def _event(self) -> object:
        while (event := self._state.next_event()) is h11.NEED_DATA:
            self._state.receive_data(await self._reader.read(_CHUNK))
        return event

    async def _answer(self, response: Response) -> None:
        if self._state.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            return
        headers = {
            "content-type": response.kind,
            "cache-control": "no-store",
            "connection": "close",
            "x-content-type-options": "nosniff",
            **response.headers,
        }
        if response.stream is None:
            headers["content-length"] = str(len(response.body))
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
        raise h11.RemoteProtocolError(f"the address cannot be read: {error}", 400) from error
    if head.method == b"CONNECT":
        raise h11.RemoteProtocolError("this server is no proxy", 405)
    if not target.startswith("/"):
        raise h11.RemoteProtocolError("the address must start with '/'", 400)
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return Request(head.method.decode("ascii"), parts, asked, headers, body)
