"""The exact division of a core: a dynamic programme over what has been used of each kind, kept sparse."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_solvers.node_kinds.plans import KindCapacities
    from bftrain_solvers.node_kinds.prices import KindPrices

    Numbers = NDArray[np.int64]

_MOST_STATES: Final = 100_000


class DivisionTooLarge(Exception):
    """There are more states than are worth looking at."""


class DivisionTimeout(Exception):
    """The deadline has passed."""


@dataclass(frozen=True, slots=True)
class _Stage:
    """The states after a row: what was ``used`` of each kind, and the least loss; where each came from."""

    used: list[Numbers]
    losses: Numbers
    before: Numbers
    column: Numbers


@dataclass(frozen=True, slots=True)
class _Window:
    """Which states are of interest: no more used than ``room``, no less than ``least``, and a loss below ``below``."""

    room: Numbers
    least: Numbers
    below: int


def best_division(
    at: KindPrices, space: KindCapacities, cutoff: int, below: int, stop_at: float, *, most: int | None = None
) -> Numbers | None:
    """Give the plan of the smallest loss, of columns that lose at most ``cutoff``, if one loses less than ``below``.

    With ``most`` only so many states are kept after each row, those that lose least: the plan is then a good one.
    """
    inside = at.losses <= min(cutoff, below - 1)
    fixed = inside.sum(axis=1) == 1
    plan: Numbers = inside.argmax(axis=1).astype(np.int64)
    room = space.pools - space.takes[plan[fixed]].sum(axis=0)
    below -= int(at.losses[np.flatnonzero(fixed), plan[fixed]].sum())
    if (room < 0).any() or below <= 0:
        return None
    rows = np.flatnonzero(~fixed)
    # The widest choices last: the states before them are few
    rows = rows[np.argsort(inside[rows].sum(axis=1), kind="stable")]
    choices = [np.flatnonzero(inside[row]) for row in rows]
    spare = np.where(at.prices > 0, (below - 1) // np.maximum(at.prices, 1), room)  # so many nodes may stay idle
    coming = _most_to_come(space, choices)
    nothing = np.zeros(1, dtype=np.int64)
    stages = [_Stage([nothing] * room.size, nothing, nothing, nothing)]
    for place, (row, columns) in enumerate(zip(rows.tolist(), choices, strict=True)):
        if perf_counter() > stop_at:
            raise DivisionTimeout
        window = _Window(room, room - spare - coming[place + 1], below)
        stages.append(_next(stages[-1], at.losses[row], columns, space, window))
        if most is not None:
            stages[-1] = _best_of(stages[-1], most)
        if stages[-1].losses.size == 0:
            return None
    state = _best_end(stages[-1], at, room, below)
    if state is None:
        return None
    for stage, row in zip(reversed(stages[1:]), rows[::-1].tolist(), strict=True):
        plan[row] = stage.column[state]
        state = int(stage.before[state])
    return plan


def _best_end(last: _Stage, at: KindPrices, room: Numbers, below: int) -> int | None:
    """Give the last state that loses least, the price of what stays idle counted."""
    total = last.losses.copy()
    for used, free, price in zip(last.used, room.tolist(), at.prices.tolist(), strict=True):
        total += (free - used) * price
    state = int(total.argmin())
    return state if total[state] < below else None


def _best_of(stage: _Stage, most: int) -> _Stage:
    if stage.losses.size <= most:
        return stage
    kept = np.sort(np.argpartition(stage.losses, most)[:most])
    return _Stage([used[kept] for used in stage.used], stage.losses[kept], stage.before[kept], stage.column[kept])


def _next(stage: _Stage, losses: Numbers, columns: Numbers, space: KindCapacities, window: _Window) -> _Stage:
    """Let one more row have any of ``columns``."""
    kinds = range(len(stage.used))
    enough = [used >= least for used, least in zip(stage.used, window.least.tolist(), strict=True)]
    others = [_all(enough[other] for other in kinds if other != kind) for kind in kinds]
    everything = _all(enough)
    before: list[Numbers] = []
    for column in columns.tolist():
        taken = space.takes[column]
        fine = stage.losses < window.below - int(losses[column])
        kind = int(taken.argmax())
        nodes = int(taken[kind])
        if nodes == 0:
            fine &= everything
        else:
            used = stage.used[kind]
            fine &= others[kind]
            fine &= used <= int(window.room[kind]) - nodes
            fine &= used >= int(window.least[kind]) - nodes
        before.append(np.flatnonzero(fine))
    return _merged(stage, before, losses, columns, space)


def _merged(stage: _Stage, before: list[Numbers], losses: Numbers, columns: Numbers, space: KindCapacities) -> _Stage:
    """Of the states that used the same keep the one that loses least."""
    origin = np.concatenate(before)
    if origin.size > _MOST_STATES:
        raise DivisionTooLarge
    chosen = np.repeat(columns, [states.size for states in before])
    lost = stage.losses[origin] + losses[chosen]
    used = [was[origin] + space.takes[chosen, kind] for kind, was in enumerate(stage.used)]
    order = np.lexsort((lost, *used))
    differ = np.zeros(order.size, dtype=np.bool_)
    differ[:1] = True
    for amounts in used:
        sorted_amounts = amounts[order]
        differ[1:] |= sorted_amounts[1:] != sorted_amounts[:-1]
    kept = order[differ]
    return _Stage([amounts[kept] for amounts in used], lost[kept], origin[kept], chosen[kept])


def _all(conditions: object) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.logical_and.reduce(list(conditions))  # type: ignore[call-overload]  # an iterable
    return found


def _most_to_come(space: KindCapacities, choices: list[Numbers]) -> Numbers:
    """Give the most of each kind that the rows from each on can use."""
    most = np.zeros((len(choices) + 1, space.pools.size), dtype=np.int64)
    for place in range(len(choices) - 1, -1, -1):
        most[place] = most[place + 1] + space.takes[choices[place]].max(axis=0)
    return most
