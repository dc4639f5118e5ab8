"""Worth: energy, carbon dioxide and money of a week's harvest. Energy is the extra over unused nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from bftrain.values import checks
from bftrain_replay.run.harvest_by_block import EstimatedFigure

_WATTS_A_KW: Final = 1000.0
_GRAMS_A_TONNE: Final = 1e6


class NodePrices(msgspec.Struct, frozen=True, kw_only=True):
    """Power of an idle, a busy and a powered-down node, and prices of energy, its carbon dioxide and node-hours.

    All prices are in ``currency``. ``None``: not known, so figures that need it are left out; without
    ``off_watts`` idle nodes stay powered.
    """

    idle_watts: float | None = None
    busy_watts: float | None = None
    off_watts: float | None = None  # power of a node switched off while idle
    kwh_price: float | None = None
    co2_g_per_kwh: float | None = None
    node_hour_price: float | None = None
    currency: str = "EUR"

    def __post_init__(self) -> None:
        """Check that no number is below 0, and that a busy node draws no less than an idle one."""
        if not (self.currency.isprintable() and self.currency.strip()):
            checks.reject(self, "currency", "is empty", "write a code such as USD")
        for name in self.__struct_fields__[:-1]:
            checks.optional_number(self, name, at_least=0.0)
        if (self.idle_watts is None) != (self.busy_watts is None):
            checks.reject(self, "busy_watts", "requires idle_watts", "give both, as idle=100,busy=400")
        if self.idle_watts is not None and self.busy_watts is not None and self.busy_watts < self.idle_watts:
            checks.reject(self, "busy_watts", "is less than idle_watts", "give both, as idle=100,busy=400")
        if self.off_watts is not None and (self.idle_watts is None or self.off_watts > self.idle_watts):
            checks.reject(self, "off_watts", "is more than idle_watts", "give all three, as idle=100,busy=400,off=5")

    @property
    def extra_kw(self) -> float | None:
        """The power difference between a busy and an unused node."""
        if self.idle_watts is None or self.busy_watts is None:
            return None
        unused_watts = self.idle_watts if self.off_watts is None else self.off_watts
        return (self.busy_watts - unused_watts) / _WATTS_A_KW


class WeeklyWorth(msgspec.Struct, frozen=True, kw_only=True):
    """The worth of a week; ``None`` where a price or a power is unknown.

    ``value`` is the harvest at the price of node-hours, ``energy_cost`` the cost of the extra energy, ``net`` the
    difference.
    """

    energy_kwh: EstimatedFigure | None = None
    co2_t: EstimatedFigure | None = None
    energy_cost: EstimatedFigure | None = None
    value: EstimatedFigure | None = None
    net: EstimatedFigure | None = None


def worth_of(prices: NodePrices, a_week: Callable[[float, float], EstimatedFigure]) -> WeeklyWorth:
    """Return the worth of a week.

    ``a_week(h, u)`` estimates h times the useful node-hours plus u times the allocated ones: only useful hours have a
    value, while all allocated hours draw energy.
    """
    value = None if prices.node_hour_price is None else a_week(prices.node_hour_price, 0.0)
    extra_kw = prices.extra_kw
    if extra_kw is None:
        return WeeklyWorth(value=value)
    cost = net = None
    if prices.kwh_price is not None:
        cost = a_week(0.0, extra_kw * prices.kwh_price)
        if prices.node_hour_price is not None:
            net = a_week(prices.node_hour_price, -extra_kw * prices.kwh_price)
    carbon = prices.co2_g_per_kwh
    return WeeklyWorth(
        energy_kwh=a_week(0.0, extra_kw),
        co2_t=None if carbon is None else a_week(0.0, extra_kw * carbon / _GRAMS_A_TONNE),
        energy_cost=cost,
        value=value,
        net=net,
    )
