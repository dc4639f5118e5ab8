"""Headline: what a replay found, in a sentence, in cards, and beside the replays that it is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from html import escape
from typing import Any, Final

from bftrain import text_formats
from bftrain_datasets.log.idle_doubts import COUNTS, RECORDS, SIMULATED
from bftrain_replay.drawing.html_page import FigureCard, HtmlTable, HtmlText
from bftrain_replay.reporting.loss_causes import useful_node_hours
from bftrain_replay.reporting.report_data import ReportData
from bftrain_replay.reporting.waterfall import hints
from bftrain_replay.results import decider_counts
from bftrain_replay.results.headline import ENOUGH_WORK, RAN_OUT, efficiency_text, summary_ran_out
from bftrain_replay.simulation.task_progress import SampleLoss
from bftrain_replay.tables.replayed_task import SECONDS_AN_HOUR

_ROUNDED: Final = 0.01  # of the nodes that were idle on average: as much or more is seen in U
_SAME: Final = 0.0005  # less would be shown as 0.0 %
_LEFT_BY: Final = {
    RECORDS: "The batch queue",
    COUNTS: "By counts of busy nodes the batch queue",
    SIMULATED: "A simulated main scheduler",
}
_ROWS: Final[tuple[tuple[str, Callable[[Mapping[str, Any]], str]], ...]] = (
    ("harvest, samples", lambda summary: text_formats.large(summary["harvested"])),
    ("efficiency U", efficiency_text),
    ("idle node-time used", lambda summary: text_formats.percent(summary["coverage"])),
    ("lost to preemption", lambda summary: text_formats.percent(lost_share(summary, SampleLoss.PREEMPTION))),
    (
        "lost to rescaling and start-up",
        lambda summary: text_formats.percent(lost_share(summary, SampleLoss.RESCALING, SampleLoss.START_UP)),
    ),
    ("tasks finished", lambda summary: f"{summary['tasks_finished']:,} of {summary['tasks']:,}"),
    ("all tasks finished after", lambda summary: text_formats.duration(summary["makespan_s"])),
    ("completion time, mean", lambda summary: text_formats.duration(_mean(summary, "completion_s"))),
    ("until the first node, mean", lambda summary: text_formats.duration(_mean(summary, "response_s"))),
    ("rho, mean", lambda summary: text_formats.ratio(_mean(summary, "rho"))),
    (
        "cost, node-hours at their price",
        lambda summary: text_formats.UNKNOWN if summary["cost"] is None else text_formats.count(summary["cost"]),
    ),
    ("nodes given back, times", lambda summary: text_formats.count(summary["preemptions"])),
    ("decision time, median", lambda summary: text_formats.milliseconds(summary["decide_ms"]["p50"])),
    ("decision time, 99 in 100", lambda summary: text_formats.milliseconds(summary["decide_ms"]["p99"])),
)


def decided_by(summary: Mapping[str, Any]) -> Mapping[str, int]:
    """Return how many decisions each solver made; nothing for summaries of earlier versions."""
    found: Mapping[str, int] = summary.get("decided_by", {})
    return found


def column_label(summary: Mapping[str, Any]) -> str:
    """Name the column of a replay: its solver, and who decided in its place if others did."""
    return decider_counts.column_label(summary["solver"], summary["decisions"], decided_by(summary))


def ceiling_label(summary: Mapping[str, Any]) -> str:
    """Name the column of the replay without costs."""
    return decider_counts.ceiling_label(summary["solver"], summary["decisions"], decided_by(summary))


def _mean(summary: Mapping[str, Any], name: str) -> float | None:
    spread = summary[name]
    return None if spread is None else float(spread["mean"])


def lost_share(summary: Mapping[str, Any], *losses: SampleLoss) -> float | None:
    """Share of the idle node-time that tasks held and that went to these losses."""
    idle_h = float(summary["idle_node_h"])
    return sum(float(summary["lost"][loss]["node_h"]) for loss in losses) / idle_h if idle_h else None


def lead(material: ReportData) -> HtmlText:
    """Say it in a few sentences."""
    summary = material.summary
    who = _LEFT_BY[(summary.get("doubtful") or {}).get("source", RECORDS)]
    if not summary["idle_node_h"]:
        return HtmlText(f"{who} left no node idle: there was nothing to harvest.")
    share = f"{text_formats.percent(_idle_share(material))} of all"
    said = [f"{who} left <strong>{text_formats.count(summary['idle_node_h'])} node-hours</strong> idle, {share}."]
    said += [f"<strong>{escape(text)}</strong>." for text in (summary.get("headline") or {}).get("caveats", ())]
    if summary.get("workload"):
        said.append(f"No tasks were given: it was replayed with {escape(summary['workload']['sentence'])}.")
    said += _of_the_tasks(summary) if summary_ran_out(summary) else _of_enough_work(summary)
    decided = decider_counts.sentence(
        summary["solver"], summary["decisions"], summary.get("fallback_causes", {}), decided_by(summary)
    )
    if decided:
        said.append(f"<strong>{escape(decided[:1].upper() + decided[1:])}</strong>.")
    best = hints(material)
    if best:
        cause, hours = best[0]
        said.append(f"What took most: <strong>{text_formats.count(hours)} node-hours</strong> {cause.happened}.")
    if summary.get("progress"):  # not in results of earlier versions
        said.append(escape(summary["progress"]["sentence"]))
    return HtmlText(" ".join(said))


def _of_the_tasks(summary: Mapping[str, Any]) -> list[str]:
    """Say what the tasks needed, where there were too few of them."""
    needed = (
        "<strong>The tasks ran out</strong>: they needed "
        f"<strong>{text_formats.percent(summary['coverage'])}</strong> of it and "
        f"did <strong>{text_formats.large(summary['harvested'])} samples</strong> of work in "
        f"<strong>{text_formats.count(useful_node_hours(summary))} node-hours</strong> that count."
    )
    return [needed, f"Efficiency U says nothing then; {escape(ENOUGH_WORK)}."]


def _of_enough_work(summary: Mapping[str, Any]) -> list[str]:
    """Say what was harvested, and how good that is."""
    useful_h = useful_node_hours(summary)
    if not summary["used_node_h"]:
        return ["<strong>No task held any of it.</strong>"]
    text = (
        f"In the replay tasks held <strong>{text_formats.percent(summary['coverage'])}</strong> of it and did "
        f"<strong>{text_formats.large(summary['harvested'])} samples</strong> of work in "
        f"<strong>{text_formats.count(useful_h)} "
        f"node-hours</strong> that count"
    )
    if summary["efficiency"] is not None:
        pool = text_formats.counted(summary["dedicated_nodes"], "node")
        share = text_formats.percent(summary["efficiency"])
        text += f": <strong>{share}</strong> of what {pool} of their own would have done"
    return [f"{text}."]


def notices(material: ReportData) -> list[str]:
    """Say what a reader must know before believing the figures."""
    summary = material.summary
    found = []
    if not summary["complete"]:
        whole = text_formats.duration(material.log.span_s)
        done = text_formats.duration(material.end_s)
        found.append(f"This replay was stopped before its end: the figures cover {done} of {whole}.")
    found += summary["warnings"]
    if summary["tasks"] and summary["tasks_finished"] == summary["tasks"]:
        found.append("Every task finished, so the harvest could not be larger; compare when they finished.")
    return found


def cards(material: ReportData) -> list[FigureCard]:
    """Give the figures that are seen at first glance: from what was idle to what counts, then how good that is."""
    summary = material.summary
    hours, idle_h = material.end_s / SECONDS_AN_HOUR, float(summary["idle_node_h"])
    lost_h = sum(float(one["node_h"]) for one in summary["lost"].values())
    useful_h = useful_node_hours(summary)
    mean = text_formats.count(idle_h / hours) if hours else text_formats.UNKNOWN

    def of_idle(part_h: float) -> str:
        return text_formats.percent(part_h / idle_h if idle_h else None)

    return [
        FigureCard(
            name="Idle",
            figure=text_formats.percent(_idle_share(material)),
            note=f"of all node-time: {text_formats.count(idle_h)} node-hours, "
            f"{mean} nodes on average{_doubtful(summary)}",
        ),
        FigureCard(
            name="Used",
            figure=text_formats.percent(summary["coverage"]),
            note=f"of the idle node-time: tasks held {text_formats.count(summary['used_node_h'])} node-hours",
        ),
        FigureCard(
            name="Lost",
            figure=of_idle(lost_h),
            note=f"of the idle node-time: {text_formats.count(lost_h)} node-hours of waits and redone work",
        ),
        FigureCard(
            name="Work that counts",
            figure=of_idle(useful_h),
            note=f"of the idle node-time: {text_formats.count(useful_h)} node-hours",
        ),
        FigureCard(
            name="Efficiency U",
            figure=RAN_OUT if summary_ran_out(summary) else text_formats.percent(summary["efficiency"]),
            note=_efficiency_note(summary),
        ),
        FigureCard(
            name="Tasks finished",
            figure=text_formats.count(summary["tasks_finished"]),
            note=(
                f"of {text_formats.count(summary['tasks'])}; nodes were given back "
                f"{text_formats.counted(summary['preemptions'], 'time')}"
            ),
        ),
    ]


def _doubtful(summary: Mapping[str, Any]) -> str:
    doubtful = summary.get("doubtful") or {}
    return f"; {text_formats.percent(doubtful['share'])} of it doubtful" if doubtful.get("sentence") else ""


def _efficiency_note(summary: Mapping[str, Any]) -> str:
    if summary["efficiency"] is None:
        return "not known"
    if summary_ran_out(summary):
        return "U compares nothing where there was too little work"
    pool = text_formats.counted(summary["dedicated_nodes"], "node")
    note = f"of what {pool} of their own would do{_rounded(summary)}"
    if summary["ceiling_efficiency"] is not None:
        note += f"; {text_formats.percent(summary['ceiling_efficiency'])} without costs"
    return note


def _rounded(summary: Mapping[str, Any]) -> str:
    """Say how many nodes were idle on average, where the whole number of the pool is not near it."""
    mean = (
        float(summary["idle_node_h"]) * SECONDS_AN_HOUR / float(summary["simulated_s"])
        if summary["simulated_s"]
        else 0.0
    )
    pool = int(summary["dedicated_nodes"])
    return f" (on average {text_formats.count(mean)} were idle)" if abs(mean - pool) >= _ROUNDED * mean else ""


def _idle_share(material: ReportData) -> float | None:
    node_h = material.end_s / SECONDS_AN_HOUR * len(material.log.node_names)
    return float(material.summary["idle_node_h"]) / node_h if node_h else None


def gains(material: ReportData) -> str:
    """Say in words how the replay stands beside those that it is compared with."""
    summary = material.summary
    baseline = summary["baseline"]
    others = (column_label(baseline) if baseline else "", baseline), ("the same without costs", summary["ceiling"])
    said: dict[str, list[str]] = {}  # what it did -> how much more than which run
    for name, other in others:
        if other and summary["makespan_s"] and other["makespan_s"]:
            change = _change(summary["makespan_s"], other["makespan_s"], ("sooner", "later"), "as soon")
            said.setdefault("was through with all tasks", []).append(f"{change} {name}")
        elif other and other["harvested"]:
            change = _change(summary["harvested"], other["harvested"], ("less", "more"), "as much")
            said.setdefault("harvested", []).append(f"{change} {name}")
    did = "; it ".join(f"{verb} {' and '.join(changes)}" for verb, changes in said.items())
    return f"With the same nodes and tasks {column_label(summary)} {did}." if did else ""


def _change(one: float, other: float, comparatives: tuple[str, str], equal: str) -> str:
    change = one / other - 1.0
    if abs(change) < _SAME:
        return f"{equal} as"
    return f"{text_formats.percent(abs(change))} {comparatives[change > 0.0]} than"


def compared(material: ReportData) -> HtmlTable:
    """Give the same figures of the replay, the baseline and the replay without costs side by side."""
    summary = material.summary
    columns = {column_label(summary): summary}
    if summary["baseline"]:
        columns[column_label(summary["baseline"])] = summary["baseline"]
    if summary["ceiling"]:
        columns[ceiling_label(summary["ceiling"])] = summary["ceiling"]
    rows = [(label, *map(tell, columns.values())) for label, tell in _ROWS]
    return HtmlTable(
        label="Compared",
        headings=("", *columns),
        rows=[row for row in rows if any(cell != text_formats.UNKNOWN for cell in row[1:])],
        css="compare best",
    )
