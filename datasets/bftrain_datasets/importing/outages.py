"""Times in which single nodes are down or drained, where the records tell of them beside the jobs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from bftrain_datasets.builder import LogBuilder
from bftrain_datasets.eventlog import BUSY, IDLE, NodeState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bftrain_datasets.eventlog import EventLog
    from bftrain_datasets.importing.findings import Tally

DOWN = int(NodeState.DOWN)


class Outages:
    """Collects when which node goes out and comes back, in any order of time."""

    def __init__(self) -> None:
        self._told: dict[str, list[tuple[float, bool, str]]] = {}

    def tell(self, node: str, time_s: float, *, out: bool, why: str = "") -> None:
        """Say that a node goes out, or that it is back. Of several reasons ``why`` each must pass."""
        self._told.setdefault(node, []).append((time_s, out, why))

    def spans(self, node: str) -> list[tuple[float, float]]:
        """Give the times in which a node is out."""
        reasons: set[str] = set()
        begin_s, spans = math.nan, []
        for time_s, out, why in sorted(self._told.get(node, ()), key=lambda each: each[0]):
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

    def mark(self, log: EventLog, tally: Tally) -> EventLog:
        """Make nodes down where they are out and idle."""
        changes = [(node, *each) for node, name in enumerate(log.node_names) for each in self._changes(log, node, name)]
        if not changes:
            return log
        builder = LogBuilder(log.node_names)
        concerned = np.unique([node for node, *_ in changes])
        kept = ~np.isin(log.nodes, concerned)
        builder.add_columns(log.times[log.time_index][kept], log.nodes[kept], log.states[kept])
        for node, time_s, state in changes:
            builder.add(time_s, log.node_names[node], NodeState(state))
        made = builder.build(begin_s=log.start_s, end_s=log.end_s)
        count = sum(len(self.spans(log.node_names[node])) for node in concerned.tolist())
        node_s = log.idle_node_s - made.idle_node_s
        tally.note("node_down", count=count, node_s=node_s, where="")
        return replace(made, provenance=log.provenance)

    def _changes(self, log: EventLog, node: int, name: str) -> Iterator[tuple[float, int]]:
        """All states of a node that is ever out: from when on which."""
        spans = self.spans(name) if name in self._told else []
        if not spans:
            return
        mine = log.nodes == node
        marks = [*zip(log.times[log.time_index[mine]].tolist(), log.states[mine].tolist(), strict=True)]
        edges = {edge for span in spans for edge in span if log.start_s <= edge < log.end_s}
        states, state, place = dict(marks), BUSY, 0
        for time_s in sorted({log.start_s, *states, *edges}):
            state = states.get(time_s, state)
            while place < len(spans) and spans[place][1] <= time_s:
                place += 1
            out = place < len(spans) and spans[place][0] <= time_s
            yield time_s, DOWN if out and state == IDLE else state
