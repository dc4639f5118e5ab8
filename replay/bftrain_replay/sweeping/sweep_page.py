"""The page of a sweep: the effect of each option, the plots, and all points."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from bftrain import text_formats
from bftrain.text_formats import plain
from bftrain_replay.drawing.figure import ChartFigure, category, quantity
from bftrain_replay.drawing.html_page import HtmlCell, HtmlPage, HtmlTable, HtmlText
from bftrain_replay.run.headline import NOT_RANKED
from bftrain_replay.sweeping.sweep_spec import SEED, SweepSpec, Value
from bftrain_replay.sweeping.sweep_table import (
    BASELINE,
    CEILING,
    DOUBTFUL,
    EFFICIENCY,
    HARVEST,
    HARVEST_NODE_H,
    Cells,
    MetricColumn,
    PointRow,
    PointState,
    SeedSpread,
    SweptPoints,
    flat,
    metric_of,
    metrics_of,
    ranks,
    reach,
    spreads,
    tasks_ran_out,
    text_of,
)

MOST_ROWS: Final = 1000  # rows of the table on the page; the file has all


def page(swept: SweptPoints, summary: dict[str, Any]) -> HtmlPage:
    """Build the page; ``summary`` is the content of ``sweep.json``."""
    spec = swept.spec
    metrics = _metrics(swept, swept.rows)
    rows = as_drawn(swept.rows, spec)
    main = next((each for each in metrics if ranks(each, rows)), None)
    inputs = summary["inputs"]
    kinds = ("logs", "clusters", "tasks")
    logs, clusters, tasks = (list(dict.fromkeys(str(one["name"]) for one in inputs[kind])) for kind in kinds)
    nodes = ", ".join([*logs, *(f"{cluster} nodes" if cluster.isdecimal() else cluster for cluster in clusters)])
    points, counted = len(swept.rows), text_formats.counted(len(swept.rows), "replay")
    over = f", over {', '.join(spec.swept)}" if spec.swept else ""
    left_out = f"The first {MOST_ROWS:,} of {points:,}; all are in the table. " if points > MOST_ROWS else ""
    drawn = charts(swept)
    of_main = [chart.name for chart in drawn if main and chart.name.startswith(f"{file_name(main.column)}-by-")]
    return HtmlPage(
        template="sweep.html",
        title=spec.title,
        main=next(iter(of_main or (chart.name for chart in drawn)), ""),
        figures=drawn,
        warnings=list(_notices(swept)),
        parts={
            "subtitle": f"{counted} of {nodes} with {', '.join(tasks)}{over}.",
            "lead": (_lead(rows, main) if main else "") or f"{counted}; no metric ranks them.",
            "cards": list(_cards(swept, main)),
            "main_metric": main,
            "differences": _differences(rows, main) if main and varied(rows) else None,
            "plots": [chart.name for chart in drawn],
            "left_out": left_out,
            "points": _table(swept, metrics),
            "inputs": _inputs(summary),
        },
        static_command="bftrain sweep FILE --svg DIR",
    )


def _metrics(swept: SweptPoints, rows: Sequence[PointRow]) -> list[MetricColumn]:
    return [metric._replace(unit=swept.unit) for metric in metrics_of(swept.spec.plot, rows)]


def charts(swept: SweptPoints) -> list[ChartFigure]:
    """Return the charts of the page: each metric against each varied option; the seed only if it is the only one."""
    spec = swept.spec
    done = [row for row in as_drawn(swept.rows, spec) if row.cells.get(HARVEST.column) is not None]
    options = varied(done)
    names = [name for name in options if name != SEED] or list(options)
    return [
        _lines(done, metric, name, [other for other in names if other != name], options)
        for metric in _metrics(swept, done)
        for name in names
    ]


def _lead(rows: Sequence[PointRow], metric: MetricColumn) -> HtmlText | str:
    """Return where the metric is best, and which option makes the largest difference."""
    names = [name for name in varied(rows) if name != SEED]
    found = spreads(rows, metric, names)
    if not found:
        return ""
    most, least = (choose(found, key=lambda cells: found[cells].mean) for choose in (max, min))
    best, worst = (least, most) if metric.figure.better == "less" else (most, least)

    def written(cells: Cells) -> str:
        options = with_names(names, cells)
        text = metric.format(found[cells].mean)
        return text + (escape(f" with {options}").replace(" = ", "&nbsp;=&nbsp;") if options else "")

    title = metric.heading
    over = f", on average over {text_formats.counted(found[best].count, 'seed')}" if found[best].count > 1 else ""
    if len(found) == 1:
        return HtmlText(f"{title}{over}: <strong>{written(best)}</strong>.")
    ends = ("at best", "at worst") if metric.figure.better else ("at most", "at least")
    text = f"{title}{over}: <strong>{written(best)}</strong> {ends[0]}, {written(worst)} {ends[1]}"
    largest = _effects(rows, metric)[0]
    low, high = metric.format(largest.low[1]), metric.format(largest.high[1])
    name = escape(largest.option)
    return HtmlText(f"{text}; <strong>{name}</strong> makes the largest difference: {low} to {high} on average.")


class _OptionEffect(NamedTuple):
    """The effect of an option on a metric: its number of values, and those with the lowest and highest mean."""

    option: str
    values: int
    low: tuple[Value, float]
    high: tuple[Value, float]


def _effects(rows: Sequence[PointRow], metric: MetricColumn) -> list[_OptionEffect]:
    """Return the effect of each varied option, the largest first; the seed only if it is the only one."""
    found = []
    options = varied(rows)
    for name in options:
        if name == SEED and len(options) > 1:
            continue
        means = {value: spread.mean for (value,), spread in spreads(rows, metric, [name]).items()}
        low, high = (choose(means.items(), key=lambda item: item[1]) for choose in (min, max))
        found.append(_OptionEffect(name, len(means), low, high))
    return sorted(found, key=lambda effect: effect.low[1] - effect.high[1])


def _notices(swept: SweptPoints) -> Iterator[str]:
    total = text_formats.counted(len(swept.rows), "point")
    still = sum(row.state is PointState.OPEN for row in swept.rows)
    if still:
        yield f"{still:,} of {total} are still to be done."
    if swept.failed:
        yield f"{len(swept.failed):,} of {total} failed; the table shows the reasons."
    yield from (f"{text[:1].upper()}{text[1:]}." for text in (*swept.notes, *swept.first_warnings()))


def _cards(swept: SweptPoints, main: MetricColumn | None) -> Iterator[tuple[str, str, str]]:
    done = [row for row in swept.rows if row.state is PointState.DONE]
    note = f"{len(done):,} done" + (f", {len(swept.failed):,} failed" if swept.failed else "")
    yield "points", text_formats.count(len(swept.rows)), note
    found = [value for row in done if main and (value := main.of(row)) is not None]
    if main is None or not found:
        return
    yield f"{main.title}, highest", main.format(max(found)), f"of {text_formats.counted(len(found), 'point')}"
    yield f"{main.title}, lowest", main.format(min(found)), f"of {text_formats.counted(len(found), 'point')}"
    others = [name for name in varied(done) if name != SEED]
    if SEED in varied(done):
        width, words = max((one.ends[1] - one.ends[0], one.words) for one in spreads(done, main, others).values())
        yield "widest spread over seeds", main.format(width), words


def _differences(rows: Sequence[PointRow], metric: MetricColumn) -> HtmlTable:
    done = [row for row in rows if metric.of(row) is not None]

    def end(value: Value, mean: float) -> str:
        return f"{plain(value)}: {metric.format(mean)}"

    cells = [
        (effect.option, f"{effect.values:,}", end(*effect.low), end(*effect.high)) for effect in _effects(done, metric)
    ]
    headings = ("option", "values", "lowest with", "highest with")
    return HtmlTable(label="What makes a difference", headings=headings, rows=cells, css="plain")


def _table(swept: SweptPoints, metrics: Sequence[MetricColumn]) -> HtmlTable:
    usual = (HARVEST.column, HARVEST_NODE_H, "coverage", DOUBTFUL, EFFICIENCY.column, BASELINE, CEILING)
    others = (metric_of(column)._replace(unit=swept.unit) for column in usual)
    known = dict.fromkeys([*metrics, *others])
    shown = [metric for metric in known if any(metric.of(row) is not None for row in swept.rows)]
    failed = bool(swept.failed)
    options = list(swept.spec.swept)
    rows: list[list[str | HtmlCell]] = [
        [
            HtmlCell(f"{number:,}", number),
            *(HtmlCell(plain(row.point.options[name]), row.point.options[name]) for name in options),
            *(HtmlCell(text_of(metric, row), metric.of(row)) for metric in shown),
            str(row.state),
            *([row.error] if failed else []),
        ]
        for number, row in enumerate(swept.rows[:MOST_ROWS], start=1)
    ]
    headings = ["", *options, *(metric.title for metric in shown), "status", *(["why"] if failed else [])]
    return HtmlTable(label="Points", headings=headings, rows=rows, sortable=True)


def _inputs(data: dict[str, Any]) -> HtmlTable:
    rows = [(name, f"{value}") for name, value in flat(data["sweep_file"]["content"], ".")]
    for kind in ("logs", "clusters", "tasks"):
        for one in data["inputs"][kind]:
            seed = f", seed {one['seed']}" if one["seed"] is not None else ""
            rows.append((f"{kind}: {one['name']}{seed}", f"SHA-256 {one['sha256']}"))
    rows += [*data["versions"].items(), ("figures, SHA-256", data["figures_sha256"])]
    return HtmlTable(label="Settings and inputs", headings=("what", "value"), rows=rows, css="plain")


MOST_LINES: Final = 8  # number of distinguishable colours
_MOST_WITH_OTHERS: Final = 4  # maximum lines that leave room for ceiling and baseline
_LOG_FROM: Final = 15.0  # ratio of the largest to the smallest value from which on an axis is logarithmic
_MOST_TICKS: Final = 12
_REPLAY: Final = "replay"
_KINDS: Final = {CEILING: "without costs", BASELINE: "baseline"}


def as_drawn(rows: Sequence[PointRow], spec: SweepSpec) -> list[PointRow]:
    """Return the rows with the options of ``[[cases]]`` joined to one, because they vary together.

    The first option with a different value in every case represents all; otherwise their values are listed.
    """
    names = [name for name in spec.swept if name not in spec.axes]
    if len(names) < 2 or not rows:  # noqa: PLR2004 - a single option needs no joining
        return list(rows)
    cells = {tuple(row.point.options[name] for name in names) for row in rows}
    telling = [name for place, name in enumerate(names) if len({one[place] for one in cells}) == len(cells)]
    chosen = telling[:1] or names

    def joined(options: Mapping[str, Value]) -> dict[str, Value]:
        of_case = options[chosen[0]] if len(chosen) == 1 else label(tuple(options[name] for name in chosen))
        return {", ".join(chosen): of_case, **{name: options[name] for name in spec.axes}}

    return [row._replace(point=replace(row.point, options=joined(row.point.options))) for row in rows]


def varied(rows: Sequence[PointRow]) -> dict[str, list[Value]]:
    """Return the options with several values in these points: numbers in order, names as they appear."""
    found: dict[str, list[Value]] = {}
    for name in rows[0].point.options if rows else ():
        values = list(dict.fromkeys(row.point.options[name] for row in rows))
        if len(values) > 1:
            numbers = all(isinstance(value, (int, float)) for value in values)
            found[name] = sorted(values) if numbers else values
    return found


def with_names(names: Iterable[str], cells: Cells) -> str:
    """Format option values for humans, each after the name of its option."""
    return ", ".join(f"{name} = {plain(value)}" for name, value in zip(names, cells, strict=True))


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
            "tooltip": f"{with_names((name, *others), cells)}: {kind.title} {spread.text(kind)}",
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


def file_name(text: str) -> str:
    """Return a file name without the dot of ``tasks.count``, which would look like a suffix."""
    return text.replace(".", "-")


def _layers(
    metric: MetricColumn, kinds: Sequence[MetricColumn], values: Sequence[Value], *, many: bool
) -> list[dict[str, Any]]:
    """Return the layers of a chart: lines, points, and spreads over seeds, or with many lines their mean."""
    axis = {"format": metric.axis[2], "tickCount": 6}
    unit = metric.axis[1]
    title = f"{metric.title}, {unit}" if unit else metric.title
    y = quantity("mean", title=title, axis=axis, scale={"zero": False})
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
    return {"strokeDash": category("kind", scale=scale, legend=legend)}


def _hues(
    rows: Sequence[PointRow],
    metric: MetricColumn,
    others: Sequence[str],
    combinations: Sequence[Cells],
    options: Mapping[str, list[Value]],
) -> tuple[list[str], list[str]]:
    """Return the options that determine the colours, and the labels of the colours in order.

    These are all ``others``, or with many combinations the option with the largest effect among those with few values.
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
    return category("hue", scale={"domain": list(hues)}, sort=list(hues), legend=legend)


def _x(name: str, values: Sequence[Value]) -> dict[str, Any]:
    """Return the axis of an option: categories for names, linear for numbers, logarithmic for a large range."""
    if any(isinstance(value, str) for value in values):
        look = {"labelAngle": 0, "labelLimit": 220, "grid": False}
        return category("x", sort=[plain(value) for value in values], title=name, axis=look)
    numbers = [float(value) for value in values]
    wide = min(numbers) > 0.0 and max(numbers) / min(numbers) > _LOG_FROM
    ticks = {"values": numbers} if len(numbers) <= _MOST_TICKS else {"tickCount": 8}
    scale = {**({"type": "log"} if wide else {"zero": False}), "nice": False, "padding": 14}
    axis = {"format": ".4~g", "labelOverlap": "greedy", "grid": False, **ticks}
    return quantity("x", title=name, scale=scale, axis=axis)


def label(cells: Cells) -> str:
    """Format option values for humans, without option names."""
    return ", ".join(map(plain, cells))


def _says(rows: Sequence[PointRow], metric: MetricColumn, names: Sequence[str]) -> str:
    """Return a sentence on where the metric is highest and lowest, averaged over all other options."""
    short = sum(tasks_ran_out(metric, row) for row in rows)
    if short:
        points = text_formats.counted(len(rows), "point")
        return f"In {short:,} of {points} the tasks ran out: there {metric.title} cannot be compared."
    if not ranks(metric, rows):
        return f"{NOT_RANKED}."
    found = spreads(rows, metric, names)
    if not found:
        return "No point has finished."
    most, least = (
        f"{metric.format(found[cells].mean)} with {with_names(names, cells)}"
        for cells in (choose(found, key=lambda cells: found[cells].mean) for choose in (max, min))
    )
    average = " on average" if any(spread.count > 1 for spread in found.values()) else ""
    return f"Highest{average}: {most}; lowest: {least}."


def _caption(others: Sequence[str], hue: Sequence[str], combinations: int, found: Collection[SeedSpread]) -> str:
    sentences = []
    if combinations > MOST_LINES:
        bold = f"; the bold ones are means for each {hue[0]}" if hue else "; the bold one is their mean"
        sentences.append(f"One thin line for each of {combinations:,} combinations of {', '.join(others)}{bold}.")
    elif over := reach(found):
        sentences.append(f"Bands, or lines at points: {over}.")
    sentences.append("The axis need not start at 0.")
    return " ".join(sentences)
