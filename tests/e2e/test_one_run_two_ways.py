"""One run of a machine of ten nodes, recorded by sacct and by sinfo: the two must agree."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from bftrain import EventLog, NodeState, import_logs
from tests.helpers.records import busy_node_s
from tests.helpers.site_data import site_data

BUSY_NODE_S = 405_162
RESOLUTION_S = 60.0  # between two polls


def run(name: str) -> EventLog:
    return import_logs(site_data(f"sacct/ub-micro-{name}")).log


def poll_times() -> list[float]:
    """When sinfo was polled, from the lines that say so."""
    lines = site_data("sacct/ub-micro-sinfo.out").read_text().splitlines()
    return [
        datetime.strptime(line, "t: %a %b %d %H:%M:%S UTC %Y").replace(tzinfo=UTC).timestamp()
        for line in lines
        if line[:2] == "t:"
    ]


def busy(log: EventLog, time_s: float) -> NDArray[np.bool_]:
    """Whether each node is busy at a time; none is before the log and after it."""
    inside = log.start_s <= time_s < log.end_s
    return log.states_at(time_s) == NodeState.BUSY if inside else np.zeros(len(log.node_names), dtype=np.bool_)


def changes_of(log: EventLog, node: int) -> NDArray[np.float64]:
    """When a node's state changes; a job that ends with the log changes it too."""
    return np.append(log.times[log.time_index[log.nodes == node]], log.end_s)


def test_polls_see_the_same_to_within_their_resolution() -> None:
    sacct, polled = run("slurm_acct.out"), run("sinfo.out")
    assert polled.node_names == sacct.node_names
    assert abs(busy_node_s(polled) - BUSY_NODE_S) <= RESOLUTION_S  # 405,180: what is seen late at each end cancels out


def test_a_poll_shows_what_sacct_tells_of_that_second() -> None:
    """The two differ at one place in a thousand at most, and there a job ends in the second of the poll."""
    sacct, polled = run("slurm_acct.out"), run("sinfo.out")
    times = poll_times()
    assert len(times) == 860
    differ = [
        (time_s, node)
        for time_s in times[:-1]
        for node in np.flatnonzero(busy(polled, time_s) != busy(sacct, time_s)).tolist()
    ]
    assert len(differ) / (10 * len(times)) <= 0.00105
    for time_s, node in differ:
        assert np.abs(changes_of(sacct, node) - time_s).min() <= 1


def test_each_change_that_a_poll_shows_happened_since_the_poll_before() -> None:
    sacct, polled = run("slurm_acct.out"), run("sinfo.out")
    late = []
    for node, time_s in zip(polled.nodes.tolist(), polled.times[polled.time_index].tolist(), strict=True):
        if time_s > polled.start_s:
            changes = changes_of(sacct, node)
            late.append(time_s - changes[changes <= time_s].max())
    assert len(late) > 200
    assert max(late) <= RESOLUTION_S + 1  # the longest of the usual intervals is 61 s
