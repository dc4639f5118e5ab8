"""Selection: which part of a log is replayed, and at which of its events the published rules decide."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.errors import BadInput
from bftrain_datasets.importing.moments import window
from bftrain_datasets.importing.nodenames import expand
from bftrain_replay.settings import CHOSEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_datasets.eventlog import EventLog
    from bftrain_replay.settings import ReplaySettings

_SLICE: Final = re.compile(r"(\d*):(\d*)\Z")
_NODES_REMEDY: Final = "write a node set such as nid[0001-0064,70], or a slice such as 0:1024 in the log's own order"
_UNKNOWN_SHOWN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The part of a log that is replayed.

    ``event_times_s`` are the times of the events that count, in seconds since the part begins; its begin is the first.
    """

    log: EventLog
    event_times_s: NDArray[np.float64]


def select(log: EventLog, settings: ReplaySettings) -> Selection:
    """Cut the window out, then skip events, then choose nodes: events of all nodes are what is skipped."""
    begin_s, end_s = window(settings.window) if settings.window else (None, None)
    begin_s, end_s = log.start_s if begin_s is None else begin_s, log.end_s if end_s is None else end_s
    if not log.start_s <= begin_s <= end_s <= log.end_s:
        raise BadInput(
            f"'{settings.window}' does not lie within the log",
            where="window",
            fix=f"the log goes from {log.start_s!r} to {log.end_s!r} seconds UTC",
        )
    inside = log.times[(log.times > begin_s) & (log.times < end_s)]
    times = np.concatenate(([begin_s], inside))
    if settings.skip_events >= times.size:
        raise BadInput(
            f"{settings.skip_events:,} events cannot be skipped",
            where="skip_events",
            fix=f"there are {times.size:,}, the begin included",
        )
    times = times[settings.skip_events :]
    nodes = chosen_nodes(log, settings.nodes) if settings.nodes else None
    if nodes is None and times[0] == log.start_s and end_s == log.end_s:
        part = log  # untouched, so that its content hash stays what it is
    else:
        part = log.select(nodes=nodes, window=(float(times[0]), end_s))
    return Selection(log=part, event_times_s=(part.times if settings.events == CHOSEN else times) - part.start_s)


def chosen_nodes(log: EventLog, text: str) -> slice | NDArray[np.int64]:
    """Find the nodes that a node set names or that a slice cuts out."""
    match = _SLICE.match(text)
    if match:
        first, last = int(match[1] or 0), int(match[2] or len(log.node_names))
        if not 0 <= first < last <= len(log.node_names):
            raise BadInput(f"'{text}' cuts no nodes out of 0:{len(log.node_names)}", where="nodes", fix=_NODES_REMEDY)
        return slice(first, last)
    try:
        names = expand(text)
    except ValueError as error:
        raise BadInput(f"'{text}' is no node set: {error}", where="nodes", fix=_NODES_REMEDY) from error
    places = {name: place for place, name in enumerate(log.node_names)}
    unknown = [name for name in names if name not in places]
    if unknown:
        shown = ", ".join(f"'{name}'" for name in unknown[:_UNKNOWN_SHOWN])
        more = f" and {len(unknown) - _UNKNOWN_SHOWN:,} others" if len(unknown) > _UNKNOWN_SHOWN else ""
        raise BadInput(f"the log has no {shown}{more}", where="nodes", fix=_NODES_REMEDY)
    return np.array(sorted({places[name] for name in names}), dtype=np.int64)
