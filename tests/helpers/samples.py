"""A few records of each format that is read, of our own making: what they begin with is how they are recognised."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
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
    fields = ["all.q", host, "staff", "ann", "a job", job, "sge", 0, DAY, start, end, other.get("failed", 0), 0]
    fields += [0] * 18
    fields += ["NONE", "defaultdepartment", other.get("environment", "NONE"), other.get("slots", 1)]
    fields += [other.get("task", 0), 0.1, 0.2, 0.3, "-q all.q", 0.0, other.get("slave", "NONE"), 0.0, 0, 0]
    fields[0] = other.get("queue", fields[0])
    return ":".join(str(field) for field in fields) + "\n"


def sge_object(job: object, host: str, start: object, end: object, **other: object) -> str:
    """Write a record of accounting.jsonl, after accounting(5) of Open Cluster Scheduler 9: times in microseconds."""
    record = {
        "job_number": job,
        "task_number": 1,
        "start_time": start,
        "end_time": end,
        "owner": "ann",
        "qname": "all.q",
    }
    record |= {"hostname": host, "slots": 1, "job_name": "a job", "submission_time": start, "failed": 0, **other}
    return json.dumps(record | {"usage": {"rusage": {"ru_wallclock": 60}}}, separators=(",", ":")) + "\n"


def condor_ad(job: int, start: float, end: float, host: str, **other: object) -> dict[str, object]:
    """Return a few attributes of the ad of a job that was completed, after HTCondor's manual; further ones by name."""
    ad = {"ClusterId": job, "CompletionDate": end, "EnteredCurrentStatus": end, "JobCurrentStartDate": start}
    ad |= {"JobStartDate": start, "JobStatus": 4, "JobUniverse": 5, "LastRemoteHost": host, "Owner": "ann", "ProcId": 0}
    return ad | {"LastRemoteWallClockTime": end - start, "RemoteWallClockTime": end - start, **other}


def condor_long(*ads: dict[str, object]) -> str:
    """Write ads as condor_history -long does."""
    return "\n".join("".join(f"{key} = {json.dumps(ad[key])}\n" for key in ad) for ad in ads)


def zulu(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pod(
    name: str, start: float, ends: Sequence[float], node: str, owner: str = "Job", **other: object
) -> dict[str, object]:
    """Return a pod after Kubernetes' API; its containers finish at ``ends``, or if there are none it runs."""
    state = [
        {"name": f"c{end}", "state": {"terminated": {"startedAt": zulu(start), "finishedAt": zulu(end)}}}
        for end in ends
    ]
    status = {
        "phase": "Succeeded" if ends else "Running",
        "startTime": zulu(start),
        "containerStatuses": state,
        **other,
    }
    metadata = {
        "name": name,
        "namespace": "lab",
        "uid": f"uid-{name}",
        "ownerReferences": [{"kind": owner, "name": "j"}],
    }
    spec = {"containers": [{"name": "c0", "image": "train"}], "nodeName": node}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def kube_event(reason: str, time: float, node: str) -> dict[str, object]:
    """Return an event of a node after Kubernetes' API."""
    what = {"kind": "Node", "name": node, "uid": f"uid-{node}"}
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": f"{node}.17"}, "involvedObject": what}
    return event | {"reason": reason, "lastTimestamp": zulu(time), "type": "Normal", "count": 1}


def kube_list(*items: dict[str, object]) -> str:
    return json.dumps(
        {"apiVersion": "v1", "items": items, "kind": "List", "metadata": {"resourceVersion": ""}}, indent=4
    )


def flux_jobs(*jobs: dict[str, object]) -> str:
    """Write what flux jobs --json prints of these jobs, after flux-jobs(1); other fields are those of a usual one."""
    usual = {"t_submit": DAY - 5.5, "t_depend": DAY - 5.5, "t_run": DAY + 0.0, "duration": 60.0, "name": "run"}
    usual |= {"queue": "batch", "ntasks": 1, "state": "INACTIVE", "result": "COMPLETED", "userid": 501, "urgency": 16}
    return json.dumps({"jobs": [{"id": 2**40 + number, **usual, **job} for number, job in enumerate(jobs)]}) + "\n"


def oar_details(**jobs: dict[str, object]) -> str:
    """Write OAR's details of these jobs; fields that are not given are those of a usual one."""
    usual: dict[str, object] = {"state": "Terminated", "queue": "default", "types": [], "startTime": DAY}
    return json.dumps({"jobs": {job.removeprefix("j"): usual | fields for job, fields in jobs.items()}}, indent=1)


def oar_gantt(resources: dict[int, str], **jobs: dict[str, object]) -> str:
    usual: dict[str, object] = {"state": "Terminated", "queue_name": "default", "start_time": DAY}
    nodes = [{"resource_id": str(number), "network_address": host} for number, host in resources.items()]
    job_records = {job.removeprefix("j"): usual | fields for job, fields in jobs.items()}
    return json.dumps({"dead_resources": {}, "resources": nodes, "jobs": job_records}, indent=1)


PICKLES: Final = Path(__file__).parents[1] / "unit" / "datasets" / "pickles"
SAMPLES: Final[dict[str, list[bytes]]] = {
    "sacct": [f"JobID|Start|End|NNodes|NodeList|State\n1|{DAY}|{DAY + 60}|2|n[1-2]|COMPLETED\n".encode()],
    "swf": [
        f"; Version: 2.2\n; UnixStartTime: {DAY}\n; MaxNodes: 4\n".encode()
        + swf_job(1, 0, 5, 60, hosts="{a,b}").encode(),
        swf_job(1, DAY, 5, 60, hosts="{a,b}").encode(),
    ],
    "lsf": [lsf_job(1, DAY, DAY + 60, "16*a", "16*b").encode()],
    "sge": [
        b"# Version: 1\n" + sge_job(1, "a", DAY, DAY + 60).encode(),
        sge_object(1, "a", DAY * 10**6, (DAY + 60) * 10**6).encode(),
    ],
    "kubernetes": [
        kube_list(pod("a-0", DAY, [DAY + 60], "n1")).encode(),
        kube_list(kube_event("NodeNotReady", DAY, "n1"), kube_event("NodeReady", DAY + 60, "n1")).encode(),
    ],
    "htcondor": [
        condor_long(condor_ad(1, DAY, DAY + 60, "slot1_1@a.site")).encode(),
        json.dumps([condor_ad(1, DAY, DAY + 60, "slot1@a.site")], indent=1).encode(),
    ],
    "flux": [flux_jobs({"t_inactive": DAY + 60.5, "nodelist": "n[1-2]", "nnodes": 2}).encode()],
    "oar": [
        oar_details(j1={"stopTime": DAY + 60, "assigned_network_address": ["a", "b"]}).encode(),
        oar_gantt({1: "a", 2: "b"}, j1={"stop_time": DAY + 60, "resources": [1, 2]}).encode(),
    ],
    "sinfo": [
        (lines.poll(DAY, lines.shown("idle", "n1")) + lines.poll(DAY + 60, lines.shown("mix", "n1"))).encode(),
        f"{DAY}\nidle n1\nalloc n2\n{DAY + 60}\nidle n[1-2]\n".encode(),
        f"{DAY}\nn1 idle\nn2 mix\n{DAY + 60}\nn1 idle\n".encode(),
    ],
    "slurm-events": [
        f"Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User\nc|n1|{DAY}|{DAY + 30}|DOWN|gone|root\n".encode()
    ],
    "pbs-events": [lines.pbs_logged(DAY, "n1", "node up").encode()],
    "pbs": [(lines.pbs("Q", "1.s", DAY) + lines.pbs_end("1.s", DAY, DAY + 60, "n1/0*4+n2/0")).encode()],
    "ndstat": [path.read_bytes() for path in sorted(PICKLES.glob("*-nodes.pkl"))],
    "jobs": [
        f"job_id,start_time,end_time,num_nodes\n1,{DAY},{DAY + 60},2\n".encode(),
        f"job_id;began;submit;start;elapsed;hosts\n1;{DAY};{DAY};{DAY};60;n[1-2]\n".encode(),
        json.dumps([{"start": DAY, "end": DAY + 60, "nodes": ["a", "b"]}]).encode(),
    ],
    "counts": [
        f"time,active,total\n{DAY},1,2\n{DAY + 60},2,2\n".encode(),
        b"Total;Idle;Timestamp\n4;1;2026-01-05 00:00:00\n4;2;2026-01-05 00:01:00\n",
    ],
}
