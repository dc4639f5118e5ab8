"""LogBuilder: any order in, a sorted log out, and every transition accounted for."""

from __future__ import annotations

import numpy as np
import pytest

from bftrain import BadInput, NodeState
from bftrain_datasets.log.eventlog import LogBuilder, log_from_pool_changes
from bftrain_datasets.log.provenance import LogProvenance
from tests.helpers.transitions import log_from_transitions

IDLE, BUSY, DOWN = NodeState.IDLE, NodeState.BUSY, NodeState.DOWN


def test_transitions_may_come_in_any_order() -> None:
    moves = [(1.0, "a", IDLE), (2.0, "b", IDLE), (3.0, "a", BUSY), (3.0, "b", BUSY)]
    forward = log_from_transitions(moves, node_names="ab", end_s=9)
    assert log_from_transitions(reversed(moves), node_names="ab", end_s=9) == forward
    assert forward.times.tolist() == [1.0, 2.0, 3.0]
    assert forward.offsets.tolist() == [0, 1, 2, 4]


def test_every_transition_has_one_outcome() -> None:
    log = log_from_transitions(
        [
            (0, "a", BUSY),  # only says that a exists
            (1, "a", IDLE),
            (2, "a", IDLE),  # repeated
            (3, "a", BUSY),  # superseded: a leaves and comes back at once
            (3, "a", IDLE),  # so this repeats
            (4, "a", DOWN),
            (4, "b", IDLE),
        ],
        provenance=LogProvenance(made_by="test", counts={"rows": 8}),
    )
    assert log.provenance.counts == {
        "rows": 8,
        "transitions": 7,
        "used": 3,
        "superseded": 1,
        "repeated": 2,
        "stated_busy": 1,
    }
    assert log.times.tolist() == [0.0, 1.0, 4.0]
    assert log.states_at(4).tolist() == [DOWN, IDLE]


def test_the_last_transition_added_for_a_node_at_one_time_holds() -> None:
    log = log_from_transitions([(0, "a", IDLE), (5, "a", BUSY), (5, "a", DOWN)])
    assert log.states_at(5).tolist() == [DOWN]


def test_pool_changes_name_nodes_that_join_and_leave() -> None:
    log = log_from_pool_changes([(0, ["a", "b"], []), (5, ["c"], ["a"]), (6, ["b"], ["b"])], end_s=10)
    assert log.node_names == ("a", "b", "c")
    assert log.pool_sizes().tolist() == [2, 2]
    assert log.provenance.counts["repeated"] == 1  # b at 6 never left for longer than a moment


def test_known_nodes_come_first_and_others_as_they_are_mentioned() -> None:
    log = log_from_transitions([(0, "z", IDLE), (1, "q", IDLE)], node_names=("m", "q"))
    assert log.node_names == ("m", "q", "z")


def test_observation_may_enclose_the_transitions_but_not_cut_them() -> None:
    moves = [(5.0, "a", IDLE)]
    log = log_from_transitions(moves, begin_s=0, end_s=9)
    assert (log.start_s, log.end_s) == (0.0, 9.0)
    assert log.pool_sizes().tolist() == [0, 1]
    with pytest.raises(BadInput, match="after the transition"):
        log_from_transitions(moves, begin_s=6)
    with pytest.raises(BadInput, match="before the transition"):
        log_from_transitions(moves, end_s=4)


def test_nothing_seen_needs_a_begin_and_an_end() -> None:
    with pytest.raises(BadInput, match="no node changes"):
        LogBuilder("ab").build()
    assert LogBuilder("ab").build(begin_s=0, end_s=9).idle_node_s == 0


def test_a_time_that_is_no_number_is_refused() -> None:
    with pytest.raises(BadInput, match="no finite time"):
        log_from_transitions([(float("nan"), "a", IDLE)])


def test_columns_are_the_same_as_single_transitions() -> None:
    builder = LogBuilder("abc")
    builder.add_columns(np.array([1.0, 2.0, 3.0]), np.array([2, 0, 2]), np.array([1, 1, 0]))
    one_by_one = log_from_transitions([(1, "c", IDLE), (2, "a", IDLE), (3, "c", BUSY)], node_names="abc")
    assert builder.build() == one_by_one
    with pytest.raises(BadInput, match="between 0 and 2"):
        builder.add_columns(np.array([4.0]), np.array([3]), np.array([1]))
    with pytest.raises(BadInput, match="differ in length"):
        builder.add_columns(np.array([4.0]), np.array([1, 2]), np.array([1]))
