"""What a solver can do, and what an objective asks for: declared once as a frozen value, and read in one place."""

from __future__ import annotations

from typing import Final

import msgspec


class SolverCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a solver can do besides one kind of nodes and separate tasks, and what of a task it looks at."""

    any_coupling: bool = False  # solves tables with any coupling between tasks
    level_coupling: bool = False  # solves the couplings of bftrain.deciding.levels
    node_kinds: bool = False  # divides several kinds of nodes
    uses_history: bool = False  # looks at age, node-seconds and samples of tasks
    uses_work_left: bool = False  # looks at the work that tasks have left


class ObjectiveCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What an objective asks of a solver, and what of a task it looks at."""

    any_coupling: bool = False  # ties tasks together by a coupling of its own
    level_coupling: bool = False  # gives couplings of bftrain.deciding.levels
    uses_history: bool = False  # looks at age, node-seconds and samples of tasks
    uses_work_left: bool = True  # looks at the work that tasks have left: it is kept up to date if it may

    def solved_by(self, solver: SolverCapabilities) -> bool:
        """Return whether a solver can be asked about this objective at all."""
        if self.any_coupling:
            return solver.any_coupling
        return not self.level_coupling or solver.any_coupling or solver.level_coupling


WORK_LEFT: Final = ObjectiveCapabilities()
SPEED_ALONE: Final = ObjectiveCapabilities(uses_work_left=False)

# The attributes by which parts without ``capabilities`` say the same, one by one
_OF_A_SOLVER: Final = {"any_coupling": "couples", "level_coupling": "levels", "node_kinds": "kinds"}
_OF_AN_OBJECTIVE: Final = {"level_coupling": "coupled"}


def solver_capabilities(solver: object) -> SolverCapabilities:
    """Return what ``solver`` says of itself, by ``capabilities`` or by single attributes such as ``kinds = True``."""
    declared = getattr(solver, "capabilities", None)
    if isinstance(declared, SolverCapabilities):
        return declared
    return SolverCapabilities(**_flags(solver, SolverCapabilities(), _OF_A_SOLVER))


def objective_capabilities(objective: object) -> ObjectiveCapabilities:
    """Return what ``objective`` says of itself, by ``capabilities`` or by attributes such as ``coupled = True``."""
    declared = getattr(objective, "capabilities", None)
    if isinstance(declared, ObjectiveCapabilities):
        return declared
    flags = _flags(objective, ObjectiveCapabilities(), _OF_AN_OBJECTIVE)
    return ObjectiveCapabilities(**{**flags, "any_coupling": hasattr(objective, "couple")})


def _flags(part: object, default: msgspec.Struct, names: dict[str, str]) -> dict[str, bool]:
    fields = type(default).__struct_fields__
    return {field: bool(getattr(part, names.get(field, field), getattr(default, field))) for field in fields}
