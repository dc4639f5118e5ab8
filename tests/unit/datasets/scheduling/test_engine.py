"""The simulated clock: how a simulation ends, and what a policy must not do."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from bftrain import BrokenPlugin
from tests.helpers.schedules import NEVER, Row, job_states, scheduled


class Plugin:
    """A third-party policy."""

    name = "mine"

    def __init__(self, starts: Callable[[Any], Sequence[int]], wake_s: float = NEVER) -> None:
        self.starts = starts
        self.wake_s = wake_s


def greedy(cluster: Any) -> list[int]:  # noqa: ANN401 - see QueuePolicy
    free, started = cluster.free, []
    for job in cluster.waiting:
        if cluster.size[job] <= free:
            free -= cluster.size[job]
            started.append(job)
    return started


ROWS = [Row(0, 100, 3), Row(10, 100, 2), Row(20, 50, 1)]


def test_a_policy_of_ones_own_decides() -> None:
    made = scheduled(ROWS, 4, Plugin(greedy))
    assert list(made.start_s) == [0, 100, 20]
    assert made.overtook == [False, False, True]
    assert made.ended.name == "ALL_DONE"
    assert made.end_s == 200


def test_it_is_asked_at_events_and_when_it_wants_to() -> None:
    asked: list[float] = []

    def late(cluster: Any) -> list[int]:  # noqa: ANN401 - see QueuePolicy
        asked.append(cluster.now_s)
        return greedy(cluster) if cluster.now_s >= 30 else []

    made = scheduled([Row(0, 10), Row(5, 10)], 1, Plugin(late, wake_s=30.0))
    assert list(made.start_s) == [30, 40]
    assert asked == [0, 5, 30, 40, 50]


def test_it_receives_what_happened_since() -> None:
    changes: list[tuple[list[int], list[int], list[int]]] = []

    def noting(cluster: Any) -> list[int]:  # noqa: ANN401 - see QueuePolicy
        changes.append((cluster.submitted[:], cluster.overran[:], cluster.ended[:]))
        assert cluster.running == sorted(cluster.running)
        return greedy(cluster)

    scheduled([Row(0, 50, limit=20), Row(20, 30), Row(20, 5)], 9, Plugin(noting))
    assert changes == [([0], [], []), ([1, 2], [0], []), ([], [], [2]), ([], [], [0, 1])]


@pytest.mark.parametrize(
    ("starts", "what"),
    [
        (lambda cluster: cluster.waiting[:], "starts job 2 on 2 nodes where 1 are free"),
        (lambda _: [2], "starts job number 2, which is not waiting"),
        (lambda cluster: [*cluster.waiting[:1], *cluster.waiting[:1]], "starts job number 0, which is not waiting"),
        (lambda _: [-1], "starts job number -1, which is not waiting"),
        (lambda _: [1 // 0], "raised ZeroDivisionError: "),
        (lambda _: [], "leaves job 1 waiting on an empty machine"),
    ],
)
def test_a_policy_that_breaks_the_rules_is_reported(starts: Callable[[Any], Sequence[int]], what: str) -> None:
    with pytest.raises(BrokenPlugin, match=what) as refused:
        scheduled(ROWS, 4, Plugin(starts))
    assert refused.value.where is not None
    assert refused.value.where.startswith("policy 'mine', ")


def test_it_ends_in_the_middle_when_it_is_to() -> None:
    made = scheduled(ROWS, 4, "easy", until_s=100.0)
    assert (made.ended.name, made.end_s) == ("UNTIL", 100)
    assert job_states(made) == ["done", "running", "done"]
    made = scheduled(ROWS, 4, "fcfs", until_s=15.0)
    assert job_states(made) == ["running", "waiting", "not_arrived"]
    assert scheduled(ROWS, 4, "easy", until_s=1e6).ended.name == "ALL_DONE"


def test_overload_ends_it() -> None:
    rows = [Row(10 * number, 100, 1) for number in range(1000)]
    made = scheduled(rows, 4, "easy", max_backlog_s=1000.0)
    assert made.ended.name == "OVERLOAD"
    states = job_states(made)
    # 4 jobs run at a time, and one arrives each 10 s: until 41 wait, 6 arrive for 4 that end
    waited = [100.0 for state in states if state == "waiting"]
    assert sum(waited) / 4 > 1000 >= (sum(waited) - 100) / 4
    assert states.count("not_arrived") > 900
    assert scheduled(rows, 4, "easy", max_backlog_s=40_000.0).ended.name == "ALL_DONE"
    assert scheduled(rows, 10, "easy", max_backlog_s=1.0).ended.name == "ALL_DONE"


def test_a_job_larger_than_the_machine_is_refused_and_belongs_to_no_campaign() -> None:
    for policy in ("fcfs", "easy", "fairshare", "ostrich"):
        made = scheduled([Row(0, 10, 5), Row(1, 10, 4), Row(2, 10, 9)], 4, policy)
        assert made.refused == (0, 2)
        assert list(made.start_s) == [math.inf, 1, math.inf]
        assert made.campaigns.of == [-1, 0, -1]
        assert made.campaigns.created_s == [1]


@pytest.mark.parametrize("policy", ["fcfs", "easy", "fairshare", "ostrich"])
@pytest.mark.parametrize("estimates", ["limit", "actual"])
def test_jobs_that_take_no_time_need_their_nodes_all_the_same(policy: str, estimates: str) -> None:
    rows = [Row(0, 10, 4, 10), *(Row(1, 0, 4, 5) for _ in range(3)), *(Row(1, 0, 3) for _ in range(3)), Row(1, 2, 2, 9)]
    made = scheduled(rows, 4, policy, estimates)
    assert min(made.start_s[1:]) == 10
    assert max(made.start_s) <= 12
    assert made.end_s <= 14
