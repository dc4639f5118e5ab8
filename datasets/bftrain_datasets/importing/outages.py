"""Times in which single nodes are down or drained, where the records tell of them beside the jobs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bftrain_datasets.log.builder import LogBuilder
from bftrain_datasets.log.eventlog import BUSY, DOWN, IDLE, NodeState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bftrain_datasets.importing.findings import FindingsTally
    from bftrain_datasets.log.eventlog import EventLog


class NodeOutages:
    """Collects when which node goes out and comes back, in any order of time."""

    def __init__(self) -> None:
        self._reports: dict[str, list[tuple[float, bool, str]]] = {}

    def tell(self, node: str, time_s: float, *, out: bool, why: str = "") -> None:
        """Say that a node goes out, or that it is back. Of several reasons ``why`` each must pass."""
        self._reports.setdefault(node, []).append((time_s, out, why))

    def spans(self, node: str) -> list[tuple[float, float]]:
        """Give the times in which a node is out."""
        reasons: set[str] = set()
        begin_s, spans = math.nan, []
        for time_s, out, why in sorted(self._reports.get(node, ()), key=lambda each: each[0]):
            was_out = bool(reasons)
            if out:
                reasons.add(why)
            elif why:
                reasons.discard(why)
            else:
                reasons.clear()
            if reasons and not was_out:
                begin_s = time_s
            elif was_out and not reasons:
                spans.append((begin_s, time_s))
        if reasons:
            spans.append((begin_s, math.inf))
        return spans

    def mark(self, log: EventLog, tally: FindingsTally) -> EventLog:
        """Make nodes down where they are out and idle."""
        spans = {node: self.spans(name) for node, name in enumerate(log.node_names) if name in self._reports}
        spans = {node: found for node, found in spans.items() if found}
        if not spans:
            return log
        concerned = np.isin(log.nodes, np.fromiter(spans, dtype=np.int32))
        at = log.times[log.time_index]
        builder = LogBuilder(log.node_names)
        builder.add_columns(at[~concerned], log.nodes[~concerned], log.states[~concerned])
        order = np.flatnonzero(concerned)[np.argsort(log.nodes[concerned], kind="stable")]
        for node, found in spans.items():
            low, high = np.searchsorted(log.nodes[order], [node, node + 1]).tolist()
            mine = order[low:high]
            states = dict(zip(at[mine].tolist(), log.states[mine].tolist(), strict=True))
            for time_s, state in _with_outages(states, found, log.start_s, log.end_s):
                builder.add(time_s, log.node_names[node], NodeState(state))
        made = builder.build(begin_s=log.start_s, end_s=log.end_s)
        count = sum(map(len, spans.values()))
        tally.note("node_down", count=count, node_s=log.idle_node_s - made.idle_node_s, where="")
        return replace(made, kind_names=log.kind_names, node_kinds=log.node_kinds, provenance=log.provenance)


def _with_outages(
    states: dict[float, int], spans: list[tuple[float, float]], begin_s: float, end_s: float
) -> Iterator[tuple[float, int]]:
    """States of a node by time: those that it has, but down where it would be idle while it is out."""
    edges = {edge for span in spans for edge in span if begin_s <= edge < end_s}
    state, place = BUSY, 0
    for time_s in sorted({begin_s, *states, *edges}):
        state = states.get(time_s, state)
        while place < len(spans) and spans[place][1] <= time_s:
            place += 1
        out = place < len(spans) and spans[place][0] <= time_s
        yield time_s, DOWN if out and state == IDLE else state
