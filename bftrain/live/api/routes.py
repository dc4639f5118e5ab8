"""All routes of the API, and their OpenAPI description.

A route calls a function with the caller and, by the function's parameters, the names in the path, the body (``given``)
and the query (keywords). The description is generated from these parameters. ``server.py`` serves the routes.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import msgspec
from msgspec import Meta

from bftrain.errors import BadConfig, BadInput, UnknownName
from bftrain.live.api import prometheus
from bftrain.live.api.service import LARGEST, LiveService
from bftrain.live.api.status_stream import LONGEST_S
from bftrain.live.model import schemas
from bftrain.live.model.schemas import Caller
from bftrain.values import wire
from bftrain.values.job import said
from bftrain.version import __version__

JSON: Final = "application/json"
BYTES: Final = "application/octet-stream"
STREAM: Final = "text/event-stream"
METRICS: Final = "/metrics"
_FORMS: Final = {bool: "true or false", int: "a whole number", float: f"seconds, up to {LONGEST_S:g}"}

# The status page: static files that fetch all data from the API, with the token
_PAGE: Final = Path(__file__).parent / "page"
_TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# Only our own files, no inline code or styles, no embedding in other sites
_PAGE_HEADERS: Final[Mapping[str, str]] = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``path`` is split at slashes and decoded; headers have lower-case names."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """A response: a complete ``body``, or a ``stream`` whose pieces are sent as they arrive."""

    status: int = 200
    body: bytes = b""
    kind: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncGenerator[bytes, None] | None = None


@dataclass(frozen=True)
class Route:
    """One path and method of the API. A ``{name}`` in the path is a parameter of ``answer``.

    ``kind`` is the media type of the response; JSON is encoded from the result of ``answer``.
    ``operators``: other users are rejected. ``public``: reachable over TCP without the token.
    """

    method: str
    path: str
    about: str
    answer: Callable[..., Any]
    kind: str = JSON
    operators: bool = False
    public: bool = False

    @cached_property
    def types(self) -> Mapping[str, Any]:
        """The types of the parameters of ``answer``, and of its result as ``return``."""
        return get_type_hints(self.answer, include_extras=True)

    @cached_property
    def query(self) -> Mapping[str, inspect.Parameter]:
        """The parameters in the query."""
        found = inspect.signature(self.answer).parameters.values()
        return {one.name: one for one in found if one.kind is inspect.Parameter.KEYWORD_ONLY}

    @property
    def takes(self) -> Any:  # noqa: ANN401 - any type
        """The type of the JSON body of a request; ``None`` if it has none."""
        return self.types.get("given")

    @property
    def gives(self) -> Any:  # noqa: ANN401 - any type
        """The type of the JSON in a response; ``None`` if it has none."""
        gives = schemas.Update if self.kind == STREAM else self.types["return"]
        return None if gives is bytes else gives

    @property
    def parts(self) -> tuple[str, ...]:
        """The path, split at slashes."""
        return tuple(self.path.split("/")[1:])

    def match(self, path: tuple[str, ...]) -> dict[str, str] | None:
        """Return the values of the path's names, or ``None`` if the path is another one."""
        if len(path) != len(self.parts):
            return None
        pairs = tuple(zip(self.parts, path, strict=True))
        if any(part != given and not part.startswith("{") for part, given in pairs):
            return None
        return {part.strip("{}"): given for part, given in pairs if part.startswith("{")}

    def call(self, service: LiveService, caller: Caller, names: Mapping[str, str], request: Request) -> Any:  # noqa: ANN401 - the answer, or what can be awaited for it
        """Call ``answer`` with the parts of a request; raise ``BadInput`` for values that it does not accept."""
        given: dict[str, Any] = dict(names)
        for name, text in request.query.items():
            if name not in self.query:
                raise UnknownName.among("parameter", name, self.query, where=self.path)
            given[name] = _query_value(name, text, self.types[name])
        if "caller" in self.types:
            given["caller"] = caller
        if self.takes is not None:
            given["given"] = wire.decode(request.body, self.takes, where="body")
        return self.answer(service, **given)


def _query_value(name: str, text: str, kind: Any) -> object:  # noqa: ANN401 - an annotated type
    form = _FORMS.get(kind.__origin__)
    if form is None:
        return text
    try:
        return wire.decode(text, kind)
    except BadInput as error:
        raise BadConfig(f"must be {form}, not {text[:30]!r}", where=name) from error


_Span = Annotated[float, Meta(gt=0, le=LONGEST_S), said("Seconds to look back; longer spans have longer intervals.")]


async def _drain(service: LiveService, caller: Caller, given: schemas.Nodes) -> tuple[schemas.NodeView, ...]:
    return await service.drain(caller, given.nodes)


async def _undrain(service: LiveService, caller: Caller, given: schemas.Nodes) -> tuple[schemas.NodeView, ...]:
    return await service.drain(caller, given.nodes, end=True)


def _watch(
    service: LiveService,
    caller: Caller,
    *,
    span: _Span = 600.0,
    updates: Annotated[int, Meta(ge=0, le=LARGEST), said("Number of updates to send; 0: unlimited.")] = 0,
) -> Response:
    # nginx would buffer the stream
    return Response(
        kind=STREAM, headers={"x-accel-buffering": "no"}, stream=service.watch.updates(caller, span, updates)
    )


def _metrics(service: LiveService) -> bytes:
    return service.metrics.text().encode()


def _description(_: LiveService) -> dict[str, Any]:
    return description()


def _file(file: Path) -> Route:
    first, kind = file.suffix == ".html", _TYPES[file.suffix]
    path, about = ("/", "The status page.") if first else (f"/{file.name}", "A part of the status page.")
    response = Response(body=file.read_bytes(), kind=kind, headers=_PAGE_HEADERS)
    return Route("GET", path, about, lambda _: response, kind=kind, public=True)


_TASK: Final = "/v1/tasks/{task}"
_HARVESTING: Final = "Whether harvesting is paused, and the last hand-backs."
_STREAMED: Final = "Server-sent events: the full state, then changes; at least one per second."
_USED: Final = "Node time, GPU time, samples and energy of your tasks; operators see all."
_PIECE: Final = "A piece of a log file; empty at its end."
_PAUSE: Final = "Use no nodes for a while: tasks save and wait."

ROUTES: Final[tuple[Route, ...]] = (
    Route("GET", "/v1/status", "The state of the run.", LiveService.status),
    Route("GET", "/v1/tasks", "Your tasks; operators see all.", LiveService.tasks),
    Route("POST", "/v1/tasks", "Submit a task; the answer confirms that it is stored.", LiveService.submit),
    Route("GET", _TASK, "One task.", LiveService.task),
    Route("POST", f"{_TASK}/cancel", "Cancel it.", LiveService.cancel),
    Route("POST", f"{_TASK}/pause", "Let it wait without nodes.", LiveService.pause),
    Route("POST", f"{_TASK}/resume", "Let it compete again.", LiveService.resume),
    Route("GET", f"{_TASK}/logs", "Its log files.", LiveService.logs),
    Route("GET", f"{_TASK}/logs/{{file}}", _PIECE, LiveService.log, kind=BYTES),
    Route("GET", "/v1/nodes", "All known nodes, with the names of your own tasks.", LiveService.nodes),
    Route("POST", "/v1/drain", "Stop using nodes; their tasks move first.", _drain, operators=True),
    Route("POST", "/v1/undrain", "Use nodes again.", _undrain, operators=True),
    Route("GET", "/v1/usage", _USED, LiveService.usage),
    Route("GET", "/v1/harvesting", _HARVESTING, LiveService.harvesting),
    Route("POST", "/v1/harvesting/pause", _PAUSE, LiveService.pause_harvesting, operators=True),
    Route("POST", "/v1/harvesting/resume", "Use nodes again.", LiveService.resume_harvesting, operators=True),
    Route("GET", "/v1/watch", _STREAMED, _watch, kind=STREAM),
    Route("GET", METRICS, "Metrics for Prometheus, without users and tasks.", _metrics, kind=prometheus.KIND),
    Route("GET", "/v1/openapi.json", "The OpenAPI description.", _description),
    *(_file(file) for file in sorted(_PAGE.iterdir()) if file.suffix in _TYPES),
)


_ABOUT: Final = """\
Requests to `bftrain live`, over its Unix socket or over TCP with a token. On the socket the kernel identifies the
caller: users see and change their own tasks, operators all. The token grants the rights of the user who runs it.
Answers may gain fields; existing ones stay.
"""
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
    kinds = [schemas.Refused, *(kind for route in described() for kind in (route.takes, route.gives) if kind)]
    found, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    known = dict(zip(map(repr, kinds), found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for route in described():
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
    given = known[repr(route.gives)] if route.gives else {}
    if kind not in {JSON, BYTES}:
        given = {"type": "string", "contentMediaType": JSON, "contentSchema": given} if given else {"type": "string"}
    parts = [part.strip("{}") for part in route.parts]
    refused = {"schema": known[repr(schemas.Refused)]}
    operation: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *(part.replace(".", "_") for part in parts if part != "v1")]),
        "summary": route.about + (" For operators." if route.operators else ""),
        "responses": {
            "200": {"description": "Success.", "content": {kind: {"schema": given}}},
            "default": {"description": "An error; the status code tells the kind.", "content": {JSON: refused}},
        },
    }
    text = {"type": "string", "minLength": 1}
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": text, "description": _NAMES[name]}
        for name in parts
        if f"{{{name}}}" in route.parts
    ]
    for name, one in route.query.items():
        schema = msgspec.json.schema(route.types[name]) | ({"default": one.default} if one.default != "" else {})
        parameters.append({"name": name, "in": "query", "description": schema.pop("description"), "schema": schema})
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
