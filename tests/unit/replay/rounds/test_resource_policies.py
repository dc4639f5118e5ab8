"""CPU cores and memory in rounds: speeds with a share of the host, and the policies that divide it otherwise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bftrain import (
    BadInput,
    EventLog,
    NodeState,
    ResourceSpeeds,
    SpeedCurve,
    SpreadSpeed,
    SpreadSpeeds,
    TaskSpec,
    registry,
    rounds,
)
from bftrain_replay.rounds.round_resources import HostedTasks, points_of
from tests.helpers.round_cases import gang
from tests.unit.replay.cases import LogBuilder

SEEDS = range(15)
SENSITIVE = ResourceSpeeds(cpus=(1.0, 3.0, 5.0), speed=((0.2,), (0.6,), (1.0,)))
INSENSITIVE = ResourceSpeeds(cpus=(1.0,), speed=((1.0,),))


def ends(tasks: list[TaskSpec], nodes: dict[str, int], **settings: object) -> list[float]:
    table = rounds(nodes, tasks, round_s=100.0, **settings).tasks_table  # type: ignore[arg-type]  # settings by name
    return [table["finish_s"][table["name"].index(task.name)] for task in tasks]


@pytest.mark.parametrize("policy", ["fifo", "srtf", "max-min"])
def test_a_task_has_the_speed_of_its_share(policy: str) -> None:
    tasks = [gang("s", 600.0, resources=SENSITIVE), gang("i", 600.0, resources=INSENSITIVE), gang("p", 600.0)]
    assert ends(tasks, {"": 4}, policy=policy, per_host="2") == [600.0, 600.0, 600.0]  # nothing is limited
    assert ends(tasks, {"": 4}, policy=policy, per_host="2", cpus="3") == [1000.0, 600.0, 600.0]
    assert ends(tasks, {"": 4}, policy=policy, per_host="2", cpus="3", memory_gb="1") == [1000.0, 600.0, 600.0]


def test_shares_of_kinds_differ() -> None:
    speeds = {"v": 2.0, "k": 1.0}
    task = gang("s", 600.0, resources=SENSITIVE, speeds=speeds)
    more = {"per_host": "2", "cpus": "v=1,k=5"}
    assert ends([task], {"v": 2, "k": 2}, **more) == [600.0]  # 0.4 samples/s on v, 1 on k
    assert ends([gang("s", 600.0, resources=SENSITIVE)], {"v": 2, "k": 2}, **more) == [600.0]
    with pytest.raises(BadInput, match="cpus: lacks the amount of a 'k' node"):
        ends([task], {"v": 2, "k": 2}, per_host="2", cpus="v=1")


def test_a_gang_on_two_hosts_is_as_much_slower() -> None:
    curve = SpeedCurve(nodes=(2,), rate=(0.5,))
    for spread in (SpreadSpeed(share=0.5), SpreadSpeed(curve=curve)):
        task = gang("s", 300.0, 2, resources=SENSITIVE, spread=SpreadSpeeds(per_place=2, speeds=(spread,)))
        for nodes in ({"": 2}, {"v": 2, "k": 1}):
            assert ends([task], nodes, per_host="1", cpus="3") == [1000.0]


def test_what_one_does_not_need_makes_another_faster() -> None:
    policy, tasks = "synergy", [gang("s", 600.0, resources=SENSITIVE), gang("i", 600.0, resources=INSENSITIVE)]
    assert ends(tasks, {"": 2}, policy=policy, per_host="2", cpus="3") == [600.0, 600.0]
    assert ends(tasks, {"": 2}, policy=policy, per_host="1", cpus="3") == [1000.0, 600.0]  # not across hosts
    table = rounds({"": 2}, tasks, policy=policy, per_host="2", cpus="3", round_s=100.0).tasks_table
    assert table["mean_cpus"] == [5.0, 1.0]
    assert "mean_memory_gb" not in table


def test_idle_nodes_leave_their_part_of_the_host_to_others() -> None:
    task = gang("s", 600.0, resources=SENSITIVE)
    assert ends([task], {"": 2}, policy="synergy", per_host="2", cpus="3") == [600.0]


def test_divided_again_when_a_task_ends() -> None:
    tasks = [gang("a", 100.0, resources=SENSITIVE), gang("b", 260.0, resources=SENSITIVE)]
    assert ends(tasks, {"": 2}, policy="synergy", per_host="2", cpus="3") == pytest.approx([100.0 / 0.6, 200.0 + 140.0])


def log_of(stays: str, leaves: str) -> EventLog:
    builder = LogBuilder()
    for time_s, node, idle in ((0.0, stays, True), (0.0, leaves, True), (250.0, leaves, False), (400.0, leaves, True)):
        builder.add(time_s, node, NodeState.IDLE if idle else NodeState.BUSY)
    return builder.build(end_s=9000.0)


def test_on_a_log_idle_gpus_bring_their_part_of_the_host() -> None:
    task = gang("s", 600.0, resources=SENSITIVE)
    result = rounds(log_of("n1/gpu0", "n1/gpu1"), [task], policy="synergy", round_s=100.0, cpus="3")
    assert result.tasks_table["finish_s"] == [pytest.approx(640.0)]  # slower from 300 to 400 s
    for racks in ({}, {"r1": "n[1-2]"}):
        with pytest.raises(BadInput, match="or give a log of GPUs: tasks on whole nodes never share"):
            rounds(log_of("n1", "n2"), [task], cpus="3", racks=racks)


def test_the_order_is_that_of_another_policy() -> None:
    tasks = [gang("long", 600.0), gang("short", 100.0)]
    for policy, expected in (("synergy", [600.0, 700.0]), ("synergy=srtf", [700.0, 100.0])):
        assert ends(tasks, {"": 1}, policy=policy, per_host="1", cpus="3") == expected
    for order in ("fastest", "gandiva", "optimus", "synergy", "5"):
        with pytest.raises(BadInput, match=f"policy 'synergy': cannot run tasks in the order '{order}'"):
            ends(tasks, {"": 1}, policy=f"synergy={order}", per_host="1", cpus="3")


def hosted(seed: int) -> HostedTasks:
    """Give up to six gangs with random tables on two hosts, some on both."""
    rng = np.random.default_rng(seed)
    per_host, share = 4, (3.0, 20.0)
    free, nodes, tables = np.full(2, per_host), [], []
    for _ in range(6):
        first = int(rng.integers(2))
        size, on = int(rng.choice([1, 1, 2, 3])), np.zeros(2, dtype=np.intp)
        for host in (first, 1 - first):
            on[host] = min(size - on.sum(), free[host])
        if not on.sum():
            continue
        nodes.append(on)
        free -= on
        cpus, memory = (np.sort(rng.choice(np.arange(1, 13), 2, replace=False)) * each for each in (1.0, 5.0))
        rise = np.sort(rng.uniform(0.1, 1.0, (2, 2)), axis=None).reshape(2, 2)
        speed = (rise, np.ones((2, 2)), rise[:, :1])[int(rng.integers(3))]
        by_memory = memory if speed.shape[1] == 2 else ()
        rows = tuple(map(tuple, speed.tolist()))
        tables.append(ResourceSpeeds(cpus=tuple(cpus), memory_gb=tuple(by_memory), speed=rows))
    return HostedTasks(
        names=tuple(f"t{number}" for number in range(len(nodes))),
        points=tuple(points_of(table, share) for table in tables),
        nodes=np.array(nodes).T,
        room=np.outer([per_host, per_host], share),
    )


def fits(case: HostedTasks, rows: tuple[int, ...]) -> bool:
    for host, room in enumerate(case.room.tolist()):
        for which in (0, 1):
            taken = sum(case.nodes[host, task] * case.points[task][row, which] for task, row in enumerate(rows))
            if taken > room[which] * (1.0 + 1e-9):
                return False
    return True


@pytest.mark.parametrize("seed", SEEDS)
def test_no_step_is_left_that_makes_a_task_faster(seed: int) -> None:
    case = hosted(seed)
    rows = tuple(registry.load("rounds", "synergy")().resources(case))
    assert fits(case, rows)
    assert all(points[row, 2] >= 1.0 for points, row in zip(case.points, rows, strict=True))
    for task, points in enumerate(case.points):  # nothing is left that makes a task faster
        for row in np.flatnonzero(points[:, 2] > points[rows[task], 2]).tolist():
            assert not fits(case, (*rows[:task], row, *rows[task + 1 :]))


def mix(seed: int) -> list[TaskSpec]:
    """Return tasks of which half need many CPU cores, as models of images do, and half few, as those of texts do."""
    rng = np.random.default_rng(seed)
    tasks = []
    for number in range(16):
        table = SENSITIVE if rng.random() < 0.5 else INSENSITIVE
        work, submit_s = float(rng.lognormal(7.0, 1.0)), float(rng.uniform(0.0, 3000.0))
        tasks.append(gang(f"t{number}", work, int(rng.choice([1, 1, 2, 4])), submit_s, resources=table))
    return tasks


@pytest.mark.parametrize("order", ["fifo", "las", "srtf"])
def test_no_task_is_slower_than_with_its_share_and_the_mean_is_better(order: str) -> None:
    means = []
    for seed in range(2):
        settings = {"round_s": 60.0, "per_host": "4", "cpus": "3"}
        usual, divided = (
            rounds({"": 8}, mix(seed), policy=policy, **settings)  # type: ignore[arg-type]  # settings by name
            for policy in (order, f"synergy={order}")
        )
        table = divided.tasks_table
        ran_s = np.array(table["on_node_s"])
        least = np.array(
            [SENSITIVE.part(3.0, 1.0) if s.resources is SENSITIVE else 1.0 for s in divided.engine.gangs.specs]
        )
        assert (np.array(table["done_samples"]) >= least * ran_s * (1.0 - 1e-9)).all()
        means.append((usual.task_figures.completion_s.mean, divided.task_figures.completion_s.mean))  # type: ignore[union-attr]
    assert all(divided < usual for usual, divided in means), means


OWN = """
class Odd:
    name = "odd"

    def priorities(self, contenders):
        return -contenders.submit_s

    def resources(self, hosted):
        return {rows}
"""


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("[0]", "gave resources array(.*) for 2 tasks"),
        ("[0, 0.5]", "gave resources array"),
        ("[0, 9]", "gave task 'i' the row 9 of 2 points"),
        ("[1, 0]", "gave out more CPU cores than the host of task 's' has"),
        ("1 / 0", "raised ZeroDivisionError"),
    ],
)
def test_what_hosts_do_not_have_is_refused(rows: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(OWN.format(rows=rows))
    tasks = [gang("s", 600.0, resources=SENSITIVE), gang("i", 600.0, resources=INSENSITIVE)]
    with pytest.raises(BadInput, match=f"policy 'odd', round 0 at 0 s: {words}"):
        ends(tasks, {"": 2}, policy=f"{tmp_path}/odd.py:Odd", per_host="2", cpus="3")


def test_settings_that_mean_nothing_are_refused() -> None:
    tasks = [gang("s", 600.0, resources=SENSITIVE)]
    for settings, words in (
        ({"cpus": "3"}, "cpus: is shared by the nodes of a host, and which nodes lie on one host is not known"),
        ({"memory_gb": "64"}, "memory_gb: is shared by the nodes"),
        ({"cpus": "some", "per_host": "2"}, "cpus: is 'some': 'some' is not a number"),
        ({"cpus": "0", "per_host": "2"}, "cpus: is '0': 0 is not above 0"),
        ({"cpus": "nan", "per_host": "2"}, "nan is not above 0"),
        ({"cpus": "v=1,v=2", "per_host": "2"}, "'v' is listed twice"),
        ({"cpus": "3,4", "per_host": "2"}, "'3' names no kind"),
        ({"cpus": "3", "per_host": "2", "pairs": "p.json"}, "cpus: limits nodes that a task uses alone"),
    ):
        with pytest.raises(BadInput, match=words):
            ends(tasks, {"": 2}, **settings)  # type: ignore[arg-type]  # settings by name
