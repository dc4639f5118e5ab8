"""The conformance suite for admissions and metrics."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from bftrain.deciding.allocation_state import HarvesterSnapshot
from bftrain.deciding.harvester import Harvester
from bftrain.deciding.objectives import throughput
from bftrain.errors import BftrainError
from bftrain.parts import measured, resolve_metric
from bftrain.ports import Admission, Availability, SolverCapabilities
from bftrain.values import wire
from bftrain.values.curve import SpeedCurve
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskFinished, TaskSubmitted
from bftrain.values.sharing import Entity
from bftrain.values.solution import Limits, Quality, Solution, Termination
from bftrain.values.table import ValueTable
from bftrain.values.task import TaskSpec

USERS: Final = {"ann": Entity(weight=2.0, nodes=9), "bob": Entity(tasks=2)}
MAX_TASKS: Final = 5
_SEQUENCES: Final = 20
_MOMENTS: Final = 40


class Nonconformance(AssertionError):
    """A part does not behave as its port requires."""


def check_admission(factory: Callable[..., Any], **settings: object) -> None:
    """Test the admission that ``factory(max_tasks, **settings)`` returns with random sequences of events."""

    def made() -> Admission:
        found = factory(MAX_TASKS, **settings)
        _require(isinstance(found, Admission), "has no name, or no choose(queue)")
        _require(isinstance(found.name, str) and bool(found.name), f"is called {found.name!r}, not a name")
        checked: Admission = found
        return checked

    for seed in range(_SEQUENCES):
        one, two = _harvester(made()), _harvester(made())
        for number, moment in enumerate(_random_events(seed)):
            try:
                for core in (one, two):
                    core.absorb(*moment)
                question, again, other = (core.ask(core.time_s) for core in (one, one, two))
            except BftrainError as error:
                raise Nonconformance(str(error)) from error
            _require(question == again, "returns another result when called again: choose must change nothing")
            same = (question.named, question.problem) == (other.named, other.problem)
            _require(same, "returns another result after the same events: use no clock, randomness or global state")
            unknown = [name for name in question.named if name not in one.unfinished]
            _require(not unknown, f"names '{unknown[0] if unknown else ''}', not an unfinished task")
            for core, asked in ((one, question), (two, other)):
                core.finish_decision(asked, core.answer(asked))
            if number == _MOMENTS // 2:  # a restart: from here on the second one runs from restored state
                kept = wire.encode(two.snapshot)
                two = _harvester(made())
                two.restore(wire.decode(kept, HarvesterSnapshot))
                _require(wire.encode(two.snapshot) == kept, "does not restore its saved state exactly")


def check_metric(metric: Callable[..., object], run: object) -> None:
    """Check that a metric measures ``run``, the return value of ``bftrain.replay(...)`` or a result in it."""
    result = getattr(run, "result", run)
    name = str(getattr(metric, "name", None) or getattr(metric, "__name__", "metric"))
    try:
        first, second = (measured(resolve_metric(name, metric), result) for _ in range(2))
    except BftrainError as error:
        raise Nonconformance(str(error)) from error
    _require(repr(first) == repr(second), "returns other numbers when called again")


def _harvester(admission: Admission) -> Harvester:
    return Harvester(solver=_InOrderSolver(), objective=throughput, admission=admission, max_failures=2, entities=USERS)


class _InOrderSolver:
    """Solver that assigns each task, in sequence, all remaining nodes that it can use."""

    name = "evenly"
    capabilities = SolverCapabilities(node_kinds=True)

    def available(self) -> Availability:
        """Return that it is available."""
        return Availability(ok=True)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:  # noqa: ARG002 - fast enough
        """Assign nodes in one pass over the tasks."""
        left, sizes = table.problem.pool, dict[str, int]()
        for task in table.problem.tasks:
            sizes[task.name] = min(left, task.max_nodes) if left >= task.min_nodes else 0
            left -= sizes[task.name]
        return Solution(
            sizes=sizes, value=table.value_of(sizes), bound=None, termination=Termination.HEURISTIC,
            quality=Quality.FEASIBLE, solver=self.name,
        )  # fmt: skip


def _random_events(seed: int) -> list[tuple[Event, ...]]:
    """Return random arrivals and departures of nodes and tasks; deterministic for each seed."""
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    names = tuple(f"n{number:02}" for number in range(24))
    found: list[tuple[Event, ...]] = [(NodesJoined(time_s=0.0, nodes=names[:12]),)]
    inside, alive = set(names[:12]), list[str]()
    for number in range(1, _MOMENTS):
        now_s = 100.0 * number
        away = [node for node in names if node not in inside]
        events: list[Event] = []
        if random.random() < 0.5:
            leaving = random.sample(sorted(inside), random.randint(0, len(inside)))
            joining = random.sample(away, random.randint(0, len(away)))
            inside = (inside - set(leaving)) | set(joining)
            events += [NodesLeft(time_s=now_s, nodes=tuple(leaving))] if leaving else []
            events += [NodesJoined(time_s=now_s, nodes=tuple(joining))] if joining else []
        if alive and random.random() < 0.3:
            events.append(TaskFinished(time_s=now_s, task=alive.pop(random.randrange(len(alive)))))
        if random.random() < 0.6:
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


def _require(fine: bool, what: str) -> None:  # noqa: FBT001 - the condition
    if not fine:
        raise Nonconformance(what)
