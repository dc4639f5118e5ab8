"""Going through a journal again: the same decisions, even where the solver failed; and changes are found."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bftrain import (
    BadInput,
    Decision,
    Event,
    Harvester,
    Journal,
    Quality,
    Rerun,
    Settings,
    Termination,
    UnknownName,
    build_harvester,
)
from bftrain.rerun import restore
from bftrain.values import wire
from tests.unit.core import parts, plugins
from tests.unit.core.plugins import HERE, register
from tests.unit.core.samples import joined, left, nodes, spec, submitted

MOMENTS: list[tuple[Event, ...]] = [
    (joined(0, *nodes(1, 6)), submitted(0, spec("a", 2, 4)), submitted(0, spec("b", 1, 3, grow_cost_s=9.0))),
    (left(5, "n1", "n2"),),
    (joined(5, *nodes(7, 9)),),
    (submitted(8, spec("c", 1, 8)),),
    (left(9, *nodes(3, 8)),),
]


def record(journal: Journal, core: Harvester, moments: list[tuple[Event, ...]]) -> None:
    for moment in moments:
        core.absorb(*moment)
        journal.append(moment, core.decide(moment[-1].time_s))


def recorded(path: Path, settings: Settings | None = None, **more: Any) -> Journal:  # noqa: ANN401 - replacing parts
    settings = settings or Settings()
    journal = Journal.create(path, settings)
    record(journal, build_harvester(settings, **more), MOMENTS)
    return journal


@pytest.mark.parametrize("solver", ["exact", "greedy", "equal-share", "highs"])
def test_the_same_decisions_come_out_again(tmp_path: Path, solver: str) -> None:
    with recorded(tmp_path / "j", Settings(solver=solver)) as journal:
        assert list(Rerun(journal).differences()) == []


@pytest.mark.parametrize("answer", [*parts.UNUSABLE, parts.late_with_sizes])
@pytest.mark.parametrize("fallback", ["", "greedy"])
def test_what_a_limit_or_a_failure_cut_short_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: parts.Answer, fallback: str
) -> None:
    """The solver is late or fails every time, and would decide otherwise now: what was decided counts."""
    struck = parts.Scripted(answer, name="dice")
    register(monkeypatch, ("solver", "dice", f"{HERE}:dice"))
    with recorded(tmp_path / "j", Settings(solver="dice", fallback=fallback), solver=struck) as journal:
        asked = len(plugins.dice.asked)
        assert list(Rerun(journal).differences()) == []
        assert len(plugins.dice.asked) == asked


def test_late_with_sizes_that_the_fallback_beat_is_repeated_with_bound_and_quality(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(given: Any) -> Any:  # noqa: ANN401 - a table and a solution
        return make_late(given)

    register(monkeypatch, ("solver", "dice", f"{HERE}:dice"))
    settings = Settings(solver="dice", fallback="greedy")
    with recorded(tmp_path / "j", settings, solver=parts.Scripted(late, name="dice")) as journal:
        first = next(journal.steps()).decision
        assert first is not None
        assert (first.termination, first.quality, first.bound) == ("time_limit", "feasible", 1e9)
        assert first.fallback == "scripted: late; sizes of greedy taken"
        assert list(Rerun(journal).differences()) == []


def make_late(given: Any) -> Any:  # noqa: ANN401 - a table and a solution
    """Answer late, with a poor choice and a bound."""
    from bftrain import Solution  # noqa: PLC0415 - only here

    return Solution(
        sizes={given.problem.tasks[0].name: 0},
        value=0.0,
        bound=1e9,
        termination=Termination.TIME_LIMIT,
        quality=Quality.FEASIBLE,
        solver="scripted",
        solver_words="late",
    )


def tamper(path: Path, change: Callable[[dict[str, Any]], None], step: int = 2) -> None:
    connection = sqlite3.connect(path)
    query = "SELECT number, body FROM entry WHERE step = ? AND kind = 'decision'"
    number, body = connection.execute(query, (step,)).fetchone()
    decision = wire.plain(wire.decode(body, Decision))
    change(decision)
    text = wire.encode(wire.convert(decision, Decision)).decode()
    connection.execute("UPDATE entry SET body = ? WHERE number = ?", (text, number))
    connection.commit()
    connection.close()


CHANGES: dict[str, Callable[[dict[str, Any]], None]] = {
    "sizes": lambda decision: decision["sizes"].update(a=0),
    "value": lambda decision: decision.update(value=decision["value"] + 1e-9),
    "actions": lambda decision: decision.update(actions=[]),
    "at_once": lambda decision: decision.update(at_once=[]),
    "notes": lambda decision: decision.update(notes=["nothing to see"]),
    "pool": lambda decision: decision.update(pool=decision["pool"] + 1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_decision_that_was_tampered_with_is_found(tmp_path: Path, change: str) -> None:
    path = tmp_path / "j"
    recorded(path).close()
    step = 1 if change == "actions" else 2  # where there are some
    tamper(path, CHANGES[change], step)
    with Journal.open(path) as journal:
        found = list(Rerun(journal).differences())
        assert [difference.step for difference in found] == [step]
        assert not found[0].decided.same_as(found[0].recorded)
        with pytest.raises(BadInput, match=f"leads to a decision at step {step} other than the recorded one"):
            restore(journal)


def test_how_long_a_solver_took_makes_no_difference(tmp_path: Path) -> None:
    path = tmp_path / "j"
    recorded(path).close()
    tamper(path, lambda decision: decision.update(solve_s=99.0, solver_words="slow today"))
    with Journal.open(path) as journal:
        assert list(Rerun(journal).differences()) == []


def test_an_event_that_was_tampered_with_shows_in_every_decision_after_it(tmp_path: Path) -> None:
    path = tmp_path / "j"
    recorded(path).close()
    connection = sqlite3.connect(path)
    connection.execute("""UPDATE entry SET body = replace(body, '"n2"', '"n9"') WHERE step = 2 AND kind = 'event'""")
    connection.commit()
    connection.close()
    with Journal.open(path) as journal:
        assert next(difference.step for difference in Rerun(journal).differences()) == 2


@pytest.mark.parametrize("cut", range(len(MOMENTS) + 1))
def test_who_goes_on_after_a_restart_decides_as_who_never_stopped(tmp_path: Path, cut: int) -> None:
    straight = recorded(tmp_path / "straight")
    path = tmp_path / "interrupted"
    with Journal.create(path, Settings()) as journal:
        record(journal, build_harvester(Settings()), MOMENTS[:cut])
    with Journal.open(path) as journal:
        record(journal, restore(journal), MOMENTS[cut:])
        for one, other in zip(straight.steps(), journal.steps(), strict=True):
            assert one.events == other.events
            assert one.decision is not None
            assert other.decision is not None
            assert one.decision.same_as(other.decision)
    straight.close()


def test_a_step_without_a_decision_is_owed_one(tmp_path: Path) -> None:
    whole = build_harvester(Settings())
    with Journal.create(tmp_path / "j", Settings()) as journal:
        record(journal, whole, MOMENTS[:1])
        journal.append_events(MOMENTS[1])
        core = restore(journal)
        assert core.owed == whole.absorb(*MOMENTS[1])
        assert core.decide(core.time_s).same_as(whole.decide(whole.time_s))


def test_a_restored_harvester_solves_by_itself_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, ("solver", "dice", f"{HERE}:dice"))
    struck = parts.Scripted(parts.late_with_nothing, name="dice")
    with recorded(tmp_path / "j", Settings(solver="dice"), solver=struck) as journal:
        core = restore(journal)
    asked = len(plugins.dice.asked)
    core.decide(10)
    assert len(plugins.dice.asked) == asked + 1


def test_a_solver_that_is_gone_is_named(tmp_path: Path) -> None:
    with (
        recorded(tmp_path / "j", Settings(solver="of-yesterday"), solver=parts.Scripted(parts.best)) as journal,
        pytest.raises(UnknownName, match="no solver is called 'of-yesterday'"),
    ):
        Rerun(journal)
