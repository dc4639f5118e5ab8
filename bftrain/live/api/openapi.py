"""OpenAPI: the description of the API for programs, made from the routes and from the forms that they take and give."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bftrain.live.api.http_connection import JSON, LARGEST_BODY
from bftrain.live.model.schemas import Refused
from bftrain.version import __version__

if TYPE_CHECKING:
    from bftrain.live.api.route import Route

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
    """Give the routes that are for programs; the status page's files are for browsers."""
    return tuple(route for route in routes if not route.public)


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Give the OpenAPI 3.1 document of routes."""
    routes = described(routes)
    kinds = [kind for route in routes for kind in (route.takes, route.gives) if kind is not None and kind is not bytes]
    found, components = msgspec.json.schema_components([*kinds, Refused], ref_template=_SCHEMAS)
    schemas = dict(zip(map(_key, [*kinds, Refused]), found, strict=True))
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
            "responses": {_refusal(status): _refused(words, schemas) for status, words in _REFUSALS.items()},
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


def _key(kind: Any) -> str:  # noqa: ANN401 - a type, or what stands for several
    return repr(kind)


def _operation(route: Route, schemas: Mapping[str, Any]) -> dict[str, Any]:
    kind = route.kind.partition(";")[0]
    given = {} if route.gives is bytes else schemas[_key(route.gives)]
    if kind not in {JSON, "application/octet-stream"}:
        given = {"type": "string", "contentMediaType": JSON, "contentSchema": given} if given else {"type": "string"}
    operation: dict[str, Any] = {
        "operationId": _identifier(route),
        "summary": route.about,
        "tags": [_TAG_OF.get(route.parts[1] if len(route.parts) > 1 else "", "run")],
        "responses": {
            "200": {"description": "What was asked for.", "content": {kind: {"schema": given}}},
            **{str(status): {"$ref": f"#/components/responses/{_refusal(status)}"} for status in _refusals(route)},
        },
    }
    if route.operators:
        operation["description"] = "For operators."
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}, **_words(name)}
        for name in route.names
    ]
    parameters += [
        {"name": name, "in": "query", "schema": dict(one.schema), "description": _sentence(one.about)}
        for name, one in route.query.items()
    ]
    if parameters:
        operation["parameters"] = parameters
    if route.takes is not None:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas[_key(route.takes)]}}}
    return operation


def _refusals(route: Route) -> list[int]:
    """Name the statuses of refusals that a route can answer with."""
    found = [400, 401, 408, 413, 421, 431, 500, 503]
    found += [403] if route.operators else []
    found += [404] if route.names else []
    found += [409] if route.method == "POST" or route.kind == "text/event-stream" else []
    found += [415] if route.takes is not None else []
    return sorted(found)


def _identifier(route: Route) -> str:
    parts = [part.strip("{}").replace(".", "_") for part in route.parts if part != "v1"]
    return "_".join([route.method.lower(), *parts])


def _refusal(status: int) -> str:
    return f"Refused{status}"


def _refused(words: str, schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": words, "content": {JSON: {"schema": schemas[_key(Refused)]}}}


def _words(name: str) -> dict[str, str]:
    return {"description": _NAMES[name]}


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _plain(value: Any) -> Any:  # noqa: ANN401 - JSON is what it is
    """Give descriptions as Markdown: docstrings are indented, and mark names in their own way."""
    if isinstance(value, Mapping):
        return {
            key: inspect.cleandoc(one).replace("``", "`")
            if key == "description" and isinstance(one, str)
            else _plain(one)
            for key, one in value.items()
        }
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value
