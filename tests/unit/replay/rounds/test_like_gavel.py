"""The conventions of Gavel's simulator, on small cases worked out by hand."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bftrain import BadInput, EventLog, NodeState, TaskSpec, rounds
from bftrain_replay.rounds import gavel_shares
from bftrain_replay.rounds.pair_shares import PairModels
from bftrain_solvers.knapsack import compiled_knapsack
from bftrain_solvers.knapsack.library_file import compile_library
from bftrain_solvers.sharing.rising import ShareDemands
from tests.helpers.round_cases import gang
from tests.unit.replay.cases import LogBuilder

IDLE, BUSY = NodeState.IDLE, NodeState.BUSY

LIKE: dict[str, Any] = {"like": "gavel", "round_s": 360.0}


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with tables of speeds."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "speeds.json").write_text('{"node": {"(\'A\', 1)": {"null": 1.0, "(\'A\', 1)": [0.5, 0.5]}}}')
    (tmp_path / "phases.csv").write_text("model,from,nodes,rate\na,0,1,1\n")
    return tmp_path


def ends(nodes: dict[str, int], tasks: list[TaskSpec], **options: object) -> dict[str, float]:
    table = rounds(nodes, tasks, **{**LIKE, **options}).tasks_table
    return dict(zip(table["name"], table["finish_s"], strict=True))


def test_ideal_shares_end_tasks_at_the_next_arrival() -> None:
    tasks = [
        gang("a", 600.0, speeds={"v100": 1.0}),
        gang("b", 600.0, speeds={"v100": 1.0}),
        gang("c", 1.0, submit_s=2000.0, speeds={"v100": 1.0}),
    ]
    found = ends({"v100": 1}, tasks, policy="max-min", like="gavel-ideal")
    assert (found["a"], found["b"]) == (2000.0, 2000.0)  # half of the time each is enough by 1,200 s


def test_steps_with_ideal_shares_are_numbered_and_counted() -> None:
    tasks = [gang("a", 600.0), gang("b", 600.0, submit_s=300.0)]
    done = rounds({"": 2}, tasks, policy="max-min", like="gavel-ideal", round_s=360.0)
    steps = done.rounds_table
    assert list(steps["first_round"]) == list(range(len(steps["first_round"])))
    assert done.summary["rounds"] == len(steps["first_round"]) > 1


def test_ideal_shares_need_a_policy_of_shares() -> None:
    with pytest.raises(BadInput, match="like"):
        rounds({"v100": 1}, [gang("a", 1.0, speeds={"v100": 1.0})], policy="las", like="gavel-ideal", round_s=360.0)


@pytest.mark.parametrize(
    "setting",
    [
        {"admission": "load"},
        {"pairs": "speeds.json"},
        {"phases": "phases.csv"},
        {"per_host": "1"},
        {"learning": "yes"},
        {"start_cost_s": 5.0},
    ],
)
@pytest.mark.usefixtures("files")
def test_ideal_shares_reject_settings_without_effect(setting: dict[str, object]) -> None:
    (name,) = setting
    options: dict[str, Any] = {"policy": "max-min", "like": "gavel-ideal", "round_s": 360.0}
    with pytest.raises(BadInput, match=rf"^{name}: "):
        rounds({"node": 1}, [gang("a", 600.0)], **options, **setting)


def test_ideal_shares_reject_tasks_with_start_costs() -> None:
    with pytest.raises(BadInput, match=r"^start_cost_s: .*set it to 0"):
        ends({"": 1}, [gang("a", 600.0, start_cost_s=5.0)], policy="max-min", like="gavel-ideal")


def test_shares_are_those_of_the_solver_ecos() -> None:
    """All shares that add up to 1 are optimal: largest t with t <= x + y <= 1, x <= 1 and y <= 3."""
    tasks = [gang("a", 3600.0, speeds={"v": 1.0, "k": 1.0})]
    table = rounds({"v": 1, "k": 3}, tasks, policy="max-min", like="gavel-ideal", round_s=360.0).tasks_table
    shares = table["on_v_s"][0] / 3600.0, table["on_k_s"][0] / 3600.0
    assert shares == pytest.approx((0.287433, 0.712567), abs=1e-5)


@pytest.mark.parametrize("policy", ["max-min", "finish-time", "makespan"])
def test_equal_tasks_have_equal_shares_however_many_they_are(policy: str) -> None:
    def times(count: int) -> list[tuple[float, float]]:
        speeds = [{"v": 3.0, "k": 1.0}, {"v": 2.0, "k": 1.5}] * count
        tasks = [gang(f"t{place}", 7200.0, speeds=own) for place, own in enumerate(speeds)]
        options = {"policy": policy, "like": "gavel-ideal", "round_s": 360.0, "until_s": 360.0}
        table = rounds({"v": count, "k": count}, tasks, **options).tasks_table  # type: ignore[arg-type]
        return list(zip(table["on_v_s"], table["on_k_s"], strict=True))

    few, many = times(2), times(40)  # 2 and 40 of each kind on as many nodes
    for place, both in enumerate(many):
        assert both == pytest.approx(few[place % 2], rel=0.01)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e12])
def test_only_ratios_of_weights_matter(scale: float) -> None:
    tasks = [gang(f"t{weight:g}", 1e6, speeds={"v": 1.0}, weight=weight * scale) for weight in (1.0, 3.0, 12.0)]
    options: dict[str, Any] = {"policy": "max-min", "like": "gavel-ideal", "round_s": 360.0, "until_s": 360.0}
    times = rounds({"v": 1}, tasks, **options).tasks_table["on_v_s"]
    assert [time_s / 360.0 for time_s in times] == pytest.approx([1 / 16, 3 / 16, 12 / 16], abs=1e-4)


def test_a_task_of_weight_0_changes_no_pairs(pairs: str) -> None:
    tasks = [gang("a-0", 36_000.0, speeds={"v": 1.0, "k": 1.0}), gang("b-1", 36_000.0, speeds={"v": 1.0, "k": 0.2})]
    options: dict[str, Any] = {"policy": "max-min-packed", "pairs": pairs, "until_s": 36_000.0, **LIKE}
    alone, beside = (
        rounds({"v": 2, "k": 2}, [*tasks, *more], **options).engine.progress.paired_s[:2].tolist()
        for more in ([], [gang("c-2", 10.0, speeds={"v": 1.0}, weight=0.0)])
    )
    assert alone == beside
    assert any(map(any, alone))


@pytest.fixture
def pairs(tmp_path: Path) -> str:
    """Write a table in which A loses nothing beside B, B keeps a tenth, and two B keep .8 each."""
    rows = {
        "('A', 1)": {"null": 1.0, "('A', 1)": [0.0, 0.0], "('B', 1)": [1.0, 0.1]},
        "('B', 1)": {"null": 1.0, "('A', 1)": [0.1, 1.0], "('B', 1)": [0.8, 0.8]},
    }
    path = tmp_path / "pairs.json"
    path.write_text(json.dumps({"v": rows, "k": rows}))
    return str(path)


def test_packed_tasks_share_nodes_though_others_are_idle(pairs: str) -> None:
    """The middle includes pairs that cost the slowest task nothing; the default runs all tasks alone."""
    tasks = [gang("a-0", 36_000.0, speeds={"v": 1.0, "k": 1.0}), gang("b-1", 36_000.0, speeds={"v": 1.0, "k": 0.2})]
    nodes, options = {"v": 2, "k": 2}, {"policy": "max-min-packed", "pairs": pairs, "round_s": 360.0}
    plain, like = (rounds(nodes, tasks, **options, **more).engine.progress for more in ({}, {"like": "gavel"}))  # type: ignore[arg-type]
    assert plain.paired_s.sum() == 0.0
    assert like.paired_s[0].sum() == like.paired_s[1].sum() > 360.0


def test_fifo_packs_the_first_waiting_task_beside_its_best_mate(pairs: str) -> None:
    tasks = [gang(name, 3600.0, speeds={"v": 1.0}) for name in ("a-0", "b-1", "b-2", "a-3", "b-4")]
    options = {"policy": "fifo-packed", "pairs": pairs, "until_s": 360.0, **LIKE}
    progress = rounds({"v": 2}, tasks, **options).engine.progress
    # b-2 joins b-1 (1.6 times the work); a-3 would join a-0 for nothing, so b-4 behind it waits
    assert progress.partner.tolist() == [-1, 2, 1, -1, -1]
    assert progress.left.tolist() == [3600.0 - 360.0, *[3600.0 - 0.8 * 360.0] * 2, 3600.0, 3600.0]


def test_fifo_passes_a_task_that_can_use_no_kind_with_room() -> None:
    v100, both = {"v100": 1.0}, {"v100": 1.0, "k80": 0.5}
    tasks = [gang("a", 720.0, speeds=v100), gang("b", 720.0, speeds=v100), gang("c", 360.0, speeds=both)]
    assert ends({"v100": 1, "k80": 1}, tasks, policy="fifo") == {"a": 720.0, "b": 1440.0, "c": 720.0}
    # If no kind has room, all wait for the next assignment
    tasks[1] = gang("b", 720.0, nodes=2, speeds=v100)
    assert ends({"v100": 2, "k80": 1}, tasks, policy="fifo") == {"a": 720.0, "b": 1440.0, "c": 1440.0}


def idle_log(end_s: float, *changes: tuple[float, str, NodeState]) -> EventLog:
    builder = LogBuilder()
    for change in changes:
        builder.add(*change)
    return builder.build(end_s=end_s)


def test_ideal_shares_follow_nodes_that_come_and_go() -> None:
    log = idle_log(3000.0, (0.0, "a", IDLE), (500.0, "a", BUSY), (1000.0, "a", IDLE))
    task = gang("a", 1199.0, submit_s=1.0)
    result = rounds(log, [task], policy="max-min", like="gavel-ideal", round_s=360.0)
    # 499 samples by 500 s, the other 700 from 1,000 s on; tasks that are done leave every 360 s
    assert result.tasks_table["finish_s"] == [1720.0]
    assert result.engine.pool_node_s.sum() == pytest.approx(500.0 + 720.0)
    assert result.engine.held_node_s.sum() <= result.engine.pool_node_s.sum()


def test_ideal_shares_that_are_all_0_end_the_run_as_stalled() -> None:
    log = idle_log(1500 * 360.0, (0.0, "a", IDLE), (0.0, "b", IDLE), (100.0, "b", BUSY))
    result = rounds(log, [gang("a", 1e6, nodes=2)], policy="max-min", like="gavel-ideal", round_s=360.0)
    assert result.ended == "stalled"
    assert result.summary["harvested"] == pytest.approx(100.0, rel=1e-3)  # the middle of the best shares is below 1


def test_blind_fifo_takes_the_last_kind_of_the_alphabet_and_stays() -> None:
    speeds = {"k80": 2.0, "v100": 1.0}
    tasks = [gang("a", 3600.0, speeds=speeds), gang("b", 3600.0, submit_s=1.0, speeds=speeds)]
    table = rounds({"k80": 1, "v100": 1}, tasks, policy="fifo-blind", **LIKE).tasks_table
    assert table["on_v100_s"][0] == 3600.0
    assert table["moves"] == [0, 0]


def test_allox_uses_a_kind_that_is_left_over_before_its_own() -> None:
    """Nodes listed first are filled first, though the task was given the kind on which it is faster."""
    tasks = [gang("a", 7200.0, speeds={"v100": 1.0, "p100": 2.0})]
    table = rounds({"v100": 1, "p100": 1}, tasks, policy="allox", **LIKE).tasks_table
    assert (table["on_v100_s"][0], table["on_p100_s"][0]) == (7200.0, 0.0)


def test_nodes_granted_to_a_task_that_waits_for_its_shares_stay_idle() -> None:
    tasks = [gang(name, 360.0, submit_s=start_s, speeds={"v100": 1.0}) for name, start_s in (("a", 1.0), ("b", 100.0))]
    assert ends({"v100": 2}, tasks, policy="max-min") == {"a": 361.0, "b": 1921.0 + 360.0}


def test_shares_computed_at_time_0_do_not_delay_the_next_ones() -> None:
    tasks = [gang(name, 720.0, submit_s=start_s, speeds={"v100": 1.0}) for name, start_s in (("a", 0.0), ("b", 100.0))]
    assert ends({"v100": 2}, tasks, policy="max-min") == {"a": 720.0, "b": 360.0 + 720.0}


def test_tasks_run_whole_steps_and_the_last_one_ends_a_round() -> None:
    """A round has 36 steps of 9.9 or 10 s; the second one ends after 356.4 s, as b finishes in it."""
    tasks = [gang(name, work, speeds={"v": speed}) for name, work, speed in (("a", 78.0, 1 / 9.9), ("b", 42.0, 0.1))]
    found = ends({"v": 2}, [*tasks, gang("c", 10.0, submit_s=5.0, speeds={"v": 1.0})], policy="fifo")
    assert found == pytest.approx({"a": 716.4 + 59.4, "b": 420.0, "c": 2280.0 + 10.0})


@pytest.mark.parametrize("policy", ["max-min", "max-min-blind", "finish-time", "makespan"])
def test_gangs_need_no_kind_without_room_for_them(policy: str) -> None:
    tasks = [gang("a", 3600.0, nodes=2, speeds={"v": 1.0, "k": 9.0}), gang("b", 3600.0, speeds={"v": 1.0, "k": 1.0})]
    found = ends({"v": 3, "k": 1}, tasks, policy=policy)
    assert found == {"a": 3600.0, "b": 3600.0}
    assert ends({"v": 2, "k": 0}, tasks[1:], policy=policy) == {"b": 3600.0}


@pytest.mark.parametrize("policy", ["max-min", "finish-time"])
def test_shares_like_gavels_need_compiled_code(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_knapsack, "compiled_library", lambda: None)
    with pytest.raises(BadInput, match=r"^like: needs compiled code: "):
        ends({"v": 1}, [gang("a", 600.0, speeds={"v": 1.0})], policy=policy)


def test_shares_are_equal_to_the_last_bit_on_processors_without_avx2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(1)
    market = ShareDemands(draw.uniform(1.0, 9.0, (16, 3)), draw.choice((1.0, 2.0), 16), np.array([4.0, 3.0, 5.0]))
    pairs = PairModels(np.arange(16), draw.uniform(0.5, 5.0, (16, 16, 3, 2)))
    wide = gavel_shares.max_min_shares("max-min-packed", market, np.ones(16), pairs)
    monkeypatch.setenv("CC", "cc -DNARROW")
    narrow_library = ctypes.PyDLL(str(compile_library(tmp_path)))
    monkeypatch.setattr(compiled_knapsack, "compiled_library", lambda: narrow_library)
    narrow = gavel_shares.max_min_shares("max-min-packed", market, np.ones(16), pairs)
    assert [each.tobytes() for each in narrow] == [each.tobytes() for each in wide]
