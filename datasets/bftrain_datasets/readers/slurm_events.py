"""Slurm's node events: when nodes were down or drained. Import them together with the jobs.

Get them with ``sacctmgr show event -P all_time``; without ``all_time`` it prints the last two days only.

| column | required | meaning |
|---|---|---|
| ``NodeName`` | yes | rows without it are skipped as ``other_record`` |
| ``TimeStart``, ``TimeEnd`` | yes | ``Unknown`` as the end: until the end of the log |
| ``State`` | yes | down, drained and similar states count; others are skipped |
| ``Cluster`` | | cluster |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from bftrain.nodesets import expand
from bftrain_datasets.importing.findings import SkippedRow
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.states import node_state_of
from bftrain_datasets.importing.text_columns import HEADER_WITHIN, first_lines, moment_of
from bftrain_datasets.log.eventlog import NodeState

name: Final = "slurm-events"
about: Final = "Slurm: node downtime as sacctmgr show event -P prints it, next to other records"
beside_others: Final = True  # may be imported together with files of another format

NODE, START, END, STATE, CLUSTER = "nodename", "timestart", "timeend", "state", "cluster"
NEEDED: Final = frozenset({NODE, START, END, STATE})
SEPARATOR: Final = "|"


def _header_of(line: str) -> list[str] | None:
    """Return the column names in a header, without user-specified widths (``NodeName%30``)."""
    columns = [column.strip().lower().partition("%")[0] for column in line.split(SEPARATOR)]
    return columns if NEEDED.issubset(columns) else None


def recognises(head: bytes) -> bool:
    """Return whether one of the first lines is a header of this table."""
    return any(_header_of(line) for line in first_lines(head)[:HEADER_WITHIN])


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every event below a header; skip rows that lack columns."""
    intake.reports_outages = True
    intake.take_rows(_rows(file), partial(_add_outage, intake=intake))


def _rows(file: RawFile) -> Iterator[tuple[int, Mapping[str, str]]]:
    columns: Sequence[str] = ()
    for number, line in file.lines():
        header = _header_of(line)
        if header is not None or not line.strip():
            columns = header or columns
        else:
            yield number, dict(zip(columns, line.split(SEPARATOR), strict=False))


def _add_outage(cells: Mapping[str, str], intake: RecordIntake) -> None:
    """Record the outage of nodes; skip events that name no node, which describe the cluster size."""
    if not cells.keys() >= NEEDED:
        raise SkippedRow("malformed")
    nodes, cluster = cells.get(NODE, "").strip(), cells.get(CLUSTER, "")
    if cluster and intake.is_other_cluster(cluster):
        raise SkippedRow("not_selected")
    start_s, end_s = (moment_of(cells.get(column, ""), intake.seconds) for column in (START, END))
    state = node_state_of(cells[STATE].strip())
    if state is None and nodes:
        raise SkippedRow("bad_value")
    drains = cells[STATE].upper().startswith("DRAIN")
    if not nodes or start_s is None or not (drains or state == NodeState.DOWN):
        raise SkippedRow("other_record")
    try:
        names = expand(nodes)
    except ValueError as error:
        raise SkippedRow("bad_nodes") from error
    # A reason per event: overlapping outages end independently
    intake.outages.add(names, start_s, end_s, why=f"event {intake.place()}")
    intake.use()
