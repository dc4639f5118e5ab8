"""How campaigns fared: followed by hand on small logs, for any admission."""

from __future__ import annotations

import math
import runpy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bftrain
from bftrain import Entity, EventLog, TaskSpec
from tests.helpers.campaigns import CAMPAIGN_STRETCH, CAMPAIGNS
from tests.unit.replay.cases import ReplayResult, log_of, replayed, task

LINEAR = (1.0, 2.0, 3.0, 4.0)  # samples/s: the work is the node-seconds that it takes


campaigns_of: Callable[[ReplayResult], Sequence[Any]] = runpy.run_path(CAMPAIGN_STRETCH.partition(":")[0])[
    "campaigns_of"
]


def metrics_of(log: EventLog, tasks: Sequence[TaskSpec], **settings: Any) -> dict[str, Any]:  # noqa: ANN401 - settings of any kind
    done = bftrain.replay(log, tasks, progress="task", metrics=CAMPAIGN_STRETCH, **settings)
    return dict(done.summary["metrics"])


def test_two_users_who_share_by_turns() -> None:
    log = log_of((0.0, "abcd", ""), end_s=1000.0)
    tasks = [
        task("much", rate=LINEAR, work_samples=800.0, user="ann"),
        task("little", rate=LINEAR, work_samples=80.0, user="bob", submit_s=10.0),
    ]
    first_come = replayed(log, tasks, admission="load,demand=max")
    much, little = campaigns_of(first_come)
    # The four nodes are ann's until 200 s, then bob's for 20 s
    assert (much.end_s, little.end_s) == (200, 220)
    assert (much.least_s, little.least_s) == (200, 20)  # alone on all that was there
    assert (much.stretch, little.stretch) == (1, pytest.approx(10.5))
    # Virtually each has two nodes from 10 s on, and the 80 node-seconds of bob are done at 50 s
    assert (little.virtual_end_s, much.virtual_end_s) == (pytest.approx(50), pytest.approx(220))
    assert (little.rivals, much.rivals) == (2, 2)
    # bob waits for 2 times 80 node-seconds of what is harvested from 10 s on, and for the 20 s of the run: 60 s
    assert little.bound_s == pytest.approx(60)
    assert little.end_s - little.created_s > little.bound_s

    fair = replayed(log, tasks, admission=CAMPAIGNS)
    much, little = campaigns_of(fair)
    assert (little.end_s, much.end_s) == (30, 220)
    assert (little.stretch, much.stretch) == (1, pytest.approx(1.1))
    assert metrics_of(log, tasks, admission=CAMPAIGNS) == {
        "campaigns": 2,
        "campaigns_finished": 2,
        "campaign_stretch_mean": pytest.approx(1.05),
        "campaign_stretch_p95": pytest.approx(1.095),
        "campaign_stretch_max": pytest.approx(1.1),
        "campaigns_within_bound": 1.0,
    }


def test_the_least_time_is_that_of_the_nodes_that_were_there() -> None:
    log = log_of((0.0, "ab", ""), (100.0, "", "ab"), (300.0, "ab", ""), end_s=1000.0)
    (row,) = campaigns_of(replayed(log, [task(rate=(1.0, 2.0), work_samples=300.0, user="ann", campaign="study")]))
    assert (row.campaign, row.end_s, row.least_s, row.stretch) == ("study", 350, 350, 1)


def test_no_campaign_needs_less_than_its_longest_task_or_ten_seconds() -> None:
    log = log_of((0.0, "abcd", ""), end_s=1000.0)
    tasks = [
        task("single", rate=(1.0,), work_samples=100.0, user="ann"),
        task("short", rate=LINEAR, work_samples=4.0, user="bob"),
    ]
    single, short = campaigns_of(replayed(log, tasks))
    assert (single.least_s, single.stretch) == (100, 1.01)  # for a second the other one had all nodes
    assert (short.least_s, short.stretch) == (10, 1)


def test_tasks_of_one_go_are_one_campaign_and_named_ones_last() -> None:
    log = log_of((0.0, "abcd", ""), end_s=10_000.0)
    given = {"rate": (1.0,), "work_samples": 50.0}
    tasks = [
        task("a1", user="ann", **given),
        task("a2", user="ann", submit_s=599.0, **given),
        task("a3", user="ann", submit_s=600.0, **given),
        task("b1", user="bob", campaign="study", **given),
        task("b2", user="bob", campaign="study", submit_s=40.0, **given),
        task("b3", user="bob", campaign="study", submit_s=5000.0, **given),
    ]
    rows = campaigns_of(replayed(log, tasks))
    campaigns = [(row.user, row.campaign, row.created_s, row.tasks) for row in rows]
    assert campaigns == [("ann", "", 0, 2), ("bob", "study", 0, 2), ("ann", "", 600, 1), ("bob", "study", 5000, 1)]


def test_what_has_not_ended_has_no_stretch() -> None:
    log = log_of((0.0, "a", ""), end_s=100.0)
    tasks = [task("long", rate=(1.0,), work_samples=500.0, user="ann"), task("late", user="bob", submit_s=500.0)]
    (row,) = campaigns_of(replayed(log, tasks))
    assert (row.user, row.tasks, row.tasks_finished, row.end_s, row.stretch, row.bound_s) == (
        "ann", 1, 0, None, None, None,
    )  # fmt: skip
    assert metrics_of(log, tasks)["campaigns_within_bound"] is None


def test_shares_weigh_in_the_virtual_schedule() -> None:
    log = log_of((0.0, "abcd", ""), end_s=1000.0)
    tasks = [task(name, rate=LINEAR, work_samples=400.0, user=name) for name in ("ann", "bob")]
    ann, bob = campaigns_of(replayed(log, tasks, entities={"ann": Entity(weight=3.0)}))
    assert ann.virtual_end_s == pytest.approx(400 / 3)
    assert bob.virtual_end_s == pytest.approx(200)
    assert (ann.rivals, bob.rivals) == (pytest.approx(4 / 3), 4)


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 400), st.integers(1, 900)), min_size=1, max_size=8),
    st.sampled_from(["first-come", CAMPAIGNS, "load"]),
)
def test_all_that_was_harvested_is_poured(given: list[tuple[str, int, int]], admission: str) -> None:
    """If all finish, the last virtual end is the last real one: what is held and what is poured are the same."""
    log = log_of((0.0, "abcd", ""), (350.0, "", "bcd"), (420.0, "bc", ""), end_s=50_000.0)
    tasks = [
        task(f"t{number}", rate=LINEAR, work_samples=float(work), user=user, submit_s=float(submit_s))
        for number, (user, submit_s, work) in enumerate(given)
    ]
    rows = campaigns_of(replayed(log, tasks, admission=admission))
    assert sum(row.tasks for row in rows) == len(tasks)
    ends = [row.end_s for row in rows if row.end_s is not None]
    virtual = [row.virtual_end_s for row in rows if row.virtual_end_s is not None]
    assert len(ends) == len(virtual) == len(rows)
    assert max(virtual) == pytest.approx(max(ends), abs=1e-5)
    assert math.fsum(row.node_h for row in rows) * 3600 == pytest.approx(sum(work for _, _, work in given))
    assert all(row.stretch is not None and row.stretch >= 1 for row in rows)
