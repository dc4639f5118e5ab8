"""EventLog: when nodes were idle, busy or down. All replays read this form.

The log is columnar and sparse: it contains changes, not a matrix of nodes and times. All nodes are busy before their
first change. The pool stays constant between two times.

LogBuilder builds every log: readers add transitions; the builder sorts, merges and counts them.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import InitVar, dataclass, field
from enum import IntEnum
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats
from bftrain.errors import BadInput
from bftrain.node_units import NODE, unit_of, words_of
from bftrain.short_repr import ShortRepr, some
from bftrain.values.events import Event, NodesJoined, NodesLeft
from bftrain_datasets.log.log_columns import (
    checked_column,
    checked_names,
    chosen_places,
    first_mentioned,
    last_changes,
    pack_changes,
    reject,
    sorted_pairs,
    states_before,
    sums_by_time,
)
from bftrain_datasets.log.provenance import LogProvenance


class NodeState(IntEnum):
    """State of a node; log files contain these numbers."""

    BUSY = 0
    IDLE = 1
    DOWN = 2


BUSY: Final = int(NodeState.BUSY)
IDLE: Final = int(NodeState.IDLE)
DOWN: Final = int(NodeState.DOWN)
STATE_WORDS: Final[tuple[str, ...]] = tuple(state.name.lower() for state in NodeState)

# Identifies log files, as their first line, and the hashed content
FORMAT: Final = "bftrain event log 1"

_BLOCK: Final = 4096  # number of times converted to node names in one step, to bound memory


class NodeBlock:
    """Nodes of successive changes: their places in ``node_names``, and the address of these numbers."""

    __slots__ = ("_names", "_node_names", "address", "numbers")

    def __init__(self, numbers: NDArray[np.int64], node_names: NDArray[Any]) -> None:
        self.numbers = numbers
        self.address: int = numbers.ctypes.data
        self._node_names = node_names
        self._names: list[str] | None = None

    def names(self, first: int, end: int) -> tuple[str, ...]:
        """Return the names of some of these nodes."""
        if self._names is None:
            self._names = self._node_names[self.numbers].tolist()
        return tuple(self._names[first:end])


class NodeRun(NamedTuple):
    """The nodes of one change: a part of a block."""

    block: NodeBlock
    first: int
    end: int

    @property
    def names(self) -> tuple[str, ...]:
        """The names of these nodes."""
        return self.block.names(self.first, self.end)


def _with_unit(provenance: LogProvenance, names: Sequence[str]) -> LogProvenance:
    """Return the provenance with the unit of the names; manual logs record it only in the names."""
    unit = unit_of(names) if provenance.unit == NODE else NODE
    return provenance if unit == NODE else msgspec.structs.replace(provenance, unit=unit)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class EventLog(ShortRepr):
    """Changes of node states in time order, from ``times[0]`` to ``end_s`` (seconds, UTC).

    At ``times[i]`` the nodes ``nodes[a:b]`` change to ``states[a:b]``; ``a`` is ``offsets[i]``, ``b`` is
    ``offsets[i+1]``. The nodes are sorted. Each is a real change, never a repeated state. Only the first time, the
    start of observation, may have no changes. ``before`` is each node's state before its change.

    If nodes have kinds, ``node_kinds`` has an index in ``kind_names`` for every node; otherwise both are empty. Kinds
    are numbered by first occurrence. A node never changes its kind.
    """

    node_names: tuple[str, ...]
    times: NDArray[np.float64]
    offsets: NDArray[np.int64]
    nodes: NDArray[np.int32]
    states: NDArray[np.int8]
    end_s: float
    kind_names: tuple[str, ...] = ()
    node_kinds: NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    provenance: LogProvenance = field(default_factory=LogProvenance)
    before: NDArray[np.int8] = field(init=False, repr=False)
    known_before: InitVar[NDArray[np.int8] | None] = None  # ``before``, from code that derives it with the changes
    _digest: str | None = field(init=False, repr=False, default=None)
    _pool_sizes: NDArray[np.int64] | None = field(init=False, repr=False, default=None)
    _last_changes: NDArray[np.int64] | None = field(init=False, repr=False, default=None)
    _kind_of: Mapping[str, str] | None = field(init=False, repr=False, default=None)

    def __post_init__(self, known_before: NDArray[np.int8] | None) -> None:
        self._set("node_names", checked_names(self.node_names))
        self._set("provenance", _with_unit(self.provenance, self.node_names))
        self._set("times", checked_column("times", self.times, np.float64) + 0.0)  # + 0.0 turns -0.0 into 0.0
        self._set("offsets", checked_column("offsets", self.offsets, np.int64))
        self._set("nodes", checked_column("nodes", self.nodes, np.int32))
        self._set("states", checked_column("states", self.states, np.int8))
        times = self.times
        if times.size == 0:
            reject("times", "has no time", "add at least the start of the observation")
        if not np.isfinite(times).all():
            reject("times", f"is not finite at place {np.flatnonzero(~np.isfinite(times))[0]}")
        falls = np.flatnonzero(np.diff(times) <= 0)
        if falls.size:
            reject("times", f"must rise strictly, but does not at place {falls[0] + 1}", "sort and merge equal times")
        try:
            end_s = float(self.end_s) + 0.0
        except (TypeError, ValueError):
            reject("end_s", f"must be a number of seconds, not {self.end_s!r}")
        if not (math.isfinite(end_s) and end_s >= times[-1]):
            reject("end_s", f"is {end_s:g}, before the last time, {times[-1]:g}")
        self._set("end_s", end_s)
        self._check_changes()
        self._set("before", states_before(self.nodes, self.states) if known_before is None else known_before)
        repeated = np.flatnonzero(self.before == self.states)
        if repeated.size:
            reject("states", f"repeats a node's state at change {repeated[0]}", "use LogBuilder, which counts these")
        self._check_kinds()
        for column in (self.times, self.offsets, self.nodes, self.states, self.before, self.node_kinds):
            column.flags.writeable = False

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures of the short representation."""
        words = words_of(self.unit)
        return words("log of idle nodes"), {
            words("nodes"): f"{len(self.node_names):,}",
            **({"kinds": some(self.kind_names)} if self.kind_names else {}),
            "span": text_formats.duration(self.span_s),
            "from": text_formats.moment(self.start_s),
            "events": f"{len(self):,}",
            "idle": (
                f"{text_formats.count(self.idle_node_s / 3600)} {words('node-hours')}, "
                f"{text_formats.percent(self.idle_share)}"
            ),
            "made by": self.provenance.made_by or "-",
        }

    def with_provenance(self, provenance: LogProvenance) -> EventLog:
        """Return the same log with this ``provenance``, without checking its columns again."""
        made = copy(self)
        object.__setattr__(made, "provenance", _with_unit(provenance, self.node_names))
        return made

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _check_changes(self) -> None:
        offsets, nodes, states = self.offsets, self.nodes, self.states
        if offsets.size != self.times.size + 1:
            reject("offsets", f"has {offsets.size} values for {self.times.size} times; it needs one more")
        counts = np.diff(offsets)
        if offsets[0] != 0 or offsets[-1] != nodes.size or (counts < 0).any():
            reject("offsets", f"must rise from 0 to the number of changes, {nodes.size}")
        if (counts[1:] == 0).any():
            reject("offsets", f"has no change at time {1 + np.flatnonzero(counts[1:] == 0)[0]}", "omit that time")
        if states.size != nodes.size:
            reject("states", f"has {states.size} values for {nodes.size} nodes")
        if nodes.size and not 0 <= int(nodes.min()) <= int(nodes.max()) < len(self.node_names):
            reject("nodes", f"must lie between 0 and {len(self.node_names) - 1}")
        if states.size and not 0 <= int(states.min()) <= int(states.max()) < len(NodeState):
            reject("states", f"must lie between 0 and {len(NodeState) - 1}")
        rises = nodes[1:] > nodes[:-1]
        rises[offsets[(offsets > 0) & (offsets < nodes.size)] - 1] = True  # the order restarts at a new time
        if not rises.all():
            reject("nodes", f"must rise within one time, but does not at change {np.flatnonzero(~rises)[0] + 1}")

    def _check_kinds(self) -> None:
        names, kinds = tuple(self.kind_names), checked_column("node_kinds", self.node_kinds, np.int32)
        if kinds.size != (len(self.node_names) if names else 0):
            reject("node_kinds", f"has {kinds.size} values for {len(self.node_names)} nodes, {len(names)} kinds")
        if names:
            checked_names(names, "kind_names")
            if not 0 <= int(kinds.min()) <= int(kinds.max()) < len(names):
                reject("node_kinds", f"must lie between 0 and {len(names) - 1}")
            kinds, used = first_mentioned(kinds)
            names = tuple(names[place] for place in used.tolist())
        self._set("kind_names", names)
        self._set("node_kinds", kinds.astype(np.int32))

    def __eq__(self, other: object) -> bool:
        """Return whether content and provenance are equal."""
        if not isinstance(other, EventLog):
            return NotImplemented
        return self.sha256 == other.sha256 and self.provenance == other.provenance

    def __hash__(self) -> int:
        return hash(self.sha256)

    def __len__(self) -> int:
        return int(self.times.size)

    @property
    def sha256(self) -> str:
        """SHA-256 of names, kinds, changes and end: equal in memory and in all files, without provenance."""
        if self._digest is None:
            digest = hashlib.sha256(f"{FORMAT}\n".encode())
            digest.update("\n".join(self.node_names).encode())
            for column, kind in (
                (self.times, "<f8"),
                (self.offsets, "<i8"),
                (self.nodes, "<i4"),
                (self.states, "<i1"),
                (np.array([self.end_s]), "<f8"),
            ):
                digest.update(b"\n")
                digest.update(np.ascontiguousarray(column, dtype=kind).data)
            if self.kind_names:  # logs without kinds keep the hash of earlier versions
                digest.update(b"\nkinds\n" + "\n".join(self.kind_names).encode())
                digest.update(b"\n" + np.ascontiguousarray(self.node_kinds, dtype="<i4").tobytes())
            self._set("_digest", digest.hexdigest())
        return str(self._digest)

    @property
    def unit(self) -> str:
        """The unit of the log: a ``node``, ``gpu`` or ``core``; GPU and core names look like ``n1/gpu3``."""
        return self.provenance.unit

    @property
    def start_s(self) -> float:
        """Start of the observation, in seconds UTC."""
        return float(self.times[0])

    @property
    def span_s(self) -> float:
        """Length of the observation, in seconds."""
        return self.end_s - self.start_s

    @property
    def joins(self) -> NDArray[np.bool_]:
        """For each change, whether the node joins the pool."""
        return np.equal(self.states, IDLE)

    @property
    def leaves(self) -> NDArray[np.bool_]:
        """For each change, whether the node leaves the pool."""
        return np.equal(self.before, IDLE)

    @property
    def time_index(self) -> NDArray[np.int64]:
        """For each change, the index of its time in ``times``."""
        return np.repeat(np.arange(self.times.size), np.diff(self.offsets))

    @property
    def durations_s(self) -> NDArray[np.float64]:
        """Seconds from each time to the next."""
        return np.diff(self.times, append=self.end_s)

    def pool_sizes(self) -> NDArray[np.int64]:
        """Return the number of idle nodes after each time."""
        sizes = self._pool_sizes
        if sizes is None:
            sizes = self.count_of(IDLE)
            sizes.flags.writeable = False
            self._set("_pool_sizes", sizes)
        return sizes

    def count_of(self, state: int) -> NDArray[np.int64]:
        """Return the number of nodes in ``state`` (a code of ``NodeState``) after each time."""
        change = np.equal(self.states, state).view(np.int8) - np.equal(self.before, state).view(np.int8)
        first = len(self.node_names) if state == BUSY else 0
        return first + np.cumsum(sums_by_time(change, self.offsets))

    def last_changes(self) -> NDArray[np.int64]:
        """Return the index of each node's last change after the start, or -1."""
        last = self._last_changes
        if last is None:
            last = last_changes(self.nodes, int(self.offsets[1]), len(self.node_names))
            last.flags.writeable = False
            self._set("_last_changes", last)
        return last

    @property
    def idle_node_s(self) -> float:
        """Idle time of all nodes, in node-seconds; summed exactly."""
        return math.fsum((self.pool_sizes() * self.durations_s).tolist())

    @property
    def idle_share(self) -> float:
        """Idle fraction of all node-time, 0 to 1."""
        whole = self.span_s * len(self.node_names)
        return self.idle_node_s / whole if whole > 0 else 0.0

    def states_at(self, time_s: float) -> NDArray[np.int8]:
        """Return the state of every node at ``time_s``, after the changes at that time."""
        done = self.offsets[np.searchsorted(self.times, time_s, side="right")]
        states = np.full(len(self.node_names), BUSY, dtype=np.int8)
        states[self.nodes[:done]] = self.states[:done]  # the last of several changes of a node remains
        return states

    def events(self) -> Iterator[Event]:
        """Yield pool changes in time order; at the same time, nodes leave before other nodes join."""
        for time_s, left, joined in self.pool_changes():
            if left:
                yield NodesLeft(time_s=time_s, nodes=left)
            for kind, nodes in self.by_kind(joined):
                yield NodesJoined(time_s=time_s, nodes=nodes, kind=kind)

    @property
    def kind_of(self) -> Mapping[str, str]:
        """The kind of every node by name; empty without kinds."""
        if self._kind_of is None:
            kinds = (self.kind_names[place] for place in self.node_kinds.tolist())
            self._set("_kind_of", dict(zip(self.node_names, kinds, strict=True)) if self.kind_names else {})
        return self._kind_of or {}

    def by_kind(self, nodes: tuple[str, ...]) -> Iterable[tuple[str, tuple[str, ...]]]:
        """Group nodes by kind, in kind order; without kinds in one group; without nodes in no group."""
        if not self.kind_names or not nodes:
            return (("", nodes),) if nodes else ()
        kind_of = self.kind_of
        parts: dict[str, list[str]] = {kind: [] for kind in self.kind_names}
        for node in nodes:
            parts[kind_of[node]].append(node)
        return tuple((kind, tuple(part)) for kind, part in parts.items() if part)

    def pool_changes(self) -> Iterator[tuple[float, tuple[str, ...], tuple[str, ...]]]:
        """Yield ``(time, nodes that left the pool, nodes that joined it)`` for each time at which it changed."""
        return ((time_s, left.names, joined.names) for time_s, left, joined in self.pool_runs())

    def pool_runs(self) -> Iterator[tuple[float, NodeRun, NodeRun]]:
        """Yield the same, without the conversion to names."""
        names = np.array(self.node_names, dtype=object)
        for first in range(0, len(self), _BLOCK):
            last = min(first + _BLOCK, len(self))
            low, high = int(self.offsets[first]), int(self.offsets[last])
            changed, ends = self.nodes[low:high], self.offsets[first : last + 1] - low
            (left, left_ends), (joined, joined_ends) = (
                (
                    NodeBlock(changed[wanted].astype(np.int64), names),
                    np.concatenate(([0], np.cumsum(wanted)))[ends].tolist(),
                )
                for wanted in (np.equal(column[low:high], IDLE) for column in (self.before, self.states))
            )
            for place, time_s in enumerate(self.times[first:last].tolist()):
                gone = NodeRun(left, left_ends[place], left_ends[place + 1])
                come = NodeRun(joined, joined_ends[place], joined_ends[place + 1])
                if gone.first < gone.end or come.first < come.end:
                    yield time_s, gone, come

    def select(
        self,
        *,
        nodes: slice | Sequence[int] | NDArray[np.integer[Any]] | None = None,
        window: tuple[float | None, float | None] | None = None,
    ) -> EventLog:
        """Return a new log with selected nodes, a part of the time, or both.

        The nodes keep their given order. ``window`` is in seconds UTC and must be within the log; ``None`` leaves an
        end open. The new log starts with the states at the window's start.
        """
        chosen = chosen_places(nodes, len(self.node_names))
        begin, end = window or (None, None)
        begin_s = self.start_s if begin is None else float(begin)
        end_s = self.end_s if end is None else float(end)
        if not self.start_s <= begin_s <= end_s <= self.end_s:
            reject(
                "select.window",
                f"from {begin_s!r} to {end_s!r} is not within the log",
                f"the log covers {self.start_s!r} to {self.end_s!r} seconds UTC",
            )
        place = np.full(len(self.node_names), -1, dtype=np.int32)
        place[chosen] = np.arange(chosen.size, dtype=np.int32)
        first = self.states_at(begin_s)[chosen]
        changed = np.flatnonzero(first != BUSY).astype(np.int32)
        at = np.repeat(self.times, np.diff(self.offsets))
        kept = (place[self.nodes] >= 0) & (at > begin_s) & (at < end_s)
        times, offsets, new_nodes, states = pack_changes(
            begin_s,
            np.concatenate((np.full(changed.size, begin_s), at[kept])),
            np.concatenate((changed, place[self.nodes[kept]])),
            np.concatenate((first[changed], self.states[kept])),
        )
        step = f"kept {chosen.size} of {len(self.node_names)} nodes, from {begin_s!r} s to {end_s!r} s"
        return EventLog(
            node_names=tuple(self.node_names[index] for index in chosen.tolist()),
            times=times,
            offsets=offsets,
            nodes=new_nodes,
            states=states,
            end_s=end_s,
            kind_names=self.kind_names,
            node_kinds=self.node_kinds[chosen] if self.kind_names else self.node_kinds,
            provenance=self.provenance.with_step(step),
        )


COUNTS: Final = ("transitions", "used", "superseded", "repeated", "stated_busy")  # outcomes of transitions
FIX_ORDER: Final = "begin_s and end_s must enclose all transitions; or omit both"


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
            what = f"node '{node}' has two kinds, '{self._kinds[node]}' and '{kind}'"
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
        raise BadInput(f"stops at {end_s!r}, before the transition at {last!r}", where="LogBuilder", fix=FIX_ORDER)
    return begin_s, end_s


def _real_changes(
    times: NDArray[np.float64], nodes: NDArray[np.int32], states: NDArray[np.int8]
) -> tuple[NDArray[np.integer[Any]], dict[str, int]]:
    # Transitions of a node at the same time keep their insertion order
    node, places = sorted_pairs(nodes, np.arange(nodes.size))
    order: NDArray[np.integer[Any]] = places
    time_s = times[order]
    if ((node[1:] == node[:-1]) & (time_s[1:] < time_s[:-1])).any():
        order = np.lexsort((times, nodes))
        time_s = times[order]
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
