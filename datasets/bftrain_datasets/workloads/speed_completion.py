"""Fill in speeds at unmeasured sizes from reference models: a low-rank matrix in logarithms.

Like Gavel's estimator (Narayanan et al., OSDI 2020), this completes a table of a few measured jobs from reference jobs.
The model: the logarithm of the speed of model ``m`` at size ``s`` is ``a[m] + b[s] + u[m] v[s]``. The terms are the
model's base speed, the average scaling, and the model's deviation from this scaling. Alternating least squares find the
numbers; a small penalty on ``u`` and ``v`` gives models with a single measured size the average scaling.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SWEEPS: Final = 100
_PENALTY: Final = 0.3


def completed(table: Floats, scale: Floats) -> Floats:
    """Fill in the NaN of ``table``; ``scale`` is the initial estimate of the models' scaling."""
    known = ~np.isnan(table)
    by_column = np.where(known, table, 0.0)
    v = scale - scale.mean()
    v /= np.sqrt((v**2).mean()) or 1.0
    a, u = np.zeros(len(table)), np.zeros(len(table))
    b = scale.copy()
    for _ in range(_SWEEPS):
        a, u = _fitted(by_column - b, known, v)
        b, v = _fitted((by_column - a[:, None]).T, known.T, u)
        spread = np.sqrt((v**2).mean())
        if spread > 0.0:  # normalise v, because only the product of u and v is determined
            v, u = v / spread, u * spread
    filled: Floats = np.where(known, table, a[:, None] + b + np.outer(u, v))
    return filled


def _fitted(left: Floats, known: NDArray[np.bool_], slope: Floats) -> tuple[Floats, Floats]:
    """Fit ``offset + factor * slope`` to the known part of each row of ``left``, with a penalty on the factor."""
    weight = known.astype(np.float64)
    count = np.maximum(weight.sum(axis=1), 1.0)
    mean_left, mean_slope = (weight * left).sum(axis=1) / count, weight @ slope / count
    of_slope = slope - mean_slope[:, None]
    factor = (weight * of_slope * (left - mean_left[:, None])).sum(axis=1)
    factor /= (weight * of_slope**2).sum(axis=1) + _PENALTY
    return mean_left - factor * mean_slope, factor
