"""The harvester, event by event: what each leads to, in words and actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bftrain import (
    BadInput,
    BadValue,
    Cause,
    Grow,
    Harvester,
    Limits,
    Plan,
    Quality,
    Release,
    Shrink,
    Solution,
    Start,
    Stop,
    TaskCancelled,
    TaskFailed,
    TaskFinished,
    TaskMeasured,
    Termination,
    ValueTable,
)
from tests.helpers.named_parts import THROUGHPUT, OwnObjective
from tests.unit.core import parts
from tests.unit.core.samples import curve, joined, left, nodes, spec, submitted


def sizes(**wanted: int) -> parts.Answer:
    """Decide these sizes for the tasks that compete, and 0 for all others."""

    def answer(table: ValueTable) -> Solution:
        return parts.say(table, {task.name: wanted.get(task.name, 0) for task in table.problem.tasks})

    return answer


def harvester(*script: parts.Answer, **more: Any) -> Harvester:  # noqa: ANN401 - as a Harvester takes
    return Harvester(solver=parts.Scripted(*(script or (parts.best,))), objective=THROUGHPUT, **more)


def running(*script: parts.Answer, pool: int = 6, **more: Any) -> Harvester:  # noqa: ANN401 - as above
    """Return a harvester with nodes n1 to n<pool>, where task a (2 to 4 nodes) runs on n1 to n4."""
    made = harvester(sizes(a=4), *script, **more)
    made.handle(joined(0, *nodes(1, pool)), submitted(0, spec("a", 2, 4)))
    assert made.plan == Plan(holdings={"a": nodes(1, 4)})
    return made


def test_a_task_starts_grows_shrinks_and_stops_as_decided() -> None:
    core = harvester(sizes(), sizes(a=2), sizes(a=4), sizes(a=3), sizes(a=0))
    assert core.handle(joined(0, *nodes(1, 5))) == ()
    assert core.handle(submitted(1, spec("a"))) == ()  # the script decides on nothing
    assert core.decide(2).actions == (Start(task="a", nodes=("n1", "n2")),)
    assert core.decide(3).actions == (Grow(task="a", nodes=("n3", "n4")),)
    shrink = core.decide(4).actions
    assert shrink == (Shrink(task="a", nodes=(shrink[0].nodes[0],)),)
    assert core.plan.sizes == {"a": 3}
    assert core.decide(5).actions == (Stop(task="a", nodes=core_nodes(shrink)),)
    assert core.plan == Plan(holdings={})


def core_nodes(shrink: tuple[Any, ...]) -> tuple[str, ...]:
    return tuple(node for node in nodes(1, 4) if node not in shrink[0].nodes)


def test_all_give_up_before_any_takes_and_who_needs_most_chooses_first() -> None:
    core = harvester(sizes(a=4, b=0, c=0), sizes(a=1, b=1, c=2))
    core.handle(joined(0, *nodes(1, 4)), submitted(0, spec("a")), submitted(0, spec("b")), submitted(0, spec("c")))
    actions = core.decide(1).actions
    assert [(type(action), action.task) for action in actions] == [(Shrink, "a"), (Start, "c"), (Start, "b")]


def test_lost_nodes_are_released_and_the_task_goes_on_with_the_rest() -> None:
    core = running()
    assert core.absorb(left(1, "n2", "n6", "n4")) == (
        Release(nodes=("n2", "n6", "n4")),
        Shrink(task="a", nodes=("n2", "n4"), cause=Cause.PREEMPTED),
    )
    assert core.plan == Plan(holdings={"a": ("n1", "n3")})
    assert core.pool_size == 3


def test_a_task_below_its_minimum_stops_at_once_and_frees_the_rest() -> None:
    core = running(sizes(b=3))
    assert core.absorb(left(1, "n1", "n2", "n3"), submitted(1, spec("b"))) == (
        Release(nodes=("n1", "n2", "n3")),
        Stop(task="a", nodes=("n1", "n2", "n3", "n4"), cause=Cause.BELOW_MINIMUM),
    )
    assert core.plan == Plan(holdings={})
    core.decide(1)
    assert {task: set(held) for task, held in core.plan.holdings.items()} == {"b": {"n4", "n5", "n6"}}


def test_a_task_that_loses_everything_is_preempted() -> None:
    assert running().absorb(left(1, *nodes(1, 4))) == (
        Release(nodes=nodes(1, 4)),
        Stop(task="a", nodes=nodes(1, 4), cause=Cause.PREEMPTED),
    )


def test_free_nodes_that_leave_are_released_and_nothing_more() -> None:
    assert running().absorb(left(1, "n6")) == (Release(nodes=("n6",)),)


def test_several_departures_of_one_moment_are_one_release() -> None:
    core = running()
    assert core.absorb(left(1, "n1"), TaskFinished(time_s=1, task="x"), left(1, "n6", "n1")) == (
        Release(nodes=("n1", "n6")),
        Shrink(task="a", nodes=("n1",), cause=Cause.PREEMPTED),
    )


def test_departures_of_one_moment_given_one_after_the_other_all_count() -> None:
    core = running()
    core.absorb(left(1, "n1"))
    core.absorb(left(1, "n2"))
    assert core.plan == Plan(holdings={"a": ("n3", "n4")})
    assert core.decide(1).at_once == (
        Release(nodes=("n1",)),
        Shrink(task="a", nodes=("n1",), cause=Cause.PREEMPTED),
        Release(nodes=("n2",)),
        Shrink(task="a", nodes=("n2",), cause=Cause.PREEMPTED),
    )


def test_releases_need_no_solver() -> None:
    solver = parts.Scripted(parts.best)
    core = Harvester(solver=solver, objective=THROUGHPUT)
    core.absorb(joined(0, "n1"), submitted(0, spec("a")))
    core.absorb(left(0, "n1"))
    assert solver.asked == []


def test_a_node_that_left_and_joined_again_is_ours_but_not_its_tasks() -> None:
    core = running()
    assert core.absorb(left(1, "n1"), joined(1, "n1")) == (
        Release(nodes=("n1",)),
        Shrink(task="a", nodes=("n1",), cause=Cause.PREEMPTED),
    )
    assert core.pool_size == 6
    assert core.plan == Plan(holdings={"a": ("n2", "n3", "n4")})


@pytest.mark.parametrize("again", [(), ("n9",)])
def test_a_node_that_joined_and_left_in_one_moment_is_gone(again: tuple[str, ...]) -> None:
    core = harvester()
    core.absorb(joined(0, "n1", "n2"), left(0, "n1"), joined(0, *again), left(0, *again))
    assert core.pool_size == 1


def test_a_node_that_leaves_joins_and_leaves_again_in_one_moment_is_gone() -> None:
    core = running()
    core.absorb(left(1, "n1"), joined(1, "n1"), left(1, "n1"))
    assert core.pool_size == 5


@pytest.mark.parametrize(
    ("event", "note"),
    [
        (joined(1, "n1"), "node 'n1' joined but was in the pool already"),
        (joined(1, "n1", "n7", "n6"), "node 'n1' and 1 others joined but was in the pool already"),
        (left(1, "x"), "node 'x' left but was not in the pool"),
        (left(1, "x", "y", "z"), "node 'x' and 2 others left but was not in the pool"),
        (submitted(1, spec("a")), "task 'a' was submitted again while it is unfinished"),
        (TaskFinished(time_s=1, task="x"), "task 'x' is unknown or over"),
        (TaskCancelled(time_s=1, task="x"), "task 'x' is unknown or over"),
        (TaskFailed(time_s=1, task="x"), "task 'x' is unknown or over"),
        (TaskMeasured(time_s=1, task="x", grow_cost_s=1.0), "task 'x' is unknown or over"),
        (
            submitted(1, spec("b", 1, 9, curve=curve(5.0))),
            "task 'b': no measurement beyond 1 nodes: the curve is flat there",
        ),
    ],
)
def test_what_is_odd_is_noted_once_and_does_no_harm(event: Any, note: str) -> None:  # noqa: ANN401 - any event
    core = running(sizes(a=4))
    assert core.absorb(event) == ()
    decision = core.decide(1)
    assert decision.notes == (note,)
    assert decision.actions == ()
    assert core.plan == Plan(holdings={"a": nodes(1, 4)})
    assert core.decide(2).notes == ()


def test_events_come_in_their_order_or_none_of_them_counts() -> None:
    core = harvester()
    core.absorb(joined(5, "n1"))
    with pytest.raises(BadInput, match=r"^NodesLeft: an event of time 4 came after one of time 7 \(pass events"):
        core.absorb(joined(7, "n2"), left(4, "n1"))
    assert (core.pool_size, core.time_s) == (1, 5.0)
    core.absorb(joined(5, "n3"))
    assert core.pool_size == 2


def test_a_decision_is_never_earlier_than_the_events_before_it() -> None:
    core = harvester()
    core.absorb(joined(5, "n1"))
    assert core.decide(3).time_s == 5.0
    assert core.decide(8).time_s == 8.0
    assert core.time_s == 8.0


def test_nothing_can_be_decided_before_anything_has_happened() -> None:
    with pytest.raises(BadValue, match=r"Decision\.time_s: must be a finite number, not -inf"):
        harvester().handle()


def test_a_deadline_counts_from_the_decision() -> None:
    solver = parts.Scripted(parts.nothing)
    core = Harvester(solver=solver, objective=THROUGHPUT)
    core.absorb(submitted(10, spec("a", deadline_s=100.0)))
    core.decide(30)
    assert solver.asked[0].problem.tasks[0].deadline_in_s == 70.0


def test_a_finished_task_leaves_its_nodes_to_others_without_an_action() -> None:
    core = running(sizes(b=4))
    actions = core.handle(submitted(1, spec("b")), TaskFinished(time_s=1, task="a"))
    assert [(type(action), action.task) for action in actions] == [(Start, "b")]
    assert core.unfinished == ("b",)


def test_a_cancelled_task_is_stopped_and_forgotten() -> None:
    core = running()
    assert core.absorb(TaskCancelled(time_s=1, task="a")) == (Stop(task="a", nodes=nodes(1, 4), cause=Cause.CANCELLED),)
    assert core.unfinished == ()


def test_a_waiting_task_is_cancelled_without_an_action() -> None:
    core = harvester()
    core.absorb(submitted(0, spec("a")))
    assert core.absorb(TaskCancelled(time_s=1, task="a")) == ()
    assert core.unfinished == ()


def test_a_failed_task_stops_and_may_start_again_until_it_failed_too_often() -> None:
    core = running(sizes(a=4), max_failures=2)
    crash = TaskFailed(time_s=1, task="a", reason="out of memory")
    stop = Stop(task="a", nodes=nodes(1, 4), cause=Cause.FAILED)
    assert core.absorb(crash) == (stop,)
    assert core.decide(1).actions == (Start(task="a", nodes=core.plan.holdings["a"]),)
    held = core.plan.holdings["a"]
    assert core.absorb(crash) == (Stop(task="a", nodes=held, cause=Cause.FAILED),)
    assert core.unfinished == ()
    assert core.decide(1).notes == ("task 'a' given up after 2 failures: out of memory",)


def test_a_waiting_task_that_fails_needs_no_stop() -> None:
    core = harvester(max_failures=1)
    core.absorb(submitted(0, spec("a")))
    assert core.absorb(TaskFailed(time_s=1, task="a")) == ()
    assert core.unfinished == ()


def test_a_task_may_come_again_once_it_is_over() -> None:
    core = running(sizes(a=4))
    core.absorb(TaskFinished(time_s=1, task="a"), submitted(1, spec("a")))
    assert core.decide(1).actions == (Start(task="a", nodes=core.plan.holdings["a"]),)


def test_what_was_measured_changes_the_next_decision() -> None:
    core = harvester()
    core.handle(joined(0, "n1"), submitted(0, spec("a", 1, 1)), submitted(0, spec("b", 1, 1, curve=curve(11.0))))
    assert core.plan.sizes == {"b": 1}
    core.handle(TaskMeasured(time_s=1, task="a", curve=curve(99.0)))
    assert core.plan.sizes == {"a": 1}
    core.handle(TaskMeasured(time_s=2, task="a", shrink_cost_s=1e9), TaskMeasured(time_s=2, task="b", curve=curve(500)))
    assert core.plan.sizes == {"a": 1}


def test_the_solver_is_asked_exactly_this() -> None:
    solver = parts.Scripted(parts.nothing)
    limits = Limits(deadline_s=2.0)
    core = Harvester(solver=solver, objective=THROUGHPUT, horizon_s=60.0, limits=limits)
    core.handle(joined(0, *nodes(1, 3)), submitted(0, spec("a")), submitted(0, spec("b", 2, 3)))
    problem = solver.asked[0].problem
    assert (problem.pool, problem.horizon_s, problem.objective) == (3, 60.0, "throughput")
    assert [task.name for task in problem.tasks] == ["a", "b"]
    assert solver.asked[0].values.tolist() == [[0.0, 600.0, 1200.0, 1800.0], [0.0, -np.inf, 1200.0, 1800.0]]
    assert solver.limits == [limits]


def test_the_record_of_a_decision_is_complete() -> None:
    core = running(parts.best)
    core.absorb(left(1, "n1"))
    decision = core.decide(1)
    assert (decision.number, decision.time_s, decision.pool, decision.used) == (2, 1.0, 5, 4)
    assert decision.sizes == {"a": 4}
    assert decision.value == 120.0 * 40.0
    assert (decision.solver, decision.termination, decision.quality) == (
        "scripted",
        Termination.OPTIMAL,
        Quality.PROVEN,
    )
    assert decision.at_once == (Release(nodes=("n1",)), Shrink(task="a", nodes=("n1",), cause=Cause.PREEMPTED))
    assert decision.actions == (Grow(task="a", nodes=("n5",)),)
    assert core.owed == ()


def test_without_competing_tasks_nothing_is_solved() -> None:
    solver = parts.Scripted(parts.raises)
    decision = Harvester(solver=solver, objective=THROUGHPUT).decide(0)
    assert (decision.sizes, decision.solver_words, decision.quality) == ({}, "nobody competes", Quality.PROVEN)
    assert solver.asked == []


def test_without_an_admission_thirty_five_tasks_compete() -> None:
    solver = parts.Scripted(parts.nothing)
    core = Harvester(solver=solver, objective=THROUGHPUT)
    core.handle(*(submitted(0, spec(f"t{number}")) for number in range(40)))
    assert [task.name for task in solver.asked[0].problem.tasks] == [f"t{number}" for number in range(35)]


def test_a_running_task_that_is_not_admitted_any_more_stops() -> None:
    admission = parts.Only("a", "b")
    core = running(sizes(b=4), admission=admission)
    core.absorb(submitted(1, spec("b")))
    admission.names = ("b",)
    decision = core.decide(1)
    assert decision.actions[0] == Stop(task="a", nodes=nodes(1, 4))
    assert (decision.sizes, decision.used) == ({"b": 4}, 4)
    assert core.unfinished == ("a", "b")


def test_an_admission_may_name_a_task_twice_or_one_that_does_not_exist() -> None:
    core = running(sizes(a=4), admission=parts.Fickle(seed=3))
    decision = core.decide(1)
    assert decision.sizes in ({"a": 4}, {})
    assert decision.notes == ("task 'unknown' is unknown or over",)


def test_an_objective_that_gives_nonsense_is_named_with_the_task() -> None:
    wrong = OwnObjective("mine", lambda task, sizes: sizes * np.nan)  # noqa: ARG005 - the port's
    core = Harvester(solver=parts.Scripted(parts.best), objective=wrong)
    core.absorb(joined(0, "n1"), submitted(0, spec("a")))
    with pytest.raises(BadInput, match="objective 'mine', task 'a': returned nan at size 0"):
        core.decide(0)


def test_a_failed_decision_leaves_departures_done() -> None:
    wrong = OwnObjective("mine", lambda task, sizes: 1 / 0)  # noqa: ARG005 - the port's
    core = Harvester(solver=parts.Scripted(parts.best), objective=wrong)
    core.absorb(joined(0, "n1", "n2"), submitted(0, spec("a")))
    assert core.absorb(left(1, "n1")) == (Release(nodes=("n1",)),)
    with pytest.raises(BadInput, match="ZeroDivisionError"):
        core.decide(1)
    assert core.pool_size == 1
    assert core.owed == (Release(nodes=("n1",)),)
