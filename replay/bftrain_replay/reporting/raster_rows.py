"""Rows: how a raster is described: its axes, and a key to its colours; the raster itself is drawn behind them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bftrain_replay.drawing.time_axis import TimeAxis

NARROW: Final = {"encoding": {"color": {"legend": {"columns": 3}}}}


def rows(moments: TimeAxis, title: str, key: Mapping[str, str]) -> dict[str, Any]:
    """Describe rows over time; ``title`` says what they are, ``key`` what each colour is."""
    span = moments.to_dict()
    scale = {"domainMin": {"expr": "from_row"}, "domainMax": {"expr": "to_row"}, "reverse": True, "nice": False}
    return {
        "data": {"values": [{"t": span["from"]}, {"t": span["to"]}]},
        "mark": {"type": "square", "opacity": 0, "size": 0, "clip": True},  # else it takes room beside what is shown
        "encoding": {
            "x": moments.axis(),
            "y": {
                "datum": 0,
                "type": "quantitative",
                "scale": {**scale, "zero": False},
                "axis": {"title": title, "grid": False, "tickMinStep": 1, "tickCount": 5, "format": ",d"},
            },
            "color": {
                "datum": next(iter(key)),
                "type": "nominal",
                "scale": {"domain": list(key), "range": list(key.values())},
                "legend": {"title": None, "symbolOpacity": 1},
            },
        },
    }
