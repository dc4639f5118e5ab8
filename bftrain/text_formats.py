"""Format figures as text for people, not for programs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

UNKNOWN: Final = "-"

_LARGE: Final = ((1e15, "quadrillion"), (1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
_WHOLE_FROM: Final = 100  # numbers of this size or more have no decimals
_ROUNDING: Final = 1e-12  # relative error of float sums
_SMALLEST_SHARE: Final = 0.0005  # smaller shares would be shown as 0.0 %
_A_SECOND_MS: Final = 1000.0
_EXACT: Final = 1e15  # larger floats are shown with an exponent
_UNITS: Final = ((2 * 86400.0, 86400.0, "days"), (2 * 3600.0, 3600.0, "h"), (120.0, 60.0, "min"))


def count(number: float) -> str:
    """Return whole numbers with thousands separators; small ones with the decimals they need."""
    if abs(number) < _ROUNDING:
        return "0"
    if abs(number) >= _WHOLE_FROM or number == int(number):
        return f"{number:,.0f}"
    return f"{number:,.1f}" if abs(number) >= 1 else f"{number:.2g}"


def counted(number: float, thing: str) -> str:
    """Return a number with its noun: ``1 node``, ``2 nodes``."""
    return f"{count(number)} {thing}" if number == 1 else f"{count(number)} {thing}s"


def large(number: float) -> str:
    """Return three digits and a word: ``130 billion``."""
    rounded = float(f"{number:.3g}")  # rounded first: 999.9 million is a billion
    for size, word in _LARGE:
        if abs(rounded) >= size:
            amount = rounded / size
            return f"{amount:,.0f} {word}" if abs(amount) >= _WHOLE_FROM else f"{amount:#.3g} {word}"
    return count(number)


def plain(value: object) -> str:
    """Return a value as text; integral floats are shown as integers, others with up to six digits.

    >>> plain(1234567.0), plain(0.25)
    ('1234567', '0.25')
    """
    if not isinstance(value, float):
        return str(value)
    return f"{value:.0f}" if value.is_integer() and abs(value) < _EXACT else f"{value:g}"


def setting(value: object) -> str:
    """Return the value of a setting as text."""
    return UNKNOWN if value is None or value == "" else plain(value)


def percent(share: float | None) -> str:
    """Return a share in per cent."""
    if share is None:
        return UNKNOWN
    return "< 0.1 %" if 0.0 < share < _SMALLEST_SHARE else f"{100 * share:.1f} %"


def ratio(value: float | None) -> str:
    """Return a ratio with up to three digits; from 0.0001 on without an exponent."""
    return UNKNOWN if value is None else _short(float(f"{value:.3g}"))


def duration(seconds: float | None) -> str:
    """Return a duration in a suitable unit."""
    if seconds is None:
        return UNKNOWN
    for least, unit, name in _UNITS:
        if seconds >= least:
            return f"{_short(seconds / unit)} {name}"
    return f"{count(seconds)} s"


def milliseconds(value: float) -> str:
    """Return a measured time in ms or s."""
    rounded = float(f"{value:.3g}")
    return f"{_short(rounded)} ms" if rounded < _A_SECOND_MS else f"{_short(rounded / _A_SECOND_MS)} s"


def moment(time_s: float) -> str:
    """Return a time as date and time, to the second; in seconds beyond the calendar."""
    try:
        return f"{datetime.fromtimestamp(time_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return f"{time_s:g} s"


def _short(amount: float) -> str:
    return f"{amount:.3g}" if amount < _WHOLE_FROM else f"{amount:,.0f}"
