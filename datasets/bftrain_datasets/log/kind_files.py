"""Kinds of nodes out of a file: ``kind = "node set"`` in TOML, or the columns ``nodes`` and ``kind`` in CSV."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from bftrain.errors import BadInput
from bftrain.files import CsvFile, by_suffix, whole_text
from bftrain.nodesets import expand
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.log_checks import is_node_name
from bftrain_datasets.log.log_slice import NODES_REMEDY, SLICE, chosen_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Named = tuple[str, str, str]  # kind, node set, and where that stands

FILE: Final = "kinds file"
HEADER: Final = ("nodes", "kind")
REMEDY: Final = 'write v100 = "n[001-036]" in a .toml, or the columns nodes and kind in a .csv'
_NONE: Final = -1


def with_kinds(log: EventLog, path: Path | str) -> EventLog:
    """Give the log with the kinds of its nodes as the file tells them.

    Nodes that the log does not have are passed by, since a file may tell of a whole machine; but every node of the log
    must have one kind.
    """
    path = Path(path)
    named = list(by_suffix(path, {".toml": _toml, ".csv": _csv}, FILE)(path))
    if not named:
        raise BadInput("names no kind", where=str(path), fix=REMEDY)
    kinds = list(dict.fromkeys(kind for kind, _, _ in named))
    places = {name: place for place, name in enumerate(log.node_names)}
    found = np.full(len(log.node_names), _NONE, dtype=np.int32)
    for kind, text, where in named:
        chosen, number = _chosen(log, places, text, where), kinds.index(kind)
        twice = chosen[(found[chosen] != _NONE) & (found[chosen] != number)]
        if twice.size:
            node = log.node_names[int(twice[0])]
            what = f"node '{node}' is of kind '{kinds[found[twice[0]]]}' and of kind '{kind}'"
            raise BadInput(what, where=where, fix="give every node one kind")
        found[chosen] = number
    lacking = np.flatnonzero(found == _NONE)
    if lacking.size:
        others = f" and {lacking.size - 1:,} others of the log" if lacking.size > 1 else ""
        what = f"tells no kind of node '{log.node_names[int(lacking[0])]}'{others}"
        raise BadInput(what, where=str(path), fix="name them all, or choose some nodes of the log")
    counts = ", ".join(f"{kind} {int(np.count_nonzero(found == number)):,}" for number, kind in enumerate(kinds))
    story = log.provenance.and_then(f"kinds of nodes from {path.name}: {counts}")
    return replace(log, kind_names=tuple(kinds), node_kinds=found, provenance=story)


def _chosen(log: EventLog, places: dict[str, int], text: str, where: str) -> NDArray[np.int64]:
    if SLICE.match(text):
        chosen = chosen_nodes(log, text, where=where)
        return np.arange(len(log.node_names))[chosen]
    try:
        names = expand(text)
    except ValueError as error:
        raise BadInput(f"{text!r:.60} is no node set: {error}", where=where, fix=NODES_REMEDY) from error
    return np.array([places[name] for name in names if name in places], dtype=np.int64)


def _toml(path: Path) -> Iterator[Named]:
    try:
        document = tomllib.loads(whole_text(path, FILE))
    except tomllib.TOMLDecodeError as error:
        raise BadInput(f"not valid TOML: {error}", where=str(path), fix=REMEDY) from error
    for kind, given in document.items():
        where = f"{path}: {kind}"
        for text in given if isinstance(given, list) else [given]:
            if not isinstance(text, str):
                raise BadInput(f"{text!r:.60} is no node set", where=where, fix=REMEDY)
            yield _kind(kind, where), text, where


def _csv(path: Path) -> Iterator[Named]:
    rows = CsvFile(path)
    if tuple(cell.strip() for cell in rows.header) != HEADER:
        raise BadInput("the columns must be nodes and kind", where=rows.where, fix=REMEDY)
    for cells in rows.rows():
        nodes, kind = _pair(cells, rows.where)
        yield _kind(kind, rows.where), nodes, rows.where


def _pair(cells: list[str], where: str) -> tuple[Any, ...]:
    if len(cells) != len(HEADER):
        fix = "put quotes around a node set with commas, or give each of them a row"
        raise BadInput(f"the row has {len(cells)} cells instead of {len(HEADER)}", where=where, fix=fix)
    return tuple(cell.strip() for cell in cells)


def _kind(name: str, where: str) -> str:
    if not is_node_name(name):
        raise BadInput(f"{name!r:.40} is no name of a kind", where=where, fix=REMEDY)
    return name
