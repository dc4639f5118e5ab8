"""Which sizes are taken when a solver is late, fails or lies; and what a decision records of it."""

from __future__ import annotations

import pytest

from bftrain import Decision, Limits, Quality, Solution, Solver, Termination, ValueTable, assembly, build_harvester
from bftrain import Settings as HarvesterSettings
from tests.unit.core import parts
from tests.unit.core.parts import Scripted, say
from tests.unit.core.samples import curve, joined, spec, submitted

T0, T1 = spec("t0", 1, 2, curve=curve(10.0, 12.0)), spec("t1", 1, 2, curve=curve(5.0, 19.0))


def decided(answer: parts.Answer, fallback: Solver | None = None) -> Decision:
    """Decide for three nodes, of which t0 has one: best is (1, 2), worth 29 samples/s; staying is (1, 0), worth 10."""
    first = Scripted(lambda table: say(table, {"t0": 1, "t1": 0}), answer, name="first")
    harvester = build_harvester(HarvesterSettings(fallback="", horizon_s=1.0), solver=first, fallback=fallback)
    harvester.handle(joined(0, "n1", "n2", "n3"), submitted(0, T0), submitted(0, T1))
    return harvester.decide(1)


def late(**sizes: int) -> parts.Answer:
    return lambda table: say(table, sizes, Termination.TIME_LIMIT)


@pytest.mark.parametrize(
    ("answer", "sizes", "value", "fallback"),
    [
        (parts.best, (1, 2), 29.0, ""),
        (parts.nothing, (0, 0), 0.0, ""),  # a rule is taken at its word
        (lambda table: say(table, {"t0": 2, "t1": 1}), (2, 1), 17.0, ""),  # the value is that of the table
        (late(t0=1, t1=1), (1, 1), 15.0, ""),
        (late(t0=0, t1=1), (1, 0), 10.0, "sizes stay as they were"),
        (parts.late_with_nothing, (1, 0), 10.0, "still searching; sizes stay as they were"),
    ],
)
def test_without_a_fallback(answer: parts.Answer, sizes: tuple[int, int], value: float, fallback: str) -> None:
    decision = decided(answer)
    assert tuple(decision.sizes.get(name, 0) for name in ("t0", "t1")) == sizes
    assert decision.value == value
    assert decision.fallback.endswith(fallback)
    assert bool(decision.fallback) == bool(fallback)


def test_late_with_sizes_that_the_fallback_beats() -> None:
    decision = decided(late(t0=1, t1=1), Scripted(parts.best, name="second"))
    assert (dict(decision.sizes), decision.value) == ({"t0": 1, "t1": 2}, 29.0)
    assert decision.fallback.endswith("sizes of scripted taken")
    assert decision.quality is Quality.FEASIBLE


def test_late_with_sizes_that_beat_the_fallback() -> None:
    decision = decided(late(t0=1, t1=2), Scripted(late(t0=1, t1=1), name="second"))
    assert (dict(decision.sizes), decision.fallback) == ({"t0": 1, "t1": 2}, "")


def test_a_fallback_that_fails_too_is_named_with_its_words() -> None:
    decision = decided(parts.late_with_nothing, Scripted(parts.raises, name="second"))
    assert dict(decision.sizes) == {"t0": 1, "t1": 0}
    assert "second: raised ZeroDivisionError" in decision.fallback


@pytest.mark.parametrize("answer", parts.UNUSABLE)
def test_what_cannot_be_used_leads_to_the_fallback(answer: parts.Answer) -> None:
    decision = decided(answer, Scripted(parts.best, name="second"))
    assert (dict(decision.sizes), decision.value) == ({"t0": 1, "t1": 2}, 29.0)
    assert decision.fallback.endswith("; sizes of scripted taken")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (parts.raises, "ZeroDivisionError"),
        (parts.oversubscribes, "not allowed"),
        (parts.invents_a_task, "not allowed"),
        (parts.gives_halves, "Solution.sizes"),
        (parts.values_nan, "nan"),
        (parts.gives_none, "NoneType"),
        (parts.overwrites_the_table, "read-only"),
        (parts.failed, "no licence ?"),
    ],
)
def test_solve_reports_what_was_wrong(answer: parts.Answer, words: str) -> None:
    problem = parts_problem()
    solution = assembly.solve(problem, Scripted(answer), limits=Limits(deadline_s=3.0))
    assert (solution.termination, solution.quality) == (Termination.FAILED, Quality.NONE)
    assert words in solution.solver_words


def parts_problem() -> dict[str, object]:
    tasks = [
        {"name": each.name, "max_nodes": 2, "curve": {"nodes": [1, 2], "rate": list(each.curve.rate)}}
        for each in (T0, T1)
    ]
    return {"pool": 3, "horizon_s": 1.0, "tasks": tasks}


def test_an_interruption_is_no_failure_of_the_solver() -> None:
    def interrupted(given: ValueTable) -> Solution:
        raise KeyboardInterrupt(given)

    with pytest.raises(KeyboardInterrupt):
        decided(interrupted)
