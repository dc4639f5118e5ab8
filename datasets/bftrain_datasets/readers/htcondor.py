"""HTCondor's job ads: ``condor_history`` or ``condor_q -all``, with ``-long``, ``-json`` or ``-jsonl``.

An ad describes the last run; ``condor_history -epochs -long`` has one for each run. Jobs that run on no machine of
the pool are skipped as ``other_record``.

| attribute | required | meaning |
|---|---|---|
| ``ClusterId``, ``ProcId`` | yes | job |
| ``JobCurrentStartDate``, ``JobLastStartDate``, ``JobStartDate`` | yes | start; the first present one counts |
| ``AllRemoteHosts``, ``RemoteHost``, ``LastRemoteHost`` | yes | machines follow the last ``@`` |
| ``JobStatus`` | yes | 2, 6 and 7 still run; 4 ended at ``CompletionDate`` |
| ``LastRemoteWallClockTime``, ``LastVacateTime``, ``EnteredCurrentStatus`` | | end of other jobs |
| ``EpochWriteDate``, ``RemoteWallClockTime``, ``JobUniverse`` | | runs and kind of the job |
| ``GPUsProvisioned``, ``RequestGPUs``, ``CpusProvisioned``, ``RequestCpus`` | | GPUs and cores |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from bftrain.node_units import CORE, GPU
from bftrain_datasets.importing.findings import SkippedRow
from bftrain_datasets.importing.job_checks import RUNNING, RecordIntake
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_columns import MOST_DIGITS, first_lines
from bftrain_datasets.job_tables.tables import format_of, is_json, records

name: Final = "htcondor"
tells_units: Final = (GPU, CORE)  # the resources in the records
about: Final = "HTCondor: ads of jobs that condor_history -long or -json prints"

ID: Final = ("ClusterId", "ProcId")
# Alternatives: the first attribute present in an ad is used
START: Final = ("JobCurrentStartDate", "JobLastStartDate", "JobStartDate")
HOSTS: Final = ("AllRemoteHosts", "RemoteHost", "LastRemoteHost")
STATUS, COMPLETED_AT, WRITTEN_AT = "JobStatus", "CompletionDate", "EpochWriteDate"
LAST_RUN, ALL_RUNS, VACATED_AT, STATUS_AT, UNIVERSE = (
    "LastRemoteWallClockTime", "RemoteWallClockTime", "LastVacateTime", "EnteredCurrentStatus", "JobUniverse",
)  # fmt: skip
OWNER, SUBMITTED_AT = "Owner", "QDate"
UNITS: Final = {GPU: ("GPUsProvisioned", "RequestGPUs"), CORE: ("CpusProvisioned", "RequestCpus")}  # fields of a slot
RUNS: Final = frozenset({"2", "6", "7"})  # running, transferring output, suspended
COMPLETED: Final = "4"
WITHOUT_NODES: Final = frozenset({"7", "9", "12"})  # universes on the submit node or in a grid
SLACK_S: Final = 1.0  # tolerance of sums of seconds


def recognises(head: bytes) -> bool:
    """Return whether one of the first ads, or JSON objects, has a job number and a status."""
    if is_json(head):
        return format_of(head) == name
    names = {line.partition(" = ")[0] for line in first_lines(head) if " = " in line}
    return names.issuperset(ID) and bool(names & {STATUS, *HOSTS})


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every ad."""
    ads = records(file, intake) if is_json(file.head) else _ads(file)
    intake.take_rows(ads, partial(_add_job, intake=intake))


def _ads(file: RawFile) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield the ads between empty lines, or lines of stars as in the history file."""
    first, before, ad = 0, 0, dict[str, str]()
    for number, line in file.lines():
        banner = line.startswith("***")
        if first and (number > before + 1 or banner or not line.strip()):  # empty lines were skipped
            yield first, ad
            first, ad = 0, {}
        before = number
        attribute, mark, value = line.partition(" = ")
        if mark and not banner:
            first = first or number
            ad[attribute] = value.strip().strip('"')
    if first:
        yield first, ad


def _add_job(ad: Mapping[str, Any], intake: RecordIntake) -> None:
    if not all(key in ad for key in ID):
        raise SkippedRow("malformed")
    if str(ad.get(UNIVERSE)) in WITHOUT_NODES:
        raise SkippedRow("other_record")
    start_s = next((time_s for key in START if (time_s := _number(ad, key, intake))), None)
    end_s = None if start_s is None else _end(ad, start_s, intake)
    earlier_s = _number(ad, ALL_RUNS, intake) - max(_number(ad, LAST_RUN, intake), (end_s or 0) - (start_s or 0))
    written = next((str(ad[key]) for key in HOSTS if ad.get(key)), "")
    slots = written.split(",")
    hosts = list(dict.fromkeys(slot.rpartition("@")[2].strip() for slot in slots))
    held = next((str(ad[key]) for key in UNITS.get(intake.options.unit, ()) if str(ad.get(key)).isdecimal()), "")
    job, nodes = ".".join(str(ad[key]) for key in ID), "\n".join(filter(None, hosts))
    had_earlier = earlier_s > SLACK_S and WRITTEN_AT not in ad
    intake.job(
        *(job, start_s, end_s, nodes),
        count=len(nodes.split()),
        expand=str.split,
        units=int(held[:MOST_DIGITS]) * len(slots) if held else 0,
        user=str(ad.get(OWNER) or ""),
        submit_s=intake.clock.uncounted(str(ad.get(SUBMITTED_AT))),
        on_use=partial(intake.note, "restarted", node_s=earlier_s * len(hosts)) if had_earlier else None,
    )


def _end(ad: Mapping[str, Any], start_s: float, intake: RecordIntake) -> float | None:
    """Return the end time of the last run, from the status or from the run time."""
    status = str(ad.get(STATUS))
    written_s, completed_s = (_number(ad, key, intake) for key in (WRITTEN_AT, COMPLETED_AT))
    if written_s:
        return written_s  # the ad of a single run, from condor_history -epochs
    if status in RUNS:
        return RUNNING
    if completed_s and status in {COMPLETED, str(None)}:
        return completed_s
    lasted_s = _number(ad, LAST_RUN, intake)
    vacated_s = _number(ad, VACATED_AT, intake)
    changed_s = _number(ad, STATUS_AT, intake)
    if lasted_s:
        return start_s + lasted_s
    return vacated_s if vacated_s > start_s else changed_s or None


def _number(ad: Mapping[str, Any], key: str, intake: RecordIntake) -> float:
    """Return a time or a number of seconds, 0 if missing."""
    text = str(ad.get(key) or "")
    return intake.clock.epoch(float(text)) if text else 0.0
