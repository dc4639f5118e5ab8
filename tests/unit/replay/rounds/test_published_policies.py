"""Policies of other systems: each against its published rule, job by job and round by round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pytest

from bftrain import BadInput, SpeedCurve, TaskSpec, rounds
from tests.helpers.round_cases import Job, Order, by_key, fastest_first, gang, slowly

ROUND_S = 60.0
SEEDS = range(12)


def case(seed: int) -> tuple[list[TaskSpec], dict[str, int]]:
    """Return gangs that come in the first hour, more than there is room for, on one or two kinds of nodes."""
    rng = np.random.default_rng(seed)
    nodes = {"": 5} if seed % 2 else {"v": 3, "k": 2}
    tasks = []
    for number in range(int(rng.integers(6, 14))):
        speeds = {} if seed % 2 else dict(zip(nodes, rng.uniform(0.5, 2.0, 2).tolist(), strict=True))
        size, work = int(rng.choice([1, 1, 2])), float(rng.lognormal(6.0, 1.0))
        submit_s, weight = float(rng.uniform(0.0, 1800.0)), float(rng.choice([1.0, 2.0, 5.0]))
        start_cost_s = float(rng.choice([0.0, 20.0]))
        more = {"submit_s": submit_s, "weight": weight, "start_cost_s": start_cost_s, "speeds": speeds}
        tasks.append(gang(f"t{number}", work, size, **more))  # type: ignore[arg-type]  # fields of a task
    return tasks, nodes


def check(tasks: list[TaskSpec], nodes: Mapping[str, int], policy: str, rule: Order) -> None:
    """Hold every end, start and preemption to those of the plain loop."""
    table = rounds(nodes, tasks, policy=policy, round_s=ROUND_S).tasks_table
    expected = slowly(tasks, nodes, rule, ROUND_S, "moment")
    assert table["finish_s"] == pytest.approx([expected[name].end_s for name in table["name"]])
    assert table["starts"] == [expected[name].starts for name in table["name"]]
    assert table["preemptions"] == [expected[name].preemptions for name in table["name"]]
    assert table["node_h"] == pytest.approx([expected[name].got_node_s / 3600.0 for name in table["name"]])


@pytest.mark.parametrize("seed", SEEDS)
def test_tiresias_has_two_queues_each_first_come_first_served(seed: int) -> None:
    tasks, nodes = case(seed)
    check(tasks, nodes, "tiresias=500", by_key(lambda job: (job.got_node_s >= 500.0, job.spec.submit_s)))


@pytest.mark.parametrize("seed", SEEDS)
def test_tiresias_promotes_a_task_that_has_waited_too_long(seed: int) -> None:
    tasks, nodes = case(seed)
    forgiven: dict[str, float] = {}

    def rule(here: list[Job], now_s: float) -> Iterable[tuple[Job, list[str]]]:
        queues: dict[bool, list[Job]] = {False: [], True: []}
        for job in here:
            received = job.got_node_s - forgiven.get(job.spec.name, 0.0)
            if received > 0.0 and (now_s - job.last_s) * job.nodes >= 2.0 * received:
                forgiven[job.spec.name], received = job.got_node_s, 0.0
            queues[received >= 200.0].append(job)
        return [(job, fastest_first(job)) for queue in queues.values() for job in queue]

    check(tasks, nodes, "tiresias=200,promote=2", rule)


@pytest.mark.parametrize("seed", SEEDS)
def test_optimus_gives_each_node_where_it_saves_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    pool, tasks, sizes = int(rng.integers(2, 9)), [], (1, 2, 3, 4)
    for number in range(int(rng.integers(2, 8))):
        single, bend = float(rng.uniform(0.5, 2.0)), float(rng.uniform(0.4, 0.95))
        curve = SpeedCurve(nodes=sizes, rate=tuple(single * size**bend for size in sizes))
        work, submit_s = float(rng.lognormal(6.0, 1.0)), float(rng.uniform(0.0, 900.0))
        tasks.append(TaskSpec(name=f"t{number}", curve=curve, max_nodes=4, work_samples=work, submit_s=submit_s))

    def rule(here: list[Job], _: float) -> Iterable[tuple[Job, list[str]]]:
        def left_s(job: Job, size: int) -> float:
            return job.left / job.spec.curve.speed(size)

        runs = sorted(here, key=lambda job: left_s(job, min(4, pool)))[:pool]
        size = dict.fromkeys([job.spec.name for job in runs], 1)
        for _ in range(pool - len(runs)):
            able = [job for job in runs if size[job.spec.name] < 4]
            if able:
                most = max(able, key=lambda job: left_s(job, (n := size[job.spec.name])) - left_s(job, n + 1))
                size[most.spec.name] += 1
        for job in runs:
            job.nodes, job.speeds = size[job.spec.name], {"": job.spec.curve.speed(size[job.spec.name])}
        return [(job, [""]) for job in runs]

    check(tasks, {"": pool}, "optimus", rule)


def test_optimus_takes_kinds_too() -> None:
    curve = {kind: SpeedCurve(nodes=(1, 2), rate=(speed, 1.8 * speed)) for kind, speed in (("v", 4.0), ("k", 1.0))}
    tasks = [TaskSpec(name=name, curve=curve["v"], curves=curve, max_nodes=2, work_samples=720.0) for name in "ab"]
    table = rounds({"v": 1, "k": 2}, tasks, policy="optimus", round_s=60.0).tasks_table
    assert table["finish_s"][0] == 180.0
    assert (table["on_v_s"][0], table["on_k_s"][1]) == (180.0, 180.0)  # then there is room on v
    assert table["shortest_s"] == pytest.approx([180.0, 180.0])
    assert table["nodes"] == [1, 1]


OWN = """
class Odd:
    name = "odd"

    def sizes(self, contenders):
        return [{size}] * len(contenders)

    def priorities(self, contenders):
        return -contenders.submit_s
"""


@pytest.mark.parametrize("size", ["9", "0", "1.5", "1, 1", "'x'"])
def test_sizes_that_tasks_cannot_have_are_refused(size: str, tmp_path: object) -> None:
    path = f"{tmp_path}/odd.py"
    with open(path, "w", encoding="utf-8") as file:  # noqa: PTH123 - a name
        file.write(OWN.format(size=size))
    with pytest.raises(BadInput, match=r"policy 'odd', round 0 at 0 s: gave "):
        rounds({"": 1}, [gang("a", 10.0)], policy=f"{path}:Odd")


def test_what_is_set_in_a_policy() -> None:
    tasks = [gang("a", 10.0)]
    for policy, words in (
        ("tiresias=1,speed=2", "policy 'tiresias': has no setting 'speed'"),
        ("max-min=3", r"policy 'max-min': has no settings \(write max-min alone\)"),
        ("tiresias=nan", "policy 'tiresias': threshold_node_s must be a number of at least 0, not nan"),
        ("tiresias,promote=-1", "promote must be a number of at least 0, not -1"),
        ("gandiva=x", "policy 'gandiva': seed must be a whole number of at least 0, not 'x'"),
    ):
        with pytest.raises(BadInput, match=words):
            rounds({"": 1}, tasks, policy=policy)
