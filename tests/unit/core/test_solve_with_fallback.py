"""Which sizes are taken when a solver is late, fails or lies; and what is recorded of it."""

from __future__ import annotations

import pytest

from bftrain import BadValue, Limits, Quality, Solution, Solver, Termination, ValueTable
from bftrain.deciding.solve_with_fallback import ChosenSizes, ask, choose
from bftrain.errors import BadObjective
from tests.unit.core import parts
from tests.unit.core.parts import Scripted, say
from tests.unit.core.samples import table

INF = float("inf")
LIMITS = Limits(deadline_s=3.0, threads=2)

# two tasks of which one holds a node now; best is (1, 2), worth 29; staying is (1, 0), worth 10
TABLE = table(3, [0.0, 10.0, 12.0], [0.0, 5.0, 19.0], present=[1, 0])


def decided(answer: parts.Answer, fallback: Solver | None = None) -> ChosenSizes:
    return choose(TABLE, LIMITS, Scripted(answer), fallback)


def test_the_solvers_own_sizes_are_taken_if_it_ran_to_its_end() -> None:
    choice = decided(parts.best, Scripted(parts.raises))
    assert (choice.sizes, choice.value, choice.fallback) == ({"t0": 1, "t1": 2}, 29.0, "")
    assert choice.quality is Quality.PROVEN


def test_a_rule_is_taken_at_its_word_even_if_another_would_do_better() -> None:
    second = Scripted(parts.best)
    choice = decided(parts.nothing, second)
    assert (choice.sizes, choice.value, choice.fallback) == ({}, 0.0, "")
    assert second.asked == []


def test_the_value_is_that_of_the_table_not_what_the_solver_claims() -> None:
    assert decided(lambda given: say(given, {"t0": 2, "t1": 1})).value == 17.0


def test_the_solver_gets_the_limits() -> None:
    solver = Scripted(parts.best)
    choose(TABLE, LIMITS, solver, None)
    assert solver.limits == [LIMITS]


def test_late_with_sizes_that_nothing_beats() -> None:
    choice = decided(lambda given: say(given, {"t0": 1, "t1": 1}, Termination.TIME_LIMIT))
    assert (choice.sizes, choice.value, choice.fallback) == ({"t0": 1, "t1": 1}, 15.0, "")
    assert choice.solution.termination is Termination.TIME_LIMIT
    assert choice.quality is Quality.FEASIBLE


def test_late_with_sizes_that_the_fallback_beats() -> None:
    choice = decided(
        lambda given: say(given, {"t0": 1, "t1": 1}, Termination.TIME_LIMIT), Scripted(parts.best, name="second")
    )
    assert (choice.sizes, choice.value) == ({"t0": 1, "t1": 2}, 29.0)
    assert choice.fallback == "scripted: 2 tasks; sizes of scripted taken"
    assert choice.quality is Quality.FEASIBLE


def test_late_with_sizes_that_are_worse_than_staying() -> None:
    choice = decided(lambda given: say(given, {"t0": 0, "t1": 1}, Termination.TIME_LIMIT))
    assert (choice.sizes, choice.value) == ({"t0": 1, "t1": 0}, 10.0)
    assert choice.fallback == "scripted: 2 tasks; sizes stay as they were"


def test_late_with_nothing_and_no_fallback() -> None:
    choice = decided(parts.late_with_nothing)
    assert (choice.sizes, choice.value) == ({"t0": 1, "t1": 0}, 10.0)
    assert choice.fallback == "scripted: still searching; sizes stay as they were"


def test_a_fallback_that_fails_too_is_named_with_its_words() -> None:
    choice = decided(parts.late_with_nothing, Scripted(parts.raises, name="second"))
    assert choice.sizes == {"t0": 1, "t1": 0}
    assert choice.fallback.startswith(
        f"scripted: still searching; second: raised ZeroDivisionError: with 2 tasks, at {parts.__file__}:"
    )
    assert choice.fallback.endswith("; sizes stay as they were")


@pytest.mark.parametrize("answer", parts.UNUSABLE)
def test_what_cannot_be_used_leads_to_the_fallback(answer: parts.Answer) -> None:
    choice = decided(answer, Scripted(parts.best, name="second"))
    assert (choice.sizes, choice.value) == ({"t0": 1, "t1": 2}, 29.0)
    assert choice.fallback.startswith("scripted: ")
    assert choice.fallback.endswith("; sizes of scripted taken")


SAID = {
    parts.raises: "raised ZeroDivisionError: with 2 tasks",
    parts.dies: "raised MemoryError: ",
    parts.oversubscribes: "gave sizes that are not allowed or do not fit into the pool",
    parts.invents_a_task: "gave sizes that are not allowed or do not fit into the pool",
    parts.gives_below_nothing: "raised BadValue: Solution.sizes: must be a mapping from names to whole numbers",
    parts.gives_halves: "raised BadValue: Solution.sizes: must be a mapping from names to whole numbers",
    parts.values_nan: "raised BadValue: Solution.value: must be a finite number, not nan",
    parts.gives_none: "gave a NoneType, not a Solution",
    parts.overwrites_the_table: "raised ValueError: assignment destination is read-only",
    parts.failed: "no licence ?",
}


@pytest.mark.parametrize("answer", SAID)
def test_what_was_wrong_is_said(answer: parts.Answer) -> None:
    solution = ask(Scripted(answer), TABLE, LIMITS)
    assert (solution.termination, solution.quality) == (Termination.FAILED, Quality.NONE)
    assert solution.solver_words.startswith(SAID[answer])


def test_sizes_that_are_worth_no_number_are_refused() -> None:
    class Lost:
        def couple(self, model: object) -> None:
            pass

        def total(self, *_: object) -> float:
            return float("nan")

    odd = ValueTable(problem=TABLE.problem, values=TABLE.values, coupling=Lost())
    solution = ask(Scripted(lambda _: say(TABLE, {"t0": 1})), odd, LIMITS)
    assert (solution.termination, solution.quality) == (Termination.FAILED, Quality.NONE)


def test_an_interruption_is_no_failure_of_the_solver() -> None:
    def interrupted(given: ValueTable) -> Solution:
        raise KeyboardInterrupt(given)

    with pytest.raises(KeyboardInterrupt):
        decided(interrupted)


def test_a_size_that_is_allowed_no_more_becomes_zero_when_sizes_stay() -> None:
    shrunk = table(3, [0.0, -INF, 12.0], [0.0, 5.0, 19.0], present=[1, 2])
    choice = choose(shrunk, LIMITS, Scripted(parts.failed), None)
    assert choice.sizes == {"t0": 0, "t1": 2}
    beyond = table(9, [0.0, 1.0], [0.0, 1.0], present=[5, 1])
    assert choose(beyond, LIMITS, Scripted(parts.failed), None).sizes == {"t0": 0, "t1": 1}


def test_a_table_knows_what_is_allowed_and_what_it_is_worth() -> None:
    assert TABLE.value_of({"t0": 2, "t1": 1}) == 17.0
    assert TABLE.value_of({}) == 0.0
    assert TABLE.value_of({"t0": 3}) == TABLE.value_of({"t0": -1}) == -INF
    assert TABLE.allowed({"t0": 1, "t1": 2})
    assert not TABLE.allowed({"t0": 2, "t1": 2})
    assert not TABLE.allowed({"t9": 0})
    assert not table(9, [0.0, -INF, 1.0]).allowed({"t0": 1})


def test_a_table_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        TABLE.values[0, 0] = 1.0


def test_a_table_has_one_row_per_task() -> None:
    with pytest.raises(BadValue, match=r"ValueTable\.values: has shape \(2, 3\) for 1 tasks"):
        ValueTable(problem=table(3, [0.0]).problem, values=TABLE.values)
    with pytest.raises(BadValue, match=r"ValueTable\.values: has shape \(1,\) for 1 tasks"):
        ValueTable(problem=table(3, [0.0]).problem, values=TABLE.values[0, :1])


def test_a_fault_of_the_metric_is_not_the_solvers_and_stops_the_decision() -> None:
    def faulty(*_: object) -> Solution:
        raise BadObjective("couple() raised KeyError: 3", where="objective 'mine'")

    with pytest.raises(BadObjective, match="objective 'mine': couple"):
        decided(faulty, Scripted(parts.best))
