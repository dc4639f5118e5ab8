"""Kubernetes pods, and events of nodes: ``kubectl get pods -A -o json``, also ``--watch``.

Pods and events vanish, so record both with ``--watch`` (pods: also ``--output-watch-events``). Pods of a ``DaemonSet``
or ``Node``, and events of pods, are skipped as ``other_record``.

| key | required | meaning |
|---|---|---|
| ``spec.nodeName`` | yes | the node |
| ``status.startTime`` | yes | start; or the ``lastTransitionTime`` of the condition ``PodScheduled`` |
| ``status.containerStatuses``, ``metadata.deletionTimestamp`` | | end: when the last container finished |
| ``status.phase``, ``metadata.namespace`` | | state; queue |
| ``requests``, ``limits`` of containers | | cores and GPUs |
| events ``NodeNotReady``, ``NodeNotSchedulable`` | | the node is down until the opposite event |
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from bftrain.node_units import CORE, GPU, NODE
from bftrain_datasets.importing.findings import SkippedRow
from bftrain_datasets.importing.job_checks import RUNNING, RecordIntake
from bftrain_datasets.importing.job_columns import OpenJob
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.job_tables.tables import dig, format_of, records

name: Final = "kubernetes"
tells_units: Final = (GPU, CORE)  # the resources in the records
about: Final = "Kubernetes: pods and node events as kubectl get prints them with -o json"

OVER: Final = frozenset({"Succeeded", "Failed"})  # phases
ON_EVERY_NODE: Final = frozenset({"DaemonSet", "Node"})  # owners of pods that belong to a node instead of a job
CONTAINERS: Final = ("status.containerStatuses", "status.initContainerStatuses")
# An event is of the API core/v1, or of events.k8s.io/v1 with other names
OBJECT: Final = ("involvedObject", "regarding")
TIMES: Final = ("lastTimestamp", "deprecatedLastTimestamp", "eventTime", "firstTimestamp", "metadata.creationTimestamp")
OUTAGES: Final = {"NodeNotReady": True, "NodeNotSchedulable": True, "NodeReady": False, "NodeSchedulable": False}
RESOURCES: Final = "spec.containers.resources.requests", "spec.containers.resources.limits"
GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu")
THOUSANDTH: Final = "m"


def recognises(head: bytes) -> bool:
    """Return whether this is JSON with the keys of pods or of events."""
    return format_of(head) == name


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read all pods, and all events of nodes."""
    intake.take_rows(records(file, intake), partial(_add_record, intake=intake))


def _add_record(found: Mapping[str, Any], intake: RecordIntake) -> None:
    inner = found.get("object") if "type" in found else None  # wrapped by --output-watch-events
    record: Mapping[str, Any] = inner if isinstance(inner, dict) else found
    kind = record.get("kind")
    if kind == "Event" or any(key in record for key in OBJECT):
        _add_event(record, intake)
    elif kind == "Pod" or "spec" in record:
        _add_pod(record, intake)
    else:
        raise SkippedRow("other_record")


def _add_pod(pod: Mapping[str, Any], intake: RecordIntake) -> None:
    owners = dig(pod, "metadata.ownerReferences.kind")
    if ON_EVERY_NODE.intersection(map(str, owners if isinstance(owners, list) else ())):
        raise SkippedRow("other_record")
    job, node = _name(dig(pod, "metadata")), str(dig(pod, "spec.nodeName") or "")
    if not job:
        raise SkippedRow("malformed")
    deleted = dig(pod, "metadata.deletionTimestamp")
    start_s = _first_time([dig(pod, "status.startTime"), _scheduled(pod)], intake)
    end_s = _ended(pod, intake) if dig(pod, "status.phase") in OVER else _first_time([deleted], intake) or RUNNING
    queue = str(dig(pod, "metadata.namespace") or "")
    units = 0 if intake.options.unit == NODE else _units(pod, intake.options.unit)
    if start_s is None or not node or end_s is None:
        intake.job(job, start_s if node else None, end_s, node, count=1, queue=queue, units=units)
    # A running pod may be listed repeatedly
    elif end_s == RUNNING:
        begun = OpenJob(job=job, start_s=start_s, nodes=node, queue=queue, place=intake.place(), units=units)
        if not intake.open_jobs.begin(begun):
            raise SkippedRow("repeated")
        intake.use()
    else:
        known = intake.open_jobs.end(job, end_s)
        intake.open_jobs.end_before_start(job, start_s, end_s)
        start_s = min(start_s, known.start_s) if known else start_s
        intake.job(job, start_s, end_s, node, count=1, queue=queue, units=units)


def _units(pod: Mapping[str, Any], unit: str) -> int:
    """Return the total GPUs or processors of all containers; fractions of a processor are rounded up once."""
    asked = dig(pod, RESOURCES[0]) if unit == CORE else dig(pod, RESOURCES[1])
    amounts = [
        str(each.get(key))
        for each in (asked if isinstance(asked, list) else ())
        if isinstance(each, dict)
        for key in (("cpu",) if unit == CORE else GPUS)
        if key in each
    ]
    try:
        thousandths = [float(each[:-1]) if each.endswith(THOUSANDTH) else 1000 * float(each) for each in amounts]
        return max(0, math.ceil(math.fsum(thousandths) / 1000))
    except (ValueError, OverflowError):
        return 0


def _scheduled(pod: Mapping[str, Any]) -> object:
    """Return the time at which the pod was bound to its node, from its conditions."""
    conditions = dig(pod, "status.conditions")
    for each in conditions if isinstance(conditions, list) else ():
        if dig(each, "type") == "PodScheduled" and dig(each, "status") == "True":
            return dig(each, "lastTransitionTime")
    return None


def _ended(pod: Mapping[str, Any], intake: RecordIntake) -> float | None:
    """Return when the last container finished; for an evicted pod without containers, when it was deleted."""
    found = [dig(pod, f"{each}.state.terminated.finishedAt") for each in CONTAINERS]
    times = [each for some in found if isinstance(some, list) for each in some if each]
    last_s = max((intake.seconds(str(each)) for each in times), default=None)
    return last_s or _first_time([dig(pod, "metadata.deletionTimestamp")], intake)


def _add_event(record: Mapping[str, Any], intake: RecordIntake) -> None:
    node: Mapping[str, Any] = next((record[key] for key in OBJECT if isinstance(record.get(key), dict)), {})
    reason = str(record.get("reason"))
    if node.get("kind") != "Node" or reason not in OUTAGES:
        raise SkippedRow("other_record")
    time_s = _first_time((dig(record, each) for each in TIMES), intake)
    if time_s is None:
        raise SkippedRow("bad_time")
    intake.outages.tell(str(node.get("name")), time_s, out=OUTAGES[reason], why=reason.replace("Not", ""))
    intake.use()


def _name(metadata: object) -> str:
    """Return a pod's identifier, because names recur; if missing, its name with the namespace."""
    if not isinstance(metadata, dict) or not metadata.get("name"):
        return ""
    return str(metadata.get("uid") or f"{metadata.get('namespace')}/{metadata['name']}")


def _first_time(times: Iterable[object], intake: RecordIntake) -> float | None:
    """Return the first time that is present, in seconds UTC."""
    return next((intake.seconds(str(each)) for each in times if each), None)
