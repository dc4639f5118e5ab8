"""Hosts in rounds: which nodes a gang gets, and how fast it is on several hosts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from bftrain import BadInput, BadValue, NodeState, SpreadSpeed, SpreadSpeeds, TaskSpec, rounds
from tests.helpers.round_cases import gang, slowly
from tests.unit.replay.cases import LogBuilder, RoundResult

HALF = SpreadSpeeds(speeds=(SpreadSpeed(share=0.5),))


def wide(name: str, work: float, nodes: int = 2, submit_s: float = 0.0, **more: Any) -> TaskSpec:  # noqa: ANN401 - fields
    return replace(gang(name, work, nodes, submit_s, **more), spread=HALF)


def ends(result: RoundResult) -> list[float]:
    return list(result.tasks_table["finish_s"])


def lost(result: RoundResult) -> list[float]:
    return list(result.tasks_table["lost_spread_samples"])


def test_a_gang_on_two_hosts_has_its_speed_there() -> None:
    tasks = [gang("one", 1000.0), gang("other", 1000.0), wide("pair", 300.0, submit_s=50.0)]
    one_each = rounds({"": 4}, tasks, round_s=100.0, per_host="2", placement="scattered")
    assert ends(one_each) == [1000.0, 1000.0, 700.0]
    assert lost(one_each) == [0.0, 0.0, 300.0]
    assert one_each.summary["lost_spread_samples"] == 300.0
    both_on_one = rounds({"": 4}, tasks, round_s=100.0, per_host="2")
    assert (ends(both_on_one), lost(both_on_one)) == ([1000.0, 1000.0, 400.0], [0.0, 0.0, 0.0])
    assert ends(rounds({"": 4}, tasks, round_s=100.0)) == ends(both_on_one)  # without hosts all nodes lie together


def test_what_goes_on_keeps_its_nodes_and_the_first_free_are_given_out_again() -> None:
    tasks = [gang("a", 100.0), gang("b", 900.0), gang("c", 100.0), gang("d", 900.0), wide("pair", 300.0, submit_s=50.0)]
    stays = rounds({"": 4}, tasks, round_s=100.0, per_host="2")
    assert (ends(stays)[-1], stays.tasks_table["moves"]) == (700.0, [0, 0, 0, 0, 0])
    again = rounds({"": 4}, tasks, round_s=100.0, placement="first-free", per_host="2")
    assert (ends(again)[-1], again.tasks_table["moves"]) == (400.0, [0, 1, 0, 0, 0])
    like_gavel = rounds({"": 4}, tasks, round_s=100.0, like="gavel", shares_interval_s=100.0, per_host="2")
    assert ends(like_gavel) == ends(again)
    costly = [replace(task, start_cost_s=10.0) for task in tasks]
    assert ends(rounds({"": 4}, costly, round_s=100.0, placement="first-free", per_host="2"))[1] == 920.0


def test_gangs_larger_than_a_host_lie_on_the_fewest_at_least() -> None:
    table = rounds({"": 8}, [wide("four", 100.0, 4), wide("three", 100.0, 3)], round_s=100.0, per_host="2")
    assert (ends(table), lost(table)) == ([100.0, 100.0], [0.0, 0.0])
    scattered = rounds({"": 8}, [wide("four", 100.0, 4)], round_s=100.0, per_host="2", placement="scattered")
    assert ends(scattered) == [200.0]


@pytest.mark.parametrize("placement", ["consolidated", "scattered", "first-free"])
@pytest.mark.parametrize("seed", range(12))
def test_all_is_as_node_by_node(seed: int, placement: str) -> None:
    rng = np.random.default_rng(seed)
    nodes, per_host = {"v": 6, "k": int(rng.integers(4, 7))}, {"v": 3, "k": int(rng.integers(2, 5))}
    tasks = []
    for number in range(12):
        speeds = {kind: float(rng.choice([1.0, 2.5, 4.0])) for kind in nodes}
        spread = SpreadSpeeds(
            speeds=tuple(SpreadSpeed(kind=kind, share=float(rng.choice([0.3, 0.7, 1.1]))) for kind in nodes)
        )
        work, submit_s = float(rng.exponential(900.0)) + 1.0, float(rng.uniform(0.0, 900.0))
        more = {"speeds": speeds, "start_cost_s": float(rng.choice([0.0, 17.0]))}
        task = gang(f"t{number}", work, int(rng.choice([1, 2, 3, 4])), submit_s, **more)
        tasks.append(replace(task, spread=spread))
    policy = ("fifo", "las", "srtf")[seed % 3]
    text = ",".join(f"{kind}={count}" for kind, count in per_host.items())
    table = rounds(nodes, tasks, round_s=60.0, policy=policy, per_host=text, placement=placement).tasks_table
    expected = slowly(tasks, nodes, policy, 60.0, "moment", (per_host, placement))
    assert table["finish_s"] == pytest.approx([expected[name].end_s for name in table["name"]])
    assert table["starts"] == [expected[name].starts for name in table["name"]]


@pytest.mark.parametrize("policy", ["max-min", "throughput", "gandiva", "optimus"])
def test_every_policy_runs_on_hosts(policy: str) -> None:
    speeds = {"v": 2.0, "k": 1.0}
    tasks = [wide(f"t{number}", 900.0, 1 + number % 3, 20.0 * number, speeds=speeds) for number in range(9)]
    result = rounds({"v": 4, "k": 4}, tasks, policy=policy, round_s=60.0, per_host="2", like="gavel")
    assert result.ended == "all_done"
    assert result.tasks_table["done_samples"] == pytest.approx([900.0] * 9)


def test_a_pair_on_two_hosts_is_as_much_slower_as_each_alone(tmp_path: Path) -> None:
    table = {"v": {"('m', 2)": {"null": 1.0, "('m', 2)": [0.8, 0.8]}}}
    (tmp_path / "pairs.json").write_text(json.dumps(table), encoding="utf-8")
    tasks = [replace(wide(f"m-{number}", 400.0, speeds={"v": 1.0}), spread=HALF) for number in range(2)]
    settings = {"policy": "max-min-packed", "pairs": f"{tmp_path}/pairs.json", "round_s": 50.0}
    result = rounds({"v": 2}, tasks, per_host="1", **settings)  # type: ignore[arg-type]  # settings by name
    assert ends(result) == [500.0, 500.0]  # per_place is 1: both nodes are needed, and two hosts are the fewest
    apart = [replace(task, spread=SpreadSpeeds(per_place=2, speeds=HALF.speeds)) for task in tasks]
    assert ends(rounds({"v": 2}, apart, per_host="1", **settings)) == [1000.0, 1000.0]  # type: ignore[arg-type]  # as above


def test_a_gang_that_does_nothing_where_it_lies_is_a_standstill() -> None:
    never = SpreadSpeeds(per_place=2, speeds=(SpreadSpeed(share=0.0),))
    result = rounds({"": 2}, [replace(gang("a", 100.0, 2), spread=never)], round_s=100.0, per_host="1")
    assert (result.ended, result.summary["tasks_finished"]) == ("stalled", 0)


def test_gpus_of_a_log_lie_on_their_hosts_and_nodes_in_their_racks() -> None:
    for names, more in ((("a/gpu0", "b/gpu0", "b/gpu1"), {}), (("a1", "b1", "b2"), {"racks": {"*": "1"}})):
        builder = LogBuilder()
        for name in names:
            builder.add(0.0, name, NodeState.IDLE)
        log, tasks = builder.build(end_s=9000.0), [gang("one", 9000.0), wide("pair", 300.0)]
        assert ends(rounds(log, tasks, round_s=100.0, **more))[1] == 300.0  # type: ignore[arg-type]  # settings by name
        scattered = rounds(log, tasks, round_s=100.0, placement="scattered", **more)  # type: ignore[arg-type]  # as above
        assert ends(scattered)[1] == 600.0


def test_what_is_refused() -> None:
    tasks = [gang("a", 100.0)]
    with pytest.raises(BadInput, match="lacks the number of 'k' nodes per host"):
        rounds({"v": 2, "k": 2}, tasks, per_host="v=2")
    with pytest.raises(BadValue, match="'two' is not a number of nodes"):
        rounds({"v": 2}, tasks, per_host="two")
    with pytest.raises(BadInput, match="placement: has no effect, because the hosts of nodes are unknown"):
        rounds({"": 2}, tasks, placement="scattered")
    with pytest.raises(BadInput, match="racks: has no effect on a cluster"):
        rounds({"": 2}, tasks, racks={"*": "1"})
