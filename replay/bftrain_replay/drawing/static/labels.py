"""Labels of axes: numbers in the formats that figures name, moments, and how much room a text takes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

import numpy as np

from bftrain_replay.drawing.static.unsupported import UnsupportedFigureError

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
    """Return a moment, milliseconds since 1970, by the largest unit that begins there: year, month, day or time."""
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
    """Return a moment, milliseconds since the log's start: a full day by its number, others by the clock."""
    return _clock(place) if place % _DAY_MS else f"day {place / _DAY_MS:,.0f}"


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """Return how many pixels a text takes, roughly: the page chooses its font."""
    return len(text) * size * _CHARACTER


def shortened(text: str, most: float, size: float = FONT_SIZE) -> str:
    """Return the text, cut so that it takes at most so many pixels."""
    if most <= 0.0 or text_width(text, size) <= most:
        return text
    return text[: max(int(most / (size * _CHARACTER)) - 1, 1)].rstrip() + "…"


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
