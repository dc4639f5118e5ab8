"""Files with node kinds: ``kind = "node set"`` in TOML, or the columns ``nodes`` and ``kind`` in CSV."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from bftrain import toml_io
from bftrain.errors import BadInput
from bftrain.files import CsvFile, by_suffix, whole_text
from bftrain_datasets.log.edits import chosen_nodes, places_by_name
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.log_columns import is_node_name

Named = tuple[str, str, str]  # kind, node set, and its place

FILE: Final = "kinds file"
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
        number = kinds.index(kind)
        chosen = np.arange(len(log.node_names))[chosen_nodes(log, text, where=where, known=places)]
        twice = chosen[(found[chosen] != _NONE) & (found[chosen] != number)]
        if twice.size:
            node = log.node_names[int(twice[0])]
            what = f"node '{node}' is of kind '{kinds[found[twice[0]]]}' and of kind '{kind}'"
            raise BadInput(what, where=where, fix="assign every node one kind")
        found[chosen] = number
    lacking = np.flatnonzero(found == _NONE)
    if lacking.size:
        others = f" and {lacking.size - 1:,} others of the log" if lacking.size > 1 else ""
        what = f"has no kind of node '{log.node_names[int(lacking[0])]}'{others}"
        raise BadInput(what, where=str(path), fix="add them, or select some nodes of the log")
    counts = ", ".join(f"{kind} {int(np.count_nonzero(found == number)):,}" for number, kind in enumerate(kinds))
    provenance = log.provenance.with_step(f"kinds of nodes from {path.name}: {counts}")
    return replace(log, kind_names=tuple(kinds), node_kinds=found, provenance=provenance)


def named_sets(path: Path, column: str = "kind", remedy: str = REMEDY) -> list[Named]:
    """Return node sets with their key in a TOML file, or their cell in this column of a CSV file."""
    named = list(
        by_suffix(path, {".toml": partial(_toml, remedy=remedy), ".csv": partial(_csv, column, remedy)}, FILE)(path)
    )
    if not named:
        raise BadInput(f"has no {column}", where=str(path), fix=remedy)
    return named


def _toml(path: Path, remedy: str) -> Iterator[Named]:
    for kind, given in toml_io.parse(whole_text(path, FILE), str(path), fix=remedy).items():
        where = f"{path}: {kind}"
        for text in given if isinstance(given, list) else [given]:
            if not isinstance(text, str):
                raise BadInput(f"{text!r:.60} is not a node set", where=where, fix=remedy)
            yield _kind(kind, where), text, where


def _csv(column: str, remedy: str, path: Path) -> Iterator[Named]:
    rows = CsvFile(path)
    header = ("nodes", column)
    if tuple(cell.strip() for cell in rows.header) != header:
        raise BadInput(f"the columns must be nodes and {column}", where=rows.where, fix=remedy)
    for cells in rows.rows():
        if len(cells) != len(header):
            fix = "quote node sets with commas, or use a row for each part"
            raise BadInput(f"the row has {len(cells)} cells instead of {len(header)}", where=rows.where, fix=fix)
        nodes, kind = tuple(cell.strip() for cell in cells)
        yield _kind(kind, rows.where), nodes, rows.where


def _kind(name: str, where: str) -> str:
    if not is_node_name(name):
        raise BadInput(f"{name!r:.40} is not a name of a kind", where=where, fix=REMEDY)
    return name
