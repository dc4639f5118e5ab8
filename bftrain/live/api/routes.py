"""All routes of the API, and their OpenAPI description, generated from the types of their bodies.

``server.py`` serves them.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

import msgspec

from bftrain.errors import BadConfig
from bftrain.live.api import page, prometheus
from bftrain.live.api.http_connection import JSON, Response
from bftrain.live.api.service import LiveService
from bftrain.live.api.status_stream import LONGEST_S, span_of
from bftrain.live.daemon.usage_ledger import GROUPINGS
from bftrain.live.model import schemas
from bftrain.live.model.callers import Caller
from bftrain.version import __version__


@dataclass(frozen=True, kw_only=True)
class RouteRequest:
    """One request as a route receives it: the caller, the names in the path, the query and the body."""

    caller: Caller
    names: Mapping[str, str]
    query: Mapping[str, str]
    body: Any


Answer = Callable[[LiveService, RouteRequest], Any]  # the answer, or what can be awaited for it


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A query parameter: its description and its JSON schema."""

    about: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Route:
    """One path and method of the API. A ``{name}`` in the path is passed to ``answer``.

    ``takes`` and ``gives`` are the types of the bodies; a JSON response is encoded from the result of ``answer``.
    ``operators``: other users are rejected. ``public``: reachable over TCP without the token.
    """

    method: str
    path: str
    about: str
    answer: Answer
    takes: type | None = None
    gives: Any
    kind: str = JSON
    query: Mapping[str, Parameter] = field(default_factory=dict)
    operators: bool = False
    public: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """The path, split at slashes."""
        return tuple(self.path.split("/")[1:])

    @property
    def names(self) -> tuple[str, ...]:
        """The names in the path."""
        return tuple(part.strip("{}") for part in self.parts if part.startswith("{"))

    def match(self, path: tuple[str, ...]) -> dict[str, str] | None:
        """Return the values of the path's names, or ``None`` if the path is another one."""
        if len(path) != len(self.parts):
            return None
        found = {}
        for part, given in zip(self.parts, path, strict=True):
            if part.startswith("{"):
                found[part.strip("{}")] = given
            elif part != given:
                return None
        return found


BYTES: Final = "application/octet-stream"
STREAM: Final = "text/event-stream"
METRICS: Final = "/metrics"
_LARGEST_OFFSET: Final = 2**53
_SPAN: Final = "600"
_OVER: Final = Parameter(about="Those as well that are over.", schema={"type": "boolean", "default": False})
_OFFSET: Final = Parameter(
    about="The byte to begin with; below 0: from the end.",
    schema={"type": "integer", "minimum": -_LARGEST_OFFSET, "maximum": _LARGEST_OFFSET, "default": 0},
)
_UPDATES: Final = Parameter(
    about="End after so many; 0: go on.",
    schema={"type": "integer", "minimum": 0, "maximum": _LARGEST_OFFSET, "default": 0},
)
_LOOK_BACK: Final = Parameter(
    about="How many seconds to look back; the further, the wider the cells.",
    schema={"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_S, "default": float(_SPAN)},
)
_BY: Final = Parameter(
    about="What is summed up together.", schema={"type": "string", "enum": list(GROUPINGS), "default": GROUPINGS[0]}
)
_SINCE: Final = Parameter(
    about="The first day that counts, as YYYY-MM-DD; all days if it is left out.",
    schema={"type": "string", "pattern": "^([0-9]{4}-[0-9]{2}-[0-9]{2})?$"},
)


def _tasks(service: LiveService, asked: RouteRequest) -> tuple[schemas.TaskView, ...]:
    text = asked.query.get("all", "false")
    if text not in {"true", "false"}:
        raise BadConfig(f"must be true or false, not {text[:30]!r}", where="all")
    return service.tasks(asked.caller, over=text == "true")


def _log(service: LiveService, asked: RouteRequest) -> Awaitable[bytes]:
    offset = _whole(asked.query.get("offset", "0"), "offset", -_LARGEST_OFFSET)
    return service.log(asked.caller, asked.names["task"], asked.names["file"], offset)


def _history(service: LiveService, asked: RouteRequest) -> schemas.HistoryView:
    return service.watch.history_of(asked.caller, span_of(asked.query.get("span", _SPAN)))


def _usage(service: LiveService, asked: RouteRequest) -> tuple[schemas.UsageRow, ...]:
    return service.usage(asked.caller, asked.query.get("by", GROUPINGS[0]), asked.query.get("since", ""))


def _watch(service: LiveService, asked: RouteRequest) -> Response:
    most = _whole(asked.query.get("updates", "0"), "updates", 0)
    return Response(
        kind=STREAM,
        headers={"x-accel-buffering": "no"},  # nginx would buffer the stream
        stream=service.watch.updates(asked.caller, span_of(asked.query.get("span", _SPAN)), most),
    )


def _whole(text: str, where: str, least: int) -> int:
    digits = text.removeprefix("-")
    # Limited to the digits of the largest offset, so a flood of digits is never parsed
    plain = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(_LARGEST_OFFSET))
    if not plain or int(digits) > _LARGEST_OFFSET or int(text) < least:
        raise BadConfig(f"must be a whole number, not {text[:30]!r}", where=where)
    return int(text)


def _get(path: str, about: str, gives: Any, answer: Answer, **more: Any) -> Route:  # noqa: ANN401 - forms of any kind
    return Route(method="GET", path=path, about=about, answer=answer, gives=gives, **more)


def _post(path: str, about: str, gives: Any, answer: Answer, **more: Any) -> Route:  # noqa: ANN401 - forms of any kind
    return Route(method="POST", path=path, about=about, answer=answer, gives=gives, **more)


def _of_task(name: str) -> Answer:
    """Return an answer that calls the service's method ``name`` with the task in the path."""
    return lambda service, asked: getattr(service, name)(asked.caller, asked.names["task"])


def _file(name: str) -> Route:
    path, about = ("/", "The status page.") if name == page.FIRST else (f"/{name}", "A part of the status page.")
    return _get(path, about, bytes, lambda *_: page.file(name), kind=page.FILES[name], public=True)


def _description() -> dict[str, Any]:
    return description()


_TASK: Final = "/v1/tasks/{task}"
_OF_OPERATORS: Final[dict[str, Any]] = {"takes": schemas.Nodes, "operators": True}
_ALL_NODES: Final = "All known nodes, with the names of your own tasks."
_HISTORY: Final = "Past nodes, holders, speeds and latest events."
_USED: Final = "Node-hours, GPU-hours, samples and energy of your tasks; operators see all."
_STREAMED: Final = "Server-sent events: the full state, then changes; at least one per second."
_PIECE: Final = "A piece of a log file; empty at its end."
_HAND_IN: Final = "Submit a task; the answer confirms that it is stored."

ROUTES: Final[tuple[Route, ...]] = (
    _get(
        "/v1/status", "The state of the run.", schemas.StatusView, lambda service, asked: service.status(asked.caller)
    ),
    _get("/v1/tasks", "Your tasks; operators see all.", tuple[schemas.TaskView, ...], _tasks, query={"all": _OVER}),
    _post(
        "/v1/tasks",
        _HAND_IN,
        schemas.TaskView,
        lambda to, asked: to.submit(asked.caller, asked.body),
        takes=schemas.Submission,
    ),
    _get(_TASK, "One task.", schemas.TaskView, _of_task("task")),
    _post(f"{_TASK}/cancel", "Cancel it.", schemas.TaskView, _of_task("cancel")),
    _post(f"{_TASK}/pause", "Let it wait without nodes.", schemas.TaskView, _of_task("pause")),
    _post(f"{_TASK}/resume", "Let it compete again.", schemas.TaskView, _of_task("resume")),
    _post(
        f"{_TASK}/edit",
        "Change it while it has no nodes; omitted fields stay.",
        schemas.TaskView,
        lambda to, asked: to.edit(asked.caller, asked.names["task"], asked.body),
        takes=schemas.TaskEdit,
    ),
    _get(f"{_TASK}/logs", "Its log files.", tuple[schemas.LogFile, ...], _of_task("logs")),
    _get(f"{_TASK}/logs/{{file}}", _PIECE, bytes, _log, kind=BYTES, query={"offset": _OFFSET}),
    _get("/v1/nodes", _ALL_NODES, tuple[schemas.NodeView, ...], lambda service, asked: service.nodes(asked.caller)),
    _post(
        "/v1/drain",
        "Stop using nodes; their tasks move first.",
        tuple[schemas.NodeView, ...],
        lambda service, asked: service.drain(asked.caller, asked.body.nodes),
        **_OF_OPERATORS,
    ),
    _post(
        "/v1/undrain",
        "Use nodes again.",
        tuple[schemas.NodeView, ...],
        lambda service, asked: service.drain(asked.caller, asked.body.nodes, end=True),
        **_OF_OPERATORS,
    ),
    _get("/v1/usage", _USED, tuple[schemas.UsageRow, ...], _usage, query={"by": _BY, "since": _SINCE}),
    _get(
        "/v1/harvesting",
        "Whether harvesting is paused, and the last hand-backs.",
        schemas.HarvestingView,
        lambda service, _: service.harvesting(),
    ),
    _post(
        "/v1/harvesting/pause",
        "Use no nodes for a while: tasks save and wait.",
        schemas.HarvestingView,
        lambda service, asked: service.pause_harvesting(asked.caller, asked.body),
        takes=schemas.Pause,
        operators=True,
    ),
    _post(
        "/v1/harvesting/resume",
        "Use nodes again.",
        schemas.HarvestingView,
        lambda service, asked: service.resume_harvesting(asked.caller),
        operators=True,
    ),
    _get("/v1/history", _HISTORY, schemas.HistoryView, _history, query={"span": _LOOK_BACK}),
    _get("/v1/watch", _STREAMED, schemas.Update, _watch, kind=STREAM, query={"span": _LOOK_BACK, "updates": _UPDATES}),
    _get(
        METRICS,
        "Metrics for Prometheus, without users and tasks.",
        bytes,
        lambda service, _: service.metrics.text().encode(),
        kind=prometheus.KIND,
    ),
    _get("/v1/openapi.json", "The OpenAPI description.", dict[str, Any], lambda *_: _description()),
    _get("/v1/page", "The address of the status page.", schemas.PageView, lambda service, _: service.page()),
    *map(_file, page.FILES),
)


_ABOUT: Final = """\
Requests to `bftrain live`, over its Unix socket or over TCP with a token. On the socket the kernel identifies the
caller: users see and change their own tasks, operators all. The token grants the rights of the user who runs it.
Answers may gain fields; existing ones stay.
"""
_REFUSED: Final = repr(schemas.Refused)
_NAMES: Final[Mapping[str, str]] = {
    "task": "The name of a task, or #NUMBER (%23 in an address). A name refers to the unfinished task of that name, or "
    "to the latest finished one.",
    "file": "The name of a log file, as listed.",
}


def described() -> tuple[Route, ...]:
    """Return the routes that are meant for programs, without the files of the status page."""
    return tuple(route for route in ROUTES if not route.public)


@cache
def description() -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the API."""
    routes = described()
    kinds = [kind for route in routes for kind in (route.takes, route.gives) if kind not in {None, bytes}]
    kinds.append(schemas.Refused)
    found, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    known = dict(zip(map(repr, kinds), found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, known)
    info = {"title": "bftrain live", "version": __version__, "description": _ABOUT}
    token = {"type": "http", "scheme": "bearer", "description": "Over TCP: the content of `token` in `state`."}
    whole: dict[str, Any] = _plain(
        {
            "openapi": "3.1.0",
            "info": {**info, "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"}},
            "servers": [{"url": "http://localhost:8765", "description": "The address of [api] tcp, or the socket."}],
            "security": [{"token": []}],
            "paths": paths,
            "components": {"schemas": components, "securitySchemes": {"token": token}},
        }
    )
    return whole


def _operation(route: Route, known: Mapping[str, Any]) -> dict[str, Any]:
    kind = route.kind.partition(";")[0]
    given = {} if route.gives is bytes else known[repr(route.gives)]
    if kind not in {JSON, BYTES}:
        given = {"type": "string", "contentMediaType": JSON, "contentSchema": given} if given else {"type": "string"}
    parts = [part.strip("{}").replace(".", "_") for part in route.parts if part != "v1"]
    refused = {"description": "An error; its status says which kind.", "content": {JSON: {"schema": known[_REFUSED]}}}
    operation: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *parts]),
        "summary": route.about + (" For operators." if route.operators else ""),
        "responses": {"200": {"description": "Success.", "content": {kind: {"schema": given}}}, "default": refused},
    }
    text = {"type": "string", "minLength": 1}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": text, "description": _NAMES[name]}
        for name in route.names
    ]
    parameters += [
        {"name": name, "in": "query", "schema": dict(one.schema), "description": one.about}
        for name, one in route.query.items()
    ]
    if parameters:
        operation["parameters"] = parameters
    if route.takes is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": known[repr(route.takes)]}}}
    return operation


def _plain(value: Any) -> Any:  # noqa: ANN401 - any JSON
    """Return descriptions as Markdown: without the indentation and markup of docstrings."""
    if isinstance(value, Mapping):
        return {
            key: inspect.cleandoc(one).replace("``", "`")
            if key == "description" and isinstance(one, str)
            else _plain(one)
            for key, one in value.items()
        }
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
