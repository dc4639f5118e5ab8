"""Flux's jobs as lists and as events, of our own making after its documents."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import BadInput
from tests.helpers.records import busy_node_s, finding, idle_second_by_second, imported
from tests.helpers.samples import DAY, flux_events, flux_jobs

STAYS = [("n1", DAY, DAY + 60), ("n2", DAY, DAY + 60), ("n1", DAY + 70, DAY + 100), ("n3", DAY + 20, DAY + 100)]
RUNS = [(DAY, DAY + 60, "n[1-2]"), (DAY + 70, DAY + 100, "n1"), (DAY + 20, DAY + 100, "n3")]


def test_idle_time_is_that_of_a_plain_loop(tmp_path: Path) -> None:
    listed = flux_jobs(*({"t_run": a, "t_cleanup": b - 1, "t_inactive": b, "nodelist": nodes} for a, b, nodes in RUNS))
    events = "".join(flux_events(a, b, {"nodelist": [nodes]}) for a, b, nodes in RUNS)
    table = "ID,T_RUN,T_INACTIVE,NODELIST\n" + "".join(f'{a},{a}.0,{b}.0,"{nodes}"\n' for a, b, nodes in RUNS)
    logs = [imported(tmp_path, text, window=(DAY, DAY + 100)).log for text in (listed, events, table)]
    for log in logs:
        assert log.idle_node_s == idle_second_by_second(log, STAYS) == 10 + 40 + 20
        assert log.sha256 == logs[0].sha256


@pytest.mark.parametrize(
    ("resources", "names"),
    [
        ({"nodelist": ["a[1-2]", "b"]}, ("a1", "a2", "b")),
        ({"R_lite": [{"rank": "0", "node": "a"}, {"rank": "1", "node": "b"}]}, ("a", "b")),
        ({"R_lite": [{"rank": "[0-1]", "children": {"core": "0-3"}}]}, ("rank0", "rank1")),
    ],
)
def test_hosts_of_resources(tmp_path: Path, resources: dict[str, object], names: tuple[str, ...]) -> None:
    assert imported(tmp_path, flux_events(DAY, DAY + 60, resources)).log.node_names == names


def test_resources_before_the_events_they_belong_to(tmp_path: Path) -> None:
    lines = [flux_events(DAY + at, DAY + at + 9, {"nodelist": [f"n{at}"]}).splitlines(keepends=True) for at in (1, 2)]
    found = imported(tmp_path, "".join("".join([each[-1], *each[:-1]]) for each in lines))
    assert found.log.node_names == ("n1", "n2")
    assert busy_node_s(found.log) == 18


def test_jobs_that_wait_run_or_cannot_be_read(tmp_path: Path) -> None:
    jobs = [
        {"t_run": 0.0, "state": "SCHED"},
        {"state": "CLEANUP", "t_cleanup": DAY + 5, "nodelist": "n1"},  # it still holds its nodes
        {"t_cleanup": DAY + 50, "nodelist": "n2"},  # of a version that does not tell when it became inactive
        {"t_run": "soon", "nodelist": "n2"},
        {"t_inactive": DAY + 60, "nodelist": "n[1-", "nnodes": 2},
        {"t_inactive": DAY + 60, "nodelist": "n[1-2]", "nnodes": 3},
    ]
    found = imported(tmp_path, flux_jobs(*jobs))
    assert found.rows.aside == {"never_started": 1, "bad_time": 1, "bad_nodes": 1, "nodes_differ": 1}
    assert finding(found, "still_running").count == 1
    assert busy_node_s(found.log) == 50 + 50
    text = flux_events(None, DAY + 9, None) + flux_events(DAY, None, {"nodelist": ["n1"]})
    text += flux_events(DAY, DAY + 20, {"nodelist": ["n2"]}) + flux_events(DAY, DAY + 20, None) + "{}\n"
    text += '{"timestamp":"soon","name":"submit","context":{}}\n{"timestamp":"soon","name":"alloc"}\n'
    found = imported(tmp_path, text)
    assert found.rows.aside == {"never_started": 1, "no_nodes": 1, "malformed": 1, "bad_time": 1}
    assert busy_node_s(found.log) == 20 + 20


def test_gpus_and_cores_are_those_of_the_resources(tmp_path: Path) -> None:
    entries = [{"rank": "4-5", "children": {"core": "0-3", "gpu": "1"}}, {"rank": "7", "children": {"core": "2,5"}}]
    text = flux_events(DAY, DAY + 60, {"nodelist": ["n[1-2]", "n3"], "R_lite": entries})
    text += flux_events(DAY, DAY + 100, {"nodelist": ["n1"], "R_lite": [{"rank": "4", "children": {"gpu": "[0,3]"}}]})
    gpus = imported(tmp_path, text, unit="gpu", node_units=4, window=(DAY, DAY + 100)).log
    held = [
        ("n1/gpu1", DAY, DAY + 60),
        ("n2/gpu1", DAY, DAY + 60),
        ("n1/gpu0", DAY, DAY + 100),
        ("n1/gpu3", DAY, DAY + 100),
    ]
    assert gpus.idle_node_s == idle_second_by_second(gpus, held) == 8 * 100 - 2 * 60 - 200
    cores = imported(tmp_path, text, unit="core", node_units=6, window=(DAY, DAY + 100))
    assert busy_node_s(cores.log) == (4 + 4 + 2) * 60
    assert {f"n3/core{number}" for number in (2, 5)} <= set(cores.log.node_names)


def test_lists_of_jobs_tell_cores_and_no_gpus(tmp_path: Path) -> None:
    text = flux_jobs({"t_inactive": DAY + 60, "nodelist": "n[1-2]", "ncores": 4})
    assert busy_node_s(imported(tmp_path, text, unit="core", node_units=8).log) == 4 * 60
    with pytest.raises(BadInput, match="has no GPUs"):
        imported(tmp_path, text, unit="gpu")
