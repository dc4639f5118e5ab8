"""Create parts from their names: a Harvester from settings, and solutions of problems by named solvers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from math import isfinite
from time import perf_counter
from typing import Final

import msgspec

from bftrain import registry
from bftrain.config import LiveSettings, Settings
from bftrain.deciding.harvester import Harvester
from bftrain.deciding.placement import ConsolidatedPlacement
from bftrain.deciding.solve_with_fallback import ask, limits_after
from bftrain.deciding.value_table_builder import ValueTableBuilder
from bftrain.errors import BadConfig, BftrainError, BrokenPlugin, NotAvailable, described, raised
from bftrain.node_units import host_of
from bftrain.parts import resolve_admission, resolve_objective, resolve_sharing
from bftrain.ports import Objective, Placement, SharingPolicy, Solver, objective_capabilities, solver_capabilities
from bftrain.topology import place_of, rack_of
from bftrain.values import wire
from bftrain.values.options import AUTO
from bftrain.values.problem import AllocationProblem
from bftrain.values.sharing import Shares, SharingProblem, SharingTask
from bftrain.values.solution import Limits, Solution
from bftrain.values.table import ValueTable

# A fixed horizon keeps the tasks' costs (auto fits them); live runs raise a start's cost to at most half the horizon
_ROUNDS_HORIZON_S: Final = 86_400.0


def build_harvester(
    settings: Settings,
    *,
    solver: Solver | None = None,
    fallback: Solver | None = None,
    objective: Objective | None = None,
) -> Harvester:
    """Return the Harvester described by ``settings``; ``solver``, ``fallback`` and ``objective`` replace parts of it.

    Raises :class:`bftrain.errors.UnknownName` for a part that is not registered, and
    :class:`bftrain.errors.NotAvailable` for a solver that cannot run here.

    >>> from bftrain import NodesJoined, Settings, SpeedCurve, TaskSpec, TaskSubmitted, build_harvester
    >>> harvester = build_harvester(Settings(max_tasks=10))
    >>> task = TaskSpec(name="a", max_nodes=2, curve=SpeedCurve(nodes=(1, 2), rate=(10.0, 18.0)))
    >>> harvester.handle(NodesJoined(time_s=0.0, nodes=("n1", "n2")), TaskSubmitted(time_s=0.0, spec=task))
    (Start(nodes=('n1', 'n2'), task='a'),)
    """
    chosen = solver or solver_of(settings)
    settings = _policy_settings(settings)
    wanted = objective or resolve_objective(settings.objective)
    asked = objective_capabilities(wanted)
    if not asked.solved_by(solver_capabilities(chosen)):
        what = f"the objective '{wanted.name}' ties tasks together, which the solver '{chosen.name}' cannot express"
        raise BadConfig(what, fix=f"use {'exact, ' if asked.level_coupling else ''}highs, gurobi or cbc as the solver")
    return Harvester(
        solver=chosen,
        fallback=fallback or (find_solver(settings.fallback) if settings.fallback else None),
        objective=wanted,
        admission=resolve_admission(settings.admission, settings.max_tasks, settings.entities),
        placement=_placement(settings),
        place_of=place_of(settings.racks),
        horizon_s=settings.horizon_s,
        turn_s=settings.turn_s,
        limits=Limits(
            deadline_s=settings.solver_deadline_s, relative_gap=settings.solver_gap, threads=settings.solver_threads
        ),
        max_failures=settings.max_failures,
        entities=settings.entities,
        prices=settings.prices,
        clock=perf_counter,
    )


def solver_of(settings: Settings) -> Solver:
    """Return the solver of the settings, or the one that asks their policy of rounds."""
    if not (isinstance(settings, LiveSettings) and settings.policy):
        return find_solver(settings.solver)
    made: Solver = registry.round_solver()(settings)
    return made


def _policy_settings(settings: Settings) -> Settings:
    """Return the settings; if they name a policy of rounds, with the values that let it decide alone."""
    if not (isinstance(settings, LiveSettings) and settings.policy):
        return settings
    return msgspec.structs.replace(
        settings,
        objective="throughput",
        fallback="",
        admission="all" if settings.admission == Settings().admission else settings.admission,
        horizon_s=_ROUNDS_HORIZON_S,
        turn_s=0.0,
    )


def _placement(settings: Settings) -> Placement:
    """Return the placement of the settings, with the known places if it uses places."""
    default = "consolidated" if settings.racks else "neighbours"
    found: Placement = registry.load("placement", default if settings.placement == AUTO else settings.placement)
    if not isinstance(found, ConsolidatedPlacement):
        return found
    return type(found)((rack_of(settings.racks), host_of) if settings.racks else (host_of,))


def find_solver(name: str) -> Solver:
    """Load a solver; raise an error if it cannot run here."""
    solver: Solver = registry.load("solver", name)
    try:
        state = solver.available()
        usable = state.ok
    except Exception as error:
        what = f"available() failed: {described(error)}"
        raise BrokenPlugin(what, where=f"solver '{name}'") from error
    if not usable:
        raise NotAvailable(state.reason, where=f"solver '{name}'", fix=state.fix or None)
    return solver


def solve(
    problem: AllocationProblem | Mapping[str, object],
    solver: str | Solver = "exact",
    *,
    objective: str | Objective | None = None,
    limits: Limits | None = None,
) -> Solution:
    """Divide the pool of ``problem`` among its tasks.

    ``problem`` may also be the mapping of its JSON form. ``solver`` is a registered name or a solver
    object; ``objective`` replaces the problem's objective: a registered name,
    ``path/to/file.py:name``, or an objective object. ``limits`` are the solver's time (seconds), gap and
    threads. A solver that fails or runs out of time returns a solution with that status. Raises
    :class:`bftrain.errors.NotAvailable` for a solver that cannot run here, :class:`bftrain.errors.BadInput`
    for an invalid problem, and :class:`bftrain.errors.UnknownName` for an unknown name.

    >>> from bftrain import AllocationProblem, CompetingTask, SpeedCurve, solve
    >>> curve = SpeedCurve(nodes=(1, 2, 4), rate=(10.0, 18.0, 30.0))
    >>> tasks = tuple(CompetingTask(name=name, max_nodes=4, curve=curve) for name in ("a", "b"))
    >>> dict(solve(AllocationProblem(pool=4, horizon_s=600.0, tasks=tasks)).sizes)
    {'a': 2, 'b': 2}
    """
    chosen = find_solver(solver) if isinstance(solver, str) else solver
    started, given = perf_counter(), limits or Limits()
    table = table_of(problem, objective)
    return ask(chosen, table, limits_after(given, perf_counter() - started))


def solve_with_all(
    problem: AllocationProblem | Mapping[str, object],
    *,
    objective: str | Objective | None = None,
    limits: Limits | None = None,
) -> Iterator[Solution]:
    """Solve with every registered solver; an unavailable solver yields a failed solution with the reason."""
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
    """Return the value table of ``problem``, for its own objective or another; see :class:`ValueTableBuilder`."""
    checked = problem if isinstance(problem, AllocationProblem) else wire.convert(problem, AllocationProblem)
    wanted = checked.objective if objective is None else objective
    found = resolve_objective(wanted) if isinstance(wanted, str) else wanted
    return ValueTableBuilder(found).table(msgspec.structs.replace(checked, objective=found.name))


def share(problem: SharingProblem | Mapping[str, object], policy: str | SharingPolicy = "") -> Shares:
    """Divide the time of nodes of several kinds among tasks, by the problem's own policy or another.

    ``problem`` may also be the mapping of its JSON form. ``policy`` is a registered name, ``path/to/file.py:name``,
    or a policy object. Shares are fractions of the time, speeds are in samples/s.

    Raises :class:`bftrain.errors.BadInput` for an invalid problem, and :class:`bftrain.errors.UnknownName` for an
    unknown policy.

    >>> from bftrain import SharingProblem, SharingTask, share
    >>> tasks = [SharingTask(name="a", speeds={"v100": 4.0}), SharingTask(name="b", speeds={"v100": 2.0})]
    >>> shares = share(SharingProblem(nodes={"v100": 1}, tasks=tuple(tasks)), "max-min").shares
    >>> {task: round(of_kind["v100"], 3) for task, of_kind in shares.items()}
    {'a': 0.5, 'b': 0.5}
    """
    checked = problem if isinstance(problem, SharingProblem) else wire.convert(problem, SharingProblem)
    chosen: SharingPolicy = resolve_sharing(policy or checked.policy) if isinstance(policy, str) else policy
    begun = perf_counter()
    shares = shares_of(chosen, checked)
    return msgspec.structs.replace(shares, wall_s=perf_counter() - begun)


def shares_of(policy: SharingPolicy, problem: SharingProblem, when: str = "") -> Shares:
    """Call a policy; report exceptions and impossible shares of a third-party policy as that policy's error.

    ``when`` states the time of the request in the message.
    """
    ours = type(policy).__module__.startswith(("bftrain_solvers.", "bftrain_replay."))
    where = f"policy '{policy.name}'{when}"
    try:
        found = policy.share(problem)
    except Exception as error:
        if isinstance(error, BftrainError) or ours:
            raise  # already reported, or an internal error
        raise BrokenPlugin(raised(error), where=where, fix="repair the policy") from error
    return found if ours else check_shares(found, problem, where)


def notes_on(problem: AllocationProblem) -> Iterator[str]:
    """Yield warnings about ``problem``: sizes beyond the measured ones."""
    for task in problem.tasks:
        for kind, count in problem.by_kind.items():
            curve = task.curve_on(kind)
            note = "" if curve is None else curve.note(min(task.max_nodes, count))
            if note:
                yield f"task '{task.name}': {f'on {kind}: {note}' if kind else note}"


_ROUNDING: Final = 1e-6  # relative
_Complaint = tuple[str, str]  # what is wrong with the shares, and the fix


def check_shares(found: object, problem: SharingProblem, where: str) -> Shares:
    """Return feasible shares; raise an error that names ``where`` if they are not."""
    if not isinstance(found, Shares):
        raise BrokenPlugin(f"gave {type(found).__name__}", where=where, fix="return bftrain.values.sharing.Shares")
    tasks = {task.name: task for task in problem.tasks}
    checks = _wrong_entries(found, tasks), _wrong_shares(found, tasks, problem), _wrong_sums(found, tasks, problem)
    for what, fix in chain.from_iterable(checks):
        raise BrokenPlugin(what, where=where, fix=fix)
    return found


def _wrong_entries(found: Shares, tasks: Mapping[str, SharingTask]) -> Iterator[_Complaint]:
    fix = f"give one entry to each of the {len(tasks)} tasks"
    for name, given in (("shares", found.shares), ("speeds", found.speeds)):
        for task in sorted(set(given) ^ tasks.keys()):
            yield (f"gave {name}, but task '{task}' is {'missing' if task in tasks else 'unknown'}", fix)
    for task, speed in found.speeds.items():
        if not _is_share(speed):
            yield (f"gave task '{task}' the speed {speed!r}", "give finite numbers of at least 0")


def _wrong_shares(found: Shares, tasks: Mapping[str, SharingTask], problem: SharingProblem) -> Iterator[_Complaint]:
    for names, parts in _combinations(found):
        pair = " and ".join(f"'{name}'" for name in names)
        nodes = {tasks[name].nodes if name in tasks else None for name in names}
        if len(set(names)) < len(names) or len(nodes) > 1 or None in nodes:
            yield (f"let {pair} share nodes", "pair two tasks that need the same number of nodes")
        for kind, part in parts.items():
            if kind not in problem.nodes:
                yield (f"gave {pair} a share of '{kind}'", f"the kinds are {', '.join(map(repr, problem.nodes))}")
            if not _is_share(part):
                yield (f"gave {pair} the share {part!r} of '{kind}'", "give finite numbers of at least 0")


def _wrong_sums(found: Shares, tasks: Mapping[str, SharingTask], problem: SharingProblem) -> Iterator[_Complaint]:
    time, used = dict.fromkeys(tasks, 0.0), dict.fromkeys(problem.nodes, 0.0)
    for names, parts in _combinations(found):
        for name in names:
            time[name] += sum(parts.values())
        for kind, part in parts.items():
            used[kind] += part * tasks[names[0]].nodes
    for name, part in time.items():
        if part > 1.0 + _ROUNDING:
            yield (f"gave '{name}' {part:g} times all of its time", "its shares must not add up to more than 1")
    for kind, nodes in used.items():
        if nodes > problem.nodes[kind] * (1.0 + _ROUNDING):
            what = f"gave out {nodes:g} nodes of '{kind}', and there are {problem.nodes[kind]}"
            yield (what, "lower the shares: share times nodes, summed over tasks, must not exceed the number of nodes")


def _combinations(found: Shares) -> Iterator[tuple[tuple[str, ...], Mapping[str, float]]]:
    for name, parts in found.shares.items():
        yield (name,), parts
    for pair in () if found.pairs is msgspec.UNSET else found.pairs:
        yield pair.tasks, pair.shares


def _is_share(number: object) -> bool:
    return isinstance(number, int | float) and isfinite(number) and number >= -_ROUNDING
