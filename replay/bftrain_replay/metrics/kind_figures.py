"""Kinds: how many nodes of each kind were idle and held, and what that cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bftrain_replay.metrics.fair_time import IdlePools

_HOUR_S: Final = 3600.0


class KindFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one kind: idle node-hours, those that tasks held, and the share of these."""

    idle_node_h: float
    used_node_h: float
    coverage: float | None


def kind_figures(pools: IdlePools, used_node_s: Mapping[str, float]) -> dict[str, KindFigures]:
    """Give the figures of every kind of the pool."""
    lengths_s = np.diff(pools.times_s, append=pools.end_s)
    found = {}
    for kind, nodes in pools.counts.items():
        idle_s, used_s = math.fsum((nodes * lengths_s).tolist()), used_node_s.get(kind, 0.0)
        found[kind] = KindFigures(
            idle_node_h=idle_s / _HOUR_S, used_node_h=used_s / _HOUR_S, coverage=used_s / idle_s if idle_s else None
        )
    return found


def cost_of(kinds: Mapping[str, KindFigures], prices: Mapping[str, float]) -> float | None:
    """Give node-hours held times the price of their kind, which is 1 where none is named; ``None`` without prices."""
    if not prices:
        return None
    return math.fsum(figures.used_node_h * prices.get(kind, 1.0) for kind, figures in kinds.items())
