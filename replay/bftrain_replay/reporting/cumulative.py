"""Charts of cumulative distributions: the share of tasks up to each value, one line per group."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain_replay.drawing.figure import category, quantity
from bftrain_replay.drawing.theme import HUES

_POINTS: Final = 500  # maximum points per line
_UNITS: Final = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_ROOM: Final = 1.03  # end of the axis of ratios over the largest value, to show the line's end
_LOG_AXIS_RATIO: Final = 12.0  # longest over median; above it, a linear axis would hide all but the longest
_DASHES: Final = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))  # distinguishes lines that share a hue
_FEW_PERCENT: Final = 2.0  # share of values to the left of a logarithmic axis
_WIDEST: Final = 1e5  # maximum ratio of the longest to the shortest value shown
_NARROWEST: Final = 1.5  # the axis of ratios covers at least 1 / 1.5 to 1.5


class CumulativeLine(msgspec.Struct, frozen=True, eq=False):
    """The values of a group of ``tasks``; NaN where a task has none."""

    name: str
    values: NDArray[np.float64]
    tasks: int

    @property
    def known(self) -> NDArray[np.float64]:
        """The known values, in order."""
        return np.sort(self.values[~np.isnan(self.values)])

    def steps(self, end: float, unit: float, begin: float = 0.0) -> Iterator[dict[str, Any]]:
        """Yield the line's corners from ``begin`` to ``end``: the share of all tasks up to each value."""
        known = self.known
        yield {"of": self.name, "at": begin / unit, "share": 0.0}
        for place in np.unique(np.linspace(0, known.size - 1, min(known.size, _POINTS)).astype(np.int64)).tolist():
            yield {"of": self.name, "at": float(known[place]) / unit, "share": (place + 1) / self.tasks}
        yield {"of": self.name, "at": end / unit, "share": known.size / self.tasks if known.size else 0.0}


def over_durations(lines: Sequence[CumulativeLine], title: str, hues: Sequence[str] = HUES) -> dict[str, Any]:
    """Return the chart of lines over durations; the axis title is the unit and ``title``.

    If the longest values are far from the rest, the axis is logarithmic and omits the shortest values.
    """
    known = np.concatenate([line.known for line in lines])
    longest_s, low_s = float(known.max()), _shortest_shown(known)
    unit, name = next(each for each in _UNITS if longest_s >= 2 * each[0] or each == _UNITS[-1])
    rows = [row for line in lines for row in line.steps(longest_s, unit, low_s)]
    scale = {"type": "log"} if low_s else {}
    x = quantity(
        "at",
        title=f"{name} {title}",
        scale={**scale, "domain": [low_s / unit, longest_s / unit], "nice": False, "clamp": True},
        axis={"tickCount": {"expr": "width / 90"}, "format": "~g", "labelOverlap": "greedy", "grid": False},
    )
    return _spec(rows, x, colour_scale([line.name for line in lines], hues))


def _shortest_shown(times_s: NDArray[np.float64]) -> float:
    """Return the start of a logarithmic axis; 0 for a linear one."""
    positive = times_s[times_s > 0.0]
    if not positive.size or positive.max() <= _LOG_AXIS_RATIO * float(np.median(positive)):
        return 0.0
    return max(float(np.percentile(positive, _FEW_PERCENT)), float(positive.max()) / _WIDEST)


def over_ratios(lines: Sequence[CumulativeLine], title: str, hues: Sequence[str] = HUES) -> dict[str, Any]:
    """Return the chart of lines over ratios, on a logarithmic axis with a rule at 1."""
    ends = [float(end) for line in lines if line.known.size for end in (line.known[0], line.known[-1]) if end > 0.0]
    low, high = min(*ends, 1.0 / _NARROWEST), max(*ends, _NARROWEST) * _ROOM
    rows = [row for line in lines for row in line.steps(high, 1.0, low)]
    scale = {"type": "log", "domain": [low, high], "nice": False}
    x = quantity(
        "at", title=title, scale=scale, axis={"format": "~g", "tickCount": 8, "labelOverlap": "greedy", "grid": False}
    )
    rule = {
        "data": {"values": [{"at": 1.0}]},
        "mark": {"type": "rule", "strokeDash": [4, 4], "color": "@ink"},
        "encoding": {"x": quantity("at", scale=scale)},
    }
    return {"layer": [_spec(rows, x, colour_scale([line.name for line in lines], hues)), rule]}


def colour_scale(names: Sequence[str], hues: Sequence[str] = HUES, **look: object) -> dict[str, Any]:
    """Return the colours of lines by their names; if there are more lines than hues, dashes distinguish them.

    ``look`` changes the legend, which by default shows lines, and is omitted for a single line.
    """
    legend = {"title": None, "symbolType": "stroke", "symbolStrokeWidth": 3, "labelLimit": 240, **look}
    colours = [hues[place % len(hues)] for place in range(len(names))]
    scale = {"domain": list(names), "range": colours}
    found = {"color": category("of", scale=scale, legend=legend if look or len(names) > 1 else None)}
    if len(names) > len(hues):
        dashes = [_DASHES[place // len(hues) % len(_DASHES)] for place in range(len(names))]
        found["strokeDash"] = category("of", scale={"domain": list(names), "range": dashes})
    return found


def _spec(rows: Sequence[Mapping[str, Any]], x: Mapping[str, Any], colours: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "data": {"values": rows},
        "mark": {"type": "line", "interpolate": "step-after", "strokeWidth": 2, "clip": True},
        "encoding": {
            "x": x,
            "y": quantity(
                "share", title="of all tasks", scale={"domain": [0, 1]}, axis={"format": ".0%", "tickCount": 5}
            ),
            **colours,
        },
    }
