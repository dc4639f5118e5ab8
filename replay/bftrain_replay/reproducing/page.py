"""The result of an experiment: a table of our values and the published ones, plots, and a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from bftrain_replay.drawing.html_page import HtmlCell, HtmlPage, HtmlTable, PageSection, html
from bftrain_replay.output import csv_tables
from bftrain_replay.reproducing.comparison import Compared, compared, missing
from bftrain_replay.reproducing.experiment import Experiment, Figure, Published, Request, XValue, published
from bftrain_replay.reproducing.running import Reproduction
from bftrain_replay.sweeping.sweep_runs import POINTS
from bftrain_replay.sweeping.sweep_table import PointState
from bftrain_replay.tables import ColumnType, TableColumn

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
HEADINGS: Final = ("", "", "ours", "published", "difference", "seeds", "source")
_COLUMNS: Final = (
    *(TableColumn(name, ColumnType.TEXT) for name in ("figure", "line", "x", "seeds")),
    *(TableColumn(name, ColumnType.NUMBER) for name in ("ours", "published", "difference_percent")),
    *(TableColumn(name, ColumnType.TEXT) for name in ("saturated", "published_seeds", "source")),
)
_SATURATED: Final = "saturated"
_CLOSE: Final = 3.0  # percent: the differences that the lead counts
_EXPLAINED: Final = 5.0  # percent: larger differences need an explanation


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
    csv_tables.write_rows(folder / TABLE, _COLUMNS, ([*map(_csv_cell, row.values())] for row in data["values"]))
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
    differences = [abs(row.difference) for row in rows if row.difference is not None]
    return {
        "format": FORMAT,
        "experiment": result.experiment.name,
        "request": result.request.options,
        "complete": not done.count(PointState.OPEN),
        "figures": [figure.name for figure in done.figures],
        "runs": len(done.rows),
        **{str(state): done.count(state) for state in PointState},
        "compared": len(differences),
        "within_3_percent": sum(difference <= _CLOSE for difference in differences),
        "largest_difference_percent": max(differences, default=None),
        "not_run": len(result.missing),
        "saturated_but_published": sum(row.saturated and row.published is not None for row in rows),
        "values": [dict(zip((column.name for column in _COLUMNS), _cells(row), strict=True)) for row in rows],
    }


def page(result: ReproducedFigures) -> HtmlPage:
    """Return the page: each figure with its plot and its table."""
    data, experiment = summary(result), result.experiment
    open_runs, failed = data["open"], data["failed"]
    warnings = [f"{text_formats.counted(open_runs, 'run')} still to be done."] if open_runs else []
    if failed:
        reason = next(iter(result.reproduction.failures))
        warnings.append(f"{text_formats.counted(failed, 'run')} failed: {reason}.")
    return HtmlPage(
        title=f"{experiment.title}, reproduced",
        subtitle=f"Published in {experiment.source}.",
        lead=_lead(data),
        warnings=warnings,
        sections=[
            PageSection(
                heading=figure.title, intro=_intro(figure, rows), parts=(_chart(figure, rows), _table(figure, rows))
            )
            for figure, rows in result.with_values
        ],
        static_command=f"bftrain reproduce {experiment.name} -o DIR",
    )


def _lead(data: Mapping[str, Any]) -> str:
    values, parts = "published value", []
    if count := data["compared"]:
        parts.append(f"{data['within_3_percent']:,} of {text_formats.counted(count, values)} within 3 %.")
    if saturated := data["saturated_but_published"]:
        parts.append(f"{text_formats.counted(saturated, values)} where our queue is saturated.")
    if not_run := data["not_run"]:
        parts.append(f"{text_formats.counted(not_run, values)} without a run of ours.")
    return " ".join(parts)


def text_rows(figure: Figure, rows: Iterable[Compared]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a figure as text, under ``HEADINGS``."""
    for row in rows:
        ours = "" if row.ours is None else f"{row.ours:,.{figure.digits}f}"
        theirs = "" if row.published is None else f"{row.published:,.{figure.digits}f}"
        difference = "" if row.difference is None else f"{row.difference:+.1f} %"
        if row.saturated:
            ours = _SATURATED
        yield row.line, _x_text(row.x), ours, theirs, difference, _seeds(row), row.source


def _x_text(x: XValue) -> str:
    return x if isinstance(x, str) else f"{x:,.6g}"


def _seeds(row: Compared) -> str:
    seeds = " ".join(map(str, row.seeds))
    if row.published is None or row.published_seeds in {(), row.seeds}:
        return seeds
    return f"{seeds} (published: {' '.join(map(str, row.published_seeds))})"


def _cells(row: Compared) -> tuple[object, ...]:
    numbers = None if row.saturated else row.ours, row.published, row.difference
    return row.figure, row.line, row.x, [*row.seeds], *numbers, row.saturated, [*row.published_seeds], row.source


def _csv_cell(cell: object) -> object:
    if isinstance(cell, bool):
        return str(cell).lower()
    return " ".join(map(str, cell)) if isinstance(cell, list) else cell


def _intro(figure: Figure, rows: Sequence[Compared]) -> str:
    large = sum(row.difference is not None and abs(row.difference) > _EXPLAINED for row in rows)
    verb = "differs" if large == 1 else "differ"
    count = f" {text_formats.counted(large, 'value')} {verb} by more than {_EXPLAINED:g} %." if large else ""
    return f"{figure.note}{count}".strip()


def _table(figure: Figure, rows: Sequence[Compared]) -> HtmlTable:
    headings = ("line", figure.x, *HEADINGS[2:])
    keys = [(None, row.x, row.ours, row.published, row.difference, None, None) for row in rows]
    cells = [
        [text if key is None else HtmlCell(text, key) for text, key in zip(texts, row_keys, strict=True)]
        for texts, row_keys in zip(text_rows(figure, rows), keys, strict=True)
    ]
    return HtmlTable(label=figure.title, headings=headings, rows=cells, sortable=True, folded="All values")


def _chart(figure: Figure, rows: Sequence[Compared]) -> ChartFigure:
    """Draw a heat map, or our values as lines and the published ones as crosses."""
    if figure.form == "heat":
        return _heat_map(figure, rows)
    values = [
        {"line": row.line, "x": row.x, "y": y, "from": who, "words": f"{row.line}, {_x_text(row.x)}: {y:,.6g} ({who})"}
        for row in rows
        if not row.saturated
        for who, y in (("ours", row.ours), ("published", row.published))
        if y is not None
    ]
    names = any(isinstance(row.x, str) for row in rows)
    scale = {"type": "log"} if figure.log_x else {"nice": False}
    x = category("x", title=figure.x) if names else quantity("x", title=figure.x, scale=scale)
    y = quantity("y", title=figure.y, scale={"type": "log"} if figure.log_y else {"zero": False})
    legend = {"columns": 4, "symbolStrokeWidth": 2}
    color = category("line", title=None, sort=list(dict.fromkeys(row.line for row in rows)), legend=legend)
    interpolate = {"interpolate": "step-after"} if figure.form == "steps" else {}
    ours: dict[str, Any] = {"type": "line", "strokeWidth": 2, "point": figure.form == "lines", **interpolate}
    if figure.form == "points" or names:
        ours = {"type": "point", "filled": True, "size": 90}
    cross = {"type": "point", "shape": "cross", "size": 70, "strokeWidth": 1.5}
    return ChartFigure(
        name=figure.name,
        title=figure.title,
        alt=f"{figure.title}: {figure.y} against {figure.x}.",
        caption="Lines are ours, crosses are published. Saturated points are not drawn.",
        height=320,
        spec={
            "data": {"values": values},
            "encoding": {"x": x, "y": y, "color": color, "tooltip": {"field": "words", "type": "nominal"}},
            "layer": [
                {"transform": [{"filter": "datum.from == 'ours'"}], "mark": ours},
                {"transform": [{"filter": "datum.from == 'published'"}], "mark": cross},
            ],
        },
    )


def _heat_map(figure: Figure, rows: Sequence[Compared]) -> ChartFigure:
    """Draw our values as the colours of a grid, with the lines as the vertical axis."""
    values = [{"x": _x_text(row.x), "line": row.line, "y": row.ours} for row in rows]
    largest = max((abs(row.ours) for row in rows if row.ours is not None), default=1.0)
    lines = sorted({row.line for row in rows}, key=float, reverse=True)
    color = quantity("y", title=figure.title, scale={"scheme": "redblue", "domain": [largest, -largest]})
    encoding = {
        "x": category("x", title=figure.x),
        "y": category("line", title=figure.y, sort=lines),
        "color": color,
        "tooltip": {"field": "y", "type": "quantitative"},
    }
    return ChartFigure(
        name=figure.name,
        title=figure.title,
        alt=f"{figure.title}: {figure.y} by {figure.x}.",
        caption="",
        height=320,
        spec={"data": {"values": values}, "encoding": encoding, "mark": "rect"},
    )
