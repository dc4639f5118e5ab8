"""What is believed of a task's speed, and where it is measured next."""

from __future__ import annotations

import pytest

from bftrain import SpeedCurve
from bftrain.speed_estimates import curve, first_curve, is_significant_change, size_to_measure


def points(**rates: float) -> SpeedCurve:
    return SpeedCurve(nodes=tuple(int(size[1:]) for size in rates), rate=tuple(rates.values()))


def as_dict(found: SpeedCurve | None) -> dict[int, float]:
    assert found is not None
    return dict(zip(found.nodes, found.rate, strict=True))


def test_an_unmeasured_task_is_linear_and_as_fast_as_the_others() -> None:
    alone = first_curve(8)
    assert [alone.speed(size) for size in (0, 1, 4, 8, 9)] == [0.0, 1.0, 4.0, 8.0, 8.0]
    others = [points(n1=100.0, n8=400.0), points(n1=300.0), points(n4=800.0), points(n1=0.0, n2=0.0)]
    assert first_curve(4, others).speed(1) == 200.0, (
        "the median of 100, 300 and 800 / 4; one that never runs says nothing"
    )


@pytest.mark.parametrize(
    ("measured", "stated", "expected"),
    [
        ({4: 40.0}, None, {4: 40.0, 8: 80.0}),
        ({1: 0.0}, None, {1: 0.0, 8: 0.0}),
        ({8: 70.0, 2: 30.0}, None, {2: 30.0, 8: 70.0}),
        ({1: 100.0, 2: 180.0, 4: 300.0}, None, {1: 100.0, 2: 180.0, 4: 300.0, 8: 540.0}),
        ({1: 100.0, 2: 90.0}, None, {1: 100.0, 2: 90.0, 8: 90.0}),
        ({2: 40.0}, points(n1=10.0, n2=20.0, n8=50.0), {1: 20.0, 2: 40.0, 8: 100.0}),
        ({1: 7.0}, points(n1=0.0, n8=80.0), {1: 7.0, 8: 56.0}),
    ],
)
def test_the_curve_is_measured_where_it_was_and_guessed_elsewhere(
    measured: dict[int, float], stated: SpeedCurve | None, expected: dict[int, float]
) -> None:
    assert as_dict(curve(measured, stated, 8)) == pytest.approx(expected)


def test_as_long_as_nothing_was_measured_what_was_stated_holds() -> None:
    stated = points(n1=10.0)
    assert curve({}, stated, 8) is stated
    assert curve({}, None, 8) is None


def test_only_what_changes_a_decision_is_news() -> None:
    before = points(n1=100.0, n4=300.0)
    assert is_significant_change(None, before, 4)
    assert not is_significant_change(before, points(n1=103.0, n4=296.0), 4)
    assert is_significant_change(before, points(n1=100.0, n4=330.0), 4)
    assert is_significant_change(before, points(n4=300.0), 4), "slower on one node than was thought"
    assert not is_significant_change(points(n1=0.0), points(n1=0.0), 4)


def plan(held: int, smallest: int, known: set[int]) -> list[int]:
    """Return the sizes at which a task runs one after the other, each until it is known."""
    visited = [size_to_measure(held, smallest, known)]
    while visited[-1] not in known:
        known.add(visited[-1])
        visited.append(size_to_measure(held, smallest, known))
    return visited


@pytest.mark.parametrize(
    ("held", "smallest", "known", "expected"),
    [
        (8, 1, set(), [8, 4, 2, 1, 8]),
        (6, 2, set(), [6, 3, 2, 6]),
        (8, 3, {8}, [4, 3, 8]),
        (1, 1, set(), [1, 1]),
        (5, 1, {5, 2, 1}, [5]),
        (12, 1, {8, 4, 2, 1}, [12, 6, 3, 12]),
    ],
)
def test_sizes_are_measured_from_the_largest_down_and_then_it_grows_back(
    held: int, smallest: int, known: set[int], expected: list[int]
) -> None:
    assert plan(held, smallest, set(known)) == expected


@pytest.mark.parametrize("held", range(5))
@pytest.mark.parametrize("smallest", [1, 2, 3])
def test_it_never_asks_for_more_than_it_has_nor_for_less_than_it_can(held: int, smallest: int) -> None:
    for known in ({1}, {2}, {3}, {4}, {1, 2, 3, 4}, set()):
        size = size_to_measure(held, smallest, known)
        assert min(held, smallest) <= size <= held
