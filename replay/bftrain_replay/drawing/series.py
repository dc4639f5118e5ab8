"""Series: numbers over time with limited resolution, packed for a page, and the axis of their time."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

_EPOCH_FROM_S: Final = 1e8  # earlier log times count from an arbitrary zero instead of 1970
_EPOCH_TO_S: Final = 8.64e12  # last time that browser calendars support
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
# Without a calendar, milliseconds count from the start: full days, and hours between them
_SINCE: Final = (
    "datum.value % 864e5 == 0 ? 'day ' + format(datum.value / 864e5, ',') : "
    "utcFormat(datum.value, datum.value % 1e3 ? '%H:%M:%S.%L' : datum.value % 6e4 ? '%H:%M:%S' : '%H:%M')"
)


class TimeAxis(msgspec.Struct, frozen=True):
    """Converts log times, in seconds since the start, to axis positions."""

    start_s: float
    span_s: float

    @property
    def on_calendar(self) -> bool:
        """Whether the log has calendar times."""
        return _EPOCH_FROM_S <= self.start_s <= _EPOCH_TO_S - self.span_s

    def places(self, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return milliseconds since 1970, or since the log's start."""
        return np.round((self.start_s * self.on_calendar + np.asarray(times_s)) * 1000.0)

    def place(self, time_s: float) -> float:
        """Return the same for one time."""
        return float(self.places(np.array([time_s]))[0])

    @property
    def _end(self) -> float:
        """The last point of the axis: an empty span is shown as a second."""
        return max(self.place(self.span_s), self.place(0.0) + 1.0) if self.span_s else self.place(1.0)

    def axis(self) -> dict[str, Any]:
        """Return the encoding of ``t`` along a chart's width; the page chooses the visible part."""
        scale = {"type": "utc", "domainMin": {"expr": "from_t"}, "domainMax": {"expr": "to_t"}, "nice": False}
        look: dict[str, Any] = {"title": None, "tickCount": {"expr": "width / 90"}, "labelOverlap": True}
        if self.on_calendar:
            look |= {"format": _FORMATS}
        else:
            look |= {"title": "time since the log's start", "labelExpr": _SINCE}
        return {"field": "t", "type": "temporal", "scale": scale, "axis": look}

    def window(self) -> list[dict[str, Any]]:
        """Return the parameters of the visible part; at first all."""
        return [{"name": "from_t", "value": self.place(0.0)}, {"name": "to_t", "value": self._end}]

    def to_dict(self) -> dict[str, Any]:
        """Return what page.js needs to format a time."""
        return {"calendar": self.on_calendar, "from": self.place(0.0), "to": self._end}


_BYTES: Final = 4
_LEVEL: Final = 6  # compression level (maximum 9); the top three levels take six times as long for 3 %


def counts(numbers: NDArray[Any]) -> str:
    """Pack integers from 0 to 2^32: all lowest bytes, then all second ones, and so on, deflated together.

    Bytes of equal rank are similar, and high-rank bytes are mostly 0, so this compresses better than number by number.
    """
    ranks = np.ascontiguousarray(numbers, dtype="<u4").view(np.uint8).reshape(-1, _BYTES)
    return _text(ranks[:, rank].tobytes() for rank in range(_BYTES))


def floats(numbers: NDArray[np.float64]) -> str:
    """Pack floats without loss."""
    return _text([numbers.astype("<f8").tobytes()])


def _text(parts: Iterable[bytes]) -> str:
    packer = zlib.compressobj(_LEVEL)
    return base64.b64encode(b"".join((*map(packer.compress, parts), packer.flush()))).decode()


STEPS: Final = 600  # steps that a screen can resolve; same value in page.js
KEPT: Final = 100_000  # points per series in a page; longer series are averaged over time
_DIGITS: Final = 4  # decimal places


class StepSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Step curves with common times: ``columns[name][i]`` lasts from ``times_s[i]`` to the next, the last to ``end_s``.

    ``of`` names the series among several in one chart: each row of data has it as ``of``.
    """

    times_s: NDArray[np.float64]
    end_s: float
    columns: Mapping[str, NDArray[Any]]
    of: str = ""

    def averaged(self, most: int) -> StepSeries:
        """Return curves with up to that many steps and the same integrals."""
        if self.times_s.size <= most:
            return self
        bounds = np.append(self.times_s, self.end_s)
        edges = np.linspace(bounds[0], bounds[-1], most + 1)
        columns = {}
        for name, values in self.columns.items():
            integral = np.concatenate(([0.0], np.cumsum(values * np.diff(bounds))))
            columns[name] = np.diff(np.interp(edges, bounds, integral)) / np.diff(edges)
        return StepSeries(times_s=edges[:-1], end_s=self.end_s, columns=columns, of=self.of)

    def rows(self, moments: TimeAxis, most: int = STEPS) -> list[dict[str, Any]]:
        """Return the rows that a chart draws; the last row is repeated at ``end_s``."""
        series = self.averaged(most)
        places = moments.places(np.append(series.times_s, series.end_s)).tolist()
        names = list(series.columns)
        cells = [np.round(column, _DIGITS).tolist() for column in series.columns.values()]
        rows = [
            {"t": place, **dict(zip(names, values, strict=True))}
            for place, *values in zip(places[:-1], *cells, strict=True)
        ]
        if rows:
            rows.append({**rows[-1], "t": places[-1]})
        return [{**row, "of": self.of} for row in rows] if self.of else rows

    def packed(self, moments: TimeAxis) -> dict[str, Any]:
        """Return the data from which page.js makes rows, for any part of the time."""
        series = self.averaged(KEPT)

        def digits(values: NDArray[np.float64]) -> int:  # a reader sees few digits of large means, and they pack badly
            of_means = max(_DIGITS - int(np.log10(max(float(np.abs(values).max()), 1.0))), 1)
            return _DIGITS if series is self else of_means

        columns = {name: floats(np.round(values, digits(values))) for name, values in series.columns.items()}
        t: object = floats(moments.places(np.append(series.times_s, series.end_s)))
        if series is not self:  # steps have equal length after averaging
            t = {"from": moments.place(float(series.times_s[0])), "to": moments.place(series.end_s), "steps": KEPT}
        return {"of": self.of, "t": t, "columns": columns}


_ROWS_PER_BATCH: Final = 1 << 20


def sum_by_key(parts: Iterable[tuple[NDArray[Any], NDArray[np.int64]]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct keys of all parts, in order, and the sum of each key's numbers.

    Memory grows with the distinct keys only.
    """
    keys, sums = [np.empty(0)], [np.empty(0, dtype=np.int64)]
    waiting = 0
    for key, numbers in parts:
        keys.append(key)
        sums.append(numbers)
        waiting += key.size
        if waiting > max(_ROWS_PER_BATCH, keys[0].size):
            merged = _merged(keys, sums)
            keys, sums, waiting = [merged[0]], [merged[1]], 0
    return _merged(keys, sums)


def counted(parts: Iterable[NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the distinct numbers of all parts, in order, and how often each occurs."""
    return sum_by_key(np.unique(part, return_counts=True) for part in parts)


def median(parts: Iterable[NDArray[np.float64]]) -> float:
    """Return the median of the numbers of all parts, which must not be empty."""
    return median_of(*counted(parts))


def median_of(values: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """Return the weighted median of ordered values; ``counts`` are the weights."""
    until = np.cumsum(counts)
    middle = np.searchsorted(until, ((until[-1] - 1) // 2, until[-1] // 2), side="right")
    return float(values[middle].mean())


def _merged(keys: list[NDArray[Any]], sums: list[NDArray[np.int64]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    key, place = np.unique(np.concatenate(keys), return_inverse=True)
    found = np.zeros(key.size, dtype=np.int64)
    np.add.at(found, place, np.concatenate(sums))
    return key, found
