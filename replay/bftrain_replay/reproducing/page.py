"""The result of an experiment: a table of our values and the published ones, plots, and a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any, Final

from msgspec import to_builtins

from bftrain import summaries
from bftrain.errors import BadInput
from bftrain.files import check_replaceable, overwrite_error, prepare_folder, write_text
from bftrain.result_folder import REPORT_FILE, ResultKind
from bftrain.text_formats import counted
from bftrain.values import wire
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure, category, quantity
from bftrain_replay.drawing.html_page import HtmlCell, HtmlPage, HtmlTable, HtmlText, html
from bftrain_replay.reproducing.experiment import Experiment, Figure, Request, XValue
from bftrain_replay.reproducing.results import CLOSE, Agreement, Reproduction, Value
from bftrain_replay.sweeping.sweep_passes import POINTS
from bftrain_replay.sweeping.sweep_table import PointState

FORMAT: Final = "bftrain reproduce 1"
SUMMARY: Final = "reproduce.json"
TABLE: Final = "values.csv"
PICTURES: Final = "pictures"
KIND: Final = ResultKind(
    title="reproduction",
    form="bftrain reproduce",
    summary=SUMMARY,
    names=frozenset({SUMMARY, REPORT_FILE, TABLE}),
    records={POINTS: b'{"format":"bftrain sweep '},
    prints=frozenset({"workers.log"}),
)
_EXPLAINED: Final = 5.0  # percent: larger differences need an explanation
_ONE_WORD_A_LINE: Final = "split(datum.label, ' ')"  # labels fit narrow screens
_CROSS: Final = "M-1,-1L1,1M-1,1L1,-1"


def write(folder: Path, result: Reproduction) -> None:
    """Write the table, the summary and, where charts can be drawn, the page."""
    data, text = summary(result), io.StringIO()
    table = csv.DictWriter(text, Value.__struct_fields__, lineterminator="\n")
    table.writeheader()
    table.writerows({name: _csv_cell(cell) for name, cell in row.items()} for row in data["values"])
    write_text(folder / TABLE, text.getvalue())
    write_text(folder / SUMMARY, summaries.to_json(data))
    if vega.available():
        write_text(folder / REPORT_FILE, html(page(result)))


def _csv_cell(cell: object) -> object:
    if isinstance(cell, bool):
        return str(cell).lower()
    return " ".join(map(str, cell)) if isinstance(cell, list | tuple) else cell


def write_pictures(folder: Path, result: Reproduction) -> None:
    """Write each plot as SVG and PNG."""
    prepare_folder(folder / PICTURES)
    charts = [*chain(*(_charts(figure, values) for figure, values in figures_with_values(result)))]
    for form in vega.FORMS:
        vega.write(charts, folder / PICTURES, form)


def check_pictures(folder: Path, request: Request) -> None:
    """Raise if a plot would replace a file that bftrain did not draw."""
    for name, form in product(request.figures, vega.FORMS):
        check_replaceable(folder / PICTURES / f"{name}.{form}", vega.is_own, "picture")


def continues(folder: Path, experiment: Experiment, request: Request) -> bool:
    """Return whether a folder has a result of the same request; raise if the options differ."""
    try:
        data = wire.decode((folder / SUMMARY).read_bytes(), dict[str, Any])
    except (OSError, BadInput):
        return False
    if data.get("experiment") != experiment.name:
        return False
    if data.get("request") != request.options:
        raise overwrite_error(folder, "contains a result with other options", fix="name another folder")
    return True


def summary(result: Reproduction) -> dict[str, Any]:
    """Return the content of ``reproduce.json``."""
    values = [*chain(*result.values.values())]
    agreement = Agreement.of(values)
    return {
        "format": FORMAT,
        "experiment": result.experiment.name,
        "request": result.request.options,
        "complete": not result.count(PointState.OPEN),
        "figures": [figure.name for figure in result.figures],
        "runs": len(result.runs),
        **{str(state): result.count(state) for state in PointState},
        "compared": agreement.compared,
        "within_3_percent": agreement.close,
        "largest_difference_percent": agreement.largest,
        "pairs": agreement.pairs,
        "pairs_in_published_order": agreement.in_order,
        "not_run": result.not_run,
        "saturated_but_published": sum(value.saturated and value.published is not None for value in values),
        "values": [to_builtins(value) for value in values],
    }


def figures_with_values(result: Reproduction) -> list[tuple[Figure, list[Value]]]:
    """Return the figures that have values, and these."""
    return [(figure, values) for figure in result.figures if (values := result.values[figure.name])]


def page(result: Reproduction) -> HtmlPage:
    """Return the page: how many values agree, by figure, and each figure with its plot and its table."""
    data, experiment = summary(result), result.experiment
    warnings = [f"{counted(data['open'], 'run')} still to be done."] if data["open"] else []
    warnings += [f"{counted(data['failed'], 'run')} failed: {result.failure}."] if data["failed"] else []
    results, charts = [], list[ChartFigure]()
    for figure, values in figures_with_values(result):
        charts += _charts(figure, values)
        results.append((figure.title, _intro(figure, values), figure.name, table_of(figure, values)))
    largest = data["largest_difference_percent"]
    close = f"<strong>{data['within_3_percent']:,} of {data['compared']:,} published values</strong>"
    lead = f"{close} are reproduced within {CLOSE:g} %; the largest difference is {largest or 0.0:.1f} %."
    return HtmlPage(
        template="reproduce.html",
        title=f"{experiment.title}, reproduced",
        main=next((chart.name for chart in charts), ""),
        figures=charts,
        warnings=warnings,
        parts={
            "source": experiment.source,
            "lead": HtmlText(lead) if data["compared"] else "No published value has the seeds of this run.",
            "cards": list(_cards(data, [*chain(*result.values.values())])),
            "agreement": _agreement(result) if data["compared"] else None,
            "results": results,
        },
        static_command=f"bftrain reproduce {experiment.name} -o DIR",
    )


def _cards(data: Mapping[str, Any], values: Sequence[Value]) -> Iterator[tuple[str, str, str]]:
    """Yield how well all values agree, and how many are not compared."""
    if count := data["compared"]:
        yield f"Within {CLOSE:g} %", f"{data['within_3_percent']:,}", f"of {counted(count, 'published value')}"
        worst = max(values, key=lambda value: abs(value.difference_percent or 0.0))
        yield "Largest difference", f"{worst.difference_percent:+.1f} %", f"{worst.line}, {_x_text(worst.x)}"
    if pairs := data["pairs"]:
        note = f"of {counted(pairs, 'pair')} of lines at the same x"
        yield "In the published order", f"{data['pairs_in_published_order']:,}", note
    published, saturated = sum(value.published is not None for value in values), data["saturated_but_published"]
    apart = {"saturated here": saturated, "without a run": data["not_run"]}
    apart["of other seeds or machines"] = published - data["compared"] - saturated
    if any(apart.values()):
        note = ", ".join(f"{name}: {count:,}" for name, count in apart.items() if count)
        yield "Published, not compared", f"{sum(apart.values()):,}", note


def _agreement(result: Reproduction) -> HtmlTable:
    by_figure = {name: Agreement.of(values) for name, values in result.values.items()}
    rows = [
        (name, f"{found.compared:,}", f"{found.close:,}", f"{found.largest:.1f} %")
        for name, found in by_figure.items()
        if found.largest is not None
    ]
    headings = ("figure", "compared", f"within {CLOSE:g} %", "largest")
    about = {figure.name: figure.title for figure in result.figures}
    return HtmlTable(label="Agreement", headings=headings, rows=rows, about=about)


def table_of(figure: Figure, values: Sequence[Value]) -> HtmlTable:
    """Return the table of a figure's values, without empty columns, and without equal seeds and sources."""

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:,.{figure.digits}f}"

    def seeds(value: Value) -> str:
        own, theirs = (" ".join(map(str, part)) for part in (value.seeds, value.published_seeds))
        compared = value.published is None or value.published_seeds in {(), value.seeds}
        return own if compared else f"{own} (published: {theirs})"

    differences = [value.difference_percent for value in values]
    columns: dict[str, list[str | HtmlCell]] = {
        "line": [value.line for value in values],
        figure.x: [HtmlCell(_x_text(value.x), value.x) for value in values],
        "ours": [HtmlCell("saturated" if value.saturated else number(value.ours), value.ours) for value in values],
        "published": [HtmlCell(number(value.published), value.published) for value in values],
        "difference": [HtmlCell("" if part is None else f"{part:+.1f} %", part) for part in differences],
        "seeds": [seeds(value) for value in values],
        "source": [value.source for value in values],
    }
    for name in ("published", "difference", "seeds", "source"):
        texts = {*map(text_of, columns[name])}
        alike = name in {"seeds", "source"} and len(texts) == 1 and "published" not in min(texts)
        if alike or texts == {""}:
            del columns[name]
    rows = list(zip(*columns.values(), strict=True))
    return HtmlTable(label=figure.title, headings=list(columns), rows=rows, sortable=True, folded="All values")


def text_of(cell: str | HtmlCell) -> str:
    """Return the text of a table's cell."""
    return cell.text if isinstance(cell, HtmlCell) else cell


def _x_text(x: XValue) -> str:
    return x if isinstance(x, str) else f"{x:,.6g}"


def _intro(figure: Figure, values: Sequence[Value]) -> str:
    large = sum(abs(value.difference_percent or 0.0) > _EXPLAINED for value in values)
    verb = "differs" if large == 1 else "differ"
    return f"{figure.note} {counted(large, 'value')} {verb} by more than {_EXPLAINED:g} %." if large else figure.note


def _charts(figure: Figure, values: Sequence[Value]) -> Iterator[ChartFigure]:
    """Draw a heat map, or our values as lines and the published ones as crosses; no chart if all are saturated."""
    drawn = {(value.line, value.x): value for value in sorted(values, key=lambda value: len(value.seeds))}
    data = [
        {"line": value.line, "x": value.x, "y": y, "from": who, "words": f"{label}: {y:,.6g} ({who})"}
        for value in values
        if drawn[value.line, value.x] is value and not value.saturated
        for label in [f"{value.line}, {_x_text(value.x)}"]
        for who, y in (("ours", value.ours), ("published", value.published))
        if y is not None
    ]
    if not data:
        return
    crosses, ours = any(one["from"] == "published" for one in data), "Points" if figure.form == "points" else "Lines"
    captions = [f"{ours} are our results, crosses published ones."] if crosses else []
    captions += ["Saturated points are not drawn."] if any(value.saturated for value in values) else []
    spec = _heat_map(figure, values) if figure.form == "heat" else _lines(figure, values, crosses=crosses)
    yield ChartFigure(
        name=figure.name,
        title=figure.title,
        alt=f"{figure.title}: {figure.y} against {figure.x}.",
        caption=" ".join(captions),
        height=320,
        spec={"data": {"values": data}, **spec},
    )


def _lines(figure: Figure, values: Sequence[Value], *, crosses: bool) -> dict[str, Any]:
    names = any(isinstance(value.x, str) for value in values)
    as_points = figure.form == "points" or names
    scale = {"nice": False, "type": "log"} if figure.log_x else {"nice": False, "zero": False}
    x = quantity("x", title=figure.x, scale=scale)
    if names:
        order = list(dict.fromkeys(_x_text(value.x) for value in values))
        x = category("x", title=figure.x or None, sort=order, axis={"labelAngle": 0, "labelExpr": _ONE_WORD_A_LINE})
    y = quantity("y", title=figure.y, scale={"type": "log"} if figure.log_y else {"zero": False})
    symbol = {} if as_points else {"symbolType": "stroke", "symbolStrokeWidth": 3}
    color = category("line", title=None, sort=list(dict.fromkeys(value.line for value in values)), legend=symbol)
    ours: dict[str, Any] = {"type": "line", "strokeWidth": 2, "point": figure.form == "lines"}
    if as_points:
        ours = {"type": "point", "filled": True, "size": 90}
    elif figure.form == "steps":
        ours["interpolate"] = "step-after"
    layers: list[dict[str, Any]] = [{"transform": [{"filter": "datum.from == 'ours'"}], "mark": ours}]
    if crosses:
        cross = {"type": "point", "shape": _CROSS, "size": 50, "strokeWidth": 1.5, "opacity": 1}
        # On a point, a cross of the same color would be invisible
        visible = {"encoding": {"color": {"value": "@ink"}}} if figure.form == "points" else {}
        layers.append({"transform": [{"filter": "datum.from == 'published'"}], "mark": cross, **visible})
    return {"encoding": {"x": x, "y": y, "color": color, "tooltip": category("words")}, "layer": layers}


def _heat_map(figure: Figure, values: Sequence[Value]) -> dict[str, Any]:
    """Draw our values as the colours of a grid, with the lines as the vertical axis."""
    largest = max((abs(value.ours) for value in values if value.ours is not None), default=1.0)
    lines = sorted({value.line for value in values}, key=float, reverse=True)
    encoding = {
        "x": category("x", title=figure.x, axis={"labelAngle": 0}),
        "y": category("line", title=figure.y, sort=lines),
        "color": quantity("y", title=None, scale={"scheme": "redblue", "domain": [largest, -largest]}),
        "tooltip": category("words"),
    }
    return {"encoding": encoding, "mark": "rect"}
