"""The speed on an n-th part of the nodes."""

from __future__ import annotations

import pytest

from bftrain import SpeedCurve
from bftrain.deciding.objectives import isolated_speed
from tests.helpers.policy_cases import plain


def test_between_whole_sizes_it_is_linear_and_no_more_than_the_largest_counts() -> None:
    task = plain("a", 10.0, 18.0, 24.0)
    assert isolated_speed(task, {"": 8}, 4) == 18.0
    assert isolated_speed(task, {"": 6}, 4) == 14.0
    assert isolated_speed(task, {"": 100}, 4) == 24.0
    assert isolated_speed(task, {"": 1}, 4) == 2.5


def test_below_the_minimum_it_has_the_minimum_for_a_part_of_the_time() -> None:
    task = plain("a", 10.0, 18.0, 24.0, 30.0, min_nodes=4)
    assert isolated_speed(task, {"": 8}, 4) == pytest.approx(15.0)
    assert isolated_speed(task, {"": 3}, 1) == 0.0  # there are not so many at all


def test_where_its_part_does_not_run_it_the_best_other_size_stands_in() -> None:
    task = plain("a", 0.0, 0.0, 0.0, 80.0)
    assert isolated_speed(task, {"": 4}, 2) == pytest.approx(40.0)
    assert isolated_speed(plain("b", 0.0, 0.0), {"": 4}, 2) == 0.0


def test_of_several_kinds_it_has_each_for_its_part_of_the_time() -> None:
    fast, slow = SpeedCurve(nodes=(1, 2), rate=(30.0, 50.0)), SpeedCurve(nodes=(1, 2), rate=(6.0, 12.0))
    task = plain("a", 1.0, 2.0, curves={"v": fast, "p": slow})
    # Two nodes each: a third of the time on the fast kind, two thirds on the slow one
    assert isolated_speed(task, {"v": 2, "p": 4}, 3) == pytest.approx(50.0 / 3 + 2 * 12.0 / 3)
    assert isolated_speed(plain("b", 1.0, 2.0, curves={"v": fast}), {"v": 2, "p": 4}, 3) == pytest.approx(50.0 / 3)


def test_nothing_to_divide() -> None:
    assert isolated_speed(plain("a", 10.0), {"": 0}, 3) == 0.0
    assert isolated_speed(plain("a", 10.0), {"": 5}, 0) == 0.0
