"""The page of a comparison: charts of several replays, and their figures side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Final

from bftrain import text_formats
from bftrain.node_units import word_of
from bftrain.result_folder import write_page
from bftrain_replay.comparing import comparison_charts
from bftrain_replay.comparing.compared_figures import ComparedReplays
from bftrain_replay.comparing.compared_run import ComparedRun, SettingDifference
from bftrain_replay.drawing.html_page import HtmlPage, HtmlTable, HtmlText, html
from bftrain_replay.drawing.series import TimeAxis
from bftrain_replay.reporting.losses import CAUSES, IdleCause, node_hours
from bftrain_replay.run.headline import RAN_OUT, harvest_node_h, ran_out
from bftrain_replay.run.task_figures import TaskPercentiles
from bftrain_replay.simulation.fixed_cluster import FixedCluster

_SOONEST: Final = "time_to_finish_s.mean"
_TASKS_NAMED: Final = 3  # tasks with the largest lead of a replay


def write(comparison: ComparedReplays, path: Path, *, static: bool = False) -> None:
    """Write the page, complete or not at all; raise if it would replace a file that bftrain did not write."""
    write_page(path, html(page(comparison), static=static))


def page(comparison: ComparedReplays) -> HtmlPage:
    """Build the page."""
    sides, words, in_rounds = comparison.sides, comparison.words, comparison.in_rounds
    key, figures = comparison_charts.figures(comparison, _moments(comparison))
    lead, why = _lead(comparison)
    main = "finished" if in_rounds else "harvest"
    return HtmlPage(
        template="compare.html",
        title="Replays side by side",
        main=main if main in {figure.name for figure in figures} else figures[0].name,
        figures=figures,
        warnings=[words(f"{note[:1].upper()}{note[1:]}.") for note in comparison.notes],
        parts={
            "subtitle": _subtitle(comparison),
            "forced": comparison.forced,
            "lead": HtmlText(lead),
            "why": HtmlText(why),
            "cards": [_time_card(side, words) if in_rounds else _harvest_card(side, words) for side in sides],
            "node": word_of(comparison.unit),
            "in_rounds": in_rounds,
            "sides": len(sides),
            "key": key,
            "figures": _figures(comparison),
            **_settings(comparison.settings, comparison.labels),
        },
        static_command="bftrain compare DIR DIR -o FILE.html --static",
    )


def _figures(comparison: ComparedReplays) -> HtmlTable:
    words, two = comparison.words, len(comparison.sides) == 2  # noqa: PLR2004 - with two there is one change
    rows: list[Sequence[str]] = []
    for group in comparison.groups:
        rows.append((words(group.title),))
        for row in group.figures:
            cells = [
                HtmlText(f"<strong>{escape(text)} *</strong>") if place in row.best else text
                for place, text in enumerate(row.texts)
            ]
            rows.append((words(row.label), *cells, *((row.change(1),) if two else ())))
    about = {words(row.label): words(row.definition.about) for row in comparison.figures}
    headings = ("", *comparison.labels, *(("change",) if two else ()))
    return HtmlTable(label="Figures", headings=headings, rows=rows, css="compare", about=about)


def _moments(comparison: ComparedReplays) -> TimeAxis:
    """Return the time axis: calendar time if all logs start at the same time, otherwise the time since the start."""
    if comparison.in_rounds:
        return TimeAxis(0.0, max(side.summary["simulated_s"] for side in comparison.sides))
    logs = [side.run.log for side in comparison.sides]
    starts = {log.start_s for log in logs}
    return TimeAxis(starts.pop() if len(starts) == 1 else 0.0, max(log.span_s for log in logs))


def _subtitle(comparison: ComparedReplays) -> str:
    first = comparison.sides[0]
    if comparison.forced:
        return f"{len(comparison.sides)} replays."
    if comparison.in_rounds:
        most = max(side.summary["simulated_s"] for side in comparison.sides)
        cluster = FixedCluster(nodes=first.cluster["nodes"])
        where = f"of nodes that never leave ({cluster.text})" if cluster.nodes else comparison.words("of idle nodes")
        return f"{len(comparison.sides)} replays {where}, over up to {text_formats.duration(most)}."
    log = first.run.log
    count = text_formats.counted(len(log.node_names), comparison.words("node"))
    text = f"{len(comparison.sides)} replays of {count} over {text_formats.duration(log.span_s)}"
    if TimeAxis(log.start_s, log.span_s).on_calendar:
        text += f" from {text_formats.moment(log.start_s)}"
    idle = comparison.words("idle node-hours")
    return f"{text}, with {text_formats.count(first.summary['idle_node_h'])} {idle}."


def _lead(comparison: ComparedReplays) -> tuple[str, str]:
    """Return the best harvest, its lead over the smallest, and the reason, as HTML; in rounds the shortest times."""
    row = next((row for row in comparison.figures if row.name == "harvested"), None)
    if row is None or not row.best or comparison.in_rounds:
        return _soonest(comparison), ""
    sides = comparison.sides
    best, least = (choose(sides, key=lambda side: side.summary["harvested"]) for choose in (max, min))
    named = [f"<strong>{escape(sides[place].label)}</strong>" for place in row.best]
    most = text_formats.large(best.summary["harvested"])
    text = f"{' and '.join(named)} harvested most: <strong>{most} samples</strong>"
    if least.summary["harvested"] > 0.0:
        more = text_formats.percent(best.summary["harvested"] / least.summary["harvested"] - 1.0)
        text += f", {more} more than {escape(least.label)}"
    if best.summary["ceiling_samples"]:
        possible = text_formats.percent(best.summary["harvested"] / best.summary["ceiling_samples"])
        text += f", and {possible} of what could be had without any costs"
    return f"{text}.", _why(best, least, comparison.words)


def _why(best: ComparedRun, least: ComparedRun, words: Callable[[str], str]) -> str:
    """Return the loss that explains most of the gap between two harvests, otherwise tasks with large leads."""
    cause = _main_loss(best, least)
    if cause is not None:
        of_best, of_least = (text_formats.count(node_hours(side.summary, cause)) for side in (best, least))
        return (
            f"Most of the difference is <em>{escape(words(cause.name.lower()))}</em>: "
            f"{of_least} {words('node-hours')} with {escape(least.label)}, {of_best} with {escape(best.label)}."
        )
    more = [text for text in (_more_of_tasks(best, least, words), _more_of_tasks(least, best, words)) if text]
    return f"The choice of tasks explains most of the difference: {'; '.join(more)}." if more else ""


def _main_loss(best: ComparedRun, other: ComparedRun) -> IdleCause | None:
    """Return the loss whose excess in ``other`` exceeds half of the harvest difference, or ``None``."""
    one, two = best.summary, other.summary
    pace = float(one["harvested"]) / harvest_node_h(one)  # samples per node-hour, for unused nodes

    def excess(cause: IdleCause) -> float:
        if not cause.lost:
            return (node_hours(two, cause) - node_hours(one, cause)) * pace
        here, there = (summary["lost"].get(cause.key, {"samples": 0.0}) for summary in (two, one))
        return float(here["samples"] - there["samples"])

    most = max(CAUSES, key=excess)
    return most if excess(most) > (one["harvested"] - two["harvested"]) / 2.0 else None


def _more_of_tasks(side: ComparedRun, other: ComparedRun, words: Callable[[str], str]) -> str:
    """Return the tasks with the largest lead over another replay, with samples and node-hours."""
    here, there = side.work_of_tasks, other.work_of_tasks
    more = {task: here[task][0] - there[task][0] for task in here.keys() & there.keys()}
    tasks = sorted((task for task in more if more[task] > 0.0), key=lambda task: (-more[task], task))[:_TASKS_NAMED]
    if not tasks:
        return ""
    labels = [
        f"<em>{escape(task)}</em> ({text_formats.large(more[task])} samples, "
        f"{text_formats.count(here[task][1] - there[task][1])} {words('node-hours')})"
        for task in tasks
    ]
    return f"more by {', '.join(labels)} with {escape(side.label)}"


def _soonest(comparison: ComparedReplays) -> str:
    """Return the replay with the shortest mean completion time, and the delay of the slowest, as HTML."""
    row = next((row for row in comparison.figures if row.name == _SOONEST), None)
    if row is None or not row.best:
        return ""
    known = {amount: side for amount, side in zip(row.amounts, comparison.sides, strict=True) if amount is not None}
    best, most = min(known), max(known)
    named = " and ".join(f"<strong>{escape(comparison.sides[place].label)}</strong>" for place in row.best)
    return (
        f"Tasks were done soonest with {named}: after <strong>{text_formats.duration(best)}</strong> on average; with "
        f"{escape(known[most].label)} it took {text_formats.percent(most / best - 1.0)} longer."
    )


def _time_card(side: ComparedRun, words: Callable[[str], str]) -> tuple[str, str, str]:
    summary, completion = side.summary, TaskPercentiles.of(side.tasks.completion_s)
    allocated = f"{text_formats.percent(summary['coverage'])} of the {words('node-time')} allocated"
    note = f"mean time to finish a task; {summary['tasks_finished']:,} of {summary['tasks']:,} finished; {allocated}"
    return side.label, text_formats.duration(completion.mean if completion else None), note


def _harvest_card(side: ComparedRun, words: Callable[[str], str]) -> tuple[str, str, str]:
    summary, hours = side.summary, harvest_node_h(side.summary)
    share = text_formats.percent(hours / summary["idle_node_h"] if summary["idle_node_h"] else None)
    note = (
        f"samples harvested in {text_formats.count(hours)} {words('node-hours')}, {share} of the idle time; "
        f"{summary['tasks_finished']:,} of {summary['tasks']:,} tasks finished"
    )
    if summary["efficiency"] is not None:
        note += f"; {RAN_OUT}" if ran_out(summary) else f"; efficiency U {text_formats.percent(summary['efficiency'])}"
    return side.label, text_formats.large(summary["harvested"]), note


def _settings(found: SettingDifference, labels: Sequence[str]) -> dict[str, HtmlTable | None]:
    """Return the tables of different and of equal settings, inputs and versions."""

    def label(name: str) -> str:
        return name.removeprefix("settings.").replace("versions.", "version of ")

    differs = [(label(name), *map(text_formats.setting, values)) for name, values in found.differs.items()]
    same = [(label(name), text_formats.setting(value)) for name, value in found.same.items()]
    headings, folded = ("what differs", *labels), "Equal in all"
    return {
        "differs": HtmlTable(label="What differs", headings=headings, rows=differs, css="plain") if differs else None,
        "same": HtmlTable(label="Equal", headings=("", ""), rows=same, css="plain", folded=folded),
    }
