"""Scales: the place of a value along an axis, from 0 to 1, and the axis' ticks with their labels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import msgspec
import numpy as np

from bftrain.text_formats import plain
from bftrain_replay.drawing.static.layers import UnsupportedFigureError

_CHARACTER: Final = 0.56  # of the font size: the mean width of a character
FONT_SIZE: Final = 12.0
_PREFIXES: Final = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""), (1e-3, "m"), (1e-6, "µ"))
_MINUS: Final = "\N{MINUS SIGN}"
_DAY_MS: Final = 86_400_000
_MINUTE_MS: Final = 60_000
_SECOND_MS: Final = 1000
_EPOCH: Final = 1970
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_SHARE: Final = re.compile(r"\.(\d+)%")
_GENERAL: Final = re.compile(r"(?:\.(\d+))?~g")
_GENERAL_DIGITS: Final = 6


def number_format(name: str, step: float) -> Callable[[float], str]:
    """Return the function that writes a number in one of d3's formats; ``step`` is the distance between ticks."""
    if share := _SHARE.fullmatch(name):
        digits = int(share[1])
        return lambda value: _signed(f"{value:.{digits}%}")
    if general := _GENERAL.fullmatch(name):
        most = int(general[1] or _GENERAL_DIGITS)
        return lambda value: _signed(f"{value:.{most}g}")
    if name == ",d":
        return lambda value: _signed(f"{value:,.0f}")
    if name == "~s":
        return _with_prefix
    if name:
        raise UnsupportedFigureError(f"number format '{name}'")
    decimals = max(0, -math.floor(math.log10(step) + 1e-9)) if step > 0.0 else 0
    return lambda value: _signed(f"{value:,.{decimals}f}")


def moment_on_calendar(place: float) -> str:
    """Return a time in milliseconds since 1970, by the largest unit that begins there: year, month, day or time."""
    if place % _DAY_MS:
        return _clock(place)
    when = np.datetime64(round(place), "ms")  # which has later years than datetime
    first = when.astype("datetime64[M]")
    year, month = divmod(int(first.astype(int)), len(_MONTHS))
    day = int((when - first) // np.timedelta64(1, "D")) + 1
    if day > 1:
        return f"{day} {_MONTHS[month]}"
    return f"{_MONTHS[month]} {year + _EPOCH}" if month else str(year + _EPOCH)


def moment_since_start(place: float) -> str:
    """Return a time in milliseconds since the log's start: a full day by its number, others by the clock."""
    return _clock(place) if place % _DAY_MS else f"day {place / _DAY_MS:,.0f}"


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """Return roughly how many pixels a text takes: the page chooses its font."""
    return len(text) * size * _CHARACTER


def shortened(text: str, most: float) -> str:
    """Return the text, cut so that it takes at most so many pixels."""
    if most <= 0.0 or text_width(text) <= most:
        return text
    return text[: max(int(most / (FONT_SIZE * _CHARACTER)) - 1, 1)].rstrip() + "…"


def _clock(place: float) -> str:
    seconds, milliseconds = divmod(round(place) % _DAY_MS, _SECOND_MS)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}"
    if place % _MINUTE_MS:
        text += f":{seconds % 60:02}"
    return f"{text}.{milliseconds:03}" if milliseconds else text


def _with_prefix(value: float) -> str:
    """Return a number with the SI prefix that leaves 1 to 999 before it."""
    if not value:
        return "0"
    factor, prefix = next((each for each in _PREFIXES if abs(value) >= each[0]), _PREFIXES[-1])
    return _signed(f"{value / factor:.6g}{prefix}")


def _signed(text: str) -> str:
    return text.replace("-", _MINUS)


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


class AxisTick(msgspec.Struct, frozen=True):
    """One tick: its place along the axis, from 0 to 1, and its label."""

    place: float
    label: str


class AxisScale(Protocol):
    """Maps values to places along an axis."""

    def place(self, value: object) -> float:
        """Return the place of a value: 0 is left or bottom, 1 right or top."""

    def ticks(self, count: int, look: TickLook) -> list[AxisTick]:
        """Return about ``count`` ticks."""


class TickLook(msgspec.Struct, frozen=True, kw_only=True):
    """A chart's settings for the ticks of one axis."""

    number: str = ""  # the format of numbers
    least_step: float = 0.0
    values: tuple[float, ...] = ()  # exactly these


class LinearScale(msgspec.Struct, frozen=True):
    """Linear scale of numbers."""

    low: float
    high: float
    reverse: bool = False

    def place(self, value: object) -> float:
        """Return the place of a number."""
        share = (_number(value) - self.low) / ((self.high - self.low) or 1.0)
        return 1.0 - share if self.reverse else share

    def ticks(self, count: int, look: TickLook) -> list[AxisTick]:
        """Return ticks at round numbers."""
        step = max(round_step(self.high - self.low, count), look.least_step)
        values = look.values or multiples(self.low, self.high, step)
        words = number_format(look.number, step)
        return [AxisTick(self.place(value), words(value)) for value in values]

    def nice(self, count: int) -> LinearScale:
        """Return the scale extended to round numbers."""
        step = round_step(self.high - self.low, count)
        low, high = math.floor(self.low / step + 1e-9) * step, math.ceil(self.high / step - 1e-9) * step
        return LinearScale(low, high, self.reverse)


class LogScale(msgspec.Struct, frozen=True):
    """Logarithmic scale of positive numbers."""

    low: float
    high: float

    def place(self, value: object) -> float:
        """Return the place of a number; one that is not positive is at the beginning."""
        number = max(_number(value), self.low)
        return math.log(number / self.low) / (math.log(self.high / self.low) or 1.0)

    def ticks(self, count: int, look: TickLook) -> list[AxisTick]:
        """Return ticks at powers of ten, with as many of their multiples as fit."""
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


class TimeScale(msgspec.Struct, frozen=True):
    """Milliseconds since 1970, or since the log's start."""

    low: float
    high: float
    on_calendar: bool

    def place(self, value: object) -> float:
        """Return the place of a time."""
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
        ends = (np.datetime64(round(end), "ms").astype("datetime64[M]").astype(int) for end in (self.low, self.high))
        first, last = map(int, ends)
        months = np.arange(first // step * step, last + 1, step).astype("datetime64[M]")
        places = months.astype("datetime64[ms]").astype(np.int64).tolist()
        return [float(place) for place in places if self.low <= place <= self.high]


class BandScale(msgspec.Struct, frozen=True):
    """Names beside each other, each in a band; ``padding`` is the part of a band that stays free on each side."""

    names: tuple[str, ...]
    padding: float = 0.0
    reverse: bool = False

    def place(self, value: object) -> float:
        """Return the middle of a name's band."""
        middle = (self.names.index(plain(value)) + 0.5) / (len(self.names) or 1)
        return 1.0 - middle if self.reverse else middle

    @property
    def width(self) -> float:
        """The part of the axis that one name may fill."""
        return (1.0 - 2 * self.padding) / (len(self.names) or 1)

    def ticks(self, count: int, look: TickLook) -> list[AxisTick]:  # noqa: ARG002 - all names, however many
        """Return a tick for each name."""
        return [AxisTick(self.place(name), name) for name in self.names]


def round_step(span: float, count: int) -> float:
    """Return the round number that divides a span into about that many steps."""
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
    """Return the scale with padding, a share of the axis, at each end."""
    if isinstance(scale, LogScale):
        factor = (scale.high / scale.low) ** share
        return LogScale(scale.low / factor, scale.high * factor)
    room = (scale.high - scale.low) * share
    return LinearScale(scale.low - room, scale.high + room, scale.reverse)


def _number(value: object) -> float:
    return float(value) if isinstance(value, (int, float)) else math.nan
