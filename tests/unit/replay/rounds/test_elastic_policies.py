"""Policies that choose sizes by progress, and speeds that change while a task trains."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from bftrain import BadInput, SpeedCurve, TaskSpec, rounds

FLAT = SpeedCurve(nodes=(1, 4), rate=(1.0, 1.0))
LINEAR = SpeedCurve(nodes=(1, 4), rate=(1.0, 4.0))


def task(name: str, work: float | None, curve: SpeedCurve = LINEAR, **more: float) -> TaskSpec:
    return TaskSpec(name=name, max_nodes=4, curve=curve, work_samples=work, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("policy", ["pollux", "goodput", "optimus-by-one"])
def test_nodes_go_where_they_help(policy: str) -> None:
    tasks = [task("scales", 60_000.0), task("flat", 60_000.0, FLAT)]
    table = rounds({"": 4}, tasks, policy=policy, round_s=60.0, until_s=6_000.0).tasks_table
    assert dict(zip(table["name"], table["nodes"], strict=True)) == {"scales": 3, "flat": 1}


def test_pollux_doubles_the_nodes_of_a_task_at_most() -> None:
    result = rounds({"": 4}, [task("a", 60.0 + 120.0 + 240.0)], policy="pollux", round_s=60.0)
    # A task of age 0 is worth no start; then it has one node, two, and four
    assert result.tasks_table["finish_s"] == [240.0]
    assert result.tasks_table["starts"] == [3]


def test_pollux_needs_little_memory_for_small_tasks_on_many_nodes() -> None:
    tracemalloc.start()
    try:
        result = rounds({"": 3_000}, [task("a", 60.0)], policy="pollux", round_s=60.0)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert result.ended == "all_done"
    assert peak_bytes < 8e6  # a table of all pairs of sizes has 72 MB


def test_optimus_by_one_gives_nodes_to_other_tasks_than_an_endless_one() -> None:
    tasks = [task("endless", None), task("a", 60_000.0)]
    table = rounds({"": 4}, tasks, policy="optimus-by-one", round_s=60.0, until_s=600.0).tasks_table
    assert dict(zip(table["name"], table["nodes"], strict=True)) == {"endless": 1, "a": 3}


def test_policies_of_one_kind_reject_several() -> None:
    with pytest.raises(BadInput, match="nodes of a single kind only"):
        rounds({"a": 2, "b": 2}, [task("x", 10.0)], policy="pollux", round_s=60.0)


def phases(path: Path, text: str) -> str:
    path.write_text(f"model,from,nodes,rate\n{text}", encoding="utf-8")
    return str(path)


def test_speeds_change_with_the_work_done(tmp_path: Path) -> None:
    file = phases(tmp_path / "phases.csv", "net,0,1,1\nnet,0.5,1,10\n")
    tasks = [TaskSpec(name=name, max_nodes=1, curve=FLAT, work_samples=1_200.0) for name in ("net-0", "other-1")]
    table = rounds({"": 2}, tasks, policy="fifo", round_s=60.0, phases=file).tasks_table
    assert table["finish_s"] == pytest.approx([660.0, 1_200.0])  # 600 samples at 1/s, and 600 at 10/s


def test_a_task_with_speeds_by_kind_has_no_phases(tmp_path: Path) -> None:
    file = phases(tmp_path / "phases.csv", "net,0,1,1\n")
    by_kind = TaskSpec(name="net-0", max_nodes=1, curve=FLAT, curves={"a": FLAT}, work_samples=1.0)
    with pytest.raises(BadInput, match="task 'net-0': has speeds by kind"):
        rounds({"a": 1}, [by_kind], policy="fifo", round_s=60.0, phases=file)
    assert rounds({"": 1}, [by_kind], policy="fifo", round_s=60.0, phases=file).ended == "all_done"


@pytest.mark.parametrize(
    ("text", "what"),
    [("net,0.5,1,1\n", "start at 0.5"), ("net,0,1,x\n", "not a table of phases"), ("net,0,1\n", "phases")],
)
def test_a_wrong_table_is_named(tmp_path: Path, text: str, what: str) -> None:
    file = phases(tmp_path / "phases.csv", text)
    with pytest.raises(BadInput, match=what):
        rounds({"": 1}, [task("net-0", 1.0)], policy="pollux", round_s=60.0, phases=file)
