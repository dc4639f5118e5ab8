"""Two exact solvers on the shipped sample, and ``exact`` with and without compiled code: the same plans."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from bftrain import (
    Availability,
    EventLog,
    Limits,
    Settings,
    Solution,
    SpeedCurve,
    TaskSpec,
    ValueTable,
    build_harvester,
    sample_log,
)
from bftrain.assembly import find_solver
from bftrain_datasets.workloads.task_generators import sample_tasks
from bftrain_replay.simulation.engine import run
from bftrain_solvers.knapsack import best_sizes
from bftrain_solvers.knapsack.compiled_knapsack import compiled_knapsack

HOURS = 12
HOW = Settings(max_tasks=6)


def log() -> EventLog:
    sample = sample_log()
    return sample.select(window=(sample.start_s, sample.start_s + HOURS * 3600.0))


def each_of_its_own(tasks: tuple[TaskSpec, ...]) -> list[TaskSpec]:
    """Make no two tasks alike, so that there is one best plan only: tasks of one model are worth the same."""
    return [
        replace(
            spec,
            curve=SpeedCurve(
                nodes=spec.curve.nodes, rate=tuple(rate * (1.0 + 0.00137 * number) for rate in spec.curve.rate)
            ),
        )
        for number, spec in enumerate(tasks)
    ]


def decisions(tasks: Sequence[TaskSpec], how: Settings) -> list[tuple[object, ...]]:
    """Return times, pools, used nodes, competing tasks and sizes of all decisions of a replay."""
    return [(row[:5], row[-1]) for row in run(log(), tasks, build_harvester(how)).decisions.rows()]


class Both:
    """Solves with ``exact``, and keeps what ``highs`` makes of the same table."""

    name = "both"

    def __init__(self) -> None:
        self._exact, self._highs = find_solver("exact"), find_solver("highs")
        self.values: list[tuple[float | None, float | None]] = []

    def available(self) -> Availability:
        return self._exact.available()

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        first, second = (solver.solve(table, limits) for solver in (self._exact, self._highs))
        self.values.append((first.value, second.value))
        return first


def test_every_decision_is_worth_the_same() -> None:
    both = Both()
    run(log(), sample_tasks(), build_harvester(HOW, solver=both))
    assert len(both.values) > 200
    for exact, highs in both.values:
        assert highs == pytest.approx(exact, rel=1e-12)


def test_where_no_two_plans_tie_the_decisions_are_the_same() -> None:
    tasks = each_of_its_own(sample_tasks())
    exact, highs = (decisions(tasks, replace(HOW, solver=solver)) for solver in ("exact", "highs"))
    assert len(exact) > 200
    assert exact == highs


@pytest.mark.parametrize(("objective", "max_tasks"), [("throughput", 20), ("deadline", 20), ("max-min", 6)])
def test_compiled_code_makes_the_same_decisions_as_numpy(
    monkeypatch: pytest.MonkeyPatch, objective: str, max_tasks: int
) -> None:
    if compiled_knapsack() is None:
        pytest.skip("bftrain was installed without a C compiler")
    how = Settings(objective=objective, max_tasks=max_tasks)
    compiled = decisions(sample_tasks(), how)
    monkeypatch.setattr(best_sizes, "compiled_knapsack", lambda: None)
    assert decisions(sample_tasks(), how) == compiled
