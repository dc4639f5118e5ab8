"""Slurm's reservations: nodes reserved for maintenance are down. Import them together with the jobs.

Get them with ``scontrol show res`` (also ``-o`` or ``--json``), or past ones with
``sacctmgr show reservation -P format=Cluster,Name,Start,End,Flags,NodeNames``.

| column | required | meaning |
|---|---|---|
| ``Nodes``, ``NodeNames`` | yes | node set |
| ``StartTime``, ``EndTime`` | yes | also ``TimeStart``, ``Start``, ``TimeEnd``, ``End`` |
| ``Flags`` | yes | ``MAINT`` means downtime; other reservations are skipped as ``reserved`` |
| ``Cluster`` | | cluster |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from bftrain.nodesets import expand
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.slurm_tables import columns_of, period_of, rows
from bftrain_datasets.importing.text_cells import count_of, first_lines, nodes_of, paragraphs
from bftrain_datasets.job_tables.json_records import dig, format_of, records
from bftrain_datasets.log.idle_doubts import RESERVED

name: Final = "slurm-reservations"
about: Final = "Slurm: reservations for maintenance, as scontrol or sacctmgr shows them, next to other records"
beside_others: Final = True

HEAD: Final = re.compile(r"ReservationName=\S+ StartTime=")
NONE: Final = "No reservations in the system"
NODES, START, END, FLAGS, CLUSTER = "nodes", "starttime", "endtime", "flags", "cluster"
ALIASES: Final = {"nodenames": NODES, "timestart": START, "start": START, "timeend": END, "end": END}
NEEDED: Final = frozenset({NODES, START, END, FLAGS, "name"})
JSON_KEYS: Final = {NODES: "node_list", START: "start_time", END: "end_time", FLAGS: "flags", "nodecnt": "node_count"}
OUT: Final = "MAINT"
_VALUES: Final = re.compile(r" (StartTime|EndTime|Nodes|NodeCnt|Flags)=(\S*)")


def _header_of(line: str) -> list[str] | None:
    columns = [ALIASES.get(column, column) for column in columns_of(line)]
    return columns if NEEDED.issubset(columns) else None


def recognises(head: bytes) -> bool:
    """Return whether this is JSON of reservations, a reservation, a reservation table header, or the note of none."""
    if head.lstrip().startswith(b"{"):
        return format_of(head) == name
    return any(HEAD.match(line) or line == NONE or _header_of(line) for line in first_lines(head))


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every reservation."""
    if file.head.lstrip().startswith(b"{"):
        for number, record in records(file, intake):
            if "node_list" in record:
                intake.row(number)
                _add_outage({key: _cell(dig(record, field)) for key, field in JSON_KEYS.items()}, intake)
        return
    if not any(map(_header_of, first_lines(file.head))):
        lines = ((number, line) for number, line in file.lines() if line != NONE)
        for number, text in paragraphs(lines, HEAD, intake):
            intake.row(number)
            # Only the first of each, because user texts may follow
            _add_outage({key.lower(): value for key, value in reversed(_VALUES.findall(text))}, intake)
        return
    for cells in rows(file, intake, _header_of):
        _add_outage(cells, intake)


def _cell(value: object) -> str:
    """Return a value in scontrol's notation without --json; an empty text for a missing time."""
    return ",".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)


def _add_outage(cells: Mapping[str, str], intake: RecordIntake) -> None:
    """Record the outage of nodes; nodes reserved for chosen users are doubtful."""
    period = period_of(cells, intake, start=START, end=END, of=CLUSTER)
    if period is None:
        return
    start_s, end_s = period
    nodes = nodes_of(cells.get(NODES, "").strip())
    if not nodes or start_s is None:  # only licences
        intake.set_aside("other_record")
        return
    try:
        names = expand(nodes)
    except ValueError:
        names = []
    if OUT not in cells.get(FLAGS, "").upper().split(","):
        until_s, size = float("inf") if end_s is None else end_s, len(names) or count_of(cells.get("nodecnt", ""))
        intake.doubtful_stays.add(RESERVED, start_s, until_s, size)
        intake.set_aside("reserved")
    elif not names:
        intake.set_aside("bad_nodes")
    else:
        intake.outages.add(names, start_s, end_s, why=f"reservation {intake.place()}")
        intake.use()
