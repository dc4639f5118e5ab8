"""Dynamic programmes over the core. A stage is a task, or several alike: pairs of (nodes above the least, loss)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_solvers.knapsack.grid import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Numbers = NDArray[np.int64]
    Stage = tuple[list[int], list[int]]  # nodes above the least, rising; loss of each

_FEW_SIZES: Final = 3
_LARGEST_SHEET: Final = 200_000  # numbers; beyond that a sheet falls out of the processor's cache


class KnapsackTimeout(Exception):
    """The deadline has passed."""


@dataclass(frozen=True, slots=True)
class SearchBounds:
    """What is to be divided: ``nodes`` above the minimum of every task, each unused one losing ``idle_loss``.

    No division with a loss above ``cutoff`` is of interest; ``stop_at`` is a time of ``perf_counter``.
    """

    nodes: int
    idle_loss: int
    cutoff: int
    stop_at: float


@dataclass(frozen=True, slots=True)
class LossTables:
    """``losses[s][i]``: smallest loss of stages ``s``, ``s + 1``, ... if they take ``lows[s] + i`` nodes exactly."""

    losses: list[Numbers]
    lows: list[int]


def least_loss(stages: Sequence[Stage], room: SearchBounds) -> int:
    """Smallest loss of any division, at most the cutoff."""
    tables = _tables(stages, room)
    return room.cutoff if tables is None else min(room.cutoff, int(_with_idle(tables, room).min()))


def best_division(stages: Sequence[Stage], room: SearchBounds) -> tuple[int, list[int]] | None:
    """Smallest loss, and of the divisions that have it the one with fewest nodes whose earlier stages get more.

    ``None``: no division loses as little as the cutoff.
    """
    if room.cutoff == 0 and all(nodes[-1] == len(nodes) - 1 for nodes, _ in stages):
        return 0, _filled(stages, room.nodes)
    # Of tasks alike the earlier has at least as many nodes: to swap two sizes costs nothing
    falling, kinds = _falling(stages, room.nodes)
    tables = _tables(falling, room, all_alike=kinds == 1)
    if tables is None:
        return None
    total = _with_idle(tables, room)
    place = int(total.argmin())
    if total[place] > room.cutoff:
        return None
    return int(total[place]), _retraced(falling, tables, tables.lows[0] + place)


def _falling(stages: Sequence[Stage], free: int) -> tuple[list[Stage], int]:
    """Leave out sizes that are too large if the tasks alike before it are to have as many; count the kinds."""
    seen: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = {}
    found = []
    for nodes, losses in stages:
        key = (tuple(nodes), tuple(losses))
        rank = seen.get(key, 0) + 1
        seen[key] = rank
        kept = bisect_right(nodes, free // rank)
        found.append((nodes[:kept], losses[:kept]))
    return found, len(seen)


def _filled(stages: Sequence[Stage], free: int) -> list[int]:
    """Fill the stages up one after the other: as good as any division if no number of nodes loses anything."""
    taken = []
    for nodes, _ in stages:
        taken.append(min(free, nodes[-1]))
        free -= taken[-1]
    return taken


def _with_idle(tables: LossTables, room: SearchBounds) -> Numbers:
    first, low = tables.losses[0], tables.lows[0]
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
            raise KnapsackTimeout
        losses[stage] = _one_more(
            stages[stage], losses[stage + 1], lows[stage + 1], lows[stage], highs[stage] - lows[stage] + 1
        )
    return LossTables(losses, lows)


def _one_more(stage: Stage, later: Numbers, later_low: int, low: int, width: int) -> Numbers:
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


def _by_sheet(stage: Stage, later: Numbers, offset: int, width: int) -> Numbers:
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
    found: Numbers = (moved + loss).min(axis=0, initial=NEVER)
    return found


def _retraced(stages: Sequence[Stage], tables: LossTables, nodes: int) -> list[int]:
    """Give every stage, from the first on, the most that still leads to the smallest loss."""
    chosen = []
    for stage, (sizes, losses) in enumerate(stages):
        goal = int(tables.losses[stage][nodes - tables.lows[stage]])
        later, low = tables.losses[stage + 1], tables.lows[stage + 1]
        for size, loss in zip(reversed(sizes), reversed(losses), strict=True):
            place = nodes - size - low
            if 0 <= place < later.size and int(later[place]) + loss == goal:
                chosen.append(size)
                nodes -= size
                break
    return chosen
