"""Orders: policies that put tasks in a row. Who comes first runs on the fastest kind that is free for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from bftrain_replay.rounds.contenders import Contenders, Floats


class Order:
    """A policy by its name. ``steady`` says that only tasks or nodes that come and go can change whom it prefers."""

    def __init__(self, name: str, keys: Callable[[Contenders], Floats], *, steady: bool = False) -> None:
        self.name = name
        self.steady = steady
        self._keys = keys

    def priorities(self, contenders: Contenders) -> Floats:
        """Give a number a task; the smallest key is served first, and of equals who came first."""
        return -self._keys(contenders)


def _received(contenders: Contenders) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        by_weight = contenders.received_node_s / contenders.weight
    return np.where(contenders.weight > 0.0, by_weight, np.finfo(np.float64).max)  # who has no weight comes last


def fifo() -> Order:
    """First come, first served."""
    return Order("fifo", lambda contenders: contenders.submit_s, steady=True)


def las() -> Order:
    """Least attained service first: who has received the fewest node-seconds, by weight."""
    return Order("las", _received)


def srtf() -> Order:
    """Shortest remaining time first, on the kind that is fastest for each."""
    return Order("srtf", lambda contenders: contenders.left_s)
