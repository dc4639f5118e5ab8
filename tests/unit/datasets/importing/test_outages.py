"""Nodes that records report as down, beside the jobs."""

from __future__ import annotations

import math

import pytest

from bftrain import NodeState
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.open_jobs import NodeOutages
from tests.helpers.transitions import log_from_transitions

IDLE, BUSY, DOWN = NodeState.IDLE, NodeState.BUSY, NodeState.DOWN


@pytest.mark.parametrize(
    ("states", "spans"),
    [
        ([], []),
        ([(5, True, "down"), (9, False, "")], [(5, 9)]),
        ([(9, False, ""), (5, True, "down")], [(5, 9)]),
        ([(5, False, ""), (9, False, "silent")], []),
        ([(5, True, "down")], [(5, math.inf)]),
        ([(5, True, "down"), (7, True, "down"), (9, False, "down")], [(5, 9)]),
        ([(5, True, "down"), (6, True, "silent"), (7, False, "silent"), (9, False, "")], [(5, 9)]),
        ([(5, True, "silent"), (6, False, "silent"), (7, True, "drain")], [(5, 6), (7, math.inf)]),
    ],
)
def test_spans(states: list[tuple[float, bool, str]], spans: list[tuple[float, float]]) -> None:
    outages = NodeOutages()
    for time_s, out, why in states:
        outages.tell("a", time_s, out=out, why=why)
    assert outages.spans("a") == spans


def test_only_idle_time_becomes_down() -> None:
    log = log_from_transitions(
        [
            (0, "a", IDLE),
            (10, "a", BUSY),
            (20, "a", IDLE),
            (0, "b", IDLE),
            (15, "b", DOWN),
            (0, "c", BUSY),
            (40, "c", IDLE),
        ],
        end_s=50,
    )
    outages, tally = NodeOutages(), FindingsTally()
    for name in ("a", "c", "stranger"):
        outages.tell(name, -5, out=True, why="down")
        outages.tell(name, 30, out=False)
    made = outages.mark(log, tally)
    assert [made.states_at(time).tolist() for time in (0, 12, 25, 30, 45)] == [
        [DOWN, IDLE, BUSY],
        [BUSY, IDLE, BUSY],
        [DOWN, DOWN, BUSY],
        [IDLE, DOWN, BUSY],
        [IDLE, DOWN, IDLE],
    ]
    found = {each.name: (each.count, each.node_s) for each in tally.findings()}
    assert found == {"node_down": (2, 10 + 10), "strange_outages": (1, 0)}


def test_no_states_change_nothing() -> None:
    log = log_from_transitions([(0, "a", IDLE)], end_s=50)
    assert NodeOutages().mark(log, FindingsTally()) is log
