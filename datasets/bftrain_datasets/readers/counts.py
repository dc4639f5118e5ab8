"""A series of counts: how many nodes are busy at each time, in columns with a header."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from bftrain.errors import BadInput
from bftrain.nodesets import MOST_NODES
from bftrain_datasets.importing.node_counts import UNKNOWN_TOTAL
from bftrain_datasets.importing.text_cells import first_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bftrain_datasets.importing.job_checks import RecordIntake
    from bftrain_datasets.importing.raw_file import RawFile

name: Final = "counts"
about: Final = "how many nodes are busy: time,active,total, or idle instead of active"

TIME, ACTIVE, IDLE, TOTAL = "time", "active", "idle", "total"
ALIASES: Final = {
    **dict.fromkeys(("time", "timestamp", "datetime", "date", "epoch"), TIME),
    **dict.fromkeys(("active", "busy", "used", "allocated", "alloc"), ACTIVE),
    **dict.fromkeys(("idle", "free"), IDLE),
    **dict.fromkeys(("total", "nodes", "capacity"), TOTAL),
}
SEPARATORS: Final = ",;\t|"
COMMENT: Final = "#"
HEADER_WITHIN: Final = 5  # lines
REMEDY: Final = "the first line names the columns: time, active (or idle) and, if it changes, total"
_WHOLE: Final = 1e-9


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where the columns stand; ``None`` for one that is not there."""

    separator: str
    width: int
    time: int
    active: int | None
    idle: int | None
    total: int | None


def _header(line: str) -> _Layout | None:
    """Read a line as a header, if it is one: it names a time, and how many nodes are busy or idle."""
    separator = next((each for each in SEPARATORS if each in line), None)
    if separator is None:
        return None
    words = [word.strip().strip('"').lower() for word in line.split(separator)]
    columns = [ALIASES.get(word) for word in words]
    known = [column for column in columns if column]
    if len(known) != len(set(known)) or TIME not in known or not {ACTIVE, IDLE} & set(known):
        return None
    places = {column: place for place, column in enumerate(columns) if column}
    return _Layout(separator, len(words), places[TIME], places.get(ACTIVE), places.get(IDLE), places.get(TOTAL))


def recognises(head: bytes) -> bool:
    """Say whether one of the first lines is a header of ours."""
    plain = [line for line in first_lines(head) if line.strip() and not line.startswith(COMMENT)]
    return any(_header(line) for line in plain[:HEADER_WITHIN])


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every count."""
    layout: _Layout | None = None
    for number, line in file.lines():
        if not line.strip() or line.startswith(COMMENT):
            continue
        if layout is None or line[0].isalpha() or line[0] == '"':
            header = _header(line)
            if header is not None:
                layout = header
                _check(layout, intake, file.name)
                continue
        intake.row(number)
        cells = [cell.strip().strip('"') for cell in line.split(layout.separator)] if layout else []
        if layout is None or len(cells) != layout.width:
            intake.set_aside("malformed")
            continue
        _take(cells, layout, intake)
    if layout is None:
        raise BadInput("no header", where=file.name, fix=REMEDY)


def _check(layout: _Layout, intake: RecordIntake, where: str) -> None:
    """Refuse counts of idle nodes where it is not known of how many."""
    if layout.active is None and layout.total is None and _machine(intake) is None:
        raise BadInput(
            "only idle nodes are counted, and of how many is not said", where=where, fix="give --counts --nodes N"
        )


def _machine(intake: RecordIntake) -> int | None:
    """How many nodes the options say there are."""
    options = intake.options
    return len(options.nodes) if options.nodes is not None else options.node_count


def _take(cells: Sequence[str], layout: _Layout, intake: RecordIntake) -> None:
    try:
        time_s = intake.seconds(cells[layout.time])
    except (ValueError, OverflowError):
        intake.set_aside("bad_time")
        return
    try:
        found = [
            None if place is None else _count(cells[place]) for place in (layout.active, layout.idle, layout.total)
        ]
    except ValueError:
        intake.set_aside("bad_count")
        return
    active, idle, total = found
    if total is None:
        total = active + idle if active is not None and idle is not None else _machine(intake)
    if active is None:
        if idle is None or total is None or idle > total:
            intake.set_aside("bad_count")
            return
        active = total - idle
    intake.counted(time_s, active, UNKNOWN_TOTAL if total is None else total)
    intake.use()


def _count(text: str) -> int:
    """Read a number of nodes; a mean such as 3.2 is rounded up. ``ValueError`` if no machine can have so many."""
    number = float(text)
    if not 0 <= number <= MOST_NODES:  # NaN too
        raise ValueError(f"{text!r} is no number of nodes")
    return math.ceil(number - _WHOLE)
