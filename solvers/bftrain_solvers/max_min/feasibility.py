"""Decides whether one option for each task fits the resources.

Resources are the nodes of each kind, and the open places at a low level (:mod:`bftrain_solvers.max_min.several_kinds`).
Most requests are decided by changing a few options of the last answer, or by prices: if the cheapest options of all
tasks cost more than all resources, no choice fits. Otherwise the options that the known prices leave are enumerated if
they are few. Otherwise a linear programme gives new prices; if these do not decide, the remaining options are
enumerated or, if there are too many, an integer programme is solved.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import prod
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain_solvers.arrays import Floats, Integers, Mask

IMPOSSIBLE_USE: Final = 2**40  # use of a resource by an option that does not exist
_ROUNDING: Final = 1e-9  # relative: smaller gains, and smaller margins of proofs by prices, do not count
_MOST_PRICES: Final = 64  # latest prices that are tried for a proof
_SOON: Final = 1_000_000  # limit of an enumeration before a linear programme
_LARGEST: Final = 4_000_000  # limit of an enumeration before an integer programme
_TOO_MANY: Final = 2**30  # number of nodes that stands for infeasible
_OPTIMAL: Final = 0  # status of linprog
_INFEASIBLE: Final = 2  # status of milp


class FeasibilityUnknown(Exception):
    """Whether all tasks fit was not decided: out of time, or the solver gave no usable answer."""


class CountTooLarge(Exception):
    """The enumeration is too large."""


@dataclass(frozen=True, slots=True)
class ResourceDemands:
    """``uses[task, option, resource]`` and ``limits``, the amount of each resource."""

    uses: Integers
    limits: Integers

    def over(self, chosen: Integers) -> Integers:
        """Return the excess of each resource's use over its limit."""
        taken: Integers = self.uses[np.arange(len(self.uses)), chosen].sum(axis=0) - self.limits
        return taken

    def feasible_alone(self) -> Mask:
        """Return a mask of the options that fit individually."""
        fit: Mask = np.all(self.uses <= self.limits, axis=2)
        return fit

    def least_cost(self, by_prices: Floats) -> Floats:
        """Return the total cost of the cheapest options, at the prices in each column."""
        costs = np.where(self.feasible_alone()[:, :, None], self.uses @ by_prices, np.inf)
        least: Floats = costs.min(axis=1).sum(axis=0)
        return least

    def priced_out(self, prices: Sequence[Floats]) -> bool:
        """Return whether at any of these prices the cheapest options cost more than all resources."""
        known = [each for each in prices if each.size == self.limits.size]
        if not known:
            return False
        by_prices = np.array(known).T
        return bool((self.least_cost(by_prices) > (self.limits @ by_prices) * (1.0 + _ROUNDING)).any())


@dataclass
class FeasibleOptions:
    """Options ``chosen`` that fit ``needs``, updated by :meth:`ask`."""

    needs: ResourceDemands
    chosen: Integers
    stop_at: float
    prices: list[Floats] = field(default_factory=list)

    def ask(self, needs: ResourceDemands) -> bool:
        """Return whether all tasks fit; if so ``needs`` and the options are stored."""
        if perf_counter() > self.stop_at:
            raise FeasibilityUnknown
        chosen = self._found(needs)
        if chosen is None:
            return False
        self.needs, self.chosen = needs, chosen
        return True

    def excluded(self, needs: ResourceDemands) -> bool:
        """Return whether the known prices prove that not all tasks fit."""
        return not needs.feasible_alone().any(axis=1).all() or needs.priced_out(self.prices)

    def _found(self, needs: ResourceDemands) -> Integers | None:
        mended = _improved_by_single_changes(needs, self.chosen, self.stop_at)
        if (needs.over(mended) <= 0).all():
            return mended
        if self.excluded(needs):
            return None
        if (known := tightest_prices(needs, self.prices)) is not None:
            with suppress(CountTooLarge):
                return enumerated_options(needs, useful_options(needs, known), _SOON)
        prices, likely = relaxed(needs)
        self.prices = [*self.prices[1 - _MOST_PRICES :], prices]
        if needs.priced_out([prices]):
            return None
        mended = _improved_by_single_changes(needs, likely, self.stop_at)
        if (needs.over(mended) <= 0).all():
            return mended
        matter = useful_options(needs, prices)
        with suppress(CountTooLarge):
            return enumerated_options(needs, matter, _LARGEST)
        return whole(needs, matter, self.stop_at)


def _improved_by_single_changes(needs: ResourceDemands, chosen: Integers, stop_at: float) -> Integers:
    """Change one option at a time, always the option that most reduces the overuse.

    Raises :class:`FeasibilityUnknown` after ``stop_at``.
    """
    chosen, rows, weights = chosen.copy(), np.arange(len(needs.uses)), 1.0 / np.maximum(needs.limits, 1)
    over = needs.over(chosen)
    lacking = float(np.maximum(over, 0) @ weights)
    while lacking > 0.0:
        if perf_counter() > stop_at:
            raise FeasibilityUnknown
        then = np.maximum(over + needs.uses - needs.uses[rows, chosen][:, None, :], 0) @ weights
        row, option = np.unravel_index(int(then.argmin()), then.shape)
        if then[row, option] >= lacking * (1.0 - _ROUNDING):
            break
        over = over + needs.uses[row, option] - needs.uses[row, chosen[row]]
        chosen[row], lacking = option, float(then[row, option])
    return chosen


def tightest_prices(needs: ResourceDemands, prices: Sequence[Floats]) -> Floats | None:
    """Return the prices at which the cheapest options of all tasks leave the smallest budget."""
    known = [each for each in prices if each.size == needs.limits.size and (each @ needs.limits) > 0.0]
    if not known:
        return None
    return known[int(needs.least_cost(np.array(known).T / (np.array(known) @ needs.limits)).argmax())]


def useful_options(needs: ResourceDemands, prices: Floats) -> Mask:
    """Return a mask of the options that a fitting choice may contain.

    At any prices, the cost of a fitting choice is limited by the price of all resources. An option therefore cannot
    exceed the cheapest option of its task by more than the budget that remains after all cheapest options.
    """
    costs = np.where(needs.feasible_alone(), needs.uses @ prices, np.inf)
    least, there_is = costs.min(axis=1), float(needs.limits @ prices)
    matter: Mask = costs - least[:, None] <= there_is - float(least.sum()) + _ROUNDING * there_is
    return matter


def enumerated_options(needs: ResourceDemands, matter: Mask, largest: int) -> Integers | None:
    """Return fitting options among those in ``matter``, by enumeration; ``None`` if no choice fits.

    Task by task, compute the fewest nodes of one kind for every use of the other resources. The number of computed
    values is limited to ``largest``.
    """
    if not matter.any(axis=1).all():
        return None
    chosen: Integers = matter.argmax(axis=1)
    rows = np.flatnonzero(matter.sum(axis=1) > 1)
    fixed = np.flatnonzero(matter.sum(axis=1) == 1)
    limits = needs.limits - needs.uses[fixed, chosen[fixed]].sum(axis=0)
    if (limits < 0).any():
        return None
    last = int(limits.argmax())
    others = np.delete(limits, last)
    if prod((others + 1).tolist()) * int(matter[rows].sum()) > largest:
        raise CountTooLarge
    choices = []
    least = np.zeros(tuple((others + 1).tolist()), dtype=np.int32)  # last resource, by use of the other resources
    for row in rows.tolist():
        options = np.flatnonzero(matter[row])
        least, choice = _one_more(least, needs.uses[row, options], last)
        choices.append((row, options, choice))
    if int(least.flat[-1]) > limits[last]:
        return None
    at = others
    for row, options, choice in reversed(choices):
        chosen[row] = options[choice[tuple(at.tolist())]]
        at = at - np.delete(needs.uses[row, chosen[row]], last)
    return chosen


def _one_more(least: NDArray[np.int32], uses: Integers, last: int) -> tuple[NDArray[np.int32], NDArray[np.int16]]:
    """Add one more task with any of its options; return also the option of that task."""
    best = np.full_like(least, _TOO_MANY)
    choice = np.zeros(least.shape, dtype=np.int16)
    for number, use in enumerate(uses):
        taken = np.delete(use, last).tolist()
        if any(nodes >= width for nodes, width in zip(taken, least.shape, strict=True)):
            continue
        then = tuple(slice(nodes, None) for nodes in taken)
        before = tuple(slice(0, width - nodes) for nodes, width in zip(taken, least.shape, strict=True))
        tried = np.minimum(least[before] + np.int32(use[last]), _TOO_MANY)
        better = tried < best[then]
        best[then] = np.where(better, tried, best[then])
        choice[then][better] = number
    return best, choice


def relaxed(needs: ResourceDemands) -> tuple[Floats, Integers]:
    """Solve the relaxation: return its dual prices, and the option with the largest fraction of each task."""
    from scipy.optimize import linprog  # noqa: PLC0415 - slow to import
    from scipy.sparse import csr_array  # noqa: PLC0415 - slow to import

    task, option = np.nonzero(needs.feasible_alone())
    some = needs.limits > 0
    parts = needs.uses[task, option][:, some] / needs.limits[some]
    entry, resource = np.nonzero(parts)
    count, several, tasks = task.size, int(some.sum()), len(needs.uses)
    data = np.concatenate((parts[entry, resource], -np.ones(several)))
    where = (np.concatenate((resource, np.arange(several))), np.concatenate((entry, np.full(several, count))))
    solve: Any = linprog  # its type hints lack sparse arrays
    found = solve(
        np.append(np.zeros(count), 1.0),  # the largest used fraction of a resource
        A_ub=csr_array((data, where), shape=(several, count + 1)),
        b_ub=np.zeros(several),
        A_eq=csr_array((np.ones(count), (task, np.arange(count))), shape=(tasks, count + 1)),
        b_eq=np.ones(tasks),
        method="highs-ds",
    )
    if found.status != _OPTIMAL:
        raise FeasibilityUnknown
    prices = np.zeros(needs.limits.size)
    prices[some] = np.maximum(-found.ineqlin.marginals, 0.0) / needs.limits[some]
    shares = np.zeros(needs.uses.shape[:2])
    shares[task, option] = found.x[:-1]
    return prices, shares.argmax(axis=1)


def whole(needs: ResourceDemands, matter: Mask, stop_at: float) -> Integers | None:
    """Return fitting options among those in ``matter``, by an integer programme; ``None`` if no choice fits."""
    from scipy.optimize import Bounds, LinearConstraint, milp  # noqa: PLC0415 - slow to import
    from scipy.sparse import csr_array, vstack  # noqa: PLC0415 - slow to import

    left_s = stop_at - perf_counter()
    if left_s <= 0.0:
        raise FeasibilityUnknown
    task, option = np.nonzero(matter)
    count, tasks, resources = task.size, len(needs.uses), needs.limits.size
    capacity: Any = csr_array(needs.uses[task, option].T.astype(np.float64))
    one: Any = csr_array((np.ones(count), (task, np.arange(count))), shape=(tasks, count))
    least = np.concatenate((np.full(resources, -np.inf), np.ones(tasks)))
    most = np.concatenate((needs.limits.astype(np.float64), np.ones(tasks)))
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
    shares[task, option] = found.x
    chosen: Integers = shares.argmax(axis=1)
    if (needs.over(chosen) > 0).any():
        raise FeasibilityUnknown
    return chosen
