"""Lines of JSON, as ``bftrain decide`` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bftrain.values import wire

if TYPE_CHECKING:
    from collections.abc import Sequence


def lines(events: Sequence[object]) -> str:
    """Return a line for each event, or for each list of events of one moment."""
    return "".join(wire.encode(event).decode() + "\n" for event in events)
