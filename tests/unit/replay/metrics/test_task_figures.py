"""What a run took for its tasks: figures of small runs that can be followed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from bftrain_replay.metrics.fair_time import IdlePools
from bftrain_replay.metrics.task_figures import (
    KindFigures,
    TaskColumns,
    TaskPercentiles,
    cost_of,
    kind_figures,
    task_figures,
)
from bftrain_replay.results.result import ReplayResult
from tests.unit.replay.cases import log_of, progress, replayed, task

ONE_NODE = log_of((0.0, "a", ""), end_s=100.0)


def queue(**given: object) -> ReplayResult:
    """Three tasks of 20, 30 and 80 s come at 0, 0 and 10 s for one node, one after the other; and one at 200 s."""
    works = (("first", 20.0, 0.0), ("second", 30.0, 0.0), ("third", 80.0, 10.0), ("never", 1.0, 200.0))
    tasks = [
        task(name, rate=(1.0,), work_samples=work, submit_s=at, **given)  # type: ignore[arg-type]  # the fields' own types
        for name, work, at in works
    ]
    return replayed(ONE_NODE, tasks, max_tasks=1)


def test_times_are_of_those_who_finished_and_who_did_not_is_counted() -> None:
    figures = queue().summary()
    assert figures.completion_s == TaskPercentiles(count=2, mean=35.0, p50=35.0, p95=pytest.approx(48.5), max=50.0)
    assert (figures.tasks, figures.tasks_finished, figures.tasks_unfinished) == (4, 2, 1)
    assert figures.completion_at_least_s == pytest.approx((20.0 + 50.0 + 90.0) / 3)  # the third has been there for 90 s
    assert figures.response_s is not None
    assert (figures.response_s.count, figures.response_s.mean) == (3, pytest.approx((0.0 + 20.0 + 40.0) / 3))
    assert figures.waited_s is not None
    assert (figures.waited_s.count, figures.waited_s.max) == (3, 40.0)
    assert (figures.tasks_endless, figures.tasks_never_started) == (0, 0)


def test_rho_is_the_completion_time_over_that_on_an_nth_part() -> None:
    result = queue()
    # Shared by two to 10 s, by three to 55 s where the first is done, by two to 65 s where the second is
    first, second, third, never = result.tasks
    assert (first.shortest_s, second.shortest_s) == (20.0, 30.0)
    assert first.alone_s == pytest.approx(10.0 + (20.0 - 5.0) * 3)
    assert second.alone_s == pytest.approx(55.0 + 10.0 * 2)
    assert third.alone_s == pytest.approx(
        130.0 - 10.0
    )  # it goes on after the log, and has the node to itself from 75 s
    assert never.alone_s is None
    figures = result.summary()
    assert figures.rho is not None
    assert figures.rho.max == pytest.approx(50.0 / 75.0)
    assert figures.rho_over_1 == 0.0
    assert figures.slowdown is not None
    assert figures.slowdown.max == pytest.approx(50.0 / 30.0)


def test_deadlines_that_were_missed_and_by_how_much() -> None:
    figures = queue(deadline_s=40.0).summary()
    # The first is in time; the second is 10 s late, the third 60 s and not done; the fourth never came
    assert (figures.deadlines, figures.deadlines_missed) == (4, 2)
    assert figures.late_s is not None
    assert (figures.late_s.mean, figures.late_s.max) == (35.0, 60.0)


def test_without_ends_there_are_no_figures() -> None:
    figures = replayed(ONE_NODE, [task("endless", rate=(1.0,)), task("idle", rate=(1.0,))], max_tasks=1).summary()
    assert (figures.tasks_endless, figures.tasks_unfinished, figures.tasks_never_started) == (2, 0, 1)
    assert (figures.completion_s, figures.rho, figures.slowdown, figures.rho_over_1, figures.late_s) == (None,) * 5
    assert figures.completion_at_least_s is None
    assert figures.users == {}
    assert figures.waited_s is not None
    assert figures.waited_s.mean == 50.0


def test_every_user_has_figures_of_their_own() -> None:
    tasks = [
        task("a", rate=(1.0,), work_samples=20.0, user="ann"),
        task("b", rate=(1.0,), work_samples=60.0, user="bob"),
        task("c", rate=(1.0,), work_samples=50.0),
    ]
    users = replayed(ONE_NODE, tasks, max_tasks=1).summary().users
    assert list(users) == ["", "ann", "bob"]
    assert [users[name].tasks_finished for name in users] == [0, 1, 1]
    assert [users[name].share for name in users] == [pytest.approx(0.2), pytest.approx(0.2), pytest.approx(0.6)]
    bob = users["bob"].completion_s
    assert bob is not None
    assert bob.mean == 80.0
    assert users[""].rho is None


def test_rows_of_the_table_are_as_good_as_records() -> None:
    result = queue(deadline_s=40.0, user="ann")
    records = TaskColumns.from_records(result.tasks)
    rows = TaskColumns.from_rows([{name: getattr(each, name) for name in dir(each)} for each in result.tasks])
    assert task_figures(rows, 100.0) == task_figures(records, 100.0)
    assert len(rows) == 4
    assert rows.chosen(rows.finished).name == ("first", "second")


def test_no_tasks_at_all() -> None:
    figures = task_figures(TaskColumns.from_records([]), 10.0)
    assert figures.completion_s is None
    assert figures.users == {}
    assert TaskPercentiles.of(np.array([np.nan])) is None


POOLS = IdlePools(
    np.array([0.0, 1800.0]), {"fast": np.array([2, 1]), "slow": np.array([0, 4]), "none": np.array([0, 0])}, 3600.0
)


def test_a_task_knows_how_long_it_held_nodes_of_which_kind() -> None:
    moving = progress(task(rate=(1.0, 2.0)))
    moving.set_speeds([0.0, 1.0, 2.0], "fast")
    moving.start(10.0, 2)
    moving.stop(30.0, preempted=False)
    moving.set_speeds([0.0, 1.0], "slow")
    moving.start(40.0, 1)
    moving.stop(45.0, preempted=True)
    moving.set_speeds([0.0, 1.0, 2.0], "fast")
    moving.start(50.0, 1)
    moving.advance_to(51.0)
    assert moving.node_s_by_kind == {"fast": 41.0, "slow": 5.0}
    assert moving.node_s == 46.0
    still = progress(task())
    assert still.node_s_by_kind == {}
    still.start(0.0, 2)
    still.advance_to(3.0)
    assert still.node_s_by_kind == {"": 6.0}


def test_every_kind_has_its_node_hours() -> None:
    figures = kind_figures(POOLS, {"fast": 2700.0})
    assert figures["fast"] == KindFigures(idle_node_h=1.5, used_node_h=0.75, coverage=pytest.approx(0.5))
    assert figures["slow"] == KindFigures(idle_node_h=2.0, used_node_h=0.0, coverage=0.0)
    assert figures["none"].coverage is None


def test_a_kind_without_a_price_costs_1_and_without_prices_there_is_no_cost() -> None:
    figures = kind_figures(POOLS, {"fast": 3600.0, "slow": 1800.0})
    assert cost_of(figures, {"fast": 2.5}) == pytest.approx(2.5 + 0.5)
    assert cost_of(figures, {}) is None
