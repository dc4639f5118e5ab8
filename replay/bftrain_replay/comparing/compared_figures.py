"""The rows of a comparison: figures of several replays, their changes, and the best values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Final

import msgspec
import numpy as np
from msgspec.structs import replace

from bftrain import text_formats
from bftrain.node_units import NODE, in_words_of
from bftrain_replay.comparing.compared_run import ComparedRun, SettingDifference
from bftrain_replay.run.headline import ABOVE, mark_of, ran_out
from bftrain_replay.run.summary_figures import FIGURE_OF, FIGURES, FigureTopic, SummaryFigure
from bftrain_replay.run.task_figures import TaskPercentiles

_LEAST_CHANGE: Final = 5e-4  # a smaller relative change would be shown as 0.0 %
_LARGE_CHANGE: Final = 10.0  # shown as a factor instead of percent
COMMON_TASKS: Final = "tasks_finished_by_all"
# The compared statistics of finished tasks
_STATISTICS: Final = {
    "completion_s": ("mean", "p50", "p95"),
    "slowdown": ("mean", "max", "p95"),
    "rho": ("mean", "max", "p95"),
}


class ComparedFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One row: a value for each replay (``None`` where unknown), and the indices of the best ones."""

    definition: SummaryFigure
    amounts: tuple[float | None, ...]
    best: tuple[int, ...] = ()
    marks: tuple[str, ...] = ()  # a remark behind each value; empty for none
    short: str = ""  # short label for terminals
    compares: bool = True  # False omits the change: the values measure different things

    @property
    def name(self) -> str:
        """Its key in files."""
        return self.definition.name

    @property
    def label(self) -> str:
        """Its label on pages and terminals."""
        return self.definition.label

    @property
    def texts(self) -> tuple[str, ...]:
        """The values as text."""
        plain = map(self.definition.format, self.amounts)
        return tuple(f"{text} ({mark})" if mark else text for text, mark in zip_longest(plain, self.marks))

    def change(self, place: int) -> str:
        """Return the difference of the value at ``place`` from the first, as text."""
        first, value = self.amounts[0], self.amounts[place]
        if first is None or value is None or not self.compares:
            return text_formats.UNKNOWN
        if self.definition.unit == "share":
            points = round(100.0 * (value - first), 1)
            return f"{points:+.1f} points" if points else "same"
        if first == value:
            return "same"
        if first == 0.0:
            return text_formats.UNKNOWN
        change = value / first - 1.0
        if abs(change) < _LEAST_CHANGE:
            return "< 0.1 %"
        return f"{value / first:,.1f} times" if change >= _LARGE_CHANGE else f"{100.0 * change:+.1f} %"


class FigureGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group of figures."""

    title: str
    figures: tuple[ComparedFigure, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class ComparedReplays:
    """Replays, their figures by group, their settings and inputs, and caveats.

    ``forced`` is the reason against comparing them if they are compared despite it.
    """

    sides: tuple[ComparedRun, ...]
    groups: tuple[FigureGroup, ...]
    settings: SettingDifference
    notes: tuple[str, ...] = ()
    forced: str = ""

    @property
    def unit(self) -> str:
        """The common unit: nodes, or the GPUs or cores of a log; nodes if units differ."""
        units = {side.run.unit for side in self.sides}
        return units.pop() if len(units) == 1 else NODE

    @property
    def in_rounds(self) -> bool:
        """Whether some replays share time in rounds: then completion times count instead of harvests."""
        return any(side.in_rounds for side in self.sides)

    def words(self, text: str) -> str:
        """Return a text about nodes in words of the unit."""
        return in_words_of(self.unit, text)

    @property
    def labels(self) -> tuple[str, ...]:
        """Replay names."""
        return tuple(side.label for side in self.sides)

    @property
    def figures(self) -> tuple[ComparedFigure, ...]:
        """All figures, in order."""
        return tuple(figure for group in self.groups for figure in group.figures)


def groups_of(sides: Sequence[ComparedRun], *, comparable: bool) -> tuple[FigureGroup, ...]:
    """Return all figures; unless the work is ``comparable``, the best is marked only in the group of decisions.

    If some share time in rounds, there are only figures that all have, and figures of rounds.
    """
    summaries = [side.summary for side in sides]
    only_replays = not any(side.in_rounds for side in sides)
    computed = _computed_of_tasks(sides, comparable=comparable)
    computed |= _computed_of_harvest(summaries) if only_replays else {}

    def rows(topic: FigureTopic) -> Iterator[ComparedFigure]:
        for figure in FIGURES:
            if figure.topic == topic:
                row = computed[figure.name] if figure.name in computed else _read(figure, summaries)
                if row is not None:
                    yield row

    every: dict[str, Iterable[ComparedFigure]] = {}
    if only_replays:
        every = {"Harvest": rows("Harvest"), "Idle node-time": rows("Idle node-time"), "Work lost": rows("Work lost")}
    every["Tasks"] = rows("Tasks")
    if not only_replays:
        wall_s = _row(FIGURE_OF["wall_s"], [summary["wall_s"] for summary in summaries])
        every |= {"Nodes": _nodes(sides), "Rounds": [*rows("Rounds"), wall_s]}
    metrics = list(_requested_metrics(sides))
    if metrics:
        every["Requested metrics"] = metrics
    groups = []
    for title, figures in every.items():
        shown = tuple(figure if comparable else replace(figure, best=()) for figure in figures)
        groups.append(FigureGroup(title=title, figures=shown))
    if only_replays:
        groups.append(FigureGroup(title="Decisions", figures=tuple(rows("Decisions"))))
    return tuple(groups)


def _row(figure: SummaryFigure, values: Sequence[float | None]) -> ComparedFigure:
    """Return the row with its best values marked: all with the same text as the best; none if all are equal."""
    row = ComparedFigure(definition=figure, amounts=tuple(values))
    known = [value for value in row.amounts if value is not None]
    if figure.better is None or len(known) < 2:  # noqa: PLR2004 - a single value is not the best
        return row
    best_value = max(known) if figure.better == "more" else min(known)
    texts = row.texts
    best_text = texts[row.amounts.index(best_value)]
    best = tuple(place for place, value in enumerate(row.amounts) if value is not None and texts[place] == best_text)
    return replace(row, best=best if len(best) < len(known) else ())


def _shown(figure: SummaryFigure, values: Sequence[float | None]) -> ComparedFigure | None:
    """Return the row of a figure; ``None`` if comparisons do not show these values."""
    return _row(figure, values) if figure.shown(values) else None


def _read(figure: SummaryFigure, summaries: Sequence[object]) -> ComparedFigure | None:
    """Return the row of a figure in all summaries; ``None`` if comparisons do not show it."""
    return _shown(figure, [figure.value_in(summary) for summary in summaries])


def _requested_metrics(sides: Sequence[ComparedRun]) -> Iterator[ComparedFigure]:
    """Yield the metrics that the settings name; their better direction is unknown."""
    metrics = [side.summary["metrics"] for side in sides]
    for name in dict.fromkeys(name for each in metrics for name in each):
        figure = SummaryFigure(name=f"metrics.{name}", label=name, unit="ratio")
        yield _row(figure, [each.get(name) for each in metrics])


def _nodes(sides: Sequence[ComparedRun]) -> Iterator[ComparedFigure]:
    summaries = [side.summary for side in sides]
    for name in ("simulated_s", "idle_node_h", "used_node_h", "coverage"):
        figure = replace(FIGURE_OF[name], label=FIGURE_OF[name].cluster_label, better=None)
        yield _row(figure, [figure.value_in(summary) for summary in summaries])
    for kind in dict.fromkeys(kind for each in summaries for kind in each["kinds"] if kind):
        figure = SummaryFigure(name=f"kinds.{kind}.coverage", label=f"of '{kind}'", unit="share")
        yield _row(figure, [each["kinds"].get(kind, {}).get("coverage") for each in summaries])


def _computed_of_harvest(summaries: Sequence[Mapping[str, Any]]) -> dict[str, ComparedFigure | None]:
    made: dict[str, ComparedFigure | None] = {}
    if not all(each["complete"] for each in summaries):
        made["simulated_s"] = _row(FIGURE_OF["simulated_s"], [each["simulated_s"] for each in summaries])
    # The references of these ratios depend on the objective, and have no meaning if tasks run out
    short_of_tasks = [ran_out(each) for each in summaries]
    ranked = not any(short_of_tasks) and len({each["objective"] for each in summaries}) == 1
    for name in ("efficiency", "ceiling_efficiency", "harvested_of_ceiling", "harvested_of_bound"):
        row = _read(FIGURE_OF[name], summaries)
        if row is not None:
            marks = [mark_of(each, tasks_ran_out=out) for each, out in zip(row.amounts, short_of_tasks, strict=True)]
            if ABOVE in marks:  # next to the label, which has more room
                row = replace(row, definition=replace(row.definition, label=f"{row.label} ({ABOVE})"))
            made[name] = replace(
                row,
                marks=tuple("" if mark == ABOVE else mark for mark in marks),
                compares=ranked,
                best=row.best if ranked else (),
            )
    return made


def _computed_of_tasks(sides: Sequence[ComparedRun], *, comparable: bool) -> dict[str, ComparedFigure | None]:
    """Return the rows that need the tables of tasks; of ``comparable`` replays, times of tasks that finished in all."""
    summaries, tasks = [side.summary for side in sides], [side.tasks for side in sides]
    values: dict[str, Sequence[float | None]] = {}
    finished = [each.chosen(each.finished) for each in tasks]
    common: frozenset[str] | None = None
    if comparable:
        # Or a replay would be penalised for finishing a slow task that another one leaves unfinished
        common = frozenset(finished[0].name).intersection(*(each.name for each in finished))
        finished = [each.chosen(np.array([name in common for name in each.name], dtype=bool)) for each in finished]
        values[COMMON_TASKS] = [len(common)] * len(sides)
    for name, statistics in _STATISTICS.items():
        spreads = [TaskPercentiles.of(getattr(each, name)) for each in finished]
        for part in statistics:
            values[f"{name}.{part}"] = [None if each is None else float(getattr(each, part)) for each in spreads]
    counts = [(int((each.rho > 1.0).sum()), int((~np.isnan(each.rho)).sum())) for each in finished]
    values["rho_over_1"] = [above / known if known else None for above, known in counts]
    waits_s = [each.waiting_s for each in tasks]  # NaN: it never arrived
    values["waited_s.mean"] = [None if np.isnan(each).all() else float(np.nanmean(each)) for each in waits_s]
    deadlines = any(each["deadlines"] for each in summaries)
    values["deadlines_missed"] = [each["deadlines_missed"] for each in summaries] if deadlines else []
    values["cost"] = [each["cost"] if each["settings"].get("prices") else None for each in summaries]
    values["waits"] = [side.waits for side in sides]
    rows = {name: _shown(FIGURE_OF[name], amounts) for name, amounts in values.items()}
    if len({each["tasks_unfinished"] for each in summaries}) == 1:
        rows["completion_at_least_s"] = None
    return {name: row and _of_finished(row, common) for name, row in rows.items()}


def _of_finished(row: ComparedFigure, common: frozenset[str] | None) -> ComparedFigure:
    """Return a row of finished tasks with the name and label of the ``common`` ones; other rows stay unchanged."""
    if not row.name.startswith(tuple(_STATISTICS)):
        return row
    # The name of the summary's completion time, which is of all finished tasks, would be wrong
    definition = replace(row.definition, name=row.name.replace("completion_s", "time_to_finish_s"))
    if common is None:
        return replace(row, definition=definition)
    label = f"{row.label} of {text_formats.counted(len(common), 'task')} finished in all runs"
    short = f"{row.label.replace(' time', '')} of {len(common):,}"
    return replace(row, definition=replace(definition, label=label), short=short)
