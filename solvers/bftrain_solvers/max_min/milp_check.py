"""Decide feasibility of demands by a linear programme, and by one in whole numbers where that is not enough."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_solvers.max_min.demands import ResourceDemands

    Numbers = NDArray[np.int64]
    Floats = NDArray[np.float64]

_OPTIMAL: Final = 0  # as linprog says it
_INFEASIBLE: Final = 2  # as milp says it


class FeasibilityUnknown(Exception):
    """Whether all find room was not found out in time."""


def relaxed(needs: ResourceDemands) -> tuple[Floats, Numbers]:
    """Allow parts of options: return the prices at which these are dearest, and the largest part of every task."""
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to import
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import

    place, option = np.nonzero(needs.there())
    some = needs.limits > 0
    parts = needs.uses[place, option][:, some] / needs.limits[some]
    entry, resource = np.nonzero(parts)
    count, several, people = place.size, int(some.sum()), len(needs.uses)
    data = np.concatenate((parts[entry, resource], -np.ones(several)))
    where = (np.concatenate((resource, np.arange(several))), np.concatenate((entry, np.full(several, count))))
    solve: Any = linprog  # its types do not know that arrays may be sparse
    found = solve(
        np.append(np.zeros(count), 1.0),  # the largest part of any resource that is taken
        A_ub=csr_array((data, where), shape=(several, count + 1)),
        b_ub=np.zeros(several),
        A_eq=csr_array((np.ones(count), (place, np.arange(count))), shape=(people, count + 1)),
        b_eq=np.ones(people),
        method="highs-ds",
    )
    if found.status != _OPTIMAL:
        raise FeasibilityUnknown
    prices = np.zeros(needs.limits.size)
    prices[some] = np.maximum(-found.ineqlin.marginals, 0.0) / needs.limits[some]
    shares = np.zeros(needs.uses.shape[:2])
    shares[place, option] = found.x[:-1]
    return prices, shares.argmax(axis=1)


def whole(needs: ResourceDemands, matter: NDArray[np.bool_], stop_at: float) -> Numbers | None:
    """Look for options that fit, of those that ``matter``; ``None`` if there are none."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to import
    from scipy.sparse import csr_array, vstack  # noqa: PLC0415 - slow to import

    left_s = stop_at - perf_counter()
    if left_s <= 0.0:
        raise FeasibilityUnknown
    place, option = np.nonzero(matter)
    count, people, resources = place.size, len(needs.uses), needs.limits.size
    capacity: Any = csr_array(needs.uses[place, option].T.astype(np.float64))
    one: Any = csr_array((np.ones(count), (place, np.arange(count))), shape=(people, count))
    least = np.concatenate((np.full(resources, -np.inf), np.ones(people)))
    most = np.concatenate((needs.limits.astype(np.float64), np.ones(people)))
    found = milp(
        np.zeros(count),
        integrality=np.ones(count, dtype=np.int64),
        bounds=Bounds(0.0, 1.0),
        constraints=LinearConstraint(vstack((capacity, one)), least, most),
        options={"time_limit": left_s},
    )
    if found.status == _INFEASIBLE:
        return None
    if found.x is None:
        raise FeasibilityUnknown
    shares = np.zeros(needs.uses.shape[:2])
    shares[place, option] = found.x
    chosen: Numbers = shares.argmax(axis=1)
    if (needs.over(chosen) > 0).any():
        raise FeasibilityUnknown
    return chosen
