"""Division of nodes over stages with the least loss: the last part of :mod:`bftrain_solvers.knapsack.numpy_knapsack`.

A *stage* is a task, or several identical ones, with its possible sizes: nodes above its least, and the loss of each.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from time import perf_counter
from typing import Final

import msgspec
import numpy as np

from bftrain_solvers.answers import DeadlinePassed
from bftrain_solvers.arrays import Integers
from bftrain_solvers.value_grid import NEVER

Stage = tuple[list[int], list[int]]  # nodes above the least, rising; loss of each

_MOST_SUMS: Final = 500  # measured: beyond that tables are as fast
_SUMS_A_STAGE: Final = 20  # the same, per stage of many
_FEW_ALIKE: Final = 3
_FEW_SIZES: Final = 3
_LARGEST_SHEET: Final = 200_000  # numbers; beyond that a sheet falls out of the processor's cache


class SearchBounds(msgspec.Struct, frozen=True):
    """The problem: ``nodes`` above the minimum of every task, where each unused one loses ``idle_loss``.

    Divisions with a loss above ``cutoff`` are ignored; ``stop_at`` is a time of ``perf_counter``.
    """

    nodes: int
    idle_loss: int
    cutoff: int
    stop_at: float


def quick_division(stages: Sequence[Stage], room: SearchBounds) -> tuple[int, list[int]] | None:
    """Return the same as :func:`best_division` where few combinations have to be tried; ``None`` otherwise.

    Few sums of sizes stay within the cutoff, so enumerating them is faster for most cores than building tables over
    all numbers of nodes with numpy.
    """
    before = list(accumulate((nodes[-1] for nodes, _ in stages), initial=0))  # most that the stages before can take
    if room.cutoff == 0 and before[-1] >= room.nodes and all(nodes[-1] == len(nodes) - 1 for nodes, _ in stages):
        # If all numbers of nodes are free of losses, filling one stage after another is optimal
        return 0, [min(nodes[-1], max(0, room.nodes - most)) for (nodes, _), most in zip(stages, before, strict=False)]
    if perf_counter() > room.stop_at:
        raise DeadlinePassed
    falling = _falling(stages, room.nodes)[0] if len(stages) > _FEW_ALIKE else stages
    fewest = room.nodes - room.cutoff // room.idle_loss  # lower bound of the used nodes: more idle nodes lose too much
    sums: list[dict[int, int]] = [{0: 0}]  # last stage first: total nodes -> smallest loss
    tried = 0
    for (sizes, losses), most_before in zip(reversed(falling), reversed(before[:-1]), strict=True):
        tried += len(sums[-1]) * len(sizes)
        if tried > _MOST_SUMS + _SUMS_A_STAGE * len(stages):
            return None
        found: dict[int, int] = {}
        choices = list(zip(sizes, losses, strict=True))
        for taken_later, lost_later in sums[-1].items():
            for size, loss in choices:
                nodes, lost = taken_later + size, lost_later + loss
                if nodes > room.nodes:
                    break
                if nodes >= fewest - most_before and lost <= room.cutoff and lost < found.get(nodes, NEVER):
                    found[nodes] = lost
        sums.append(found)
    if not sums[-1]:
        return None
    loss, nodes = min((lost + room.idle_loss * (room.nodes - nodes), nodes) for nodes, lost in sums[-1].items())
    return (loss, _most_first(falling, sums, nodes)) if loss <= room.cutoff else None


def _most_first(stages: Sequence[Stage], sums: Sequence[Mapping[int, int]], nodes: int) -> list[int]:
    """Assign every stage in order the most that still leads to the smallest loss for ``nodes`` in total."""
    chosen = []
    goal = sums[-1][nodes]
    for (sizes, losses), later in zip(stages, reversed(sums[:-1]), strict=True):
        for size, loss in zip(reversed(sizes), reversed(losses), strict=True):
            if later.get(nodes - size, NEVER) + loss == goal:
                chosen.append(size)
                nodes, goal = nodes - size, goal - loss
                break
    return chosen


# ``losses, low`` by stage: ``losses[i]`` is the smallest loss of this and all later stages with ``low + i`` nodes
LossTables = list[tuple[Integers, int]]


def least_loss(stages: Sequence[Stage], room: SearchBounds) -> int:
    """Return the smallest loss of any division, limited to the cutoff."""
    tables = _tables(stages, room)
    return room.cutoff if tables is None else min(room.cutoff, int(_with_idle(tables, room).min()))


def best_division(stages: Sequence[Stage], room: SearchBounds) -> tuple[int, list[int]] | None:
    """Return the smallest loss, and a division with this loss: fewest nodes, then larger earlier stages.

    ``None``: no division loses as little as the cutoff.
    """
    falling, kinds = _falling(stages, room.nodes)
    tables = _tables(falling, room, all_alike=kinds == 1)
    if tables is None:
        return None
    total = _with_idle(tables, room)
    place = int(total.argmin())
    if total[place] > room.cutoff:
        return None
    return int(total[place]), _retraced(falling, tables, tables[0][1] + place)


def _falling(stages: Sequence[Stage], most: int) -> tuple[list[Stage], int]:
    """Drop sizes that are too large for identical tasks of descending size; count the kinds of tasks.

    Earlier identical tasks have sizes as large or larger, because swapping two sizes is free.
    """
    seen: Counter[tuple[tuple[int, ...], tuple[int, ...]]] = Counter()
    falling = []
    for nodes, losses in stages:
        key = (tuple(nodes), tuple(losses))
        seen[key] += 1
        kept = bisect_right(nodes, most // seen[key])
        falling.append((nodes[:kept], losses[:kept]))
    return falling, len(seen)


def _with_idle(tables: LossTables, room: SearchBounds) -> Integers:
    first, low = tables[0]
    idle = np.arange(room.nodes - low, room.nodes - low - first.size, -1)
    return first + room.idle_loss * idle


def _tables(stages: Sequence[Stage], room: SearchBounds, *, all_alike: bool = False) -> LossTables | None:
    """Compute the tables from the last stage to the first; retracing then serves the first stage first.

    A table covers only the nodes that its stages can take and the earlier stages can leave. If all tasks are identical
    and sorted by descending size, the last ``n`` of them have no more than ``n`` equal parts.
    Return ``None`` if more nodes must be used than the stages can take.
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
    """Return the table of a stage for ``low`` nodes and more, from the table of the stage after it."""
    nodes, losses = stage
    span = nodes[-1] - nodes[0] + 1
    if _FEW_SIZES < len(nodes) >= span // 2 and span * width <= _LARGEST_SHEET:
        return _by_sheet(stage, later, low - later_low, width)
    found = np.empty(width, dtype=np.int64)
    found.fill(NEVER)
    reach = later.size
    for more, loss in zip(nodes, losses, strict=True):
        shift = later_low + more - low  # position of the first entry of ``later`` with this size
        start = max(0, shift)
        end = min(width, reach + shift)
        if start < end:
            part, moved = found[start:end], later[start - shift : end - shift]
            np.minimum(part, moved + loss if loss else moved, out=part)
    return found


def _by_sheet(stage: Stage, later: Integers, offset: int, width: int) -> Integers:
    """Compute the same in one array operation: row ``i`` is ``later`` shifted by ``nodes[0] + i``."""
    nodes, losses = stage
    first, last = nodes[0], nodes[-1]
    rows = last - first + 1
    loss = np.full((rows, 1), NEVER)
    loss[[node - first for node in nodes], 0] = losses
    # Entry c of row i is later[offset + c - first - i]; pad the array so that every such index exists
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
    """Assign every stage in order the most that still leads to the smallest loss."""
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
