"""Small solvers, admissions and placements for tests: honest ones, and ones that fail in every way there is."""

from __future__ import annotations

from itertools import cycle
from math import nan
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from bftrain import Availability, Limits, Quality, Solution, Termination

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bftrain import ValueTable
    from bftrain.ports import Queue

    Answer = Callable[[ValueTable], object]


class Scripted:
    """A solver that gives the answers of its script, one after the other, over and over."""

    def __init__(self, *script: Answer, name: str = "scripted") -> None:
        self.name = name
        self.asked: list[ValueTable] = []
        self.limits: list[Limits] = []
        self._script = cycle(script)

    def available(self) -> Availability:
        return Availability(ok=True)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        self.asked.append(table)
        self.limits.append(limits)
        return next(self._script)(table)  # type: ignore[return-value]  # lying is what some scripts are for


def say(table: ValueTable, sizes: Mapping[str, int], termination: Termination = Termination.HEURISTIC) -> Solution:
    """Answer with ``sizes``, whether they are allowed or not."""
    return Solution(
        sizes=sizes,
        value=0.0,
        bound=None,
        termination=termination,
        quality=Quality.PROVEN if termination is Termination.OPTIMAL else Quality.FEASIBLE,
        solver="scripted",
        solver_words=f"{len(table.problem.tasks)} tasks",
    )


def allowed(table: ValueTable) -> list[list[int]]:
    return [np.flatnonzero(np.isfinite(row)).tolist() for row in table.values]


def best(table: ValueTable) -> Solution:
    """Search all choices by adding one task after the other; keep the best of every total size."""
    reached: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    for row, sizes in zip(table.values, allowed(table), strict=True):
        longer: dict[int, tuple[float, tuple[int, ...]]] = {}
        for used, (value, chosen) in reached.items():
            for size in sizes:
                found = (value + float(row[size]), (*chosen, size))
                if used + size <= table.problem.pool and found > longer.get(used + size, (-np.inf, ())):
                    longer[used + size] = found
        reached = longer
    _, chosen = max(reached.values())
    names = [task.name for task in table.problem.tasks]
    return say(table, dict(zip(names, chosen, strict=True)), Termination.OPTIMAL)


def nothing(table: ValueTable) -> Solution:
    """Every task waits, and none is even named."""
    return say(table, {})


def split(table: ValueTable, termination: Termination = Termination.HEURISTIC) -> Solution:
    """Equal parts, as far as they are allowed."""
    part = table.problem.pool // max(len(table.problem.tasks), 1)
    sizes = [max(size for size in sizes if size <= part) for sizes in allowed(table)]
    return say(table, dict(zip([task.name for task in table.problem.tasks], sizes, strict=True)), termination)


def dice(seed: int) -> Answer:
    """Choose any allowed sizes that fit, so that every possible decision is made some time."""
    random = Random(seed)  # noqa: S311 - a die, no secret

    def throw(table: ValueTable) -> Solution:
        free = table.problem.pool
        sizes = {}
        rows = list(zip(table.problem.tasks, allowed(table), strict=True))
        random.shuffle(rows)
        for task, choices in rows:
            sizes[task.name] = random.choice([size for size in choices if size <= free])
            free -= sizes[task.name]
        return say(table, sizes)

    return throw


def late_with_sizes(table: ValueTable) -> Solution:
    return split(table, Termination.TIME_LIMIT)


def late_with_nothing(table: ValueTable) -> Solution:  # noqa: ARG001 - it never got round to looking
    return Solution.failed("scripted", "still searching", termination=Termination.TIME_LIMIT)


def failed(table: ValueTable) -> Solution:  # noqa: ARG001 - it did not even start
    return Solution.failed("scripted", "no licence \udcff")


def raises(table: ValueTable) -> Solution:
    raise ZeroDivisionError(f"with {len(table.problem.tasks)} tasks")


def dies(table: ValueTable) -> Solution:  # noqa: ARG001 - it did not even start
    raise MemoryError


def oversubscribes(table: ValueTable) -> Solution:
    return say(table, {task.name: table.problem.pool + 1 for task in table.problem.tasks}, Termination.OPTIMAL)


def one_too_many(table: ValueTable) -> Solution:
    """Add allowed sizes up to one node more than there are; if that cannot be met, the answer is fine."""
    wanted = table.problem.pool + 1
    sizes = {}
    for task, choices in zip(table.problem.tasks, allowed(table), strict=True):
        sizes[task.name] = max(size for size in choices if size <= wanted)
        wanted -= sizes[task.name]
    return say(table, sizes)


def invents_a_task(table: ValueTable) -> Solution:
    return say(table, {"unknown": 1, **split(table).sizes})


def gives_below_nothing(table: ValueTable) -> Solution:
    return say(table, {table.problem.tasks[0].name: -1})


def gives_halves(table: ValueTable) -> Solution:
    return say(table, {table.problem.tasks[0].name: 0.5})  # type: ignore[dict-item]  # that is its fault


def values_nan(table: ValueTable) -> Solution:
    return Solution(
        sizes=split(table).sizes,
        value=nan,
        bound=None,
        termination=Termination.OPTIMAL,
        quality=Quality.PROVEN,
        solver="scripted",
    )


def gives_none(table: ValueTable) -> None:
    pass


def overwrites_the_table(table: ValueTable) -> Solution:
    """Make everything allowed, as one might to get rid of infinities, and take what was not."""
    table.values[:] = np.maximum(table.values, -1e9)
    return say(table, {task.name: task.min_nodes - 1 or task.max_nodes + 1 for task in table.problem.tasks})


UNUSABLE: tuple[Answer, ...] = (
    late_with_nothing,
    failed,
    raises,
    dies,
    oversubscribes,
    invents_a_task,
    gives_below_nothing,
    gives_halves,
    values_nan,
    gives_none,
    overwrites_the_table,
)


class Fickle:
    """Admit any tasks at random, running or not, some of them twice and some that do not exist."""

    name = "fickle"

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - a die, no secret

    def choose(self, queue: Queue) -> Sequence[str]:
        names = [name for name in queue if self._random.random() < 0.6]
        return [*names, *names[:1], "unknown"]


class Only:
    """Admit the tasks of one name."""

    name = "only"

    def __init__(self, *names: str) -> None:
        self.names = names

    def choose(self, queue: Queue) -> Sequence[str]:
        return [name for name in queue if name in self.names]


class Scattered:
    """Choose nodes at random."""

    name = "shuffled"

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - a die, no secret

    def give_up(self, held: Mapping[str, int], count: int) -> Sequence[str]:
        return self._random.sample(list(held), count)

    def take(
        self,
        held: Mapping[str, int],  # noqa: ARG002 - it does not care
        free: Mapping[int, Mapping[str, None]],
        count: int,
    ) -> Sequence[str]:
        return self._random.sample([node for nodes in free.values() for node in nodes], count)
