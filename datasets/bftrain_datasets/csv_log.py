"""The ``.csv`` log file: one line for each change of a node, for people and for other tools.

The lines of the first time state every node once, so that nodes that are never idle have their place too.
"""

from __future__ import annotations

import csv
import io
from typing import IO, TYPE_CHECKING, Final

from bftrain.errors import BadInput
from bftrain.values import wire
from bftrain_datasets.builder import LogBuilder
from bftrain_datasets.eventlog import FORMAT, STATE_WORDS, EventLog, NodeState
from bftrain_datasets.storage import CsvFile
from bftrain_datasets.table_log import COLUMNS, REMEDY, built, node_name, seconds, state_of, with_story

if TYPE_CHECKING:
    from pathlib import Path

END: Final = "end_s: "
PROVENANCE: Final = "provenance: "
CHECKSUM: Final = "sha256: "
KIND: Final = "CSV"


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
        what = "the file is empty" if not rows.header else f"the first row is {','.join(rows.header)!r:.80}"
        raise BadInput(f"not a log: {what}", where=rows.where, fix=REMEDY)
    builder = LogBuilder()
    for cells in rows.rows():
        builder.add(*_transition(cells, rows))
    end_s = _end(rows)
    log = built(builder, end_s, KIND, rows.where)
    return with_story(log, path, KIND, _comment(rows, PROVENANCE), _comment(rows, CHECKSUM))


def _transition(cells: list[str], rows: CsvFile) -> tuple[float, str, NodeState]:
    if len(cells) != len(COLUMNS):
        what = f"the row has {len(cells)} cells instead of {len(COLUMNS)}"
        raise BadInput(what, where=rows.where, fix=f"{REMEDY}; a short last row means that the file is cut off")
    time, node, state = (cell.strip() for cell in cells)
    return seconds(time, rows.where), node_name(node, rows.where), state_of(state, rows.where)


def _comment(rows: CsvFile, heading: str) -> tuple[str, str] | None:
    """Find the comment that begins with ``heading``: the rest of it, and where it stands."""
    for line, text in rows.comments:
        if text.startswith(heading):
            return text.removeprefix(heading), f"{rows.path}:{line}"
    return None


def _end(rows: CsvFile) -> float | None:
    found = _comment(rows, END)
    return seconds(found[0], found[1], END.rstrip(": ")) if found else None
