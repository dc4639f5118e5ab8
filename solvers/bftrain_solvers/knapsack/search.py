"""The search for the best sizes: price, core, division; repeated until the core is certain to hold the best plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain.errors import Fault
from bftrain_solvers.knapsack.core import core_of, fewer_stages
from bftrain_solvers.knapsack.grid import grid_of
from bftrain_solvers.knapsack.price import priced
from bftrain_solvers.knapsack.stages import KnapsackTimeout, SearchBounds, best_division, least_loss

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_solvers.knapsack.grid import ValueGrid
    from bftrain_solvers.knapsack.price import NodePrice

_FIRST_CORE: Final = 32  # sizes with a loss in the first core; measured: enough for most problems
_GROWTH: Final = 4


@dataclass(frozen=True, slots=True)
class KnapsackResult:
    """Sizes in the order of the rows. ``bound`` is ``None`` if they are proven best, else no plan has more."""

    sizes: list[int]
    bound: float | None


def best_sizes(values: NDArray[np.float64], present: NDArray[np.int64], pool: int, stop_at: float) -> KnapsackResult:
    """Choose a size in each row of ``values`` with a sum of at most ``pool``.

    Largest sum; of equal ones the fewest sizes that differ from ``present``, then the fewest nodes, then the
    larger size in the first row in which they differ. After ``stop_at`` what is known is returned.
    """
    grid = grid_of(values, present, [pool])
    wanted = grid.entries.argmax(axis=1)
    if int(wanted.sum()) <= pool:
        return KnapsackResult(wanted.tolist(), None)
    at_price = priced(grid, wanted, pool)
    sizes = _filled(at_price, pool)
    try:
        return KnapsackResult(_best(at_price, pool, _loss_nearby(at_price, sizes, pool), stop_at), None)
    except KnapsackTimeout:
        return KnapsackResult(sizes.tolist(), _bound(grid, at_price, pool))


def _filled(at_price: NodePrice, pool: int) -> NDArray[np.int64]:
    """Sizes without a loss, the larger ones for the first rows; what remains idle is less than one such step."""
    steps = at_price.most - at_price.least
    sizes = at_price.least.copy()
    free = pool - int(sizes.sum())
    upto = int(np.searchsorted(steps.cumsum(), free, side="right"))  # so many whole steps fit
    sizes[:upto] = at_price.most[:upto]
    return sizes


def _loss_nearby(at_price: NodePrice, sizes: NDArray[np.int64], pool: int) -> int:
    """Smallest loss of ``sizes``, which lose nothing but idle nodes, and of what changing one of them leads to."""
    losses = at_price.losses
    idle = pool - int(sizes.sum())
    idle_then = idle + sizes[:, None] - np.arange(losses.shape[1])
    total = losses + at_price.rise * idle_then
    return int(total.min(where=idle_then >= 0, initial=at_price.rise * idle))


def _best(at_price: NodePrice, pool: int, known: int, stop_at: float) -> list[int]:
    """Find the plan that the rules for ties prefer, out of all that lose least; ``known`` is the loss of some plan.

    A core with all sizes that lose at most as much as some plan does has all the best plans in it. So grow the
    core until it yields a plan that good.
    """
    losses = at_price.losses
    candidates = losses[(losses > 0) & (losses <= known)]
    size = _FIRST_CORE
    while True:
        cutoff = known
        if size < candidates.size:
            cutoff = min(cutoff, int(np.partition(candidates, size - 1)[size - 1]))
        core = core_of(losses, cutoff)
        room = SearchBounds(pool - int(core.least.sum()), at_price.rise, known, stop_at)
        fewer = fewer_stages(core.stages, cutoff) if known else None
        if fewer is not None:
            known = least_loss(fewer, room)
            if known <= cutoff:  # now with all stages, but no size that loses more
                core = core_of(losses, known)
                room = SearchBounds(pool - int(core.least.sum()), at_price.rise, known, stop_at)
                fewer = None
        if fewer is None:
            division = best_division(core.stages, room)
            if division is None and cutoff >= known:
                raise Fault("a core that holds a plan yielded none", where="solver 'exact'")
            known = known if division is None else division[0]
            if division is not None and known <= cutoff:
                sizes = core.least.copy()
                sizes[core.rows] += np.array(division[1], dtype=np.int64)
                return [int(each) for each in sizes]
        candidates = candidates[candidates <= known]
        size = _GROWTH * int((candidates <= cutoff).sum())


def _bound(grid: ValueGrid, at_price: NodePrice, pool: int) -> float:
    """No plan has more than all rows at their best with nodes paid for, and the whole pool's price."""
    row = np.arange(len(grid.entries))
    best = grid.entries[row, at_price.least].sum()
    paid = at_price.rise / at_price.run * (pool - float(at_price.least.sum()))
    return float((best + paid) / grid.weight * grid.unit) + grid.raised
