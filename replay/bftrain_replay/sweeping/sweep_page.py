"""The page of a sweep: what makes a difference, the plots, and all points."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any, Final, Protocol

from bftrain import text_formats
from bftrain_replay.drawing import picture_files
from bftrain_replay.drawing.html_page import FigureCard, HtmlCell, HtmlPage, HtmlTable, HtmlText, PageSection, html
from bftrain_replay.sweeping.sweep_charts import as_drawn, figures, plain, spreads, varied
from bftrain_replay.sweeping.sweep_options import SEED
from bftrain_replay.sweeping.sweep_table import DOUBTFUL, HARVEST_NODE_H, TASKS_RAN_OUT, PointState
from bftrain_replay.sweeping.table_metrics import (
    BASELINE,
    CEILING,
    EFFICIENCY,
    HARVEST,
    metric_of,
    metrics_of,
    said_of,
    tasks_ran_out,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from bftrain_replay.drawing.figure import ChartFigure
    from bftrain_replay.sweeping.sweep_charts import Cells
    from bftrain_replay.sweeping.sweep_spec import SweepSpec
    from bftrain_replay.sweeping.sweep_table import PointRow
    from bftrain_replay.sweeping.table_metrics import MetricColumn


class PlannedSweep(Protocol):
    """The sweep that a page shows."""

    @property
    def spec(self) -> SweepSpec:
        """Return what its file says."""
        ...


class SweepTable(Protocol):
    """The outcome of a sweep that a page shows."""

    @property
    def sweep(self) -> PlannedSweep:
        """Return the sweep."""
        ...

    @property
    def rows(self) -> tuple[PointRow, ...]:
        """Return one row per point."""
        ...

    @property
    def failed(self) -> tuple[PointRow, ...]:
        """Return the points that failed."""
        ...

    @property
    def warnings(self) -> Mapping[str, int]:
        """Return the warnings, and for how many points each holds."""
        ...

    def summary(self) -> dict[str, Any]:
        """Return what ``sweep.json`` holds."""
        ...


MOST_ROWS: Final = 1000  # of the table on the page; the file has all
_MOST_WARNINGS: Final = 8
_OF_FINISHED: Final = ("completion_s", "slowdown", "rho")  # figures that only those have who finished


def render(swept: SweepTable) -> str:
    """Give the page as the text of an HTML file."""
    return html(page(swept))


def write_figures(swept: SweepTable, folder: Path, form: str) -> list[Path]:
    """Write every picture as ``NAME.svg`` or ``NAME.png``."""
    return picture_files.write(_figures(swept), folder, form)


def page(swept: SweepTable) -> HtmlPage:
    """Lay the page out."""
    metrics = metrics_of(swept.sweep.spec.plot, swept.rows)
    rows = as_drawn(swept.rows, swept.sweep.spec)
    # Where tasks ran out U has no best: the next metric leads
    main = next((each for each in metrics if not any(tasks_ran_out(each, row) for row in rows)), None)
    return HtmlPage(
        title=swept.sweep.spec.title,
        subtitle=_subtitle(swept),
        lead=_lead(rows, main) if main else "",
        warnings=list(_notices(swept)),
        cards=list(_cards(swept, main)),
        sections=(
            *([_differences(rows, main)] if main and varied(rows) else []),
            PageSection(heading="Plots", parts=_figures(swept)),
            PageSection(
                heading="Points",
                intro=_left_out(len(swept.rows)) + "A click on a heading sorts by it.",
                parts=(_table(swept, metrics),),
            ),
            PageSection(heading="How it was made", parts=(_making(swept.summary()),)),
        ),
    )


def _figures(swept: SweepTable) -> list[ChartFigure]:
    spec = swept.sweep.spec
    done = [row for row in as_drawn(swept.rows, spec) if row.cells.get(HARVEST.column) is not None]
    return list(figures(done, metrics_of(spec.plot, done))) if varied(done) else []


def _subtitle(swept: SweepTable) -> str:
    spec = swept.sweep.spec
    inputs = swept.summary()["inputs"]
    kinds = ("logs", "clusters", "tasks")
    logs, clusters, tasks = (list(dict.fromkeys(str(one["name"]) for one in inputs[kind])) for kind in kinds)
    nodes = ", ".join([*logs, *(f"{cluster} nodes" if cluster.isdecimal() else cluster for cluster in clusters)])
    return f"{text_formats.counted(len(swept.rows), 'replay')} of {nodes} with {', '.join(tasks)}" + (
        f", over {', '.join(spec.swept)}." if spec.swept else "."
    )


def _lead(rows: Sequence[PointRow], metric: MetricColumn) -> HtmlText | str:
    """Say where the metric is best, and which option makes the largest difference."""
    names = [name for name in varied(rows) if name != SEED]
    found = spreads(rows, metric, names)
    if not found:
        return ""
    most, least = (choose(found, key=lambda cells: found[cells].mean) for choose in (max, min))
    best, worst = (least, most) if metric.better < 0 else (most, least)

    def written(cells: Cells) -> str:
        options = ", ".join(f"{name} = {plain(value)}" for name, value in zip(names, cells, strict=True))
        return (
            f"{metric.said(found[cells].mean)}{escape(f' with {options}')}"
            if options
            else metric.said(found[cells].mean)
        )

    title = f"{metric.title[:1].upper()}{metric.title[1:]}"
    over = f", on average over {text_formats.counted(found[best].count, 'seed')}" if found[best].count > 1 else ""
    if len(found) == 1:
        return HtmlText(f"{title}{over}: <strong>{written(best)}</strong>.")
    ends = ("at best", "at worst") if metric.better else ("at most", "at least")
    text = f"{title}{over}: <strong>{written(best)}</strong> {ends[0]}, {written(worst)} {ends[1]}."
    name, low, high = _ranked(rows, metric)[0]
    return HtmlText(f"{text} <strong>{escape(name)}</strong> makes the largest difference: {low} to {high} on average.")


def _ranked(rows: Sequence[PointRow], metric: MetricColumn) -> list[tuple[str, str, str]]:
    """Give each option with the lowest and the highest mean over its values, the largest difference first."""
    found = []
    for name in varied(rows):
        means = [spread.mean for spread in spreads(rows, metric, [name]).values()]
        if name == SEED and len(varied(rows)) > 1:
            continue
        found.append((max(means) - min(means), name, metric.said(min(means)), metric.said(max(means))))
    return [(name, low, high) for _, name, low, high in sorted(found, key=lambda one: -one[0])]


def _notices(swept: SweepTable) -> Iterator[str]:
    total = f"{len(swept.rows):,} points"
    still = len(swept.rows) - sum(row.state is not PointState.OPEN for row in swept.rows)
    if still:
        yield f"{still:,} of {total} are still to be done."
    if swept.failed:
        yield f"{len(swept.failed):,} of {total} failed; the table says why."
    names = {metric.column for metric in metrics_of(swept.sweep.spec.plot, swept.rows)}
    # On clusters and in rounds that is a warning of the replay
    on_logs = [row for row in swept.rows if row.point.log and not row.point.in_rounds]
    short = sum(bool(row.cells.get(TASKS_RAN_OUT)) for row in on_logs)
    if short:
        yield f"In {short:,} of {total} the tasks ran out: efficiency U compares nothing there, the harvest does."
    left = [row for row in on_logs if row.cells.get("tasks_unfinished")]
    if left and any(name.startswith(_OF_FINISHED) for name in names):
        yield (
            f"In {len(left):,} of {total} tasks had not finished in the end: figures of completion times, slowdown and "
            "rho leave these out, and may be too low there."
        )
    warnings = list(swept.warnings.items())
    for text, passes in warnings[:_MOST_WARNINGS]:
        yield f"{text[:1].upper()}{text[1:]}" + (f" ({passes:,} replays)." if passes > 1 else ".")
    if len(warnings) > _MOST_WARNINGS:
        yield f"{len(warnings) - _MOST_WARNINGS:,} more warnings are in sweep.json."


def _cards(swept: SweepTable, main: MetricColumn | None) -> Iterator[FigureCard]:
    done = [row for row in swept.rows if row.state is PointState.DONE]
    note = f"{len(done):,} done" + (f", {len(swept.failed):,} failed" if swept.failed else "")
    yield FigureCard(name="points", figure=text_formats.count(len(swept.rows)), note=note)
    found = [value for row in done if main and (value := main.of(row)) is not None]
    if main is None or not found:
        return
    yield FigureCard(name=f"{main.title}, highest", figure=main.said(max(found)), note=f"of {len(found):,} points")
    yield FigureCard(name=f"{main.title}, lowest", figure=main.said(min(found)), note=f"of {len(found):,} points")
    others = [name for name in varied(done) if name != SEED]
    if SEED in varied(done):
        widest = max((one.high - one.low for one in spreads(done, main, others).values()), default=0.0)
        yield FigureCard(name="widest spread over seeds", figure=main.said(widest), note="from the least to the most")


def _differences(rows: Sequence[PointRow], metric: MetricColumn) -> PageSection:
    done = [row for row in rows if metric.of(row) is not None]
    cells = []
    for name, low, high in _ranked(done, metric):
        found = spreads(done, metric, [name])
        least, most = (choose(found, key=lambda one: found[one].mean) for choose in (min, max))
        cells.append((name, f"{len(found):,}", plain(least[0]), low, plain(most[0]), high))
    return PageSection(
        heading="What makes a difference",
        intro=f"{metric.title[:1].upper()}{metric.title[1:]} by each option, on average over all values of the others.",
        parts=(
            HtmlTable(
                label="What makes a difference",
                headings=("option", "values", "lowest with", "", "highest with", ""),
                rows=cells,
                css="plain",
            ),
        ),
    )


def _left_out(points: int) -> str:
    return f"The first {MOST_ROWS:,} of {points:,}; all are in the table. " if points > MOST_ROWS else ""


def _table(swept: SweepTable, metrics: Sequence[MetricColumn]) -> HtmlTable:
    """Give the points with their options and most important figures."""
    usual = (HARVEST.column, HARVEST_NODE_H, "coverage", DOUBTFUL, EFFICIENCY.column, BASELINE, CEILING)
    shown = [metric for metric in dict.fromkeys([*metrics, *map(metric_of, usual)]) if _has_values(metric, swept.rows)]
    failed = bool(swept.failed)
    options = list(swept.sweep.spec.swept)
    rows: list[list[str | HtmlCell]] = [
        [
            HtmlCell(f"{number:,}", number),
            *(HtmlCell(plain(row.point.options[name]), row.point.options[name]) for name in options),
            *(HtmlCell(said_of(metric, row), metric.of(row)) for metric in shown),
            str(row.state),
            *([row.error] if failed else []),
        ]
        for number, row in enumerate(swept.rows[:MOST_ROWS], start=1)
    ]
    headings = ["", *options, *(metric.title for metric in shown), "status", *(["why"] if failed else [])]
    return HtmlTable(label="Points", headings=headings, rows=rows, sortable=True)


def _has_values(metric: MetricColumn, rows: Sequence[PointRow]) -> bool:
    return any(metric.of(row) is not None for row in rows)


def _making(data: dict[str, Any]) -> HtmlTable:
    rows = [(name, f"{value}") for name, value in _flat(data["sweep_file"]["content"])]
    for kind in ("logs", "clusters", "tasks"):
        for one in data["inputs"][kind]:
            seed = f", seed {one['seed']}" if one["seed"] is not None else ""
            rows.append((f"{kind}: {one['name']}{seed}", f"SHA-256 {one['sha256']}"))
    rows += [*data["versions"].items(), ("figures, SHA-256", data["figures_sha256"])]
    return HtmlTable(label="How it was made", headings=("what", "value"), rows=rows, css="plain")


def _flat(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
