"""Scales: where a value stands along an axis, from 0 to 1, and where the axis has ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from bftrain_replay.drawing.static.labels import moment_on_calendar, moment_since_start, number_format

_ROUND_STEPS: Final = (1.0, 2.0, 5.0, 10.0)
_SECOND: Final = 1000.0
_MINUTE: Final = 60 * _SECOND
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_TIME_STEPS: Final = (
    *(factor * _SECOND for factor in (1, 5, 15, 30)),
    *(factor * _MINUTE for factor in (1, 5, 15, 30)),
    *(factor * _HOUR for factor in (1, 3, 6, 12)),
    *(factor * _DAY for factor in (1, 2, 7, 14)),
)
_MONTH_STEPS: Final = (1, 3, 6, 12, 24, 60, 120)
_MONTH: Final = 30.4 * _DAY
_LEAST_LOG_TICKS: Final = 3


@dataclass(frozen=True, slots=True)
class AxisTick:
    """One tick: where it stands along its axis, from 0 to 1, and its label."""

    place: float
    label: str


class AxisScale(Protocol):
    """How values stand along an axis."""

    def place(self, value: object) -> float:
        """Return where a value stands: 0 is left or bottom, 1 right or top."""
        ...

    def ticks(self, count: int, look: TickLook) -> list[AxisTick]:
        """Return about ``count`` ticks."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TickLook:
    """What a figure says about the ticks of one axis."""

    number: str = ""  # the format of numbers
    least_step: float = 0.0
    values: tuple[float, ...] = ()  # exactly these


@dataclass(frozen=True, slots=True)
class LinearScale:
    """Numbers in proportion."""

    low: float
    high: float
    reverse: bool = False

    def place(self, value: object) -> float:
        """Return where a number stands."""
        share = (_number(value) - self.low) / ((self.high - self.low) or 1.0)
        return 1.0 - share if self.reverse else share

    def ticks(self, count: int, look: TickLook) -> list[AxisTick]:
        """Return ticks at round numbers."""
        step = max(round_step(self.high - self.low, count), look.least_step)
        values = look.values or multiples(self.low, self.high, step)
        words = number_format(look.number, step)
        return [AxisTick(self.place(value), words(value)) for value in values]

    def nice(self, count: int) -> LinearScale:
        """Return the scale from round number to round number."""
        step = round_step(self.high - self.low, count)
        low, high = math.floor(self.low / step + 1e-9) * step, math.ceil(self.high / step - 1e-9) * step
        return LinearScale(low, high, self.reverse)


@dataclass(frozen=True, slots=True)
class LogScale:
    """Positive numbers by their logarithm."""

    low: float
    high: float

    def place(self, value: object) -> float:
        """Return where a number stands; what is not positive stands at the begin."""
        number = max(_number(value), self.low)
        return math.log(number / self.low) / (math.log(self.high / self.low) or 1.0)

    def ticks(self, count: int, look: TickLook) -> list[AxisTick]:
        """Return ticks at powers of ten, with as many of their multiples as there is room for."""
        words = number_format(look.number or "~g", 0.0)
        if look.values:
            return [AxisTick(self.place(value), words(value)) for value in look.values]
        found: list[float] = []
        for factors in ((1.0,), (1.0, 2.0, 5.0), tuple(map(float, range(1, 10)))):
            more = self._multiples(factors)
            if found and (len(more) > count or len(found) >= max(_LEAST_LOG_TICKS, count // 2)):
                break
            found = more
        if len(found) < _LEAST_LOG_TICKS - 1:
            found = multiples(self.low, self.high, round_step(self.high - self.low, count))
        found = found[:: max(1, math.ceil(len(found) / (2 * count)))]
        return [AxisTick(self.place(value), words(value)) for value in found]

    def _multiples(self, factors: Sequence[float]) -> list[float]:
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        every = (factor * 10.0**power for power in powers for factor in factors)
        return [value for value in every if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]


@dataclass(frozen=True, slots=True)
class TimeScale:
    """Milliseconds since 1970, or since the log's start."""

    low: float
    high: float
    on_calendar: bool

    def place(self, value: object) -> float:
        """Return where a moment stands."""
        return (_number(value) - self.low) / ((self.high - self.low) or 1.0)

    def ticks(self, count: int, look: TickLook) -> list[AxisTick]:
        """Return ticks at full units of the clock, or of the calendar."""
        words = moment_on_calendar if self.on_calendar else moment_since_start
        return [AxisTick(self.place(place), words(place)) for place in look.values or self._moments(count)]

    def _moments(self, count: int) -> list[float]:
        wanted = (self.high - self.low) / count
        if wanted < _SECOND:
            return multiples(self.low, self.high, max(round_step(self.high - self.low, count), 1.0))
        fitting = [step for step in _TIME_STEPS if step >= wanted * 0.8]
        if fitting:
            return multiples(self.low, self.high, fitting[0])
        if not self.on_calendar:
            return multiples(self.low, self.high, round_step((self.high - self.low) / _DAY, count) * _DAY)
        step = next((step for step in _MONTH_STEPS if step * _MONTH >= wanted * 0.8), _MONTH_STEPS[-1])
        return [place for place in _months(self.low, self.high, step) if self.low <= place <= self.high]


def band_name(value: object) -> str:
    """Return a value as the name of its band: whole numbers without a decimal point, as the interactive picture has."""
    return f"{value:g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class BandScale:
    """Names beside each other, each in a band; ``padding`` is the part of a band that stays free on each side."""

    names: tuple[str, ...]
    padding: float = 0.0
    reverse: bool = False

    def place(self, value: object) -> float:
        """Return the middle of a name's band."""
        middle = (self.names.index(band_name(value)) + 0.5) / (len(self.names) or 1)
        return 1.0 - middle if self.reverse else middle

    @property
    def width(self) -> float:
        """The part of the axis that one name may fill."""
        return (1.0 - 2 * self.padding) / (len(self.names) or 1)

    def ticks(self, count: int, look: TickLook) -> list[AxisTick]:  # noqa: ARG002 - all names, however many
        """Return a tick for each name."""
        return [AxisTick(self.place(name), name) for name in self.names]


def round_step(span: float, count: int) -> float:
    """Return the round number that parts a span into about so many steps."""
    if span <= 0.0 or not math.isfinite(span):
        return 1.0
    rough = span / max(count, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    # As d3: the limits between steps are their geometric means
    bounds = ((math.sqrt(2), 1.0), (math.sqrt(10), 2.0), (math.sqrt(50), 5.0))
    factor = next((step for bound, step in bounds if rough / power < bound), _ROUND_STEPS[-1])
    return factor * power


def multiples(low: float, high: float, step: float) -> list[float]:
    """Return the multiples of ``step`` from ``low`` to ``high``."""
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def padded(scale: LinearScale | LogScale, share: float) -> LinearScale | LogScale:
    """Return the scale with so much room, a share of the axis, at each end."""
    if isinstance(scale, LogScale):
        factor = (scale.high / scale.low) ** share
        return LogScale(scale.low / factor, scale.high * factor)
    room = (scale.high - scale.low) * share
    return LinearScale(scale.low - room, scale.high + room, scale.reverse)


def _months(low: float, high: float, step: int) -> list[float]:
    """Return the first days of every ``step`` months, as milliseconds since 1970."""
    first, last = (int(np.datetime64(round(place), "ms").astype("datetime64[M]").astype(int)) for place in (low, high))
    months = np.arange(first // step * step, last + 1, step).astype("datetime64[M]")
    return [float(place) for place in months.astype("datetime64[ms]").astype(np.int64)]


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan
