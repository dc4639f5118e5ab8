"""The page of a sweep: the effect of each option, the plots, and all points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from bftrain import text_formats
from bftrain.node_units import in_words_of
from bftrain.text_formats import plain
from bftrain_replay.drawing import vega
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.html_page import HtmlCell, HtmlPage, HtmlTable, HtmlText, html
from bftrain_replay.run.summary_figures import BetterDirection
from bftrain_replay.sweeping import sweep_table
from bftrain_replay.sweeping.seed_spread import Cells, spreads
from bftrain_replay.sweeping.sweep_charts import as_drawn, figures, file_name, varied, with_names
from bftrain_replay.sweeping.sweep_spec import SEED

MOST_ROWS: Final = 1000  # maximum table rows on the page; the file has all
_MOST_WARNINGS: Final = 8


def render(swept: sweep_table.SweptPoints) -> str:
    """Return the page as the text of an HTML file."""
    return html(page(swept))


def write_figures(swept: sweep_table.SweptPoints, folder: Path, form: str) -> list[Path]:
    """Write every chart as ``NAME.svg`` or ``NAME.png``."""
    return vega.write(_figures(swept), folder, form)


def page(swept: sweep_table.SweptPoints) -> HtmlPage:
    """Build the page."""
    spec, summary = swept.spec, swept.summary()
    metrics = _metrics(swept, swept.rows)
    rows = as_drawn(swept.rows, spec)
    main = next((each for each in metrics if sweep_table.ranks(each, rows)), None)
    inputs = summary["inputs"]
    kinds = ("logs", "clusters", "tasks")
    logs, clusters, tasks = (list(dict.fromkeys(str(one["name"]) for one in inputs[kind])) for kind in kinds)
    nodes = ", ".join([*logs, *(f"{cluster} nodes" if cluster.isdecimal() else cluster for cluster in clusters)])
    points, counted = len(swept.rows), text_formats.counted(len(swept.rows), "replay")
    over = f", over {', '.join(spec.swept)}" if spec.swept else ""
    left_out = f"The first {MOST_ROWS:,} of {points:,}; all are in the table. " if points > MOST_ROWS else ""
    charts = _figures(swept)
    of_main = [chart.name for chart in charts if main and chart.name.startswith(f"{file_name(main.column)}-by-")]
    return HtmlPage(
        template="sweep.html",
        title=spec.title,
        main=next(iter(of_main or (chart.name for chart in charts)), ""),
        figures=charts,
        warnings=list(_notices(swept)),
        parts={
            "subtitle": f"{counted} of {nodes} with {', '.join(tasks)}{over}.",
            "lead": (_lead(rows, main) if main else "") or f"{counted}; no metric ranks them.",
            "cards": list(_cards(swept, main)),
            "main_metric": main,
            "differences": _differences(rows, main) if main and varied(rows) else None,
            "plots": [chart.name for chart in charts],
            "left_out": left_out,
            "points": _table(swept, metrics),
            "making": _making(summary),
        },
        static_command="bftrain sweep FILE --svg DIR",
    )


def _metrics(swept: sweep_table.SweptPoints, rows: Sequence[sweep_table.PointRow]) -> list[sweep_table.MetricColumn]:
    return [metric._replace(unit=swept.unit) for metric in sweep_table.metrics_of(swept.spec.plot, rows)]


def _figures(swept: sweep_table.SweptPoints) -> list[ChartFigure]:
    spec = swept.spec
    done = [row for row in as_drawn(swept.rows, spec) if row.cells.get(sweep_table.HARVEST.column) is not None]
    if not varied(done):
        return []
    return list(figures(done, _metrics(swept, done)))


def _lead(rows: Sequence[sweep_table.PointRow], metric: sweep_table.MetricColumn) -> HtmlText | str:
    """Return where the metric is best, and which option makes the largest difference."""
    names = [name for name in varied(rows) if name != SEED]
    found = spreads(rows, metric, names)
    if not found:
        return ""
    most, least = (choose(found, key=lambda cells: found[cells].mean) for choose in (max, min))
    best, worst = (least, most) if metric.figure.better is BetterDirection.LESS else (most, least)

    def written(cells: Cells) -> str:
        options = with_names(names, cells)
        return metric.format(found[cells].mean) + (escape(f" with {options}") if options else "")

    title = metric.heading
    over = f", on average over {text_formats.counted(found[best].count, 'seed')}" if found[best].count > 1 else ""
    if len(found) == 1:
        return HtmlText(f"{title}{over}: <strong>{written(best)}</strong>.")
    ends = ("at best", "at worst") if metric.figure.better else ("at most", "at least")
    text = f"{title}{over}: <strong>{written(best)}</strong> {ends[0]}, {written(worst)} {ends[1]}"
    name, low, high = _ranked(rows, metric)[0]
    return HtmlText(
        f"{text}; <strong>{escape(name)}</strong> makes the largest difference: {low} to {high} on average."
    )


def _ranked(rows: Sequence[sweep_table.PointRow], metric: sweep_table.MetricColumn) -> list[tuple[str, str, str]]:
    """Return each option with the lowest and the highest mean over its values, the largest difference first."""
    found = []
    for name in varied(rows):
        means = [spread.mean for spread in spreads(rows, metric, [name]).values()]
        if name == SEED and len(varied(rows)) > 1:
            continue
        found.append((max(means) - min(means), name, metric.format(min(means)), metric.format(max(means))))
    return [(name, low, high) for _, name, low, high in sorted(found, key=lambda one: -one[0])]


def _notices(swept: sweep_table.SweptPoints) -> Iterator[str]:
    total = text_formats.counted(len(swept.rows), "point")
    still = sum(row.state is sweep_table.PointState.OPEN for row in swept.rows)
    if still:
        yield f"{still:,} of {total} are still to be done."
    if swept.failed:
        yield f"{len(swept.failed):,} of {total} failed; the table says why."
    yield from (in_words_of(swept.unit, f"{note}.") for note in swept.notes)
    warnings = list(swept.warnings.items())
    for text, passes in warnings[:_MOST_WARNINGS]:
        warning = in_words_of(swept.unit, f"{text[:1].upper()}{text[1:]}")
        yield warning + (f" ({passes:,} replays)." if passes > 1 else ".")
    if len(warnings) > _MOST_WARNINGS:
        yield f"{len(warnings) - _MOST_WARNINGS:,} more warnings are in sweep.json."


def _cards(swept: sweep_table.SweptPoints, main: sweep_table.MetricColumn | None) -> Iterator[tuple[str, str, str]]:
    done = [row for row in swept.rows if row.state is sweep_table.PointState.DONE]
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


def _differences(rows: Sequence[sweep_table.PointRow], metric: sweep_table.MetricColumn) -> HtmlTable:
    done = [row for row in rows if metric.of(row) is not None]
    cells = []
    for name, low, high in _ranked(done, metric):
        found = spreads(done, metric, [name])
        least, most = (choose(found, key=lambda one: found[one].mean) for choose in (min, max))
        cells.append((name, f"{len(found):,}", f"{plain(least[0])}: {low}", f"{plain(most[0])}: {high}"))
    headings = ("option", "values", "lowest with", "highest with")
    return HtmlTable(label="What makes a difference", headings=headings, rows=cells, css="plain")


def _table(swept: sweep_table.SweptPoints, metrics: Sequence[sweep_table.MetricColumn]) -> HtmlTable:
    usual = (
        sweep_table.HARVEST.column,
        sweep_table.HARVEST_NODE_H,
        "coverage",
        sweep_table.DOUBTFUL,
        sweep_table.EFFICIENCY.column,
        sweep_table.BASELINE,
        sweep_table.CEILING,
    )
    others = (sweep_table.metric_of(column)._replace(unit=swept.unit) for column in usual)
    known = dict.fromkeys([*metrics, *others])
    shown = [metric for metric in known if any(metric.of(row) is not None for row in swept.rows)]
    failed = bool(swept.failed)
    options = list(swept.spec.swept)
    rows: list[list[str | HtmlCell]] = [
        [
            HtmlCell(f"{number:,}", number),
            *(HtmlCell(plain(row.point.options[name]), row.point.options[name]) for name in options),
            *(HtmlCell(sweep_table.text_of(metric, row), metric.of(row)) for metric in shown),
            str(row.state),
            *([row.error] if failed else []),
        ]
        for number, row in enumerate(swept.rows[:MOST_ROWS], start=1)
    ]
    headings = ["", *options, *(metric.title for metric in shown), "status", *(["why"] if failed else [])]
    return HtmlTable(label="Points", headings=headings, rows=rows, sortable=True)


def _making(data: dict[str, Any]) -> HtmlTable:
    rows = [(name, f"{value}") for name, value in sweep_table.flat(data["sweep_file"]["content"], ".")]
    for kind in ("logs", "clusters", "tasks"):
        for one in data["inputs"][kind]:
            seed = f", seed {one['seed']}" if one["seed"] is not None else ""
            rows.append((f"{kind}: {one['name']}{seed}", f"SHA-256 {one['sha256']}"))
    rows += [*data["versions"].items(), ("figures, SHA-256", data["figures_sha256"])]
    return HtmlTable(label="How it was made", headings=("what", "value"), rows=rows, css="plain")
