"""Waits with and without harvesting are compared; the interval holds what is known to be so."""

from __future__ import annotations

import random

import pytest

from bftrain.live.commands.wait_statistics import compare, spread


def blocks(count: int, size: int, *, more_s: float, seed: int) -> list[list[float]]:
    chance = random.Random(seed)  # noqa: S311 - waits of a test
    return [[chance.random() + more_s for _ in range(size)] for _ in range(count)]


def test_a_difference_is_found_and_the_interval_holds_it() -> None:
    median, p95, longest = compare(blocks(10, 20, more_s=0.0, seed=1), blocks(10, 20, more_s=0.5, seed=2))
    assert (median.name, p95.name, longest.name) == ("median", "p95", "longest")
    for one in (median, p95):
        assert one.low_s is not None
        assert one.high_s is not None
        assert 0.2 < one.low_s <= 0.5 <= one.high_s < 0.8
        assert one.difference_s == pytest.approx(one.with_s - one.without_s)
    assert longest.low_s is None


def test_what_changes_for_both_sides_of_a_pair_widens_no_interval() -> None:
    """The load of the machine changes from pair to pair; the difference within each is the same."""
    before = [[0.1 * pair, 0.1 * pair] for pair in range(8)]
    after = [[wait + 0.25 for wait in block] for block in before]
    (median, *_) = compare(before, after)
    assert (median.low_s, median.high_s) == (pytest.approx(0.25), pytest.approx(0.25))


def test_few_blocks_give_no_interval() -> None:
    (median, *_) = compare([[1.0], [2.0], [3.0]], [[1.0], [2.0], [4.0]])
    assert (median.without_s, median.with_s, median.low_s, median.high_s) == (2.0, 2.0, None, None)


def test_how_long_something_took_is_summed_up() -> None:
    found = spread("x", [0.1] * 98 + [0.2, 0.3])
    assert (found.count, found.median_s, found.longest_s) == (100, 0.1, 0.3)
    assert 0.1 < found.p99_s < 0.3
