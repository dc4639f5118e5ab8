"""The virtual fair schedule: who ends when if nodes could be divided, and the bound it sets to what really ends."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain_datasets.scheduling.schedule_figures import figures
from bftrain_datasets.scheduling.virtual_schedule import UserVirtualSchedule
from tests.helpers.schedules import Row, scheduled


def ends(virtual: UserVirtualSchedule) -> list[float]:
    return [round(float(time_s), 6) for time_s in virtual.times_of(virtual.tag)]


def test_two_users_share_what_is_in_use() -> None:
    virtual = UserVirtualSchedule([1.0, 1.0], 2)
    virtual.add(0, 0, 100.0)
    virtual.add(1, 1, 300.0)
    virtual.advance(10.0, 10)  # 50 each
    assert (virtual.left(0), virtual.left(1)) == (50, 250)
    virtual.advance(100.0, 10)  # the first ends at 20; the other has all from then on, and ends at 40
    assert ends(virtual) == [20, 40]
    assert (virtual.left(0), virtual.active_shares) == (0, 0)


def test_shares_divide() -> None:
    virtual = UserVirtualSchedule([3.0, 1.0], 2)
    virtual.add(0, 0, 300.0)
    virtual.add(1, 1, 300.0)
    virtual.advance(99.0, 10)
    assert ends(virtual) == [40, 60]


def test_a_user_is_served_the_oldest_campaign_first() -> None:
    virtual = UserVirtualSchedule([1.0], 3)
    for campaign in range(3):
        virtual.add(0, campaign, 100.0)
    virtual.advance(99.0, 10)
    assert ends(virtual) == [10, 20, 30]


def test_surplus_is_lost() -> None:
    virtual = UserVirtualSchedule([1.0], 2)
    virtual.add(0, 0, 100.0)
    virtual.advance(50.0, 10)
    virtual.add(0, 1, 100.0)
    virtual.advance(99.0, 10)
    assert ends(virtual) == [10, 60]


def test_users_may_keep_their_part_until_the_second_after_their_end() -> None:
    lefts = []
    for whole_seconds in (False, True):
        virtual = UserVirtualSchedule([1.0, 1.0], 2, whole_seconds=whole_seconds)
        virtual.add(0, 0, 4.0)
        virtual.add(1, 1, 100.0)
        virtual.advance(3.0, 3)  # the first ends at 2 2/3 s
        lefts.append((virtual.left(0), virtual.left(1), virtual.active_shares))
    assert lefts == [(0.0, 95.0, 1.0), (0.0, 95.5, 1.0)]


def test_less_than_a_node_second_left_counts_as_one_where_ends_are_whole_seconds() -> None:
    virtual = UserVirtualSchedule([1.0, 1.0], 2, whole_seconds=True)
    virtual.add(0, 0, 5.25)
    virtual.add(1, 1, 100.0)
    virtual.advance(5.0, 2)  # a node-second each second; a quarter is left
    virtual.advance(6.0, 4)  # two each second, for what counts as one
    assert (virtual.left(0), virtual.left(1), virtual.active_shares) == (0.0, 93.0, 1.0)


def test_one_node_counts_while_nothing_runs() -> None:
    virtual = UserVirtualSchedule([1.0], 1)
    virtual.add(0, 0, 30.0)
    virtual.advance(99.0, 0)
    assert ends(virtual) == [30]


def test_an_early_end_serves_the_next_campaign() -> None:
    virtual = UserVirtualSchedule([1.0, 1.0], 3)
    virtual.add(0, 0, 100.0)
    virtual.add(0, 1, 100.0)
    virtual.add(1, 2, 1000.0)
    virtual.advance(10.0, 10)  # 50 each
    virtual.remove(0, 0, 80.0)  # it was 20: it has ended now, and 30 of the next are served
    assert virtual.left(0) == 70
    virtual.advance(99.0, 10)
    assert ends(virtual)[:2] == [10, 24]


def test_a_campaign_that_grows_goes_before_the_next_again() -> None:
    virtual = UserVirtualSchedule([1.0, 1.0], 3)
    virtual.add(0, 0, 50.0)
    virtual.add(0, 1, 50.0)
    virtual.add(1, 2, 1000.0)
    virtual.advance(15.0, 10)  # 75 each: the first has ended, half of the second is done
    virtual.add(0, 0, 40.0)  # what the second was given goes to the first
    assert virtual.left(0) == 65
    virtual.close(0, 0)
    virtual.advance(99.0, 10)
    assert ends(virtual)[:2] == [18, 28]


def test_what_an_idle_user_had_too_much_is_lost() -> None:
    virtual = UserVirtualSchedule([1.0], 2)
    virtual.add(0, 0, 100.0)
    virtual.advance(20.0, 10)
    virtual.remove(0, 0, 60.0)
    virtual.close(0, 0)
    virtual.add(0, 1, 100.0)
    assert virtual.left(0) == 100
    assert virtual.tag[0] <= virtual.level < virtual.tag[1]


def test_times_that_were_not_reached_are_unknown() -> None:
    virtual = UserVirtualSchedule([1.0], 1)
    virtual.add(0, 0, 100.0)
    virtual.advance(5.0, 10)
    assert np.isnan(virtual.times_of([virtual.tag[0]])).all()
    assert virtual.times_of([0.0, 25.0, 50.0]).tolist() == [0, 2.5, 5]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 60)), max_size=30), st.data())
def test_the_most_shares_between_two_times(steps: list[tuple[int, int]], data: st.DataObject) -> None:
    virtual = UserVirtualSchedule([1.0, 2.0, 4.0, 8.0, 16.0], 5)
    seen = [(0.0, 0.0)]
    for user, work in steps:
        virtual.add(user, user, float(work))
        seen.append((virtual.now_s, virtual.active_shares))
        for _ in range(5):
            virtual.advance(virtual.now_s + 1.0, 3)
            seen.append((virtual.now_s, virtual.active_shares))
    times = [time_s for time_s, _ in seen]
    begin = data.draw(st.sampled_from(times))
    end = data.draw(st.sampled_from([time_s for time_s in times if time_s >= begin]))
    (most,) = virtual.most_shares([begin], [end]).tolist()
    at_begin = [shares for time_s, shares in seen if time_s <= begin][-1]
    assert most >= max([at_begin, *(shares for time_s, shares in seen if begin < time_s <= end)])
    assert most <= max(shares for time_s, shares in seen if time_s <= end)


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


@settings(max_examples=300)
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
    assert found.previous.tolist() == [0, 0, 90]
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
