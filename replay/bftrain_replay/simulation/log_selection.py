"""Selection: which part of a log is replayed, and at which of its events the published rules decide."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bftrain.errors import BadInput
from bftrain_datasets.log.log_slice import chosen_nodes, chosen_window
from bftrain_datasets.workloads.saturating import SaturatingWorkload
from bftrain_replay.simulation.replay_settings import CHOSEN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_replay.simulation.replay_settings import ReplaySettings


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSelection:
    """The part of a log that is replayed.

    ``event_times_s`` are the times of the events that count, in seconds since the part begins; its begin is the first.
    """

    log: EventLog
    event_times_s: NDArray[np.float64]


def select(log: EventLog, settings: ReplaySettings) -> LogSelection:
    """Cut the window out, then skip events, then choose nodes: events of all nodes are what is skipped."""
    begin_s, end_s = chosen_window(log, settings.window or "..")
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
    return LogSelection(log=part, event_times_s=(part.times if settings.events == CHOSEN else times) - part.start_s)


def saturating_workload(log: EventLog, settings: ReplaySettings) -> SaturatingWorkload:
    """Return trials that the idle nodes of the part of ``log`` that is replayed cannot do all."""
    return SaturatingWorkload.of(select(log, settings).log.idle_node_s, settings.max_tasks)
