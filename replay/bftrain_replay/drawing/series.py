"""Numbers over time, averaged and packed for a page; the time axis of charts; sums and medians of large columns."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain_datasets.log.time_formats import SMALLEST_EPOCH_S

_LAST_EPOCH_S: Final = 8.64e12  # the last time that a browser's Date supports
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
# Labels of an axis without a calendar: full days since the start, and the time of day between them
_LABELS_SINCE_START: Final = (
    "datum.value % 864e5 == 0 ? 'day ' + format(datum.value / 864e5, ',') : "
    "utcFormat(datum.value, datum.value % 1e3 ? '%H:%M:%S.%L' : datum.value % 6e4 ? '%H:%M:%S' : '%H:%M')"
)


class TimeAxis(msgspec.Struct, frozen=True):
    """Converts times, in seconds since the log's start, to axis positions."""

    start_s: float
    span_s: float

    @property
    def on_calendar(self) -> bool:
        """Whether the log has calendar times."""
        return SMALLEST_EPOCH_S <= self.start_s <= _LAST_EPOCH_S - self.span_s

    def positions(self, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return milliseconds since 1970; without calendar times, since the log's start."""
        return np.round((self.start_s * self.on_calendar + np.asarray(times_s)) * 1000.0)

    def position(self, time_s: float) -> float:
        """Return the position of one time."""
        return float(self.positions(np.array([time_s]))[0])

    @property
    def _end(self) -> float:
        """The last position: at least a millisecond after the first; an empty span is shown as a second."""
        return max(self.position(self.span_s), self.position(0.0) + 1.0) if self.span_s else self.position(1.0)

    def encoding(self) -> dict[str, Any]:
        """Return the encoding of ``t`` along a chart's width; the page chooses the visible part."""
        scale = {"type": "utc", "domainMin": {"expr": "from_t"}, "domainMax": {"expr": "to_t"}, "nice": False}
        look: dict[str, Any] = {"title": None, "tickCount": {"expr": "width / 90"}, "labelOverlap": True}
        if self.on_calendar:
            look |= {"format": _FORMATS}
        else:
            look |= {"title": "time since the log's start", "labelExpr": _LABELS_SINCE_START}
        return {"field": "t", "type": "temporal", "scale": scale, "axis": look}

    def window(self) -> list[dict[str, Any]]:
        """Return the parameters of the visible part: initially the whole time."""
        return [{"name": "from_t", "value": self.position(0.0)}, {"name": "to_t", "value": self._end}]

    def to_dict(self) -> dict[str, Any]:
        """Return the axis for the page's script: its first and last position, and whether they are calendar times."""
        return {"calendar": self.on_calendar, "from": self.position(0.0), "to": self._end}


_BYTES: Final = 4
_LEVEL: Final = 6  # compression level (maximum 9); the top three levels take six times as long for 3 %


def packed_integers(numbers: NDArray[Any]) -> str:
    """Pack integers from 0 to 2^32 - 1: all lowest bytes, then all second ones, and so on, deflated together.

    Bytes of equal rank are similar, and high-rank bytes are mostly 0, so this compresses better than number by number.
    """
    ranks = np.ascontiguousarray(numbers, dtype="<u4").view(np.uint8).reshape(-1, _BYTES)
    return _deflated(ranks[:, rank].tobytes() for rank in range(_BYTES))


def packed_floats(numbers: NDArray[np.float64]) -> str:
    """Pack floats without loss."""
    return _deflated([numbers.astype("<f8").tobytes()])


def _deflated(parts: Iterable[bytes]) -> str:
    packer = zlib.compressobj(_LEVEL)
    return base64.b64encode(b"".join((*map(packer.compress, parts), packer.flush()))).decode()


_STEPS_DRAWN: Final = 600  # steps that a screen can resolve; same value in page.js
_STEPS_KEPT: Final = 100_000  # steps per series in a page; longer series are averaged over time
_DIGITS: Final = 4  # decimal places


class StepSeries(msgspec.Struct, frozen=True, kw_only=True):
    """Step curves with common times: ``columns[name][i]`` lasts from ``times_s[i]`` to the next, the last to ``end_s``.

    ``of`` is the name of the series if a chart has several; each of its rows has this name in the field ``of``.
    """

    times_s: NDArray[np.float64]
    end_s: float
    columns: Mapping[str, NDArray[Any]]
    of: str = ""

    def averaged(self, most: int) -> StepSeries:
        """Return curves with up to ``most`` steps and the same integrals."""
        if self.times_s.size <= most:
            return self
        bounds = np.append(self.times_s, self.end_s)
        edges = np.linspace(bounds[0], bounds[-1], most + 1)
        columns = {}
        for name, values in self.columns.items():
            integral = np.concatenate(([0.0], np.cumsum(values * np.diff(bounds))))
            columns[name] = np.diff(np.interp(edges, bounds, integral)) / np.diff(edges)
        return StepSeries(times_s=edges[:-1], end_s=self.end_s, columns=columns, of=self.of)

    def rows(self, time_axis: TimeAxis) -> list[dict[str, Any]]:
        """Return the rows that a chart draws; the last row is repeated at ``end_s``."""
        series = self.averaged(_STEPS_DRAWN)
        positions = time_axis.positions(np.append(series.times_s, series.end_s)).tolist()
        names = list(series.columns)
        cells = [np.round(column, _DIGITS).tolist() for column in series.columns.values()]
        rows = [
            {"t": position, **dict(zip(names, values, strict=True))}
            for position, *values in zip(positions[:-1], *cells, strict=True)
        ]
        if rows:
            rows.append({**rows[-1], "t": positions[-1]})
        return [{**row, "of": self.of} for row in rows] if self.of else rows

    def packed(self, time_axis: TimeAxis) -> dict[str, Any]:
        """Return the data from which the page's script makes rows, for any part of the time."""
        if self.times_s.size <= _STEPS_KEPT:
            t: object = packed_floats(time_axis.positions(np.append(self.times_s, self.end_s)))
            columns = {name: packed_floats(np.round(values, _DIGITS)) for name, values in self.columns.items()}
        else:
            # The averaged steps have equal length
            means, first, last = self.averaged(_STEPS_KEPT).columns, float(self.times_s[0]), self.end_s
            t = {"from": time_axis.position(first), "to": time_axis.position(last), "steps": _STEPS_KEPT}
            columns = {
                name: packed_floats(np.round(values, _digits_of_means(values))) for name, values in means.items()
            }
        return {"of": self.of, "t": t, "columns": columns}


def _digits_of_means(means: NDArray[np.float64]) -> int:
    """Return the decimal places to keep: fewer for large means, because no reader sees them, and they pack badly."""
    return max(_DIGITS - int(np.log10(max(float(np.abs(means).max()), 1.0))), 1)


_ROWS_PER_BATCH: Final = 1 << 20  # rows merged at a time


def sum_by_key(parts: Iterable[tuple[NDArray[Any], NDArray[np.int64]]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct keys of all parts, in order, and the sum of each key's numbers.

    Memory grows with the distinct keys only.
    """
    keys, sums = [np.empty(0)], [np.empty(0, dtype=np.int64)]  # the first items are merged already
    unmerged = 0
    for key, numbers in parts:
        keys.append(key)
        sums.append(numbers)
        unmerged += key.size
        if unmerged > max(_ROWS_PER_BATCH, keys[0].size):
            merged = _merged(keys, sums)
            keys, sums, unmerged = [merged[0]], [merged[1]], 0
    return _merged(keys, sums)


def distinct(parts: Iterable[NDArray[np.float64]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the distinct numbers of all parts, in order, and how often each occurs."""
    return sum_by_key(np.unique(part, return_counts=True) for part in parts)


def median(parts: Iterable[NDArray[np.float64]]) -> float:
    """Return the median of the numbers of all parts, which must not be empty."""
    return median_of(*distinct(parts))


def median_of(values: NDArray[np.float64], counts: NDArray[np.int64]) -> float:
    """Return the weighted median of ordered values; ``counts`` are the weights."""
    until = np.cumsum(counts)
    middle = np.searchsorted(until, ((until[-1] - 1) // 2, until[-1] // 2), side="right")
    return float(values[middle].mean())


def _merged(keys: list[NDArray[Any]], sums: list[NDArray[np.int64]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    distinct_keys, place = np.unique(np.concatenate(keys), return_inverse=True)
    totals = np.zeros(distinct_keys.size, dtype=np.int64)
    np.add.at(totals, place, np.concatenate(sums))
    return distinct_keys, totals
