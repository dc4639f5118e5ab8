"""One address of the API: its method, its path, what it takes and gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bftrain.live.api.http_connection import JSON
from bftrain.live.api.service import LiveService
from bftrain.live.model.callers import Caller


@dataclass(frozen=True, kw_only=True)
class RouteRequest:
    """One request as a route sees it: who asks, what stands in the address, and what was sent."""

    caller: Caller
    names: Mapping[str, str]
    query: Mapping[str, str]
    body: Any


Answer = Callable[[LiveService, RouteRequest], Any]  # the answer, or what can be awaited for it


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """What may stand behind the ``?``: in words, and as a JSON schema."""

    about: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Route:
    """One address. ``{name}`` in the path is handed over.

    ``takes`` and ``gives`` are the forms of the bodies; an answer of ``kind`` JSON is made from what ``answer`` gives.
    ``operators``: others are refused. ``public``: open over TCP without the token.
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
        """Give what stands where the path has names; nothing if the address is another one."""
        if len(path) != len(self.parts):
            return None
        found = {}
        for part, given in zip(self.parts, path, strict=True):
            if part.startswith("{"):
                found[part.strip("{}")] = given
            elif part != given:
                return None
        return found
