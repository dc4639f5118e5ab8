"""Packing: who runs, of those who wish to in this order, on nodes of which so many of each kind are free."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Places = NDArray[np.intp]

_FEW: Final = 300  # wishes that are looked at one by one in less time than the steps take


def pack(task: Places, kind: Places, nodes: Places, free: Places) -> Places:
    """Give the places of the wishes that are granted, in order.

    A wish is that of a task (a small number) for so many ``nodes`` of a kind. One after the other is granted if its
    task has been granted none, and as many nodes are left.
    """
    return _one_by_one(task, kind, nodes, free) if task.size <= _FEW else _in_steps(task, kind, nodes, free)


def _one_by_one(task: Places, kind: Places, nodes: Places, free: Places) -> Places:
    room, has, granted = free.tolist(), set[int](), []
    left = sum(room)
    for place, (who, where, count) in enumerate(zip(task.tolist(), kind.tolist(), nodes.tolist(), strict=True)):
        if count <= room[where] and who not in has:
            room[where] -= count
            has.add(who)
            granted.append(place)
            left -= count
            if not left:
                break
    return np.array(granted, dtype=np.intp)


def _in_steps(task: Places, kind: Places, nodes: Places, free: Places) -> Places:
    """Grant all before the first that does not fit, at once, and so on."""
    free, granted = free.copy(), []
    has = np.zeros(int(task.max(initial=-1)) + 1, dtype=bool)
    left = np.flatnonzero(nodes <= free[kind])
    while left.size:
        left = left[_first_of_each(task[left], has.size)]
        step = left[: _that_fit(kind[left], nodes[left], free)]
        granted.append(step)
        has[task[step]] = True
        free -= np.bincount(kind[step], nodes[step], free.size).astype(np.intp)
        # Second wishes of tasks that got nothing come into play only behind the first that did not fit
        rest = np.arange(int(step[-1]) + 1, task.size)
        left = rest[~has[task[rest]] & (nodes[rest] <= free[kind[rest]])]
    return np.concatenate(granted) if granted else np.zeros(0, dtype=np.intp)


def _first_of_each(task: Places, count: int) -> NDArray[np.bool_]:
    """Mark where each task comes first."""
    first = np.zeros(count, dtype=np.intp)
    places = np.arange(task.size)
    first[task[::-1]] = places[::-1]  # of several for one task, the last one stays
    mark: NDArray[np.bool_] = first[task] == places
    return mark


def _that_fit(kind: Places, nodes: Places, free: Places) -> int:
    """Say how many of these, each of another task, fit one after the other; at least the first does."""
    fits = kind.size
    for number, room in enumerate(free.tolist()):
        own = np.flatnonzero(kind == number)
        used = np.cumsum(nodes[own])
        if used.size and used[-1] > room:
            fits = min(fits, int(own[np.searchsorted(used, room, side="right")]))
    return fits
