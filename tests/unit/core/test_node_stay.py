"""How long nodes stay is learned from the past alone, and costs count by it as they should."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from bftrain import BadValue, CompetingTask, Harvester, Settings, SpeedCurve
from bftrain.assembly import find_solver
from bftrain.deciding.node_stay import HORIZON_S, CostFit, NodeStay
from bftrain.deciding.objectives import throughput
from bftrain.deciding.value_table_builder import value_row
from bftrain.values import wire
from tests.unit.core.samples import joined, left, spec, submitted


def task(size: int = 0, **costs: float) -> CompetingTask:
    curve = SpeedCurve(nodes=(1, 2, 4, 8), rate=(10.0, 19.0, 36.0, 68.0))
    return CompetingTask(name="a", size=size, max_nodes=8, curve=curve, **costs)  # type: ignore[arg-type]  # costs only


def fitted(task: CompetingTask, fit: CostFit) -> CompetingTask:
    return replace(task, **fit.costs_of(task)._asdict())


def test_before_anything_is_known_a_quarter_of_an_hour_is_expected() -> None:
    assert 700.0 < NodeStay().expected_s < 1100.0


def test_it_learns_the_mean_and_forgets_what_was_long_ago() -> None:
    stay = NodeStay().after(0.0, 0, 0)
    for moment in range(1, 101):
        stay = stay.after(moment * 100.0, 50, 50)  # fifty nodes idle, all of them for 100 s
    assert 90.0 < stay.expected_s < 130.0
    for moment in range(1, 401):
        stay = stay.after(10_000.0 + moment * 1000.0, 50, 50)
    assert 850.0 < stay.expected_s < 1200.0


def test_it_stays_within_bounds_in_every_case() -> None:
    stay = NodeStay().after(0.0, 100, 0).after(1e9, 100, 0)
    assert stay.expected_s <= 20_000.0
    assert NodeStay().after(0.0, 10_000, 10_000).expected_s >= 20.0
    assert NodeStay().after(-math.inf, 0, 0) == NodeStay()


def test_what_is_expected_takes_few_values_so_that_tables_are_kept() -> None:
    seen = {NodeStay(until_s=0.0, idle_node_s=float(total), departures=1.0).expected_s for total in range(30, 14_400)}
    assert len(seen) < 24


@given(start=st.floats(0.0, 1e6), stay=st.floats(30.0, 14_400.0))
def test_a_start_always_pays_where_nothing_else_wants_the_nodes(start: float, stay: float) -> None:
    fit = CostFit(stay_s=stay, size_lasts_s=stay)
    row = value_row(fitted(task(start_cost_s=start), fit), HORIZON_S, throughput)
    assert row[8] > row[0] == 0.0


@given(cost=st.floats(0.1, 1e4), lasts=st.floats(7.0, 14_400.0))
def test_fitted_costs_count_as_the_true_ones_over_their_own_horizon(cost: float, lasts: float) -> None:
    fit = CostFit(stay_s=900.0, size_lasts_s=lasts)
    row = value_row(fitted(task(4, grow_cost_s=cost), fit), HORIZON_S, throughput)
    own_s = math.sqrt(cost * lasts)
    true = value_row(task(4, grow_cost_s=cost), own_s, throughput)
    assert row[5] / HORIZON_S == pytest.approx(true[5] / own_s)
    assert row[4] / HORIZON_S == pytest.approx(true[4] / own_s)


def test_a_task_without_costs_is_left_as_it_is() -> None:
    assert NodeStay().fit(5.0).costs_of(task()) == (0.0, 0.0, 0.0)


def test_a_size_lasts_less_long_the_more_nodes_a_task_has() -> None:
    stay = NodeStay()
    lasts = [stay.fit(nodes).size_lasts_s for nodes in (0.5, 2.0, 4.0, 8.0, 100.0)]
    assert lasts == [stay.expected_s / changes for changes in (1.0, 1.0, 2.0, 4.0, 4.0)]


def test_a_harvester_learns_from_what_leaves_and_restarts_where_it_was() -> None:
    first = Harvester(solver=find_solver("exact"), objective=throughput)
    first.handle(joined(0.0, "n1", "n2", "n3"), submitted(0.0, spec("a", 1, 3)))
    first.handle(left(50.0, "n2", "elsewhere"))
    stay = first.snapshot.node_stay
    assert stay.departures == pytest.approx(5.0, abs=0.01)
    assert stay.idle_node_s == pytest.approx(3600.0 + 150.0, rel=0.001)
    again = Harvester(solver=find_solver("exact"), objective=throughput)
    again.restore(wire.decode(wire.encode(first.snapshot), type(first.snapshot)))
    assert again.snapshot == first.snapshot


def test_a_start_that_takes_as_long_as_a_fixed_horizon_never_pays_and_with_auto_it_does() -> None:
    for horizon, held in ((120.0, 0), ("auto", 3)):
        core = Harvester(solver=find_solver("exact"), objective=throughput, horizon_s=horizon)
        core.handle(joined(0.0, "n1", "n2", "n3"), submitted(0.0, spec("a", 1, 3, start_cost_s=120.0)))
        assert len(core.held.get("a", ())) == held


def test_a_horizon_is_a_number_of_seconds_or_auto() -> None:
    assert Settings().horizon_s == "auto"
    with pytest.raises(BadValue, match="must be a number of seconds or 'auto', not 'long'"):
        Settings(horizon_s="long")
