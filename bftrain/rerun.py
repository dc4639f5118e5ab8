"""Rerun: drive a Harvester through the events of a journal and compare what it decides with what was decided."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from bftrain.assembly import build_harvester, find_solver
from bftrain.deciding.harvester import Harvester
from bftrain.errors import BadInput
from bftrain.journal import Journal
from bftrain.ports import Availability, Solver
from bftrain.values.decision import Decision
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A step whose decision came out otherwise than recorded."""

    step: int
    recorded: Decision
    decided: Decision


class Remembering:
    """A solver that solves anew what was solved to the end, and repeats what a limit or a failure had cut short.

    Where a deadline strikes depends on the machine's mood, so only the recorded answer can be the same again.
    """

    def __init__(self, solver: Solver) -> None:
        self._solver = solver
        self.name = solver.name
        self.couples = getattr(solver, "couples", False)
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
        )


class Rerun:
    """Takes a Harvester with a journal's settings through the journal's steps."""

    def __init__(self, journal: Journal) -> None:
        settings = journal.settings
        self._journal = journal
        self._solver = Remembering(find_solver(settings.solver))
        self.harvester = build_harvester(settings, solver=self._solver)

    def differences(self) -> Iterator[Difference]:
        """Go through all steps; gives every one that is decided otherwise than recorded."""
        for step in self._journal.steps():
            self.harvester.absorb(*step.events)
            if step.decision is None:
                continue
            self._solver.recorded = step.decision
            decided = self.harvester.decide(step.decision.time_s)
            if not decided.same_as(step.decision):
                yield Difference(step=step.number, recorded=step.decision, decided=decided)
        self._solver.recorded = None


def restore(journal: Journal) -> Harvester:
    """Give a Harvester in the state in which the journal ends, ready to go on."""
    again = Rerun(journal)
    first = next(again.differences(), None)
    if first is not None:
        raise BadInput(
            f"leads to another decision at step {first.step} than was recorded",
            where=str(journal.path),
            fix="go on with the version of bftrain that wrote it, or begin a new journal",
        )
    return again.harvester
