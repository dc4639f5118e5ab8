"""Compiled rounds give the results of the engine's own rounds, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bftrain import TaskSpec
from bftrain.errors import Fault
from bftrain_replay.rounds.compiled_rounds import CompiledRounds
from bftrain_replay.rounds.round_result import RoundResult
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.rounds.simulation import simulate
from bftrain_solvers.knapsack.compiled_knapsack import compiled_function
from tests.helpers.round_cases import gang
from tests.unit.replay.rounds.test_pair_table import table

pytestmark = pytest.mark.skipif(compiled_function("bftrain_rounds") is None, reason="there is no compiled code")

Options = dict[str, Any]
KINDS = ("v", "k")
ALONE = ("max-min", "max-min-blind", "allox", "finish-time", "makespan-blind", "water-filling", "isolated")
IN_PAIRS = ("max-min-packed", "makespan-packed", "gandiva=3", "throughput-packed")


def drawn(rng: np.random.Generator, count: int, gangs: tuple[int, ...] = (1, 2)) -> list[TaskSpec]:
    """Draw tasks of two models and three users; some run on one kind only."""
    return [
        gang(
            f"{rng.choice(['a', 'b'])}-{number}",
            float(rng.lognormal(7.0, 1.0)),
            int(rng.choice(gangs)),
            submit_s=float(rng.uniform(0.0, 9000.0)) if number else 500.0,
            speeds=dict(zip(KINDS[: 1 + (rng.random() < 0.9)], rng.uniform(0.5, 2.0, 2).tolist(), strict=False)),
            user=f"user-{rng.integers(3)}",
            weight=float(rng.choice([0.5, 1.0, 2.0])),
        )
        for number in range(count)
    ]


def everything(result: RoundResult) -> tuple[object, ...]:
    return result.tasks_table, result.rounds_table, result.users_table, result.over_time_table, result.summary


def simulated(nodes: dict[str, int], tasks: list[TaskSpec], options: Options) -> RoundResult:
    """Simulate as Gavel does; a run that takes too long is interrupted."""
    calls = iter(range(100))
    return simulate(
        nodes, tasks, RoundSettings(like="gavel", **options), watch=lambda *_: next(calls, None) is not None
    )


def assert_equal(
    monkeypatch: pytest.MonkeyPatch, nodes: dict[str, int], tasks: list[TaskSpec], options: Options
) -> RoundResult:
    """Simulate with and without compiled code; return the result."""
    ours = simulated(nodes, tasks, options)
    with monkeypatch.context() as patched:
        patched.setattr(CompiledRounds, "of", lambda *_: None)
        plain = simulated(nodes, tasks, options)
    assert everything(ours) == everything(plain)
    our_pairs, plain_pairs = (run.engine.progress.pairs for run in (ours, plain))
    assert our_pairs.tasks[: our_pairs.count].tolist() == plain_pairs.tasks[: plain_pairs.count].tolist()
    return ours


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("policy", [*ALONE, *IN_PAIRS])
def test_every_table_is_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, policy: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pairs = table(tmp_path, float(rng.uniform(0.7, 0.95))) if policy in IN_PAIRS else ""
    nodes, finish = {"v": 3, "k": int(rng.integers(2, 4))}, str(rng.choice(["moment", "boundary"]))
    options = {"policy": policy, "pairs": pairs, "finish": finish, "seed": seed}
    result = assert_equal(monkeypatch, nodes, drawn(rng, 40), options)
    assert result.ended == "all_done"
    assert bool(pairs) is (result.engine.progress.pairs.count > 0)


@pytest.mark.parametrize(
    ("nodes", "options", "ended"),
    [
        ({"v": 3, "k": 2}, {"measure": "5:20"}, "measured_done"),
        ({"v": 3, "k": 2}, {"until_s": 4321.0}, "until"),
        ({"v": 3, "k": 2}, {"max_backlog_s": 2000.0}, "overload"),
        ({"v": 2}, {"round_s": 60.0, "kind_order": "drawn"}, "all_done"),
        ({"v": 100, "k": 90}, {}, "all_done"),  # all run on one kind, so many rounds are alike
        ({"v": 2, "k": 2}, {"kind_order": "drawn"}, "all_done"),
    ],
)
def test_runs_of_other_kinds_end_the_same_way(
    monkeypatch: pytest.MonkeyPatch, nodes: dict[str, int], options: Options, ended: str
) -> None:
    result = assert_equal(monkeypatch, nodes, drawn(np.random.default_rng(7), 60), {"policy": "max-min", **options})
    assert result.ended == ended


@pytest.mark.parametrize(
    ("until_s", "ended", "end_s"), [(None, "all_done", [6.0, 1926.0, 3846.0]), (1500.5, "until", [6.0])]
)
def test_waits_for_a_postponed_computation(
    monkeypatch: pytest.MonkeyPatch, until_s: float | None, ended: str, end_s: list[float]
) -> None:
    submitted = {"a": 1.0, "b": 20.0, "c": 2000.0}
    tasks = [gang(name, 5.0, submit_s=submit_s) for name, submit_s in submitted.items()]
    result = assert_equal(monkeypatch, {"v": 1}, tasks, {"policy": "max-min", "round_s": 1.0, "until_s": until_s})
    assert result.ended == ended
    assert sorted(result.engine.end_s)[: len(end_s)] == end_s


def test_a_call_without_progress_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(compiled: CompiledRounds, *_: object) -> None:
        compiled.state.steps = 0

    monkeypatch.setattr(CompiledRounds, "simulate", nothing)
    with pytest.raises(Fault, match="no progress"):
        simulated({"v": 1}, [gang("a", 5.0)], {"policy": "max-min"})


@pytest.mark.parametrize("kind_order", ["listed", "drawn"])
@pytest.mark.parametrize("work", [1e17, 1e22])
def test_more_rounds_than_compiled_code_can_count(
    monkeypatch: pytest.MonkeyPatch, work: float, kind_order: str
) -> None:
    tasks = [gang("a", work, submit_s=0.0), gang("b", 1e7, submit_s=10.0), gang("c", 1e7, submit_s=9e6)]
    options = {"policy": "max-min", "kind_order": kind_order, "max_backlog_s": 1e300}
    result = assert_equal(monkeypatch, {"v": 2}, tasks, options)
    assert (result.ended, result.engine.end_s[0]) == ("all_done", pytest.approx(work))
