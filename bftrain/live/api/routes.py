"""Routes: all addresses of the API. ``server.py`` serves them, ``openapi.py`` describes them."""

from __future__ import annotations

from collections.abc import Awaitable
from functools import cache
from typing import Any, Final

from bftrain.errors import BadConfig
from bftrain.live.api import openapi, page, prometheus_text
from bftrain.live.api.http_connection import Response
from bftrain.live.api.route import Answer, Parameter, Route, RouteRequest
from bftrain.live.api.service import LiveService
from bftrain.live.model.schemas import LogFile, Nodes, NodeView, PageView, StatusView, Submission, TaskView
from bftrain.live.model.stream_schemas import HistoryView, Update
from bftrain.live.monitor.status_stream import LONGEST_S, span_of

BYTES: Final = "application/octet-stream"
STREAM: Final = "text/event-stream"
METRICS: Final = "/metrics"
_LARGEST_OFFSET: Final = 2**53


def _route(method: str, path: str, about: str, answer: Answer, gives: Any, **more: Any) -> Route:  # noqa: ANN401 - forms of any kind
    return Route(method=method, path=path, about=about, answer=answer, gives=gives, **more)


def _log(office: LiveService, asked: RouteRequest) -> Awaitable[bytes]:
    offset = _whole(asked.query.get("offset", "0"))
    return office.log(asked.caller, asked.names["task"], asked.names["file"], offset)


def _description(_office: LiveService, _asked: RouteRequest) -> dict[str, Any]:
    return description()


def _history(office: LiveService, asked: RouteRequest) -> HistoryView:
    return office.watch.history_of(asked.caller, span_of(asked.query.get("span", _SPAN)))


def _watch(office: LiveService, asked: RouteRequest) -> Response:
    most = _whole(asked.query.get("updates", "0"), where="updates", least=0)
    return Response(
        kind=STREAM,
        headers={"x-accel-buffering": "no"},  # nginx would hold back what is to be seen at once
        stream=office.watch.updates(asked.caller, span_of(asked.query.get("span", _SPAN)), most),
    )


def _file(name: str) -> Route:
    path, about = ("/", "The status page.") if name == page.FIRST else (f"/{name}", "A part of the status page.")
    return _route(
        "GET", path, about, lambda _office, _asked: page.file(name), bytes, kind=page.FILES[name], public=True
    )


_SPAN: Final = "600"
_SPAN_PARAMETER: Final = Parameter(
    about="how many seconds to look back; the further, the wider the cells",
    schema={"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_S, "default": float(_SPAN)},
)

ROUTES: Final[tuple[Route, ...]] = (
    _route("GET", "/v1/status", "How things stand.", lambda office, asked: office.status(asked.caller), StatusView),
    _route(
        "GET",
        "/v1/tasks",
        "Your tasks; operators see all.",
        lambda office, asked: office.tasks(asked.caller, over=_said(asked.query.get("all", "false"))),
        tuple[TaskView, ...],
        query={"all": Parameter(about="those as well that are over", schema={"type": "boolean", "default": False})},
    ),
    _route(
        "POST",
        "/v1/tasks",
        "Hand in a task; when it is answered it is safe.",
        lambda office, asked: office.submit(asked.caller, asked.body),
        TaskView,
        takes=Submission,
    ),
    _route(
        "GET",
        "/v1/tasks/{task}",
        "One task.",
        lambda office, asked: office.task(asked.caller, asked.names["task"]),
        TaskView,
    ),
    _route(
        "POST",
        "/v1/tasks/{task}/cancel",
        "End it for good.",
        lambda office, asked: office.cancel(asked.caller, asked.names["task"]),
        TaskView,
    ),
    _route(
        "POST",
        "/v1/tasks/{task}/pause",
        "Let it wait without nodes.",
        lambda office, asked: office.pause(asked.caller, asked.names["task"]),
        TaskView,
    ),
    _route(
        "POST",
        "/v1/tasks/{task}/resume",
        "Let it compete again.",
        lambda office, asked: office.resume(asked.caller, asked.names["task"]),
        TaskView,
    ),
    _route(
        "GET",
        "/v1/tasks/{task}/logs",
        "Its log files.",
        lambda office, asked: office.logs(asked.caller, asked.names["task"]),
        tuple[LogFile, ...],
    ),
    _route(
        "GET",
        "/v1/tasks/{task}/logs/{file}",
        "A piece of a log file; empty where there is no more yet.",
        _log,
        bytes,
        kind=BYTES,
        query={
            "offset": Parameter(
                about="the byte to begin with; below 0: from the end",
                schema={"type": "integer", "minimum": -_LARGEST_OFFSET, "maximum": _LARGEST_OFFSET, "default": 0},
            )
        },
    ),
    _route(
        "GET",
        "/v1/nodes",
        "All known nodes; of tasks on them only your own are named.",
        lambda office, asked: office.nodes(asked.caller),
        tuple[NodeView, ...],
    ),
    _route(
        "POST",
        "/v1/drain",
        "Use nodes no more; what runs there moves first.",
        lambda office, asked: office.drain(asked.caller, asked.body.nodes),
        tuple[NodeView, ...],
        takes=Nodes,
        operators=True,
    ),
    _route(
        "POST",
        "/v1/undrain",
        "Use nodes again.",
        lambda office, asked: office.undrain(asked.caller, asked.body.nodes),
        tuple[NodeView, ...],
        takes=Nodes,
        operators=True,
    ),
    _route(
        "GET",
        "/v1/history",
        "How things went: nodes, who held them, speed, and what happened last.",
        _history,
        HistoryView,
        query={"span": _SPAN_PARAMETER},
    ),
    _route(
        "GET",
        "/v1/watch",
        "Server-sent events: first how everything stands, then what changes; at least one each second.",
        _watch,
        Update,
        kind=STREAM,
        query={
            "span": _SPAN_PARAMETER,
            "updates": Parameter(
                about="end after so many; 0: go on",
                schema={"type": "integer", "minimum": 0, "maximum": _LARGEST_OFFSET, "default": 0},
            ),
        },
    ),
    _route(
        "GET",
        METRICS,
        "Figures for Prometheus; no user and no task is named.",
        lambda office, _: office.metrics.text().encode(),
        bytes,
        kind=prometheus_text.KIND,
    ),
    _route("GET", "/v1/openapi.json", "This description.", _description, dict[str, Any]),
    _route("GET", "/v1/page", "Where the status page is.", lambda office, _: office.page(), PageView),
    *map(_file, page.FILES),
)


@cache
def description() -> dict[str, Any]:
    """Describe all of it for programs, as OpenAPI."""
    return openapi.document(ROUTES)


def _said(text: str) -> bool:
    if text not in {"true", "false"}:
        raise BadConfig(f"must be true or false, not {text[:30]!r}", where="all")
    return text == "true"


def _whole(text: str, where: str = "offset", least: int = -_LARGEST_OFFSET) -> int:
    digits = text.removeprefix("-")
    # As many as the largest has, so that a flood of digits is never read
    plain = digits.isascii() and digits.isdecimal() and len(digits) <= len(str(_LARGEST_OFFSET))
    if not plain or int(digits) > _LARGEST_OFFSET or int(text) < least:
        raise BadConfig(f"must be a whole number, not {text[:30]!r}", where=where)
    return int(text)
