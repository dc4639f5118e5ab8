"""Routes of the API, and their OpenAPI description, generated from the types of their bodies."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from bftrain.live.api.http_connection import JSON, LARGEST_BODY
from bftrain.live.api.service import LiveService
from bftrain.live.model.callers import Caller
from bftrain.live.model.schemas import Refused
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

    ``takes`` and ``gives`` are the types of the bodies; an answer of ``kind`` JSON is encoded from what ``answer``
    returns. ``operators``: other users are refused. ``public``: reachable over TCP without the token.
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


_SCHEMAS: Final = "#/components/schemas/{name}"
_ABOUT: Final = """\
What `bftrain live` is asked, over its Unix socket or over HTTP with a token. On the socket the kernel says who asks:
users see and touch their own tasks, operators all. The token grants the rights of the user who runs it. Answers may
get more fields; what is there stays.
"""
_NAMES: Final[Mapping[str, str]] = {
    "task": "The name of a task, or #NUMBER (%23 in an address). A name means the unfinished task of that name, or "
    "else the last one.",
    "file": "The name of a log file, as they are listed.",
}
# What may be answered instead, and when. Who is refused learns from `error` what is wrong, and what helps.
_REFUSALS: Final[Mapping[int, str]] = {
    400: "Something in the address or the body is not what it should be.",
    401: "Over TCP, without the token.",
    403: "Only operators may do that.",
    404: "There is no such thing, or it is another user's; the answer is the same.",
    408: "The request did not arrive as a whole in time.",
    409: "It cannot be done as things stand.",
    413: f"The body is larger than {LARGEST_BODY} bytes.",
    415: "The body is not said to be JSON.",
    421: "Over TCP, under a name that is not ours.",
    431: "The head is too large.",
    500: "A fault of ours, which stands in the remarks of the status too.",
    503: "Something that it needs is not there, or there are too many connections.",
}
_TAGS: Final[Mapping[str, str]] = {
    "tasks": "Training jobs of yours.",
    "nodes": "The machines that they run on.",
    "run": "The live run as a whole.",
}
_TAG_OF: Final[Mapping[str, str]] = {"tasks": "tasks", "nodes": "nodes", "drain": "nodes", "undrain": "nodes"}


def described(routes: Iterable[Route]) -> tuple[Route, ...]:
    """Return the routes that are meant for programs, without the files of the status page."""
    return tuple(route for route in routes if not route.public)


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the routes."""
    routes = described(routes)
    kinds = [kind for route in routes for kind in (route.takes, route.gives) if kind is not None and kind is not bytes]
    found, components = msgspec.json.schema_components([*kinds, Refused], ref_template=_SCHEMAS)
    schemas = dict(zip(map(repr, [*kinds, Refused]), found, strict=True))
    refused = {JSON: {"schema": schemas[repr(Refused)]}}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, schemas)
    about = {
        "openapi": "3.1.0",
        "info": {
            "title": "bftrain live",
            "version": __version__,
            "summary": "Train elastic tasks on the idle nodes of a batch scheduler",
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://localhost:8765", "description": "The address of [api] tcp, or the Unix socket."}],
        "security": [{"token": []}],
        "tags": [{"name": name, "description": words} for name, words in _TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                f"Refused{status}": {"description": words, "content": refused} for status, words in _REFUSALS.items()
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Over TCP: what stands in the file `token` in the folder `state`.",
                }
            },
        },
    }
    plain: dict[str, Any] = _plain(about)
    return plain


def _operation(route: Route, schemas: Mapping[str, Any]) -> dict[str, Any]:
    kind = route.kind.partition(";")[0]
    given = {} if route.gives is bytes else schemas[repr(route.gives)]
    if kind not in {JSON, "application/octet-stream"}:
        given = {"type": "string", "contentMediaType": JSON, "contentSchema": given} if given else {"type": "string"}
    parts = [part.strip("{}").replace(".", "_") for part in route.parts if part != "v1"]
    refusals = [400, 401, 408, 413, 421, 431, 500, 503]
    refusals += [403] if route.operators else []
    refusals += [404] if route.names else []
    waits = route.method == "POST" or route.kind == "text/event-stream"
    refusals += [409] if waits else []
    refusals += [415] if route.takes is not None else []
    operation: dict[str, Any] = {
        "operationId": "_".join([route.method.lower(), *parts]),
        "summary": route.about,
        "tags": [_TAG_OF.get(route.parts[1] if len(route.parts) > 1 else "", "run")],
        "responses": {
            "200": {"description": "What was asked for.", "content": {kind: {"schema": given}}},
            **{str(status): {"$ref": f"#/components/responses/Refused{status}"} for status in sorted(refusals)},
        },
    }
    if route.operators:
        operation["description"] = "For operators."
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
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas[repr(route.takes)]}}}
    return operation


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON is what it is
    """Return descriptions as Markdown: without the indentation and markup of docstrings."""
    if isinstance(value, Mapping):
        return {
            key: inspect.cleandoc(one).replace("``", "`")
            if key == "description" and isinstance(one, str)
            else _plain(one)
            for key, one in value.items()
        }
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
