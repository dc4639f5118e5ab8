"""Logs out of single transitions."""

from __future__ import annotations

from collections.abc import Iterable

from bftrain import EventLog, NodeState
from bftrain_datasets.log.eventlog import LogBuilder
from bftrain_datasets.log.provenance import LogProvenance


def log_from_transitions(
    transitions: Iterable[tuple[float, str, NodeState]],
    *,
    node_names: Iterable[str] = (),
    begin_s: float | None = None,
    end_s: float | None = None,
    provenance: LogProvenance | None = None,
) -> EventLog:
    """Build a log from ``(time, node, state)``."""
    builder = LogBuilder(node_names)
    for time_s, node, state in transitions:
        builder.add(time_s, node, state)
    return builder.build(begin_s=begin_s, end_s=end_s, provenance=provenance)
