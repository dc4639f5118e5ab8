"""The log's own CSV form, also written by hand or other tools.

| column | required | meaning |
|---|---|---|
| ``time``, ``node``, ``state`` | yes | see [log as CSV](formats.md#log-as-csv); ``# end_s:`` sets the end |
"""

from __future__ import annotations

from typing import Final

from bftrain.errors import BadInput
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import first_lines, unquoted
from bftrain_datasets.log import table_log
from bftrain_datasets.log.table_log import END

name: Final = "csv"
about: Final = "node states as bftrain writes them: time,node,state"

COMMENT: Final = "#"


def _is_header(line: str) -> bool:
    return [cell.strip() for cell in line.split(",")] == list(table_log.COLUMNS)


def recognises(head: bytes) -> bool:
    """Return whether the first line after comments is this header."""
    first = next((line for line in first_lines(head) if line.strip() and not line.startswith(COMMENT)), "")
    return _is_header(first)


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every row; the log's end is ``end_s``, or the last row's time."""
    headed = False
    for number, line in file.lines():
        if not line.strip():
            continue
        if line.startswith(COMMENT):
            text = line.removeprefix(COMMENT).strip()
            if text.startswith(END):
                intake.observed(table_log.seconds(text.removeprefix(END), file.name, "end_s"))
        elif _is_header(line):
            headed = True
        else:
            intake.row(number)
            _add_row(line, file.name, intake)
    if not headed:
        raise BadInput("not a log: no header", where=file.name, fix=table_log.REMEDY)


def _add_row(line: str, where: str, intake: RecordIntake) -> None:
    cells = line.split(",") if '"' not in line else unquoted(line)
    if len(cells) != len(table_log.COLUMNS):
        intake.set_aside("malformed")
        return
    time, name, word = (cell.strip() for cell in cells)
    reason = "bad_time"
    try:
        time_s = table_log.seconds(time, where)
        reason = "bad_nodes"
        node = table_log.node_name(name, where)
        reason = "bad_value"
        state = table_log.state_of(word, where)
    except BadInput:
        intake.set_aside(reason)
        return
    intake.state(time_s, (node,), state)
    intake.use()
