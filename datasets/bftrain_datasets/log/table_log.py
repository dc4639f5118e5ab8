"""The log as rows: the common part of .csv and .parquet files, and the .csv file itself.

One line per change of a node, for people and other tools. The lines of the first time list every node once, to include
nodes that are never idle.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import IO, Final

import numpy as np
from msgspec.structs import replace as replace_struct
from numpy.typing import NDArray

from bftrain.errors import BadInput, suggestion
from bftrain.files import CsvFile
from bftrain.values import wire
from bftrain_datasets.log.eventlog import FORMAT, STATE_WORDS, EventLog, LogBuilder, NodeState
from bftrain_datasets.log.log_columns import is_node_name
from bftrain_datasets.log.provenance import LogProvenance, ProvenanceSource

COLUMNS: Final = ("time", "node", "state")
KIND_COLUMN: Final = "kind"  # an optional fourth column
REMEDY: Final = "the columns are time, node, state and, where nodes differ, kind: see docs/reference/formats.md"
TIME_REMEDY: Final = "times are seconds since 1970-01-01 UTC, such as 1612915732.0"
_STATES: Final = {word: NodeState(number) for number, word in enumerate(STATE_WORDS)}

Note = tuple["str | bytes", str]  # an entry of the metadata, and its place


def seconds(text: str | bytes, where: str, field: str = "time") -> float:
    """Parse a time in seconds UTC."""
    try:
        time_s = float(text)
    except ValueError:
        time_s = math.nan
    if not math.isfinite(time_s):
        raise BadInput(f"{field}: {text!r:.40} is not a time", where=where, fix=TIME_REMEDY)
    return time_s


def checked_name(name: str, where: str, field: str = "node") -> str:
    """Return the name of a node, or of its kind, after a check."""
    if not is_node_name(name):
        what = f"{field}: {name!r:.40} is not a name"
        raise BadInput(what, where=where, fix=f"use a printable {field} name in every row")
    return name


def set_kind(builder: LogBuilder, node: str, kind: str, where: str) -> None:
    """Set a node's kind; raise ``BadInput`` if it already has another kind."""
    try:
        builder.set_kind(node, checked_name(kind, where, "kind"))
    except BadInput as error:
        raise BadInput(error.what, where=where, fix=error.fix) from error


def rows_of(log: EventLog) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.int8]]:
    """Return time, node and state of each row: all nodes at the first time, then the changes."""
    first, later = log.states_at(log.start_s), slice(int(log.offsets[1]), None)
    times = np.concatenate((np.full(first.size, log.start_s), log.times[log.time_index[later]]))
    nodes = np.concatenate((np.arange(first.size, dtype=np.int32), log.nodes[later]))
    return times, nodes, np.concatenate((first, log.states[later]))


def state_of(word: str, where: str) -> NodeState:
    """Parse the state of a node."""
    if word not in _STATES:
        raise BadInput(f"state: {word!r:.40} is not a state", where=where, fix=suggestion(word, _STATES))
    return _STATES[word]


def built(builder: LogBuilder, end_s: float | None, kind: str, where: str) -> EventLog:
    """Return the log of all rows; ``end_s`` defaults to the last row's time."""
    try:
        return builder.build(end_s=end_s, provenance=LogProvenance(made_by=f"reader {kind.lower()}"))
    except BadInput as error:
        raise BadInput(error.what, where=where, fix=error.fix or REMEDY) from error


def with_provenance(log: EventLog, path: Path, kind: str, story: Note | None, checksum: Note | None) -> EventLog:
    """Return the log with the provenance in its file, if present and the checksum matches."""
    if story is None:
        return replace(log, provenance=replace_struct(log.provenance, sources=(ProvenanceSource.of(path),)))
    provenance = wire.decode(story[0], LogProvenance, where=story[1])
    if checksum is None:
        return replace(log, provenance=provenance.with_step(f"read from a {kind} file with no checksum"))
    if checksum[0] not in (log.sha256, log.sha256.encode()):
        raise BadInput(
            "the rows differ from the saved ones: the file was truncated or edited",
            where=checksum[1],
            fix="fetch the file again, or delete this checksum if the change is intended",
        )
    return replace(log, provenance=provenance)


END: Final = "end_s: "
PROVENANCE: Final = "provenance: "
CHECKSUM: Final = "sha256: "
KIND: Final = "CSV"
_PIECE: Final = 100_000  # characters of the provenance on a line; readers accept lines of a mebibyte


def save(log: EventLog, file: IO[bytes]) -> None:
    """Write the log."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    text.write(f"# {FORMAT}\n# {END}{log.end_s!r}\n# {CHECKSUM}{log.sha256}\n")
    text.writelines(f"# {PROVENANCE}{piece}\n" for piece in _pieces(log.provenance.in_json().decode()))
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, KIND_COLUMN) if log.kind_names else COLUMNS)
    names = log.node_names
    kinds: list[tuple[str, ...]] = [(log.kind_names[place],) for place in log.node_kinds.tolist()]
    kinds = kinds or [()] * len(names)
    columns = zip(*(column.tolist() for column in rows_of(log)), strict=True)
    writer.writerows((repr(time_s), names[node], STATE_WORDS[state], *kinds[node]) for time_s, node, state in columns)
    text.detach()


def load(path: Path) -> EventLog:
    """Load the log. Rows may be in any order; ``end_s`` defaults to the last row's time."""
    rows = CsvFile(path)
    header = tuple(cell.strip() for cell in rows.header)
    if header not in {COLUMNS, (*COLUMNS, KIND_COLUMN)}:
        what = "the file is empty" if not rows.header else f"the first row is {','.join(rows.header)!r:.80}"
        raise BadInput(f"not a log: {what}", where=rows.where, fix=REMEDY)
    builder = LogBuilder()
    for cells in rows.rows():
        _add(builder, cells, len(header), rows)
    found = _comment(rows, END)
    end_s = seconds(found[0], found[1], END.rstrip(": ")) if found else None
    log = built(builder, end_s, KIND, rows.where)
    return with_provenance(log, path, KIND, _provenance(rows), _comment(rows, CHECKSUM))


def _add(builder: LogBuilder, cells: list[str], wanted: int, rows: CsvFile) -> None:
    if len(cells) != wanted:
        what = f"the row has {len(cells)} cells instead of {wanted}"
        raise BadInput(what, where=rows.where, fix=f"{REMEDY}; a short last row means a truncated file")
    time, node, state, *kind = (cell.strip() for cell in cells)
    name = checked_name(node, rows.where)
    builder.add(seconds(time, rows.where), name, state_of(state, rows.where))
    for each in kind:
        set_kind(builder, name, each, rows.where)


def _comment(rows: CsvFile, heading: str) -> tuple[str, str] | None:
    for line, text in rows.comments:
        if text.startswith(heading):
            return text.removeprefix(heading), f"{rows.path}:{line}"
    return None


def _provenance(rows: CsvFile) -> tuple[str, str] | None:
    """Return the provenance, which may span several lines, and its place."""
    first = _comment(rows, PROVENANCE)
    if first is None:
        return None
    pieces = (text.removeprefix(PROVENANCE) for _, text in rows.comments if text.startswith(PROVENANCE))
    return "".join(pieces), first[1]


def _pieces(text: str) -> Iterator[str]:
    """Split a text into pieces of bounded length; no piece has trailing space, which readers strip."""
    begin = 0
    while begin < len(text):
        end = min(begin + _PIECE, len(text))
        while end < len(text) and text[end - 1].isspace():
            end += 1
        yield text[begin:end]
        begin = end
