"""``cbc``: the mixed-integer programme on CBC, in a separate process because the native library can abort."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import Final

import numpy as np

from bftrain.ports import Availability
from bftrain.values.solution import Limits, Termination
from bftrain_elastic.errors import install_hint
from bftrain_solvers.library_process import LibraryProcess
from bftrain_solvers.matrix import ModelMatrix
from bftrain_solvers.milp import LATE, MilpSolver, RawAnswer

_MISSING: Final = "the package mip is not installed"
_TERMINATIONS: Final = {  # python-mip's OptimizationStatus names
    "OPTIMAL": Termination.OPTIMAL,
    "FEASIBLE": Termination.TIME_LIMIT,
    "NO_SOLUTION_FOUND": Termination.TIME_LIMIT,
    "INFEASIBLE": Termination.INFEASIBLE,
    "INT_INFEASIBLE": Termination.INFEASIBLE,
}


class CbcSolver(MilpSolver):
    """CBC through python-mip in a worker process."""

    name = "cbc"

    def __init__(self) -> None:
        self.worker = LibraryProcess(__name__)

    def available(self) -> Availability:
        """Return whether python-mip is installed; no process is started for it."""
        try:
            return Availability(ok=True, version=f"python-mip {version('mip')}")
        except PackageNotFoundError:
            return Availability(ok=False, reason=_MISSING, fix=install_hint("cbc"))

    def run(self, matrix: ModelMatrix, limits: Limits) -> RawAnswer:
        """Maximise."""
        if not self.available().ok:
            return RawAnswer(termination=Termination.FAILED, words=_MISSING)
        return self.worker.maximised(matrix, limits)


def load() -> None:
    """Import the library, in the worker."""
    import mip  # noqa: F401, PLC0415 - an extra, for the worker only


def maximised(matrix: ModelMatrix, limits: Limits) -> RawAnswer:
    """Solve, in the worker."""
    import mip  # noqa: PLC0415 - an extra, for the worker only

    stop_at = perf_counter() + limits.deadline_s
    model = mip.Model(sense=mip.MAXIMIZE, solver_name=mip.CBC)
    model.verbose = 0
    given = (matrix.lower, matrix.upper, matrix.objective, matrix.integer)
    columns = []
    for lower, upper, worth, integer in zip(*(each.tolist() for each in given), strict=True):
        if perf_counter() > stop_at:
            return LATE
        kind = mip.INTEGER if integer else mip.CONTINUOUS
        columns.append(model.add_var(lb=lower, ub=upper, obj=worth, var_type=kind))
    starts = matrix.starts.tolist()
    for row, (lower, upper) in enumerate(zip(matrix.row_lower.tolist(), matrix.row_upper.tolist(), strict=True)):
        if perf_counter() > stop_at:
            return LATE
        part = slice(starts[row], starts[row + 1])
        used = [columns[column] for column in matrix.columns[part].tolist()]
        sides = [("=", lower)] if lower == upper else [(">", lower), ("<", upper)]
        for sense, side in sides:
            if abs(side) < mip.INF:
                model.add_constr(mip.LinExpr(used, matrix.coefficients[part].tolist(), -side, sense))
    # With 1 thread, CBC searches in a second thread alongside the first; the two occasionally deadlock
    model.threads = limits.threads if limits.threads > 1 else 0
    model.max_mip_gap = limits.relative_gap
    model.max_mip_gap_abs = 0.0
    model.integer_tol = 1e-9
    model.infeas_tol = 1e-9
    status = model.optimize(max_seconds=max(stop_at - perf_counter(), 0.0))
    found = np.array([column.x for column in columns], dtype=np.float64) if model.num_solutions else None
    bound = model.objective_bound
    return RawAnswer(
        termination=_TERMINATIONS.get(status.name, Termination.FAILED),
        columns=found,
        bound=float(bound) if bound is not None and abs(bound) < mip.INF else None,
        words=status.name,
    )


solver = CbcSolver()
