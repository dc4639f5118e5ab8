"""Policies in rounds: shares are reached over time, priorities decide, your own can be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from bftrain import (
    BadInput,
    Entity,
    NodeState,
    RoundSettings,
    SharingProblem,
    SharingTask,
    TaskSpec,
    UnknownName,
    registry,
    rounds,
    share,
)
from bftrain.values.sharing import Inside
from tests.helpers.round_cases import gang
from tests.unit.replay.cases import LogBuilder, RoundResult

KINDS = ("v", "k")
TABLE = {"a": (40.0, 10.0), "b": (12.0, 4.0), "c": (100.0, 50.0)}
ENDLESS = 1e12
LONG_S = 800 * 60.0


def three() -> list[TaskSpec]:
    return [gang(name, ENDLESS, speeds=dict(zip(KINDS, row, strict=True))) for name, row in TABLE.items()]


def speeds(result: RoundResult) -> dict[str, float]:
    table = result.tasks_table
    return {
        name: done / result.summary["simulated_s"]
        for name, done in zip(table["name"], table["done_samples"], strict=True)
    }


def test_max_min_reaches_the_published_speeds() -> None:
    result = rounds({"v": 1, "k": 1}, three(), policy="max-min", round_s=60.0, until_s=LONG_S)
    assert speeds(result) == pytest.approx({"a": 18.1818, "b": 5.81818, "c": 54.5454}, rel=5e-3)
    assert result.shares_computed == 1


@pytest.mark.parametrize(
    ("policy", "order", "near"),
    [
        # finish-time-blind sees other speeds in rounds
        *((policy, "priority", 0.95) for policy in sorted({*registry.parts("sharing")} - {"finish-time-blind"})),
        *((policy, order, 0.7) for policy in ("max-min", "hierarchical", "makespan") for order in ("listed", "drawn")),
    ],
)
def test_every_sharing_policy_is_carried_out(policy: str, order: str, near: float) -> None:
    nodes = {"v": 2, "k": 2}
    tasks = tuple(
        SharingTask(name=name, speeds=dict(zip(KINDS, row, strict=True)), work_left_samples=ENDLESS)
        for name, row in TABLE.items()
    )
    wanted = share(SharingProblem(nodes=nodes, policy=policy, tasks=tasks))
    result = rounds(nodes, three(), policy=policy, round_s=60.0, until_s=LONG_S, kind_order=order)
    if policy == "max-min-blind":  # which kind does not matter to it
        got = dict(zip(TABLE, (result.engine.progress.service_s.sum(axis=1) / LONG_S).tolist(), strict=True))
        expected = {name: sum(shares.values()) for name, shares in wanted.shares.items()}
    else:
        got, expected = speeds(result), dict(wanted.speeds)
    for name, least in expected.items():
        assert got[name] >= near * least  # or more, where nodes would else be idle


def test_shares_are_computed_again_when_a_task_comes_or_goes() -> None:
    tasks = [*three(), gang("late", 500.0, submit_s=600.0, speeds={"v": 1.0, "k": 1.0})]
    settings = RoundSettings(policy="max-min", round_s=60.0, until_s=LONG_S, max_backlog_s=1e15)
    result = rounds({"v": 1, "k": 1}, tasks, settings)
    assert result.shares_computed == 3
    seldom = rounds({"v": 1, "k": 1}, tasks, settings, shares_interval_s=6000.0)
    assert seldom.tasks_table["first_start_s"][3] == 6000.0  # who comes between has to wait
    assert seldom.shares_computed == 3


def test_what_was_received_counts_though_nodes_come_and_go() -> None:
    builder = LogBuilder()
    builder.add(0.0, "stays", NodeState.IDLE)
    for number in range(200):  # a second node that is there in every other round
        builder.add(60.0 * number, "flaps", NodeState.BUSY if number % 2 else NodeState.IDLE)
    log = builder.build(end_s=12_000.0)
    tasks = [gang(name, ENDLESS) for name in ("a", "b", "c")]
    result = rounds(log, tasks, policy="max-min", round_s=60.0)
    assert result.shares_computed > 150
    assert [done / 18_000.0 for done in result.tasks_table["done_samples"]] == pytest.approx([1 / 3] * 3, rel=0.02)


@pytest.mark.parametrize("policy", sorted(registry.parts("sharing")))
def test_a_kind_may_go_and_come_back(policy: str) -> None:
    builder = LogBuilder()
    builder.set_kind("n1", "k")
    builder.set_kind("n2", "v")
    for time_s, node, state in (
        (0.0, "n1", "IDLE"),
        (0.0, "n2", "IDLE"),
        (1000.0, "n2", "BUSY"),
        (2000.0, "n2", "IDLE"),
    ):
        builder.add(time_s, node, NodeState[state])
    both, one = {"k": 1.0, "v": 2.0}, {"v": 2.0}
    tasks = [gang(name, 2000.0, speeds=speeds) for name, speeds in (("a", both), ("b", both), ("only-v", one))]
    result = rounds(builder.build(end_s=9000.0), tasks, policy=policy, round_s=100.0)
    assert result.ended == "all_done"
    used = sum(result.tasks_table["on_v_s"])
    assert result.summary["kinds"]["v"]["used_node_h"] * 3600 == pytest.approx(used)
    assert result.tasks_table["on_k_s"][2] == 0.0


@pytest.mark.parametrize("policy", sorted(registry.parts("sharing")))
def test_tasks_without_weight_have_what_no_other_can_use(policy: str) -> None:
    tasks = [gang("none", 100.0, weight=0.0), gang("some", 200.0), gang("nil", 100.0, weight=0.0)]
    three_nodes = rounds({"": 3}, tasks, policy=policy, round_s=50.0)
    assert three_nodes.tasks_table["finish_s"] == [100.0, 200.0, 100.0]  # none would be used by any other
    one = rounds({"": 1}, tasks, policy=policy, round_s=50.0)
    assert (one.ended, max(one.tasks_table["finish_s"])) == ("all_done", 400.0)
    if not policy.startswith(("makespan", "finish-time", "isolated", "allox", "fifo")):  # which know no weights
        assert one.tasks_table["finish_s"][1] == 200.0
    alone = rounds({"": 1}, [tasks[0], tasks[2]], policy=policy, round_s=50.0)
    assert alone.ended == "all_done"


def test_prices_count() -> None:
    tasks = [gang("a", 900.0, speeds={"dear": 4.0, "cheap": 3.0}), gang("b", 900.0, speeds={"dear": 8.0, "cheap": 3.0})]
    nodes = {"dear": 2, "cheap": 2}
    plain = rounds(nodes, tasks, policy="cost", round_s=60.0)
    assert plain.tasks_table["on_cheap_s"] == [0.0, 0.0]
    priced = rounds(nodes, tasks, policy="cost", round_s=60.0, prices={"dear": 10.0})
    assert priced.tasks_table["on_dear_s"] == [0.0, 0.0]
    assert priced.summary["cost"] == pytest.approx(600.0 / 3600.0)


@pytest.mark.parametrize("policy", ["makespan", "finish-time"])
def test_policies_that_divide_by_work_refuse_endless_tasks_at_the_begin(policy: str) -> None:
    tasks = [gang("a", 100.0), gang("late", None, submit_s=1e6)]
    words = f"task 'late': has no amount of work, which policy '{policy}' requires"
    with pytest.raises(BadInput, match=words):
        rounds({"": 1}, tasks, policy=policy, round_s=50.0, until_s=200.0)
    assert rounds({"": 1}, tasks, policy="max-min", round_s=50.0, until_s=200.0).ended == "until"


def test_a_task_without_a_share_runs_on_an_idle_node() -> None:
    tasks = [gang("a", 100.0), gang("b", 100.0, submit_s=50.0)]
    result = rounds({"": 2}, tasks, policy="max-min", round_s=60.0, shares_interval_s=86_400.0)
    assert (result.ended, result.tasks_table["finish_s"]) == ("all_done", [100.0, 160.0])
    both = {"v": 9.0, "k": 1.0}
    waits = [gang("wide", 1e6, 2, speeds=both), gang("slim", 100.0, speeds={"v": 1.0, "k": 1.0}, submit_s=60.0)]
    table = rounds({"v": 3, "k": 1}, waits, policy="throughput", round_s=60.0).tasks_table
    assert table["first_start_s"] == [0.0, 60.0]


def test_who_waits_for_new_shares_as_in_gavel_has_not_stalled() -> None:
    tasks = [gang("a", 100.0, submit_s=1.0), gang("b", 100.0, submit_s=50.0)]
    result = rounds({"": 2}, tasks, policy="max-min", round_s=60.0, shares_interval_s=86_400.0, like="gavel")
    assert (result.ended, result.tasks_table["finish_s"]) == ("all_done", [101.0, 86_501.0])


def test_weights_and_entities_count() -> None:
    alike = {"v": 1.0}
    tasks = [gang(name, ENDLESS, speeds=alike, user=user) for name, user in (("a", "x"), ("b", "x"), ("c", "y"))]
    result = rounds({"v": 1}, tasks, policy="hierarchical", round_s=60.0, until_s=LONG_S)
    assert speeds(result) == pytest.approx({"a": 0.25, "b": 0.25, "c": 0.5}, rel=1e-2)
    entities = {"x": Entity(weight=3.0, inside=Inside.FIFO)}
    result = rounds({"v": 1}, tasks, policy="hierarchical", round_s=60.0, until_s=LONG_S, entities=entities)
    assert speeds(result) == pytest.approx({"a": 0.75, "b": 0.0, "c": 0.25}, abs=1e-2)
    heavy = [gang("a", ENDLESS, weight=3.0, speeds=alike), gang("b", ENDLESS, speeds=alike)]
    result = rounds({"v": 1}, heavy, policy="max-min", round_s=60.0, until_s=LONG_S)
    assert speeds(result) == pytest.approx({"a": 0.75, "b": 0.25}, rel=1e-2)


def test_finish_time_looks_at_age_and_at_what_was_done() -> None:
    tasks = [gang("old", 6000.0, speeds={"v": 1.0}), gang("new", 6000.0, submit_s=3000.0, speeds={"v": 1.0})]
    result = rounds({"v": 1}, tasks, policy="finish-time", round_s=60.0)
    table = result.tasks_table
    # alone on a half from 3,000 s on, old would take 3,000 + 2 * 3,000 s, new 2 * 6,000 s: both shares keep that
    assert table["finish_s"][0] == pytest.approx(9000.0, rel=0.05)
    assert table["finish_s"][1] == pytest.approx(12_000.0, rel=0.01)


def test_nodes_without_kinds_can_be_shared_too() -> None:
    tasks = [gang("a", ENDLESS), gang("b", ENDLESS, 2)]
    result = rounds({"": 2}, tasks, policy="max-min", round_s=60.0, until_s=LONG_S)
    assert speeds(result) == pytest.approx({"a": 2 / 3, "b": 1 / 3}, rel=1e-2)


OWN = """
import numpy as np
from bftrain_replay.rounds.round_policy import PairWish

class WidestFirst:
    name = "widest-first"

    def priorities(self, contenders):
        return contenders.nodes.astype(float)

class FirstKindFirst:
    name = "first-kind-first"

    def priorities(self, contenders):
        order = np.arange(len(contenders))
        return np.column_stack((-order, -order - 100.0))

class OnOneKind:
    name = "on-one-kind"
    steady = True

    def priorities(self, contenders):
        wanted = np.full((len(contenders), len(contenders.kinds)), -np.inf)
        wanted[:, contenders.kinds.index("k")] = -contenders.submit_s
        return wanted

class AtNight:
    name = "at-night"
    due_s = 5000.0

    def priorities(self, contenders):
        if contenders.time_s < self.due_s:
            return np.full(len(contenders), -np.inf)
        self.due_s = np.inf
        return -contenders.submit_s

class Wrong:
    name = "wrong"

    def priorities(self, contenders):
        return [1.0]

class Raises:
    name = "raises"

    def priorities(self, contenders):
        return contenders.nothing

class Never:
    name = "never"

    def priorities(self, contenders):
        return np.full(len(contenders), -np.inf)

class NoNumber:
    name = "no-number"

    def priorities(self, contenders):
        return np.full(len(contenders), np.nan)

class Together(Never):
    name = "together"

    def __init__(self, other=1, kind=0, speed=0.75):
        self.wish = (1.0, 0, int(other), int(kind), (speed, speed))

    def pairs(self, contenders):
        return [PairWish(*self.wish)] if len(contenders) > 1 else []

class Words:
    name = "words"

    def priorities(self, contenders):
        return ["a"] * len(contenders)

class Sizes(Never):
    name = "sizes"

    def sizes(self, contenders):
        return np.full(len(contenders), 2.0)

ready = WidestFirst()

def broken():
    raise ValueError("no")

def nothing():
    return 5
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return path


def test_without_overtaking_a_task_keeps_what_it_gets_late_and_later_ones_wait(own: Path) -> None:
    any_kind, only_v = {"v": 1.0, "k": 1.0}, {"v": 1.0}
    tasks = [gang("a", 100.0, speeds=only_v), gang("b", 100.0, 2, speeds=any_kind)]
    tasks += [gang("c", 100.0, 2, speeds=only_v), gang("d", 100.0, speeds=only_v)]
    policy = f"{own}:FirstKindFirst"
    result = rounds({"v": 2, "k": 2}, tasks, policy=policy, round_s=100.0, overtaking="no")
    assert result.tasks_table["finish_s"] == [100.0, 100.0, 200.0, 300.0]


def test_a_policy_of_ones_own(own: Path) -> None:
    tasks = [gang("slim", 100.0), gang("wide", 100.0, 2)]
    for name in ("WidestFirst", "ready"):
        result = rounds({"": 2}, tasks, policy=f"{own}:{name}", round_s=100.0)
        assert result.tasks_table["finish_s"] == [200.0, 100.0]
    result = rounds({"v": 1, "k": 1}, three(), policy=f"{own}:OnOneKind", round_s=60.0, until_s=600.0)
    assert result.tasks_table["on_v_s"] == [0.0, 0.0, 0.0]
    assert result.tasks_table["on_k_s"] == [600.0, 0.0, 0.0]


def test_what_is_wrong_with_a_policy_of_ones_own(own: Path) -> None:
    tasks = [gang("a", 100.0), gang("b", 100.0)]
    for name, words in (
        ("Wrong", r"gave priorities of shape \(1,\) for 2 tasks and 1 kinds"),
        ("Raises", "policy 'raises', round 0 at 0 s: raised AttributeError: .*repair the policy"),
        ("NoNumber", "policy 'no-number', round 0 at 0 s: gave task 'a' the priority NaN .give a number, -inf"),
        ("Words", "policy 'words', round 0 at 0 s: gave list .'a', 'a'. .give an array of numbers"),
        ("Sizes", "policy 'sizes', round 0 at 0 s: gave task 'a', which runs on 1 to 1, the size 2 "),
        ("broken", "cannot be created: ValueError: no"),
        ("nothing", "returned a int, not a policy"),
    ):
        with pytest.raises(BadInput, match=words):
            rounds({"": 2}, tasks, policy=f"{own}:{name}")
    stalled = rounds({"": 2}, tasks, policy=f"{own}:Never", round_s=1.0)
    assert (stalled.ended, stalled.complete, stalled.summary["waiting"]) == ("stalled", False, 2)


def test_pairs_of_a_policy_of_ones_own(own: Path) -> None:
    tasks = [gang("a", 75.0), gang("b", 75.0), gang("wide", 75.0, 2)]
    result = rounds({"": 2}, tasks, policy=f"{own}:Together", round_s=100.0, until_s=200.0)
    assert result.tasks_table["finish_s"][:2] == [100.0, 100.0]
    for wrong in ("other=0", "other=2", "other=7", "kind=1", "speed=-1", "speed=nan"):
        with pytest.raises(BadInput, match=r"policy 'together', round 0 at 0 s: gave the pair .*pair two tasks"):
            rounds({"": 2}, tasks, policy=f"{own}:Together,{wrong}", until_s=100.0)


def test_a_policy_that_says_until_when_it_waits_has_not_stalled(own: Path) -> None:
    result = rounds({"": 1}, [gang("a", 100.0)], policy=f"{own}:AtNight", round_s=1.0)
    assert (result.ended, result.tasks_table["finish_s"]) == ("all_done", [5100.0])


def test_policies_by_name() -> None:
    with pytest.raises(UnknownName, match="did you mean 'srtf'"):
        rounds({"": 1}, [gang("a", 1.0)], policy="srft")
    for name in registry.parts("rounds"):
        assert registry.load("rounds", name)().name == name
    with pytest.raises(BadInput, match="overtaking: sharing policies have no order"):
        rounds({"": 1}, [gang("a", 1.0)], policy="max-min", overtaking="no")
