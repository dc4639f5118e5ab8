"""Two tasks on the same nodes in rounds: their speeds, their time, nodes that leave, and Gandiva's pairs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec import UNSET

from bftrain import NodeState, SharingProblem, SharingTask, registry, rounds
from bftrain.values.sharing import PairSpeeds
from tests.helpers.round_cases import gang
from tests.unit.replay.cases import LogBuilder

KINDS = ("v", "k")


def table(tmp_path: Path, part: float = 0.8, kinds: tuple[str, ...] = KINDS, gangs: tuple[int, ...] = (1, 2)) -> str:
    """Write a table in which two tasks each keep a part of their speed, the second of a pair a tenth less."""
    document: dict[str, dict[str, dict[str, object]]] = {kind: {} for kind in kinds}
    for kind in kinds:
        for gang_ in gangs:
            for one in "AB":
                others = {
                    f"('{other}', {gang_})": [part - 0.1 * (one > other), part - 0.1 * (one < other)] for other in "AB"
                }
                document[kind][f"('{one}', {gang_})"] = {"null": 1.0, **others}
    path = tmp_path / "speeds.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("policy", ["throughput-packed", "fifo-packed"])
def test_two_tasks_share_a_node_each_at_its_speed_there(policy: str, tmp_path: Path) -> None:
    tasks = [gang("a-0", 700.0), gang("b-1", 630.0)]
    result = rounds({"": 1}, tasks, policy=policy, round_s=100.0, pairs=table(tmp_path, kinds=("node",)))
    # together 875 s and 900 s at .8 and .7; the first is done within a round, and then the other is too
    assert result.tasks_table["finish_s"] == pytest.approx([875.0, 900.0])
    assert sum(result.tasks_table["node_h"]) * 3600.0 == pytest.approx((875.0 + 900.0) / 2.0)
    assert result.summary["coverage"] == pytest.approx(1.0, abs=0.02)
    plain = rounds({"": 1}, tasks, policy=policy, round_s=100.0)
    assert max(plain.tasks_table["finish_s"]) >= 1330.0


def test_a_node_that_leaves_takes_both(tmp_path: Path) -> None:
    builder = LogBuilder()
    for time_s, state in ((0.0, NodeState.IDLE), (250.0, NodeState.BUSY), (400.0, NodeState.IDLE)):
        builder.add(time_s, "n1", state)
    log, tasks = builder.build(end_s=3000.0), [gang("a-0", 700.0), gang("b-1", 700.0)]
    result = rounds(log, tasks, policy="throughput-packed", round_s=100.0, pairs=table(tmp_path, kinds=("node",)))
    assert result.tasks_table["taken"] == [1, 1]
    assert result.tasks_table["finish_s"] == pytest.approx([1025.0, 1135.0])  # the second is alone from 1,100 s on
    assert result.summary["used_node_h"] <= result.summary["idle_node_h"]


@pytest.mark.parametrize("policy", ["max-min-packed", "finish-time-packed", "cost-packed", "gandiva"])
@pytest.mark.parametrize("seed", range(2))
def test_what_is_done_is_what_time_alone_and_together_come_to(policy: str, seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    part = float(rng.uniform(0.65, 0.95))
    file, nodes = table(tmp_path, part), {"v": 2, "k": int(rng.integers(1, 3))}
    tasks = [
        gang(
            f"{rng.choice(['a', 'b'])}-{number}",
            float(rng.lognormal(6.0, 1.0)),
            int(rng.choice([1, 2])) if nodes["k"] > 1 else 1,
            submit_s=float(rng.uniform(0.0, 300.0)),
            speeds={"v": 1.0, "k": 1.0},
        )
        for number in range(12)
    ]
    result = rounds(nodes, tasks, policy=policy, round_s=60.0, pairs=file)
    engine = result.engine
    assert result.ended == "all_done"
    assert engine.done_samples == pytest.approx(engine.gangs.work)
    assert engine.progress.paired_s.sum() > 0.0
    alone_s = (engine.progress.service_s - engine.progress.paired_s).sum(axis=1)
    times = engine.progress.pairs
    for place, spec in enumerate(engine.gangs.specs):
        least = most = alone_s[place]
        for (one, other), received in zip(times.tasks[: times.count].tolist(), times.joint_s, strict=False):
            if place in (one, other):
                beside = engine.gangs.specs[other if place == one else one]
                speed = part - 0.1 * (spec.name[0] > beside.name[0])
                most += received.sum() * speed
                least += (received.sum() - 60.0) * speed  # of the last round perhaps a part
        assert least - 1e-6 <= spec.work_samples <= most + 1e-6
    assert result.summary["used_node_h"] <= result.summary["idle_node_h"] + 1e-9
    assert all(step.used_node_s <= step.pool * 60.0 + 1e-6 for step in engine.steps)


def problem(rng: np.random.Generator, names: list[str], part: float) -> SharingProblem:
    """Return tasks of one or two nodes, and what a pair keeps of its speed."""
    tasks = tuple(
        SharingTask(name=name, model="m", nodes=1 + int(name[1:]) % 2, speeds={"v": 2.0, "k": 1.0}) for name in names
    )
    kept = float(part * rng.uniform(0.9, 1.0))
    pairs = tuple(
        PairSpeeds(models=("m", "m"), nodes=n, speeds={"v": (2 * kept,) * 2, "k": (kept,) * 2}) for n in (1, 2)
    )
    return SharingProblem(nodes={"v": 2, "k": 2}, tasks=tasks, pairs=pairs)


@pytest.mark.parametrize("seed", range(15))
def test_gandiva_keeps_random_pairs_while_they_do_more_than_alone(seed: int) -> None:
    rng, policy = np.random.default_rng(seed), registry.load("rounds", "gandiva")(seed)
    here, before, after = [f"t{number}" for number in range(6)], set[tuple[str, ...]](), 6
    for _ in range(8):
        asked = sum(1 + int(name[1:]) % 2 for name in here)
        found = policy.share(problem(rng, here, 0.8))
        pairs = set() if found.pairs is UNSET else {tuple(sorted(pair.tasks)) for pair in found.pairs}
        together = [name for pair in pairs for name in pair]
        assert len(together) == len(set(together))  # each in one combination
        assert all(int(one[1:]) % 2 == int(other[1:]) % 2 for one, other in pairs)  # of the same gang
        if asked <= 4:
            assert not pairs
        else:
            assert {pair for pair in before if set(pair) <= set(here)} <= pairs  # kept
            combinations = len(here) - len(pairs)
            for name in set(here) - set(together):
                nodes = 1 + int(name[1:]) % 2
                assert found.shares[name] == pytest.approx(
                    dict.fromkeys("vk", 2 / nodes / max(combinations, 4 / nodes))
                )
            before = pairs
        here = [name for name in here if rng.random() < 0.7] + [f"t{after}", f"t{after + 1}"]
        after += 2
    policy = registry.load("rounds", "gandiva")(seed)
    bad = policy.share(problem(rng, ["t1", "t3", "t5"], 0.2))
    again = policy.share(problem(rng, ["t1", "t3", "t5"], 0.2))
    assert bad.pairs  # tried, and given up when they were seen to do too little
    assert len(again.pairs or ()) == 1
