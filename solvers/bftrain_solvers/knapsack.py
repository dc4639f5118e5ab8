"""The multiple-choice knapsack over sizes, solved exactly in whole numbers.

Words used here: an *entry* is a row's number at a size; the *price* of a node is what it must earn; the *loss* of a
size is how far it stays behind the row's best size once nodes are paid for. With a good price, at which the tasks want
as many nodes as there are, almost every size loses more than can be made good again, and what is left, the *core*, is
small. It is divided by dynamic programmes over stages, and grows until it is certain to hold the best plan. A *stage*
is a task, or several alike: pairs of (nodes above the least, loss).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final

import numpy as np

from bftrain.errors import Fault
from bftrain_solvers.answers import DeadlinePassed
from bftrain_solvers.arrays import Floats, Integers
from bftrain_solvers.value_grid import NEVER, ValueGrid, grid_of

Stage = tuple[list[int], list[int]]  # nodes above the least, rising; loss of each

_QUICK_TRIES: Final = 20
_MOST_TRIES: Final = 100_000  # each try raises or lowers the price past a bend of some row: there are fewer
_FIRST_CORE: Final = 32  # sizes with a loss in the first core; measured: enough for most problems
_GROWTH: Final = 4
_FEW_ALIKE: Final = 3
_MOST_FREE: Final = 64
_FEW_SIZES: Final = 3
_LARGEST_SHEET: Final = 200_000  # numbers; beyond that a sheet falls out of the processor's cache


@dataclass(frozen=True, slots=True)
class NodePrice:
    """The price is ``rise / run`` per node; losses are multiplied by ``run`` so that they are whole numbers.

    ``least`` and ``most`` are the smallest and largest sizes without a loss; the pool lies between their sums.
    """

    rise: int
    run: int
    losses: Integers
    least: Integers
    most: Integers


def priced(grid: ValueGrid, wanted: Integers, pool: int) -> NodePrice:
    """Find the price and the losses at it. ``wanted`` are the sizes wanted for nothing; their sum is above ``pool``."""
    fewest = np.zeros(len(wanted), dtype=np.int64) if grid.allowed is None else grid.allowed.argmax(axis=1)
    low, high = _bracket(grid.entries, wanted, fewest, pool)
    found = _exact(grid, low, high, pool, _QUICK_TRIES)
    if found is None:  # the bracket came out of rounded numbers: start again from one that is certain
        found = _exact(grid, wanted, fewest, pool, _MOST_TRIES)
    if found is None:
        raise Fault("no price was found at which the tasks want what there is", where="solver 'exact'")
    return found


def _bracket(entries: Floats, low: Integers, high: Integers, pool: int) -> tuple[Integers, Integers]:
    """Close in, in floating point, on the sizes wanted just below (too many) and just above the price.

    The price tried next is where the two lines meet that the sizes known so far put under the best total.
    """
    rows, width = entries.shape
    row = np.arange(rows)
    sizes = np.arange(width, dtype=np.float64)
    low_nodes, low_value = int(low.sum()), float(entries[row, low].sum())
    high_nodes, high_value = int(high.sum()), float(entries[row, high].sum())
    paid = np.empty_like(entries)
    while True:
        price = (low_value - high_value) / (low_nodes - high_nodes)
        np.subtract(entries, price * sizes, out=paid)
        best = paid.argmax(axis=1)
        nodes = int(best.sum())
        if not high_nodes < nodes < low_nodes:
            return low, high
        value = float(entries[row, best].sum())
        if value - low_value <= price * (nodes - low_nodes) + 1e-15 * abs(low_value):
            return low, high
        if nodes > pool:
            low, low_nodes, low_value = best, nodes, value
        else:
            high, high_nodes, high_value = best, nodes, value


def _exact(grid: ValueGrid, low: Integers, high: Integers, pool: int, tries: int) -> NodePrice | None:
    """Close in on the price in whole numbers; each try takes the slope of one row between its two sizes."""
    whole, sizes = grid.whole, np.arange(grid.entries.shape[1])
    for _ in range(tries):
        rows = np.flatnonzero(low > high)
        if rows.size == 0:
            return None
        # Rise and run of the row whose slope between the two sizes is nearest to that of all rows together
        runs = low[rows] - high[rows]
        rises = whole[rows, low[rows]] - whole[rows, high[rows]]
        overall = float(rises.sum(dtype=np.float64)) / float(runs.sum())
        nearest = int(np.abs(rises / runs - overall).argmin())
        rise, run = int(rises[nearest]), int(runs[nearest])
        paid = whole * run
        paid -= rise * sizes
        if grid.allowed is not None:
            np.copyto(paid, -NEVER, where=~grid.allowed)
        losses: Integers = np.subtract(paid.max(axis=1, keepdims=True), paid, out=paid)
        least = losses.argmin(axis=1)
        if int(least.sum()) > pool:
            low = least
            continue
        most = sizes[-1] - losses[:, ::-1].argmin(axis=1)
        if int(most.sum()) < pool:
            high = most
            continue
        return NodePrice(rise, run, losses, least, most)
    return None


def core_of(losses: Integers, cutoff: int) -> tuple[Integers, Integers, list[Stage]]:
    """Keep the sizes that lose at most ``cutoff``: the least of each row, and the stages of rows that have more."""
    row, size = (losses <= cutoff).nonzero()
    left = np.bincount(row, minlength=len(losses))
    ends = left.cumsum()
    begins = ends - left
    least = size[begins]
    rows = (left > 1).nonzero()[0]
    nodes = (size - least[row]).tolist()
    loss = losses[row, size].tolist()
    stages = [(nodes[a:b], loss[a:b]) for a, b in zip(begins[rows].tolist(), ends[rows].tolist(), strict=True)]
    return least, rows, stages


def fewer_stages(stages: list[Stage], cutoff: int) -> list[Stage] | None:
    """Fewer stages, which allow only divisions that the given ones allow too, and hardly miss a good one.

    Tasks with the same losses fill up the smallest size ``a`` and the largest ``b`` that lose nothing. Only few of
    them have another size in a good plan, because it loses something, or because several such are as good as
    several at ``a`` and ``b``. So a few keep all their sizes; the others are at ``a`` or ``b``, in bundles of
    1, 2, 4, ... tasks. ``None`` if there are no such many alike.
    """
    if len(stages) <= _FEW_ALIKE:
        return None
    alike = Counter((tuple(nodes), tuple(losses)) for nodes, losses in stages)
    if max(alike.values()) <= _FEW_ALIKE:
        return None
    found: list[Stage] = []
    for (at, losing), count in alike.items():
        stage = (list(at), list(losing))
        lossless = [node for node, loss in zip(at, losing, strict=True) if loss == 0]
        a, b = lossless[0], lossless[-1]
        others = [loss for node, loss in zip(at, losing, strict=True) if node not in (a, b)]
        free = count if count <= _FEW_ALIKE else min(count, _free(others, b - a, cutoff))
        found.extend([stage] * free)
        found.extend(_bundles(a, b, count - free))
    return found


def _free(others: list[int], span: int, cutoff: int) -> int:
    """How many of many tasks alike may be at a size other than ``a`` and ``b``."""
    if not others:
        return 0
    by_span = span - 1 if span > 1 else _MOST_FREE
    return by_span if min(others) == 0 else min(by_span, cutoff // min(others))


def _bundles(a: int, b: int, count: int) -> list[Stage]:
    if a == b:
        return [([a * count], [0])] if count else []
    found: list[Stage] = []
    size = 1
    while count > 0:
        size = min(size, count)
        found.append(([a * size, b * size], [0, 0]))
        count -= size
        size *= 2
    return found


@dataclass(frozen=True, slots=True)
class SearchBounds:
    """What is to be divided: ``nodes`` above the minimum of every task, each unused one losing ``idle_loss``.

    No division with a loss above ``cutoff`` is of interest; ``stop_at`` is a time of ``perf_counter``.
    """

    nodes: int
    idle_loss: int
    cutoff: int
    stop_at: float


# ``losses, low`` by stage: ``losses[i]`` is the smallest loss of it and all later ones if they take ``low + i`` nodes
LossTables = list[tuple[Integers, int]]


def least_loss(stages: Sequence[Stage], room: SearchBounds) -> int:
    """Smallest loss of any division, at most the cutoff."""
    tables = _tables(stages, room)
    return room.cutoff if tables is None else min(room.cutoff, int(_with_idle(tables, room).min()))


def best_division(stages: Sequence[Stage], room: SearchBounds) -> tuple[int, list[int]] | None:
    """Smallest loss, and of the divisions that have it the one with fewest nodes whose earlier stages get more.

    ``None``: no division loses as little as the cutoff.
    """
    if room.cutoff == 0 and all(nodes[-1] == len(nodes) - 1 for nodes, _ in stages):
        # If no number of nodes loses anything, to fill the stages up one after the other is as good as any division
        free, taken = room.nodes, []
        for nodes, _ in stages:
            taken.append(min(free, nodes[-1]))
            free -= taken[-1]
        return 0, taken
    # Of tasks alike the earlier has at least as many nodes, for to swap two sizes costs nothing: leave out sizes that
    # are too large if the tasks alike before it are to have as many
    seen: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
    falling = []
    for nodes, losses in stages:
        key = (tuple(nodes), tuple(losses))
        seen[key] += 1
        kept = bisect_right(nodes, room.nodes // seen[key])
        falling.append((nodes[:kept], losses[:kept]))
    tables = _tables(falling, room, all_alike=len(seen) == 1)
    if tables is None:
        return None
    total = _with_idle(tables, room)
    place = int(total.argmin())
    if total[place] > room.cutoff:
        return None
    return int(total[place]), _retraced(falling, tables, tables[0][1] + place)


def _with_idle(tables: LossTables, room: SearchBounds) -> Integers:
    first, low = tables[0]
    idle = np.arange(room.nodes - low, room.nodes - low - first.size, -1)
    return first + room.idle_loss * idle


def _tables(stages: Sequence[Stage], room: SearchBounds, *, all_alike: bool = False) -> LossTables | None:
    """Work from the last stage to the first, so that afterwards the first can be served first.

    A table covers only what the stages from it on can take and what those before it can leave; if all tasks are
    alike and none has more than one before it, the last ``n`` of them have no more than ``n`` equal parts.
    ``None``: so many nodes must be used that the stages cannot take them.
    """
    before = [0]  # most nodes that the stages before this one can take
    for nodes, _ in stages:
        before.append(before[-1] + nodes[-1])
    used = room.nodes - min(room.nodes, room.cutoff // room.idle_loss)
    lows = [max(0, used - taken) for taken in before]
    highs = [min(room.nodes, before[-1] - taken) for taken in before]
    if lows[-1] > highs[-1]:
        return None
    count = len(stages)
    if all_alike:
        highs = [min(high, room.nodes * (count - stage) // count) for stage, high in enumerate(highs)]
    losses = [np.zeros(1, dtype=np.int64)] * (count + 1)
    for stage in range(count - 1, -1, -1):
        if perf_counter() > room.stop_at:
            raise DeadlinePassed
        losses[stage] = _one_more(
            stages[stage], losses[stage + 1], lows[stage + 1], lows[stage], highs[stage] - lows[stage] + 1
        )
    return list(zip(losses, lows, strict=True))


def _one_more(stage: Stage, later: Integers, later_low: int, low: int, width: int) -> Integers:
    """Table of a stage for ``low`` nodes and the following ones, from the table of the stage after it."""
    nodes, losses = stage
    span = nodes[-1] - nodes[0] + 1
    if _FEW_SIZES < len(nodes) >= span // 2 and span * width <= _LARGEST_SHEET:
        return _by_sheet(stage, later, low - later_low, width)
    found = np.empty(width, dtype=np.int64)
    found.fill(NEVER)
    reach = later.size
    for more, loss in zip(nodes, losses, strict=True):
        shift = later_low + more - low  # the first entry of ``later`` with this size goes there
        start = max(0, shift)
        end = min(width, reach + shift)
        if start < end:
            part, moved = found[start:end], later[start - shift : end - shift]
            np.minimum(part, moved + loss if loss else moved, out=part)
    return found


def _by_sheet(stage: Stage, later: Integers, offset: int, width: int) -> Integers:
    """Do the same at one go: row ``i`` of the sheet is ``later`` moved on by ``nodes[0] + i``."""
    nodes, losses = stage
    first, last = nodes[0], nodes[-1]
    rows = last - first + 1
    loss = np.full((rows, 1), NEVER)
    loss[[node - first for node in nodes], 0] = losses
    # Entry c of row i is later[offset + c - first - i]; pad so that every such place exists
    left = max(0, last - offset)
    right = max(0, offset + width - first - later.size)
    padded = np.empty(left + later.size + right, dtype=np.int64)
    padded.fill(NEVER)
    padded[left : left + later.size] = later
    start = (left + offset - first) * padded.itemsize
    moved = np.ndarray((rows, width), np.int64, padded, start, (-padded.itemsize, padded.itemsize))
    found: Integers = (moved + loss).min(axis=0, initial=NEVER)
    return found


def _retraced(stages: Sequence[Stage], tables: LossTables, nodes: int) -> list[int]:
    """Give every stage, from the first on, the most that still leads to the smallest loss."""
    chosen = []
    for stage, (sizes, losses) in enumerate(stages):
        table, first = tables[stage]
        goal = int(table[nodes - first])
        later, low = tables[stage + 1]
        for size, loss in zip(reversed(sizes), reversed(losses), strict=True):
            place = nodes - size - low
            if 0 <= place < later.size and int(later[place]) + loss == goal:
                chosen.append(size)
                nodes -= size
                break
    return chosen


@dataclass(frozen=True, slots=True)
class KnapsackResult:
    """Sizes in the order of the rows. ``bound`` is ``None`` if they are proven best, else no plan has more."""

    sizes: list[int]
    bound: float | None


def best_sizes(values: Floats, present: Integers, pool: int, stop_at: float) -> KnapsackResult:
    """Choose a size in each row of ``values`` with a sum of at most ``pool``.

    Largest sum; of equal ones the fewest sizes that differ from ``present``, then the fewest nodes, then the
    larger size in the first row in which they differ. After ``stop_at`` what is known is returned.
    """
    grid = grid_of(values, present, [pool], stop_at=stop_at)
    wanted = grid.entries.argmax(axis=1)
    if int(wanted.sum()) <= pool:
        return KnapsackResult(wanted.tolist(), None)
    at_price = priced(grid, wanted, pool)
    # Sizes without a loss, the larger ones for the first rows; what remains idle is less than one such step
    sizes, steps = at_price.least.copy(), at_price.most - at_price.least
    upto = int(np.searchsorted(steps.cumsum(), pool - int(sizes.sum()), side="right"))  # so many whole steps fit
    sizes[:upto] = at_price.most[:upto]
    # Smallest loss of these, which lose nothing but idle nodes, and of what changing one of them leads to
    idle = pool - int(sizes.sum())
    idle_then = idle + sizes[:, None] - np.arange(values.shape[1])
    total = at_price.losses + at_price.rise * idle_then
    known = int(total.min(where=idle_then >= 0, initial=at_price.rise * idle))
    try:
        return KnapsackResult(_best(at_price, pool, known, stop_at), None)
    except DeadlinePassed:
        # No plan has more than all rows at their best with nodes paid for, and the whole pool's price
        best = grid.entries[np.arange(len(sizes)), at_price.least].sum()
        paid = at_price.rise / at_price.run * (pool - float(at_price.least.sum()))
        return KnapsackResult(sizes.tolist(), float((best + paid) / grid.weight * grid.unit) + grid.raised)


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
        least, rows, stages = core_of(losses, cutoff)
        room = SearchBounds(pool - int(least.sum()), at_price.rise, known, stop_at)
        fewer = fewer_stages(stages, cutoff) if known else None
        if fewer is not None:
            known = least_loss(fewer, room)
            if known <= cutoff:  # now with all stages, but no size that loses more
                least, rows, stages = core_of(losses, known)
                room = SearchBounds(pool - int(least.sum()), at_price.rise, known, stop_at)
                fewer = None
        if fewer is None:
            division = best_division(stages, room)
            if division is None and cutoff >= known:
                raise Fault("a core that holds a plan yielded none", where="solver 'exact'")
            known = known if division is None else division[0]
            if division is not None and known <= cutoff:
                least[rows] += np.array(division[1], dtype=np.int64)
                return [int(each) for each in least]
        candidates = candidates[candidates <= known]
        size = _GROWTH * int((candidates <= cutoff).sum())
