"""A primal-dual interior-point method for linear programs with many equal columns and rows.

Among several optimal solutions it returns the centre, like the solver ECOS: both follow the same path from the same
start (homogeneous self-dual embedding, Mehrotra's steps; Domahidi and others, ECC 2013). Equal columns have equal
values on this path, so one column and one row represent all their equals, and slacks count with their multiplicity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from bftrain_solvers.arrays import Floats, Integers
from bftrain_solvers.knapsack.compiled_knapsack import call_compiled

_PRECISE: Final = 1e-8  # limit for primal and dual residuals, and for the gap
_MOST_STEPS: Final = 100
_BALANCE_STEPS: Final = 3  # scaling passes, which equalise the largest entries of rows and columns
_FARTHEST: Final = 0.999  # maximum share of the distance to the border
_SHORTER: Final = 0.99
_SMALL: Final = 20_000  # a matrix with fewer elements is a dense one
_FEW: Final = 250  # rows; a system with fewer is solved as a dense one
_DENSE: Final = 0.1  # share of non-zero elements above which a matrix is factored as dense
_MOST_ROWS: Final = 1500  # limit for compiled code, which factors a dense matrix
_RELATIVE: Final = 1e-14  # added to the diagonal, which makes equal rows harmless


@dataclass(frozen=True, slots=True)
class EqualColumns:
    """Non-negative columns within ``limits`` of rows. With ``rising``, the last column is free and maximised.

    ``entries[i]`` is the coefficient in ``row[i]`` of each of ``times[i]`` columns equal to ``column[i]``. ``columns``
    and ``rows`` are multiplicities, without the free column.
    """

    entries: Floats
    times: Floats
    row: Integers
    column: Integers
    limits: Floats
    columns: Floats
    rows: Floats
    rising: bool


class _Scaled:
    """A program scaled to similar largest entries in rows and columns. Duals are sums over equal rows."""

    def __init__(self, program: EqualColumns) -> None:
        from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import

        bounded, free = program.columns.size, int(program.rising)
        entries, bounds = np.abs(program.entries), np.ones(bounded)
        row_scale, scale = np.ones(program.limits.size), np.ones(bounded + free)
        bound_scale = np.ones(bounded)
        for _ in range(_BALANCE_STEPS):
            columns, rows = np.zeros(scale.size), np.zeros(row_scale.size)
            np.maximum.at(columns, program.column, entries)
            np.maximum.at(rows, program.row, entries)
            columns[:bounded] = np.maximum(columns[:bounded], bounds)
            columns, rows, own = np.sqrt(columns), np.sqrt(rows), np.sqrt(bounds)
            entries = entries / rows[program.row] / columns[program.column]
            bounds = bounds / own / columns[:bounded]
            scale, row_scale, bound_scale = scale * columns, row_scale * rows, bound_scale * own
        self.bounds, self.bound_scale, self.bounded, self.free = bounds, bound_scale, bounded, free
        data = np.copysign(entries, program.entries) * program.times
        inside = program.column < bounded
        place = program.row[inside], program.column[inside]
        self.matrix: Any
        if row_scale.size * bounded < _SMALL:
            self.matrix = np.zeros((row_scale.size, bounded))
            self.matrix[place] = data[inside]
            self.turned: Any = self.matrix.T
        else:
            self.matrix = csr_array((data[inside], place), shape=(row_scale.size, bounded))
            self.turned = csr_array(self.matrix.T)
        self.rise = np.zeros(row_scale.size)
        self.rise[program.row[~inside]] = data[~inside]
        self.equals = np.concatenate((program.columns, np.ones(free)))
        self.weights = np.concatenate((program.columns, program.rows))
        self.cost = np.concatenate((np.zeros(bounded), -1.0 / scale[bounded:]))
        self.limits = np.concatenate((np.zeros(bounded), program.limits / row_scale))

    def times(self, x: Floats) -> Floats:
        """Return the left sides of bounds and rows."""
        rise = self.rise * x[-1] if self.free else 0.0
        return np.concatenate((-self.bounds * x[: self.bounded], self.matrix @ x[: self.bounded] + rise))

    def turned_times(self, z: Floats) -> Floats:
        """Return the sum of duals of each column."""
        own, rows = np.split(z, [self.bounded])
        return np.concatenate((self.turned @ rows - self.bounds * own, np.full(self.free, self.rise @ rows)))

    def system(self, squares: Floats) -> Callable[[Floats, Floats], tuple[Floats, Floats]]:
        """Return a function that solves ``turned_times(z) = a`` and ``times(x) - squares * z = b`` for x and z."""
        ratio, count = squares[: self.bounded] / self.bounds**2, self.rise.size
        if isinstance(self.matrix, np.ndarray):
            weighted = self.matrix * ratio
        else:
            weighted = self.matrix.copy()
            weighted.data *= ratio[weighted.indices]
        solve_rows = _factored(weighted @ self.turned, squares[self.bounded :], self.rise if self.free else None)

        def solve(a: Floats, b: Floats) -> tuple[Floats, Floats]:
            part = ratio * a[: self.bounded] - b[: self.bounded] / self.bounds
            found = solve_rows(np.concatenate((self.matrix @ part - b[self.bounded :], a[self.bounded :])))
            rows = found[:count]
            x = part - ratio * (self.turned @ rows)
            own = -(self.bounds * x + b[: self.bounded]) / squares[: self.bounded]
            return np.concatenate((x, found[count:])), np.concatenate((own, rows))

        return solve


def _factored(matrix: Any, squares: Floats, rise: Floats | None) -> Callable[[Floats], Floats]:  # noqa: ANN401 - sparse
    """Factor a matrix with this added to its diagonal; the free column, if any, borders it."""
    from scipy.linalg.lapack import dgetrf, dgetrs  # noqa: PLC0415 - slow to import
    from scipy.sparse import block_array, csc_array, diags_array  # noqa: PLC0415 - slow to import
    from scipy.sparse.linalg import splu  # noqa: PLC0415 - slow to import

    count, diagonal = squares.size, squares + _RELATIVE * matrix.diagonal()
    if count < _FEW or matrix.nnz > _DENSE * count * count:
        size = count + (rise is not None)
        dense = np.zeros((size, size), order="F")
        dense[:count, :count] = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
        dense[np.arange(count), np.arange(count)] += diagonal
        if rise is not None:
            dense[:count, count], dense[count, :count] = -rise, rise
        factors, pivots, _ = dgetrf(dense, overwrite_a=True)
        return lambda right: dgetrs(factors, pivots, right)[0]
    whole: Any = matrix + diags_array(diagonal)
    if rise is not None:
        side: Any = csc_array(rise[:, None])
        whole = block_array([[whole, -side], [side.T, None]])
    solve: Any = splu(csc_array(whole)).solve
    return solve  # type: ignore[no-any-return]


def central_columns(program: EqualColumns) -> Floats:
    """Return the values of the bounded columns in the middle of the optimal solutions."""
    found = _compiled_columns(program)
    return _numpy_columns(program) if found is None else found


def _compiled_columns(program: EqualColumns) -> Floats | None:
    """Return the columns as compiled code computes them; ``None`` without such code, or if it declines."""
    bounded, free, rows = program.columns.size, int(program.rising), program.rows.size
    if rows > _MOST_ROWS:
        return None
    order = np.lexsort((program.row, program.column))
    start = np.searchsorted(program.column[order], np.arange(bounded + free + 1))
    room = np.empty(12 * (bounded + rows) + 7 * (bounded + free) + 4 * (bounded + rows) + rows * rows + order.size)
    by_column = (start, program.row[order], program.entries[order], program.times[order])
    arrays = (*by_column, program.limits, program.columns, program.rows, room, found := np.empty(bounded))
    return found if call_compiled("bftrain_central_columns", (bounded, free, rows), arrays) else None


def _numpy_columns(program: EqualColumns) -> Floats:
    scaled = _Scaled(program)
    equals, weights, cost, limits = scaled.equals, scaled.weights, scaled.cost, scaled.limits
    solve = scaled.system(1.0 / weights)
    x, z = solve(np.zeros(equals.size), limits)
    s = _inside(-z / weights)
    z = weights * _inside(solve(-cost, np.zeros(weights.size))[1] / weights)
    tau = kappa = 1.0
    for _ in range(_MOST_STEPS):
        dual_rest, rest = -scaled.turned_times(z) - cost * tau, s + scaled.times(x) - limits * tau
        gap, value, dual = float(s @ z), float(cost @ x), float(limits @ z)
        sizes = (_norm(x, equals) + _norm(s, weights), _norm(z, 1.0 / weights))
        errors = _norm(rest, weights) / max(1.0, _norm(limits, weights) + sizes[0]), _norm(dual_rest, 1.0 / equals)
        errors = errors[0] / tau, errors[1] / max(1.0, _norm(cost, 1.0 / equals) + sizes[1]) / tau
        if max(errors) < _PRECISE and gap < _PRECISE * max(1.0, -value / tau):
            break
        mean = (gap + kappa * tau) / (weights.sum() + 1.0)
        ratio, point = np.sqrt(s / z), np.sqrt(s * z)
        solve = scaled.system(s / z)
        x1, z1 = solve(-cost, limits)
        x2, z2 = solve(dual_rest, s - rest)
        balance = kappa + value + dual
        slope = float(kappa / tau - cost @ x1 - limits @ z1)
        d_tau = float(balance - kappa + cost @ x2 + limits @ z2) / slope
        d_z = ratio * (z2 + d_tau * z1)
        d_s, d_kappa = -d_z - point, -kappa - kappa / tau * d_tau
        length = _length(np.minimum(d_s, d_z) / point, (tau, d_tau), (kappa, d_kappa))
        centering = min(max((1.0 - length) ** 3, 1e-4), 1.0)
        target = (point * point + d_s * d_z - centering * mean * weights) / point
        both = kappa * tau + d_kappa * d_tau - centering * mean
        x2, z2 = solve((1.0 - centering) * dual_rest, ratio * target - (1.0 - centering) * rest)
        d_tau = float((1.0 - centering) * balance - both / tau + cost @ x2 + limits @ z2) / slope
        d_z = ratio * (z2 + d_tau * z1)
        d_s, d_kappa = -target - d_z, -(both + kappa * d_tau) / tau
        if not (np.isfinite(d_tau) and np.isfinite(d_z).all()):
            break  # the range of the numbers allows no more digits
        length = _SHORTER * _length(np.minimum(d_s, d_z) / point, (tau, d_tau), (kappa, d_kappa))
        x, z, s = x + length * (x2 + d_tau * x1), z + length * d_z / ratio, s + length * ratio * d_s
        tau, kappa = tau + length * d_tau, kappa + length * d_kappa
    columns: Floats = s[: scaled.bounded] * scaled.bound_scale / tau
    return columns


def _inside(values: Floats) -> Floats:
    """Shift values above 0."""
    return values + (1.0 + max(-0.99, -float(values.min())))


def _norm(values: Floats, weights: Floats) -> float:
    return float(np.sqrt(weights @ (values * values)))


def _length(changes: Floats, *others: tuple[float, float]) -> float:
    """Return the step length for relative changes of positive values."""
    steepest = max(-float(changes.min()), *(-change / value for value, change in others))
    return min(_FARTHEST, 1.0 / steepest) if steepest > 0.0 else _FARTHEST
