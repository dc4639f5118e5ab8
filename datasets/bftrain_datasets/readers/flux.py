"""Flux's jobs: ``flux jobs -A -a --count=0 --json``.

| key | required | meaning |
|---|---|---|
| ``id`` | yes | job |
| ``t_run`` | yes | start |
| ``t_inactive``, ``t_cleanup`` | | end; a job in the state ``CLEANUP`` still holds its nodes |
| ``nodelist`` | yes | node set |
| ``nnodes``, ``ncores`` | | number of nodes, and cores |
| ``state``, ``queue`` | | running jobs; queue |
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from bftrain.node_units import CORE
from bftrain_datasets.importing.findings import SkippedRow
from bftrain_datasets.importing.job_checks import RUNNING, RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_columns import count_of, moment_of, whole_number
from bftrain_datasets.job_tables.tables import format_of, records

name: Final = "flux"
tells_units: Final = (CORE,)  # the resources in the records
about: Final = "Flux: jobs as flux jobs --json lists them"

START: Final = "t_run"  # time of the event alloc, when the job enters the state RUN
ENDS: Final = ("t_inactive", "t_cleanup")  # the job becomes inactive and frees its nodes
INACTIVE: Final = "INACTIVE"


def recognises(head: bytes) -> bool:
    """Return whether this is JSON with the keys of Flux's jobs."""
    return format_of(head) == name


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every job."""
    intake.take_rows(records(file, intake), partial(_add_job, intake=intake))


def _add_job(record: Mapping[str, Any], intake: RecordIntake) -> None:
    if "id" not in record:
        raise SkippedRow("malformed")
    times = (moment_of(str(record.get(key) or ""), intake.seconds) for key in (START, *ENDS))
    start_s, *ends = times
    over = str(record.get("state", INACTIVE)).upper() in {INACTIVE, "I"}
    end_s = ends[0] or (ends[1] if over else RUNNING)
    nodes, count = str(record.get("nodelist") or ""), str(record.get("nnodes") or "")
    intake.job(
        *(str(record["id"]), start_s, end_s, nodes),
        count=count_of(count),
        queue=str(record.get("queue") or ""),
        units=whole_number(str(record.get("ncores") or "")) or 0,
        user=str(record.get("username") or record.get("userid") or ""),
        submit_s=intake.clock.uncounted(str(record.get("t_submit"))) or None,
    )
