"""A log that tasks leave earlier: each idle fragment ends so much sooner, and what does not last so long is gone."""

from __future__ import annotations

import numpy as np
import pytest

from bftrain import EventLog, NodeState, generate_log
from bftrain_datasets.log.edits import leave_earlier
from bftrain_datasets.log.measures import fragments
from tests.helpers.transitions import log_from_transitions

BUSY, IDLE, DOWN = NodeState.BUSY, NodeState.IDLE, NodeState.DOWN


def idle_times(log: EventLog) -> set[tuple[str, float, float]]:
    pieces, bounds = fragments(log), np.append(log.times, log.end_s)
    return {
        (log.node_names[node], float(bounds[join]), float(bounds[leave]))
        for node, join, leave in zip(pieces.node, pieces.join, pieces.leave, strict=True)
    }


@pytest.mark.parametrize("lead_s", [0.0, 30.0, 400.0, 4000.0])
def test_every_fragment_ends_earlier_or_is_gone(lead_s: float) -> None:
    log = generate_log(40, 1.0, 4)
    made = leave_earlier(log, lead_s)
    expected = set()
    for name, begin_s, end_s in idle_times(log):
        if end_s == log.end_s:  # still idle
            expected.add((name, begin_s, end_s))
        elif begin_s == log.start_s:  # how long it was idle is not known
            expected.add((name, begin_s, max(end_s - lead_s, float(np.nextafter(log.start_s, np.inf)))))
        elif end_s - begin_s > lead_s:
            expected.add((name, begin_s, end_s - lead_s))
    assert idle_times(made) == expected
    assert (made.start_s, made.end_s, made.node_names) == (log.start_s, log.end_s, log.node_names)


def test_nodes_go_down_without_notice() -> None:
    log = log_from_transitions(
        [
            (0.0, "a", BUSY),
            (0.0, "b", BUSY),
            (10.0, "a", IDLE),
            (10.0, "b", IDLE),
            (100.0, "a", DOWN),
            (100.0, "b", BUSY),
        ]
    )
    assert idle_times(leave_earlier(log, 40.0)) == {("a", 10.0, 100.0), ("b", 10.0, 60.0)}
