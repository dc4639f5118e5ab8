"""Nodes of several kinds in the decision core: who gets which, what moving costs, what is noted, what is remembered."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from bftrain import (
    Grow,
    Harvester,
    NodesJoined,
    Release,
    Solver,
    Start,
    Stop,
    TaskFinished,
    TaskMeasured,
    TaskPaused,
    TaskResumed,
    Termination,
)
from bftrain.deciding.objectives import FunctionObjective
from bftrain.ports import ObjectiveCapabilities, SolverCapabilities
from bftrain.values import wire
from tests.helpers.named_parts import EXACT, GREEDY, THROUGHPUT
from tests.unit.core.parts import Scripted, say
from tests.unit.core.samples import curve, joined, left, spec, submitted

FAST, SLOW = curve(10.0, 19.0, 27.0, 34.0), curve(4.0, 8.0, 12.0, 16.0)


def core(solver: Solver = EXACT, **more: Any) -> Harvester:  # noqa: ANN401 - settings of any type
    return Harvester(solver=solver, objective=more.pop("objective", THROUGHPUT), horizon_s=100.0, **more)


def joined_as(kind: str, time_s: float, *nodes: str) -> NodesJoined:
    return NodesJoined(time_s=time_s, nodes=nodes, kind=kind)


def held(harvester: Harvester) -> dict[str, set[str]]:
    return {task: set(nodes) for task, nodes in harvester.held.items()}


def test_a_node_that_comes_back_may_be_of_another_kind_but_not_while_it_is_there() -> None:
    harvester = core()
    harvester.handle(joined_as("v100", 0, "n1", "n2"))
    harvester.absorb(joined_as("k80", 1, "n2", "n3"))
    assert harvester.pools == {"k80": 1, "v100": 2}
    assert harvester.decide(1).notes == (
        "node 'n2' joined but was in the pool already",
        "node 'n2' is in the pool as another kind than 'k80'",
    )
    harvester.handle(left(2, "n2"), joined_as("k80", 2, "n2"))
    assert (harvester.pools, harvester.kind_of("n2")) == ({"k80": 2, "v100": 1}, "k80")


def test_each_task_gets_nodes_of_one_kind_and_the_decision_says_of_which() -> None:
    harvester = core()
    picky = spec("picky", curves={"k80": SLOW})
    either = spec("either", curves={"v100": FAST, "k80": SLOW})
    harvester.absorb(
        joined_as("v100", 0, "v1", "v2"), joined_as("k80", 0, "k1", "k2"), submitted(0, either), submitted(0, picky)
    )
    decision = harvester.decide(0)
    assert dict(decision.sizes) == {"either": 2, "picky": 2}
    assert dict(decision.kinds) == {"either": "v100", "picky": "k80"}
    assert held(harvester) == {"either": {"v1", "v2"}, "picky": {"k1", "k2"}}
    assert decision.value == 100 * (19 + 8)


def test_without_kinds_a_decision_names_none_and_curves_by_kind_are_ignored() -> None:
    harvester = core()
    harvester.absorb(joined(0, "n1", "n2"), submitted(0, spec("a", curve=SLOW, curves={"v100": FAST})))
    decision = harvester.decide(0)
    assert (decision.value, dict(decision.kinds), dict(decision.sizes)) == (800.0, {}, {"a": 2})


def test_nodes_of_no_kind_beside_others_are_run_on_at_the_plain_curve() -> None:
    harvester = core()
    harvester.absorb(
        joined(0, "n1", "n2"), joined_as("v100", 0, "v1"), submitted(0, spec("a", curve=SLOW, curves={"v100": FAST}))
    )
    decision = harvester.decide(0)
    assert (decision.value, dict(decision.kinds), held(harvester)) == (1000.0, {"a": "v100"}, {"a": {"v1"}})
    harvester.absorb(left(1, "v1"))
    assert harvester.decide(1).value == 800.0
    assert held(harvester) == {"a": {"n1", "n2"}}


def test_one_kind_with_a_name_is_decided_like_one_without() -> None:
    plain, named = core(), core()
    for harvester, kind in ((plain, ""), (named, "v100")):
        tasks = [spec(name, largest=largest, grow_cost_s=3.0) for name, largest in (("a", 3), ("b", 4), ("c", 2))]
        harvester.handle(joined_as(kind, 0, "n1", "n2", "n3"), *(submitted(0, each) for each in tasks))
        harvester.handle(left(5, "n2"), joined_as(kind, 5, "n4", "n5"))
    assert plain.held == named.held
    assert plain.decide(9).actions == named.decide(9).actions
    assert dict(named.decide(9).kinds) == dict.fromkeys(named.held, "v100")
    assert dict(plain.decide(9).kinds) == {}


def test_a_task_moves_to_a_better_kind_by_stopping_and_starting_if_that_is_worth_its_costs() -> None:
    # 2 k80 give 8/s, 2 v100 give 19/s. Moving costs 10 s at 8/s and start_cost_s at 19/s
    for start_cost_s, moves in ((50.0, True), (60.0, False)):
        harvester = core()
        task = spec("a", 2, 2, curves={"v100": FAST, "k80": SLOW}, shrink_cost_s=10.0, start_cost_s=start_cost_s)
        harvester.handle(joined_as("k80", 0, "k1", "k2"), submitted(0, task))
        harvester.absorb(joined_as("v100", 10, "v1", "v2"))
        decision = harvester.decide(10)
        if moves:
            assert decision.actions == (Stop(task="a", nodes=("k1", "k2")), Start(task="a", nodes=("v1", "v2")))
            assert (decision.value, dict(decision.kinds)) == (100 * 19 - 10 * 8 - 50 * 19, {"a": "v100"})
        else:
            assert decision.actions == ()
            assert (decision.value, dict(decision.kinds)) == (800.0, {"a": "k80"})


def test_all_tasks_give_up_before_any_takes_and_none_does_both_on_one_kind() -> None:
    # a goes to the nodes that b has, and b to those of a
    swapping = Scripted(
        lambda table: replace(say(table, {"a": 2, "b": 2}), kinds={"a": "v100", "b": "k80"}),
        lambda table: replace(say(table, {"a": 2, "b": 2}), kinds={"a": "k80", "b": "v100"}),
    )
    swapping.capabilities = SolverCapabilities(node_kinds=True)  # type: ignore[attr-defined]  # it has none itself
    harvester = core(swapping)
    both = {"v100": FAST, "k80": SLOW}
    harvester.handle(
        joined_as("v100", 0, "v1", "v2"),
        joined_as("k80", 0, "k1", "k2"),
        *(submitted(0, spec(name, curves=both)) for name in "ab"),
    )
    assert held(harvester) == {"a": {"v1", "v2"}, "b": {"k1", "k2"}}
    assert harvester.decide(1).actions == (
        Stop(task="a", nodes=("v1", "v2")),
        Stop(task="b", nodes=("k1", "k2")),
        Start(task="a", nodes=("k1", "k2")),
        Start(task="b", nodes=("v1", "v2")),
    )


def test_a_task_whose_nodes_vanish_starts_on_what_is_left_and_its_minimum_holds_on_every_kind() -> None:
    harvester = core()
    task = spec("a", 2, 3, curves={"v100": FAST, "k80": SLOW})
    harvester.handle(joined_as("v100", 0, "v1", "v2"), joined_as("k80", 0, "k1"), submitted(0, task))
    assert held(harvester) == {"a": {"v1", "v2"}}
    actions = harvester.handle(left(1, "v1"))
    assert actions == (Release(nodes=("v1",)), Stop(task="a", nodes=("v1", "v2"), cause="below_minimum"))  # type: ignore[arg-type]
    assert held(harvester) == {}  # 1 v100 and 1 k80 are no two nodes
    assert harvester.handle(joined_as("k80", 2, "k2")) == (Start(task="a", nodes=("k1", "k2")),)
    assert harvester.handle(joined_as("k80", 3, "k3")) == (Grow(task="a", nodes=("k3",)),)


def test_what_runs_on_no_kind_that_is_there_waits_and_a_note_says_so_once() -> None:
    harvester = core()
    harvester.absorb(joined_as("k80", 0, "k1"), submitted(0, spec("a", largest=1, curves={"v100": FAST})))
    decision = harvester.decide(0)
    assert dict(decision.sizes) == {"a": 0}
    assert "task 'a': runs on v100 only, and no such node is idle now: it waits" in decision.notes
    assert harvester.decide(1).notes == ()
    harvester.handle(joined_as("v100", 2, "v1"))
    assert held(harvester) == {"a": {"v1"}}


def test_sizes_that_were_not_measured_are_noted_for_every_kind() -> None:
    harvester = core()
    harvester.absorb(submitted(0, spec("a", largest=5, curves={"v100": FAST, "k80": curve(1.0)})))
    assert harvester.decide(0).notes == (
        "task 'a': on v100: no measurement beyond 4 nodes: the curve is flat there",
        "task 'a': on k80: no measurement beyond 1 nodes: the curve is flat there",
    )


def test_a_measurement_that_takes_a_kind_away_ends_the_run_there() -> None:
    harvester = core()
    harvester.handle(
        joined_as("v100", 0, "v1"),
        joined_as("k80", 0, "k1"),
        submitted(0, spec("a", curves={"v100": FAST, "k80": SLOW}, shrink_cost_s=5.0)),
    )
    actions = harvester.handle(TaskMeasured(time_s=1, task="a", curves={"k80": SLOW}))
    assert actions == (Stop(task="a", nodes=("v1",)), Start(task="a", nodes=("k1",)))


def test_a_solver_that_knows_no_kinds_is_not_asked_and_the_fallback_helps() -> None:
    lone = Scripted(lambda table: say(table, {}))
    harvester = core(lone, fallback=GREEDY)
    harvester.absorb(
        joined_as("v100", 0, "v1"), joined_as("k80", 0, "k1"), submitted(0, spec("a", curves={"v100": FAST}))
    )
    decision = harvester.decide(0)
    assert (lone.asked, decision.termination) == ([], Termination.FAILED)
    assert "'scripted' does not support node kinds" in decision.fallback
    assert decision.fallback.endswith("sizes of greedy taken")
    assert (dict(decision.sizes), dict(decision.kinds)) == ({"a": 1}, {"a": "v100"})


def busy() -> Harvester:
    harvester = core()
    harvester.handle(
        joined_as("v100", 0, "v1", "v2", "v3"),
        joined(0, "n1"),
        submitted(0, spec("a", largest=2, curves={"v100": FAST})),
        submitted(0, spec("b", largest=1)),
    )
    harvester.handle(joined_as("k80", 5, "k1", "k2"), submitted(5, spec("c", curves={"k80": SLOW, "v100": FAST})))
    harvester.absorb(left(7, "v1"))
    return harvester


def test_another_harvester_goes_on_from_where_one_stood_with_kinds() -> None:
    one, other = busy(), core()
    other.restore(wire.decode(wire.encode(one.snapshot), type(one.snapshot)))
    assert other.snapshot == one.snapshot
    assert (other.pools, other.held, other.kind_of("v2")) == (one.pools, one.held, "v100")
    for event in (joined_as("v100", 9, "v4", "v5"), left(9.5, "k1"), TaskFinished(time_s=10, task="a")):
        assert one.handle(event) == other.handle(event)
    assert other.snapshot == one.snapshot


def test_following_decisions_leads_to_where_deciding_led() -> None:
    one, follower = core(), core()
    for events in (
        (joined_as("v100", 0, "v1", "v2"), submitted(0, spec("a", curves={"v100": FAST, "k80": SLOW}))),
        (joined_as("k80", 3, "k1"), left(3, "v1", "v2")),
        (joined_as("v100", 5, "v3"),),
    ):
        one.absorb(*events)
        follower.absorb(*events)
        follower.follow(one.decide(one.time_s))
        assert follower.snapshot == one.snapshot


def looking() -> FunctionObjective:
    """Return an objective that asks what tasks had so far."""
    return FunctionObjective("looking", THROUGHPUT.values, ObjectiveCapabilities(uses_history=True))


def seen(harvester: Harvester, time_s: float) -> dict[str, tuple[float, float, float]]:
    problem = harvester.ask(time_s).problem
    assert problem is not None
    return {task.name: (task.age_s, task.held_node_s, task.done_samples) for task in problem.tasks}


def test_objectives_and_solvers_that_use_history_receive_it() -> None:
    harvester = core(objective=looking())
    harvester.handle(
        joined_as("v100", 10, "v1", "v2"), submitted(10, spec("a", largest=2, curves={"v100": FAST, "k80": SLOW}))
    )
    assert seen(harvester, 14) == {"a": (4.0, 8.0, 76.0)}
    assert seen(harvester, 13) == {"a": (3.0, 6.0, 57.0)}  # to ask changes nothing
    harvester.handle(joined_as("k80", 14, "k1"), left(14, "v1", "v2"))
    assert seen(harvester, 16) == {"a": (6.0, 10.0, 84.0)}
    harvester.handle(TaskMeasured(time_s=18, task="a", curves={"k80": curve(1.0)}))
    harvester.handle(TaskPaused(time_s=20, task="a"))
    harvester.handle(TaskResumed(time_s=30, task="a"))
    assert seen(harvester, 30) == {"a": (20.0, 14.0, 94.0)}


def test_what_a_task_had_is_the_same_however_often_the_run_was_restarted() -> None:
    through, broken = core(objective=looking()), core(objective=looking())
    rng = np.random.default_rng(3)
    for harvester in (through, broken):
        harvester.handle(joined_as("v100", 0, "v1", "v2", "v3"), submitted(0, spec("a", largest=3)))
    for time_s in np.cumsum(rng.uniform(0.0, 10.0, 20)).tolist():
        again = core(objective=looking())
        again.restore(wire.decode(wire.encode(broken.snapshot), type(broken.snapshot)))
        broken = again
        event = (left if "v2" in through.pool else joined)(time_s, "v2")
        assert through.handle(event) == broken.handle(event)
    assert broken.snapshot == through.snapshot
    assert seen(through, 500.0) == seen(broken, 500.0)
