"""The ``.csv`` log file: one line for each change of a node, for people and for other tools.

The lines of the first time state every node once, so that nodes that are never idle have their place too.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Final

from msgspec.structs import replace as replace_struct

from bftrain.errors import BadInput, suggestion
from bftrain.values import wire
from bftrain_datasets.builder import LogBuilder
from bftrain_datasets.eventlog import FORMAT, STATE_WORDS, EventLog, NodeState
from bftrain_datasets.provenance import Provenance, Source
from bftrain_datasets.storage import CsvFile

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS: Final = ("time", "node", "state")
END: Final = "end_s: "
PROVENANCE: Final = "provenance: "
CHECKSUM: Final = "sha256: "
REMEDY: Final = "the columns are time,node,state; docs/formats.md describes them"
TIME_REMEDY: Final = "times are seconds since 1970-01-01 UTC, such as 1612915732.0"
_STATES: Final = {word: NodeState(number) for number, word in enumerate(STATE_WORDS)}


def save(log: EventLog, file: IO[bytes]) -> None:
    """Write the log."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    story = wire.encode(log.provenance).decode()
    text.write(f"# {FORMAT}\n# {END}{log.end_s!r}\n# {CHECKSUM}{log.sha256}\n# {PROVENANCE}{story}\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    start_s = repr(log.start_s)
    first = log.states_at(log.start_s).tolist()
    writer.writerows((start_s, name, STATE_WORDS[state]) for name, state in zip(log.node_names, first, strict=True))
    later = slice(int(log.offsets[1]), None)
    columns = zip(
        log.times[log.time_index[later]].tolist(), log.nodes[later].tolist(), log.states[later].tolist(), strict=True
    )
    names = log.node_names
    writer.writerows((repr(time_s), names[node], STATE_WORDS[state]) for time_s, node, state in columns)
    text.detach()


def load(path: Path) -> EventLog:
    """Read the log. Rows may come in any order; without an ``end_s`` the log ends with its last row."""
    rows = CsvFile(path)
    if [cell.strip() for cell in rows.header] != list(COLUMNS):
        what = "the file is empty" if not rows.header else f"the first row is {','.join(rows.header)!r}"
        raise BadInput(f"not a log: {what}", where=rows.where, fix=REMEDY)
    builder = LogBuilder()
    for cells in rows.rows():
        builder.add(*_transition(cells, rows))
    end_s = _end(rows)
    try:
        log = builder.build(end_s=end_s, provenance=Provenance(made_by="reader csv"))
    except BadInput as error:
        raise BadInput(error.what, where=rows.where, fix=error.fix or REMEDY) from error
    return _with_story(log, rows)


def _transition(cells: list[str], rows: CsvFile) -> tuple[float, str, NodeState]:
    if len(cells) != len(COLUMNS):
        what = f"the row has {len(cells)} cells instead of {len(COLUMNS)}"
        raise BadInput(what, where=rows.where, fix=f"{REMEDY}; a short last row means that the file is cut off")
    time, node, state = cells
    return seconds(time, rows.where), node_name(node, rows.where), state_of(state, rows.where)


def seconds(text: str, where: str, field: str = "time") -> float:
    """Read a time in seconds UTC."""
    try:
        time_s = float(text)
    except ValueError:
        time_s = math.nan
    if not math.isfinite(time_s):
        raise BadInput(f"{field}: {text.strip()!r} is no time", where=where, fix=TIME_REMEDY)
    return time_s


def node_name(text: str, where: str) -> str:
    """Read the name of a node."""
    name = text.strip()
    if not name or not name.isprintable():
        raise BadInput(f"node: {name!r} is no name", where=where, fix="give every row a printable node name")
    return name


def state_of(text: str, where: str) -> NodeState:
    """Read the state of a node."""
    word = text.strip()
    if word not in _STATES:
        raise BadInput(f"state: there is no state '{word}'", where=where, fix=suggestion(word, _STATES))
    return _STATES[word]


def _comment(rows: CsvFile, heading: str) -> tuple[str, str] | None:
    """Find the comment that begins with ``heading``: the rest of it, and where it stands."""
    for line, text in rows.comments:
        if text.startswith(heading):
            return text.removeprefix(heading), f"{rows.path}:{line}"
    return None


def _end(rows: CsvFile) -> float | None:
    found = _comment(rows, END)
    return seconds(found[0], found[1], END.rstrip(": ")) if found else None


def _with_story(log: EventLog, rows: CsvFile) -> EventLog:
    """Give the log the story in its file, if it has one and the rows are still those it belongs to."""
    told = _comment(rows, PROVENANCE)
    if told is None:
        return replace(log, provenance=replace_struct(log.provenance, sources=(Source.of(rows.path),)))
    provenance = wire.decode(told[0], Provenance, where=told[1])
    checksum = _comment(rows, CHECKSUM)
    if checksum is None:
        return replace(log, provenance=provenance.and_then("read from a CSV file without a checksum"))
    if checksum[0] != log.sha256:
        raise BadInput(
            "the rows are not those that were saved: the file was cut off or edited",
            where=checksum[1],
            fix="fetch the file again, or delete this line if the change is meant",
        )
    return replace(log, provenance=provenance)
