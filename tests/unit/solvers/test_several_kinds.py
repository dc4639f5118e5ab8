"""The search over several kinds of nodes: as good as all choices tried, honest bounds, and what it leaves to others."""

from __future__ import annotations

import numpy as np
import pytest

from bftrain import AllocationProblem, CompetingTask, Limits, Quality, SpeedCurve, Termination, ValueTable
from tests.helpers import solver_conformance as conformance
from tests.helpers.named_parts import EXACT, HIGHS, THROUGHPUT, table_for

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
    return table_for(THROUGHPUT, problem)


@pytest.mark.parametrize("seed", range(3))
def test_it_finds_what_highs_finds_and_proves_it(seed: int) -> None:
    table = several(seed)
    found = EXACT.solve(table, Limits())
    assert (found.termination, found.quality, found.bound) == (Termination.OPTIMAL, Quality.PROVEN, found.value)
    assert found.value == pytest.approx(HIGHS.solve(table, Limits(deadline_s=PLENTY_S)).value, rel=1e-9)
    assert table.allowed(found.sizes, found.kinds)
    assert table.value_of(found.sizes, found.kinds) == found.value


def test_of_equal_plans_it_takes_the_one_that_changes_least() -> None:
    curve = SpeedCurve(nodes=(1, 4), rate=(10.0, 40.0))
    tasks = tuple(
        CompetingTask(name=name, size=size, kind=kind, max_nodes=4, curve=curve)
        for name, size, kind in (("a", 2, "v100"), ("b", 2, "k80"), ("c", 0, ""))
    )
    problem = AllocationProblem(pool=4, pools={"v100": 2, "k80": 2}, horizon_s=100.0, tasks=tasks)
    found = EXACT.solve(table_for(THROUGHPUT, problem), Limits())
    assert (dict(found.sizes), dict(found.kinds)) == ({"a": 2, "b": 2, "c": 0}, {"a": "v100", "b": "k80"})


def test_kinds_that_are_alike_are_worth_what_one_kind_is() -> None:
    rng = np.random.default_rng(4)
    tasks = tuple(
        CompetingTask(name=f"t{place}", max_nodes=6, curve=SpeedCurve(nodes=(1, 6), rate=(10.0, float(most))))
        for place, most in enumerate(rng.uniform(20.0, 60.0, 8))
    )
    one = AllocationProblem(pool=20, horizon_s=60.0, tasks=tasks)
    lone = AllocationProblem(pool=20, pools={"v100": 20, "k80": 0}, horizon_s=60.0, tasks=tasks)
    best = EXACT.solve(table_for("speedup", one), Limits())
    again = EXACT.solve(table_for("speedup", lone), Limits())
    assert again.value == best.value
    assert set(again.kinds.values()) == {"v100"}


def test_it_stops_as_soon_as_the_gap_is_small_enough() -> None:
    table = several(2)
    best = EXACT.solve(table, Limits()).value
    found = EXACT.solve(table, Limits(relative_gap=0.2))
    assert found.value is not None
    assert found.bound is not None
    assert best is not None
    assert found.value <= best <= found.bound
    assert found.bound - found.value <= 0.2 * found.value
    assert found.termination is Termination.GAP


def test_costs_meant_as_never_leave_digits_for_the_rest() -> None:
    def table(never_s: float) -> ValueTable:
        curve = SpeedCurve(nodes=(1, 2, 3), rate=(1.0, 3.0, 3.5))
        tasks = (
            CompetingTask(name="stays", size=2, kind="v100", max_nodes=3, curve=curve, shrink_cost_s=never_s),
            CompetingTask(name="b", max_nodes=3, curve=curve, start_cost_s=3.0),
            CompetingTask(name="c", max_nodes=3, curve=SpeedCurve(nodes=(1, 3), rate=(1.5, 3.0))),
        )
        pools = {"v100": 3, "k80": 2}
        return table_for(THROUGHPUT, AllocationProblem(pool=5, pools=pools, horizon_s=100.0, tasks=tasks))

    found = EXACT.solve(table(1e15), Limits())
    assert found.value == pytest.approx(conformance.best_by_trying_all(table(1e15)), rel=1e-12)
    assert found.kinds["stays"] == "v100"


def test_after_its_deadline_it_reports_its_plan_and_an_upper_bound() -> None:
    table = several(2)
    best, hurried = EXACT.solve(table, Limits()).value, EXACT.solve(table, Limits(deadline_s=1e-9))
    assert (hurried.termination, hurried.quality) == (Termination.TIME_LIMIT, Quality.FEASIBLE)
    assert table.allowed(hurried.sizes, hurried.kinds)
    assert best is not None
    assert hurried.value is not None
    assert hurried.value <= best
    assert hurried.bound is None or hurried.bound >= best


def test_what_the_search_gives_up_highs_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    # In all of these the search has no best plan when it gives up
    tables = [several(seed, tasks=12, pools=(17, 23, 29), largest=16) for seed in (2, 8)]
    tables.append(several(11, tasks=8, pools=(11, 13), largest=16))
    with monkeypatch.context() as patch:
        patch.setattr("bftrain_solvers.node_kinds.plans._MOST_STATES", 0)
        found = [EXACT.solve(table, Limits(deadline_s=PLENTY_S)) for table in tables]
    for table, helped in zip(tables, found, strict=True):
        assert helped.value == pytest.approx(EXACT.solve(table, Limits()).value, rel=1e-9)
        assert (helped.termination, helped.solver) == (Termination.OPTIMAL, "exact")
        assert table.value_of(helped.sizes, helped.kinds) == helped.value  # the sizes are those of the better plan
        assert table.allowed(helped.sizes, helped.kinds)
