"""What a run took for its tasks: figures of small runs that can be followed by hand."""

from __future__ import annotations

import pytest

from tests.unit.replay.cases import ReplayResult, log_of, replayed, task

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
    taken = figures.completion_s
    assert (taken.count, taken.mean, taken.p50, taken.p95, taken.max) == (2, 35.0, 35.0, pytest.approx(48.5), 50.0)
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
