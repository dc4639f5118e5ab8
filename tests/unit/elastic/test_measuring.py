"""Speeds and costs out of reported steps, with stragglers, warming up and lost workers in them."""

from __future__ import annotations

import pytest

from bftrain_elastic.measuring import Measuring, curve, interpolated, sizes_to_try


class Clock:
    """Reports steps of a task, one after the other."""

    def __init__(self) -> None:
        self.measuring = Measuring()
        self.t = 1000.0
        self.step = 0

    def steps(self, count: int, size: int, step_s: float, samples: int = 10) -> None:
        for _ in range(count):
            self.t += step_s
            self.step += 1
            line = {"told": "report", "t": self.t, "step": self.step, "size": size, "samples": samples, "loss": None}
            self.measuring.hear(line)


def test_a_speed_is_samples_over_seconds() -> None:
    clock = Clock()
    clock.steps(50, size=2, step_s=0.1)
    assert clock.measuring.speeds() == pytest.approx({2: 100.0})
    assert clock.measuring.step_s(2) == pytest.approx(0.1)


def test_neither_warming_up_nor_a_straggler_counts() -> None:
    clock = Clock()
    clock.steps(3, size=1, step_s=5.0)
    clock.steps(20, size=1, step_s=0.1)
    clock.steps(1, size=1, step_s=30.0)
    clock.steps(20, size=1, step_s=0.1)
    assert clock.measuring.speeds()[1] == pytest.approx(100.0)


def test_what_comes_back_regularly_does_count() -> None:
    clock = Clock()
    for _ in range(20):
        clock.steps(4, size=1, step_s=0.1)
        clock.steps(1, size=1, step_s=0.6)  # writes a commit
    assert clock.measuring.speeds()[1] == pytest.approx(50.0)


def test_a_cost_is_the_gap_less_a_step() -> None:
    clock = Clock()
    clock.measuring.starting(1000.0)
    clock.steps(1, size=1, step_s=3.0)
    clock.steps(20, size=1, step_s=0.1)
    clock.steps(1, size=3, step_s=0.35)
    clock.steps(20, size=3, step_s=0.05)
    clock.steps(1, size=2, step_s=0.25)
    assert clock.measuring.costs() == pytest.approx({"start": 3.0, "grow": 0.25, "shrink": 0.2})


def test_steps_done_again_are_part_of_the_cost_and_no_speed() -> None:
    clock = Clock()
    clock.steps(20, size=3, step_s=0.1)
    clock.step -= 5  # a worker is lost: back to the last commit
    clock.steps(6, size=2, step_s=0.2)
    assert clock.measuring.costs() == pytest.approx({"shrink": 6 * 0.2 - 0.1})
    assert set(clock.measuring.speeds()) == {3}


def test_a_clock_that_is_set_back_harms_nothing() -> None:
    clock = Clock()
    clock.steps(20, size=1, step_s=0.1)
    clock.t -= 3600
    clock.steps(20, size=1, step_s=0.1)
    assert clock.measuring.speeds()[1] == pytest.approx(100.0)


def test_nothing_is_known_of_a_task_that_reports_nothing() -> None:
    measuring = Measuring()
    assert not measuring.hear({"told": "confirmed", "t": 1.0})
    assert (measuring.speeds(), measuring.costs(), measuring.step_s(1)) == ({}, {}, None)


@pytest.mark.parametrize(
    ("measured", "stated", "expected"),
    [
        ({}, {}, {8: 8.0}),
        ({}, {1: 10.0, 4: 30.0}, {1: 10.0, 4: 30.0}),
        ({4: 40.0}, {}, {4: 40.0, 8: 80.0}),
        ({1: 0.0}, {}, {1: 0.0, 8: 0.0}),
        ({2: 30.0, 8: 70.0}, {}, {2: 30.0, 8: 70.0}),
        ({2: 40.0}, {1: 10.0, 2: 20.0, 8: 50.0}, {1: 20.0, 2: 40.0, 8: 100.0}),
        ({1: 7.0}, {1: 0.0, 8: 80.0}, {1: 7.0, 8: 56.0}),
    ],
)
def test_the_curve_is_measured_where_it_was_and_guessed_elsewhere(
    measured: dict[int, float], stated: dict[int, float], expected: dict[int, float]
) -> None:
    assert curve(measured, stated, 8) == expected


def test_between_points_a_curve_is_straight_from_zero_and_flat_beyond() -> None:
    points = {2: 10.0, 4: 30.0}
    assert [interpolated(points, size) for size in (0, 1, 2, 3, 4, 9)] == [0.0, 5.0, 10.0, 20.0, 30.0, 30.0]


def test_sizes_are_tried_from_the_largest_down() -> None:
    assert sizes_to_try(1, 8, {}) == [8, 4, 2, 1]
    assert sizes_to_try(3, 8, {8: 1.0}) == [4, 3]
    assert sizes_to_try(2, 2, {}) == [2]
    assert sizes_to_try(1, 6, {6: 1.0, 3: 1.0, 1: 1.0}) == []
