"""Conformance tests for third-party admissions, placements and metrics.

In a test of your own::

    from bftrain import conformance

    def test_my_admission():
        conformance.check_admission(MyAdmission)

Those for solvers are in ``bftrain_solvers.conformance``, those for launchers in
``bftrain_elastic.conformance``.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from bftrain.deciding.admission import FirstComeAdmission
from bftrain.deciding.allocation_state import HarvesterSnapshot
from bftrain.deciding.harvester import Harvester
from bftrain.deciding.objectives import throughput
from bftrain.deciding.placement import grouped
from bftrain.errors import BftrainError
from bftrain.parts import measured, resolve_metric
from bftrain.ports import Admission, Availability, ChoosingAdmission, Placement, SolverCapabilities
from bftrain.values import wire
from bftrain.values.curve import SpeedCurve
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskFinished, TaskSubmitted
from bftrain.values.sharing import Entity
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain.values.task import TaskSpec

USERS: Final = {"ann": Entity(weight=2.0, nodes=9), "bob": Entity(tasks=2)}
MAX_TASKS: Final = 5
_STORMS: Final = 20
_MOMENTS: Final = 40


class Nonconformance(AssertionError):
    """A part does not do what its port demands."""


def check_admission(factory: Callable[..., Any], **settings: object) -> None:
    """Put what ``factory(max_tasks, **settings)`` makes through storms of events."""

    def made() -> Admission | ChoosingAdmission:
        found = factory(MAX_TASKS, **settings)
        _insist(isinstance(found, Admission | ChoosingAdmission), "has no name, or neither choose(queue) nor admit")
        _insist(isinstance(found.name, str) and bool(found.name), f"is called {found.name!r}, which is no name")
        checked: Admission | ChoosingAdmission = found
        return checked

    for seed in range(_STORMS):
        one, two = _core(made(), grouped), _core(made(), grouped)
        for number, moment in enumerate(_storm(seed)):
            try:
                for core in (one, two):
                    core.absorb(*moment)
                question, again, other = (core.ask(core.time_s) for core in (one, one, two))
            except BftrainError as error:
                raise Nonconformance(str(error)) from error
            _insist(question == again, "answers otherwise when it is asked again: choose must change nothing")
            same = (question.named, question.problem) == (other.named, other.problem)
            _insist(same, "answers otherwise after the same events: no clock, no dice, no global state")
            unknown = [name for name in question.named if name not in one.unfinished]
            _insist(not unknown, f"names '{unknown[0] if unknown else ''}', which is no unfinished task")
            for core, asked in ((one, question), (two, other)):
                core.finish_decision(asked, core.answer(asked))
            if number == _MOMENTS // 2:  # a restart: from here on the second one has its memory from JSON
                kept = wire.encode(two.snapshot)
                two = _core(made(), grouped)
                two.restore(wire.decode(kept, HarvesterSnapshot))
                _insist(wire.encode(two.snapshot) == kept, "does not restore what it kept as it was")


def check_placement(placement: Placement) -> None:
    """Put a placement through storms of events: it must choose as many nodes as it is asked for, of those to be had."""
    _insist(isinstance(placement, Placement), "has not all that bftrain.ports.Placement asks for")
    for seed in range(_STORMS):
        core = _core(FirstComeAdmission(MAX_TASKS), placement)
        for moment in _storm(seed):
            try:
                core.handle(*moment)
            except BftrainError as error:
                raise Nonconformance(str(error)) from error


def check_metric(metric: Callable[..., object], run: object) -> None:
    """Make sure that a metric measures ``run``, which is what ``bftrain.replay(...)`` gives, or a result of it."""
    result = getattr(run, "result", run)
    name = str(getattr(metric, "name", None) or getattr(metric, "__name__", "metric"))
    try:
        first, second = (measured([resolve_metric(name, metric)], result) for _ in range(2))
    except BftrainError as error:
        raise Nonconformance(str(error)) from error
    _insist(first == second, "measures otherwise when it is asked again")


def _core(admission: Admission | ChoosingAdmission, placement: Placement) -> Harvester:
    return Harvester(
        solver=_Evenly(), objective=throughput, admission=admission, placement=placement, max_failures=2, entities=USERS
    )


class _Evenly:
    """Gives every task its minimum as long as there are nodes, then more to the first."""

    name = "evenly"
    capabilities = SolverCapabilities(node_kinds=True)

    def available(self) -> Availability:
        """Say that it is here."""
        return Availability(ok=True)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:  # noqa: ARG002 - it is quick
        """Go through the tasks once."""
        left, sizes = table.problem.pool, dict[str, int]()
        for task in table.problem.tasks:
            sizes[task.name] = min(left, task.max_nodes) if left >= task.min_nodes else 0
            left -= sizes[task.name]
        return Solution(
            sizes=sizes, value=table.value_of(sizes), bound=None, termination=Termination.HEURISTIC,
            quality=Quality.FEASIBLE, solver=self.name,
        )  # fmt: skip


def _storm(seed: int) -> list[tuple[Event, ...]]:
    """Give moments in which nodes come and go, and tasks come and end; the same for the same seed."""
    random = Random(seed)  # noqa: S311 - a die, no secret
    names = tuple(f"n{number:02}" for number in range(24))
    found: list[tuple[Event, ...]] = [(NodesJoined(time_s=0.0, nodes=names[:12]),)]
    inside, alive = set(names[:12]), list[str]()
    for number in range(1, _MOMENTS):
        now_s = 100.0 * number
        away = [node for node in names if node not in inside]
        events: list[Event] = []
        if random.random() < 0.5:  # noqa: PLR2004 - every second time
            leaving = random.sample(sorted(inside), random.randint(0, len(inside)))
            joining = random.sample(away, random.randint(0, len(away)))
            inside = (inside - set(leaving)) | set(joining)
            events += [NodesLeft(time_s=now_s, nodes=tuple(leaving))] if leaving else []
            events += [NodesJoined(time_s=now_s, nodes=tuple(joining))] if joining else []
        if alive and random.random() < 0.3:  # noqa: PLR2004 - now and then
            events.append(TaskFinished(time_s=now_s, task=alive.pop(random.randrange(len(alive)))))
        if random.random() < 0.6:  # noqa: PLR2004 - more come than go
            alive.append(f"t{number}")
            smallest = random.randint(1, 4)
            sizes = range(smallest, smallest + 4)
            rate = sorted(random.uniform(1.0, 9.0) * (size + 1) for size in sizes)
            spec = TaskSpec(
                name=f"t{number}",
                curve=SpeedCurve(nodes=tuple(sizes), rate=tuple(rate)),
                min_nodes=smallest,
                max_nodes=smallest + random.randint(0, 6),
                work_samples=random.choice([None, random.uniform(10.0, 1e5)]),
                user=random.choice(["ann", "bob", "eve", ""]),
                campaign=random.choice(["", "", "study"]),
            )
            events.append(TaskSubmitted(time_s=now_s, spec=spec))
        if events:
            found.append(tuple(events))
    return found


def _insist(fine: bool, what: str) -> None:  # noqa: FBT001 - what is insisted on
    if not fine:
        raise Nonconformance(what)
