"""Losses: the causes of idle node-time without useful work, and the waterfall and the table that explain them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec

from bftrain import text_formats
from bftrain_replay.drawing.figure import TOOLTIP, ChartFigure, category, quantity
from bftrain_replay.drawing.html_page import HtmlCell, HtmlTable
from bftrain_replay.run.headline import harvest_node_h, ran_out
from bftrain_replay.run.run import Run
from bftrain_replay.run.summary_figures import FIGURE_OF, GLOSSARY_OF, SummaryFigure
from bftrain_replay.simulation.node_time_ledger import UnusedReason
from bftrain_replay.simulation.task_progress import SampleLoss

_ALL: Final = "All idle node-time"
USEFUL: Final = "Work that counts"
_CEILING: Final = "Used, without costs"
_ROW: Final = 34  # height of a row in pixels
_NARROW_ROW: Final = 46  # the same on narrow screens, with the name above the bar
_BAR: Final = 22  # height of a bar in pixels
_LONG: Final = 0.4  # fraction of the width; longer bars have room for their label inside
_FAR_RIGHT: Final = 0.6  # fraction of the width; bars that end further right have their label on the left
# Colours of labels inside bars, by the colour of the bar
_INKS: Final = dict.fromkeys(("@used", "@start", "@unnoticed", "@spread"), "@page") | dict.fromkeys(
    ("@unused", "@rescaling", "@preempted"), "@over"
)
_MOST_HINTS: Final = 4
_LEAST_SHARE: Final = 0.002  # fraction of the idle node-time; smaller losses need no explanation


class IdleCause(msgspec.Struct, frozen=True):
    """A cause of idle node-time without useful work; ``key`` names it in files, and ``figure`` describes it.

    The ``explanation`` of its figure is empty if it only depends on settings, which replays try out
    (:mod:`bftrain_replay.run.variations`).
    """

    key: UnusedReason | SampleLoss

    @property
    def lost(self) -> bool:
        """Whether nodes were allocated and the work was lost; otherwise they were unused."""
        return isinstance(self.key, SampleLoss)

    @property
    def figure(self) -> SummaryFigure:
        """The figure of its share of the idle node-time."""
        return FIGURE_OF[f"{'lost' if self.lost else 'unused'}.{self.key}"]

    @property
    def name(self) -> str:
        """Its label, at the beginning of a line."""
        if self.key is UnusedReason.NOT_WORTH:
            return "Not worth a start"  # the label is shorter, for narrow tables
        label = self.figure.label.removeprefix("unused: ").removeprefix("lost to ")
        return f"{label[:1].upper()}{label[1:]}"

    @property
    def meaning(self) -> str:
        """Its meaning, from the glossary."""
        return GLOSSARY_OF[self.figure.name].meaning

    @property
    def happened(self) -> str:
        """The rest of a sentence that starts with a number of node-hours."""
        return self.figure.predicate or f"stayed unused because {self.meaning}"


# In the order of the waterfall: reasons for unused nodes, then losses
_LOSSES: Final = dict.fromkeys((SampleLoss.START_UP, SampleLoss.RESCALING, *SampleLoss))
CAUSES: Final = tuple(map(IdleCause, (*UnusedReason, *_LOSSES)))
CAUSE_NAMES: Final = {str(cause.key): cause.name for cause in CAUSES}


def node_hours(summary: Mapping[str, Any], cause: IdleCause) -> float:
    """Return the node-hours of this cause."""
    if cause.lost:
        lost = summary["lost"].get(cause.key)  # spreading is missing without a loss
        return float(lost["node_h"]) if lost else 0.0
    return float(summary["unused_node_h"].get(cause.key, 0.0))  # "other kind" is missing if all nodes are of one kind


def steps(run: Run) -> list[tuple[IdleCause, float]]:
    """Return the causes with any node-hours, in waterfall order."""
    every = [(cause, node_hours(run.summary, cause)) for cause in CAUSES]
    return [(cause, hours) for cause, hours in every if hours > 0.0]


def waterfall(run: Run) -> ChartFigure | None:
    """Return the chart; ``None`` without idle node-time."""
    if not run.summary["idle_node_h"]:
        return None
    rows, node = _rows(run), run.node
    alt = f"Where the idle {node}-time went. " + "; ".join(f"{row['name']}: {row['words']}" for row in rows) + "."
    axis = {"labelLimit": 170, "labelColor": "@ink", "domain": False, "ticks": False}
    above = {"labelAlign": "left", "labelPadding": 0, "labelOffset": 2 - _BAR, "labelLimit": 0, "minExtent": 0}
    return ChartFigure(
        name="waterfall",
        title=f"Where the idle {node}-time went",
        alt=alt,
        height=_ROW * len(rows),
        spec={
            "data": {"values": rows},
            "encoding": {"y": category("name", sort=None, title=None, axis=axis)},
            "layer": _layers(rows, node),
        },
        # Bars leave no room for names at their side: names go above them
        narrow={"height": _NARROW_ROW * len(rows), "encoding": {"y": {"axis": above}}},
    )


def _layers(rows: Sequence[Mapping[str, Any]], node: str) -> list[dict[str, Any]]:
    scale = {"domain": [0.0, rows[0]["to"]], "nice": False}
    bars = {
        "mark": {
            "type": "bar",
            "height": _BAR,
            "cornerRadius": 2,
            "strokeDash": [4, 3],
            "clip": True,
            "tooltip": TOOLTIP,
        },
        "encoding": {
            "x": quantity("from", title=f"{node}-hours", scale=scale, axis={"tickCount": 5}),
            "x2": {"field": "to"},
            "color": category("colour", scale=None),
            "stroke": category("edge", scale=None),
        },
    }
    return [bars, *map(_labels, sorted({row["side"] for row in rows}))]  # Vega would warn of an empty layer


def _rows(run: Run) -> list[dict[str, Any]]:
    """Return the rows of the chart: all idle node-time, a step for each cause, and the remaining work."""
    summary = run.summary
    idle_h = float(summary["idle_node_h"])
    row = partial(_row, idle_h=idle_h, node=run.node)
    rows = [row(run.words(_ALL), (0.0, idle_h), "@idle")]
    left = idle_h
    for cause, hours in steps(run):
        rows.append(row(run.words(cause.name), (left - hours, left), cause.figure.colour))
        left -= hours
    rows.append(row(USEFUL, (0.0, harvest_node_h(summary)), "@used"))
    if _ceiling_bounds(summary):
        bar = (0.0, float(summary["ceiling"]["used_node_h"]))
        rows.append({**row(_CEILING, bar, "transparent"), "edge": "@used"})
    return rows


def _ceiling_bounds(summary: Mapping[str, Any]) -> bool:
    """Return whether the node-time used without costs is shown: not if the tasks ran out.

    It is their demand then, which may be less than their use with costs.
    """
    return bool(summary["ceiling"]) and not ran_out(summary["ceiling"])


def _row(name: str, bar: tuple[float, float], colour: str, *, idle_h: float, node: str) -> dict[str, Any]:
    begin, end = max(bar[0], 0.0), bar[1]
    short = f"{text_formats.count(end - begin)} h, {text_formats.percent((end - begin) / idle_h)}"
    inside = end - begin > _LONG * idle_h
    side = "left" if inside or end > _FAR_RIGHT * idle_h else "right"
    return {
        "name": name,
        "from": begin,
        "to": end,
        "at": end if inside or side == "right" else begin,
        "side": side,
        "words": short,
        "tooltip": f"{name}: {short} of the idle {node}-time",
        "colour": colour,
        "edge": "transparent",
        "ink": _INKS.get(colour, "@ink") if inside else "@ink",
    }


def _labels(side: str) -> dict[str, Any]:
    """Return the layer of the labels on this side of their bar's end or start."""
    return {
        "transform": [{"filter": f"datum.side == '{side}'"}],
        "mark": {"type": "text", "align": "left" if side == "right" else "right", "dx": 6 if side == "right" else -6},
        "encoding": {"x": quantity("at"), "text": category("words"), "color": category("ink", scale=None)},
    }


def meanings(run: Run) -> HtmlTable | None:
    """Return the table that explains each step; ``None`` without steps."""
    idle_h = float(run.summary["idle_node_h"])

    def row(name: str, hours: float, meaning: str) -> tuple[str | HtmlCell, ...]:
        share = text_formats.percent(hours / idle_h)
        return run.words(name), HtmlCell(f"{text_formats.count(hours)} h", hours), share, run.words(meaning)

    rows = [row(cause.name, hours, cause.meaning) for cause, hours in steps(run)]
    if _ceiling_bounds(run.summary) and idle_h:
        meaning = "time of the tasks on the same log if starting, rescaling and preemption were free"
        rows.append(row(_CEILING, float(run.summary["ceiling"]["used_node_h"]), meaning))
    if not rows:
        return None
    headings = ("step", f"{run.node}-hours", "of idle", "what it is")
    return HtmlTable(label="What each step means", headings=headings, rows=rows, css="plain meanings")


def hints(run: Run) -> list[tuple[IdleCause, float]]:
    """Return the largest steps that are not negligible, largest first."""
    least_h = _LEAST_SHARE * float(run.summary["idle_node_h"])
    large = [(cause, hours) for cause, hours in steps(run) if hours >= least_h]
    return sorted(large, key=lambda item: -item[1])[:_MOST_HINTS]
