"""Harvest by week or day: the blocks of a log, and what a report says a week comes to."""

from __future__ import annotations

import pytest

import bftrain
from bftrain import generate_log
from tests.unit.replay.cases import log_of, mix, page_of, task, text_of

DAY_S, WEEK_S = 86_400.0, 604_800.0


@pytest.mark.parametrize(
    ("days", "unit", "count"),
    [
        (28.0, "week", 4),
        (27.9, "day", 28),
        (31.0, "week", 4),  # three days are no block of their own
        (32.0, "week", 5),
        (0.3, "day", 1),
        (1.4, "day", 1),
    ],
)
def test_a_log_is_cut_into_weeks_or_if_it_is_short_into_days(days: float, unit: str, count: int) -> None:
    log = log_of((0.0, "ab", ""), (0.7 * days * DAY_S, "", "b"), end_s=days * DAY_S)
    weekly = bftrain.replay(log, [task()]).summary["weekly"]
    assert (weekly["block"], weekly["blocks"]) == (unit, count)


def test_a_report_says_what_a_week_comes_to_and_how_sure_that_is() -> None:
    log = generate_log(16, 3.0, 7)
    done = bftrain.replay(log, mix(12, 1, work_samples=None), max_tasks=2)
    weekly = done.summary["weekly"]
    assert (weekly["block"], weekly["blocks"]) == ("day", 3)
    low, median, high = (weekly["harvest"][name] for name in ("low", "median", "high"))
    a_week = done.summary["headline"]["harvest_node_h"] / done.result.simulated_s * WEEK_S
    assert low < a_week < high
    assert median == pytest.approx(a_week, rel=0.2)
    assert f"A week yields {median:,.0f} ({low:,.0f} to {high:,.0f}) node-hours" in text_of(page_of(done))
