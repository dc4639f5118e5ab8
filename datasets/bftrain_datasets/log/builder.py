"""LogBuilder: builds every EventLog. Readers add transitions; the builder sorts, merges and counts them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain_datasets.log.eventlog import BUSY, EventLog, NodeState
from bftrain_datasets.log.log_columns import pack_changes
from bftrain_datasets.log.provenance import LogProvenance

COUNTS: Final = ("transitions", "used", "superseded", "repeated", "stated_busy")  # outcomes of transitions
FIX_ORDER: Final = "set begin_s and end_s so that they enclose all transitions, or omit them"


class LogBuilder:
    """Collects transitions ``(time, node, state)`` in any order, and builds the log from them.

    - Nodes are indexed by ``node_names``, then by first mention. All are busy until mentioned.
    - If a node has several transitions at the same time, the last added wins; the rest are counted as ``superseded``.
    - An unchanged state is counted as ``repeated``; ``busy`` as a node's first state only declares the node and is
      counted as ``stated_busy``.
    - A node has exactly one kind, if nodes have kinds.
    - ``transitions = used + superseded + repeated + stated_busy``, always; the counts go into the provenance.
    """

    def __init__(self, node_names: Iterable[str] = ()) -> None:
        self._places: dict[str, int] = {}
        self._kinds: dict[str, str] = {}
        self._times = array("d")
        self._nodes = array("i")
        self._states = array("b")
        for name in node_names:
            self.place(name)

    def place(self, name: str) -> int:
        """Return the index of the node ``name``; a new name gets the next index."""
        return self._places.setdefault(name, len(self._places))

    def set_kind(self, node: str, kind: str) -> None:
        """Set the kind of ``node``."""
        if self._kinds.setdefault(node, kind) != kind:
            what = f"node '{node}' is of kind '{self._kinds[node]}' and of kind '{kind}'"
            raise BadInput(what, where="LogBuilder", fix="give every node one kind")
        self.place(node)

    def add(self, time_s: float, node: str, state: NodeState) -> None:
        """Add the transition of ``node`` to ``state`` at ``time_s`` (seconds UTC)."""
        self._times.append(time_s)
        self._nodes.append(self.place(node))
        self._states.append(state)

    def add_pool_change(self, time_s: float, joined: Iterable[str], left: Iterable[str]) -> None:
        """Add the nodes that joined and left the pool at ``time_s``; a node in both lists left and returned."""
        for name in left:
            self.add(time_s, name, NodeState.BUSY)
        for name in joined:
            self.add(time_s, name, NodeState.IDLE)

    def add_columns(
        self, times: NDArray[np.float64], nodes: NDArray[np.integer[Any]], states: NDArray[np.integer[Any]]
    ) -> None:
        """Add many transitions; ``nodes`` are indices of known nodes."""
        if not times.shape == nodes.shape == states.shape:
            raise BadInput("columns differ in length", where="LogBuilder.add_columns")
        if nodes.size and not 0 <= int(nodes.min()) <= int(nodes.max()) < len(self._places):
            raise BadInput(
                f"indices must lie between 0 and {len(self._places) - 1}",
                where="LogBuilder.add_columns nodes",
                fix="add the nodes first",
            )
        self._times.frombytes(np.ascontiguousarray(times, dtype=np.float64).tobytes())
        self._nodes.frombytes(np.ascontiguousarray(nodes, dtype=np.int32).tobytes())
        self._states.frombytes(np.ascontiguousarray(states, dtype=np.int8).tobytes())

    def build(
        self, *, begin_s: float | None = None, end_s: float | None = None, provenance: LogProvenance | None = None
    ) -> EventLog:
        """Return the log between ``begin_s`` and ``end_s`` in seconds UTC.

        By default it covers the time from the first to the last transition.
        """
        times = np.frombuffer(self._times, dtype=np.float64)
        nodes = np.frombuffer(self._nodes, dtype=np.int32)
        states = np.frombuffer(self._states, dtype=np.int8)
        begin_s, end_s = _observed(times, begin_s, end_s)
        kept, counts = _real_changes(times, nodes, states)
        packed = pack_changes(begin_s, times[kept], nodes[kept], states[kept])
        kind_names, node_kinds = self._kind_columns()
        return EventLog(
            kind_names=kind_names,
            node_kinds=node_kinds,
            node_names=tuple(self._places),
            times=packed[0],
            offsets=packed[1],
            nodes=packed[2],
            states=packed[3],
            end_s=end_s,
            provenance=(provenance or LogProvenance()).with_counts(counts),
        )

    def _kind_columns(self) -> tuple[tuple[str, ...], NDArray[np.int32]]:
        if not self._kinds:
            return (), np.zeros(0, dtype=np.int32)
        lacking = next((name for name in self._places if name not in self._kinds), None)
        if lacking is not None:
            what = f"node '{lacking}' has no kind, but other nodes have"
            raise BadInput(what, where="LogBuilder", fix="set the kind of every node, or of none")
        places = {kind: place for place, kind in enumerate(dict.fromkeys(self._kinds.values()))}
        return tuple(places), np.array([places[self._kinds[name]] for name in self._places], dtype=np.int32)


def log_from_pool_changes(
    changes: Iterable[tuple[float, Iterable[str], Iterable[str]]],
    *,
    node_names: Iterable[str] = (),
    begin_s: float | None = None,
    end_s: float | None = None,
    provenance: LogProvenance | None = None,
    kinds: Mapping[str, str] | None = None,
) -> EventLog:
    """Return a log from ``(time, names that joined the pool, names that left it)``; ``kinds`` are by node name."""
    builder = LogBuilder(node_names)
    for node, kind in (kinds or {}).items():
        builder.set_kind(node, kind)
    for time_s, joined, left in changes:
        builder.add_pool_change(time_s, joined, left)
    return builder.build(begin_s=begin_s, end_s=end_s, provenance=provenance)


def _observed(times: NDArray[np.float64], begin_s: float | None, end_s: float | None) -> tuple[float, float]:
    if times.size == 0:
        if begin_s is None or end_s is None:
            fix = "add at least one row or transition, or set begin_s and end_s"
            raise BadInput("no node changes its state", where="LogBuilder", fix=fix)
        return begin_s, end_s
    if not np.isfinite(times).all():
        raise BadInput("a transition has no finite time", where="LogBuilder")
    first, last = float(times.min()), float(times.max())
    begin_s = first if begin_s is None else begin_s
    end_s = last if end_s is None else end_s
    if begin_s > first:
        raise BadInput(f"starts at {begin_s!r}, after the transition at {first!r}", where="LogBuilder", fix=FIX_ORDER)
    if end_s < last:
        raise BadInput(f"ends at {end_s!r}, before the transition at {last!r}", where="LogBuilder", fix=FIX_ORDER)
    return begin_s, end_s


def _real_changes(
    times: NDArray[np.float64], nodes: NDArray[np.int32], states: NDArray[np.int8]
) -> tuple[NDArray[np.intp], dict[str, int]]:
    order = np.lexsort((times, nodes))  # stable: transitions of a node at the same time keep their insertion order
    node, time_s = nodes[order], times[order]
    same = (node[1:] == node[:-1]) & (time_s[1:] == time_s[:-1])
    last = np.append(~same, np.ones(min(order.size, 1), dtype=np.bool_))
    order = order[last]
    state, node = states[order], nodes[order]
    first = np.ones(order.size, dtype=np.bool_)
    first[1:] = node[1:] != node[:-1]
    repeated = np.zeros(order.size, dtype=np.bool_)
    repeated[1:] = ~first[1:] & (state[1:] == state[:-1])
    stated_busy = first & (state == BUSY)
    kept = order[~repeated & ~stated_busy]
    sizes = (times.size, kept.size, times.size - last.sum(), repeated.sum(), stated_busy.sum())
    return kept, {name: int(size) for name, size in zip(COUNTS, sizes, strict=True)}
