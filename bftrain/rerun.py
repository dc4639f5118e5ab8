"""Rerun: drive a Harvester with the events of a journal and compare its decisions with the recorded ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from bftrain.assembly import build_harvester, find_solver, solver_of
from bftrain.config import Settings
from bftrain.deciding.harvester import Harvester
from bftrain.deciding.objectives import throughput
from bftrain.errors import BadInput, BftrainError, described
from bftrain.journal import Journal, JournalStep, StoredSnapshot, damage_remedy
from bftrain.parts import resolve_admission
from bftrain.ports import Availability, NotingAdmission, Solver, solver_capabilities
from bftrain.values.actions import Action
from bftrain.values.decision import Decision
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A step whose decision differs from the recorded decision."""

    step: int
    recorded: Decision
    decided: Decision


class RerunStep(msgspec.Struct, frozen=True, kw_only=True):
    """A repeated step: the actions that its events required immediately, and the new decision ``decided``."""

    step: JournalStep
    at_once: tuple[Action, ...]
    decided: Decision | None

    @property
    def difference(self) -> Difference | None:
        """The difference from the recorded decision, or ``None``."""
        recorded, decided = self.step.decision, self.decided
        if recorded is None or decided is None or decided.same_as(recorded):
            return None
        return Difference(step=self.step.number, recorded=recorded, decided=decided)


class RememberingSolver:
    """A solver that repeats a recorded solution if a limit or failure stopped it, or if it depends on earlier ones.

    Results under a deadline depend on the machine's speed, so only the recorded one is reproducible.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self.name = solver.name
        self.capabilities = solver_capabilities(solver)
        self.recorded: Decision | None = None

    def available(self) -> Availability:
        """Return the availability of the wrapped solver."""
        return self._solver.available()

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        """Solve, or repeat the recorded solution."""
        recorded = self.recorded
        solved = recorded is None or recorded.termination in {Termination.OPTIMAL, Termination.HEURISTIC}
        if recorded is None or (solved and not self.capabilities.stateful):
            return self._solver.solve(table, limits)
        own = not recorded.fallback  # otherwise the recorded sizes are not this solver's
        return Solution(
            sizes=recorded.sizes if own else {},
            value=recorded.value if own else None,
            bound=recorded.bound,
            termination=recorded.termination,
            quality=recorded.quality if own else Quality.NONE,
            solver=recorded.solver,
            solver_words=recorded.solver_words,
            kinds=recorded.kinds if own else {},
        )


class Rerun:
    """Drives a Harvester with a journal's settings through the journal's steps.

    Without ``decide_again`` it follows the recorded decisions, which requires neither solver nor objective.
    """

    def __init__(self, journal: Journal, *, decide_again: bool = True) -> None:
        self._journal = journal
        self._begin = _deciding_harvester if decide_again else _following_harvester
        self._restarts = {stored.step: stored for stored in journal.restart_snapshots()}
        self._solver, self.harvester = self._begin(journal.settings)

    def differences(self) -> Iterator[Difference]:
        """Repeat all steps; yield every decision that differs from the recorded one."""
        return (again.difference for again in self.steps() if again.difference is not None)

    def steps(self) -> Iterator[RerunStep]:
        """Repeat all steps; yield each once the harvester has processed it."""
        first = self._journal.first
        if first:
            self._continue_from(self._journal.snapshot_at_first())
        self._change_settings(first)
        for step in self._journal.steps():
            with readable_errors(self._journal.path, step):
                at_once, decided = self.harvester.absorb(*step.events), step.decision
                if step.decision is not None and self._solver is None:
                    self.harvester.follow(step.decision)
                elif step.decision is not None and self._solver is not None:
                    self._solver.recorded = step.decision
                    decided = self.harvester.decide(step.decision.time_s)
                    self._solver.recorded = None
            yield RerunStep(step=step, at_once=at_once, decided=decided)
            self._change_settings(step.number)

    def _change_settings(self, after: int) -> None:
        stored = self._restarts.get(after)
        if stored is not None:
            self._continue_from(stored)

    def _continue_from(self, stored: StoredSnapshot) -> None:
        self._solver, self.harvester = self._begin(stored.settings)
        self.harvester.restore(stored.snapshot)


@contextmanager
def readable_errors(path: Path, step: JournalStep) -> Iterator[None]:
    """Raise a readable error for a step that contradicts the previous steps."""
    try:
        yield
    except BftrainError:
        raise
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError) as error:
        what = f"does not follow from the steps before: {described(error)}"
        raise BadInput(what, where=f"{path}: step {step.number}", fix=damage_remedy(path)) from error


def _deciding_harvester(settings: Settings) -> tuple[RememberingSolver | None, Harvester]:
    solver = RememberingSolver(solver_of(settings))
    return solver, build_harvester(settings, solver=solver)


def _following_harvester(settings: Settings) -> tuple[RememberingSolver | None, Harvester]:
    """Return a Harvester that only follows; an admission with state is kept up to date.

    If that admission is no longer available, its state is skipped; a run that needs it raises the error itself.
    """
    admission = None
    with suppress(BftrainError):
        admission = resolve_admission(settings.admission, settings.max_tasks, settings.entities)
    stateful = admission if isinstance(admission, NotingAdmission) else None
    return None, Harvester(
        solver=find_solver("greedy"),  # never asked
        objective=throughput,
        admission=stateful,
        turn_s=settings.turn_s,
        max_failures=settings.max_failures,
    )


def restore(journal: Journal) -> Harvester:
    """Return a Harvester in the final state of the journal, ready to continue."""
    again = Rerun(journal)
    first = next(again.differences(), None)
    if first is not None:
        what = f"leads to a decision at step {first.step} other than the recorded one"
        fix = "continue with the version of bftrain that wrote it, or start a new journal"
        raise BadInput(what, where=str(journal.path), fix=fix)
    return again.harvester


def recover(journal: Journal, settings: Settings) -> Harvester:
    """Return a Harvester in the final state of the journal, by following the recorded decisions.

    It continues with ``settings``; the journal records a change of settings. For live runs: a restart must
    not wait for solvers, and a later version may continue the journal of an earlier one.
    """
    stored = journal.latest_snapshot()
    before = journal.settings if stored is None else stored.settings
    _, follower = _following_harvester(before)
    if stored is not None:
        follower.restore(stored.snapshot)
    for step in journal.steps(after=stored.step if stored else 0):
        with readable_errors(journal.path, step):
            follower.absorb(*step.events)
            if step.decision is not None:
                follower.follow(step.decision)
    harvester = build_harvester(settings)
    harvester.restore(follower.snapshot)
    if settings != before:
        journal.keep(settings, harvester.snapshot)
    return harvester
