"""The chart of how long nodes stayed idle, by number of times and by node-time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bftrain import text_formats
from bftrain_datasets.log.measures import fragments_in_parts
from bftrain_replay.drawing.figure import TOOLTIP, ChartFigure, category, quantity
from bftrain_replay.drawing.series import distinct, median_of
from bftrain_replay.run.run import Run
from bftrain_replay.run.tables import SECONDS_AN_HOUR

# Upper bounds of the bars in seconds, 10 s to 3 days; a last bar has all longer times
_BOUNDS_S: Final = (10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 259200)
_UNITS_S: Final = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def idle_lengths(run: Run) -> ChartFigure | None:
    """Return the chart; ``None`` without idle node-time."""
    length_s, count = distinct(part.length_s for part in fragments_in_parts(run.log))
    total_s = length_s * count
    if not total_s.sum() > 0.0:
        return None
    bar = np.searchsorted(_BOUNDS_S, length_s, side="left")
    bars = len(_BOUNDS_S) + 1
    shares = {
        "share of the idle periods": np.bincount(bar, weights=count, minlength=bars) / count.sum(),
        f"share of the idle {run.node}-time": np.bincount(bar, weights=total_s, minlength=bars) / total_s.sum(),
    }
    numbers = range(int(bar.min()), int(bar.max()) + 1)
    rows = [_row(number, kind, float(share[number])) for number in numbers for kind, share in shares.items()]
    long = float(total_s[length_s > SECONDS_AN_HOUR].sum() / total_s.sum())
    says = (
        f"{run.words('Nodes')} were idle {text_formats.counted(int(count.sum()), 'time')}, half of these for less than "
        f"{text_formats.duration(median_of(length_s, count))}. "
        f"Periods longer than an hour have {text_formats.percent(long)} of the idle {run.node}-time."
    )
    x_axis = {"labelAngle": 0, "labelOverlap": "greedy", "grid": False}
    colours = {"domain": list(shares), "range": ["@unused", "@used"]}
    return ChartFigure(
        name="pieces",
        title=f"How long {run.node}s stayed idle",
        says=says,
        caption=f"Grey: share of the idle periods with this length. Blue: their share of the idle {run.node}-time.",
        height=240,
        spec={
            "data": {"values": rows},
            "mark": {"type": "bar", "cornerRadiusEnd": 2, "tooltip": TOOLTIP},
            "encoding": {
                "x": category("length", sort=None, title="idle for up to", axis=x_axis),
                "xOffset": category("kind", sort=list(shares)),
                "y": quantity("share", title="share", axis={"format": ".0%", "tickCount": 5}),
                "color": category("kind", scale=colours, legend={"title": None}),
            },
        },
    )


def _row(number: int, kind: str, share: float) -> dict[str, Any]:
    low, high = (_text(_BOUNDS_S[place]) if 0 <= place < len(_BOUNDS_S) else "" for place in (number - 1, number))
    between = f"{low or '0 s'} to {high}" if high else f"longer than {low}"
    tooltip = f"{between}: {text_formats.percent(share)} {kind.removeprefix('share ')}"
    return {"length": high or f"> {low}", "kind": kind, "share": share, "tooltip": tooltip}


def _text(seconds: int) -> str:
    size, unit = next(each for each in _UNITS_S if seconds % each[0] == 0)
    return f"{seconds // size} {unit}"
