"""Figures on a log small enough to count by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bftrain import EventLog, NodeState
from bftrain_datasets.log.measures import (
    departures,
    down_node_s,
    fragments,
    fragments_in_parts,
    in_large_departures,
    leave_chances,
    leaving_together,
    summarise,
    weighted_percentiles,
)
from tests.helpers.transitions import log_from_transitions

IDLE, BUSY, DOWN = NodeState.IDLE, NodeState.BUSY, NodeState.DOWN


@pytest.fixture
def log() -> EventLog:
    """Three nodes join at 0; two leave at 100, one at 300; a fourth is idle from 500 to beyond the end at 1000."""
    return log_from_transitions(
        [*((0, name, IDLE) for name in "abc"), (100, "a", BUSY), (100, "b", DOWN), (300, "c", BUSY), (500, "d", IDLE)],
        end_s=1000,
    )


def test_fragments_are_the_stays_in_the_pool(log: EventLog) -> None:
    pieces = fragments(log)
    assert pieces.node.tolist() == [0, 1, 2, 3]
    assert pieces.length_s.tolist() == [100, 100, 300, 500]
    assert pieces.open.tolist() == [False, False, False, True]
    assert pieces.join.tolist() == [0, 0, 0, 3]
    assert pieces.leave.tolist() == [1, 1, 2, 4]


@pytest.mark.parametrize("at_once", [1, 2, 3, 1000])
def test_fragments_in_parts_are_those_of_the_whole(log: EventLog, at_once: int) -> None:
    parts, whole = list(fragments_in_parts(log, at_once)), fragments(log)
    for name in ("node", "join", "leave", "length_s", "open"):
        joined = [value for part in parts for value in getattr(part, name).tolist()]
        assert joined == getattr(whole, name).tolist()


def test_pool_percentiles_are_weighted_by_time(log: EventLog) -> None:
    # 3 nodes for 100 s, 1 for 200 s, 0 for 200 s, 1 for 500 s
    found = weighted_percentiles(log.pool_sizes(), log.durations_s, (10, 20, 21, 89, 90, 91, 99))
    assert found == {10: 0, 20: 0, 21: 1, 89: 1, 90: 1, 91: 3, 99: 3}


def test_how_nodes_leave(log: EventLog) -> None:
    assert leaving_together(fragments(log)) == pytest.approx(2 / 3)
    assert in_large_departures(departures(log), least=2) == pytest.approx(2 / 3)
    assert in_large_departures(departures(log), least=3) == 0


def test_the_chance_to_leave_counts_only_what_is_known(log: EventLog) -> None:
    pieces = fragments(log)
    ordered_s = np.sort(pieces.length_s)
    assert leave_chances(pieces, ordered_s, (0.0,), 150) == [pytest.approx(2 / 4)]
    # The only one that is 400 s old is still idle at the end: its end is unknown
    assert leave_chances(pieces, ordered_s, (100.0, 400.0, 9999.0), 300) == [pytest.approx(1 / 2), 0, 0]


def test_the_summary_has_it_all(log: EventLog) -> None:
    summary = summarise(log)
    assert (summary.nodes, summary.events, summary.span_s) == (4, 4, 1000)
    assert summary.idle_node_hours == pytest.approx(1000 / 3600)
    assert summary.idle_share == 0.25
    assert summary.pool.mean == 1
    assert summary.pool.largest == 3
    assert (summary.fragments.count, summary.fragments.open, summary.fragments.mean_s) == (4, 1, 250)
    up_to_2_min = summary.fragments.shares[0]
    assert (up_to_2_min.up_to_s, up_to_2_min.fragments, up_to_2_min.idle_time) == (120, 0.5, 0.2)
    assert summary.mean_gap_s == pytest.approx(500 / 3)
    assert summary.median_gap_s == 200


def test_a_log_in_which_nothing_is_ever_idle_has_figures_too() -> None:
    summary = summarise(log_from_transitions([(0, "a", BUSY)]))
    assert summary.fragments.count == 0
    assert summary.idle_share == summary.leaving.together == summary.pool.mean == summary.mean_gap_s == 0


def test_how_many_leave_at_once_is_counted_over_the_leaving_nodes(log: EventLog) -> None:
    # two leave together, one alone: of three leaving nodes one third leaves alone
    gone = departures(log)[departures(log) > 0]
    assert weighted_percentiles(gone, gone, (33, 34, 99)) == {33: 1, 34: 2, 99: 2}
    assert summarise(log_from_transitions([(0, "a", IDLE)], end_s=9)).leaving.at_once == {}


def test_down_time_is_counted_apart(log: EventLog) -> None:
    assert down_node_s(log) == 900  # b, from 100 to the end
    summary = summarise(log)
    assert summary.down_node_hours == 0.25
    assert summary.down_share == 900 / 4000
    nothing = log_from_transitions([(0, "a", BUSY), (5, "a", IDLE)], end_s=9)
    assert summarise(nothing).down_share == 0
    again = log_from_transitions([(0, "a", DOWN), (5, "a", IDLE), (6, "a", DOWN), (8, "a", BUSY)], end_s=9)
    assert down_node_s(again) == 7


def test_the_summary_tells_where_the_log_came_from(log: EventLog) -> None:
    assert summarise(log).provenance == log.provenance
