"""Client of a live run, over its Unix socket or over HTTP with a token. Commands on a live run use it."""

from __future__ import annotations

import http.client
import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from bftrain.errors import BadInput, BftrainError, NotAvailable
from bftrain.live import timeouts
from bftrain.live.model import schemas
from bftrain.live.model.schemas import HarvestingView, Pause
from bftrain.live.model.site_config import default_state
from bftrain.values import wire

T = TypeVar("T")

VARIABLE: Final = "BFTRAIN_LIVE"  # names the socket, or the address, of the live run that commands talk to
TOKEN_VARIABLE: Final = "BFTRAIN_TOKEN"  # noqa: S105 - the name of a variable: the file of the token
SYSTEM_SOCKET: Final = Path("/run/bftrain/api.sock")
_SAME_VERSION: Final = "use the same version of bftrain as the live run"
_KINDS: Final = {status: kind for kind, status in schemas.STATUS.items()}


def find(given: str = "") -> str:
    """Return the address of the live run: ``given``, ``BFTRAIN_LIVE``, the user's own, or this machine's."""
    named = given or os.environ.get(VARIABLE, "")
    if named:
        return named
    own = default_state() / "api.sock"
    return str(own if own.exists() or not SYSTEM_SOCKET.exists() else SYSTEM_SOCKET)


def page_address(status: schemas.StatusView) -> str:
    """Return the address of the status page with its token, read from a file that only its owner can read."""
    address = next((one for one in status.addresses if one.startswith("http")), "")
    if not address:
        raise NotAvailable(
            "the live run answers on its socket alone", where="[api] tcp", fix='tcp = "127.0.0.1:8765" in its settings'
        )
    try:
        token = Path(status.token_file).read_text(encoding="ascii").strip()
    except OSError as error:
        fix = "ask the user who runs it, or call this where it runs"
        raise BadInput(f"the token cannot be read: {error.strerror}", where=status.token_file, fix=fix) from error
    return f"{address}/#token={token}"


class Client:
    """A client of the live run at ``address``: the path of a socket, or ``http://HOST:PORT`` with the token in a file.

    The default address is the result of :func:`find`.
    """

    def __init__(self, address: str = "", token_file: Path | None = None) -> None:
        self._address = find(address).removeprefix("unix:")
        self._headers = {"host": "localhost"}
        if self._over_tcp:
            named = token_file or os.environ.get(TOKEN_VARIABLE)
            if named is None:
                fix = "it must name the file with the token"
                raise BadInput("a token is needed", where=TOKEN_VARIABLE, fix=fix)
            try:
                self._headers = {"authorization": f"Bearer {Path(named).read_text().strip()}"}
            except OSError as error:
                raise BadInput(f"cannot be read: {error.strerror}", where=str(Path(named))) from error

    def status(self) -> schemas.StatusView:
        """Return the overall status."""
        return self._ask("GET", "/v1/status", schemas.StatusView)

    def tasks(self, *, over: bool = False) -> tuple[schemas.TaskView, ...]:
        """Return our unfinished tasks, with ``over`` also the latest finished; operators get those of all users."""
        return self._ask("GET", "/v1/tasks", tuple[schemas.TaskView, ...], query={"all": "true"} if over else {})

    def task(self, name: str) -> schemas.TaskView:
        """Return the task called ``name``, or ``#NUMBER``; raise :class:`NotFound` if we have no such task."""
        return self._ask("GET", _task_path(name), schemas.TaskView)

    def submit(self, submission: schemas.Submission) -> schemas.TaskView:
        """Submit the task ``submission``; it is stored when this returns. Raise :class:`BadInput` if invalid."""
        return self._ask("POST", "/v1/tasks", schemas.TaskView, body=submission)

    def change(self, name: str, how: str) -> schemas.TaskView:
        """Cancel, pause or resume (``how``) the task ``name``; raise :class:`NotNow` if it has finished."""
        return self._ask("POST", _task_path(name, how), schemas.TaskView)

    def logs(self, name: str) -> tuple[schemas.LogFile, ...]:
        """List the log files of the task ``name``."""
        return self._ask("GET", _task_path(name, "logs"), tuple[schemas.LogFile, ...])

    def log(self, name: str, file: str, offset: int) -> bytes:
        """Return a chunk of the log ``file`` of the task ``name`` from byte ``offset`` on; empty at the end."""
        return self._exchange("GET", _task_path(name, "logs", file), None, {"offset": str(offset)})

    def usage(self, by: str, since: str = "") -> tuple[schemas.UsageRow, ...]:
        """Return node-seconds and samples, summed up ``by`` user, project and so on, from the day ``since`` on."""
        query = {"by": by} | ({"since": since} if since else {})
        return self._ask("GET", "/v1/usage", tuple[schemas.UsageRow, ...], query=query)

    def nodes(self) -> tuple[schemas.NodeView, ...]:
        """Return all known nodes."""
        return self._ask("GET", "/v1/nodes", tuple[schemas.NodeView, ...])

    def drain(self, nodes: tuple[str, ...], *, end: bool = False) -> tuple[schemas.NodeView, ...]:
        """Stop using ``nodes`` after their tasks moved; with ``end``, use them again. Only for operators."""
        path = "/v1/undrain" if end else "/v1/drain"
        return self._ask("POST", path, tuple[schemas.NodeView, ...], body=schemas.Nodes(nodes=nodes))

    def harvesting(self) -> HarvestingView:
        """Return whether harvesting is paused, and the last hand-backs."""
        return self._ask("GET", "/v1/harvesting", HarvestingView)

    def pause_harvesting(self, for_s: float | None = None) -> HarvestingView:
        """Stop using nodes for ``for_s`` seconds, or until :meth:`resume_harvesting`."""
        return self._ask("POST", "/v1/harvesting/pause", HarvestingView, body=Pause(for_s=for_s))

    def resume_harvesting(self) -> HarvestingView:
        """Use nodes again."""
        return self._ask("POST", "/v1/harvesting/resume", HarvestingView)

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
        return wire.decode(answer, kind, where=self._address, fix=_SAME_VERSION)

    def _exchange(self, method: str, path: str, body: msgspec.Struct | None, query: Mapping[str, str]) -> bytes:
        target = f"{path}?{urlencode(query)}" if query else path
        headers = dict(self._headers)
        if body is not None:
            headers["content-type"] = "application/json"
        connection = self._connected()
        try:
            connection.request(method, target, None if body is None else wire.encode(body), headers)
            response = connection.getresponse()
            status, answer = response.status, response.read()
        except (http.client.HTTPException, OSError) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()
        if status >= http.client.BAD_REQUEST:
            raise _as_error(status, answer, self._address)
        return answer

    def _connected(self) -> http.client.HTTPConnection:
        """Open a connection for one request; wait for a daemon that restarts, as no request was sent yet."""
        connection: http.client.HTTPConnection = _UnixConnection(self._address)
        if self._over_tcp:
            parts = urlsplit(self._address)
            connection = http.client.HTTPConnection(
                parts.hostname or "", parts.port, timeout=timeouts.TIMEOUTS.answer_s
            )
        deadline = time.monotonic() + timeouts.TIMEOUTS.restart_s
        while True:
            try:
                connection.connect()
            except OSError as error:
                connection.close()
                may_return = isinstance(error, ConnectionRefusedError) or (
                    isinstance(error, FileNotFoundError) and Path(self._address).parent.exists()
                )
                if not may_return or time.monotonic() > deadline:
                    raise self._unreachable(
                        error, f" within {timeouts.TIMEOUTS.restart_s:g} s" if may_return else ""
                    ) from error
                time.sleep(0.05)
            else:
                return connection

    def _unreachable(self, error: Exception, within: str = "") -> NotAvailable:
        if isinstance(error, PermissionError):
            return NotAvailable("you may not talk to this live run", where=self._address, fix="ask its user")
        why = "there is no such socket" if isinstance(error, FileNotFoundError) else getattr(error, "strerror", None)
        return NotAvailable(
            f"no live run answers{within}: {why or error}",
            where=self._address,
            fix=f"bftrain live --config FILE starts one; to use another user's run, set {VARIABLE} to its socket",
        )


def _task_path(*parts: str) -> str:
    return "/".join(["/v1/tasks", *(quote(part, safe="") for part in parts)])


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=timeouts.TIMEOUTS.answer_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Python's own timeout would fail under load instead of waiting for the server to accept
        self.sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(timeouts.TIMEOUTS.answer_s), 0)
        )
        self.sock.connect(self._path)
        self.sock.settimeout(timeouts.TIMEOUTS.answer_s)


def _as_error(status: int, answer: bytes, address: str) -> BftrainError:
    try:
        problem = wire.decode(answer, schemas.Refused).error
    except BadInput:
        return BadInput(f"it answered {status}: {answer[:200]!r}", where=address)
    if status >= http.client.INTERNAL_SERVER_ERROR:
        return NotAvailable(problem.what, where=problem.where, fix=problem.fix)
    kind = _KINDS.get(status, BadInput)
    return kind(problem.what, where=problem.where, fix=problem.fix)
