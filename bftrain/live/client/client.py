"""Client of a live run, over its Unix socket or over HTTP with a token. All commands use it."""

from __future__ import annotations

import http.client
import os
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from bftrain.errors import BadInput, BftrainError, NotAvailable
from bftrain.live.model import resource_views, schemas
from bftrain.live.model.harvesting import HarvestingView, Pause
from bftrain.live.model.site_config import default_state
from bftrain.live.model.task_edit import TaskEdit
from bftrain.values import wire

T = TypeVar("T")

VARIABLE: Final = "BFTRAIN_LIVE"  # names the socket, or the address, of the live run that commands talk to
TOKEN_VARIABLE: Final = "BFTRAIN_TOKEN"  # noqa: S105 - the name of a variable: the file of the token
SYSTEM_SOCKET: Final = Path("/run/bftrain/api.sock")
_SAME_VERSION: Final = "use the same version of bftrain as the live run"
_PATIENCE_S: Final = 30.0
_RESTART_S: Final = 3.0  # a daemon that restarts is there again within this time
_QUIET_S: Final = 8.0  # updates come every second: the run counts as lost after this long without one
_KINDS: Final[Mapping[int, type[BadInput]]] = {403: schemas.NotAllowed, 404: schemas.NotFound, 409: schemas.NotNow}


def find(given: str = "") -> str:
    """Return the address of the live run: ``given``, ``BFTRAIN_LIVE``, the user's own, or this machine's."""
    named = given or os.environ.get(VARIABLE, "")
    if named:
        return named
    own = default_state() / "api.sock"
    return str(own if own.exists() or not SYSTEM_SOCKET.exists() else SYSTEM_SOCKET)


def page_address(page: schemas.PageView) -> str:
    """Return the address of the status page with its token, read from a file that only its owner can read."""
    if not page.address:
        raise NotAvailable(
            "the live run answers on its socket alone", where="[api] tcp", fix='tcp = "127.0.0.1:8765" in its settings'
        )
    try:
        token = Path(page.token_file).read_text(encoding="ascii").strip()
    except OSError as error:
        fix = "ask the user who runs it, or call this where it runs"
        raise BadInput(f"the token cannot be read: {error.strerror}", where=page.token_file, fix=fix) from error
    return f"{page.address}#token={token}"


class Client:
    """A client of the live run at ``address``: the path of a socket, or ``http://HOST:PORT`` with the token in a file.

    Without an address it uses the one that :func:`find` returns.
    """

    def __init__(self, address: str = "", token_file: Path | None = None) -> None:
        self._address = find(address).removeprefix("unix:")
        self._headers = {"host": "localhost"}
        if self._over_tcp:
            named = token_file or os.environ.get(TOKEN_VARIABLE)
            if named is None:
                fix = "let it name the file that holds the token"
                raise BadInput("a token is needed", where=TOKEN_VARIABLE, fix=fix)
            try:
                self._headers = {"authorization": f"Bearer {Path(named).read_text().strip()}"}
            except OSError as error:
                raise BadInput(f"cannot be read: {error.strerror}", where=str(Path(named))) from error
        self._connection: http.client.HTTPConnection | None = None

    def status(self) -> schemas.StatusView:
        """Return the overall status."""
        return self._ask("GET", "/v1/status", schemas.StatusView)

    def tasks(self, *, over: bool = False) -> tuple[schemas.TaskView, ...]:
        """Return our unfinished tasks, with ``over`` also the finished ones."""
        return self._ask("GET", "/v1/tasks", tuple[schemas.TaskView, ...], query={"all": "true"} if over else {})

    def task(self, name: str) -> schemas.TaskView:
        """Return one task."""
        return self._ask("GET", _of_task(name), schemas.TaskView)

    def submit(self, submission: schemas.Submission) -> schemas.TaskView:
        """Submit a task."""
        return self._ask("POST", "/v1/tasks", schemas.TaskView, body=submission)

    def change(self, name: str, how: str) -> schemas.TaskView:
        """Cancel, pause or resume a task."""
        return self._ask("POST", _of_task(name, how), schemas.TaskView)

    def edit(self, name: str, changes: TaskEdit) -> schemas.TaskView:
        """Change a task that holds no nodes."""
        return self._ask("POST", _of_task(name, "edit"), schemas.TaskView, body=changes)

    def logs(self, name: str) -> tuple[schemas.LogFile, ...]:
        """Return the log files of a task."""
        return self._ask("GET", _of_task(name, "logs"), tuple[schemas.LogFile, ...])

    def log(self, name: str, file: str, offset: int) -> bytes:
        """Return a piece of a log file; empty if there is no more yet."""
        return self._exchange("GET", _of_task(name, "logs", file), None, {"offset": str(offset)})

    def usage(self, by: str, since: str = "") -> tuple[resource_views.UsageRow, ...]:
        """Hours and samples, summed up by user, project and so on, from a day on."""
        query = {"by": by} | ({"since": since} if since else {})
        return self._ask("GET", "/v1/usage", tuple[resource_views.UsageRow, ...], query=query)

    def nodes(self) -> tuple[schemas.NodeView, ...]:
        """Return all known nodes."""
        return self._ask("GET", "/v1/nodes", tuple[schemas.NodeView, ...])

    def drain(self, nodes: tuple[str, ...], *, end: bool = False) -> tuple[schemas.NodeView, ...]:
        """Stop using nodes; with ``end`` use them again."""
        path = "/v1/undrain" if end else "/v1/drain"
        return self._ask("POST", path, tuple[schemas.NodeView, ...], body=schemas.Nodes(nodes=nodes))

    def harvesting(self) -> HarvestingView:
        """Whether nodes are used at all, and how the last ones were handed back."""
        return self._ask("GET", "/v1/harvesting", HarvestingView)

    def pause_harvesting(self, for_s: float | None = None) -> HarvestingView:
        """Use no node for so long, or until that is resumed."""
        return self._ask("POST", "/v1/harvesting/pause", HarvestingView, body=Pause(for_s=for_s))

    def resume_harvesting(self) -> HarvestingView:
        """Use nodes again."""
        return self._ask("POST", "/v1/harvesting/resume", HarvestingView)

    def page(self) -> schemas.PageView:
        """Return the address of the status page."""
        return self._ask("GET", "/v1/page", schemas.PageView)

    def updates(self, span_s: float = 600.0, most: int = 0) -> Iterator[schemas.Update]:
        """Yield changes as they happen, the full state first, until the live run ends or after ``most`` updates."""
        connection = self._connected()
        try:
            connection.request("GET", f"/v1/watch?span={span_s:g}&updates={most}", headers=self._headers)
            response = connection.getresponse()
            if response.status >= http.client.BAD_REQUEST:
                raise _as_error(response.status, response.read(), self._address)
            if connection.sock is not None:
                connection.sock.settimeout(_QUIET_S)
            for line in response:
                if line.startswith(b"data: "):
                    yield wire.decode(
                        line.removeprefix(b"data: "), schemas.Update, where=self._address, fix=_SAME_VERSION
                    )
        except (http.client.HTTPException, OSError) as error:
            raise self._unreachable(error) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

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
        if method != "GET":
            self.close()  # an idle connection may end in between, and then it is unknown whether it was done
        reused = self._connection is not None
        try:
            if self._connection is None:
                self._connection = self._connected()
            self._connection.request(method, target, None if body is None else wire.encode(body), headers)
            response = self._connection.getresponse()
            status, answer = response.status, response.read()
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

    def _connected(self) -> http.client.HTTPConnection:
        """Return an open connection; wait for a daemon that restarts. Retries are safe: no request was sent yet."""
        connection: http.client.HTTPConnection = _UnixConnection(self._address)
        if self._over_tcp:
            parts = urlsplit(self._address)
            connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=_PATIENCE_S)
        deadline = time.monotonic() + _RESTART_S
        while True:
            try:
                connection.connect()
            except OSError as error:
                connection.close()
                may_return = isinstance(error, ConnectionRefusedError) or (
                    isinstance(error, FileNotFoundError) and Path(self._address).parent.exists()
                )
                if not may_return or time.monotonic() > deadline:
                    raise self._unreachable(error, f" within {_RESTART_S:g} s" if may_return else "") from error
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
            fix=f"bftrain live --config FILE starts one; set {VARIABLE} to the socket of another user's",
        )


def _of_task(*parts: str) -> str:
    return "/".join(["/v1/tasks", *(quote(part, safe="") for part in parts)])


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=_PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # A time-out of Python's own would have it refused while many others wait to be let in, instead of waiting too
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(_PATIENCE_S), 0))
        self.sock.connect(self._path)
        self.sock.settimeout(_PATIENCE_S)


def _as_error(status: int, answer: bytes, address: str) -> BadInput | NotAvailable:
    try:
        problem = wire.decode(answer, schemas.Refused).error
    except BadInput:
        return BadInput(f"it answered {status}: {answer[:200]!r}", where=address)
    if status >= http.client.INTERNAL_SERVER_ERROR:
        return NotAvailable(problem.what, where=problem.where, fix=problem.fix)
    kind = _KINDS.get(status, BadInput)
    return kind(problem.what, where=problem.where, fix=problem.fix)


_HAPPENED: Final = 200
_YOUNGEST: Final = 10  # no less than this part of a span is looked at
_AGAIN_S: Final = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0)


class LiveView:
    """The state of a live run, built from its updates, the first of which is complete."""

    def __init__(self, first: schemas.Update) -> None:
        self.status: schemas.StatusView = first.status
        self.day = first.day
        self.tasks: dict[int, schemas.TaskRow] = {}
        self.more = 0
        self.nodes: dict[str, tuple[str, int]] = {}
        self.width_s = 1.0
        self.span_s = 0.0
        self.cells: dict[float, schemas.Cell] = {}  # by when they begin
        self.happened: deque[schemas.Happening] = deque(maxlen=_HAPPENED)
        self.update(first)

    def update(self, update: schemas.Update) -> None:
        """Apply an update."""
        self.status, self.day = update.status, update.day
        if update.tasks is not None:
            self.tasks.update((row.number, row) for row in update.tasks.changed)
            for number in update.tasks.gone:
                self.tasks.pop(number, None)
            self.more = update.tasks.more
        if update.nodes is not None:
            self.nodes.update(update.nodes.changed)
            for name in update.nodes.gone:
                self.nodes.pop(name, None)
        if update.history is not None:
            self.width_s, self.span_s = update.history.width_s, update.history.span_s
            for cell in update.history.cells:
                self.cells.pop(cell.begin_s, None)
                self.cells[cell.begin_s] = cell
            oldest = self.status.now_s - self.span_s - self.width_s
            for begin_s in [begin_s for begin_s in self.cells if begin_s < oldest]:
                del self.cells[begin_s]
            self.happened.extend(update.history.happened)

    def sizes(self, task: int, parts: int) -> list[float]:
        """Return the mean number of nodes of a task in each part of the shown time."""
        return self._means(parts, lambda cell: cell.sizes.get(task, 0.0))

    def speeds(self, parts: int) -> list[float]:
        """Return the mean samples/s of all tasks in each part of the shown time."""
        return self._means(parts, lambda cell: cell.speed)

    def _means(self, parts: int, value: Callable[[schemas.Cell], float]) -> list[float]:
        now_s = self.status.now_s
        # Of a young run not all of the span is looked at, but a part of it at least
        known_s = max(now_s - self.span_s, min(self.cells, default=now_s))
        begin_s = min(now_s - self.span_s / _YOUNGEST, known_s)
        part_s = (now_s - begin_s) / parts
        sums, known = [0.0] * parts, [0.0] * parts
        for cell in self.cells.values():
            part = min(parts - 1, int((cell.begin_s + cell.known_s / 2 - begin_s) / part_s))
            if part >= 0:
                sums[part] += cell.known_s * value(cell)
                known[part] += cell.known_s
        return [total / seconds if seconds else 0.0 for total, seconds in zip(sums, known, strict=True)]


class StreamClient:
    """Follows a live run in a thread, which calls ``changed`` after each update."""

    def __init__(self, client: Client, span_s: float, changed: Callable[[], None]) -> None:
        self._client = client
        self._span_s = span_s
        self._changed = changed
        self.changes = 0  # how often there was something new
        self._ending = threading.Event()
        self._lock = threading.Lock()
        updates = client.updates(span_s)
        self._scene = LiveView(next(updates))  # a run that cannot be reached is an error, and no screen
        self._lost: tuple[float, str] | None = None
        self._thread = threading.Thread(target=self._follow, args=(updates,), name="follower", daemon=True)
        self._thread.start()

    def look(self, draw: Callable[[LiveView, tuple[float, str] | None], None]) -> None:
        """Call ``draw`` with the current state and, if the connection is lost, since when and why."""
        with self._lock:
            draw(self._scene, self._lost)

    def end(self) -> None:
        """Stop following."""
        self._ending.set()

    def _follow(self, updates: Iterator[schemas.Update]) -> None:
        tries = 0
        while not self._ending.is_set():
            try:
                for update in updates:
                    if self._ending.is_set():
                        return
                    tries = 0
                    with self._lock:
                        self.changes += 1
                        if self._lost is not None:  # the first update after that has all
                            self._lost, self._scene = None, LiveView(update)
                        else:
                            self._scene.update(update)
                    self._changed()
                reason = "it ended"
            except BftrainError as error:
                reason = error.what
            with self._lock:
                self._lost = (time.time() if self._lost is None else self._lost[0], reason)
                self.changes += 1
            self._changed()
            self._ending.wait(_AGAIN_S[min(tries, len(_AGAIN_S) - 1)])
            tries += 1
            updates = self._client.updates(self._span_s)
