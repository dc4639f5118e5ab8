"""The section "What if": tried changes of settings that gain, and the results under other assumptions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any, Final

from bftrain import text_formats
from bftrain_replay.drawing.html_page import HtmlTable, HtmlText, PageSection
from bftrain_replay.reporting.losses import CAUSES, hints
from bftrain_replay.run.run import Run
from bftrain_replay.run.summary_figures import FIGURE_OF
from bftrain_replay.run.variations import AS_TASKS_SAY, COSTS, LEAST_GAIN, PROGRESS, AdviceRow, SensitivityRow
from bftrain_replay.simulation.progress_kept import DISK, MEMORY, ProgressKept

_NAMES: Final = {str(cause.key): cause.name for cause in CAUSES}
_CHANGES: Final = ("rescales", "starts", "preemptions")
_TRIED: Final = (
    "Each was tried: a replay of the same log and tasks with that option added. Gains of several changes do not add up."
)
_NOT_TRIED: Final = "No change of a setting was tried."
_NO_ADVICE: Final = "No change of a setting is advised."
_NO_CAUSE: Final = "None of the settings that are tried answers a large step."
_WITHOUT_GAIN: Final = f"with a gain below {text_formats.percent(LEAST_GAIN)} of the harvest:"
_DEPENDS: Final = "What the largest of the other steps depend on; what a change of it brings is not tried here:"


def advice(run: Run) -> HtmlText:
    """Return the tried changes that gain, the largest gain first, then explanations of the other large losses."""
    parts = [_of_settings(run)]
    explained = "".join(_explanations(run))
    if explained:
        parts.append(f'<p class="soft">{_DEPENDS}</p><ul class="advice">{explained}</ul>')
    if not hints(run) and not run.summary.get("advice"):
        parts = [f"<p>Hardly anything: nearly all idle {run.node}-time became work that counts.</p>"]
    return HtmlText("".join(parts))


def _of_settings(run: Run) -> str:
    """Return the setting changes tried: gains first, then the rest."""
    found = run.summary.get("advice")
    if found is None:
        return f"<p>{_NOT_TRIED}</p>"
    parts = [_tried(run, [AdviceRow(**row) for row in found]) if found else f"<p>{_NO_ADVICE}</p>"]
    options = run.summary.get("tried_without_gain") or ()
    if options:
        listed = ", ".join(f"<code>{escape(option)}</code>" for option in options)
        tried = "Tried as well" if found else "Tried"
        parts.append(f'<p class="soft">{tried}, {_joined(_WITHOUT_GAIN, run.node)} {listed}.</p>')
    elif not found:
        parts.append(f'<p class="soft">{_NO_CAUSE}</p>')
    return "".join(parts)


def _tried(run: Run, rows: list[AdviceRow]) -> str:
    items = "".join(f"<li>{_sentence(run, row)}</li>" for row in rows)
    return f'<ol class="advice">{items}</ol><p class="soft">{_TRIED}</p>'


def _sentence(run: Run, row: AdviceRow) -> str:
    """Return an option, its gain, and how many more or fewer changes of tasks it takes."""
    node_h = f"{'-' if row.gain_node_h < 0.0 else ''}{text_formats.count(abs(row.gain_node_h))} {run.node}-hours"
    gain = (
        f"+{text_formats.percent(row.gain)} harvest ({node_h}, {text_formats.large(row.gain_samples)} samples), tried"
    )
    differences = [(name, getattr(row, name)) for name in _CHANGES]
    changed = [f"{abs(by):,} {'more' if by > 0 else 'fewer'} {name}" for name, by in differences if by]
    takes = f"; {', '.join(changed)}" if changed else ""
    answers = f"Answers: {escape(run.words(_NAMES[row.cause]))}."
    return f"<code>{escape(row.option)}</code>: <strong>{_joined(gain, run.node)}</strong>{takes}. {answers}"


def _explanations(run: Run) -> Iterator[str]:
    """Yield the causes of each large loss without advice, if factors outside the tried settings influence it."""
    answered = {row["cause"] for row in run.summary.get("advice") or ()}
    idle_h = float(run.summary["idle_node_h"])
    for cause, hours in hints(run):
        if cause.explanation and cause.key not in answered:
            share = f"{text_formats.percent(hours / idle_h)} of the idle {run.node}-time"
            summary = f"{text_formats.count(hours)} {run.node}-hours, {share}"
            text = _with_options(run.words(cause.explanation), run.summary["settings"])
            yield f"<li>{escape(run.words(cause.name))}, {_joined(summary, run.node)}. {text}</li>"


def _joined(text: str, node: str) -> str:
    return text.replace(" %", "&nbsp;%").replace(f" {node}-hours", f"&nbsp;{node}-hours")


def _with_options(text: str, settings: Mapping[str, Any]) -> str:

    def marked(found: re.Match[str]) -> str:
        name = found[0].removeprefix("--").replace("-", "_")
        value = settings.get(name, settings.get(f"{name}_s"))
        unit = " s" if f"{name}_s" in settings and not isinstance(value, str) else ""
        now = "" if value is None else f" (now {value:g}{unit})" if not isinstance(value, str) else f" (now {value})"
        return f"<code>{found[0]}</code>{escape(now)}"

    return re.sub(r"--[a-z-]+[a-z]", marked, escape(text))


_INTRO: Final = (
    "Each row is a replay of the same log and tasks in which one thing alone is assumed otherwise. How progress is "
    "kept decides what is lost when nodes are taken back; costs are what starting and rescaling take."
)


def sensitivity(run: Run) -> PageSection | None:
    """Return the table; ``None`` if skipped."""
    summary = run.summary.get("sensitivity")
    if not summary:
        return None
    headings, rows = sensitivity_table("assumed", [SensitivityRow(**each) for each in summary], " (assumed here)")
    found = HtmlTable(label="If other things were assumed", headings=headings, rows=rows, css="compare")
    return PageSection(heading="If other things were assumed", intro=run.words(_INTRO), parts=(found,))


def sensitivity_table(
    assumed: str, rows: Sequence[SensitivityRow], chosen: str
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return headings and rows; ``assumed`` is the heading of the alternatives, ``chosen`` marks the present ones."""
    figures = [FIGURE_OF[name] for name in ("efficiency", "harvested", "lost.preemption")]
    found = []
    for row in rows:
        values = (row.efficiency, row.harvested, row.lost_preemption)
        texts = (figure.format(value) for figure, value in zip(figures, values, strict=True))
        found.append((f"{label(row)}{chosen if row.chosen else ''}", *texts))
    return (assumed, *(figure.label for figure in figures)), found


def label(row: SensitivityRow) -> str:
    """Return an alternative in words."""
    if row.what == PROGRESS:
        kept = ProgressKept.parse(row.setting)
        if kept.disk_s is None:
            return "progress as the tasks say"
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
