"""The virtual fair schedule: who ends when if nodes could be divided, and the bound it sets to what really ends."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.schedules import Row, figures, scheduled

single = st.lists(
    st.builds(
        Row,
        submit=st.one_of(st.integers(0, 50), st.integers(0, 2000)),
        run=st.one_of(st.integers(1, 20), st.integers(1, 900)),
        size=st.just(1),
        user=st.integers(1, 4),
    ),
    min_size=1,
    max_size=60,
).map(lambda rows: sorted(rows, key=lambda row: row.submit))


@settings(max_examples=150)
@given(
    rows=single,
    nodes=st.integers(1, 5),
    gap_s=st.sampled_from((5.0, 100.0, 600.0)),
    shares=st.lists(st.sampled_from((1.0, 3.0, 0.5)), min_size=4, max_size=4),
)
def test_no_campaign_of_one_node_jobs_is_beyond_its_bound(
    rows: list[Row], nodes: int, gap_s: float, shares: list[float]
) -> None:
    given_shares = shares[: len({row.user for row in rows})]
    found = figures(scheduled(rows, nodes, "ostrich", "actual", shares=given_shares, gap_s=gap_s))
    assert found.done.all()
    assert found.within.all()
    assert (found.stretch >= 1).all()
    assert (found.stretch <= found.stretch_bound * (1 + 1e-9)).all()


def test_the_bound_is_what_the_formula_says() -> None:
    # Two users, 4 nodes. The second campaign of the first user finds 90 of 120 node-seconds left of the one before
    rows = [*[Row(0, 30, 1, user=1)] * 4, Row(0, 500, 1, user=2), Row(15, 8, 1, user=1), Row(18, 40, 1, user=1)]
    made = scheduled(rows, 4, "ostrich", "actual", gap_s=10.0)
    found = figures(made)
    assert found.user.tolist() == [0, 1, 0]
    assert found.previous_work.tolist() == [0, 0, 90]
    assert found.rivals.tolist() == [2, 2, 2]
    assert found.work.tolist() == [120, 500, 48]
    assert found.bound_s.tolist() == pytest.approx(
        [0 + 2 * 120 / 4 + 500 + 30, 2 * 500 / 4 + 500 + 500, 3 + 2 * (90 + 48) / 4 + 500 + 40]
    )
    assert found.least_s.tolist() == [30, 500, 40]


def test_without_the_order_of_ostrich_the_bound_is_broken() -> None:
    rows = [*[Row(0, 100, 1, user=1)] * 50, Row(1, 10, 1, user=2)]
    assert figures(scheduled(rows, 1, "fcfs", "actual")).within.tolist() == [True, False]
    assert figures(scheduled(rows, 1, "ostrich", "actual")).within.all()
