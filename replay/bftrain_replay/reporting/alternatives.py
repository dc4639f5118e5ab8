"""Other assumptions about a replay as a table, for the page and for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from bftrain import text_formats
from bftrain_replay.run.summary_figures import FIGURE_OF
from bftrain_replay.run.variations import AS_TASKS_SAY, COSTS, PROGRESS, SensitivityRow
from bftrain_replay.simulation.progress_kept import DISK, MEMORY, ProgressKept


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
