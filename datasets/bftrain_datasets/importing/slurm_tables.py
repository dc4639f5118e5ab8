"""Shared code for sacctmgr tables about nodes: rows below a header, each with a cluster and a period."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import moment_of

SEPARATOR: Final = "|"


class Period(NamedTuple):
    """The start and end of a period in seconds UTC; ``None`` if not recorded."""

    start_s: float | None
    end_s: float | None


def columns_of(line: str) -> list[str]:
    """Return the column names in a header, without user-specified widths (``NodeName%30``)."""
    return [column.strip().lower().partition("%")[0] for column in line.split(SEPARATOR)]


def rows(
    file: RawFile, intake: RecordIntake, header_of: Callable[[str], list[str] | None], last: str = ""
) -> Iterator[Mapping[str, str]]:
    """Yield the rows below each header; skip rows that lack columns up to ``last``, or any column."""
    columns: Sequence[str] = ()
    for number, line in file.lines():
        header = header_of(line)
        if header is not None or not line.strip():
            columns = header or columns
            continue
        intake.row(number)
        cells = line.split(SEPARATOR)
        if not columns or len(cells) < (columns.index(last) + 1 if last else len(columns)):
            intake.set_aside("malformed")
        else:
            yield dict(zip(columns, cells, strict=False))


def period_of(cells: Mapping[str, str], intake: RecordIntake, *, start: str, end: str, of: str) -> Period | None:
    """Return the period of a row; skip rows of other clusters, and rows with unreadable times."""
    cluster = cells.get(of, "")
    if cluster and intake.is_other_cluster(cluster):
        intake.set_aside("not_selected")
        return None
    try:
        return Period(*(moment_of(cells.get(column, ""), intake.seconds) for column in (start, end)))
    except ValueError:
        intake.set_aside("bad_time")
        return None
