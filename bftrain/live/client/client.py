"""Client: asks a live run over its Unix socket, or over HTTP with a token. What the commands use."""

from __future__ import annotations

import http.client
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from bftrain.errors import BadInput, NotAvailable
from bftrain.live.model.schemas import (
    LogFile,
    Nodes,
    NodeView,
    NotAllowed,
    NotFound,
    NotNow,
    PageView,
    Refused,
    StatusView,
    Submission,
    TaskView,
)
from bftrain.live.model.site_config import default_state
from bftrain.live.model.stream_schemas import Update
from bftrain.values import wire

T = TypeVar("T")

VARIABLE: Final = "BFTRAIN_LIVE"  # names the socket, or the address, of the live run that commands talk to
TOKEN_VARIABLE: Final = "BFTRAIN_TOKEN"  # noqa: S105 - the name of a variable: the file of the token
SYSTEM_SOCKET: Final = Path("/run/bftrain/api.sock")
_PATIENCE_S: Final = 30.0
_QUIET_S: Final = 8.0  # an update comes each second: after so long without one the run is gone
_KINDS: Final[Mapping[int, type[BadInput]]] = {403: NotAllowed, 404: NotFound, 409: NotNow}


def find(given: str = "") -> str:
    """Say where the live run is: as given, by ``BFTRAIN_LIVE``, our own, or the one of this machine."""
    named = given or os.environ.get(VARIABLE, "")
    if named:
        return named
    own = default_state() / "api.sock"
    return str(own if own.exists() or not SYSTEM_SOCKET.exists() else SYSTEM_SOCKET)


class Client:
    """Asks the live run at ``address``: the path of a socket, or ``http://HOST:PORT`` with the token in a file.

    Without an address it asks the live run that the commands ask: see :func:`find`.
    """

    def __init__(self, address: str = "", token_file: Path | None = None) -> None:
        self._address = find(address).removeprefix("unix:")
        self._headers = {"host": "localhost"}
        if self._over_tcp:
            self._headers = {"authorization": f"Bearer {_token(token_file)}"}
        self._connection: http.client.HTTPConnection | None = None

    # -- what can be asked

    def status(self) -> StatusView:
        """How things stand."""
        return self._ask("GET", "/v1/status", StatusView)

    def tasks(self, *, over: bool = False) -> tuple[TaskView, ...]:
        """Our tasks; with ``over`` those as well that are over."""
        return self._ask("GET", "/v1/tasks", tuple[TaskView, ...], query={"all": "true"} if over else {})

    def task(self, name: str) -> TaskView:
        """One task."""
        return self._ask("GET", f"/v1/tasks/{_quoted(name)}", TaskView)

    def submit(self, submission: Submission) -> TaskView:
        """Hand in a task."""
        return self._ask("POST", "/v1/tasks", TaskView, body=submission)

    def change(self, name: str, how: str) -> TaskView:
        """Cancel, pause or resume a task."""
        return self._ask("POST", f"/v1/tasks/{_quoted(name)}/{how}", TaskView)

    def logs(self, name: str) -> tuple[LogFile, ...]:
        """The log files of a task."""
        return self._ask("GET", f"/v1/tasks/{_quoted(name)}/logs", tuple[LogFile, ...])

    def log(self, name: str, file: str, offset: int) -> bytes:
        """A piece of a log file; empty when there is no more yet."""
        path = f"/v1/tasks/{_quoted(name)}/logs/{_quoted(file)}"
        return self._exchange("GET", path, None, {"offset": str(offset)})

    def nodes(self) -> tuple[NodeView, ...]:
        """All known nodes."""
        return self._ask("GET", "/v1/nodes", tuple[NodeView, ...])

    def drain(self, nodes: tuple[str, ...], *, end: bool = False) -> tuple[NodeView, ...]:
        """Use nodes no more; with ``end`` use them again."""
        path = "/v1/undrain" if end else "/v1/drain"
        return self._ask("POST", path, tuple[NodeView, ...], body=Nodes(nodes=nodes))

    def page(self) -> PageView:
        """Where the status page is."""
        return self._ask("GET", "/v1/page", PageView)

    def updates(self, span_s: float = 600.0, most: int = 0) -> Iterator[Update]:
        """What changes, as it happens; the first update has all. Ends when the live run does, or after ``most``."""
        connection = self._connected()
        try:
            connection.request("GET", f"/v1/watch?span={span_s:g}&updates={most}", headers=self._headers)
            response = connection.getresponse()
            if response.status >= http.client.BAD_REQUEST:
                raise _as_error(response.status, response.read(), self._address)
            if connection.sock is not None:
                connection.sock.settimeout(_QUIET_S)
            fix = "use the same version of bftrain as the live run"
            for line in response:
                if line.startswith(b"data: "):
                    yield wire.decode(line.removeprefix(b"data: "), Update, where=self._address, fix=fix)
        except (http.client.HTTPException, OSError) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Hang up."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- how

    @property
    def _over_tcp(self) -> bool:
        return self._address.startswith("http://")

    def _ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        body: msgspec.Struct | None = None,
        query: Mapping[str, str] | None = None,
    ) -> T:
        answer = self._exchange(method, path, body, query or {})
        return wire.decode(answer, kind, where=self._address, fix="use the same version of bftrain as the live run")

    def _exchange(self, method: str, path: str, body: msgspec.Struct | None, query: Mapping[str, str]) -> bytes:
        target = f"{path}?{urlencode(query)}" if query else path
        headers = dict(self._headers)
        if body is not None:
            headers["content-type"] = "application/json"
        if method != "GET":
            self.close()  # an idle connection may end in between, and then it is unknown whether it was done
        reused = self._connection is not None
        try:
            status, answer = self._once(method, target, wire.encode(body) if body is not None else None, headers)
        except (http.client.HTTPException, ConnectionError) as error:
            self.close()
            if not reused:
                raise self._unreachable(error) from error
            return self._exchange(method, path, body, query)  # a connection that rested for too long
        except OSError as error:
            self.close()
            raise self._unreachable(error) from error
        if status >= http.client.BAD_REQUEST:
            raise _as_error(status, answer, self._address)
        return answer

    def _once(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._connected()
        self._connection.request(method, target, body=body, headers=dict(headers))
        response = self._connection.getresponse()
        return response.status, response.read()

    def _connected(self) -> http.client.HTTPConnection:
        if not self._over_tcp:
            return _UnixConnection(self._address)
        parts = urlsplit(self._address)
        return http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_PATIENCE_S)

    def _unreachable(self, error: Exception) -> NotAvailable:
        if isinstance(error, PermissionError):
            return NotAvailable("you may not talk to this live run", where=self._address, fix="ask its user")
        return NotAvailable(
            f"no live run answers: {error}",
            where=self._address,
            fix=f"start one: bftrain live --demo; or name another one in {VARIABLE}",
        )


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        """Connect."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_PATIENCE_S)
        self.sock.connect(self._path)


def _token(file: Path | None) -> str:
    named = file or (Path(os.environ[TOKEN_VARIABLE]) if TOKEN_VARIABLE in os.environ else None)
    if named is None:
        raise BadInput("a token is needed", where=TOKEN_VARIABLE, fix="let it name the file that holds the token")
    try:
        return named.read_text().strip()
    except OSError as error:
        raise BadInput(f"cannot be read: {error.strerror}", where=str(named)) from error


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _as_error(status: int, answer: bytes, address: str) -> BadInput | NotAvailable:
    try:
        problem = wire.decode(answer, Refused).error
    except BadInput:
        return BadInput(f"it answered {status}: {answer[:200]!r}", where=address)
    if status >= http.client.INTERNAL_SERVER_ERROR:
        return NotAvailable(problem.what, where=problem.where, fix=problem.fix)
    kind = _KINDS.get(status, BadInput)
    return kind(problem.what, where=problem.where, fix=problem.fix)
