"""The search over several kinds of nodes: as good as all choices tried, honest bounds, and what it leaves to others."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np
import pytest

from bftrain import AllocationProblem, CompetingTask, Limits, Quality, Solution, SpeedCurve, Termination, ValueTable
from bftrain.deciding.objectives import speedup, throughput
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain_solvers import conformance, exact, highs
from bftrain_solvers.node_kinds import plans, search
from bftrain_solvers.node_kinds.search import best_columns

PLENTY_S = 60.0


def several(seed: int, tasks: int = 30, pools: tuple[int, ...] = (40, 60, 80), largest: int = 32) -> ValueTable:
    """Return a table like those of a real site: curves that flatten, some tasks that run, costs of rescaling."""
    rng = np.random.default_rng(seed)
    counts = {f"kind{place}": count for place, count in enumerate(pools)}
    free = dict(counts)
    competing = []
    for place in range(tasks):
        most = int(rng.integers(2, largest + 1))
        at = tuple(sorted({1, *(nodes for nodes in (2, 4, 8, 16) if nodes < most), most}))
        rate = rng.uniform(10.0, 100.0) * np.array(at) ** rng.uniform(0.6, 1.0)
        curves = {
            kind: SpeedCurve(nodes=at, rate=tuple((rate * rng.uniform(0.3, 1.2)).tolist()))
            for kind in counts
            if rng.random() < 0.8
        }
        kind = str(rng.choice(list(counts)))
        size = int(rng.integers(0, 1 + min(most, free[kind]))) if kind in curves else 0
        free[kind] -= size
        competing.append(
            CompetingTask(
                name=f"t{place}",
                max_nodes=most,
                size=size,
                kind=kind if size else "",
                curve=SpeedCurve(nodes=(1,), rate=(1.0,)),
                curves=curves or {"elsewhere": SpeedCurve(nodes=(1,), rate=(1.0,))},
                grow_cost_s=18.0,
                shrink_cost_s=12.0,
                start_cost_s=20.0,
            )
        )
    problem = AllocationProblem(pool=sum(pools), pools=counts, horizon_s=120.0, tasks=tuple(competing))
    return ValueTableBuilder(throughput).table(problem)


@pytest.mark.parametrize("seed", range(6))
def test_it_finds_what_highs_finds_and_proves_it(seed: int) -> None:
    table = several(seed)
    found = exact.solver.solve(table, Limits())
    assert (found.termination, found.quality, found.bound) == (Termination.OPTIMAL, Quality.PROVEN, found.value)
    assert found.value == pytest.approx(highs.solver.solve(table, Limits(deadline_s=PLENTY_S)).value, rel=1e-9)
    assert table.allowed(found.sizes, found.kinds)
    assert table.value_of(found.sizes, found.kinds) == found.value


@pytest.mark.parametrize("seed", range(3))
def test_prices_from_a_part_of_the_rows_lead_to_the_same_plan(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table = several(seed, tasks=60, pools=(80, 120, 160))
    best = exact.solver.solve(table, Limits(deadline_s=PLENTY_S)).value
    assert best is not None
    asked, priced = [], search.priced

    def counted(*given: Any) -> Any:  # noqa: ANN401 - as the one it stands for
        asked.append(priced(*given))
        return asked[-1]

    monkeypatch.setattr(search, "priced", counted)
    monkeypatch.setattr(plans, "_COLUMNS_IN_A_SECOND", 60)  # half of the rows
    found = exact.solver.solve(table, Limits(deadline_s=PLENTY_S))
    assert found.value is not None
    assert found.bound is not None
    assert best * 0.99 <= found.value <= best * (1.0 + 1e-12) <= found.bound * (1.0 + 1e-9)
    assert found.bound <= best * 1.01
    (at,) = asked
    assert at.prices.all(), "prices of all kinds are known"


def test_of_equal_plans_it_takes_the_one_that_changes_least() -> None:
    curve = SpeedCurve(nodes=(1, 4), rate=(10.0, 40.0))
    tasks = tuple(
        CompetingTask(name=name, size=size, kind=kind, max_nodes=4, curve=curve)
        for name, size, kind in (("a", 2, "v100"), ("b", 2, "k80"), ("c", 0, ""))
    )
    problem = AllocationProblem(pool=4, pools={"v100": 2, "k80": 2}, horizon_s=100.0, tasks=tasks)
    found = exact.solver.solve(ValueTableBuilder(throughput).table(problem), Limits())
    assert (dict(found.sizes), dict(found.kinds)) == ({"a": 2, "b": 2, "c": 0}, {"a": "v100", "b": "k80"})


def test_kinds_that_are_alike_are_worth_what_one_kind_is() -> None:
    rng = np.random.default_rng(4)
    tasks = tuple(
        CompetingTask(name=f"t{place}", max_nodes=6, curve=SpeedCurve(nodes=(1, 6), rate=(10.0, float(most))))
        for place, most in enumerate(rng.uniform(20.0, 60.0, 8))
    )
    one = AllocationProblem(pool=20, horizon_s=60.0, tasks=tasks)
    lone = AllocationProblem(pool=20, pools={"v100": 20, "k80": 0}, horizon_s=60.0, tasks=tasks)
    best = exact.solver.solve(ValueTableBuilder(speedup).table(one), Limits())
    again = exact.solver.solve(ValueTableBuilder(speedup).table(lone), Limits())
    assert again.value == best.value
    assert set(again.kinds.values()) == {"v100"}


def test_where_every_task_gets_its_best_size_nothing_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "priced", None)
    found = best_columns(several(1, tasks=2, pools=(90, 90)), perf_counter() + PLENTY_S)
    assert (found.bound, found.termination) == (None, Termination.OPTIMAL)


def test_after_its_deadline_it_reports_its_plan_and_an_upper_bound() -> None:
    table = several(2)
    best = exact.solver.solve(table, Limits()).value
    late = best_columns(table, perf_counter() - 1.0)
    assert late.termination is Termination.TIME_LIMIT
    assert late.bound is not None
    assert best is not None
    assert table.value_at(late.columns) <= best <= late.bound
    hurried = exact.solver.solve(table, Limits(deadline_s=1e-9))
    assert (hurried.termination, hurried.quality) == (Termination.TIME_LIMIT, Quality.FEASIBLE)
    assert table.allowed(hurried.sizes, hurried.kinds)


@pytest.mark.parametrize("seed", range(20))
def test_with_prices_but_no_time_for_plans_it_keeps_a_plan_that_fits(seed: int) -> None:
    """Columns are taken out by the value of a plan that may not be found again after the deadline."""
    rng = np.random.default_rng(seed)
    problem = AllocationProblem(
        pool=5,
        pools={"v100": 2, "k80": 3},
        horizon_s=1.0,
        tasks=tuple(
            CompetingTask(name=f"t{place}", max_nodes=3, curve=SpeedCurve(nodes=(1,), rate=(1.0,)))
            for place in range(4)
        ),
    )
    values = np.where(rng.random((4, 6)) < 0.4, -np.inf, rng.integers(0, 4, (4, 6)).astype(np.float64))
    values[:, 0] = rng.integers(-3, 1, 4)
    table = ValueTable(problem=problem, values=values)
    best = best_columns(table, perf_counter() + PLENTY_S)
    late = best_columns(table, perf_counter() - 1.0, start=[0] * 4, prices_by=perf_counter() + PLENTY_S)
    used = dict.fromkeys(problem.pools, 0)
    for column in late.columns:
        if column:
            used["v100" if column <= 2 else "k80"] += column if column <= 2 else column - 2
    assert all(used[kind] <= count for kind, count in problem.pools.items())
    value = table.value_at(late.columns)
    assert value <= table.value_at(best.columns) <= (value if late.bound is None else late.bound)


def test_it_stops_as_soon_as_the_gap_is_small_enough() -> None:
    table = several(2)
    best = exact.solver.solve(table, Limits()).value
    found = exact.solver.solve(table, Limits(relative_gap=0.2))
    assert found.value is not None
    assert found.bound is not None
    assert best is not None
    assert found.value <= best <= found.bound
    assert found.bound - found.value <= 0.2 * found.value
    assert found.termination is Termination.GAP


def test_what_it_gives_up_highs_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    table = several(3)
    best = exact.solver.solve(table, Limits())
    assert best.solver_words == ""
    monkeypatch.setattr(plans, "_MOST_STATES", 4)
    found = best_columns(table, perf_counter() + PLENTY_S)
    assert found.open is not None
    assert found.bound is not None
    assert best.value is not None
    assert table.value_at(found.columns) <= best.value <= found.bound
    helped = exact.solver.solve(table, Limits())
    assert helped.value == pytest.approx(best.value, rel=1e-9)
    assert (helped.termination, helped.solver) == (Termination.OPTIMAL, "exact")
    assert helped.solver_words.startswith("search given up, highs asked")


class Weak:
    """A further solver that finds nothing, or nothing better."""

    name = "weak"

    def __init__(self, *, answers: bool) -> None:
        self.answers = answers

    def available(self) -> None:
        """Return no hint."""

    def solve(self, table: ValueTable, limits: Limits) -> Solution:  # noqa: ARG002 - the port's signature
        if not self.answers:
            return Solution.failed(self.name, "no licence")
        idle = dict.fromkeys((task.name for task in table.problem.tasks), 0)
        return Solution(
            sizes=idle,
            value=table.value_of(idle),
            bound=None,
            termination=Termination.TIME_LIMIT,
            quality=Quality.FEASIBLE,
            solver=self.name,
        )


@pytest.mark.parametrize("answers", [False, True])
def test_a_further_solver_that_does_not_help_takes_nothing_away(
    monkeypatch: pytest.MonkeyPatch, *, answers: bool
) -> None:
    table = several(3)
    monkeypatch.setattr(plans, "_MOST_STATES", 4)
    found = search.solved(table, Limits(), "exact", Weak(answers=answers))  # type: ignore[arg-type]  # a small one
    own = best_columns(table, perf_counter() + PLENTY_S)
    assert found.value == pytest.approx(table.value_at(own.columns))
    assert found.bound == pytest.approx(own.bound)
    assert found.quality is Quality.FEASIBLE
    assert "search given up, weak asked" in found.solver_words


def test_costs_meant_as_never_leave_digits_for_the_rest() -> None:
    def table(never_s: float) -> ValueTable:
        curve = SpeedCurve(nodes=(1, 2, 3), rate=(1.0, 3.0, 3.5))
        tasks = (
            CompetingTask(name="stays", size=2, kind="v100", max_nodes=3, curve=curve, shrink_cost_s=never_s),
            CompetingTask(name="b", max_nodes=3, curve=curve, start_cost_s=3.0),
            CompetingTask(name="c", max_nodes=3, curve=SpeedCurve(nodes=(1, 3), rate=(1.5, 3.0))),
        )
        pools = {"v100": 3, "k80": 2}
        return ValueTableBuilder(throughput).table(AllocationProblem(pool=5, pools=pools, horizon_s=100.0, tasks=tasks))

    found = exact.solver.solve(table(1e15), Limits())
    assert found.value == pytest.approx(conformance.best_by_trying_all(table(1e15)), rel=1e-12)
    assert found.kinds["stays"] == "v100"
