"""Charts: a metric against each swept option, one line per combination of the other options."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from bftrain import text_formats
from bftrain.text_formats import plain
from bftrain_replay.drawing.figure import ChartFigure, category, quantity
from bftrain_replay.drawing.theme import SHADES
from bftrain_replay.run.headline import NOT_RANKED
from bftrain_replay.run.summary_figures import BetterDirection
from bftrain_replay.sweeping.pareto_front import ParetoAxis, ParetoPlane, ParetoPoint
from bftrain_replay.sweeping.seed_spread import Cells, SeedSpread, reach, spreads
from bftrain_replay.sweeping.sweep_options import SEED, Value
from bftrain_replay.sweeping.sweep_spec import SweepSpec
from bftrain_replay.sweeping.sweep_table import (
    BASELINE,
    CEILING,
    EFFICIENCY,
    MetricColumn,
    PointRow,
    metric_of,
    ranks,
    tasks_ran_out,
)

MOST_LINES: Final = 8  # number of distinguishable colours
_MOST_WITH_OTHERS: Final = 4  # maximum lines that leave room for ceiling and baseline
_LOG_FROM: Final = 15.0  # ratio of largest to smallest value above which an axis is logarithmic
_MOST_TICKS: Final = 12
_HEAT_FROM: Final = 3  # minimum number of values of both options for a heat map
_REPLAY: Final = "replay"
_KINDS: Final = {CEILING: "without costs", BASELINE: "baseline"}


def as_drawn(rows: Sequence[PointRow], spec: SweepSpec) -> list[PointRow]:
    """Return the rows with the options of cases joined to one, because they vary together.

    An option with a different value in every case represents all.
    """
    names = [name for name in spec.swept if name not in spec.axes]
    if len(names) < 2 or not rows:  # noqa: PLR2004 - one goes with itself
        return list(rows)
    cells = {tuple(row.point.options[name] for name in names) for row in rows}
    telling = [name for place, name in enumerate(names) if len({one[place] for one in cells}) == len(cells)]
    chosen = telling[:1] or names

    def joined(options: Mapping[str, Value]) -> dict[str, Value]:
        of_case = options[chosen[0]] if len(chosen) == 1 else label(tuple(options[name] for name in chosen))
        return {", ".join(chosen): of_case, **{name: options[name] for name in spec.axes}}

    return [row._replace(point=replace(row.point, options=joined(row.point.options))) for row in rows]


def varied(rows: Sequence[PointRow]) -> dict[str, list[Value]]:
    """Return the options with several values in these points, each with its values in order."""
    found: dict[str, list[Value]] = {}
    for name in rows[0].point.options if rows else ():
        values = list(dict.fromkeys(row.point.options[name] for row in rows))
        if len(values) > 1:
            numbers = all(isinstance(value, (int, float)) for value in values)
            found[name] = sorted(values) if numbers else values
    return found


def with_names(names: Iterable[str], cells: Cells) -> str:
    """Return values of options in human notation, each after the name of its option."""
    return ", ".join(f"{name} = {plain(value)}" for name, value in zip(names, cells, strict=True))


def figures(rows: Sequence[PointRow], metrics: Sequence[MetricColumn]) -> Iterator[ChartFigure]:
    """Yield each metric against each option, and over two options together if there are just two."""
    options = varied(rows)
    names = [name for name in options if name != SEED] or list(options)
    for metric in metrics:
        for name in names:
            yield _lines(rows, metric, name, [other for other in names if other != name], options)
        if len(names) == 2 and min(len(options[name]) for name in names) >= _HEAT_FROM:  # noqa: PLR2004 - a map has two sides
            yield _map(rows, metric, names[0], names[1], options)


def _lines(
    rows: Sequence[PointRow], metric: MetricColumn, name: str, others: list[str], options: Mapping[str, list[Value]]
) -> ChartFigure:
    combinations = list(dict.fromkeys(tuple(row.point.options[other] for other in others) for row in rows))
    combinations.sort(key=lambda cells: [options[other].index(cell) for other, cell in zip(others, cells, strict=True)])
    hue, hues = _hues(rows, metric, others, combinations, options)
    kinds = [metric]
    if metric.column == EFFICIENCY.column and len(combinations) <= _MOST_WITH_OTHERS:
        beside = [metric_of(column) for column in (CEILING, BASELINE)]
        kinds += [kind for kind in beside if any(kind.of(row) is not None for row in rows)]
    values = [
        {
            "x": plain(cells[0]) if isinstance(cells[0], str) else cells[0],
            "mean": spread.mean / metric.axis[0],
            "low": spread.ends[0] / metric.axis[0],
            "high": spread.ends[1] / metric.axis[0],
            "line": label(cells[1:]),
            "hue": label(tuple(cells[1 + others.index(other)] for other in hue)),
            "kind": _KINDS.get(kind.column, _REPLAY),
            "tooltip": _tooltip(kind, (name, *others), cells, spread),
        }
        for kind in kinds
        for cells, spread in spreads(rows, kind, (name, *others)).items()
    ]
    return ChartFigure(
        name=file_name(f"{metric.column}-by-{name}"),
        title=f"{metric.heading} by {name}",
        says=_says(rows, metric, [name]),
        alt=f"{metric.title} against {name}. {_says(rows, metric, [name])}",
        caption=_caption(others, hue, len(combinations), spreads(rows, metric, (name, *others)).values()),
        height=300,
        spec={
            "data": {"values": values},
            "encoding": {"x": _x(name, options[name]), "color": _color(hue, hues)},
            "layer": _layers(metric, kinds, options[name], many=len(combinations) > MOST_LINES),
        },
    )


def _field(name: str, kind: str, **more: object) -> dict[str, Any]:
    return {"field": name, "type": kind, **more}


def file_name(text: str) -> str:
    """Return the file name of a chart without the dot of ``tasks.count``, which would look like a suffix."""
    return text.replace(".", "-")


def _layers(
    metric: MetricColumn, kinds: Sequence[MetricColumn], values: Sequence[Value], *, many: bool
) -> list[dict[str, Any]]:
    """Return the layers: lines and points, with spreads over seeds, or with many lines their means."""
    axis = {"format": metric.axis[2], "tickCount": 6}
    y = _field("mean", "quantitative", title=metric.axis_title, axis=axis, scale={"zero": False})
    each = {"detail": {"field": "line", "type": "nominal"}}
    faint = {"opacity": 0.3} if many else {"opacity": 1}
    own = {"transform": [{"filter": f"datum.kind == '{_REPLAY}'"}]}
    dots = {"type": "point", "filled": True, "size": 50, "tooltip": {"expr": "datum.tooltip"}, **faint}
    layers: list[dict[str, Any]] = [
        {"mark": {"type": "line", "strokeWidth": 2, **faint}, "encoding": {"y": y, **each, **_dashes(kinds)}},
        {**own, "mark": dots, "encoding": {"y": y, **each}},
    ]
    if many:  # spreads would hide each other
        layers.append({"mark": {"type": "line", "strokeWidth": 3.5}, "encoding": {"y": {**y, "aggregate": "mean"}}})
    else:
        named = any(isinstance(value, str) for value in values)
        between = {"type": "rule", "opacity": 0.5} if named else {"type": "area", "opacity": 0.18}
        ends = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
        layers.insert(0, {**own, "mark": between, "encoding": {**ends, **each}})
    return layers


def _dashes(kinds: Sequence[MetricColumn]) -> dict[str, Any]:
    """Return dashes that distinguish the ceiling and the baseline from the replays, if they are present."""
    if len(kinds) == 1:
        return {}
    shown = [_REPLAY, *(_KINDS[kind.column] for kind in kinds[1:])]
    scale = {"domain": [_REPLAY, *_KINDS.values()], "range": [[1, 0], [2, 3], [7, 3]]}
    legend = {"title": None, "symbolType": "stroke", "symbolStrokeWidth": 2, "values": shown}
    return {"strokeDash": _field("kind", "nominal", scale=scale, legend=legend)}


def _hues(
    rows: Sequence[PointRow],
    metric: MetricColumn,
    others: Sequence[str],
    combinations: Sequence[Cells],
    options: Mapping[str, list[Value]],
) -> tuple[list[str], list[str]]:
    """Choose the options that determine colours, and return their labels in order.

    Return all metrics, or the most important one.
    """
    if not others:
        return [], []
    if len(combinations) <= MOST_LINES:
        return list(others), [label(cells) for cells in combinations]

    def difference(name: str) -> float:
        means = [spread.mean for spread in spreads(rows, metric, [name]).values()]
        return max(means) - min(means) if means else -math.inf

    few = [other for other in others if len(options[other]) <= MOST_LINES]
    most = max(few, key=difference, default=None)
    return ([], []) if most is None else ([most], [plain(value) for value in options[most]])


def _color(hue: Sequence[str], hues: Sequence[str]) -> dict[str, Any]:
    if not hue:
        return {"value": "@used"}
    legend = {"title": ", ".join(hue), "symbolType": "circle", "symbolOpacity": 1, "columns": 8}
    return _field("hue", "nominal", scale={"domain": list(hues)}, sort=list(hues), legend=legend)


def _x(name: str, values: Sequence[Value]) -> dict[str, Any]:
    """Return the axis of an option: categories for names, linear for numbers, logarithmic for a large range."""
    if any(isinstance(value, str) for value in values):
        look = {"labelAngle": 0, "labelLimit": 220, "grid": False}
        return _field("x", "nominal", sort=[plain(value) for value in values], title=name, axis=look)
    numbers = [float(value) for value in values]
    wide = min(numbers) > 0.0 and max(numbers) / min(numbers) > _LOG_FROM
    ticks = {"values": numbers} if len(numbers) <= _MOST_TICKS else {"tickCount": 8}
    scale = {**({"type": "log"} if wide else {"zero": False}), "nice": False, "padding": 14}
    axis = {"format": ".4~g", "labelOverlap": "greedy", "grid": False, **ticks}
    return _field("x", "quantitative", title=name, scale=scale, axis=axis)


def _map(
    rows: Sequence[PointRow], metric: MetricColumn, x: str, y: str, options: Mapping[str, list[Value]]
) -> ChartFigure:
    if len(options[y]) > len(options[x]):
        x, y = y, x
    found = spreads(rows, metric, (x, y))
    values = [
        {
            "x": plain(cells[0]),
            "y": plain(cells[1]),
            "mean": spread.mean / metric.axis[0],
            "words": metric.format(spread.mean),
            "tooltip": _tooltip(metric, (x, y), cells, spread),
        }
        for cells, spread in found.items()
    ]
    look = {"labelAngle": 0, "labelOverlap": "greedy", "domain": False, "ticks": False}
    place = {
        axis: _field(axis, "nominal", sort=list(map(plain, options[name])), title=name, axis=look)
        for axis, name in (("x", x), ("y", y))
    }
    says = _says(rows, metric, (x, y))
    words = {"mark": {"type": "text", "fontSize": 11}, "encoding": {"text": _field("words", "nominal")}}
    # Steps, since colours that are known by their role alone cannot be mixed; the darkest would hide the words
    color = {"type": "quantize", "range": [f"@shade{step}" for step in range(SHADES // 2)], "zero": False}
    return ChartFigure(
        name=file_name(f"{metric.column}-by-{x}-and-{y}"),
        title=f"{metric.heading} by {x} and {y}",
        says=says,
        alt=f"{metric.title} for each combination of {x} and {y}. {says}",
        height=max(160, 34 * len(options[y])),
        spec={
            "data": {"values": values},
            "encoding": place,
            "layer": [
                {
                    "mark": {"type": "rect", "tooltip": {"expr": "datum.tooltip"}},
                    "encoding": {"color": _field("mean", "quantitative", scale=color, legend=None)},
                },
                *([words] if len(options[x]) <= _MOST_TICKS else []),
            ],
        },
    )


def label(cells: Cells) -> str:
    """Format option values for humans, without option names."""
    return ", ".join(map(plain, cells))


def _tooltip(metric: MetricColumn, names: Sequence[str], cells: Cells, spread: SeedSpread) -> str:
    return f"{with_names(names, cells)}: {metric.title} {spread.text(metric)}"


def _says(rows: Sequence[PointRow], metric: MetricColumn, names: Sequence[str]) -> str:
    """Return where the metric is highest and lowest, averaged over all other options."""
    short = sum(tasks_ran_out(metric, row) for row in rows)
    if short:
        points = text_formats.counted(len(rows), "point")
        return f"In {short:,} of {points} the tasks ran out: there {metric.title} compares nothing."
    if not ranks(metric, rows):
        return f"{NOT_RANKED}."
    found = spreads(rows, metric, names)
    if not found:
        return "No point of it is done."
    most, least = (
        f"{metric.format(found[cells].mean)} with {with_names(names, cells)}"
        for cells in (choose(found, key=lambda cells: found[cells].mean) for choose in (max, min))
    )
    average = " on average" if any(spread.count > 1 for spread in found.values()) else ""
    return f"Highest{average}: {most}; lowest: {least}."


def _caption(others: Sequence[str], hue: Sequence[str], combinations: int, found: Collection[SeedSpread]) -> str:
    said = []
    if combinations > MOST_LINES:
        bold = f"; the bold ones are means for each {hue[0]}" if hue else "; the bold one is their mean"
        said.append(f"One thin line for each of {combinations:,} combinations of {', '.join(others)}{bold}.")
    elif over := reach(found):
        said.append(f"Shaded or ruled: {over}.")
    said.append("The axis need not begin at 0.")
    return " ".join(said)


_MOST_LABELS: Final = 12  # maximum number of point labels
_MOST_SAID: Final = 4
_FRONT, _OTHERS = "front", "others"


def pareto_figures(rows: Sequence[PointRow], asked: Sequence[str], unit: str) -> Iterator[ChartFigure]:
    """Yield the chart if it is requested and has two or more combinations to compare."""
    options = varied(rows)
    plane = ParetoPlane.of(rows, asked, [name for name in options if name != SEED]) if asked else None
    if plane is None or len(plane.points) < 2:  # noqa: PLR2004 - one compares with nothing
        return
    plane = dataclasses.replace(plane, x=plane.x.in_unit(unit), y=plane.y.in_unit(unit))
    x, y = plane.x.metric, plane.y.metric
    says, values = _says_pareto(plane), [_value(plane, point) for point in plane.points]
    # Vega warns about a layer without rows, which has no extent
    sides = sorted({value["side"] for value in values} - {""}) if len(plane.front) <= _MOST_LABELS else []
    yield ChartFigure(
        name=file_name(f"pareto-{x.column}-{y.column}"),
        title=f"{y.heading} against {x.title}",
        says=says,
        alt=f"Each combination of {', '.join(plane.names)} by {x.title} and {y.title}. {says}",
        caption=_caption_pareto(plane),
        height=340,
        spec={
            "data": {"values": values},
            "encoding": {"x": _scale("x", plane.x), "y": _scale("y", plane.y)},
            "layer": [
                {**_only(_FRONT), "mark": {"type": "line", "strokeWidth": 2, "color": "@used"}},
                *([_dots(_OTHERS, "@unused")] if len(plane.front) < len(plane.points) else []),
                _dots(_FRONT, "@used"),
                *(_labels(side, rising=plane.x.better is not plane.y.better) for side in sides),
            ],
        },
    )


def _value(plane: ParetoPlane, point: ParetoPoint) -> dict[str, Any]:
    x, y = plane.x.metric, plane.y.metric
    middle = (plane.points[0].x.mean + plane.points[-1].x.mean) / 2
    side = "left" if point.x.mean > middle else "right"  # side with room for the name
    words = f"{x.title} {point.x.text(x)}, {y.title} {point.y.text(y)}"
    return {
        "x": point.x.mean / x.axis[0],
        "y": point.y.mean / y.axis[0],
        "of": _FRONT if point.best else _OTHERS,
        "name": label(point.cells),
        "side": side if point.best else "",
        "tooltip": f"{with_names(plane.names, point.cells)}: {words}",
    }


def _scale(field: str, axis: ParetoAxis) -> dict[str, Any]:
    metric = axis.metric
    look = {"format": metric.axis[2], "tickCount": 6, "labelOverlap": "greedy"}
    scale = {"zero": False, "nice": False, "padding": 26}
    return quantity(field, title=metric.axis_title, scale=scale, axis=look)


def _only(part: str) -> dict[str, Any]:
    return {"transform": [{"filter": f"datum.of == '{part}'"}]}


def _dots(part: str, colour: str) -> dict[str, Any]:
    look = {"type": "point", "filled": True, "size": 60, "opacity": 1, "color": colour}
    return {**_only(part), "mark": {**look, "tooltip": {"expr": "datum.tooltip"}}}


def _labels(side: str, *, rising: bool) -> dict[str, Any]:
    """Write names above or below their points, on the side away from the rising or falling line."""
    align, shift = ("right", -6) if side == "left" else ("left", 6)
    above = rising == (side == "left")
    return {
        "transform": [{"filter": f"datum.side == '{side}'"}],
        "mark": {"type": "text", "align": align, "dx": shift, "dy": -9 if above else 10, "fontSize": 11},
        "encoding": {"text": category("name"), "color": {"value": "@ink"}},
    }


def _says_pareto(plane: ParetoPlane) -> str:
    x, y, best = plane.x.metric, plane.y.metric, plane.front
    named = [
        f"{with_names(plane.names, point.cells)} ({x.format(point.x.mean)}; {y.format(point.y.mean)})"
        for point in best[:_MOST_SAID]
    ]
    more = f"; and {len(best) - _MOST_SAID:,} more" if len(best) > _MOST_SAID else ""
    of = text_formats.counted(len(plane.points), "combination")
    be = "is" if len(best) == 1 else "are"
    text = f"{len(best):,} of {of} {be} beaten by no other in both: {'; '.join(named)}{more}."
    if plane.left_out:
        text += f" {text_formats.counted(plane.left_out, 'combination')} left out: their tasks ran out."
    return text


def _caption_pareto(plane: ParetoPlane) -> str:
    up = "bottom" if plane.y.better is BetterDirection.LESS else "top"
    across = "left" if plane.x.better is BetterDirection.LESS else "right"
    said = [f"Better lies towards the {up} {across}; the line joins combinations that no other beats in both."]
    if len(plane.front) <= _MOST_LABELS:
        said.append(f"They are labelled by {', '.join(plane.names)}.")
    if any(point.x.count > 1 for point in plane.points):
        said.append("Means over seeds; a pointer on a point shows how far they are sure.")
    return " ".join(said)
