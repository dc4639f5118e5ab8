"""Parts of a log as people ask for them: nodes by a node set or by their places, and a window of time."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.errors import BadInput, suggestion
from bftrain.nodesets import expand
from bftrain_datasets.log.time_formats import window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain_datasets.log.eventlog import EventLog

NODES_REMEDY: Final = "write a node set such as nid[0001-0064,70], or a slice such as 0:1024 in the log's own order"
SLICE: Final = re.compile(r"(\d*):(\d*)\Z")
_SHOWN: Final = 3
_MOST_NAMED: Final = 5  # node names are listed only where there are hardly more to choose from


def chosen_nodes(log: EventLog, text: str, *, where: str = "nodes") -> slice | NDArray[np.int64]:
    """Find the nodes that a node set names or that a slice cuts out, in the order of the log."""
    match = SLICE.match(text)
    if match:
        first, last = int(match[1] or 0), int(match[2] or len(log.node_names))
        if not 0 <= first < last <= len(log.node_names):
            raise BadInput(f"'{text}' cuts no nodes out of 0:{len(log.node_names)}", where=where, fix=NODES_REMEDY)
        return slice(first, last)
    try:
        names = expand(text)
    except ValueError as error:
        raise BadInput(f"'{text}' is no node set: {error}", where=where, fix=NODES_REMEDY) from error
    return places_of(log, names, where=where)


def places_of(log: EventLog, names: Sequence[str], *, where: str = "nodes") -> NDArray[np.int64]:
    """Find nodes by name, in the order of the log; the nearest name is suggested for one that it does not have."""
    places = {name: place for place, name in enumerate(log.node_names)}
    unknown = [name for name in names if name not in places]
    if unknown:
        shown = ", ".join(f"'{name}'" for name in unknown[:_SHOWN])
        more = f" and {len(unknown) - _SHOWN:,} others" if len(unknown) > _SHOWN else ""
        near = suggestion(unknown[0], places)
        several = len(places) > _MOST_NAMED and not near.startswith("did")
        fix = f"its nodes are {log.node_names[0]} to {log.node_names[-1]}" if several else near
        raise BadInput(f"the log has no {shown}{more}", where=where, fix=fix)
    return np.array(sorted({places[name] for name in names}), dtype=np.int64)


def chosen_window(log: EventLog, text: str, *, where: str = "window") -> tuple[float, float]:
    """Find the begin and end of ``A..B`` (seconds UTC); an end left out is the log's own."""
    begin_s, end_s = window(text, where)
    begin_s, end_s = log.start_s if begin_s is None else begin_s, log.end_s if end_s is None else end_s
    if not log.start_s <= begin_s <= end_s <= log.end_s:
        raise BadInput(
            f"'{text}' does not lie within the log",
            where=where,
            fix=f"the log goes from {log.start_s!r} to {log.end_s!r} seconds UTC{_on_the_calendar(log)}",
        )
    return begin_s, end_s


def _on_the_calendar(log: EventLog) -> str:
    """Give the log's window as one may type it, where the calendar reaches so far."""
    try:
        begin, end = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}" for at in (log.start_s, log.end_s))
    except (OverflowError, ValueError, OSError):
        return ""
    return f", {begin}..{end}"
