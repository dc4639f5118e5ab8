"""OAR's jobs as JSON: ``oarstat --json``, or the Gantt chart, ``oarstat --json --gantt "FROM, TO"``.

Import both together: the Gantt chart also names unused nodes. A file has at most 128 MiB.

| key | required | meaning |
|---|---|---|
| ``startTime``, ``start_time`` | yes | start |
| ``stopTime``, ``stop_time`` | yes | end |
| ``assigned_network_address``, ``resources`` | yes | nodes |
| ``queue``, ``types`` | | jobs of the type ``besteffort`` are in the queue ``besteffort`` |
| ``state`` | | running and waiting jobs |
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from bftrain.errors import BadInput
from bftrain_datasets.importing.findings import SkippedRow
from bftrain_datasets.importing.job_checks import RUNNING, RecordIntake
from bftrain_datasets.importing.job_columns import key_of
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_columns import moments
from bftrain_datasets.job_tables.tables import content_of, format_of

name: Final = "oar"
about: Final = "OAR: details of jobs and the data of the Gantt chart, as JSON"

LARGEST_BYTES: Final = 1 << 27  # JSON is parsed as a whole, and needs several times its size in memory
BEST_EFFORT: Final = "besteffort"  # a preemptible job type, treated as a queue of that name
STILL_RUNNING: Final = frozenset({"running", "finishing", "suspended", "resuming"})
NOT_STARTED: Final = frozenset({"waiting", "hold", "tolaunch", "launching", "toackreservation"})
# The same field in the details of a job and in the Gantt chart
START: Final = ("startTime", "start_time")
STOP: Final = ("stopTime", "stop_time")
QUEUE: Final = ("queue", "queue_name")
USER: Final = ("owner", "job_user")
SUBMIT: Final = ("submissionTime", "submission_time")
HOSTS, RESOURCES, TYPES, STATE = "assigned_network_address", "resources", "types", "state"


def recognises(head: bytes) -> bool:
    """Return whether this is JSON with a field specific to OAR."""
    return head.lstrip().startswith(b"{") and format_of(head) == name


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every job."""
    text = content_of(file, LARGEST_BYTES, "export shorter periods from OAR to several files").decode(errors="replace")
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"incomplete JSON: {error}", where=file.name, fix="fetch the file again") from error
    if not isinstance(document, dict):
        raise BadInput("not written by OAR: no object with jobs", where=file.name, fix="see docs/reference/readers.md")
    # Record the machine's nodes, if the Gantt chart lists them, and the node of each resource
    hosts_of: dict[str, str] = {}
    resources = document.get(RESOURCES)
    for resource in resources if isinstance(resources, list) else ():
        host = resource.get("network_address") if isinstance(resource, dict) else None
        if isinstance(host, str) and _is_name(host):
            hosts_of[str(resource.get("resource_id"))] = host
            intake.name_node(host)
    recorded = intake.stays.keys()
    intake.take_rows(_jobs(document, text), lambda job: _add_job(*job, hosts_of, recorded, intake))


def _jobs(document: Mapping[str, Any], text: str) -> Iterator[tuple[int, tuple[str, Any]]]:
    jobs = document.get("jobs", document)
    if isinstance(jobs, list):
        yield from ((0, (str(job.get("Job_Id", "")) if isinstance(job, dict) else "", job)) for job in jobs)
        return
    line, done = 1, 0
    for job, fields in jobs.items() if isinstance(jobs, dict) else ():
        found = text.find(f'"{job}"', done)
        if found >= 0:
            line += text.count("\n", done, found)
            done = found
        yield line, (job, fields)


def _add_job(
    job: str,
    fields: Any,  # noqa: ANN401 - of JSON
    hosts_of: Mapping[str, str],
    recorded: set[tuple[int, float, float]],
    intake: RecordIntake,
) -> None:
    if not isinstance(fields, dict):
        raise SkippedRow("malformed")
    start_s, stop_s = moments(lambda keys: _moment(fields, keys, intake), START, STOP)
    state = str(fields.get(STATE, "")).lower()
    if state in NOT_STARTED:
        start_s = None
    elif state in STILL_RUNNING:
        stop_s = RUNNING
    hosts = fields.get(HOSTS)
    if hosts is None:
        resources = fields.get(RESOURCES)
        hosts = [hosts_of.get(str(each)) for each in resources] if isinstance(resources, list) else []
    if not isinstance(hosts, list) or not all(isinstance(host, str) and _is_name(host) for host in hosts):
        # The resources may be in another file, with the same job
        raise SkippedRow("repeated" if (key_of(job), start_s, stop_s) in recorded else "bad_nodes")
    hosts = list(dict.fromkeys(hosts))
    types = fields.get(TYPES) or ()
    best_effort = BEST_EFFORT in types if isinstance(types, (list, tuple, dict)) else BEST_EFFORT in str(types)
    queue = next((str(fields[key]) for key in QUEUE if key in fields), "")
    intake.job(
        job,
        start_s,
        stop_s,
        "\n".join(hosts),
        count=len(hosts),
        queue=BEST_EFFORT if best_effort else queue,
        expand=str.split,
        user=next((str(fields[key]) for key in USER if fields.get(key)), ""),
        submit_s=next((intake.clock.uncounted(str(fields[key])) for key in SUBMIT if fields.get(key)), None),
    )


def _moment(fields: Mapping[str, Any], keys: Sequence[str], intake: RecordIntake) -> float | None:
    """Return a time, None for 0 or a missing value."""
    value = next((fields[key] for key in keys if key in fields), None)
    if value is None:
        return None
    try:
        time_s = intake.clock.epoch(float(value))
    # A list, or a number beyond all times
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{str(value)[:30]!r} is not a time") from error
    return time_s or None


def _is_name(text: str) -> bool:
    return bool(text) and text.isprintable() and " " not in text
