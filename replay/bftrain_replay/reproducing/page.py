"""The result of an experiment: a table of our values beside the published ones, plots, and a page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from bftrain import summaries, text_formats
from bftrain.errors import BadInput
from bftrain.files import write_text
from bftrain.result_folder import REPORT_FILE, ResultKind
from bftrain.values import wire
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure, category, quantity
from bftrain_replay.drawing.html_page import HtmlCell, HtmlPage, HtmlTable, PageSection, html
from bftrain_replay.output import csv_tables
from bftrain_replay.reproducing.comparison import Compared, compared
from bftrain_replay.reproducing.experiment import Experiment, Figure, Place, published
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
_EXPLAINED: Final = 5.0  # percent: larger differences need an explanation


def tables(experiment: Experiment, done: Reproduction) -> dict[str, list[Compared]]:
    """Return the compared values of each figure, by its name."""
    values = published(experiment.name)
    return {figure.name: compared(done, figure, values) for figure in done.figures}


def write(folder: Path, experiment: Experiment, done: Reproduction) -> None:
    """Write the table, the summary and, where charts can be drawn, the page."""
    rows = tables(experiment, done)
    csv_tables.write_rows(folder / TABLE, _COLUMNS, (_cells(row) for each in rows.values() for row in each))
    write_text(folder / SUMMARY, summaries.to_json(summary(experiment, done)))
    if vega.available():
        write_text(folder / REPORT_FILE, html(page(experiment, done)))


def write_pictures(folder: Path, experiment: Experiment, done: Reproduction) -> None:
    """Write each plot as SVG and PNG."""
    charts = [_chart(figure, rows) for figure, rows in _with_values(experiment, done)]
    for form in vega.FORMS:
        vega.write(charts, folder, form)


def can_draw() -> bool:
    """Return whether charts can be drawn here."""
    return vega.available()


def is_of(folder: Path, experiment: Experiment) -> bool:
    """Return whether a folder has a result of this experiment, which the next one continues."""
    try:
        return bool(wire.decode((folder / SUMMARY).read_bytes(), dict[str, Any]).get("experiment") == experiment.name)
    except (OSError, BadInput):
        return False


def summary(experiment: Experiment, done: Reproduction) -> dict[str, Any]:
    """Return the content of ``reproduce.json``."""
    rows = [row for each in tables(experiment, done).values() for row in each]
    differences = [abs(row.difference) for row in rows if row.difference is not None]
    return {
        "format": FORMAT,
        "experiment": experiment.name,
        "complete": not done.count(PointState.OPEN),
        "figures": [figure.name for figure in done.figures],
        "runs": len(done.rows),
        **{str(state): done.count(state) for state in PointState},
        "compared": len(differences),
        "within_3_percent": sum(each <= 3.0 for each in differences),  # noqa: PLR2004 - as the name says
        "largest_difference_percent": max(differences, default=None),
        "values": [dict(zip((column.name for column in _COLUMNS), _cells(row), strict=True)) for row in rows],
    }


def page(experiment: Experiment, done: Reproduction) -> HtmlPage:
    """Return the page: each figure with its plot and its table."""
    data = summary(experiment, done)
    open_runs, failed = data["open"], data["failed"]
    warnings = [f"{text_formats.counted(open_runs, 'run')} still to be done."] if open_runs else []
    warnings += [f"{text_formats.counted(failed, 'run')} failed: {next(iter(done.failures))}."] if failed else []
    lead = f"{data['within_3_percent']:,} of {text_formats.counted(data['compared'], 'published value')} within 3 %."
    return HtmlPage(
        title=f"{experiment.title}, reproduced",
        subtitle=f"Published in {experiment.source}.",
        lead=lead if data["compared"] else "",
        warnings=warnings,
        sections=[
            PageSection(
                heading=figure.title, intro=_intro(figure, rows), parts=(_chart(figure, rows), _table(figure, rows))
            )
            for figure, rows in _with_values(experiment, done)
        ],
    )


def _with_values(experiment: Experiment, done: Reproduction) -> list[tuple[Figure, list[Compared]]]:
    rows = tables(experiment, done)
    return [(figure, rows[figure.name]) for figure in done.figures if rows[figure.name]]


def text_rows(figure: Figure, rows: Iterable[Compared]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of a figure as text, under ``HEADINGS``."""
    for row in rows:
        ours = "" if row.ours is None else f"{row.ours:,.{figure.digits}f}"
        theirs = "" if row.published is None else f"{row.published:,.{figure.digits}f}"
        difference = "" if row.difference is None else f"{row.difference:+.1f} %"
        if row.saturated:
            ours, difference = _SATURATED, ""
        yield row.line, _place(row.x), ours, theirs, difference, _seeds(row), row.source


def _place(x: Place) -> str:
    return x if isinstance(x, str) else f"{x:,.6g}"


def _seeds(row: Compared) -> str:
    seeds = " ".join(map(str, row.seeds))
    if row.published is None or row.published_seeds in {(), row.seeds}:
        return seeds
    return f"{seeds} (published: {' '.join(map(str, row.published_seeds))})"


def _cells(row: Compared) -> tuple[object, ...]:
    names = _place(row.x), " ".join(map(str, row.seeds))
    numbers = None if row.saturated else row.ours, row.published, row.difference
    more = "yes" if row.saturated else "", " ".join(map(str, row.published_seeds)), row.source
    return row.figure, row.line, *names, *numbers, *more


def _intro(figure: Figure, rows: Sequence[Compared]) -> str:
    large = sum(row.difference is not None and abs(row.difference) > _EXPLAINED for row in rows)
    found = f" {text_formats.counted(large, 'value')} differ by more than {_EXPLAINED:g} %." if large else ""
    return f"{figure.note}{found}".strip()


def _table(figure: Figure, rows: Sequence[Compared]) -> HtmlTable:
    headings = ("line", figure.x, *HEADINGS[2:])
    keys = [(None, row.x, row.ours, row.published, row.difference, None, None) for row in rows]
    cells = [
        [text if key is None else HtmlCell(text, key) for text, key in zip(texts, own, strict=True)]
        for texts, own in zip(text_rows(figure, rows), keys, strict=True)
    ]
    return HtmlTable(label=figure.title, headings=headings, rows=cells, sortable=True, folded="All values")


def _chart(figure: Figure, rows: Sequence[Compared]) -> ChartFigure:
    """Draw a heat map, or our values as lines and the published ones as crosses."""
    if figure.form == "heat":
        return _heat_map(figure, rows)
    shown = [row for row in rows if not row.saturated]
    values = [
        {"line": row.line, "x": row.x, "y": y, "from": who, "words": f"{row.line}, {_place(row.x)}: {y:,.6g} ({who})"}
        for row in shown
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
    own: dict[str, Any] = {"type": "line", "strokeWidth": 2, "point": figure.form == "lines", **interpolate}
    if figure.form == "bars" or names:
        own = {"type": "point", "filled": True, "size": 90}
    cross = {"type": "point", "shape": "cross", "size": 70, "strokeWidth": 1.5}
    return ChartFigure(
        name=figure.name,
        title=figure.title,
        alt=f"{figure.title}: {figure.y} against {figure.x}.",
        caption="Lines are ours, crosses are published. Saturated points are left out.",
        height=320,
        spec={
            "data": {"values": values},
            "encoding": {"x": x, "y": y, "color": color, "tooltip": {"field": "words", "type": "nominal"}},
            "layer": [
                {"transform": [{"filter": "datum.from == 'ours'"}], "mark": own},
                {"transform": [{"filter": "datum.from == 'published'"}], "mark": cross},
            ],
        },
    )


def _heat_map(figure: Figure, rows: Sequence[Compared]) -> ChartFigure:
    """Draw our values as the colours of a grid, whose vertical places are the lines."""
    values = [{"x": _place(row.x), "line": row.line, "y": row.ours} for row in rows]
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
