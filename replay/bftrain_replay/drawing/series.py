"""Series: numbers over time, as many points of them as a screen can show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain_replay.drawing.packed_numbers import floats
from bftrain_replay.drawing.time_axis import TimeAxis

STEPS: Final = 600  # as many as a screen shows apart; page.js takes as many
KEPT: Final = 100_000  # points of one series in a page: finer than that, stretches of time are averaged
_DIGITS: Final = 4  # behind the point


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSeries:
    """Step curves with common times: ``columns[name][i]`` holds from ``times_s[i]`` to the next, the last to ``end_s``.

    ``of`` tells several series in one figure apart: each row of data bears it as ``of``.
    """

    times_s: NDArray[np.float64]
    end_s: float
    columns: Mapping[str, NDArray[Any]]
    of: str = ""

    def averaged(self, most: int) -> StepSeries:
        """Give curves of at most so many steps, with the same integrals."""
        if self.times_s.size <= most:
            return self
        bounds = np.append(self.times_s, self.end_s)
        edges = np.linspace(bounds[0], bounds[-1], most + 1)
        columns = {}
        for name, values in self.columns.items():
            integral = np.concatenate(([0.0], np.cumsum(values * np.diff(bounds))))
            columns[name] = np.diff(np.interp(edges, bounds, integral)) / np.diff(edges)
        return StepSeries(times_s=edges[:-1], end_s=self.end_s, columns=columns, of=self.of)

    def extremes(self, most: int, least_name: str, most_name: str) -> StepSeries:
        """Return the least and the most of each column within each of at most so many steps, as two columns."""
        bounds = np.append(self.times_s, self.end_s)
        edges = np.linspace(bounds[0], bounds[-1], most + 1) if self.times_s.size > most else bounds
        first = np.searchsorted(self.times_s, edges[:-1], side="right") - 1
        last = np.maximum(np.searchsorted(self.times_s, edges[1:], side="left") - 1, first)
        columns = {}
        for name, values in self.columns.items():
            for suffix, extreme in ((least_name, np.minimum), (most_name, np.maximum)):
                columns[name + suffix] = extreme(extreme.reduceat(values, first), values[last])
        return StepSeries(times_s=edges[:-1], end_s=self.end_s, columns=columns, of=self.of)

    def rows(self, moments: TimeAxis, most: int = STEPS) -> list[dict[str, Any]]:
        """Give the rows that a figure draws; the last repeats the one before at the end."""
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
        """Give what page.js makes rows of, for any part of the time."""
        series = self.averaged(KEPT)
        columns = {name: floats(np.round(values, _DIGITS)) for name, values in series.columns.items()}
        return {"of": self.of, "t": floats(moments.places(np.append(series.times_s, series.end_s))), "columns": columns}
