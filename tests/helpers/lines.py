"""Lines of JSON, as ``bftrain decide`` reads them."""

from __future__ import annotations

from collections.abc import Sequence

from bftrain.values import wire


def lines(events: Sequence[object]) -> str:
    """Return a line for each event, or for each list of events of one moment."""
    return "".join(wire.encode(event).decode() + "\n" for event in events)
