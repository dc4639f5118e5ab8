"""Rerun: drive a Harvester through the events of a journal and compare what it decides with what was decided."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

import msgspec

from bftrain.assembly import build_harvester, find_solver
from bftrain.config import Settings
from bftrain.deciding.allocation_state import HarvesterSnapshot
from bftrain.deciding.harvester import Harvester
from bftrain.deciding.objectives import throughput
from bftrain.errors import BadInput, BftrainError, described
from bftrain.journal import Journal
from bftrain.journal_steps import JournalStep, repair_of
from bftrain.parts import resolve_admission
from bftrain.ports import Availability, NotingAdmission, Solver, solver_capabilities
from bftrain.values import wire
from bftrain.values.actions import Action
from bftrain.values.decision import Decision
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A step whose decision came out otherwise than recorded."""

    step: int
    recorded: Decision
    decided: Decision


class RerunStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step gone through again: what its events demanded at once, and what was ``decided`` now."""

    step: JournalStep
    at_once: tuple[Action, ...]
    decided: Decision | None

    @property
    def difference(self) -> Difference | None:
        """Give what came out otherwise than recorded."""
        recorded, decided = self.step.decision, self.decided
        if recorded is None or decided is None or decided.same_as(recorded):
            return None
        return Difference(step=self.step.number, recorded=recorded, decided=decided)


class RememberingSolver:
    """A solver that solves again what was solved to the end, and repeats what a limit or a failure had cut short.

    Where a deadline strikes depends on the machine's mood, so only the recorded answer can be the same again.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self.name = solver.name
        self.capabilities = solver_capabilities(solver)
        self.recorded: Decision | None = None

    def available(self) -> Availability:
        """Say what the solver says."""
        return self._solver.available()

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        """Solve, or repeat."""
        recorded = self.recorded
        if recorded is None or recorded.termination in {Termination.OPTIMAL, Termination.HEURISTIC}:
            return self._solver.solve(table, limits)
        own = not recorded.fallback  # else its own sizes, if it had any, were not the ones taken
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
    """Takes a Harvester with a journal's settings through the journal's steps.

    Without ``decide_again`` it follows the recorded decisions, for which it needs neither solver nor objective.
    """

    def __init__(self, journal: Journal, *, decide_again: bool = True) -> None:
        self._journal = journal
        self._begin = _as_it_was if decide_again else _follower
        self._restarts = {stood.step: stood for stood in journal.restart_snapshots()}
        # What is decided again must lead from each part of the journal to where the next one begins
        self._cuts = {part.last for part in journal.parts if part.last > journal.first} if decide_again else set()
        self._solver, self.harvester = self._begin(journal.settings)

    def differences(self) -> Iterator[Difference]:
        """Go through all steps; gives every one that is decided otherwise than recorded."""
        return (again.difference for again in self.steps() if again.difference is not None)

    def steps(self) -> Iterator[RerunStep]:
        """Go through all steps; each is given when the harvester has gone through it."""
        first = self._journal.first
        if first:
            stood = self._journal.snapshot_at(first)
            self._solver, self.harvester = self._begin(stood.settings)
            self.harvester.restore(stood.snapshot)
        self._change_settings(first)
        for step in self._journal.steps():
            with following(self._journal.path, step):
                at_once, decided = self.harvester.absorb(*step.events), step.decision
                if step.decision is not None and self._solver is None:
                    self.harvester.follow(step.decision)
                elif step.decision is not None and self._solver is not None:
                    self._solver.recorded = step.decision
                    decided = self.harvester.decide(step.decision.time_s)
                    self._solver.recorded = None
            yield RerunStep(step=step, at_once=at_once, decided=decided)
            if step.number in self._cuts:
                self._compare_with_next_part(step.number)
            self._change_settings(step.number)

    def _compare_with_next_part(self, cut: int) -> None:
        if wire.encode(self.harvester.snapshot) != wire.encode(self._journal.snapshot_at(cut).snapshot):
            what = f"the part after step {cut} does not begin where the one before it ends"
            raise BadInput(what, where=str(self._journal.path), fix=repair_of(self._journal.path))

    def _change_settings(self, after: int) -> None:
        stood = self._restarts.get(after)
        if stood is not None:
            self._solver, self.harvester = self._begin(stood.settings)
            self.harvester.restore(stood.snapshot)


@contextmanager
def following(path: Path, step: JournalStep) -> Iterator[None]:
    """Refuse a step in words that cannot have come after those before it."""
    try:
        yield
    except BftrainError:
        raise
    except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError) as error:
        what = f"does not follow from the steps before it: {described(error)}"
        raise BadInput(what, where=f"{path}: step {step.number}", fix=repair_of(path)) from error


def _as_it_was(settings: Settings) -> tuple[RememberingSolver | None, Harvester]:
    solver = RememberingSolver(find_solver(settings.solver))
    return solver, build_harvester(settings, solver=solver)


def _follower(settings: Settings) -> tuple[RememberingSolver | None, Harvester]:
    """Give a Harvester that only follows; an admission that keeps books goes on keeping them meanwhile.

    The state of one that cannot be made any more is unreadable; a run that needs it says so by itself.
    """
    admission = None
    with suppress(BftrainError):
        admission = resolve_admission(settings.admission, settings.max_tasks, settings.entities)
    books = admission if isinstance(admission, NotingAdmission) else None
    return None, Harvester(
        solver=_RecordedSolver(), objective=throughput, admission=books, max_failures=settings.max_failures
    )


def restore(journal: Journal) -> Harvester:
    """Give a Harvester in the state in which the journal ends, ready to go on."""
    again = Rerun(journal)
    first = next(again.differences(), None)
    if first is not None:
        what = f"leads to another decision at step {first.step} than was recorded"
        fix = "go on with the version of bftrain that wrote it, or begin a new journal"
        raise BadInput(what, where=str(journal.path), fix=fix)
    return again.harvester


def followed(
    steps: Iterable[JournalStep],
    settings: Settings,
    changes: Mapping[int, tuple[Settings, HarvesterSnapshot]],
    path: Path,
    done: int = 0,
) -> Iterator[tuple[JournalStep | None, Harvester]]:
    """Return each step that follows from those before, with the state after it; none where settings change after one.

    ``BadInput`` where one does not follow. The steps up to ``done`` are not there; ``changes`` has the state after it.
    """
    _, follower = _follower(settings)
    for step in chain((None,), steps):
        if step is not None:
            with following(path, step):
                follower.absorb(*step.events)
                if step.decision is not None:
                    follower.follow(step.decision)
            done = step.number
            yield step, follower
        if done in changes:
            now, snapshot = changes[done]
            _, follower = _follower(now)
            follower.restore(snapshot)
            yield None, follower


def recover(journal: Journal, settings: Settings) -> Harvester:
    """Give a Harvester in the state in which the journal ends, by following the recorded decisions.

    It goes on with ``settings``; if they are others than before, the journal says so from here on. For a live run: it
    must not wait for solvers, and a later version may go on where an earlier one ended.
    """
    stood = journal.stood_last()
    before = journal.settings if stood is None else stood.settings
    _, follower = _follower(before)
    if stood is not None:
        follower.restore(stood.snapshot)
    for step in journal.steps(after=stood.step if stood else 0):
        with following(journal.path, step):
            follower.absorb(*step.events)
            if step.decision is not None:
                follower.follow(step.decision)
    harvester = build_harvester(settings)
    harvester.restore(follower.snapshot)
    if settings != before:
        journal.keep(settings, harvester.snapshot)
    return harvester


class _RecordedSolver:
    name = "recorded"

    def available(self) -> Availability:
        """Say that it is not."""
        return Availability(ok=False, reason="it only stands in")

    def solve(self, table: ValueTable, limits: Limits) -> Solution:  # noqa: ARG002 - the port's signature
        """Fail."""
        return Solution.failed(self.name, "it only stands in")
