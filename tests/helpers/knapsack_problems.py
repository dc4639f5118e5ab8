"""Random problems for the two knapsacks: alike rows, ties, holes, losses, extreme numbers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class KnapsackProblem(NamedTuple):
    """The arguments of ``best_sizes``."""

    values: Floats
    present: list[int]
    pool: int


def random_problem(rng: np.random.Generator) -> KnapsackProblem:
    """Draw a problem that is small enough for thousands of them."""
    rows, width = int(rng.integers(1, 40)), int(rng.integers(1, 34))
    kinds = int(rng.integers(1, rows + 1))
    curves = np.cumsum(_steps(rng, kinds, width), axis=1)
    if rng.random() < 0.8:
        curves -= curves[:, :1]
    if rng.random() < 0.2:
        curves *= 10.0 ** float(rng.choice((-310, -290, -20, 12, 280, 300))) / max(1.0, float(np.abs(curves).max()))
    of_row = rng.integers(0, kinds, rows)
    values = curves[of_row]
    pool = int(rng.integers(0, rows * width + 1)) if rng.random() < 0.3 else int(rng.integers(0, rows * 4 + 2))
    present = _present(rng, rows, width, pool)
    values = _with_costs(rng, values, present)
    return KnapsackProblem(values, present, pool)


def _steps(rng: np.random.Generator, rows: int, width: int) -> Floats:
    shape = (rows, width)
    found: Floats
    match int(rng.integers(6)):
        case 0:
            found = np.repeat(rng.integers(1, 4, (rows, 1)), width, axis=1).astype(np.float64)  # straight
        case 1:
            found = -np.sort(-rng.exponential(1.0, shape), axis=1)  # bent
        case 2:
            found = -np.sort(-rng.integers(0, 6, shape), axis=1).astype(np.float64)
        case 3:
            found = rng.integers(-2, 5, shape).astype(np.float64)  # rough, and losses
        case 4:
            found = rng.exponential(1.0, shape) * 10.0 ** rng.uniform(-9, 9, (rows, 1))
        case _:
            found = rng.integers(0, 2, shape) * 2.0 ** rng.integers(-30, 30, (rows, 1))
    return found


def _present(rng: np.random.Generator, rows: int, width: int, pool: int) -> list[int]:
    found, left = [0] * rows, pool
    if rng.random() < 0.2:
        return rng.integers(0, 2 * width, rows).tolist()  # more than there is, or than the table covers
    for row in rng.permutation(rows).tolist():
        found[row] = min(left, int(rng.integers(0, width))) if rng.random() < 0.6 else 0
        left -= found[row]
    return found


def _with_costs(rng: np.random.Generator, values: Floats, present: list[int]) -> Floats:
    """Take a cost off where the size changes, and forbid some sizes, but never 0."""
    found = values.copy()
    if rng.random() < 0.7:
        cost = float(rng.integers(0, 4)) * (10.0**9 if rng.random() < 0.1 else 1.0) * float(np.abs(values).max()) / 20.0
        for row, held in enumerate(present):
            if held and rng.random() < 0.9:
                stays = found[row, held] if held < found.shape[1] else 0.0
                found[row] -= cost
                if held < found.shape[1]:
                    found[row, held] = stays
    if rng.random() < 0.3:
        holes = rng.random(found.shape) < 0.3
        holes[:, 0] = False
        found[holes] = -np.inf
    return found
