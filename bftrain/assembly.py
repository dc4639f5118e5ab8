"""Puts a Harvester together from settings: the one place where names become parts."""

from __future__ import annotations

from typing import Final

from bftrain import registry
from bftrain.config import Settings
from bftrain.deciding.harvester import Harvester
from bftrain.deciding.node_stay import AUTO
from bftrain.errors import BadConfig, BrokenPlugin, NotAvailable
from bftrain.exception_text import described
from bftrain.parts.admissions import resolve_admission
from bftrain.parts.objectives import resolve_objective
from bftrain.ports import Objective, Solver
from bftrain.values.capabilities import objective_capabilities, solver_capabilities
from bftrain.values.solution import Limits

_PLACEMENT: Final = "neighbours"  # which tasks lose least with, where nodes have names (docs/semantics.md)


def build_harvester(
    settings: Settings,
    *,
    solver: Solver | None = None,
    fallback: Solver | None = None,
    objective: Objective | None = None,
) -> Harvester:
    """Build the decision core that ``settings`` describe; a part that is handed in replaces the one they name.

    >>> from bftrain import NodesJoined, Settings, SpeedCurve, TaskSpec, TaskSubmitted, build_harvester
    >>> harvester = build_harvester(Settings(max_tasks=10))
    >>> task = TaskSpec(name="a", max_nodes=2, curve=SpeedCurve(nodes=(1, 2), rate=(10.0, 18.0)))
    >>> harvester.handle(NodesJoined(time_s=0.0, nodes=("n1", "n2")), TaskSubmitted(time_s=0.0, spec=task))
    (Start(nodes=('n1', 'n2'), task='a'),)
    """
    chosen = solver or find_solver(settings.solver)
    wanted = objective or resolve_objective(settings.objective)
    asked = objective_capabilities(wanted)
    if not asked.solved_by(solver_capabilities(chosen)):
        renamed = registry.note_on_name("objective", settings.objective)
        more = f"; {renamed}" if renamed and f"'{wanted.name}'" in renamed else ""
        raise BadConfig(
            f"the objective '{wanted.name}' ties tasks together, which the solver '{chosen.name}' cannot express{more}",
            fix=f"take {'exact, ' if asked.level_coupling else ''}highs, gurobi or cbc as solver",
        )
    return Harvester(
        solver=chosen,
        fallback=fallback or (find_solver(settings.fallback) if settings.fallback else None),
        objective=wanted,
        admission=resolve_admission(settings.admission, settings.max_tasks, settings.entities),
        placement=registry.load("placement", _PLACEMENT if settings.placement == AUTO else settings.placement),
        horizon_s=settings.horizon_s,
        limits=Limits(
            deadline_s=settings.solver_deadline_s,
            relative_gap=settings.solver_gap,
            threads=settings.solver_threads,
        ),
        max_failures=settings.max_failures,
        entities=settings.entities,
        prices=settings.prices,
    )


def find_solver(name: str) -> Solver:
    """Load a solver and make sure it can run here."""
    solver: Solver = registry.load("solver", name)
    try:
        state = solver.available()
        usable = state.ok
    except Exception as error:
        what = f"cannot say whether it can run here: {described(error)}"
        raise BrokenPlugin(what, where=f"solver '{name}'") from error
    if not usable:
        raise NotAvailable(state.reason, where=f"solver '{name}'", fix=state.fix or None)
    return solver
