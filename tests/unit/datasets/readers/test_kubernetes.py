"""Pods and events of Kubernetes, of our own making after its API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.records import busy_node_s, finding, idle_second_by_second, imported
from tests.helpers.samples import DAY, kube_event, kube_list, pod, zulu

STAYS = [("n1", DAY, DAY + 60), ("n2", DAY + 10, DAY + 40), ("n1", DAY + 30, DAY + 80), ("n2", DAY + 70, DAY + 100)]
PODS = [pod(f"p{number}", start, [start + 5, end], node) for number, (node, start, end) in enumerate(STAYS)]


def assigned(name: str, time: float, node: str) -> dict[str, object]:
    """Return the event of a pod that is bound to a node."""
    return kube_event("Scheduled", time, name, f"Successfully assigned lab/{name} to {node}")


def stopped(name: str, time: float, container: str = "c0") -> dict[str, object]:
    """Return the event of a container that is stopped."""
    return kube_event("Killing", time, name, f"Stopping container {container}")


EVENTS = [
    each
    for number, (node, start, end) in reversed(list(enumerate(STAYS)))  # they are in no order
    for each in (stopped(f"p{number}", end), assigned(f"p{number}", start, node))
]


def test_idle_time_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    lines = "".join(json.dumps(each) + "\n" for each in PODS)
    texts = ([kube_list(*PODS)], [lines], [kube_list(*EVENTS)], [kube_list(*EVENTS), kube_list(*PODS)])
    logs = [imported(tmp_path, *each, window=(DAY, DAY + 100)).log for each in texts]
    for log in logs:
        assert log.idle_node_s == idle_second_by_second(log, STAYS) == 20 + 40
        assert log.sha256 == logs[0].sha256


def test_pods_that_belong_to_nodes_hold_none(tmp_path: Path) -> None:
    own = [pod("proxy", DAY, [], "n1", owner="DaemonSet"), pod("api", DAY, [], "n1", owner="Node")]
    found = imported(tmp_path, kube_list(*own, {"apiVersion": "v1", "kind": "Service"}, *PODS))
    assert found.rows.aside == {"other_record": 3}
    assert busy_node_s(found.log) == 80 + 60


def test_pods_that_wait_run_or_were_evicted(tmp_path: Path) -> None:
    waits = pod("waits", DAY, [], "")
    del waits["status"]["startTime"]  # type: ignore[attr-defined]  # a dictionary
    evicted = pod("evicted", DAY, [], "n2", phase="Failed", reason="Evicted")
    deleted = pod("deleted", DAY, [], "n3", phase="Failed")
    deleted["metadata"]["deletionTimestamp"] = zulu(DAY + 20)  # type: ignore[index]  # a dictionary
    bound = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": zulu(DAY + 5)}]}
    old = pod("old", DAY, [DAY + 30], "n4", startTime=None, **bound)
    odd = pod("odd", DAY, [DAY + 30], "n4", startTime="soon")
    found = imported(
        tmp_path, kube_list(waits, pod("runs", DAY + 10, [], "n1"), evicted, deleted, old, odd, {"spec": {}})
    )
    assert found.rows.aside == {"never_started": 1, "no_end": 1, "bad_time": 1, "malformed": 1}
    assert finding(found, "still_running").count == 1
    assert busy_node_s(found.log) == 20 + 20 + 25


def test_a_pod_that_is_listed_while_it_runs_and_again_later(tmp_path: Path) -> None:
    texts = kube_list(pod("a", DAY, [], "n1"), *PODS), kube_list(pod("a", DAY, [DAY + 90], "n1"))
    found = imported(tmp_path, *texts)
    assert "still_running" not in {each.name for each in found.findings}
    assert busy_node_s(found.log) == 90 + 60


@pytest.mark.parametrize("wrapped", [False, True])
def test_pods_that_are_watched(tmp_path: Path, *, wrapped: bool) -> None:
    runs, waits = pod("a", DAY, [], "n1"), pod("a", DAY, [], "", phase="Pending", startTime=None)
    going = pod("b", DAY, [], "n2")
    going["metadata"]["deletionTimestamp"] = zulu(DAY + 40)  # type: ignore[index]  # a dictionary
    seen = [waits, runs, runs, runs, pod("b", DAY, [], "n2"), going, pod("a", DAY, [DAY + 50], "n1")]
    lines = [{"type": "MODIFIED", "object": each} if wrapped else each for each in seen]
    found = imported(tmp_path, "".join(json.dumps(each) + "\n" for each in lines))
    assert found.rows.aside == {"never_started": 1, "told_before": 2}
    assert "still_running" not in {each.name for each in found.findings}
    assert busy_node_s(found.log) == 40 + 50


def test_containers_that_are_stopped_one_by_one_or_started_again(tmp_path: Path) -> None:
    again = kube_event("Killing", DAY + 20, "a", "Container c0 failed liveness probe, will be restarted")
    events = [assigned("a", DAY, "n1"), again, stopped("a", DAY + 50), stopped("a", DAY + 51, "c1")]
    events += [stopped("b", DAY + 10), stopped("b", DAY + 11, "c1"), kube_event("Pulled", DAY, "a", "image is present")]
    found = imported(tmp_path, kube_list(*events))
    assert found.rows.aside == {"other_record": 4, "no_start": 1}
    assert busy_node_s(found.log) == 50


def test_nodes_that_go_down_or_are_drained(tmp_path: Path) -> None:
    out = [("NodeNotReady", 50), ("NodeReady", 85), ("NodeNotSchedulable", 60), ("NodeSchedulable", 65)]
    events = [kube_event(reason, DAY + at, "n2", f"Node n2 status is now: {reason}", kind="Node") for reason, at in out]
    found = imported(tmp_path, kube_list(*PODS), kube_list(*events), window=(DAY, DAY + 100))
    assert finding(found, "node_down").node_s == 20  # between its pods, and one pod still ran later
    assert found.log.idle_node_s == 20 + 40 - 20


@pytest.mark.parametrize(
    ("unit", "key", "amounts"), [("gpu", "limits", ("1", 2)), ("core", "requests", ("2500m", "500m"))]
)
def test_gpus_and_cores_of_all_containers(tmp_path: Path, unit: str, key: str, amounts: tuple[object, ...]) -> None:
    name = "nvidia.com/gpu" if unit == "gpu" else "cpu"
    trains, none = pod("a", DAY, [DAY + 60], "n1"), pod("b", DAY, [DAY + 100], "n1")
    trains["spec"]["containers"] = [{"resources": {key: {name: amount}}} for amount in amounts]  # type: ignore[index]  # a dictionary
    runs = [trains, pod("c", DAY, [DAY + 100], "n2"), none]
    runs[1]["spec"]["containers"] = [{"resources": {key: {name: "4"}}}, {}]  # type: ignore[index]  # a dictionary
    found = imported(tmp_path, kube_list(*runs, *EVENTS), unit=unit, node_units=4, window=(DAY, DAY + 100))
    held = [(f"n1/{unit}{number}", DAY, DAY + 60) for number in range(3)]
    held += [(f"n2/{unit}{number}", DAY, DAY + 100) for number in range(4)]
    assert found.log.idle_node_s == idle_second_by_second(found.log, held) == 3 * 40 + 100
    assert found.rows.aside == {"no_units": 1, "other_record": len(EVENTS)}
