"""The page of a comparison: the figures side by side, with pictures."""

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
from bftrain_replay.run.headline import RAN_OUT, harvest_node_h, ran_out
from bftrain_replay.run.task_figures import TaskPercentiles
from bftrain_replay.simulation.fixed_cluster import FixedCluster

BEST: Final = "*"
_SOONEST: Final = "time_to_finish_s.mean"
_TASKS_NAMED: Final = 3  # number of named tasks per direction


def write(comparison: ComparedReplays, path: Path, *, static: bool = False) -> None:
    """Write the page, complete or not at all; refuse to replace a file that bftrain did not write."""
    write_page(path, html(page(comparison), static=static))


def page(comparison: ComparedReplays) -> HtmlPage:
    """Build the page."""
    sides, words, in_rounds = comparison.sides, comparison.words, _in_rounds(comparison.sides)
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
            "cards": [_card(side, words, of_times=in_rounds) for side in sides],
            "node": word_of(comparison.unit),
            "in_rounds": in_rounds,
            "sides": len(sides),
            "key": key,
            "figures": _figures(comparison),
            **_making(comparison.making, comparison.labels),
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
                HtmlText(f"<strong>{escape(text)} {BEST}</strong>") if place in row.best else text
                for place, text in enumerate(row.texts)
            ]
            rows.append((words(row.label), *cells, *((row.change(1),) if two else ())))
    about = {words(row.label): words(row.definition.about) for row in comparison.figures}
    headings = ("", *comparison.labels, *(("change",) if two else ()))
    return HtmlTable(label="Figures", headings=headings, rows=rows, css="compare", about=about)


def _in_rounds(sides: Sequence[ComparedRun]) -> bool:
    """Return whether some replays share time in rounds: then completion times count."""
    return any(side.in_rounds for side in sides)


def _moments(comparison: ComparedReplays) -> TimeAxis:
    """Return the time axis: calendar time, unless the logs are of different times; rounds count from 0."""
    if _in_rounds(comparison.sides):
        return TimeAxis(0.0, max(side.summary["simulated_s"] for side in comparison.sides))
    logs = [side.run.log for side in comparison.sides]
    starts = {log.start_s for log in logs}
    return TimeAxis(starts.pop() if len(starts) == 1 else 0.0, max(log.span_s for log in logs))


def _subtitle(comparison: ComparedReplays) -> str:
    first = comparison.sides[0]
    if comparison.forced:
        return f"{len(comparison.sides)} replays."
    if _in_rounds(comparison.sides):
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
    """Return the replay with the largest harvest, its lead over the smallest, and the reason."""
    row = next((row for row in comparison.figures if row.name == "harvested"), None)
    if row is None or not row.best or _in_rounds(comparison.sides):
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
    """Return the loss that explains most of the gap between two harvests, otherwise the tasks with more nodes."""
    found = comparison_charts.main_loss(best, least)
    if found is not None:
        of_best, of_least = map(text_formats.count, found.hours)
        return (
            f"Most of the difference is <em>{escape(words(found.name.lower()))}</em>: "
            f"{of_least} {words('node-hours')} with {escape(least.label)}, {of_best} with {escape(best.label)}."
        )
    more = [text for text in (_more_of_tasks(best, least, words), _more_of_tasks(least, best, words)) if text]
    return f"The choice of tasks explains most of the difference: {'; '.join(more)}." if more else ""


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
    """Return the replay with the shortest mean completion time, and the delay of the slowest."""
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


def _card(side: ComparedRun, words: Callable[[str], str], *, of_times: bool) -> tuple[str, str, str]:
    summary = side.summary
    if of_times:
        found = TaskPercentiles.of(side.tasks.completion_s)
        held = f"{text_formats.percent(summary['coverage'])} of the {words('node-time')} allocated"
        note = f"mean time to finish a task; {summary['tasks_finished']:,} of {summary['tasks']:,} finished; {held}"
        return side.label, text_formats.duration(found.mean if found else None), note
    hours = harvest_node_h(summary)
    share = text_formats.percent(hours / summary["idle_node_h"] if summary["idle_node_h"] else None)
    note = (
        f"samples harvested in {text_formats.count(hours)} {words('node-hours')}, {share} of the idle time; "
        f"{summary['tasks_finished']:,} of {summary['tasks']:,} tasks finished"
    )
    if summary["efficiency"] is not None:
        note += f"; {RAN_OUT}" if ran_out(summary) else f"; efficiency U {text_formats.percent(summary['efficiency'])}"
    return side.label, text_formats.large(summary["harvested"]), note


def _making(making: SettingDifference, labels: Sequence[str]) -> dict[str, HtmlTable | None]:
    """Return the tables of settings and inputs that differ, and of those that are the same."""

    def plain(name: str) -> str:
        return name.removeprefix("settings.").replace("versions.", "version of ")

    differs = [(plain(name), *map(text_formats.setting, values)) for name, values in making.differs.items()]
    same = [(plain(name), text_formats.setting(value)) for name, value in making.same.items()]
    headings, folded = ("what differs", *labels), "Equal in all"
    return {
        "differs": HtmlTable(label="What differs", headings=headings, rows=differs, css="plain") if differs else None,
        "same": HtmlTable(label="Equal", headings=("", ""), rows=same, css="plain", folded=folded),
    }
