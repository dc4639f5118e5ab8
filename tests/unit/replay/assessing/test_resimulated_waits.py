"""The queue scheduled again: waits are those of a plain queue, and those of ``bftrain schedule`` on the same jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bftrain import schedule
from bftrain_replay.assessing.batch_jobs import BatchJobs
from bftrain_replay.assessing.handback import obstacle, resimulate, shared_share

NODES = 6
DELAY_S = 45.0


def _jobs(rng: np.random.Generator, count: int = 80) -> BatchJobs:
    submit_s = np.sort(rng.integers(0, 4000, count)).astype(float)
    sizes = rng.integers(1, NODES + 1, count)
    run_s = rng.integers(1, 300, count).astype(float)
    start_s = 1000.0 * np.arange(5, count + 5)  # when they began does not matter, but none shares a node
    return BatchJobs(
        start_s=start_s,
        end_s=start_s + run_s,
        offsets=np.concatenate(([0], np.cumsum(sizes))),
        nodes=np.concatenate([np.arange(size) for size in sizes]),
        submit_s=submit_s,
        user=rng.integers(0, 3, count),
        users=("a", "b", "c"),
    )


def _first_come(jobs: BatchJobs, hold_s: float) -> list[float]:
    """Compute waits of first come, first served: each job begins after the one ahead, when enough nodes are free."""
    free = [0.0] * NODES
    waits, last = [], 0.0
    for submit_s, size, run_s in zip(jobs.submit_s, jobs.sizes, jobs.end_s - jobs.start_s, strict=True):
        free.sort()
        last = max(last, submit_s, free[size - 1])
        free[:size] = [last + run_s + hold_s] * size
        waits.append(last - submit_s)
    return waits


@pytest.mark.parametrize("seed", range(4))
def test_first_come_first_served_waits_as_a_plain_queue(seed: int) -> None:
    jobs = _jobs(np.random.default_rng(seed))
    found = resimulate(jobs, NODES, DELAY_S, "fcfs")
    assert found is not None
    before, after = (np.array(_first_come(jobs, hold_s)) for hold_s in (0.0, DELAY_S))
    extra = after + DELAY_S - before
    assert found.jobs == len(jobs)
    assert found.wait_mean_s == pytest.approx(before.mean())
    assert found.delayed_wait_mean_s == pytest.approx(after.mean() + DELAY_S)
    assert found.extra_mean_s == pytest.approx(extra.mean())
    assert found.extra_s == pytest.approx({each: np.percentile(extra, each) for each in (50, 90, 99)})
    assert found.later == 1.0


@pytest.mark.parametrize("policy", ["easy", "conservative"])
def test_it_equals_the_schedule_of_the_same_jobs_as_a_file(policy: str, tmp_path: Path) -> None:
    jobs = _jobs(np.random.default_rng(7))
    found = resimulate(jobs, NODES, DELAY_S, policy)
    assert found is not None
    means = []
    for hold_s in (0.0, DELAY_S):
        rows = [
            f"{number} {submit_s:.0f} 0 {run_s + hold_s:.0f} {size} -1 -1 {size} -1 -1 1 {user} 1 -1 1 -1 -1 -1"
            for number, (submit_s, size, run_s, user) in enumerate(
                zip(jobs.submit_s, jobs.sizes, jobs.end_s - jobs.start_s, jobs.user, strict=True), 1
            )
        ]
        path = tmp_path / "jobs.swf"
        path.write_text(f"; MaxNodes: {NODES}\n; MaxProcs: {NODES}\n" + "\n".join(rows) + "\n", encoding="utf-8")
        means.append(schedule(path, policy=policy).summary["wait_s"]["mean"])
    assert found.wait_mean_s == pytest.approx(means[0])
    assert found.delayed_wait_mean_s == pytest.approx(means[1] + DELAY_S)


def test_jobs_that_share_nodes_are_not_scheduled_again() -> None:
    jobs = _jobs(np.random.default_rng(1))
    assert shared_share(jobs, NODES) == 0.0
    jobs.start_s[1], jobs.end_s[1] = jobs.start_s[0], jobs.end_s[0]
    held = ((jobs.end_s - jobs.start_s) * jobs.sizes).sum()
    both = min(jobs.sizes[0], jobs.sizes[1]) * (jobs.end_s[0] - jobs.start_s[0])
    assert shared_share(jobs, NODES) == pytest.approx(both / held)
    jobs.start_s[:], jobs.end_s[:] = 0.0, 100.0
    assert "jobs share nodes for" in obstacle(jobs, NODES)


def test_jobs_without_submission_and_a_stop_give_nothing() -> None:
    jobs = _jobs(np.random.default_rng(1))
    assert obstacle(jobs, NODES) == ""
    assert resimulate(jobs, NODES, DELAY_S, "easy", lambda *_: False) is None
    jobs.submit_s[:] = np.nan
    assert obstacle(jobs, NODES) == "these records do not tell when jobs were submitted"
    assert obstacle(None, NODES) == "no record of jobs is known"
