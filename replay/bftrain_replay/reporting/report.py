"""The page of a replay: its charts, tables and texts for report.html."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

import msgspec

from bftrain import text_formats
from bftrain_datasets.log.idle_doubts import COUNTS, RECORDS, SIMULATED, IdleDoubts
from bftrain_replay.drawing.figure import ChartFigure
from bftrain_replay.drawing.html_page import HtmlPage, HtmlTable, HtmlText
from bftrain_replay.reporting.completion import (
    completion_charts,
    completion_parts,
    configuration,
    input_text,
    model_table,
    task_table,
)
from bftrain_replay.reporting.idle_lengths import idle_lengths
from bftrain_replay.reporting.losses import CAUSE_NAMES, hints, meanings, waterfall
from bftrain_replay.reporting.over_time import holders, nodes
from bftrain_replay.reporting.task_sizes import sizes
from bftrain_replay.reporting.user_shares import user_charts
from bftrain_replay.run import decider_counts, headline
from bftrain_replay.run.harvest_by_block import WeeklyHarvest, interval, too_narrow
from bftrain_replay.run.headline import ENOUGH_WORK, RAN_OUT, harvest_node_h, idle_on_average, ran_out
from bftrain_replay.run.run import Run
from bftrain_replay.run.summary_figures import FIGURE_OF, FIGURES, meaning_of
from bftrain_replay.run.tables import SECONDS_AN_HOUR
from bftrain_replay.run.variations import AS_TASKS_SAY, COSTS, LEAST_GAIN, PROGRESS, SensitivityRow
from bftrain_replay.simulation.progress_kept import DISK, MEMORY, ProgressKept

_ROUNDED: Final = 0.01  # fraction of the mean number of idle nodes; U shows larger rounding of the constant pool
_NEGLIGIBLE: Final = 0.0005  # smaller changes would be shown as 0.0 %
_SEEN: Final = {SIMULATED: "in a simulated schedule", COUNTS: "derived from counts"}
_LEFT_BY: Final = {
    RECORDS: "The batch queue",
    COUNTS: "By counts of busy nodes the batch queue",
    SIMULATED: "A simulated schedule",
}


def own_charts(run: Run) -> tuple[ChartFigure, ...]:
    """Draw the charts that need no reference replay; drawing them takes most of the time of a page."""
    over_time = (nodes(run), sizes(run), *user_charts(run), holders(run))
    charts = (*over_time, *completion_charts(run), idle_lengths(run))
    return tuple(chart for chart in charts if chart is not None)


def page(run: Run, title: str = "", own: tuple[ChartFigure, ...] | None = None) -> HtmlPage:
    """Build the page; ``own`` are the ``own_charts`` if they were drawn earlier."""
    summary, fall = run.summary, waterfall(run)
    doubts = _doubts(summary)
    source = doubts.source if doubts else RECORDS
    idle_h = float(summary["idle_node_h"])
    whole_h = run.end_s / SECONDS_AN_HOUR * len(run.log.node_names)
    (tasks, omitted), models = task_table(run), model_table(run.task_rows, run.node)
    decided = decider_counts.sentence(
        summary["solver"], summary["decisions"], summary.get("fallback_causes", {}), _decided_by(summary)
    )
    inputs = [(name, input_text(file)) for name, file in summary["inputs"].items()]
    baseline = [("baseline", summary["baseline"]["solver"])] if summary["baseline"] else []
    parts = {
        "run": run,
        "node": run.node,
        "figures": FIGURE_OF,
        "meaning": lambda name: run.words(meaning_of(name)),
        "seen": _SEEN.get(source, "observed"),
        "part": headline.note(run.end_s, run.log.span_s, complete=summary["complete"]).rstrip(),
        "left_by": run.words(_LEFT_BY[source]),
        "doubts": doubts,
        "idle_share": idle_h / whole_h if whole_h else None,
        "useful_h": harvest_node_h(summary),
        "lost_h": sum(float(loss["node_h"]) for loss in summary["lost"].values()),
        "ran_out": RAN_OUT if ran_out(summary) else "",
        "enough_work": ENOUGH_WORK,
        **_week(summary),
        "decided": f"{decided[:1].upper()}{decided[1:]}",
        "efficiency_note": _efficiency_note(run),
        "largest": hints(run),
        "causes": CAUSE_NAMES,
        "least_gain": LEAST_GAIN,
        "explanations": list(_explanations(run)),
        "meanings": meanings(run),
        "assumed": _assumed(summary),
        "gains": _gains(run),
        "compared": _compared(run),
        **completion_parts(run),
        "left_out": omitted
        + ("First by model, which is a task's name up to its number; then task by task. " if models else ""),
        "models": models,
        "tasks": tasks,
        "configuration": configuration(run, [*inputs, *baseline]),
    }
    return HtmlPage(
        template="report.html",
        title=title or f"Possible work on the idle {run.node}s",
        main="nodes",
        figures=(*(own_charts(run) if own is None else own), *(() if fall is None else (fall,))),
        parts=parts,
        warnings=list(_notices(run)),
    )


def _doubts(summary: Mapping[str, Any]) -> IdleDoubts | None:
    """Return the doubts about the log; ``None`` for clusters, and for results of versions without doubts."""
    values = summary.get("doubtful")
    names = IdleDoubts.__struct_fields__
    return IdleDoubts(**{name: values[name] for name in names if name in values}) if values else None


def _decided_by(summary: Mapping[str, Any]) -> Mapping[str, int]:
    """Return how many decisions each solver made; empty for results of versions without this figure."""
    counts: Mapping[str, int] = summary.get("decided_by", {})
    return counts


def _week(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return the weekly harvest and its blocks as text; empty without an interval, as for short logs."""
    weekly = msgspec.convert(summary.get("weekly"), WeeklyHarvest | None)
    if weekly is None or weekly.harvest.low is None:
        return {"week": "", "weeks": ""}
    weeks = f"{text_formats.counted(weekly.blocks, weekly.block)}{too_narrow(weekly.blocks)}"
    return {"week": interval(weekly.harvest), "weeks": weeks}


def _notices(run: Run) -> Iterator[str]:
    """Yield caveats that readers must know."""
    summary = run.summary
    if not summary["complete"]:
        done, whole = text_formats.duration(run.end_s), text_formats.duration(run.log.span_s)
        yield f"This replay was stopped before its end: the figures cover {done} of {whole}."
    yield from summary["warnings"]
    if headline.u_above_100(summary):
        yield run.words(f"{headline.NO_BOUND}.")
    settings, count = summary["settings"], summary["tasks"]
    if headline.competing(count, settings["admission"], settings["max_tasks"]) < count:
        yield from (run.words(f"{caveat}.") for caveat in headline.cap_caveats(summary))
    if count and summary["tasks_finished"] == count:
        yield "Every task finished, so the harvest could not be larger; compare when they finished."


def _efficiency_note(run: Run) -> str:
    """Return the text below efficiency U: what it compares with."""
    summary = run.summary
    if summary["efficiency"] is None:
        return "not known"
    if ran_out(summary):
        return "U is not comparable where work ran out"
    pool, mean = int(summary["dedicated_nodes"]), idle_on_average(summary)
    note = f"of the work of {text_formats.counted(pool, f'dedicated {run.node}')}"
    if abs(mean - pool) >= _ROUNDED * mean:
        note += f" (on average {text_formats.count(mean)} were idle)"
    if summary["ceiling_efficiency"] is not None:
        note += f"; {text_formats.percent(summary['ceiling_efficiency'])} without costs"
    share = FIGURE_OF["harvested_of_bound"].value_in(summary)
    return note if share is None else f"{note}; {text_formats.percent(share)} of the proven bound"


def _explanations(run: Run) -> Iterator[tuple[str, float, HtmlText]]:
    """Yield name, node-hours and explanation of each large loss without advice that depends on more than settings."""
    answered = {row["cause"] for row in run.summary.get("advice") or ()}
    settings = run.summary["settings"]

    def marked(option: re.Match[str]) -> str:
        """Mark an option as code, and add its current value."""
        name = option[0].removeprefix("--").replace("-", "_")
        value = settings.get(name, settings.get(f"{name}_s"))
        unit = " s" if f"{name}_s" in settings and not isinstance(value, str) else ""
        text = value if isinstance(value, str | None) else f"{value:g}{unit}"
        return f"<code>{option[0]}</code>{'' if text is None else escape(f' (now {text})')}"

    for cause, hours in hints(run):
        if cause.figure.explanation and cause.key not in answered:
            text = re.sub(r"--[a-z-]+[a-z]", marked, escape(run.words(cause.figure.explanation)))
            yield run.words(cause.name), hours, HtmlText(text)


def _assumed(summary: Mapping[str, Any]) -> HtmlTable | None:
    """Return the table of other assumptions; ``None`` if none were replayed."""
    if not summary.get("sensitivity"):
        return None
    rows = [SensitivityRow(**row) for row in summary["sensitivity"]]
    headings, cells = sensitivity_table("assumed", rows, " (assumed here)")
    return HtmlTable(label="Under other assumptions", headings=headings, rows=cells, css="compare")


def sensitivity_table(
    assumed: str, rows: Sequence[SensitivityRow], chosen: str
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and cells; ``assumed`` is the heading of the first column, ``chosen`` marks current settings."""
    figures = [FIGURE_OF[name] for name in ("efficiency", "harvested", "lost.preemption")]
    cells = []
    for row in rows:
        values = (row.efficiency, row.harvested, row.lost_preemption)
        texts = (figure.format(value) for figure, value in zip(figures, values, strict=True))
        cells.append((f"{_assumption(row)}{chosen if row.chosen else ''}", *texts))
    return (assumed, *(figure.label for figure in figures)), cells


def _assumption(row: SensitivityRow) -> str:
    """Return the name of an alternative."""
    if row.what == PROGRESS:
        kept = ProgressKept.parse(row.setting)
        if kept.disk_s is None:
            return "progress as in the task file"
        if kept.copy_s is not None:
            return f"progress in copies on other nodes every {text_formats.duration(kept.copy_s)}"
        period = text_formats.duration(kept.disk_s)
        if kept.kept == DISK:
            return f"progress on disk every {period}"
        return "progress in memory" if row.setting == MEMORY else f"progress in memory, on disk every {period}"
    if row.what == COSTS:
        return f"costs x {row.setting}"
    return (
        f"start {AS_TASKS_SAY}" if row.setting == AS_TASKS_SAY else f"start {text_formats.duration(float(row.setting))}"
    )


def _label(summary: Mapping[str, Any], name: str = "") -> str:
    """Return the heading of a replay: its solver, or ``name``, and the share of other deciders if there were any."""
    return decider_counts.column_label(summary["solver"], summary["decisions"], _decided_by(summary), name)


def _gains(run: Run) -> str:
    """Return a sentence that compares the replay with its reference replays."""
    summary = run.summary
    baseline = summary["baseline"]
    references = (_label(baseline) if baseline else "", baseline), ("the same without costs", summary["ceiling"])
    changes: dict[str, list[str]] = {}  # keys are verbs
    for name, other in references:
        if other and summary["makespan_s"] and other["makespan_s"]:
            change = _change(summary["makespan_s"], other["makespan_s"], ("sooner", "later"), "as soon")
            changes.setdefault("finished all tasks", []).append(f"{change} {name}")
        elif other and other["harvested"]:
            change = _change(summary["harvested"], other["harvested"], ("less", "more"), "as much")
            changes.setdefault("harvested", []).append(f"{change} {name}")
    predicate = "; it ".join(f"{verb} {' and '.join(texts)}" for verb, texts in changes.items())
    return f"With the same {run.node}s and tasks {_label(summary)} {predicate}." if predicate else ""


def _change(one: float, other: float, comparatives: tuple[str, str], equal: str) -> str:
    """Return the relative difference; ``comparatives`` are for smaller and for larger values of ``one``."""
    change = one / other - 1.0
    if abs(change) < _NEGLIGIBLE:
        return f"{equal} as"
    return f"{text_formats.percent(abs(change))} {comparatives[change > 0.0]} than"


def _compared(run: Run) -> HtmlTable:
    """Return the figures of the replay, the baseline and the replay without costs side by side."""
    summary, baseline, ceiling = run.summary, run.summary["baseline"], run.summary["ceiling"]
    columns = {_label(summary): summary} | ({_label(baseline): baseline} if baseline else {})
    columns |= {_label(ceiling, decider_counts.CEILING): ceiling} if ceiling else {}
    rows = [
        (run.words(figure.label), *map(figure.text_in, columns.values()))
        for figure in FIGURES
        if "page" in figure.places and figure.shown([figure.value_in(each) for each in columns.values()])
    ]
    about = {run.words(figure.label): run.words(figure.about) for figure in FIGURES}
    return HtmlTable(label="Compared", headings=("", *columns), rows=rows, css="compare best", about=about)
