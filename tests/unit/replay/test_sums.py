"""Sums and medians part by part are those of all numbers at once."""

from __future__ import annotations

import numpy as np
import pytest

from bftrain_replay.drawing import sums


@pytest.fixture(params=[1, 50, 10_000])
def at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "_AT_ONCE", request.param)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("size", [1, 2, 999, 1000])
def test_parts_come_to_what_the_whole_does(size: int) -> None:
    dice = np.random.default_rng(size)
    values, numbers = dice.integers(0, 40, size) / 4.0, dice.integers(-3, 4, size)
    cuts = np.sort(dice.integers(0, size, 9))
    parts = list(zip(np.split(values, cuts), np.split(numbers, cuts), strict=True))  # some of them are empty
    keys, found = sums.sum_by_key(iter(parts))
    assert keys.tolist() == sorted(set(values.tolist()))
    assert found.tolist() == [int(numbers[values == key].sum()) for key in keys]
    assert sums.median(part for part, _ in parts) == np.median(values)


def test_complex_keys_are_in_order_of_their_real_part_first() -> None:
    keys, found = sums.sum_by_key([(np.array([2 + 1j, 1 + 5j, 2 + 0j, 1 + 5j]), np.array([1, 2, 3, 4]))])
    assert (keys.tolist(), found.tolist()) == ([1 + 5j, 2 + 0j, 2 + 1j], [6, 3, 1])


def test_nothing_comes_to_nothing() -> None:
    keys, found = sums.sum_by_key([])
    assert (keys.size, found.size) == (0, 0)
