"""Columns of a log that are worked on in parts give what a plain loop over all changes gives."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from bftrain_datasets.log import log_columns


@pytest.mark.parametrize("at_once", [1, 3, 7, 1 << 21])
def test_parts_of_columns_give_what_a_plain_loop_gives(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(log_columns, "_AT_ONCE", at_once)
    chance = np.random.default_rng(1)
    for _ in range(100):
        counts = chance.integers(1, 5, chance.integers(1, 9))
        counts[0] = chance.integers(0, 3)  # only the first time may have none
        offsets = np.concatenate(([0], np.cumsum(counts)))
        nodes = chance.integers(0, 5, offsets[-1]).astype(np.int32)
        states = chance.integers(0, 3, offsets[-1]).astype(np.int8)
        known: dict[int, int] = {}
        before, last = [], [-1] * 5
        for place, (node, state) in enumerate(zip(nodes.tolist(), states.tolist(), strict=True)):
            before.append(known.get(node, 0))
            known[node] = state
            if place >= offsets[1]:
                last[node] = place
        sums = [sum(states[low:high].tolist()) for low, high in pairwise(offsets.tolist())]
        assert log_columns.states_before(nodes, states).tolist() == before
        assert log_columns.last_changes(nodes, int(offsets[1]), 5).tolist() == last
        assert log_columns.sums_by_time(states, offsets).tolist() == sums


def test_pairs_are_sorted_by_the_first_number_and_then_by_the_second() -> None:
    high, low = np.array([3, 0, 3, 2**31 - 1], dtype=np.int32), np.array([2**31 - 1, 5, 0, 1], dtype=np.int64)
    first, second = log_columns.sorted_pairs(high, low)
    assert list(zip(first.tolist(), second.tolist(), strict=True)) == [(0, 5), (3, 0), (3, 2**31 - 1), (2**31 - 1, 1)]


def test_a_column_is_copied_unless_nothing_can_change_it() -> None:
    theirs = np.arange(3, dtype=np.int32)
    assert not np.shares_memory(log_columns.checked_column("nodes", theirs, np.int32), theirs)
    read = np.frombuffer(theirs.tobytes(), dtype=np.int32)
    assert log_columns.checked_column("nodes", read, np.int32) is read
