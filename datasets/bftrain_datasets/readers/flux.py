"""Flux's jobs: ``flux jobs -A -a --count=0 --json``, or event logs with resources (RFC 20 and 21).

For event logs, concatenate ``flux job eventlog --format=json ID`` and ``flux job info ID R`` of each job. A job holds
its nodes from ``alloc`` to ``free``.

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
from itertools import islice
from typing import Any, Final

from bftrain.errors import BadInput
from bftrain.node_units import GPU, NODE
from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing.job_checks import RUNNING, RecordIntake
from bftrain_datasets.importing.machine_nodes import Share, Units, slots_of
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import count_of, whole_number
from bftrain_datasets.job_tables.json_records import format_of, records

name: Final = "flux"
tells_units: Final = True
about: Final = "Flux: jobs as flux jobs --json lists them, or their eventlogs and R"

START: Final = "t_run"  # time of the event alloc, when the job enters the state RUN
ENDS: Final = ("t_inactive", "t_cleanup")  # the job becomes inactive and frees its nodes
INACTIVE: Final = "INACTIVE"
FIRST, ALLOCATED, FREED = "submit", "alloc", ("free", "clean")  # events


def recognises(head: bytes) -> bool:
    """Return whether this is JSON with the keys of Flux's jobs, events or resources."""
    return head.lstrip().startswith(b"{") and format_of(head) == name


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every job; its resources may precede or follow its events."""
    job = _EventLog()
    waiting: Mapping[str, Any] | None = None
    for number, record in records(file, intake):
        if "timestamp" in record:
            if record.get("name") == FIRST and job.events:
                job.settle(intake)
                job = _EventLog()
            if not job.events:
                job.line, job.resources, waiting = number, waiting, None
            event = str(record.get("name"))
            if not job.events or event in {ALLOCATED, *FREED}:
                job.events.setdefault(event, record["timestamp"])
        elif "execution" in record:
            if job.events and job.resources is None:
                job.resources = record
            else:
                waiting = record
        else:
            if intake.options.unit == GPU:
                fix = "import the eventlog and R of each job: flux job info ID R"
                raise BadInput("flux jobs --json has no GPUs", where=file.where, fix=fix)
            intake.row(number)
            _add_job(record, intake)
    job.settle(intake)


class _EventLog:
    """A job's events, as the first time of each event name, and its resources."""

    def __init__(self) -> None:
        self.line = 0
        self.events: dict[str, Any] = {}
        self.resources: Mapping[str, Any] | None = None

    def settle(self, intake: RecordIntake) -> None:
        """Record the job's nodes from its allocation; its id is the time of its first event."""
        if not self.events:
            return
        intake.row(self.line)
        try:
            start_s = _time(self.events.get(ALLOCATED), intake)
            freed = (_time(self.events[each], intake) for each in FREED if each in self.events)
            end_s = next(freed, RUNNING)
        except ValueError:
            intake.set_aside("bad_time")
            return
        job = f"eventlog {next(iter(self.events.values()))}"
        resources = self.resources or {}
        intake.job(job, start_s, end_s, _hosts(resources), units=_units(resources, intake.options.unit))


def _units(resources: Mapping[str, Any], unit: str) -> Units:
    """Return the GPUs or cores of each host; hosts are sorted like the ranks in the entries."""
    execution, hosts = resources.get("execution"), _hosts(resources)
    entries = execution.get("R_lite") if isinstance(execution, dict) else None
    if unit == NODE or not hosts or not isinstance(entries, list):
        return 0
    try:
        names = iter(expand_set(hosts))
        shares: list[Share] = []
        for entry in entries:
            ranks = expand_set(f"[{str(entry['rank']).strip('[]')}]")
            mine, held = list(islice(names, len(ranks))), str(entry["children"].get(unit, "")).strip("[]")
            shares += [share for name in mine for share in slots_of(name, held)] if held else []
    except (ValueError, TypeError, KeyError, AttributeError):
        return 0
    return tuple(shares)


def _hosts(resources: Mapping[str, Any]) -> str:
    """Return the node set of resources: the host list, the hosts of entries, or broker numbers, in this order."""
    execution = resources.get("execution")
    if not isinstance(execution, dict):
        return ""
    hosts = execution.get("nodelist")
    if isinstance(hosts, list) and hosts:
        return ",".join(map(str, hosts))
    entries = execution.get("R_lite")
    places = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    named = [str(each["node"]) if "node" in each else f"rank[{str(each.get('rank')).strip('[]')}]" for each in places]
    return ",".join(dict.fromkeys(named))


def _add_job(record: Mapping[str, Any], intake: RecordIntake) -> None:
    if "id" not in record:
        intake.set_aside("malformed")
        return
    try:
        start_s = _time(record.get(START), intake)
        ends = [_time(record.get(key), intake) for key in ENDS]
    except ValueError:
        intake.set_aside("bad_time")
        return
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


def _time(value: object, intake: RecordIntake) -> float | None:
    text = str(value or "")
    return (intake.seconds(text) or None) if text else None
