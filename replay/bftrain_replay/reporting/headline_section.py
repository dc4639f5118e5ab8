"""The headline: a replay's result in a sentence, in cards, and in comparison with other replays."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any, Final

import msgspec

from bftrain import text_formats
from bftrain_datasets.log.idle_doubts import COUNTS, RECORDS, SIMULATED, IdleDoubts
from bftrain_replay.drawing.html_page import FigureCard, HtmlTable, HtmlText
from bftrain_replay.reporting.losses import hints
from bftrain_replay.run import decider_counts
from bftrain_replay.run.glossary import meaning_of
from bftrain_replay.run.harvest_by_block import WeeklyHarvest, interval, too_narrow
from bftrain_replay.run.headline import (
    ENOUGH_WORK,
    NO_BOUND,
    RAN_OUT,
    cap_caveats,
    competing,
    harvest_node_h,
    idle_on_average,
    summary_ran_out,
    u_above_100,
)
from bftrain_replay.run.run import Run
from bftrain_replay.run.summary_figures import FIGURE_OF, FIGURES, FigurePlace
from bftrain_replay.run.tables import SECONDS_AN_HOUR

_ROUNDED: Final = 0.01  # fraction of the mean idle nodes; larger rounding is visible in U
_SAME: Final = 0.0005  # less would be shown as 0.0 %
_LEFT_BY: Final = {
    RECORDS: "The batch queue",
    COUNTS: "By counts of busy nodes the batch queue",
    SIMULATED: "A simulated schedule",
}


def decided_by(summary: Mapping[str, Any]) -> Mapping[str, int]:
    """Return how many decisions each solver made; empty for summaries of earlier versions."""
    found: Mapping[str, int] = summary.get("decided_by", {})
    return found


def column_label(summary: Mapping[str, Any]) -> str:
    """Return the name of a replay's column: its solver, and other deciders if there were any."""
    return decider_counts.column_label(summary["solver"], summary["decisions"], decided_by(summary))


def ceiling_label(summary: Mapping[str, Any]) -> str:
    """Return the name of the column of the replay without costs."""
    return decider_counts.ceiling_label(summary["solver"], summary["decisions"], decided_by(summary))


def lead(run: Run) -> HtmlText:
    """Return the result in a few sentences."""
    summary = run.summary
    who = run.words(_LEFT_BY[(summary.get("doubtful") or {}).get("source", RECORDS)])
    if not summary["idle_node_h"]:
        return HtmlText(f"{who} left no {run.node} idle: there was nothing to harvest.")
    share = f"{text_formats.percent(_idle_share(run))} of all"
    doubts = _doubts(summary)
    parts = f", {escape(doubts.parts)}" if doubts is not None and doubts.parts else ""
    idle = f"{text_formats.count(summary['idle_node_h'])} {run.node}-hours"
    said = [f"{who} left <strong>{idle}</strong> idle, {share}{parts}."]
    if doubts is not None and doubts.source == COUNTS:
        said.append(f"<strong>{escape(doubts.label)}</strong>.")
    if summary.get("workload"):
        said.append(f"No tasks were given: it was replayed with {escape(summary['workload']['sentence'])}.")
    said += _of_the_tasks(run) if summary_ran_out(summary) else [*_of_enough_work(run), *_a_week(run)]
    decided = decider_counts.sentence(
        summary["solver"], summary["decisions"], summary.get("fallback_causes", {}), decided_by(summary)
    )
    if decided:
        said.append(f"<strong>{escape(decided[:1].upper() + decided[1:])}</strong>.")
    best = hints(run)
    if best:
        cause, hours = best[0]
        most = f"{text_formats.count(hours)} {run.node}-hours"
        said.append(f"What took most: <strong>{most}</strong> {run.words(cause.happened)}.")
    if summary.get("progress"):  # missing in results of earlier versions
        said.append(escape(run.words(summary["progress"]["sentence"])))
    return HtmlText(" ".join(said))


def _doubts(summary: Mapping[str, Any]) -> IdleDoubts | None:
    """Return the doubts about the log; ``None`` for results of earlier versions, which had none, and for clusters."""
    found = summary.get("doubtful")
    return (
        IdleDoubts(**{name: found[name] for name in IdleDoubts.__struct_fields__ if name in found}) if found else None
    )


def _of_the_tasks(run: Run) -> list[str]:
    summary = run.summary
    needed = (
        f"<strong>The tasks ran out</strong>: they needed <strong>{text_formats.percent(summary['coverage'])}</strong> "
        f"of it and did <strong>{text_formats.large(summary['harvested'])} samples</strong> of work in "
        f"<strong>{text_formats.count(harvest_node_h(summary))} {run.node}-hours</strong> that count."
    )
    return [needed, f"Efficiency U says nothing then; {escape(ENOUGH_WORK)}."]


def _a_week(run: Run) -> list[str]:
    """Return the weekly figures; empty for results of earlier versions, and for short logs without an interval."""
    found = msgspec.convert(run.summary.get("weekly"), WeeklyHarvest | None)
    if found is None or found.harvest.low is None:
        return []
    week = f"A week comes to <strong>{interval(found.harvest)} {run.node}-hours</strong> that count"
    blocks = text_formats.counted(found.blocks, found.block)
    return [f"{week}: in brackets 90 % of resamples of the {blocks}{too_narrow(found.blocks)}."]


def _of_enough_work(run: Run) -> list[str]:
    summary = run.summary
    useful_h = harvest_node_h(summary)
    if not summary["used_node_h"]:
        return ["<strong>No task held any of it.</strong>"]
    text = (
        f"In the replay tasks held <strong>{text_formats.percent(summary['coverage'])}</strong> of it and did "
        f"<strong>{text_formats.large(summary['harvested'])} samples</strong> of work in "
        f"<strong>{text_formats.count(useful_h)} {run.node}-hours</strong> that count"
    )
    if summary["efficiency"] is not None:
        pool = text_formats.counted(summary["dedicated_nodes"], run.node)
        share = text_formats.percent(summary["efficiency"])
        text += f": <strong>{share}</strong> of what {pool} of their own would have done"
    return [f"{text}."]


def notices(run: Run) -> list[str]:
    """Return caveats that readers must know."""
    summary = run.summary
    found = []
    if not summary["complete"]:
        whole = text_formats.duration(run.log.span_s)
        done = text_formats.duration(run.end_s)
        found.append(f"This replay was stopped before its end: the figures cover {done} of {whole}.")
    found += summary["warnings"]
    if u_above_100(summary):
        found.append(run.words(f"{NO_BOUND}."))
    settings, count = summary["settings"], summary["tasks"]
    if competing(count, settings["admission"], settings["max_tasks"]) < count:
        found += (run.words(f"{each}.") for each in cap_caveats(summary))
    if summary["tasks"] and summary["tasks_finished"] == summary["tasks"]:
        found.append("Every task finished, so the harvest could not be larger; compare when they finished.")
    return found


def cards(run: Run) -> list[FigureCard]:
    """Return the figures at the top: from idle node-time to work that counts, then its quality."""
    summary = run.summary
    hours, idle_h = run.end_s / SECONDS_AN_HOUR, float(summary["idle_node_h"])
    lost_h = sum(float(one["node_h"]) for one in summary["lost"].values())
    useful_h, node = harvest_node_h(summary), run.node
    mean = text_formats.count(idle_h / hours) if hours else text_formats.UNKNOWN

    def of_idle(part_h: float) -> str:
        return text_formats.percent(part_h / idle_h if idle_h else None)

    doubtful = summary.get("doubtful") or {}
    doubts = f"; {text_formats.percent(doubtful['share'])} of it doubtful" if doubtful.get("sentence") else ""
    held, lost, useful = (
        f"{text_formats.count(each)} {node}-hours" for each in (summary["used_node_h"], lost_h, useful_h)
    )
    return [
        FigureCard(
            "Idle",
            text_formats.percent(_idle_share(run)),
            f"of all {node}-time: {text_formats.count(idle_h)} {node}-hours, {mean} {node}s on average{doubts}",
            run.words(meaning_of("idle_node_h")),
        ),
        FigureCard(
            "Used",
            text_formats.percent(summary["coverage"]),
            f"of the idle {node}-time: tasks held {held}",
            run.words(meaning_of("coverage")),
        ),
        FigureCard(
            "Lost",
            of_idle(lost_h),
            f"of the idle {node}-time: {lost} of waits and redone work",
            run.words(meaning_of("lost")),
        ),
        FigureCard(
            "Work that counts",
            of_idle(useful_h),
            f"of the idle {node}-time: {useful}",
            run.words(meaning_of("harvest_node_h")),
        ),
        FigureCard(
            FIGURE_OF["efficiency"].heading,
            RAN_OUT if summary_ran_out(summary) else text_formats.percent(summary["efficiency"]),
            _efficiency_note(run),
            run.words(meaning_of("efficiency")),
        ),
        FigureCard(
            FIGURE_OF["tasks_finished"].heading,
            text_formats.count(summary["tasks_finished"]),
            f"of {text_formats.count(summary['tasks'])}; {node}s were given back "
            f"{text_formats.counted(summary['preemptions'], 'time')}",
            run.words(meaning_of("tasks_finished")),
        ),
    ]


def _efficiency_note(run: Run) -> str:
    summary = run.summary
    if summary["efficiency"] is None:
        return "not known"
    if summary_ran_out(summary):
        return "U compares nothing where there was too little work"
    pool = text_formats.counted(summary["dedicated_nodes"], run.node)
    note = f"of what {pool} of their own would do{_rounded(summary)}"
    if summary["ceiling_efficiency"] is not None:
        note += f"; {text_formats.percent(summary['ceiling_efficiency'])} without costs"
    share = FIGURE_OF["harvested_of_bound"].value_in(summary)
    if share is not None:
        note += f"; {text_formats.percent(share)} of the proven bound"
    return note


def _rounded(summary: Mapping[str, Any]) -> str:
    """Return the mean number of idle nodes, if it is far from the whole number of the dedicated pool."""
    mean, pool = idle_on_average(summary), int(summary["dedicated_nodes"])
    return f" (on average {text_formats.count(mean)} were idle)" if abs(mean - pool) >= _ROUNDED * mean else ""


def _idle_share(run: Run) -> float | None:
    node_h = run.end_s / SECONDS_AN_HOUR * len(run.log.node_names)
    return float(run.summary["idle_node_h"]) / node_h if node_h else None


def gains(run: Run) -> str:
    """Return in words how the replay compares with the reference replays."""
    summary = run.summary
    baseline = summary["baseline"]
    others = (column_label(baseline) if baseline else "", baseline), ("the same without costs", summary["ceiling"])
    said: dict[str, list[str]] = {}  # statement -> gain and the run compared with
    for name, other in others:
        if other and summary["makespan_s"] and other["makespan_s"]:
            change = _change(summary["makespan_s"], other["makespan_s"], ("sooner", "later"), "as soon")
            said.setdefault("was through with all tasks", []).append(f"{change} {name}")
        elif other and other["harvested"]:
            change = _change(summary["harvested"], other["harvested"], ("less", "more"), "as much")
            said.setdefault("harvested", []).append(f"{change} {name}")
    did = "; it ".join(f"{verb} {' and '.join(changes)}" for verb, changes in said.items())
    return f"With the same {run.node}s and tasks {column_label(summary)} {did}." if did else ""


def _change(one: float, other: float, comparatives: tuple[str, str], equal: str) -> str:
    change = one / other - 1.0
    if abs(change) < _SAME:
        return f"{equal} as"
    return f"{text_formats.percent(abs(change))} {comparatives[change > 0.0]} than"


def compared(run: Run) -> HtmlTable:
    """Return the figures of the replay, the baseline and the replay without costs side by side."""
    summary = run.summary
    columns = {column_label(summary): summary}
    if summary["baseline"]:
        columns[column_label(summary["baseline"])] = summary["baseline"]
    if summary["ceiling"]:
        columns[ceiling_label(summary["ceiling"])] = summary["ceiling"]
    summaries = list(columns.values())
    rows = [
        (run.words(figure.label), *map(figure.text_in, summaries))
        for figure in FIGURES
        if FigurePlace.PAGE in figure.places and figure.shown([figure.value_in(each) for each in summaries])
    ]
    about = {run.words(figure.label): run.words(figure.about) for figure in FIGURES}
    return HtmlTable(label="Compared", headings=("", *columns), rows=rows, css="compare best", about=about)
