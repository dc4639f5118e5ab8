"""Every policy starts every job when the slow and plain simulator does, which plans all again every minute."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers.schedules import Row, scheduled
from tests.helpers.slow_schedules import SlowJob, SlowMachine

NODES = 6

jobs = st.lists(
    st.builds(
        SlowJob,
        submit=st.integers(0, 40),
        run=st.integers(1, 12).map(lambda half: 2 * half),  # so that the mean of two is whole
        size=st.integers(1, NODES),
        limit=st.one_of(st.just(0), st.integers(1, 30)),
        user=st.integers(1, 3),
    ),
    min_size=1,
    max_size=14,
).map(lambda found: sorted(found, key=lambda job: job.submit))


def fast(found: list[SlowJob]) -> list[Row]:
    first = found[0].submit
    return [Row(60 * (job.submit - first), 60 * job.run, job.size, 60 * job.limit, job.user) for job in found]


@pytest.mark.parametrize("estimates", ["limit", "actual"])
@pytest.mark.parametrize("policy", ["fcfs", "easy", "fairshare", "ostrich", "ostrich-fifo"])
@settings(max_examples=30)
@given(found=jobs, shares=st.lists(st.sampled_from((1.0, 2.0, 0.5)), min_size=3, max_size=3), depth=st.integers(1, 6))
def test_the_same_starts(policy: str, estimates: str, found: list[SlowJob], shares: list[float], depth: int) -> None:
    given_shares = shares[: len({job.user for job in found})]
    slow = SlowMachine(found, NODES, estimates, depth=depth, gap=10, shares=given_shares)
    minutes = slow.run(policy)
    made = scheduled(fast(found), NODES, policy, estimates, shares=given_shares, depth=depth)
    assert [start_s / 60 for start_s in made.start_s] == [start - found[0].submit for start in minutes]
