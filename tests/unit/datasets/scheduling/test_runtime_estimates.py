"""Run times as policies estimate them, and what happens when they are wrong."""

from __future__ import annotations

import math

import pytest

from tests.helpers.schedules import Row, scheduled


def planned(rows: list[Row], estimates: str, nodes: int = 100) -> list[float]:
    return list(scheduled(rows, nodes, "easy", estimates).first_estimate_s)


def test_limits_are_what_was_asked_for_and_else_the_run_time() -> None:
    assert planned([Row(0, 50, limit=80), Row(1, 50), Row(2, 50, limit=20)], "limit") == [80, 50, 20]


def test_actual_is_the_run_time() -> None:
    assert planned([Row(0, 50, limit=80), Row(1, 50), Row(2, 50, limit=20)], "actual") == [50, 50, 50]


@pytest.mark.parametrize(
    ("estimates", "run_s", "limit_s", "times"),
    [
        ("limit", 1000, 1000, 0),
        ("limit", 1001, 1000, 1),
        ("limit", 1060, 1000, 1),
        ("limit", 1061, 1000, 2),
        ("limit", 1000 + 60 + 300 + 900 + 1, 1000, 4),
        ("actual", 5000, 10, 0),
    ],
)
def test_an_estimate_grows_by_larger_and_larger_steps(estimates: str, run_s: float, limit_s: float, times: int) -> None:
    assert list(scheduled([Row(0, run_s, limit=limit_s)], 1, "easy", estimates).prolonged) == [times]


def test_who_outlives_the_estimate_is_not_ended_and_makes_room_for_others_later() -> None:
    # The head was to start at 100; when the first job is seen to go on, a job that fits until 160 may pass
    rows = [Row(0, 130, 6, 100), Row(1, 10, 10, 10), Row(50, 50, 4, 60)]
    made = scheduled(rows, 10, "easy")
    assert list(made.start_s) == [0, 150, 100]
    assert made.stop_s(0) == 130
    assert made.promised_s[1] == 100


def test_without_limits_nothing_is_outlived() -> None:
    made = scheduled([Row(number, 10 * number + 1, 2) for number in range(9)], 4, "easy")
    assert not any(made.prolonged)
    promises = [made.promised_s[job] - made.start_s[job] for job in range(9) if made.promised_s[job] < math.inf]
    assert set(promises) == {0.0}
    assert not any(math.isinf(start_s) for start_s in made.start_s)
