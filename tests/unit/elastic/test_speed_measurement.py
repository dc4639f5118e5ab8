"""Speeds and costs out of reported steps, with stragglers, warming up and lost workers in them."""

from __future__ import annotations

import pytest

from bftrain_elastic.manager.speed_measurement import ENOUGH, ENOUGH_S, WARM_UP, WINDOW, SpeedMeasurement


class Clock:
    """Reports steps of a task, one after the other."""

    def __init__(self) -> None:
        self.measuring = SpeedMeasurement()
        self.t = 1000.0
        self.step = 0

    def steps(self, count: int, size: int, step_s: float, samples: int = 10) -> None:
        for _ in range(count):
            self.t += step_s
            self.step += 1
            line = {"type": "report", "t": self.t, "step": self.step, "size": size, "samples": samples, "loss": None}
            self.measuring.on_message(line)


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


def test_a_cost_is_the_gap_less_a_step_at_the_new_size() -> None:
    """Until that is known, at the size before."""
    clock = Clock()
    clock.measuring.on_message({"type": "starting", "t": 1000.0})
    clock.steps(1, size=1, step_s=3.0)
    clock.steps(20, size=1, step_s=0.1)
    clock.steps(1, size=3, step_s=0.35)
    assert clock.measuring.costs()["grow"] == pytest.approx(0.25)
    assert clock.measuring.latest is None
    clock.steps(20, size=3, step_s=0.05)
    assert clock.measuring.latest == ("grow", pytest.approx(0.3))
    clock.steps(1, size=2, step_s=0.25)
    assert clock.measuring.costs() == pytest.approx({"start": 2.9, "grow": 0.3, "shrink": 0.2})


def test_a_slower_step_after_a_change_is_no_cost() -> None:
    """Two workers on one machine share its memory: each step takes longer then, and no worker stands still."""
    clock = Clock()
    clock.steps(20, size=1, step_s=1.0)
    clock.steps(20, size=2, step_s=1.4)
    clock.steps(20, size=1, step_s=1.0)
    assert clock.measuring.costs() == pytest.approx({"grow": 0.0, "shrink": 0.0})


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
    measuring = SpeedMeasurement()
    assert not measuring.on_message({"type": "confirmed", "t": 1.0})
    assert (measuring.speeds(), measuring.costs(), measuring.step_s(1)) == ({}, {}, None)


def test_a_gap_is_timed_by_the_manager_because_another_node_may_report_after_it() -> None:
    measuring = SpeedMeasurement()
    for step in range(1, 41):
        size, skew = (1, 0.0) if step <= 20 else (3, 7.0)  # the second node's clock is seven seconds ahead
        heard = 0.1 * step + (0.3 if step > 20 else 0.0)
        line = {"type": "report", "t": heard + skew, "received_at": heard, "step": step, "size": size, "samples": 1}
        measuring.on_message(line)
    assert measuring.costs() == pytest.approx({"grow": 0.3})
    assert measuring.speeds() == pytest.approx({1: 10.0, 3: 10.0})


def test_a_size_is_settled_after_some_windows_or_some_time() -> None:
    clock = Clock()
    clock.steps(WARM_UP + ENOUGH * WINDOW, size=4, step_s=0.1)
    assert clock.measuring.settled() == set()
    clock.steps(1, size=4, step_s=0.1)
    assert clock.measuring.settled() == {4}
    clock.steps(WARM_UP + WINDOW + 1, size=2, step_s=ENOUGH_S / WINDOW)
    assert clock.measuring.settled() == {2, 4}


def test_steps_that_took_next_to_no_time_have_no_speed() -> None:
    clock = Clock()
    clock.t = 0.0
    clock.steps(WARM_UP + 3 * WINDOW, size=1, step_s=5e-324, samples=10**9)
    assert clock.measuring.speeds() == {}


def test_a_change_around_which_lines_were_lost_costs_nothing_that_is_known() -> None:
    clock = Clock()
    clock.steps(20, size=1, step_s=0.1)
    clock.step += 30  # no manager listened
    clock.t += 90.0
    clock.steps(20, size=2, step_s=0.1)
    assert clock.measuring.costs() == {}
    clock.steps(1, size=3, step_s=0.4)
    assert clock.measuring.costs() == pytest.approx({"grow": 0.3})


def test_the_last_line_that_an_agent_repeats_to_a_new_manager_begins_no_cost() -> None:
    measuring = SpeedMeasurement()
    repeated = {"type": "report", "t": 100.0, "received_at": 130.0, "step": 40, "size": 2, "samples": 1, "loss": None}
    measuring.on_message(repeated)
    for step in range(41, 80):
        t = 130.0 + 0.1 * (step - 40)
        measuring.on_message({**repeated, "t": t, "received_at": t, "step": step, "size": 1})
    assert measuring.costs() == {}
    assert measuring.speeds() == pytest.approx({1: 10.0})


def test_a_line_from_before_a_start_is_not_the_first_one_after_it() -> None:
    clock = Clock()
    clock.steps(20, size=2, step_s=0.1)
    last = {"type": "report", "t": clock.t, "step": 33, "size": 2, "samples": 10, "loss": None}
    clock.measuring.on_message({"type": "starting", "t": clock.t + 1.0})
    clock.measuring.on_message({**last, "received_at": clock.t + 1.1})
    clock.step, clock.t = 33, clock.t + 1.0
    clock.steps(1, size=1, step_s=4.0)
    assert clock.measuring.costs() == pytest.approx({"start": 4.0})


def test_speeds_are_the_same_whichever_lines_are_lost() -> None:
    measuring = SpeedMeasurement()
    for step in range(1, 400):
        if step % 23 and not 100 < step < 150:
            line = {"type": "report", "t": 0.1 * step, "step": step, "size": 2, "samples": 10, "loss": None}
            measuring.on_message(line)
    assert measuring.speeds() == pytest.approx({2: 100.0})
    assert measuring.costs() == {}
