"""The ``.csv`` log file: one line for each change of a node, for people and for other tools.

The lines of the first time state every node once, so that nodes that are never idle have their place too.
"""

from __future__ import annotations

import csv
import io
from typing import IO, TYPE_CHECKING, Final

from bftrain.errors import BadInput
from bftrain.files import CsvFile
from bftrain_datasets.log.builder import LogBuilder
from bftrain_datasets.log.eventlog import FORMAT, STATE_WORDS, EventLog
from bftrain_datasets.log.table_log import (
    COLUMNS,
    KIND_COLUMN,
    REMEDY,
    built,
    kind_name,
    node_name,
    seconds,
    state_of,
    with_story,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

END: Final = "end_s: "
PROVENANCE: Final = "provenance: "
CHECKSUM: Final = "sha256: "
KIND: Final = "CSV"
_PIECE: Final = 100_000  # characters of the provenance on a line; readers take lines of a mebibyte


def save(log: EventLog, file: IO[bytes]) -> None:
    """Write the log."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    text.write(f"# {FORMAT}\n# {END}{log.end_s!r}\n# {CHECKSUM}{log.sha256}\n")
    text.writelines(f"# {PROVENANCE}{piece}\n" for piece in _pieces(log.provenance.in_json().decode()))
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, KIND_COLUMN) if log.kind_names else COLUMNS)
    start_s = repr(log.start_s)
    first = log.states_at(log.start_s).tolist()
    names = log.node_names
    kinds: list[tuple[str, ...]] = [(log.kind_names[place],) for place in log.node_kinds.tolist()]
    kinds = kinds or [()] * len(names)
    writer.writerows(
        (start_s, name, STATE_WORDS[state], *kind) for name, state, kind in zip(names, first, kinds, strict=True)
    )
    later = slice(int(log.offsets[1]), None)
    columns = zip(
        log.times[log.time_index[later]].tolist(), log.nodes[later].tolist(), log.states[later].tolist(), strict=True
    )
    writer.writerows((repr(time_s), names[node], STATE_WORDS[state], *kinds[node]) for time_s, node, state in columns)
    text.detach()


def load(path: Path) -> EventLog:
    """Read the log. Rows may come in any order; without an ``end_s`` the log ends with its last row."""
    rows = CsvFile(path)
    header = tuple(cell.strip() for cell in rows.header)
    if header not in {COLUMNS, (*COLUMNS, KIND_COLUMN)}:
        what = "the file is empty" if not rows.header else f"the first row is {','.join(rows.header)!r:.80}"
        raise BadInput(f"not a log: {what}", where=rows.where, fix=REMEDY)
    builder = LogBuilder()
    for cells in rows.rows():
        _add(builder, cells, len(header), rows)
    end_s = _end(rows)
    log = built(builder, end_s, KIND, rows.where)
    return with_story(log, path, KIND, _provenance(rows), _comment(rows, CHECKSUM))


def _add(builder: LogBuilder, cells: list[str], wanted: int, rows: CsvFile) -> None:
    if len(cells) != wanted:
        what = f"the row has {len(cells)} cells instead of {wanted}"
        raise BadInput(what, where=rows.where, fix=f"{REMEDY}; a short last row means that the file is cut off")
    time, node, state, *kind = (cell.strip() for cell in cells)
    name = node_name(node, rows.where)
    builder.add(seconds(time, rows.where), name, state_of(state, rows.where))
    for each in kind:
        _tell_kind(builder, name, kind_name(each, rows.where), rows.where)


def _tell_kind(builder: LogBuilder, node: str, kind: str, where: str) -> None:
    try:
        builder.tell_kind(node, kind)
    except BadInput as error:
        raise BadInput(error.what, where=where, fix=error.fix) from error


def _comment(rows: CsvFile, heading: str) -> tuple[str, str] | None:
    """Find the comment that begins with ``heading``: the rest of it, and where it stands."""
    for line, text in rows.comments:
        if text.startswith(heading):
            return text.removeprefix(heading), f"{rows.path}:{line}"
    return None


def _provenance(rows: CsvFile) -> tuple[str, str] | None:
    """Return the provenance, which may fill several lines, and where it begins."""
    first = _comment(rows, PROVENANCE)
    if first is None:
        return None
    pieces = (text.removeprefix(PROVENANCE) for _, text in rows.comments if text.startswith(PROVENANCE))
    return "".join(pieces), first[1]


def _pieces(text: str) -> Iterator[str]:
    """Cut a text into pieces for lines that are not too long to be read; none ends in space, which readers cut off."""
    begin = 0
    while begin < len(text):
        end = min(begin + _PIECE, len(text))
        while end < len(text) and text[end - 1].isspace():
            end += 1
        yield text[begin:end]
        begin = end


def _end(rows: CsvFile) -> float | None:
    found = _comment(rows, END)
    return seconds(found[0], found[1], END.rstrip(": ")) if found else None
