"""One allocation problem, solved by one solver or by all of them; and one of node kinds, shared by a policy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from time import perf_counter

import msgspec

from bftrain import registry
from bftrain.assembly import find_solver
from bftrain.deciding.solve_with_fallback import ask
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain.errors import BftrainError, BrokenPlugin, NotAvailable
from bftrain.exception_text import raised
from bftrain.parts.objectives import resolve_objective
from bftrain.ports import Objective, SharingPolicy, Solver
from bftrain.values import wire
from bftrain.values.problem import AllocationProblem
from bftrain.values.sharing import Shares, SharingProblem
from bftrain.values.solution import Limits, Solution
from bftrain.values.table import ValueTable


def solve(
    problem: AllocationProblem | Mapping[str, object],
    solver: str | Solver = "exact",
    *,
    objective: str | Objective | None = None,
    limits: Limits | None = None,
) -> Solution:
    """Divide the pool of ``problem`` over its tasks.

    ``problem`` may be the mapping that its JSON form holds. ``solver`` is a registered name or any object that is a
    solver; ``objective`` takes the place of the one that the problem names: a registered name,
    ``path/to/file.py:name``, or any object that is an objective. A solver that fails or runs out of time gives a
    solution that says so; one that cannot run here raises :class:`bftrain.errors.NotAvailable`.

    >>> from bftrain import AllocationProblem, CompetingTask, SpeedCurve, solve
    >>> curve = SpeedCurve(nodes=(1, 2, 4), rate=(10.0, 18.0, 30.0))
    >>> tasks = tuple(CompetingTask(name=name, max_nodes=4, curve=curve) for name in ("a", "b"))
    >>> dict(solve(AllocationProblem(pool=4, horizon_s=600.0, tasks=tasks)).sizes)
    {'a': 2, 'b': 2}
    """
    chosen = find_solver(solver) if isinstance(solver, str) else solver
    return ask(chosen, table_of(problem, objective), limits or Limits())


def solve_with_all(
    problem: AllocationProblem | Mapping[str, object],
    *,
    objective: str | Objective | None = None,
    limits: Limits | None = None,
) -> Iterator[Solution]:
    """Solve with every registered solver; one that cannot run here gives a failed solution that says why."""
    table = table_of(problem, objective)
    for name, part in registry.parts("solver").items():
        if part.problem:
            yield Solution.failed(name, part.problem)
            continue
        try:
            yield ask(find_solver(name), table, limits or Limits())
        except NotAvailable as lacking:
            yield Solution.failed(name, str(lacking))


def table_of(problem: AllocationProblem | Mapping[str, object], objective: str | Objective | None = None) -> ValueTable:
    """Give the value table of ``problem``, for its own objective or another one."""
    checked = problem if isinstance(problem, AllocationProblem) else wire.convert(problem, AllocationProblem)
    wanted = checked.objective if objective is None else objective
    found = resolve_objective(wanted) if isinstance(wanted, str) else wanted
    return ValueTableBuilder(found).table(msgspec.structs.replace(checked, objective=found.name))


def share(problem: SharingProblem | Mapping[str, object], policy: str | SharingPolicy = "") -> Shares:
    """Divide the time of nodes of several kinds over tasks: as the problem's own policy says, or another one.

    ``policy`` is a registered name, or any object that is one.
    """
    checked = problem if isinstance(problem, SharingProblem) else wire.convert(problem, SharingProblem)
    chosen: SharingPolicy = registry.load("sharing", policy or checked.policy) if isinstance(policy, str) else policy
    begun = perf_counter()
    shares = shares_of(chosen, checked)
    return msgspec.structs.replace(shares, wall_s=perf_counter() - begun)


def shares_of(policy: SharingPolicy, problem: SharingProblem) -> Shares:
    """Ask a policy for shares; an exception in one that is not built in is reported as its own."""
    try:
        return policy.share(problem)
    except BftrainError:
        raise
    except Exception as error:
        if type(policy).__module__.startswith("bftrain_solvers."):
            raise  # a fault of ours
        raise BrokenPlugin(raised(error), where=f"policy '{policy.name}'", fix="repair the policy") from error


def notes_on(problem: AllocationProblem) -> Iterator[str]:
    """Say what in ``problem`` may surprise: sizes at which nothing was measured."""
    for task in problem.tasks:
        for kind, count in problem.by_kind.items():
            curve = task.curve_on(kind)
            note = "" if curve is None else curve.note(min(task.max_nodes, count))
            if note:
                yield f"task '{task.name}': {f'on {kind}: {note}' if kind else note}"
