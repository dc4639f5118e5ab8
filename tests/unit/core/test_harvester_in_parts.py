"""The harvester asked in parts: a question, an answer, a decision; events in between; and where it stands."""

from __future__ import annotations

from typing import Any

import pytest

from bftrain import (
    BadInput,
    Cause,
    Decision,
    Harvester,
    Limits,
    Plan,
    Quality,
    Solution,
    Start,
    Stop,
    TaskPaused,
    TaskResumed,
    Termination,
    ValueTable,
)
from bftrain.values import wire
from tests.helpers.named_parts import GREEDY, THROUGHPUT
from tests.unit.core import parts
from tests.unit.core.samples import joined, left, make, nodes, spec, submitted


def harvester(*script: parts.Answer, **more: Any) -> Harvester:  # noqa: ANN401 - as a Harvester takes
    return Harvester(solver=parts.Scripted(*(script or (parts.best,))), objective=THROUGHPUT, **more)


def ready(*script: parts.Answer, **more: Any) -> Harvester:  # noqa: ANN401 - as above
    """Return a harvester with nodes n1 to n6 and the tasks a and b, which has decided nothing yet."""
    made = harvester(*script, **more)
    made.absorb(joined(0, *nodes(1, 6)), submitted(0, spec("a", 2, 4)), submitted(0, spec("b", 1, 4)))
    return made


def test_a_question_and_its_answer_are_the_decision() -> None:
    asked, at_one_go = ready(), ready()
    question = asked.ask(3)
    assert asked.plan == Plan(holdings={}), "asking changes nothing"
    decision = asked.finish_decision(question, asked.answer(question))
    assert decision.same_as(at_one_go.decide(3))
    assert asked.snapshot == at_one_go.snapshot


def test_an_answer_to_an_outdated_question_is_refused_and_changes_nothing() -> None:
    core = ready()
    question = core.ask(3)
    choice = core.answer(question)
    assert not core.outdated(question)
    core.absorb(left(4, "n1"))
    assert core.outdated(question)
    before = core.snapshot
    with pytest.raises(BadInput, match="events were processed since this question"):
        core.finish_decision(question, choice)
    assert core.snapshot == before
    assert core.decide(4).pool == 5


def test_who_is_in_a_hurry_gets_the_fallback_and_a_reason() -> None:
    core = ready(fallback=GREEDY)
    question = core.ask(1)
    decision = core.finish_decision(question, core.answer(question, hurry="events came faster"))
    assert decision.fallback == "scripted: events came faster; sizes of greedy taken"
    assert (decision.termination, decision.quality) == (Termination.FAILED, Quality.FEASIBLE)
    assert sum(core.plan.sizes.values()) == 6
    alone = ready()
    question = alone.ask(1)
    assert alone.finish_decision(question, alone.answer(question, hurry="late")).fallback.endswith(
        "sizes stay as they were"
    )


def test_building_the_table_counts_to_the_deadline_of_the_solver() -> None:
    given: list[float] = []

    class Noting(parts.Scripted):
        def solve(self, table: ValueTable, limits: Limits) -> Solution:
            given.append(limits.deadline_s)
            return super().solve(table, limits)

    clock = iter([0.0, 3.0, 3.0, 20.0])
    core = Harvester(
        solver=Noting(parts.best), objective=THROUGHPUT, limits=Limits(deadline_s=10.0), clock=lambda: next(clock)
    )
    core.handle(joined(0, *nodes(1, 3)), submitted(0, spec("a", 2, 4)))
    core.handle(joined(1, "n4"))
    assert given == [7.0, 1e-6]


def test_an_unknown_name_is_noted_once_however_often_it_was_asked() -> None:
    core = ready(admission=parts.Fickle(3))
    core.answer(core.ask(1))
    core.answer(core.ask(1))
    notes = core.decide(1).notes
    assert len(notes) == len(set(notes))


def test_a_paused_task_gives_up_its_nodes_and_does_not_compete() -> None:
    core = ready()
    core.decide(0)
    held = core.plan.holdings["a"]
    assert core.absorb(TaskPaused(time_s=1, task="a")) == (Stop(task="a", nodes=held, cause=Cause.PAUSED),)
    decision = core.decide(1)
    assert set(decision.sizes) == {"b"}
    assert core.unfinished == ("a", "b")


def test_a_resumed_task_has_its_old_place_in_the_queue() -> None:
    core = harvester()
    core.absorb(joined(0, "n1"), submitted(0, spec("a", 1, 1)), submitted(0, spec("b", 1, 1)))
    core.decide(0)
    core.handle(TaskPaused(time_s=1, task="a"))
    assert core.plan.sizes == {"b": 1}
    core.handle(TaskPaused(time_s=2, task="a"))  # once more is no harm
    assert core.handle(TaskResumed(time_s=3, task="a"), TaskPaused(time_s=3, task="b")) == (
        Stop(task="b", nodes=("n1",), cause=Cause.PAUSED),
        Start(task="a", nodes=("n1",)),
    )
    assert core.ask(3).admitted == ("a",)


@pytest.mark.parametrize("kind", [TaskPaused, TaskResumed])
def test_an_unknown_task_cannot_be_paused_or_resumed(kind: type) -> None:
    core = ready()
    assert core.absorb(kind(time_s=1, task="x")) == ()
    assert "task 'x' is unknown or over" in core.decide(1).notes


def test_where_it_stands_has_a_json_form_and_another_goes_on_from_there() -> None:
    core = ready()
    core.decide(0)
    core.absorb(left(5, "n1", "n9"), TaskPaused(time_s=5, task="b"))
    text = wire.encode(core.snapshot)
    other = harvester()
    other.restore(wire.decode(text, type(core.snapshot)))
    assert other.snapshot == core.snapshot
    assert (other.plan, other.pool, other.time_s, other.owed) == (core.plan, core.pool, core.time_s, core.owed)
    core.absorb(joined(6, "n1", "n7"))
    other.absorb(joined(6, "n1", "n7"))
    assert other.decide(6).same_as(core.decide(6))


def test_a_harvester_to_which_nothing_happened_stands_nowhere() -> None:
    core = harvester()
    assert core.snapshot.time_s is None
    other = harvester()
    other.restore(wire.decode(wire.encode(core.snapshot), type(core.snapshot)))
    other.absorb(joined(-5, "n1"))
    assert other.pool == {"n1"}


def test_what_was_decided_can_be_followed_without_a_solver() -> None:
    core = ready()
    decision = core.decide(2)
    other = ready(parts.raises)
    other.follow(decision)
    assert other.snapshot == core.snapshot


@pytest.mark.parametrize(
    "actions",
    [
        [{"action": "start", "task": "x", "nodes": ["n1"]}],
        [{"action": "start", "task": "a", "nodes": ["n9"]}],
        [{"action": "stop", "task": "a", "nodes": ["n1"]}],
        [{"action": "shrink", "task": "x", "nodes": ["n1"]}],
        [{"action": "release", "nodes": ["n1"]}],
    ],
)
def test_what_does_not_follow_from_the_events_is_refused(actions: list[dict[str, Any]]) -> None:
    recorded = wire.plain(make(Decision)) | {"actions": actions}
    with pytest.raises(BadInput, match="decision: does not follow from the events before"):
        ready().follow(wire.convert(recorded, Decision))
