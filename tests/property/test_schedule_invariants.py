"""For any jobs and policy: nodes are not held twice, no job starts too early, promises and accounts hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bftrain import registry
from bftrain.nodesets import expand
from tests.helpers.schedules import Row, job_states, scheduled

NODES = 7
EasyBackfill: Any = registry.load("queue_policy", "easy")
POLICIES = ("fcfs", "easy", "fairshare", "ostrich", "ostrich-fifo")

seconds = st.one_of(st.integers(0, 300), st.integers(0, 8000).map(lambda eighths: eighths / 8))


def from_zero(found: list[Row]) -> list[Row]:
    """Sort jobs by their submission, the first of which is the begin of the log."""
    begin = min(row.submit for row in found)
    return sorted((row._replace(submit=row.submit - begin) for row in found), key=lambda row: row.submit)


rows = (
    st.lists(
        st.builds(
            Row,
            submit=seconds,
            run=seconds,
            size=st.integers(1, NODES + 1),
            limit=st.one_of(st.just(0), st.integers(1, 900)),
            user=st.integers(1, 4),
        ),
        min_size=1,
        max_size=30,
    )
    .map(from_zero)
    .filter(lambda found: any(row.size <= NODES for row in found))
)


def most_in_use(made: Any) -> int:  # noqa: ANN401 - a schedule
    """Count the nodes that are held at once; who leaves makes room for who comes."""
    changes = [
        change
        for job, start_s in enumerate(made.start_s)
        if start_s < math.inf
        for change in ((start_s, made.jobs.size[job]), (made.stop_s(job), -made.jobs.size[job]))
    ]
    return max(accumulate((by for _, by in sorted(changes)), initial=0))


def held_s(made: Any) -> float:  # noqa: ANN401 - a schedule
    """Return the node-seconds that jobs held."""
    return math.fsum(
        made.jobs.size[job] * (min(made.stop_s(job), made.end_s) - start_s)
        for job, start_s in enumerate(made.start_s)
        if start_s < math.inf
    )


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=30)
@given(found=rows, estimates=st.sampled_from(("limit", "actual")))
def test_nodes_and_times(policy: str, found: list[Row], estimates: str) -> None:
    made = scheduled(found, NODES, policy, estimates, half_life_s=100.0)
    assert most_in_use(made) <= NODES
    for job, row in enumerate(found):
        assert (made.start_s[job] == math.inf) == (row.size > NODES)
        assert made.start_s[job] >= row.submit
    log = made.result.log
    assert log.idle_node_s + held_s(made) == pytest.approx(NODES * made.end_s, abs=1e-6)
    assert held_s(made) == pytest.approx(sum(row.size * row.run for row in found if row.size <= NODES))
    stays: dict[str, list[tuple[float, float]]] = {}
    for job, node_set in enumerate(made.result.node_sets):
        held = expand(node_set) if node_set else []
        assert len(held) == (found[job].size if found[job].run and found[job].size <= NODES else 0)
        for node in held:
            stays.setdefault(node, []).append((made.start_s[job], made.stop_s(job)))
    for each in stays.values():
        each.sort()
        assert all(end <= begin for (_, end), (begin, _) in pairwise(each))


@given(found=rows, generous=st.integers(0, 400), exact=st.booleans())
def test_promises_are_kept_while_estimates_are(found: list[Row], generous: int, exact: bool) -> None:  # noqa: FBT001 - drawn
    kept = [row._replace(limit=row.run + generous) for row in found]
    made = scheduled(kept, NODES, "easy", "actual" if exact else "limit")
    promised = [job for job, at_s in enumerate(made.promised_s) if at_s < math.inf]
    assert all(made.start_s[job] <= made.promised_s[job] for job in promised)


class Watched(EasyBackfill):  # type: ignore[misc]  # loaded by its name
    """Looks at what EASY leaves waiting."""

    def starts(self, cluster: Any) -> Sequence[int]:  # noqa: ANN401 - the port's
        """Make sure that the head of the queue never waits while it fits."""
        started = super().starts(cluster)
        left = cluster.free - sum(cluster.size[job] for job in started)
        waiting = [job for job in cluster.waiting if job not in started]
        assert not waiting or cluster.size[waiting[0]] > left
        return started


@given(found=rows, estimates=st.sampled_from(("limit", "actual")))
def test_the_head_never_waits_while_it_fits(found: list[Row], estimates: str) -> None:
    watched = scheduled(found, NODES, Watched(), estimates)
    assert watched.start_s == scheduled(found, NODES, "easy", estimates).start_s


@given(found=rows)
def test_first_come_first_served_starts_in_order(found: list[Row]) -> None:
    made = scheduled(found, NODES, "fcfs")
    started = [start_s for start_s in made.start_s if start_s < math.inf]
    assert started == sorted(started)
    assert not any(made.overtook)


@settings(max_examples=50)
@given(found=rows, until_s=st.integers(1, 1200), policy=st.sampled_from(POLICIES))
def test_an_end_in_the_middle_changes_nothing_before_it(found: list[Row], until_s: float, policy: str) -> None:
    whole = scheduled(found, NODES, policy)
    part = scheduled(found, NODES, policy, until_s=float(until_s))
    assert part.end_s == min(until_s, whole.end_s)
    assert [min(at_s, part.end_s + 1) for at_s in whole.start_s] == [min(at_s, part.end_s + 1) for at_s in part.start_s]
    states = job_states(part)
    assert states.count("done") + states.count("running") == sum(at_s < math.inf for at_s in part.start_s)
    log = part.result.log
    assert log.idle_node_s + held_s(part) == pytest.approx(NODES * part.end_s, abs=1e-6)


@given(found=rows, factor=st.sampled_from((2.0, 8.0)))
def test_time_has_no_unit(found: list[Row], factor: float) -> None:
    """Twice the seconds everywhere is the same schedule, twice as slow."""
    longer = [row._replace(submit=row.submit * factor, run=row.run * factor, limit=row.limit * factor) for row in found]
    for policy in ("fcfs", "easy"):
        one, two = (scheduled(each, NODES, policy, "actual") for each in (found, longer))
        if min(row.run for row in found) > 0:  # a job of no time is planned with one second
            assert [at_s * factor for at_s in one.start_s] == list(two.start_s)
