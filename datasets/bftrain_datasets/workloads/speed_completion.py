"""Fill in speeds at unmeasured sizes from reference models: a low-rank matrix in logarithms.

Like Gavel's estimator (Narayanan et al., OSDI 2020), this completes a table of a few measured jobs from reference jobs.
The model: the logarithm of the speed of model ``m`` at size ``s`` is ``a[m] + b[s] + u[m] v[s]``. The terms are the
model's base speed, the average scaling, and the model's deviation from this scaling. Alternating least squares find the
numbers; a small penalty on ``u`` and ``v`` gives models with a single measured size the average scaling.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.taskfiles.records import Profile
from bftrain.values.curve import SpeedCurve

Floats = NDArray[np.float64]

_SWEEPS: Final = 100
_PENALTY: Final = 0.3


def completed_profiles(few: Iterable[Profile], references: Sequence[Profile]) -> tuple[Profile, ...]:
    """Return ``few`` with a speed at all sizes of the ``references``; measured speeds stay unchanged."""
    few = tuple(few)
    sizes = sorted({size for each in references for size in each.curve.nodes})
    rows = [_logarithms(each.curve, sizes, between=True) for each in references]
    rows += [_logarithms(each.curve, sizes, between=False) for each in few]
    for each, row in zip(few, rows[len(references) :], strict=True):
        if np.isnan(row).all():
            what = f"model '{each.name}' was measured at no size of the models to complete it from"
            raise BadInput(what, where="--complete-from", fix=f"measure it at one of {', '.join(map(str, sizes))}")
    table = completed(np.array(rows), np.log(sizes))
    found = []
    for each, row in zip(few, np.exp(table[len(references) :]).tolist(), strict=True):
        points = dict(zip(sizes, row, strict=True)) | dict(zip(each.curve.nodes, each.curve.rate, strict=True))
        curve = SpeedCurve(nodes=tuple(sorted(points)), rate=tuple(points[size] for size in sorted(points)))
        note = f"{each.source}; other sizes completed from {len(references)} models".removeprefix("; ")
        found.append(replace(each, curve=curve, source=note))
    return tuple(found)


def _logarithms(curve: SpeedCurve, sizes: Sequence[int], *, between: bool) -> Floats:
    """Return the logarithm of the speed at each size, NaN if not measured; ``between`` also interpolates."""
    known = range(curve.nodes[0], curve.last_measured + 1) if between else curve.nodes
    speeds = [curve.speed(size) if size in known else 0.0 for size in sizes]
    return np.array([np.log(speed) if speed > 0.0 else np.nan for speed in speeds])


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
