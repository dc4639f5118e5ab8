"""Numbers of busy nodes over time, from any monitoring system: a table with a header.

Nodes are numbered (``which_unknown``): pool sizes are right, but idle times of single nodes are too long.

| column | required | meaning |
|---|---|---|
| ``time``, ``timestamp``, ``datetime``, ``date``, ``epoch`` | yes | epoch or ISO time |
| ``active``, ``busy``, ``used``, ``allocated``, ``alloc`` | yes | busy nodes; or ``idle`` |
| ``idle``, ``free`` | | idle nodes |
| ``total``, ``nodes``, ``capacity`` | | all nodes; otherwise ``--nodes N`` or the largest count |
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from bftrain.errors import BadInput
from bftrain.node_units import CORE, GPU
from bftrain.nodesets import MOST_NODES
from bftrain_datasets.importing.findings import SkippedRow
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.node_counts import UNKNOWN_TOTAL
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_columns import HEADER_WITHIN, first_lines

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
tells_units: Final = (GPU, CORE)  # the resources in the records
REMEDY: Final = "the first line names the columns: time, active (or idle) and, if it changes, total"
_ROUNDING: Final = 1e-9  # tolerance of a mean that should be whole


_Layout = tuple[str, int, dict[str, int]]  # the separator, the number of columns, and the index of each known column


def _header(line: str) -> _Layout | None:
    """Return the layout of a header line with a time and a busy or idle count, or None."""
    separator = next((each for each in SEPARATORS if each in line), None)
    if separator is None:
        return None
    columns = [ALIASES.get(word.strip().strip('"').lower()) for word in line.split(separator)]
    places = {column: place for place, column in enumerate(columns) if column}
    if len(places) != len(columns) - columns.count(None) or TIME not in places or not {ACTIVE, IDLE} & set(places):
        return None
    return separator, len(columns), places


def recognises(head: bytes) -> bool:
    """Return whether one of the first lines is such a header."""
    plain = [line for line in first_lines(head) if line.strip() and not line.startswith(COMMENT)]
    return any(_header(line) for line in plain[:HEADER_WITHIN])


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every count."""
    intake.take_rows(_rows(file, intake), partial(_add_count, intake=intake))


def _rows(file: RawFile, intake: RecordIntake) -> Iterator[tuple[int, Mapping[str, str] | None]]:
    """Yield the cells of each row by column, None if they do not fit the header."""
    layout: _Layout | None = None
    for number, line in file.lines():
        if not line.strip() or line.startswith(COMMENT):
            continue
        if layout is None or line[0].isalpha() or line[0] == '"':
            header = _header(line)
            if header is not None:
                layout = header
                # Reject counts of idle nodes if the total is unknown
                if not {ACTIVE, TOTAL} & set(layout[2]) and _machine(intake) is None:
                    raise BadInput(
                        "only idle nodes are counted, without their total",
                        where=file.name,
                        fix="add --counts --nodes N",
                    )
                continue
        cells = [cell.strip().strip('"') for cell in line.split(layout[0])] if layout else []
        fits = layout is not None and len(cells) == layout[1]
        yield number, {column: cells[place] for column, place in layout[2].items()} if layout and fits else None
    if layout is None:
        raise BadInput("no header", where=file.name, fix=REMEDY)


def _machine(intake: RecordIntake) -> int | None:
    options = intake.options
    return len(options.nodes) if options.nodes is not None else options.node_count


def _add_count(cells: Mapping[str, str] | None, intake: RecordIntake) -> None:
    if cells is None:
        raise SkippedRow("malformed")
    time_s = intake.seconds(cells[TIME])
    active, idle, total = (_count(cells[column]) if column in cells else None for column in (ACTIVE, IDLE, TOTAL))
    if total is None:
        total = active + idle if active is not None and idle is not None else _machine(intake)
    if active is None:
        if idle is None or total is None or idle > total:
            raise SkippedRow("bad_value")
        active = total - idle
    intake.counted(time_s, active, UNKNOWN_TOTAL if total is None else total)
    intake.use()


def _count(text: str) -> int:
    """Return a number of nodes, with means such as 3.2 rounded up."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= MOST_NODES:  # also false for NaN
        raise SkippedRow("bad_value")
    return math.ceil(number - _ROUNDING)
