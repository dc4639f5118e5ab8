"""With any events and any solver the plan keeps its invariants; a naive model follows every action."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from bftrain import Harvester, NodesLeft, Solver, registry
from bftrain.deciding.allocation_state import HarvesterSnapshot
from bftrain.values import wire
from tests.helpers.named_parts import EQUAL_SHARE, EXACT, GREEDY, THROUGHPUT
from tests.property.storms import Model, Moment, process_steps, storms
from tests.unit.core import parts


def in_order(snapshot: HarvesterSnapshot) -> bytes:
    """Return a snapshot with its free nodes sorted: placements define their sequence."""
    free = sorted((replace(group, nodes=tuple(sorted(group.nodes))) for group in snapshot.free), key=lambda g: g.number)
    return wire.encode(replace(snapshot, free=tuple(free)))


FIRST_COME: Any = registry.load("admission", "first-come")
HONEST: list[Solver] = [EXACT, GREEDY, EQUAL_SHARE, parts.Scripted(parts.best), parts.Scripted(parts.nothing)]


@pytest.mark.parametrize("solver", HONEST, ids=["exact", "greedy", "equal-share", "best", "nothing"])
@settings(max_examples=40)
@given(storm=storms(), max_tasks=st.integers(1, 6), max_failures=st.integers(1, 3))
def test_with_honest_solvers(solver: Solver, storm: list[Moment], max_tasks: int, max_failures: int) -> None:
    harvester = Harvester(
        solver=solver, objective=THROUGHPUT, admission=FIRST_COME(max_tasks), max_failures=max_failures
    )
    for decision in process_steps(harvester, storm, Model(max_failures)):
        assert decision.fallback == ""
        assert len(decision.sizes) <= max_tasks


@settings(max_examples=60)
@given(storm=storms(), seed=st.integers(0, 999))
def test_with_dice_for_a_solver_a_fickle_admission_and_a_scattered_placement(storm: list[Moment], seed: int) -> None:
    harvester = Harvester(
        solver=parts.Scripted(parts.dice(seed)),
        objective=THROUGHPUT,
        admission=parts.Fickle(seed),
        placement=parts.Scattered(seed),
    )
    process_steps(harvester, storm, Model(max_failures=3))


@pytest.mark.parametrize("placement", registry.BUILT_IN["placement"])
@settings(max_examples=40)
@given(storm=storms(), seed=st.integers(0, 999))
def test_with_dice_for_a_solver_and_any_placement(placement: str, storm: list[Moment], seed: int) -> None:
    given_placement = registry.load("placement", placement)
    harvester = Harvester(solver=parts.Scripted(parts.dice(seed)), objective=THROUGHPUT, placement=given_placement)
    process_steps(harvester, storm, Model(max_failures=3))


answers = st.sampled_from(
    [*parts.UNUSABLE, parts.one_too_many, parts.late_with_sizes, parts.best, parts.split, parts.nothing]
)


@settings(max_examples=75)
@given(
    storm=storms(),
    script=st.lists(answers, min_size=1, max_size=5),
    second=st.none() | st.just(GREEDY) | st.lists(answers, min_size=1, max_size=3),
)
def test_with_solvers_that_fail_in_every_way(
    storm: list[Moment], script: list[parts.Answer], second: Solver | list[parts.Answer] | None
) -> None:
    fallback = parts.Scripted(*second, name="second") if isinstance(second, list) else second
    harvester = Harvester(solver=parts.Scripted(*script), fallback=fallback, objective=THROUGHPUT)
    process_steps(harvester, storm, Model(max_failures=3))


@settings(max_examples=30)
@given(storms())
def test_the_same_events_give_the_same_decisions_to_the_last_byte(storm: list[Moment]) -> None:
    runs = []
    for _ in range(2):
        decisions = process_steps(Harvester(solver=EXACT, objective=THROUGHPUT, fallback=GREEDY), storm)
        runs.append([wire.plain(decision) | {"solve_s": 0.0} for decision in decisions])
    assert runs[0] == runs[1]


@settings(max_examples=30)
@given(storm=storms())
def test_departures_may_stand_anywhere_among_the_events_of_a_moment(storm: list[Moment]) -> None:
    """Moving departures in front changes nothing, unless nodes of theirs join in the same moment."""
    first, other = (Harvester(solver=EXACT, objective=THROUGHPUT) for _ in range(2))
    for moment in storm:
        leaving = [event for event in moment.events if isinstance(event, NodesLeft)]
        others = [event for event in moment.events if not isinstance(event, NodesLeft)]
        named = {node for event in leaving for node in event.nodes}
        if any(named & set(getattr(event, "nodes", ())) for event in others):
            return
        assert first.handle(*moment.events) == other.handle(*leaving, *others)
        assert first.plan == other.plan


@settings(max_examples=30)
@given(storm=storms(), cut=st.integers(0, 14), max_tasks=st.integers(1, 4))
def test_another_one_goes_on_from_wherever_it_stood(storm: list[Moment], cut: int, max_tasks: int) -> None:
    def fresh() -> Harvester:
        return Harvester(solver=EXACT, objective=THROUGHPUT, admission=FIRST_COME(max_tasks))

    first = fresh()
    for moment in storm[:cut]:
        first.absorb(*moment.events)
        if moment.decided:
            first.decide(moment.events[-1].time_s)
    other = fresh()
    other.restore(wire.decode(wire.encode(first.snapshot), type(first.snapshot)))
    for moment in storm[cut:]:
        assert other.absorb(*moment.events) == first.absorb(*moment.events)
        if moment.decided:
            time_s = moment.events[-1].time_s
            assert other.decide(time_s).same_as(first.decide(time_s))
        assert other.snapshot == first.snapshot


@settings(max_examples=30)
@given(storm=storms(), seed=st.integers(0, 99))
def test_following_its_decisions_leads_to_where_it_stood(storm: list[Moment], seed: int) -> None:
    decider = Harvester(solver=parts.Scripted(parts.dice(seed)), objective=THROUGHPUT, placement=parts.Scattered(seed))
    follower = Harvester(solver=parts.Scripted(parts.raises), objective=THROUGHPUT)
    for moment in storm:
        assert follower.absorb(*moment.events) == decider.absorb(*moment.events)
        if moment.decided:
            follower.follow(decider.decide(moment.events[-1].time_s))
        assert in_order(follower.snapshot) == in_order(decider.snapshot)


@settings(max_examples=30)
@given(storm=storms(), seed=st.integers(0, 99))
def test_events_between_a_question_and_its_answer_never_lead_to_a_wrong_plan(storm: list[Moment], seed: int) -> None:
    """Asking again after each outdated question gives the decision of one that took all events in first."""
    core = Harvester(solver=parts.Scripted(parts.dice(seed)), objective=THROUGHPUT)
    model = Model(max_failures=3)
    question = core.ask(0.0)
    for moment in storm:
        choice = core.answer(question)
        model.absorb(moment.events, core.absorb(*moment.events))
        if core.outdated(question):
            question = core.ask(moment.events[-1].time_s)
            choice = core.answer(question)
        model.decided(core.finish_decision(question, choice))
        assert core.plan == model.plan
        question = core.ask(core.time_s)
