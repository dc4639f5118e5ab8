"""Selections from a log, its node kinds from files, and edits: marking downtime, closing short idle gaps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain import text_formats, toml_io
from bftrain.errors import BadInput, suggestion
from bftrain.files import CsvFile, by_suffix, whole_text
from bftrain.node_units import NODE, expand_slots, node_of
from bftrain.nodesets import expand
from bftrain.ranges import split_range
from bftrain_datasets.log.eventlog import BUSY, DOWN, IDLE, EventLog, LogBuilder
from bftrain_datasets.log.log_columns import is_node_name
from bftrain_datasets.log.measures import fragments
from bftrain_datasets.log.time_formats import from_end, window

NODES_REMEDY: Final = "write a node set such as nid[0001-0064,70], or a slice such as 0:1024 in the log's own order"
_SHOWN: Final = 3
_MOST_NAMED: Final = 5  # larger logs show a range instead of node names


def chosen_nodes(
    log: EventLog, text: str, *, where: str = "nodes", known: Mapping[str, Sequence[int]] | None = None
) -> slice | NDArray[np.int64]:
    """Return the nodes in a node set or a slice, in log order.

    Unknown names raise ``BadInput``, or are left out if ``known`` has the result of ``places_by_name``.
    """
    ends = split_range(text)
    if ends is not None:
        first, last = int(ends[0] or 0), int(ends[1] or len(log.node_names))
        if not 0 <= first < last <= len(log.node_names):
            raise BadInput(f"'{text}' selects no nodes from 0:{len(log.node_names)}", where=where, fix=NODES_REMEDY)
        return slice(first, last)
    try:
        names = expand(text) if log.unit == NODE else expand_slots(text)
    except ValueError as error:
        raise BadInput(f"'{text}' is not a node set: {error}", where=where, fix=NODES_REMEDY) from error
    return places_of(log, names, where=where, known=known)


def places_by_name(log: EventLog) -> dict[str, list[int]]:
    """Return the indices of each name; in a log of GPUs or cores also of each node, which has several."""
    places: dict[str, list[int]] = {}
    for place, name in enumerate(log.node_names):
        for each in {name, node_of(name)} if log.unit != NODE else (name,):
            places.setdefault(each, []).append(place)
    return places


def places_of(
    log: EventLog, names: Sequence[str], *, where: str = "nodes", known: Mapping[str, Sequence[int]] | None = None
) -> NDArray[np.int64]:
    """Return the indices of nodes, in log order; the ``BadInput`` for an unknown name suggests the nearest name."""
    places = places_by_name(log) if known is None else known
    unknown = [name for name in names if name not in places] if known is None else []
    if unknown:
        shown = ", ".join(f"'{name}'" for name in unknown[:_SHOWN])
        more = f" and {len(unknown) - _SHOWN:,} others" if len(unknown) > _SHOWN else ""
        near = suggestion(unknown[0], log.node_names)
        shows_range = len(log.node_names) > _MOST_NAMED and not near.startswith("did")
        fix = f"its nodes are {log.node_names[0]} to {log.node_names[-1]}" if shows_range else near
        raise BadInput(f"the log has no {shown}{more}", where=where, fix=fix)
    return np.array(sorted({place for name in names for place in places.get(name, ())}), dtype=np.int64)


def chosen_window(log: EventLog, text: str, *, where: str = "window") -> tuple[float, float]:
    """Return the start and end of ``A:B`` or ``last-2w`` in seconds UTC; an open end is the log's own."""
    counted = from_end(text)
    if counted is not None:
        end, seconds = counted
        begin_s, end_s = (None, log.start_s + seconds) if end == "first" else (log.end_s - seconds, None)
    else:
        begin_s, end_s = window(text, where)
    begin_s, end_s = log.start_s if begin_s is None else begin_s, log.end_s if end_s is None else end_s
    if not log.start_s <= begin_s <= end_s <= log.end_s:
        raise BadInput(
            f"'{text}' is not within the log",
            where=where,
            fix=f"the log covers {log.start_s!r} to {log.end_s!r} seconds UTC{_on_the_calendar(log)}",
        )
    return begin_s, end_s


def _on_the_calendar(log: EventLog) -> str:
    """Return the log's window in the option's syntax, if ``datetime`` can represent it."""
    try:
        begin, end = (f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%S}" for at in (log.start_s, log.end_s))
    except (OverflowError, ValueError, OSError):
        return ""
    return f", {begin}:{end}"


def mark_down(log: EventLog, windows: Sequence[tuple[float, float]]) -> EventLog:
    """Mark all nodes as down in these windows (seconds UTC); afterwards they have their recorded states."""
    # Limit windows to the log and merge overlapping or adjacent windows
    cut = sorted((max(low, log.start_s), min(high, log.end_s)) for low, high in windows)
    joined: list[tuple[float, float]] = []
    for low, high in cut:
        if low >= high:
            continue
        if joined and low <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(high, joined[-1][1])
        else:
            joined.append((low, high))
    if not joined:
        return log
    builder = LogBuilder(log.node_names)
    everyone = np.arange(len(log.node_names), dtype=np.int32)
    at = log.times[log.time_index]
    inside = np.zeros(at.size, dtype=np.bool_)
    for begin_s, end_s in joined:
        inside |= (at >= begin_s) & (at < end_s)
    builder.add_columns(at[~inside], log.nodes[~inside], log.states[~inside])
    for begin_s, end_s in joined:
        builder.add_columns(np.full(everyone.size, begin_s), everyone, np.full(everyone.size, DOWN, dtype=np.int8))
        if end_s < log.end_s:
            builder.add_columns(np.full(everyone.size, end_s), everyone, log.states_at(end_s))
    return _built(builder, log)


def mark_nodes_down(log: EventLog, spans: Mapping[int, Sequence[tuple[float, float]]]) -> EventLog:
    """Mark nodes as down in their spans while no job runs there.

    ``spans`` maps indices of nodes to disjoint spans in time order (seconds UTC).
    """
    at = log.times[log.time_index]
    changes = np.flatnonzero(np.isin(log.nodes, np.fromiter(spans, dtype=np.int32)))
    kept = np.ones(at.size, dtype=np.bool_)
    kept[changes] = False
    builder = LogBuilder(log.node_names)
    builder.add_columns(at[kept], log.nodes[kept], log.states[kept])
    changes = changes[np.argsort(log.nodes[changes], kind="stable")]
    nodes = log.nodes[changes]
    for node, of_node in spans.items():
        rows = changes[slice(*np.searchsorted(nodes, [node, node + 1]))]
        starts_s, ends_s = np.array(of_node).T
        times = np.unique(np.concatenate(([log.start_s], at[rows], starts_s, ends_s)))
        times = times[(times >= log.start_s) & (times < log.end_s)]
        states = np.append(BUSY, log.states[rows])[np.searchsorted(at[rows], times, side="right")]
        is_out = np.searchsorted(starts_s, times, side="right") > np.searchsorted(ends_s, times, side="right")
        states[is_out & (states == IDLE)] = DOWN
        builder.add_columns(times, np.full(times.size, node), states)
    return _built(builder, log)


def close_short_gaps(log: EventLog, min_gap_s: float) -> tuple[EventLog, int, float]:
    """Mark idle fragments shorter than ``min_gap_s`` as busy; return the log, their number and node-seconds.

    Fragments cut off at the log's start or end are kept, because their length is unknown.
    """
    pieces = fragments(log)
    short = (pieces.length_s < min_gap_s) & ~pieces.open & (pieces.join > 0)
    if not short.any():
        return log, 0, 0.0
    states = log.states.copy()
    width = len(log)
    keys = log.nodes.astype(np.int64) * width + log.time_index
    joins = np.isin(keys, pieces.node[short].astype(np.int64) * width + pieces.join[short])
    states[joins] = BUSY
    builder = LogBuilder(log.node_names)
    builder.add_columns(log.times[log.time_index], log.nodes, states)
    return _built(builder, log), int(short.sum()), float(pieces.length_s[short].sum())


def leave_earlier(log: EventLog, lead_s: float) -> EventLog:
    """Move departures ``lead_s`` earlier, as if tasks left upon notice; fragments up to that length vanish.

    Nodes that go down do so without notice. A fragment at the beginning of the log keeps at least an instant.
    """
    if lead_s <= 0.0:
        return log
    kept, _, _ = close_short_gaps(log, np.nextafter(lead_s, np.inf))
    at_s = kept.times[kept.time_index]
    instant_s = np.nextafter(kept.start_s, np.inf)
    taken = kept.leaves & (kept.states == BUSY)
    builder = LogBuilder(kept.node_names)
    builder.add_columns(np.where(taken, np.maximum(at_s - lead_s, instant_s), at_s), kept.nodes, kept.states)
    return _built(builder, kept)


def _built(builder: LogBuilder, log: EventLog) -> EventLog:
    """Return a changed log with the period, kinds and provenance of the given log."""
    made = builder.build(begin_s=log.start_s, end_s=log.end_s)
    return replace(made, kind_names=log.kind_names, node_kinds=log.node_kinds, provenance=log.provenance)


NamedSet = tuple[str, str, str]  # name such as a kind, node set, and where it is written

FILE: Final = "node set file"
REMEDY: Final = 'write v100 = "n[001-036]" in a .toml, or the columns nodes and kind in a .csv'
_NONE: Final = -1


def with_kinds(log: EventLog, path: Path | str) -> EventLog:
    """Return the log with the node kinds from a file.

    Nodes outside the log are ignored, because a file may describe a whole machine. Every node of the log must have
    exactly one kind.
    """
    path = Path(path)
    named = named_sets(path)
    kinds = list(dict.fromkeys(kind for kind, _, _ in named))
    places = places_by_name(log)
    found = np.full(len(log.node_names), _NONE, dtype=np.int32)
    for kind, text, where in named:
        if not is_node_name(kind):
            raise BadInput(f"{kind!r:.40} is not a name of a kind", where=where, fix=REMEDY)
        number = kinds.index(kind)
        chosen = np.arange(len(log.node_names))[chosen_nodes(log, text, where=where, known=places)]
        twice = chosen[(found[chosen] != _NONE) & (found[chosen] != number)]
        if twice.size:
            node = log.node_names[int(twice[0])]
            what = f"node '{node}' has two kinds, '{kinds[found[twice[0]]]}' and '{kind}'"
            raise BadInput(what, where=where, fix="assign every node one kind")
        found[chosen] = number
    lacking = np.flatnonzero(found == _NONE)
    if lacking.size:
        others = f" and {text_formats.counted(lacking.size - 1, 'other node')}" if lacking.size > 1 else ""
        what = f"assigns no kind to node '{log.node_names[int(lacking[0])]}'{others}"
        raise BadInput(what, where=str(path), fix="add them, or select some nodes of the log")
    counts = ", ".join(f"{kind} {int(np.count_nonzero(found == number)):,}" for number, kind in enumerate(kinds))
    provenance = log.provenance.with_step(f"kinds of nodes from {path.name}: {counts}")
    return replace(log, kind_names=tuple(kinds), node_kinds=found, provenance=provenance)


def named_sets(path: Path, column: str = "kind", remedy: str = REMEDY) -> list[NamedSet]:
    """Return node sets with their key in a TOML file, or their cell in this column of a CSV file."""
    parsers: Mapping[str, Callable[[], Iterator[NamedSet]]] = {
        ".toml": partial(_toml, path, remedy),
        ".csv": partial(_csv, path, column, remedy),
    }
    named = list(by_suffix(path, parsers, FILE)())
    if not named:
        raise BadInput(f"has no {column}", where=str(path), fix=remedy)
    return named


def _toml(path: Path, remedy: str) -> Iterator[NamedSet]:
    for kind, given in toml_io.parse(whole_text(path, FILE), str(path), fix=remedy).items():
        where = f"{path}: {kind}"
        for text in given if isinstance(given, list) else [given]:
            if not isinstance(text, str):
                raise BadInput(f"{text!r:.60} is not a node set", where=where, fix=remedy)
            yield kind, text, where


def _csv(path: Path, column: str, remedy: str) -> Iterator[NamedSet]:
    rows = CsvFile(path)
    header = ("nodes", column)
    if tuple(cell.strip() for cell in rows.header) != header:
        raise BadInput(f"the columns must be nodes and {column}", where=rows.where, fix=remedy)
    for cells in rows.rows():
        if len(cells) != len(header):
            fix = "quote node sets with commas, or use a row for each part"
            raise BadInput(f"the row has {len(cells)} cells instead of {len(header)}", where=rows.where, fix=fix)
        nodes, kind = tuple(cell.strip() for cell in cells)
        yield kind, nodes, rows.where
