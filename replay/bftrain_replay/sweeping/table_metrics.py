"""Metrics: the figures of a table that can be drawn, how they are called, and which way is better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from bftrain import text_formats
from bftrain.errors import suggestion
from bftrain_replay.results.headline import RAN_OUT
from bftrain_replay.sweeping.sweep_table import BASELINE as BASELINE_PREFIX
from bftrain_replay.sweeping.sweep_table import DOUBTFUL, HARVEST_NODE_H, TASKS_RAN_OUT, columns_of
from bftrain_replay.tables.table_schema import ColumnType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bftrain_replay.sweeping.sweep_grid import SweepPoint
    from bftrain_replay.sweeping.sweep_spec import SweepSpec
    from bftrain_replay.sweeping.sweep_table import PointRow

PLOT: Final = "plot"
_HOUR_S: Final = 3600.0


class MetricColumn(NamedTuple):
    """One column: its title, a figure of it in words, its axis, and which way is better."""

    column: str
    title: str
    said: Callable[[float], str] = text_formats.count
    unit: float = 1.0  # what a figure is divided by on the axis
    unit_name: str = ""  # and how it is called there
    axis: str = "~s"
    better: int = 0  # 1: more of it, -1: less of it, 0: who knows

    @property
    def axis_title(self) -> str:
        """Its title where its figures are bare numbers."""
        return f"{self.title}, {self.unit_name}" if self.unit_name else self.title

    def of(self, row: PointRow) -> float | None:
        """Give the figure of a point; none where it has none."""
        found = row.cells.get(self.column)
        return float(found) if isinstance(found, (int, float)) else None


def _share(column: str, title: str, better: int = 1) -> MetricColumn:
    return MetricColumn(column, title, text_formats.percent, axis=".0%", better=better)


def _hours(column: str, title: str, better: int = -1) -> MetricColumn:
    return MetricColumn(column, title, better=better)


def _times(column: str, title: str) -> MetricColumn:
    return MetricColumn(column, title, text_formats.duration, _HOUR_S, "hours", "~g", -1)


def _ratios(column: str, title: str) -> Iterator[MetricColumn]:
    for part, said in (("mean", "mean"), ("p50", "median"), ("p95", "95 in 100"), ("max", "most")):
        yield MetricColumn(f"{column}_{part}", f"{title}, {said}", text_formats.ratio, axis="~g", better=-1)


EFFICIENCY: Final = _share("efficiency", "efficiency U")
HARVEST: Final = MetricColumn("harvested", "harvest, samples", text_formats.large, better=1)
MAKESPAN: Final = MetricColumn("makespan_s", "all tasks done after", text_formats.duration, _HOUR_S, "hours", "~g", -1)
COMPLETION: Final = _times("completion_s_mean", "completion time, mean")
COVERAGE: Final = _share("coverage", "idle node-time used")
CEILING: Final = "ceiling_efficiency"
BASELINE: Final = "baseline_efficiency"
_OF_YARDSTICKS: Final = frozenset({EFFICIENCY.column, CEILING, BASELINE})
_KNOWN: Final = {
    metric.column: metric
    for metric in (
        EFFICIENCY,
        HARVEST,
        MAKESPAN,
        _share(DOUBTFUL, "idle node-time, doubtful", 0),
        _hours(HARVEST_NODE_H, "node-hours of work that counts", 1),
        _share(CEILING, "U without costs"),
        _share(BASELINE, "baseline: efficiency U"),
        COVERAGE,
        _hours("lost_preemption_node_h", "node-hours lost to preemption"),
        _hours("lost_rescaling_node_h", "node-hours lost to rescaling"),
        _hours("lost_start_up_node_h", "node-hours lost to start-up"),
        MetricColumn("fallbacks", "decisions not the solver's own", better=-1),
        MetricColumn("infeasible_decisions", "decisions without a plan", better=-1),
        MetricColumn("rescales", "rescales", better=-1),
        MetricColumn("preemptions", "nodes given back, times", better=-1),
        MetricColumn("tasks_finished", "tasks finished", better=1),
        MetricColumn("tasks_unfinished", "tasks not finished in the end", better=-1),
        COMPLETION,
        _times("completion_s_p50", "completion time, median"),
        _times("completion_s_p95", "completion time, 95 in 100"),
        _times("completion_s_max", "completion time, most"),
        _times("completion_at_least_s", "completion time with the unfinished, mean at least"),
        _times("responsiveness_s_mean", "time to the end of the first round, mean"),
        _times("responsiveness_s_p95", "time to the end of the first round, 95 in 100"),
        _times("response_s_mean", "time to the first node, mean"),
        _times("response_s_p95", "time to the first node, 95 in 100"),
        _times("waited_s_mean", "time without a node, mean"),
        _times("late_s_mean", "late, mean of those that were"),
        *_ratios("slowdown", "slowdown"),
        *_ratios("rho", "rho"),
        _share("rho_over_1", "later than on an n-th part", better=-1),
        MetricColumn("deadlines_missed", "deadlines missed", better=-1),
        MetricColumn("solve_ms_p50", "solver time, median", text_formats.milliseconds, unit_name="ms", better=-1),
        MetricColumn("solve_ms_p99", "solver time, 99 in 100", text_formats.milliseconds, unit_name="ms", better=-1),
        MetricColumn("decide_ms_p50", "decision time, median", text_formats.milliseconds, unit_name="ms", better=-1),
        MetricColumn("decide_ms_p99", "decision time, 99 in 100", text_formats.milliseconds, unit_name="ms", better=-1),
        MetricColumn("wall_s", "time of the replay", text_formats.duration, unit_name="seconds", better=-1),
    )
}


def metric_of(column: str) -> MetricColumn:
    """Give the metric of a column."""
    return _KNOWN.get(column) or MetricColumn(column, column)


def tasks_ran_out(metric: MetricColumn, row: PointRow) -> bool:
    """Return whether this figure of a point only says that its tasks were done: U, or U of a yardstick."""
    column = f"{BASELINE_PREFIX}{TASKS_RAN_OUT}" if metric.column == BASELINE else TASKS_RAN_OUT
    return metric.column in _OF_YARDSTICKS and metric.of(row) is not None and bool(row.cells.get(column))


def said_of(metric: MetricColumn, row: PointRow) -> str:
    """Return the figure of a point in words, marked where it only says that the tasks were done."""
    value = metric.of(row)
    if value is None:
        return text_formats.UNKNOWN
    return f"{metric.said(value)} ({RAN_OUT})" if tasks_ran_out(metric, row) else metric.said(value)


def check_plot(spec: SweepSpec, points: Sequence[SweepPoint]) -> None:
    """Refuse to draw what the table will not have, or what is no number."""
    known = [column.name for column in columns_of(points) if column.kind in {ColumnType.NUMBER, ColumnType.WHOLE}]
    for name in spec.plot:
        if name not in known:
            raise spec.document.wrong(f"there is no column of numbers '{name}'", PLOT, fix=suggestion(str(name), known))


def metrics_of(plot: Sequence[str], rows: Sequence[PointRow]) -> tuple[MetricColumn, ...]:
    """Give the metrics to draw, the most important first: those asked for, else the usual one that there is."""
    if plot:
        return tuple(map(metric_of, plot))
    done = [row for row in rows if row.cells.get(HARVEST.column) is not None]
    if done and all(row.point.in_rounds or row.point.cluster for row in done):
        return (COMPLETION,)  # on nodes that never leave all work is done in the end, and what counts is when
    usual = [metric for metric in (EFFICIENCY, HARVEST) if any(metric.of(row) is not None for row in done)][:1]
    if any(row.cells.get(TASKS_RAN_OUT) for row in done):
        usual = [HARVEST]  # U compares nothing where the tasks ran out
    if done and all(MAKESPAN.of(row) is not None for row in done):
        usual = [MAKESPAN]  # where all work is done, the harvest is the same everywhere
    return tuple(usual)
