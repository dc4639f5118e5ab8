"""EventLog: what it refuses, what it counts, and what it tells the replay."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from bftrain import BadValue, EventLog, NodesJoined, NodesLeft, NodeState
from bftrain_datasets.log.provenance import LogProvenance
from tests.helpers.transitions import log_from_transitions

IDLE, BUSY, DOWN = NodeState.IDLE, NodeState.BUSY, NodeState.DOWN


def columns(**changed: object) -> dict[str, object]:
    """Two nodes: a idle from 10 to 20, b idle from 10 on; observed until 50."""
    given: dict[str, object] = {
        "node_names": ("a", "b"),
        "times": [0.0, 10.0, 20.0],
        "offsets": [0, 0, 2, 3],
        "nodes": [0, 1, 0],
        "states": [1, 1, 0],
        "end_s": 50.0,
    }
    return given | changed


def small_log() -> EventLog:
    return EventLog(**columns())  # type: ignore[arg-type]  # lists become arrays at birth


def log_with_down() -> EventLog:
    return log_from_transitions(
        [(0, "a", IDLE), (5, "a", DOWN), (7, "b", DOWN), (8, "b", BUSY), (9, "a", IDLE), (9, "b", IDLE)], end_s=10
    )


def test_figures_of_a_small_log_by_hand() -> None:
    log = small_log()
    assert len(log) == 3
    assert (log.start_s, log.end_s, log.span_s) == (0.0, 50.0, 50.0)
    assert log.pool_sizes().tolist() == [0, 2, 1]
    assert log.idle_node_s == 10 + 40
    assert log.idle_share == 50 / 100


def test_events_leave_before_they_join_and_name_the_nodes() -> None:
    log = log_from_transitions(
        [(1, "a", IDLE), (2, "b", IDLE), (2, "a", BUSY), (2, "c", IDLE)], node_names="abc", end_s=3
    )
    assert list(log.events()) == [
        NodesJoined(time_s=1.0, nodes=("a",)),
        NodesLeft(time_s=2.0, nodes=("a",)),
        NodesJoined(time_s=2.0, nodes=("b", "c")),
    ]


def test_going_down_leaves_the_pool_and_busy_to_down_is_no_event() -> None:
    log = log_with_down()
    assert list(log.events()) == [
        NodesJoined(time_s=0.0, nodes=("a",)),
        NodesLeft(time_s=5.0, nodes=("a",)),
        NodesJoined(time_s=9.0, nodes=("a", "b")),
    ]
    assert log.idle_node_s == 5 + 2
    assert log.states_at(7.5).tolist() == [DOWN, DOWN]
    assert log.states_at(8).tolist() == [DOWN, BUSY]
    assert log.states_at(-1).tolist() == [BUSY, BUSY]


@pytest.mark.parametrize(
    ("field", "bad", "says"),
    [
        ("node_names", (), "at least one name"),
        ("node_names", "ab", "at least one name"),
        ("node_names", ("a", "a"), "'a' twice"),
        ("node_names", ("a", " b"), "surrounding space"),
        ("node_names", ("a", "b\n"), "surrounding space"),
        ("times", [], "has no time"),
        ("times", [0.0, 10.0, 10.0], "rise strictly"),
        ("times", [0.0, np.nan, 20.0], "not finite"),
        ("times", [[0.0]], "one-dimensional"),
        ("times", ["x"], "must contain float64"),
        ("offsets", [0, 2, 3], "needs one more"),
        ("offsets", [0, 0, 3, 3], "no change at time 2"),
        ("offsets", [0, 3, 2, 3], "must rise from 0"),
        ("offsets", [0, 0, 2, 4], "number of changes"),
        ("nodes", [0, 2, 0], "between 0 and 1"),
        ("nodes", [1, 0, 0], "rise within one time"),
        ("nodes", [0.5, 1.0, 0.0], "must contain int32"),
        ("nodes", [0, 1 << 40, 0], "beyond the range of int32"),
        ("states", [1, 1], "2 values for 3 nodes"),
        ("states", [1, 1, 7], "between 0 and 2"),
        ("states", [1, 0, 0], "repeats a node's state at change 1"),
        ("end_s", 19.0, "before the last time"),
        ("end_s", float("inf"), "before the last time"),
        ("end_s", "soon", "a number of seconds"),
    ],
)
def test_a_wrong_column_is_refused_by_name(field: str, bad: object, says: str) -> None:
    with pytest.raises(BadValue, match=says) as caught:
        EventLog(**columns(**{field: bad}))  # type: ignore[arg-type]
    assert caught.value.where == f"EventLog.{field}"


def test_columns_are_copies_and_read_only() -> None:
    times = np.array([0.0, 10.0, 20.0])
    log = EventLog(**columns(times=times))  # type: ignore[arg-type]
    times[0] = -5.0
    assert log.start_s == 0.0
    for name in ("times", "offsets", "nodes", "states", "before"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(log, name)[0] = 1
    with pytest.raises(FrozenInstanceError):
        log.end_s = 60.0  # type: ignore[misc]


def test_equal_means_same_content_and_same_story() -> None:
    log = small_log()
    retold = replace(log, provenance=LogProvenance(made_by="another program"))
    assert log == small_log()
    assert hash(log) == hash(small_log())
    assert log != retold
    assert log.sha256 == retold.sha256
    assert log != "a log"
    assert log.sha256 != replace(log, end_s=51.0).sha256
    assert log.sha256 != replace(log, node_names=("a", "c")).sha256


def test_select_window_begins_with_the_states_of_that_moment() -> None:
    part = log_with_down().select(window=(6, 9))
    assert (part.start_s, part.end_s) == (6.0, 9.0)
    assert part.states_at(6).tolist() == [DOWN, BUSY]
    assert part.times.tolist() == [6.0, 7.0, 8.0]
    assert part.idle_node_s == 0


def test_select_nodes_keeps_the_given_order_and_drops_times_without_change() -> None:
    log = log_with_down()
    part = log.select(nodes=[1, 0])
    assert part.node_names == ("b", "a")
    assert part.idle_node_s == log.idle_node_s
    only_b = log.select(nodes=slice(1, 2))
    assert only_b.node_names == ("b",)
    assert only_b.times.tolist() == [0.0, 7.0, 8.0, 9.0]
    assert only_b.provenance.steps == ("kept 1 of 2 nodes, from 0.0 s to 10.0 s",)


@pytest.mark.parametrize(
    ("nodes", "says"),
    [([], "no node"), ([2], "between 0 and 1"), ([-1], "between 0 and 1"), ([0, 0], "twice"), ([0.5], "whole numbers")],
)
def test_select_refuses_nodes_that_are_not_there(nodes: list[int], says: str) -> None:
    with pytest.raises(BadValue, match=says):
        small_log().select(nodes=nodes)


@pytest.mark.parametrize("window", [(-1, 20), (0, 51), (30, 20), (float("nan"), 20)])
def test_select_refuses_a_window_outside_the_log(window: tuple[float, float]) -> None:
    with pytest.raises(BadValue, match=r"the log covers 0\.0 to 50\.0"):
        small_log().select(window=window)


def test_a_log_may_be_a_single_moment() -> None:
    log = EventLog(node_names=("a",), times=[5.0], offsets=[0, 1], nodes=[0], states=[1], end_s=5)  # type: ignore[arg-type]
    assert log.span_s == 0
    assert log.idle_share == 0
    assert log.pool_sizes().tolist() == [1]


def test_a_log_made_by_hand_counts_what_its_names_are() -> None:
    moved = [(0.0, name, NodeState.IDLE) for name in ("n1/gpu0", "n1/gpu1")]
    assert log_from_transitions(moved, end_s=1.0).unit == "gpu"
    assert log_from_transitions([*moved, (0.0, "n2", NodeState.IDLE)], end_s=1.0).unit == "node"
