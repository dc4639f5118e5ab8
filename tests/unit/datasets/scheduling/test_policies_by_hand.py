"""Each policy on cases that were worked out by hand."""

from __future__ import annotations

import pytest

from tests.helpers.schedules import Row, figures, scheduled, starts

# Ten nodes, six of them taken until 100. The second job must wait for that; who may pass it?
BUSY = Row(0, 100, 6, 100)
HEAD = Row(1, 50, 8, 50)
SHORT = Row(2, 50, 4, 50)  # would end in time
LONG = Row(3, 200, 4, 200)  # would not, and needs nodes of the head
NARROW = Row(60, 300, 2, 300)  # would not, and needs none of them


def test_first_come_first_served_lets_no_job_pass() -> None:
    assert starts([BUSY, HEAD, SHORT, LONG, NARROW], 10, "fcfs") == [0, 100, 150, 150, 150]


def test_easy_lets_pass_who_does_not_delay_the_head() -> None:
    made = scheduled([BUSY, HEAD, SHORT, LONG, NARROW], 10, "easy")
    assert list(made.start_s) == [0, 100, 2, 150, 60]
    assert made.promised_s[1] == 100
    assert made.overtook == [False, False, True, False, True]


def test_easy_backfills_no_more_jobs_than_there_are_spare_nodes() -> None:
    # Two nodes are spare beside the head; the second narrow job would take two of the head's
    second = Row(60, 300, 2, 300)
    assert starts([BUSY, HEAD, NARROW, second], 10, "easy") == [0, 100, 60, 150]


def test_easy_delays_others_than_the_head() -> None:
    head, second, wide = Row(1, 100, 6, 100), Row(2, 10, 8, 10), Row(3, 300, 4, 300)
    # Beside the head there is room for the last job for ever
    assert starts([BUSY, head, second, wide], 10, "easy") == [0, 100, 303, 3]


def test_fair_share_puts_the_user_first_who_used_least() -> None:
    rows = [Row(0, 100, 10, 100, 1), Row(1, 10, 10, 10, 1), Row(2, 10, 10, 10, 2), Row(3, 10, 10, 10, 1)]
    assert starts(rows, 10, "easy") == [0, 100, 110, 120]
    assert starts(rows, 10, "fairshare") == [0, 110, 100, 120]


def test_fair_share_counts_usage_over_share_and_forgets_by_half() -> None:
    rows = [Row(0, 100, 10, 100, 1), Row(1, 40, 10, 40, 2), Row(2, 10, 10, 10, 1), Row(3, 10, 10, 10, 2)]
    # At 100 the second user has used nothing; at 140 they have used 400 node-seconds, and the first 1,000
    assert starts(rows, 10, "fairshare") == [0, 100, 150, 140]
    assert starts(rows, 10, "fairshare", shares=(4.0, 1.0)) == [0, 100, 140, 150]
    assert starts(rows, 10, "fairshare", half_life_s=5.0) == [0, 100, 140, 150]  # all but the last seconds is forgotten


def test_published_fair_share_takes_users_of_equal_rank_job_by_job() -> None:
    rows = [Row(0, 10, 10, 10, 3), Row(1, 10, 10, 10, 1), Row(2, 10, 10, 10, 2), Row(3, 10, 10, 10, 1)]
    assert starts(rows, 10, "fairshare", decay="published") == [0, 10, 20, 30]


@pytest.mark.parametrize("policy", ["fairshare", "ostrich"])
def test_backfill_at_multiples_of_an_interval_only(policy: str) -> None:
    rows = [Row(0, 1000, 6, 1000), Row(1, 1, 8, 1, 2), Row(2, 10, 4, 10, 3), Row(3, 10, 4, 10, 4)]
    assert starts(rows, 10, policy) == [0, 1000, 2, 12]
    assert starts(rows, 10, policy, backfill_interval_s=300.0) == [0, 1000, 300, 600]


def test_no_start_is_kept_beyond_the_window() -> None:
    rows = [Row(0, 1000, 6, 1000), Row(1, 50, 8, 50, 2), Row(2, 2000, 4, 2000, 3)]
    assert starts(rows, 10, "fairshare") == [0, 1000, 1050]
    assert starts(rows, 10, "fairshare", backfill_window_s=900.0) == [0, 2002, 2]


def test_ostrich_takes_campaigns_that_ended_virtually_by_their_end_or_oldest_first() -> None:
    rows = [Row(0, 1000, 10, 1000, 1), Row(1, 50, 10, 50, 2), Row(2, 10, 10, 10, 3)]
    assert starts(rows, 10, "ostrich") == [0, 1010, 1000]
    assert starts(rows, 10, "ostrich", done_campaigns="oldest-first") == [0, 1000, 1050]


def six(run_s: float, user: int) -> list[Row]:
    return [Row(0, run_s, 1, run_s, user) for _ in range(6)]


def test_ostrich_serves_the_small_campaign_first() -> None:
    slowed = [*six(1200, 1), *six(600, 2)]
    assert figures(scheduled(slowed, 6, "fcfs")).stretch.tolist() == [1.0, 3.0]
    assert figures(scheduled(slowed, 6, "ostrich")).stretch.tolist() == [1.5, 1.0]


def test_ostrich_lets_equal_campaigns_end_one_after_the_other() -> None:
    assert figures(scheduled([*six(600, 1), *six(600, 2)], 6, "ostrich")).end_s.tolist() == [600.0, 1200.0]


def test_ostrich_gives_a_larger_share_its_way() -> None:
    equal = [*six(600, 1), *six(600, 2)]
    assert figures(scheduled(equal, 6, "ostrich", shares=(1.0, 2.0))).end_s.tolist() == [1200.0, 600.0]
    slowed = [*six(1200, 1), *six(600, 2)]
    assert figures(scheduled(slowed, 6, "ostrich", shares=(3.0, 1.0))).stretch.tolist() == [1.0, 3.0]


def test_ostrich_starts_the_shorter_jobs_of_a_campaign_first() -> None:
    rows = [Row(0, 50, 2, 50, 1), Row(1, 30, 2, 30, 1), Row(2, 10, 2, 10, 1)]
    assert starts(rows, 2, "ostrich") == [0, 60, 50]
    assert starts(rows, 2, "ostrich-fifo") == [0, 50, 80]  # those of a campaign by submission
    other = [*rows[:2], Row(3, 10, 2, 10, 2)]  # but campaigns as under ostrich
    assert starts(other, 2, "ostrich") == starts(other, 2, "ostrich-fifo") == [0, 60, 50]


def test_a_campaign_ends_where_a_later_one_begins() -> None:
    rows = [Row(0, 10), Row(599, 10), Row(600, 10), Row(1300, 10), Row(650, 10, user=2)]
    made = scheduled(sorted(rows), 9, "fcfs")
    assert made.campaigns.of == [0, 0, 1, 2, 3]
    assert made.campaigns.created_s == [0, 600, 650, 1300]


@pytest.mark.parametrize("policy", ["fairshare", "ostrich"])
def test_backfilling_looks_as_deep_as_its_setting(policy: str) -> None:
    wide = [Row(1, 10, 10, 10) for _ in range(3)]
    rows = [Row(0, 100, 9, 100), *wide, Row(2, 50, 1, 50)]
    found = [starts(rows, 10, policy, depth=depth)[4] for depth in (4, 3, 0)]
    assert found == [2, 130, 130]
