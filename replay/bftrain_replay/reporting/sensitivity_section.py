"""Sensitivity: what a replay would come to if other things were assumed, as a table of the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bftrain import text_formats
from bftrain_replay.alternatives.sensitivity import AS_TASKS_SAY, COSTS, PROGRESS, SensitivityRow
from bftrain_replay.drawing.html_page import HtmlTable, PageSection
from bftrain_replay.reporting.report_data import ReportData
from bftrain_replay.simulation.progress_assumptions import DISK, MEMORY, ProgressKept

_INTRO: Final = (
    "Each row is a replay of the same log and tasks in which one thing alone is assumed otherwise. How progress is "
    "kept decides what is lost when nodes are taken back; costs are what starting and rescaling take."
)


def sensitivity(material: ReportData) -> PageSection | None:
    """Give the table; nothing where it was left out."""
    summary = material.summary.get("sensitivity")
    if not summary:
        return None
    rows = [(_named(row), *_figures(row)) for row in map(_read, summary)]
    headings = ("assumed", "efficiency U", "harvest, samples", "lost to preemption")
    found = HtmlTable(label="If other things were assumed", headings=headings, rows=rows, css="compare")
    return PageSection(heading="If other things were assumed", intro=_INTRO, parts=(found,))


def label(row: SensitivityRow) -> str:
    """Name an alternative in words."""
    if row.what == PROGRESS:
        return _progress(row.setting)
    if row.what == COSTS:
        return f"costs x {row.setting}"
    return (
        f"start {AS_TASKS_SAY}" if row.setting == AS_TASKS_SAY else f"start {text_formats.duration(float(row.setting))}"
    )


def _progress(text: str) -> str:
    kept = ProgressKept.parse(text)
    if kept.disk_s is None:
        return "progress as the tasks say"
    period = text_formats.duration(kept.disk_s)
    if kept.kept == DISK:
        return f"progress on disk every {period}"
    return "progress in memory" if text == MEMORY else f"progress in memory, on disk every {period}"


def _read(summary: Mapping[str, Any]) -> SensitivityRow:
    return SensitivityRow(**summary)


def _named(row: SensitivityRow) -> str:
    return f"{label(row)} (assumed here)" if row.chosen else label(row)


def _figures(row: SensitivityRow) -> tuple[str, str, str]:
    return (
        text_formats.percent(row.efficiency),
        text_formats.large(row.harvested),
        text_formats.percent(row.lost_preemption),
    )
