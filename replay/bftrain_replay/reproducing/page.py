"""The result of an experiment: a table of our values and the published ones, plots, and a page."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from bftrain import summaries, text_formats
from bftrain.errors import BadInput
from bftrain.files import overwrite_error, write_text
from bftrain.result_folder import REPORT_FILE, ResultKind
from bftrain.values import wire
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure, category, quantity
from bftrain_replay.drawing.html_page import FigureCard, HtmlCell, HtmlPage, HtmlTable, PageSection, html
from bftrain_replay.reproducing.comparison import CLOSE, Agreement, Compared, compared, missing
from bftrain_replay.reproducing.experiment import Experiment, Figure, Published, Request, XValue, published
from bftrain_replay.reproducing.running import Reproduction
from bftrain_replay.sweeping.sweep_runs import POINTS
from bftrain_replay.sweeping.sweep_table import PointState

FORMAT: Final = "bftrain reproduce 1"
SUMMARY: Final = "reproduce.json"
TABLE: Final = "values.csv"
KIND: Final = ResultKind(
    title="reproduction",
    form="bftrain reproduce",
    summary=SUMMARY,
    names=frozenset({SUMMARY, REPORT_FILE, TABLE}),
    records={POINTS: b'{"format":"bftrain sweep '},
    prints=frozenset({"workers.log"}),
)
_EXPLAINED: Final = 5.0  # percent: larger differences need an explanation
_CROSS: Final = "M-1,-1L1,1M-1,1L1,-1"


class ReproducedFigures(NamedTuple):
    """The figures of an experiment, the rows of each by its name, and the published values without a counterpart."""

    experiment: Experiment
    request: Request
    reproduction: Reproduction
    rows: Mapping[str, list[Compared]]
    missing: Sequence[Published]

    @classmethod
    def of(cls, experiment: Experiment, request: Request, reproduction: Reproduction) -> Self:
        """Compare all values of a reproduction with the published ones."""
        values, figures = published(experiment.name), reproduction.figures
        rows = {figure.name: compared(reproduction, figure, values) for figure in figures}
        return cls(experiment, request, reproduction, rows, missing([*chain(*rows.values())], figures, values))

    @property
    def with_values(self) -> list[tuple[Figure, list[Compared]]]:
        """The figures that have values, and their rows."""
        return [(figure, rows) for figure in self.reproduction.figures if (rows := self.rows[figure.name])]


def write(folder: Path, result: ReproducedFigures) -> None:
    """Write the table, the summary and, where charts can be drawn, the page."""
    data = summary(result)
    text = io.StringIO()
    table = csv.DictWriter(text, _record(Compared(figure="", line="", x="", seeds=(), ours=None)), lineterminator="\n")
    table.writeheader()
    table.writerows({name: _csv_cell(cell) for name, cell in row.items()} for row in data["values"])
    write_text(folder / TABLE, text.getvalue())
    write_text(folder / SUMMARY, summaries.to_json(data))
    if vega.available():
        write_text(folder / REPORT_FILE, html(page(result)))


def write_pictures(folder: Path, result: ReproducedFigures) -> None:
    """Write each plot as SVG and PNG."""
    charts = [_chart(figure, rows) for figure, rows in result.with_values]
    for form in vega.FORMS:
        vega.write(charts, folder, form)


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


def summary(result: ReproducedFigures) -> dict[str, Any]:
    """Return the content of ``reproduce.json``."""
    rows, done = [*chain(*result.rows.values())], result.reproduction
    agreement = Agreement.of(rows)
    return {
        "format": FORMAT,
        "experiment": result.experiment.name,
        "request": result.request.options,
        "complete": not done.count(PointState.OPEN),
        "figures": [figure.name for figure in done.figures],
        "runs": len(done.rows),
        **{str(state): done.count(state) for state in PointState},
        "compared": agreement.compared,
        "within_3_percent": agreement.close,
        "largest_difference_percent": agreement.largest,
        "pairs": agreement.pairs,
        "pairs_in_published_order": agreement.in_order,
        "not_run": len(result.missing),
        "saturated_but_published": sum(row.saturated and row.published is not None for row in rows),
        "values": [*map(_record, rows)],
    }


def _record(row: Compared) -> dict[str, Any]:
    return {
        "figure": row.figure,
        "line": row.line,
        "x": row.x,
        "seeds": [*row.seeds],
        "ours": None if row.saturated else row.ours,
        "published": row.published,
        "difference_percent": row.difference,
        "saturated": row.saturated,
        "published_seeds": [*row.published_seeds],
        "source": row.source,
    }


def _csv_cell(cell: object) -> object:
    if isinstance(cell, bool):
        return str(cell).lower()
    return " ".join(map(str, cell)) if isinstance(cell, list) else cell


def page(result: ReproducedFigures) -> HtmlPage:
    """Return the page: how many values agree, by figure, and each figure with its plot and its table."""
    data, experiment = summary(result), result.experiment
    open_runs, failed = data["open"], data["failed"]
    warnings = [f"{text_formats.counted(open_runs, 'run')} still to be done."] if open_runs else []
    if failed:
        reason = next(iter(result.reproduction.failures))
        warnings.append(f"{text_formats.counted(failed, 'run')} failed: {reason}.")
    sections = [
        PageSection(
            heading=figure.title, intro=_intro(figure, rows), parts=(_chart(figure, rows), _html_table(figure, rows))
        )
        for figure, rows in result.with_values
    ]
    return HtmlPage(
        title=f"{experiment.title}, reproduced",
        subtitle=f"Published in {experiment.source}.",
        warnings=warnings,
        cards=_cards(data, [*chain(*result.rows.values())]),
        sections=[*([_overview(result)] if data["compared"] else []), *sections],
        static_command=f"bftrain reproduce {experiment.name} -o DIR",
    )


def _cards(data: Mapping[str, Any], rows: Sequence[Compared]) -> list[FigureCard]:
    """Return how well all values agree, and how many are not compared."""
    cards = []
    if count := data["compared"]:
        note = f"of {text_formats.counted(count, 'published value')}"
        cards.append(FigureCard(f"Within {CLOSE:g} %", f"{data['within_3_percent']:,}", note))
        row = max(rows, key=lambda row: abs(row.difference or 0.0))
        cards.append(FigureCard("Largest difference", f"{row.difference:+.1f} %", f"{row.line}, {_x_text(row.x)}"))
    if pairs := data["pairs"]:
        note = f"of {text_formats.counted(pairs, 'pair')} of lines at the same x"
        cards.append(FigureCard("In the published order", f"{data['pairs_in_published_order']:,}", note))
    apart = {"saturated here": data["saturated_but_published"], "without a run": data["not_run"]}
    others = sum(row.published is not None and row.difference is None and not row.saturated for row in rows)
    apart |= {"of other seeds or machines": others}
    if any(apart.values()):
        note = ", ".join(f"{name}: {count:,}" for name, count in apart.items() if count)
        cards.append(FigureCard("Published, not compared", f"{sum(apart.values()):,}", note))
    return cards


def _overview(result: ReproducedFigures) -> PageSection:
    found = {figure.name: Agreement.of(rows) for figure, rows in result.with_values}
    rows = [
        (name, f"{each.compared:,}", f"{each.close:,}", f"{each.largest:.1f} %")
        for name, each in found.items()
        if each.compared
    ]
    about = {figure.name: figure.title for figure in result.reproduction.figures}
    headings = ("figure", "values compared", f"within {CLOSE:g} %", "largest difference")
    table = HtmlTable(label="Agreement", headings=headings, rows=rows, about=about)
    return PageSection(heading="Agreement", parts=(table,))


def text_table(figure: Figure, rows: Sequence[Compared]) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells of a figure's values, without empty columns, and without equal seeds and sources."""
    headings = ["line", figure.x, "ours", "published", "difference", "seeds", "source"]
    cells = [_texts(figure, row) for row in rows]
    columns = zip(headings, zip(*cells, strict=True), strict=True)
    unwanted = {
        name
        for name, column in columns
        if not any(column) or (name in {"seeds", "source"} and len({*column}) == 1 and "published" not in column[0])
    }
    kept = [number for number, name in enumerate(headings) if number < 3 or name not in unwanted]  # noqa: PLR2004 - line, x, ours
    return [headings[number] for number in kept], [[row[number] for number in kept] for row in cells]


def table_by_line(figure: Figure, rows: Sequence[Compared]) -> tuple[list[str], list[list[str]]]:
    """Return headings and cells of our values: one row for each x, one column for each line."""
    lines, by_key = dict.fromkeys(row.line for row in rows), {(row.line, row.x): row for row in rows}
    cells = [
        [_x_text(x), *(_texts(figure, by_key[line, x])[2] if (line, x) in by_key else "" for line in lines)]
        for x in dict.fromkeys(row.x for row in rows)
    ]
    return [figure.x, *lines], cells


def _texts(figure: Figure, row: Compared) -> tuple[str, ...]:
    def number(value: float | None) -> str:
        return "" if value is None else f"{value:,.{figure.digits}f}"

    difference = "" if row.difference is None else f"{row.difference:+.1f} %"
    ours, seeds = "saturated" if row.saturated else number(row.ours), " ".join(map(str, row.seeds))
    if row.published is not None and row.published_seeds not in {(), row.seeds}:
        seeds = f"{seeds} (published: {' '.join(map(str, row.published_seeds))})"
    return row.line, _x_text(row.x), ours, number(row.published), difference, seeds, row.source


def _x_text(x: XValue) -> str:
    return x if isinstance(x, str) else f"{x:,.6g}"


def _intro(figure: Figure, rows: Sequence[Compared]) -> str:
    large = sum(row.difference is not None and abs(row.difference) > _EXPLAINED for row in rows)
    verb = "differs" if large == 1 else "differ"
    count = f" {text_formats.counted(large, 'value')} {verb} by more than {_EXPLAINED:g} %." if large else ""
    return f"{figure.note}{count}".strip()


def _html_table(figure: Figure, rows: Sequence[Compared]) -> HtmlTable:
    headings, texts = text_table(figure, rows)
    keys = {figure.x: "x", "ours": "ours", "published": "published", "difference": "difference"}
    cells = [
        [
            HtmlCell(text, getattr(row, keys[heading])) if heading in keys else text
            for heading, text in zip(headings, row_texts, strict=True)
        ]
        for row, row_texts in zip(rows, texts, strict=True)
    ]
    return HtmlTable(label=figure.title, headings=headings, rows=cells, sortable=True, folded="All values")


def _chart(figure: Figure, rows: Sequence[Compared]) -> ChartFigure:
    """Draw a heat map, or our values as lines and the published ones as crosses."""
    drawn = {(row.line, row.x): row for row in sorted(rows, key=lambda row: len(row.seeds)) if not row.saturated}
    values = [
        {"line": row.line, "x": row.x, "y": y, "from": who, "words": f"{row.line}, {_x_text(row.x)}: {y:,.6g} ({who})"}
        for row in rows
        if drawn.get((row.line, row.x)) is row
        for who, y in (("ours", row.ours), ("published", row.published))
        if y is not None
    ]
    with_published = any(value["from"] == "published" for value in values)
    drawn_as = "Points" if figure.form == "points" else "Lines"
    captions = [f"{drawn_as} are ours, crosses are published."] if with_published else []
    captions += ["Saturated points are not drawn."] if any(row.saturated for row in rows) else []
    draw = _heat_map if figure.form == "heat" else _lines
    return ChartFigure(
        name=figure.name,
        title=figure.title,
        alt=f"{figure.title}: {figure.y} against {figure.x}.",
        caption=" ".join(captions),
        height=320,
        spec={"data": {"values": values}, **draw(figure, rows, with_published=with_published)},
    )


def _lines(figure: Figure, rows: Sequence[Compared], *, with_published: bool) -> dict[str, Any]:
    names = any(isinstance(row.x, str) for row in rows)
    scale = {"nice": False, "type": "log"} if figure.log_x else {"nice": False, "zero": False}
    x = quantity("x", title=figure.x, scale=scale)
    if names:
        order = list(dict.fromkeys(_x_text(row.x) for row in rows))
        x = category("x", title=figure.x or None, sort=order, axis={"labelAngle": 0})
    y = quantity("y", title=figure.y, scale={"type": "log"} if figure.log_y else {"zero": False})
    symbol = {} if figure.form == "points" or names else {"symbolType": "stroke", "symbolStrokeWidth": 3}
    color = category("line", title=None, sort=list(dict.fromkeys(row.line for row in rows)), legend=symbol)
    interpolate = {"interpolate": "step-after"} if figure.form == "steps" else {}
    ours: dict[str, Any] = {"type": "line", "strokeWidth": 2, "point": figure.form == "lines", **interpolate}
    if figure.form == "points" or names:
        ours = {"type": "point", "filled": True, "size": 90}
    layers: list[dict[str, Any]] = [{"transform": [{"filter": "datum.from == 'ours'"}], "mark": ours}]
    if with_published:
        crosses = {"type": "point", "shape": _CROSS, "size": 50, "strokeWidth": 1.5, "opacity": 1}
        # On a point, a cross of the same color would be invisible
        visible = {"encoding": {"color": {"value": "@ink"}}} if figure.form == "points" else {}
        layers.append({"transform": [{"filter": "datum.from == 'published'"}], "mark": crosses, **visible})
    tooltip = category("words")
    return {"encoding": {"x": x, "y": y, "color": color, "tooltip": tooltip}, "layer": layers}


def _heat_map(figure: Figure, rows: Sequence[Compared], **_: bool) -> dict[str, Any]:
    """Draw our values as the colours of a grid, with the lines as the vertical axis."""
    largest = max((abs(row.ours) for row in rows if row.ours is not None), default=1.0)
    lines = sorted({row.line for row in rows}, key=float, reverse=True)
    encoding = {
        "x": category("x", title=figure.x, axis={"labelAngle": 0}),
        "y": category("line", title=figure.y, sort=lines),
        "color": quantity("y", title=None, scale={"scheme": "redblue", "domain": [largest, -largest]}),
        "tooltip": category("words"),
    }
    return {"encoding": encoding, "mark": "rect"}
