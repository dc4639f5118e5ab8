"""Moments: how time stands on an axis: on the calendar in UTC, or as time since a log's start if no calendar fits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_EPOCH_FROM_S: Final = 1e8  # logs that begin earlier count from some zero of their own, not from 1970
_EPOCH_TO_S: Final = 8.64e12  # where the calendar of browsers ends
_FORMATS: Final = {
    "year": "%Y",
    "quarter": "%b %Y",
    "month": "%b %Y",
    "week": "%-d %b",
    "date": "%-d %b",
    "day": "%-d %b",
    "hours": "%H:%M",
    "minutes": "%H:%M",
    "seconds": "%H:%M:%S",
    "milliseconds": "%H:%M:%S.%L",
}
# Where there is no calendar, milliseconds are read as those since the start: full days, and hours between them
_SINCE: Final = (
    "datum.value % 864e5 == 0 ? 'day ' + format(datum.value / 864e5, ',') : "
    "utcFormat(datum.value, datum.value % 1e3 ? '%H:%M:%S.%L' : datum.value % 6e4 ? '%H:%M:%S' : '%H:%M')"
)


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Where moments of a log stand on an axis. Times are given in seconds since the log's start."""

    start_s: float
    span_s: float

    @property
    def on_calendar(self) -> bool:
        """Whether the log tells when it was."""
        return _EPOCH_FROM_S <= self.start_s <= _EPOCH_TO_S - self.span_s

    def places(self, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Give milliseconds: since 1970, or since the log's start."""
        return np.round((self.start_s * self.on_calendar + np.asarray(times_s)) * 1000.0)

    def place(self, time_s: float) -> float:
        """Like :meth:`places`, for one."""
        return float(self.places(np.array([time_s]))[0])

    @property
    def _end(self) -> float:
        """Where the axis ends: an empty span is shown as a second."""
        return max(self.place(self.span_s), self.place(0.0) + 1.0) if self.span_s else self.place(1.0)

    def axis(self, field: str = "t") -> dict[str, Any]:
        """Give the encoding of ``field`` along a figure's width; the part that is shown is the page's to choose."""
        scale = {"type": "utc", "domainMin": {"expr": "from_t"}, "domainMax": {"expr": "to_t"}, "nice": False}
        look: dict[str, Any] = {"title": None, "tickCount": {"expr": "width / 90"}, "labelOverlap": True}
        if self.on_calendar:
            look |= {"format": _FORMATS}
        else:
            look |= {"title": "time since the log's start", "labelExpr": _SINCE}
        return {"field": field, "type": "temporal", "scale": scale, "axis": look}

    def window(self) -> list[dict[str, Any]]:
        """Give the parameters that say which part is shown; at first all."""
        return [
            {"name": "from_t", "value": self.place(0.0)},
            {"name": "to_t", "value": self._end},
        ]

    def to_dict(self) -> dict[str, Any]:
        """Give what page.js must know to say a moment in words."""
        return {"calendar": self.on_calendar, "from": self.place(0.0), "to": self._end}
