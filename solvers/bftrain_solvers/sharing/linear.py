"""Linear programmes on HiGHS, which is part of scipy: largest worth within limits, and the duals of the limits."""

from __future__ import annotations

from dataclasses import dataclass
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
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to import
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import

    places = (np.concatenate(rows.row), np.concatenate(rows.column))
    matrix: Any = csr_array((np.concatenate(rows.data), places), shape=(rows.limits.size, worth.size))
    bounds = np.column_stack((np.zeros(worth.size), np.full(worth.size, np.inf)))
    if last is not None:
        bounds[-1] = last
    solve: Any = linprog  # its type hints lack sparse matrices and these options
    found = solve(-worth, A_ub=matrix, b_ub=rows.limits, bounds=bounds, method="highs-ds", options=_PRECISE)
    if found.status != _OPTIMAL:
        return LinearResult(None, np.zeros(rows.limits.size), str(found.message))
    return LinearResult(found.x, np.maximum(0.0, -found.ineqlin.marginals), str(found.message))
