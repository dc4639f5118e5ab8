"""A few records of each format that is read, of our own making: what they begin with is how they are recognised."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from tests.helpers import scheduler_lines as lines

DAY: Final = 1_600_000_000


def swf_job(job: int, submit: object, wait: object, run: object, procs: object = 2, **other: object) -> str:
    """Write a job in the Standard Workload Format; further fields by name."""
    asked, status, queue = other.get("asked", -1), other.get("status", 1), other.get("queue", -1)
    hosts = f" {other['hosts']}" if "hosts" in other else ""
    return f"{job} {submit} {wait} {run} {procs} -1 -1 {asked} -1 -1 {status} 7 1 -1 {queue} -1 -1 -1{hosts}\n"


def lsf_job(job: object, start: object, end: object, *hosts: str, **other: object) -> str:
    """Write LSF's record of a finished job."""
    asked = " ".join(f'"{host}"' for host in other.get("asked", ()))  # type: ignore[attr-defined]  # a list of names
    asked = f"{len(asked.split())} {asked}".strip()
    used = " ".join([str(len(hosts)), *(f'"{host}"' for host in hosts)])
    command, queue = other.get("command", "run it"), other.get("queue", "night")
    usage = " ".join(["0"] * 19)
    return (
        f'"JOB_FINISH" "10.1" {end} {job} 501 33554434 16 {DAY} 0 0 {start} "ann" "{queue}" "" "" "" "login" "/home" '
        f'"" "" "" "{DAY}.{job}" {asked} {used} 64 60.0 "a job" "{command}" {usage} "" "proj" 0 16 "" "" '
        f'{other.get("index", 0)} 0 "" ""\n'
    )


def sge_job(job: object, host: str, start: object, end: object, **other: object) -> str:
    """Write Grid Engine's line about a job."""
    fields = ["all.q", host, "staff", "ann", "a job", job, "sge", 0, DAY, start, end, other.get("failed", 0), 0]
    fields += [0] * 18
    fields += ["NONE", "defaultdepartment", other.get("environment", "NONE"), other.get("slots", 1)]
    fields += [other.get("task", 0), 0.1, 0.2, 0.3, "-q all.q", 0.0, other.get("slave", "NONE"), 0.0, 0, 0]
    fields[0] = other.get("queue", fields[0])
    return ":".join(str(field) for field in fields) + "\n"


def oar_details(**jobs: dict[str, object]) -> str:
    """Write OAR's details of these jobs; fields that are not given are those of a usual one."""
    usual: dict[str, object] = {"state": "Terminated", "queue": "default", "types": [], "startTime": DAY}
    return json.dumps({"jobs": {job.removeprefix("j"): usual | fields for job, fields in jobs.items()}}, indent=1)


def oar_gantt(resources: dict[int, str], **jobs: dict[str, object]) -> str:
    """Write the data of OAR's Gantt chart."""
    usual: dict[str, object] = {"state": "Terminated", "queue_name": "default", "start_time": DAY}
    nodes = [{"resource_id": str(number), "network_address": host} for number, host in resources.items()]
    told = {job.removeprefix("j"): usual | fields for job, fields in jobs.items()}
    return json.dumps({"dead_resources": {}, "resources": nodes, "jobs": told}, indent=1)


PICKLES: Final = Path(__file__).parents[1] / "unit" / "datasets" / "pickles"
SAMPLES: Final[dict[str, list[bytes]]] = {
    "sacct": [
        f"JobID|Start|End|NNodes|NodeList|State\n1|{DAY}|{DAY + 60}|2|n[1-2]|COMPLETED\n".encode(),
    ],
    "swf": [
        f"; Version: 2.2\n; UnixStartTime: {DAY}\n; MaxNodes: 4\n".encode()
        + swf_job(1, 0, 5, 60, hosts="{a,b}").encode(),
        swf_job(1, DAY, 5, 60, hosts="{a,b}").encode(),
    ],
    "lsf": [lsf_job(1, DAY, DAY + 60, "16*a", "16*b").encode()],
    "sge": [b"# Version: 1\n" + sge_job(1, "a", DAY, DAY + 60).encode()],
    "oar": [
        oar_details(j1={"stopTime": DAY + 60, "assigned_network_address": ["a", "b"]}).encode(),
        oar_gantt({1: "a", 2: "b"}, j1={"stop_time": DAY + 60, "resources": [1, 2]}).encode(),
    ],
    "jobcomp": [lines.jobcomp_job(1, DAY, DAY + 60, "n[1-2]").encode()],
    "slurmctld": [(lines.allocated(DAY, 1, "n[1-2]") + lines.done(DAY + 60, 1)).encode()],
    "sinfo": [
        (lines.poll(DAY, lines.shown("idle", "n1")) + lines.poll(DAY + 60, lines.shown("mix", "n1"))).encode(),
        f"{DAY}\nidle n1\nalloc n2\n{DAY + 60}\nidle n[1-2]\n".encode(),
        f"{DAY}\nn1 idle\nn2 mix\n{DAY + 60}\nn1 idle\n".encode(),
    ],
    "pbs": [(lines.pbs("Q", "1.s", DAY) + lines.pbs_end("1.s", DAY, DAY + 60, "n1/0*4+n2/0")).encode()],
    "ndstat": [path.read_bytes() for path in sorted(PICKLES.glob("*-nodes.pkl"))],
    "csv": [f"# end_s: {DAY + 60}\ntime,node,state\n{DAY},a,idle\n{DAY + 5},a,busy\n".encode()],
    "counts": [
        f"time,active,total\n{DAY},1,2\n{DAY + 60},2,2\n".encode(),
        b"Total;Idle;Timestamp\n4;1;2026-01-05 00:00:00\n4;2;2026-01-05 00:01:00\n",
    ],
}
