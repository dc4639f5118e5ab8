"""Orders: policies that put tasks in a row. Who comes first runs on the fastest kind that is free for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from bftrain_replay.rounds.contenders import CompetingTasks, Floats


class OrderedPolicy:
    """A policy by its name. ``steady`` says that only tasks or nodes that come and go can change its order."""

    def __init__(self, name: str, keys: Callable[[CompetingTasks], Floats], *, steady: bool = False) -> None:
        self.name = name
        self.steady = steady
        self._keys = keys

    def priorities(self, contenders: CompetingTasks) -> Floats:
        """Give a number a task; the smallest key is served first, and of equals who came first."""
        return -self._keys(contenders)


def _received(contenders: CompetingTasks) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        by_weight = contenders.received_node_s / contenders.weight
    return np.where(contenders.weight > 0.0, by_weight, np.finfo(np.float64).max)  # who has no weight comes last


def fifo() -> OrderedPolicy:
    """First come, first served."""
    return OrderedPolicy("fifo", lambda contenders: contenders.submit_s, steady=True)


def las() -> OrderedPolicy:
    """Least attained service first: who has received the fewest node-seconds, by weight."""
    return OrderedPolicy("las", _received)


def srtf() -> OrderedPolicy:
    """Shortest remaining time first, on the kind that is fastest for each."""
    return OrderedPolicy("srtf", lambda contenders: contenders.left_s)
