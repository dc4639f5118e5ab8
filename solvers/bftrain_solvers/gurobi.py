"""``gurobi``: the mixed-integer programme on Gurobi; the licence in the package covers small programmes."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from time import perf_counter
from typing import Any, Final

import numpy as np

from bftrain.ports import Availability
from bftrain.values.solution import Limits, Termination
from bftrain_elastic.errors import install_hint
from bftrain_solvers.matrix import ModelMatrix
from bftrain_solvers.milp import LATE, MilpSolver, RawAnswer

_MISSING: Final = "the package gurobipy is not installed"
_TOO_LARGE: Final = 10010  # GRB.Error.SIZE_LIMIT_EXCEEDED
_INFINITY: Final = 1e100  # GRB.INFINITY
# Gurobi's complete status codes: any missing code is a failure
_TERMINATIONS: Final = {
    2: Termination.OPTIMAL,
    3: Termination.INFEASIBLE,
    4: Termination.INFEASIBLE,  # infeasible or unbounded; all columns are bounded or tied to bounded columns
    7: Termination.TIME_LIMIT,  # iterations
    8: Termination.TIME_LIMIT,  # nodes
    9: Termination.TIME_LIMIT,
    10: Termination.TIME_LIMIT,  # solutions
    11: Termination.INTERRUPTED,
    16: Termination.TIME_LIMIT,  # work
    17: Termination.TIME_LIMIT,  # memory
}
_HANDED_S: Final = 2e-6  # seconds to transfer a column or row, measured on an idle machine
_TOGETHER: Final = 4_000  # rows transferred between two checks of the clock


class GurobiSolver(MilpSolver):
    """Gurobi through gurobipy."""

    name = "gurobi"

    def available(self) -> Availability:
        """Return whether gurobipy is installed and has a licence."""
        if find_spec("gurobipy") is None:
            return Availability(ok=False, reason=_MISSING, fix=install_hint("gurobi"))
        import gurobipy  # noqa: PLC0415 - an extra

        try:
            _environment()
        except gurobipy.GurobiError as error:
            return Availability(
                ok=False,
                reason=f"no licence: {error}",
                fix="save gurobi.lic as https://www.gurobi.com/documentation describes, or set GRB_LICENSE_FILE",
            )
        return Availability(ok=True, version=".".join(map(str, gurobipy.gurobi.version())))

    def run(self, matrix: ModelMatrix, limits: Limits) -> RawAnswer:
        """Maximise."""
        if find_spec("gurobipy") is None:
            return RawAnswer(termination=Termination.FAILED, words=_MISSING)
        import gurobipy  # noqa: PLC0415 - an extra

        try:
            with gurobipy.Model(env=_environment()) as model:
                return _maximise(model, matrix, limits)
        except gurobipy.GurobiError as error:
            size = f" ({matrix.objective.size} columns, {matrix.row_lower.size} rows)"
            advice = size if error.errno == _TOO_LARGE else ""
            return RawAnswer(termination=Termination.FAILED, words=f"{error}{advice}")


@cache
def _environment() -> Any:  # noqa: ANN401 - gurobipy is not there when types are checked
    import gurobipy  # noqa: PLC0415 - an extra

    return gurobipy.Env(params={"OutputFlag": 0})


def _maximise(model: Any, matrix: ModelMatrix, limits: Limits) -> RawAnswer:  # noqa: ANN401 - see _environment
    begun = perf_counter()
    if limits.deadline_s < _HANDED_S * (matrix.objective.size + matrix.row_lower.size):
        return LATE
    model.Params.MIPGap = limits.relative_gap
    model.Params.Threads = limits.threads
    model.Params.IntFeasTol = 1e-9
    model.Params.FeasibilityTol = 1e-9
    columns = model.addMVar(
        matrix.objective.size,
        lb=matrix.lower,
        ub=matrix.upper,
        obj=matrix.objective,
        vtype=np.where(matrix.integer, "I", "C").tolist(),
    )
    model.ModelSense = -1
    rows = matrix.sparse()
    below, above = np.isfinite(matrix.row_upper), np.isfinite(matrix.row_lower)
    equal = matrix.row_lower == matrix.row_upper
    for chosen, sense, side in (
        (equal, "=", matrix.row_upper),
        (below & ~equal, "<", matrix.row_upper),
        (above & ~equal, ">", matrix.row_lower),
    ):
        places = np.flatnonzero(chosen)
        for start in range(0, places.size, _TOGETHER):
            if perf_counter() - begun > limits.deadline_s:
                return LATE
            part = places[start : start + _TOGETHER]
            model.addMConstr(rows[part], columns, sense, side[part])
    model.Params.TimeLimit = left_s = max(limits.deadline_s - (perf_counter() - begun), 0.0)
    if not left_s:
        return LATE
    model.optimize()
    return RawAnswer(
        termination=_TERMINATIONS.get(model.Status, Termination.FAILED),
        columns=np.asarray(columns.X) if model.SolCount else None,
        bound=float(model.ObjBound) if abs(model.ObjBound) < _INFINITY else None,
        words=f"status {model.Status}",
    )


solver = GurobiSolver()
