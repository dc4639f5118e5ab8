"""Colours of pages and charts in two themes, light (also for paper and files) and dark, and the look of all charts.

A chart names colours by role, such as ``"@used"``; drawing replaces the role with a colour. Most hues are from Okabe
and Ito; a test checks that all are distinguishable with any colour vision.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

SHADES: Final = 16  # colours from few nodes to many: the roles shade0, shade1, ...


def _shades(first: str, last: str) -> dict[str, str]:
    """Return the colours of all shades, interpolated between the first and the last."""
    low, high = (bytes.fromhex(colour[1:]) for colour in (first, last))
    return {
        f"shade{step}": "#" + bytes(a + (b - a) * step // (SHADES - 1) for a, b in zip(low, high, strict=True)).hex()
        for step in range(SHADES)
    }


def _reasons(*colours: str) -> dict[str, str]:
    """Return the colours of the reasons for unused nodes; neighbours in a bar differ clearly."""
    return {f"reason{number}": colour for number, colour in enumerate(colours)}


LIGHT: Final[Mapping[str, str]] = {
    "page": "#ffffff",
    "card": "#f4f6f8",
    "ink": "#1b2126",
    "soft": "#56616b",
    "line": "#d5dbe1",
    "busy": "#eef1f4",
    "idle": "#b4c1ce",
    "used": "#0072b2",
    "link": "#00619a",
    "over": "#0b0e10",  # text on light fills
    "preempted": "#d55e00",
    "rescaling": "#e69f00",
    "start": "#a8327d",
    "unnoticed": "#8c6d31",
    "spread": "#8a2be2",
    "unused": "#8a96a3",
    "followed": "#c2185b",
    **_reasons("#8a96a3", "#334455", "#aaccee", "#bb9988", "#554433", "#ddccaa", "#777755"),
    **_shades("#c6dbef", "#08306b"),
}
DARK: Final[Mapping[str, str]] = {
    "page": "#14181c",
    "card": "#1e242a",
    "ink": "#e8ecef",
    "soft": "#a6b1bb",
    "line": "#37414a",
    "busy": "#1b2127",
    "idle": "#55646f",
    "used": "#56b4e9",
    "link": "#7cc4ee",
    "over": "#14181c",
    "preempted": "#f08a4b",
    "rescaling": "#e9b949",
    "start": "#d99bbd",
    "unnoticed": "#ddd6a0",
    "spread": "#b266ff",
    "unused": "#7d8a96",
    "followed": "#ff7ab0",
    **_reasons("#7d8a96", "#bbddff", "#445577", "#aabb99", "#664433", "#998877", "#666666"),
    **_shades("#23455f", "#d6ecff"),
}

# Colours of items of one kind, such as tasks or replays; they repeat if there are more items
HUES: Final = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#8c6d31", "#9933ff")

FONT: Final = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

# The Vega-Lite config of every chart
CONFIG: Final[Mapping[str, Any]] = {
    "font": FONT,
    "background": None,
    "padding": {"left": 2, "right": 10, "top": 6, "bottom": 2},
    "view": {"stroke": None},
    "axis": {
        "labelColor": "@soft",
        "titleColor": "@soft",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "gridColor": "@line",
        "domainColor": "@line",
        "tickColor": "@line",
        "labelPadding": 5,
        "labelSeparation": 8,
        "titlePadding": 8,
    },
    "axisX": {"grid": False},
    "axisY": {"domain": False, "ticks": False, "minExtent": 38},  # aligns figures below each other
    "legend": {
        "labelColor": "@ink",
        "titleColor": "@soft",
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "orient": "top",
        "symbolType": "square",
        "symbolSize": 140,
        "symbolStrokeWidth": 0,
        "labelLimit": 0,
    },
    "text": {"color": "@ink", "fontSize": 12},
    "rule": {"color": "@soft"},
    "range": {"category": list(HUES)},
}


def coloured(spec: Any, theme: Mapping[str, str]) -> Any:  # noqa: ANN401 - any JSON value
    """Return ``spec`` with every role replaced by its colour."""
    if isinstance(spec, str):
        return theme.get(spec[1:], spec) if spec.startswith("@") else spec
    if isinstance(spec, Mapping):
        return {name: coloured(value, theme) for name, value in spec.items()}
    if isinstance(spec, list | tuple):
        return [coloured(value, theme) for value in spec]
    return spec
