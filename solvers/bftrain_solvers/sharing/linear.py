"""Linear programmes on HiGHS, which is part of scipy: largest worth within limits, and the duals of the limits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import Any, Final

import numpy as np

from bftrain_solvers.arrays import Floats, Places

_PRECISE: Final = {"primal_feasibility_tolerance": 1e-9, "dual_feasibility_tolerance": 1e-9}
_OPTIMAL: Final = 0


@dataclass(frozen=True, slots=True)
class LinearRows:
    """Rows of a programme, entry by entry, and the upper limit of each."""

    data: tuple[Floats, ...]
    row: tuple[Places, ...]
    column: tuple[Places, ...]
    limits: Floats


@dataclass(frozen=True, slots=True)
class LinearResult:
    """The optimum and the dual of each row; on failure ``None`` and zeros, and the reason in ``words``."""

    columns: Floats | None
    prices: Floats
    words: str


def maximise(worth: Floats, rows: LinearRows, *, last: tuple[float, float] | None = None) -> LinearResult:
    """Maximise ``worth`` over non-negative columns; ``last`` contains the bounds of the final column, if different."""
    bounds = np.column_stack((np.zeros(worth.size), np.full(worth.size, np.inf)))
    if last is not None:
        bounds[-1] = last
    from scipy.sparse import csc_array  # noqa: PLC0415 - slow to import

    places = (np.concatenate(rows.row), np.concatenate(rows.column))
    # Repeated entries are added up
    matrix: Any = csc_array((np.concatenate(rows.data), places), shape=(rows.limits.size, worth.size))
    return _by_highs(worth, matrix, rows.limits, bounds) or _by_linprog(worth, matrix, rows.limits, bounds)


def _by_highs(worth: Floats, matrix: Any, limits: Floats, bounds: Floats) -> LinearResult | None:  # noqa: ANN401
    """Solve as ``linprog`` does, without its checks, which take most of its time; ``None`` if that fails.

    The module is not public, so a later scipy may lack it.
    """
    try:
        core, options = highs()
        program, solver = core.HighsLp(), core._Highs()  # noqa: SLF001
        program.num_col_ = program.a_matrix_.num_col_ = worth.size
        program.num_row_ = program.a_matrix_.num_row_ = limits.size
        program.a_matrix_.format_ = core.MatrixFormat.kColwise
        program.col_cost_, program.col_lower_ = -worth, bounds[:, 0]
        program.col_upper_ = np.where(np.isinf(bounds[:, 1]), core.kHighsInf, bounds[:, 1])
        program.row_lower_, program.row_upper_ = np.full(limits.size, -core.kHighsInf), limits
        program.a_matrix_.start_, program.a_matrix_.index_ = matrix.indptr, matrix.indices
        program.a_matrix_.value_ = matrix.data
        steps = (partial(solver.passOptions, options), partial(solver.passModel, program), solver.run)
        if any(step() == core.HighsStatus.kError for step in steps):  # the step after an error may abort
            return None
        if solver.getModelStatus() != core.HighsModelStatus.kOptimal:
            return None
        solution = solver.getSolution()
        return LinearResult(np.array(solution.col_value), np.maximum(0.0, -np.array(solution.row_dual)), "")
    except (ImportError, AttributeError, TypeError):
        return None


@cache
def highs() -> tuple[Any, Any]:
    """Return scipy's binding of HiGHS, and the options of ``linprog`` with its method ``highs-ds``."""
    core: Any = import_module("scipy.optimize._highspy._core")
    options = core.HighsOptions()
    settings = {"presolve": "on", "solver": "simplex", "output_flag": False, "log_to_console": False, **_PRECISE}
    for name, value in settings.items():
        setattr(options, name, value)
    return core, options


def _by_linprog(worth: Floats, matrix: Any, limits: Floats, bounds: Floats) -> LinearResult:  # noqa: ANN401
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to import

    solve: Any = linprog  # its type hints lack sparse matrices and these options
    found = solve(-worth, A_ub=matrix, b_ub=limits, bounds=bounds, method="highs-ds", options=_PRECISE)
    if found.status != _OPTIMAL:
        return LinearResult(None, np.zeros(limits.size), str(found.message))
    return LinearResult(found.x, np.maximum(0.0, -found.ineqlin.marginals), str(found.message))
