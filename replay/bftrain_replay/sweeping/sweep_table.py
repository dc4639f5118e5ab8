"""The table of a sweep, one row per point: swept options, figures, status, and measured times.

All columns except the measured times are byte-identical on any machine, in any order of passes. docs/how-to/sweeps.md
explains them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from statistics import fmean
from types import NoneType
from typing import Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain import parts, text_formats
from bftrain.errors import suggestion
from bftrain.node_units import NODE, in_words_of
from bftrain.values import wire
from bftrain_datasets import result_tables
from bftrain_datasets.result_tables import ColumnType, TableColumn
from bftrain_replay.rounds.round_result import RoundSummary
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.run.harvest_by_block import PERCENTILES, RESAMPLES, too_narrow
from bftrain_replay.run.harvest_by_block import SEED as OF_DRAWS
from bftrain_replay.run.headline import ABOVE, NO_BOUND, NOT_RANKED, harvest_node_h, mark_of, ran_out
from bftrain_replay.run.result import LostWork, MeasuredTimings, ReferenceFigures, ReplaySummary, with_references
from bftrain_replay.run.summary_figures import FIGURES, FigureUnit, SummaryFigure
from bftrain_replay.run.tables import SECONDS_AN_HOUR
from bftrain_replay.run.task_figures import TaskFigures, TaskPercentiles
from bftrain_replay.simulation.node_time_ledger import UnusedReason
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.simulation.run_records import TimeSpread
from bftrain_replay.simulation.task_progress import USUAL_LOSSES
from bftrain_replay.sweeping.sweep_passes import FORMAT, PassOutcome, PassStatus, PointNeeds
from bftrain_replay.sweeping.sweep_spec import SEED, SweepPoint, SweepSpec, Value, is_whole

NAME: Final = "table"
FILES: Final = tuple(f"{NAME}.{form}" for form in result_tables.FORMS)
BASELINE_PREFIX: Final = "baseline_"

_MOST_WARNINGS: Final = 8
_KINDS: Final = {str: ColumnType.TEXT, int: ColumnType.WHOLE, bool: ColumnType.WHOLE, float: ColumnType.NUMBER}
_RENAMED: Final = {"tasks": "task_count"}  # a point has an option of that name
# ``complete`` is true in all rows with figures; metrics have a column for each name
_LEFT_OUT: Final = frozenset({"complete", "metrics"})
_ENDED: Final = "ended"
HARVEST_NODE_H: Final = "harvest_node_h"
_UNIT: Final = "unit"  # unit of the log: in the cells for texts, but not a column
DOUBTFUL: Final = "doubtful_share"  # fraction of the idle node-time
_SOURCE: Final = "log_source"
TASKS_RAN_OUT: Final = "tasks_ran_out"  # 1 if the tasks limited the harvest, so that U is not comparable
_FINISHED_TASK_FIGURES: Final = ("completion_s", "slowdown", "rho")  # figures of finished tasks only
_SHARES_TIME: Final = "shares_wall_s"  # time for computing shares, a part of the run time of rounds
# Figures with a value for each of these names
_NAMES: Final = {"unused_node_h": tuple(map(str, UnusedReason)), "lost": tuple(map(str, USUAL_LOSSES))}
_SPREADS: Final = (TimeSpread, TaskPercentiles)
# Figures of the log, the tasks and the references, which are the same for the baseline
_SHARED: Final = frozenset({
    "objective", "simulated_s", "idle_node_h", "ceiling_efficiency", "dedicated_nodes", "dedicated_samples",
    "ceiling_samples", "bound_samples", "one_each_samples", "tasks",
})  # fmt: skip


class PointState(StrEnum):
    """The state of a point."""

    DONE = "done"
    FAILED = "failed"
    OPEN = "open"  # not replayed yet


class PointRow(NamedTuple):
    """One point: its state, the reason of a failure, and its cells by column."""

    point: SweepPoint
    state: PointState
    error: str
    cells: Mapping[str, object]


@dataclass(frozen=True, repr=False)
class SweptPoints:
    """The part of a sweep's results that its page reads: one row for each point, including failed and open ones."""

    spec: SweepSpec
    rows: tuple[PointRow, ...]
    warnings: Mapping[str, int]  # warning text and number of affected passes

    @property
    def unit(self) -> str:
        """The unit of the logs; nodes if they differ."""
        units = {str(row.cells.get(_UNIT, NODE)) for row in self.rows if row.state is PointState.DONE}
        return units.pop() if len(units) == 1 else NODE

    @property
    def failed(self) -> tuple[PointRow, ...]:
        """The points that failed."""
        return tuple(row for row in self.rows if row.state is PointState.FAILED)

    @property
    def complete(self) -> bool:
        """Whether no point is open."""
        return all(row.state is not PointState.OPEN for row in self.rows)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Return the caveats about the figures, for the page and the terminal."""
        return tuple(in_words_of(self.unit, note) for note in _notes(self))

    def first_warnings(self) -> Iterator[str]:
        """Yield the first warnings with their numbers of replays, and how many more there are."""
        for text, passes in list(self.warnings.items())[:_MOST_WARNINGS]:
            yield in_words_of(self.unit, f"{text} ({passes:,} replays)" if passes > 1 else text)
        more = len(self.warnings) - _MOST_WARNINGS
        if more > 0:
            yield f"further warnings, in sweep.json: {more:,}"


def rows_of(
    points: Sequence[SweepPoint], needs: Sequence[PointNeeds], outcomes: Mapping[str, PassOutcome]
) -> tuple[PointRow, ...]:
    """Return the rows, in point order."""
    return tuple(_row(point, need, outcomes) for point, need in zip(points, needs, strict=True))


def _row(point: SweepPoint, need: PointNeeds, outcomes: Mapping[str, PassOutcome]) -> PointRow:
    found = {part: outcomes[name] for part, name in need._asdict().items() if name and name in outcomes}
    failures = {part: outcome.reason for part, outcome in found.items() if outcome.status is PassStatus.FAILED}
    own = failures.get("replay", "")
    # A reason that all passes of the point share is written once
    reasons = [own] if own else []
    reasons += [f"{part}: {reason}" for part, reason in failures.items() if reason != own]
    complete = PointState.DONE if len(found) == len(need.all) else PointState.OPEN
    state = PointState.FAILED if reasons else complete
    yardsticks = found["yardsticks"].yardsticks if "yardsticks" in found else None
    cells: dict[str, object] = {"status": str(state), "error": "; ".join(reasons), "point": need.id}
    for part, prefix in (("baseline", BASELINE_PREFIX), ("replay", "")):
        if part in found:
            figures = flat(_figures_of(found[part], point.settings, yardsticks), "_")
            cells |= {f"{prefix}{_RENAMED.get(name, name)}": value for name, value in figures}
    return PointRow(point, state, "; ".join(reasons), cells | point.options)


def _figures_of(
    outcome: PassOutcome, settings: ReplaySettings | RoundSettings, yardsticks: ReferenceFigures | None
) -> Mapping[str, Any]:
    if outcome.rounds is not None:
        given = outcome.rounds
        own = {"policy": settings.policy} if isinstance(settings, RoundSettings) else {}
        return {**wire.plain(given), **wire.plain(given.figures), **wire.plain(given.tasks), **own}
    if outcome.figures is None or outcome.timings is None:
        return {}
    figures = with_references(outcome.figures, yardsticks) if yardsticks else outcome.figures
    own = {"objective": settings.objective} if isinstance(settings, ReplaySettings) else {}
    more = {_ENDED: outcome.ended, HARVEST_NODE_H: harvest_node_h(figures)}
    if not outcome.ended:  # a replay of a log, where the tasks may run out
        more |= {TASKS_RAN_OUT: int(ran_out(figures)), DOUBTFUL: outcome.doubtful_share, _SOURCE: outcome.log_source}
        more |= {_UNIT: outcome.unit}
    return {**wire.plain(figures), **wire.plain(outcome.timings), **more, **own}


def columns_of(points: Sequence[SweepPoint]) -> tuple[TableColumn, ...]:
    """Return the columns: swept options, figures, baseline figures and metrics if any, status, measured times."""
    baseline = any(point.baseline for point in points)
    kinds = {point.in_rounds for point in points}
    replays, rounds = False in kinds, True in kinds
    columns = [TableColumn(name, _kind_of(name, points)) for name in points[0].options]
    if replays:
        columns += _columns(ReplaySummary, _LEFT_OUT)
        columns += [TableColumn(HARVEST_NODE_H, ColumnType.NUMBER), TableColumn(TASKS_RAN_OUT, ColumnType.WHOLE)]
        columns += [TableColumn(DOUBTFUL, ColumnType.NUMBER), TableColumn(_SOURCE, ColumnType.TEXT)]
    if rounds:
        columns += [*_columns(RoundSummary, _LEFT_OUT), *_columns(TaskFigures, _LEFT_OUT)]
    if any(point.cluster for point in points):
        columns.append(TableColumn(_ENDED, ColumnType.TEXT))
    if baseline:
        columns += _columns(ReplaySummary, _LEFT_OUT | _SHARED, BASELINE_PREFIX)
    for prefix in ("", BASELINE_PREFIX) if baseline else ("",):
        for listed in dict.fromkeys(point.settings.metrics for point in points):
            names = parts.figures_of(parts.metrics_of(listed))
            columns += [TableColumn(f"{prefix}metrics_{name}", ColumnType.NUMBER) for name in names]
    columns += [TableColumn(name, ColumnType.TEXT) for name in ("status", "error", "point")]
    columns += measured_columns(with_baseline=baseline, replays=replays, rounds=rounds)
    # A name that occurs twice keeps the first type, and the last place
    return tuple({column.name: column for column in reversed(columns)}.values())[::-1]


def measured_columns(*, with_baseline: bool, replays: bool = True, rounds: bool = True) -> tuple[TableColumn, ...]:
    """Return the columns of measured times."""
    own = _columns(MeasuredTimings, frozenset()) if replays else ()
    of_rounds = [TableColumn(name, ColumnType.NUMBER) for name in ("wall_s", _SHARES_TIME)] if rounds else ()
    return (*own, *of_rounds, *(_columns(MeasuredTimings, frozenset(), BASELINE_PREFIX) if with_baseline else ()))


def write(folder: Path, columns: Sequence[TableColumn], rows: Sequence[PointRow], form: str) -> None:
    """Write the table as csv or parquet."""
    cells = ([row.cells.get(column.name) for column in columns] for row in rows)
    result_tables.write(folder, NAME, columns, cells, form, FORMAT)


def _kind_of(option: str, points: Sequence[SweepPoint]) -> ColumnType:
    kinds = {type(point.options[option]) for point in points}
    if kinds == {int} and is_whole(option):
        return ColumnType.WHOLE
    return ColumnType.NUMBER if kinds <= {int, float} else ColumnType.TEXT


def _columns(figures: type[msgspec.Struct], left_out: Collection[str], prefix: str = "") -> Iterator[TableColumn]:
    """Yield the columns of a record of figures; a mapping or a spread becomes several columns."""
    hints = get_type_hints(figures)
    for name, hint in ((name, hints[name]) for name in figures.__struct_fields__):
        if name in left_out or (get_origin(hint) is dict and name not in _NAMES):
            continue
        kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not NoneType]
        column = f"{prefix}{_RENAMED.get(name, name)}"
        if name in _NAMES:
            fields = LostWork.__struct_fields__ if LostWork in kinds else ("",)
            for key in _NAMES[name]:
                names = ("_".join(filter(None, (column, key, part))) for part in fields)
                yield from (TableColumn(each, ColumnType.NUMBER) for each in names)
        elif kinds[0] in _SPREADS:
            yield from _columns(kinds[0], (), f"{column}_")
        elif kinds[0] in _KINDS:  # no column for other types, such as series
            yield TableColumn(column, _KINDS[kinds[0]])


def flat(values: Mapping[str, Any], joint: str, prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the values of nested tables, each with the names on its path, with ``joint`` between them."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flat(value, joint, f"{prefix}{name}{joint}")
        else:
            yield f"{prefix}{name}", value


_AXES: Final[Mapping[FigureUnit, tuple[float, str, str]]] = {  # divisor, unit label and format of each axis
    "share": (1.0, "", ".0%"),
    "s": (SECONDS_AN_HOUR, "hours", "~g"),
    "ms": (1.0, "ms", "~s"),
    "ratio": (1.0, "", "~g"),
}
_WALL: Final = "wall_s"  # seconds, not hours


class MetricColumn(NamedTuple):
    """A column of numbers, with the figure in it; labels name the ``unit`` of the log."""

    column: str
    figure: SummaryFigure
    unit: str = NODE

    @property
    def title(self) -> str:
        """Its label, marked for the baseline."""
        return in_words_of(self.unit, self._marked(self.figure.label))

    @property
    def short_title(self) -> str:
        """The label for a narrow column, with the unit still to be named."""
        return self._marked(self.figure.short or self.figure.label)

    def _marked(self, label: str) -> str:
        return f"baseline: {label}" if self.column.startswith(BASELINE_PREFIX) else label

    @property
    def heading(self) -> str:
        """Its title with a capital letter."""
        return f"{self.title[:1].upper()}{self.title[1:]}"

    @property
    def axis(self) -> tuple[float, str, str]:
        """The divisor, the unit and the number format of its axis."""
        return (1.0, "seconds", "~s") if self.figure.name == _WALL else _AXES.get(self.figure.unit, (1.0, "", "~s"))

    def format(self, value: float) -> str:
        """Return a value as text."""
        return self.figure.format(value)

    def of(self, row: PointRow) -> float | None:
        """Return the figure of a point; ``None`` if it has none."""
        found = row.cells.get(self.column)
        return float(found) if isinstance(found, (int, float)) else None


_FIGURES: Final = {figure.column: figure for figure in FIGURES}


def metric_of(column: str) -> MetricColumn:
    """Return the metric of a column; a replay and its baseline share the figure."""
    figure = _FIGURES.get(column.removeprefix(BASELINE_PREFIX))
    return MetricColumn(column, figure or SummaryFigure(name=column, label=column, unit="count"))


EFFICIENCY, HARVEST, MAKESPAN, COMPLETION = map(
    metric_of, ("efficiency", "harvested", "makespan_s", "completion_s_mean")
)
CEILING: Final = "ceiling_efficiency"
BASELINE: Final = "baseline_efficiency"
_YARDSTICK_COLUMNS: Final = frozenset({EFFICIENCY.column, CEILING, BASELINE})


def tasks_ran_out(metric: MetricColumn, row: PointRow) -> bool:
    """Return whether a metric is a kind of U, and only reports that the tasks of the point were done."""
    column = f"{BASELINE_PREFIX}{TASKS_RAN_OUT}" if metric.column == BASELINE else TASKS_RAN_OUT
    return metric.column in _YARDSTICK_COLUMNS and metric.of(row) is not None and bool(row.cells.get(column))


def ranks(metric: MetricColumn, rows: Sequence[PointRow]) -> bool:
    """Return whether a metric ranks these points: U only if no tasks ran out, and within one objective."""
    if metric.column not in _YARDSTICK_COLUMNS:
        return True
    known = [row for row in rows if metric.of(row) is not None]
    return not any(tasks_ran_out(metric, row) for row in known) and len(_objectives(known)) < 2  # noqa: PLR2004 - several


def _objectives(rows: Sequence[PointRow]) -> set[object]:
    return {row.cells.get("objective") for row in rows}


def _mark(metric: MetricColumn, row: PointRow) -> str:
    if metric.column not in _YARDSTICK_COLUMNS:
        return ""
    return mark_of(metric.of(row), tasks_ran_out=tasks_ran_out(metric, row))


def text_of(metric: MetricColumn, row: PointRow) -> str:
    """Return the figure of a point as text, with the mark of U."""
    value = metric.of(row)
    if value is None:
        return text_formats.UNKNOWN
    text, mark = metric.format(value), _mark(metric, row)
    return f"{text} ({mark})" if mark else text


def check_plot(spec: SweepSpec, points: Sequence[SweepPoint]) -> None:
    """Raise for plots of columns that the table will not have, or that are not numeric."""
    known = [column.name for column in columns_of(points) if column.kind in {ColumnType.NUMBER, ColumnType.WHOLE}]
    for name in spec.plot:
        if name not in known:
            raise spec.document.wrong(
                f"there is no column of numbers '{name}'", "plot", fix=suggestion(str(name), known)
            )


def metrics_of(plot: Sequence[str], rows: Sequence[PointRow]) -> tuple[MetricColumn, ...]:
    """Return the metrics to draw: the columns of ``plot``, otherwise the most telling one for these points."""
    if plot:
        return tuple(map(metric_of, plot))
    done = [row for row in rows if row.cells.get(HARVEST.column) is not None]
    if done and all(row.point.in_rounds or row.point.cluster for row in done):
        return (COMPLETION,)  # permanent nodes complete all work
    if done and all(MAKESPAN.of(row) is not None for row in done):
        return (MAKESPAN,)  # all work is finished, so the harvests are equal
    if _same_harvest(done):
        return (COMPLETION,)
    known = [metric for metric in (EFFICIENCY, HARVEST) if any(metric.of(row) is not None for row in done)]
    return tuple(metric for metric in known if ranks(metric, done))[:1]


def _same_harvest(done: Sequence[PointRow]) -> bool:
    """Return whether the tasks ran out in all points, and the same tasks always gave the same harvest."""
    harvests: dict[object, set[str]] = {}
    for row in done:
        harvests.setdefault((row.point.tasks, row.cells.get(SEED)), set()).add(f"{HARVEST.of(row):.9g}")
    known = all(COMPLETION.of(row) is not None and row.cells.get(TASKS_RAN_OUT) for row in done)
    return bool(done) and known and all(len(each) == 1 for each in harvests.values())


def _notes(swept: SweptPoints) -> Iterator[str]:
    total = text_formats.counted(len(swept.rows), "point")
    metrics = metrics_of(swept.spec.plot, swept.rows)
    # On clusters and in rounds, the passes themselves warn
    on_logs = [row for row in swept.rows if row.point.log and not row.point.in_rounds]
    short = sum(bool(row.cells.get(TASKS_RAN_OUT)) for row in on_logs)
    usual = metrics_of((), swept.rows)
    if short and usual[0] in {MAKESPAN, COMPLETION}:
        yield f"In {short:,} of {total} the tasks ran out, and all harvests are equal: compare {usual[0].title}"
    elif short:
        yield f"In {short:,} of {total} the tasks ran out: efficiency U is not comparable there, the harvest is"
    with_u = [row for row in on_logs if EFFICIENCY.of(row) is not None]
    if len(_objectives(with_u)) > 1:
        yield NOT_RANKED
    if any(_mark(metric, row) == ABOVE for row in on_logs for metric in map(metric_of, sorted(_YARDSTICK_COLUMNS))):
        yield NO_BOUND
    left = [row for row in on_logs if row.cells.get("tasks_unfinished")]
    if left and any(metric.column.startswith(_FINISHED_TASK_FIGURES) for metric in metrics):
        yield (
            f"In {len(left):,} of {total} tasks did not finish: figures of completion times, slowdown and "
            "rho omit them, and may be low there"
        )


INTERVAL: Final = "90 % interval of the mean"
LEAST_TO_MOST: Final = "least to most"
_LEAST_SEEDS: Final = 3  # minimum number of seeds for an interval
_DRAWN_AT_ONCE: Final = 1_000_000  # values

Cells = tuple["Value", ...]


@dataclass(frozen=True)
class SeedSpread:
    """The values of a metric in several points, such as points that differ only in the seed."""

    values: tuple[float, ...]

    @property
    def count(self) -> int:
        """The number of values."""
        return len(self.values)

    @cached_property
    def mean(self) -> float:
        """Return the mean of the values."""
        return fmean(self.values)

    @property
    def kind(self) -> str:
        """The meaning of ``ends``."""
        return LEAST_TO_MOST if self.count < _LEAST_SEEDS else INTERVAL

    @property
    def words(self) -> str:
        """The meaning of ``ends``, with a warning if the values are few."""
        return self.kind + (too_narrow(self.count) if self.kind == INTERVAL else "")

    @cached_property
    def ends(self) -> tuple[float, float]:
        """Return the bootstrap interval of the mean; of fewer than three values the minimum and maximum."""
        if self.kind == LEAST_TO_MOST:
            return min(self.values), max(self.values)
        means = _resampled_means(np.array(sorted(self.values)))
        low, high = np.percentile(means, (PERCENTILES[0], PERCENTILES[-1])).tolist()
        return low, high

    def text(self, metric: MetricColumn) -> str:
        """Return the mean as text, with the number of values and their ``ends``."""
        text = metric.format(self.mean)
        if self.count == 1:
            return text
        low, high = map(metric.format, self.ends)
        return f"{text} on average of {self.count}, {low} to {high} ({self.words})"

    def to_dict(self) -> dict[str, Any]:
        """Return its entry in ``sweep.json``."""
        low, high = self.ends
        return {"seeds": self.count, "mean": self.mean, "low": low, "high": high, "interval": self.kind}


def _resampled_means(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the mean of each resample; draws in parts to limit memory."""
    random, at_once = np.random.default_rng(OF_DRAWS), max(_DRAWN_AT_ONCE // values.size, 1)
    sizes = [(min(at_once, RESAMPLES - done), values.size) for done in range(0, RESAMPLES, at_once)]
    return np.concatenate([values[random.integers(0, values.size, size)].mean(axis=1) for size in sizes])


def spreads(rows: Sequence[PointRow], metric: MetricColumn, names: Sequence[str]) -> dict[Cells, SeedSpread]:
    """Return the values of the metric for each combination of values of these options."""
    found: dict[Cells, list[float]] = defaultdict(list)
    for row in rows:
        value = metric.of(row)
        if value is not None:
            found[tuple(row.point.options[name] for name in names)].append(value)
    return {cells: SeedSpread(tuple(values)) for cells, values in found.items()}


def reach(found: Collection[SeedSpread]) -> str:
    """Return the meaning of the ``ends`` of all these spreads; "" if each has one value."""
    counts = sorted({spread.count for spread in found if spread.count > 1})
    if not counts:
        return ""
    if counts[-1] < _LEAST_SEEDS:
        return f"from the least to the most over {text_formats.counted(counts[-1], 'seed')}"
    many = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
    text = f"the {INTERVAL} over {many} seeds, by bootstrap"
    if counts[0] < _LEAST_SEEDS:
        text += f" (the least and the most where there are fewer than {_LEAST_SEEDS})"
    return text + too_narrow(counts[0])


def over_seeds(rows: Sequence[PointRow], metrics: Sequence[MetricColumn], spec: SweepSpec) -> list[dict[str, Any]]:
    """Return the spread over seeds of each metric and combination, for ``sweep.json``; empty without seeds."""
    if SEED not in spec.swept:
        return []
    names = [name for name in spec.swept if name != SEED]
    return [
        {"options": dict(zip(names, cells, strict=True)), "metric": metric.column, **spread.to_dict()}
        for metric in metrics
        for cells, spread in spreads(rows, metric, names).items()
    ]
