"""Conversion between the decision core and launchers: actions to orders, and launcher messages to events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bftrain.values import wire
from bftrain.values.actions import Action
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskFailed, TaskFinished

_REASON_LETTERS = 2000


def orders(actions: Iterable[Action]) -> list[dict[str, Any]]:
    """Return the JSON forms of actions, for a launcher's ``apply``."""
    return [wire.plain(action) for action in actions]


def event_of(message: Mapping[str, Any], time_s: float) -> Event | None:
    """Return the event for a launcher's message, at ``time_s`` on the harvester's clock; ``None`` for most messages."""
    match message["type"]:
        case "done":
            return TaskFinished(time_s=time_s, task=message["task"])
        case "failed":
            return TaskFailed(time_s=time_s, task=message["task"], reason=message["reason"][-_REASON_LETTERS:])
        case "registered":
            return NodesJoined(time_s=time_s, nodes=(message["node"],))
        case "gone":
            return NodesLeft(time_s=time_s, nodes=(message["node"],))
    return None
