"""Linear programmes on HiGHS, which is part of scipy: largest worth within limits, and the duals of the limits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
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
    """The optimum and the dual of each row; empty on failure, with the reason in ``words``."""

    columns: Floats | None
    prices: Floats
    words: str


def maximise(worth: Floats, rows: LinearRows, *, last: tuple[float, float] | None = None) -> LinearResult:
    """Maximise ``worth`` over non-negative columns; ``last`` contains the bounds of the final column, if different."""
    bounds = np.column_stack((np.zeros(worth.size), np.full(worth.size, np.inf)))
    if last is not None:
        bounds[-1] = last
    entries = np.concatenate(rows.row), np.concatenate(rows.column), np.concatenate(rows.data)
    return _by_core(worth, entries, rows.limits, bounds) or _by_linprog(worth, entries, rows.limits, bounds)


_Entries = tuple[Places, Places, Floats]  # rows, columns and coefficients


def _by_core(worth: Floats, entries: _Entries, limits: Floats, bounds: Floats) -> LinearResult | None:
    """Solve as ``linprog`` does, without its checks, which take most of its time; ``None`` if that fails.

    The module is not public, so a later scipy may lack it.
    """
    try:
        core, options = highs()
        row, column, data = entries
        order, program, solver = np.lexsort((row, column)), core.HighsLp(), core._Highs()  # noqa: SLF001
        program.num_col_ = program.a_matrix_.num_col_ = worth.size
        program.num_row_ = program.a_matrix_.num_row_ = limits.size
        program.a_matrix_.format_ = core.MatrixFormat.kColwise
        program.col_cost_, program.col_lower_ = -worth, bounds[:, 0]
        program.col_upper_ = np.where(np.isinf(bounds[:, 1]), core.kHighsInf, bounds[:, 1])
        program.row_lower_, program.row_upper_ = np.full(limits.size, -core.kHighsInf), limits
        program.a_matrix_.start_ = np.searchsorted(column[order], np.arange(worth.size + 1))
        program.a_matrix_.index_, program.a_matrix_.value_ = row[order], data[order]
        solver.passOptions(options)
        solver.passModel(program)
        solver.run()
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


def _by_linprog(worth: Floats, entries: _Entries, limits: Floats, bounds: Floats) -> LinearResult:
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to import
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import

    row, column, data = entries
    matrix: Any = csr_array((data, (row, column)), shape=(limits.size, worth.size))
    solve: Any = linprog  # its type hints lack sparse matrices and these options
    found = solve(-worth, A_ub=matrix, b_ub=limits, bounds=bounds, method="highs-ds", options=_PRECISE)
    if found.status != _OPTIMAL:
        return LinearResult(None, np.zeros(limits.size), str(found.message))
    return LinearResult(found.x, np.maximum(0.0, -found.ineqlin.marginals), str(found.message))
