"""Table: one row a point. The options that are swept come first, then all figures, then what a clock measured.

The columns before those that a clock measured are the same to the byte in any place and order in which the passes of a
sweep were done. docs/sweeps.md says what each column means.
"""

from __future__ import annotations

from enum import StrEnum
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

from bftrain.parts.metrics import figures_of, metrics_of
from bftrain.values import wire
from bftrain_replay.accounting.decision_log import TimeSpread
from bftrain_replay.accounting.node_time_ledger import UnusedReason
from bftrain_replay.metrics.percentiles import TaskPercentiles
from bftrain_replay.metrics.task_figures import TaskFigures
from bftrain_replay.output import csv_tables, parquet_tables
from bftrain_replay.results.headline import harvest_node_h, ran_out
from bftrain_replay.results.result import LostWork, MeasuredTimings, ReplaySummary, held_against
from bftrain_replay.rounds.round_result import RoundSummary
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.simulation.task_progress import SampleLoss
from bftrain_replay.sweeping.run_outcomes import FORMAT, PassStatus
from bftrain_replay.sweeping.sweep_options import METRICS, OBJECTIVE, POLICY, is_whole
from bftrain_replay.tables.table_schema import ColumnType, TableColumn

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from bftrain_replay.results.result import ReferenceFigures
    from bftrain_replay.sweeping.run_outcomes import PassOutcome
    from bftrain_replay.sweeping.sweep_grid import SweepPoint
    from bftrain_replay.sweeping.sweep_runs import PointNeeds

NAME: Final = "table"
FILES: Final = (f"{NAME}{csv_tables.SUFFIX}", f"{NAME}{parquet_tables.SUFFIX}")
BASELINE: Final = "baseline_"

_KINDS: Final = {str: ColumnType.TEXT, int: ColumnType.WHOLE, bool: ColumnType.WHOLE, float: ColumnType.NUMBER}
_RENAMED: Final = {"tasks": "task_count"}  # a point has an option of that name
_LEFT_OUT: Final = frozenset({"complete", METRICS})  # what is not complete has no figures; metrics have columns by name
_ENDED: Final = "ended"
HARVEST_NODE_H: Final = "harvest_node_h"
DOUBTFUL: Final = "doubtful_share"  # of the idle node-time
_SOURCE: Final = "log_source"
TASKS_RAN_OUT: Final = "tasks_ran_out"  # 1 where U only says that the tasks were done
_OF_SHARES: Final = "shares_wall_s"  # what of the time of a run in rounds went into shares
# Figures with one value a name, and these names
_NAMES: Final = {"unused_node_h": tuple(map(str, UnusedReason)), "lost": tuple(map(str, SampleLoss))}
_SPREADS: Final = (TimeSpread, TaskPercentiles)
# Figures of the log, the tasks and the yardsticks: they are the same for the baseline
_SHARED: Final = frozenset({
    "objective", "simulated_s", "idle_node_h", "ceiling_efficiency", "dedicated_nodes", "dedicated_samples",
    "ceiling_samples", "tasks",
})  # fmt: skip


class PointState(StrEnum):
    """How a point stands."""

    DONE = "done"
    FAILED = "failed"
    OPEN = "open"  # it was not replayed yet


class PointRow(NamedTuple):
    """One point: how it stands, why if it failed, and its figures by column."""

    point: SweepPoint
    state: PointState
    error: str
    cells: Mapping[str, object]


def rows_of(
    points: Sequence[SweepPoint], needs: Sequence[PointNeeds], outcomes: Mapping[str, PassOutcome]
) -> tuple[PointRow, ...]:
    """Give the rows, in the order of the points."""
    return tuple(_row(point, need, outcomes) for point, need in zip(points, needs, strict=True))


def _row(point: SweepPoint, need: PointNeeds, outcomes: Mapping[str, PassOutcome]) -> PointRow:
    found = {part: outcomes[name] for part, name in need._asdict().items() if name and name in outcomes}
    failures = {part: outcome.reason for part, outcome in found.items() if outcome.status is PassStatus.FAILED}
    own = failures.get("replay", "")
    # What fails for the same reason in all its passes is written once
    reasons = [own] if own else []
    reasons += [f"{part}: {reason}" for part, reason in failures.items() if reason != own]
    complete = PointState.DONE if len(found) == len(need.all) else PointState.OPEN
    state = PointState.FAILED if reasons else complete
    yardsticks = found["yardsticks"].yardsticks if "yardsticks" in found else None
    error = "; ".join(reasons)
    cells: dict[str, object] = {"status": str(state), "error": error, "point": need.id}
    for part, prefix in (("baseline", BASELINE), ("replay", "")):
        outcome = found.get(part)
        if outcome is not None:
            summary = _figures_of(outcome, point.settings, yardsticks)
            cells |= {f"{prefix}{name}": value for name, value in _flat(summary)}
    return PointRow(point, state, error, cells | point.options)


def _figures_of(
    outcome: PassOutcome, settings: ReplaySettings | RoundSettings, yardsticks: ReferenceFigures | None
) -> Mapping[str, Any]:
    """Give the figures that came of a pass, by name."""
    if outcome.rounds is not None:
        given = outcome.rounds
        own = {POLICY: settings.policy} if isinstance(settings, RoundSettings) else {}
        return {**wire.plain(given), **wire.plain(given.figures), **wire.plain(given.tasks), **own}
    if outcome.figures is None or outcome.timings is None:
        return {}
    figures = held_against(outcome.figures, yardsticks) if yardsticks else outcome.figures
    own = {OBJECTIVE: settings.objective} if isinstance(settings, ReplaySettings) else {}
    more = {_ENDED: outcome.ended, HARVEST_NODE_H: harvest_node_h(figures)}
    if not outcome.ended:  # a replay of a log, where the tasks may run out
        more |= {TASKS_RAN_OUT: int(ran_out(figures)), DOUBTFUL: outcome.doubtful_share, _SOURCE: outcome.log_source}
    return {**wire.plain(figures), **wire.plain(outcome.timings), **more, **own}


def columns_of(points: Sequence[SweepPoint]) -> tuple[TableColumn, ...]:
    """Give the columns: swept options, figures, those of the baseline if there is one, status, what was measured."""
    swept = [TableColumn(name, _kind_of(name, points)) for name in points[0].options]
    with_baseline = any(point.baseline for point in points)
    figures = list(_figures(points))
    of_baseline = list(_columns(ReplaySummary, _LEFT_OUT | _SHARED, BASELINE)) if with_baseline else []
    own = [*_own(points, ""), *(_own(points, BASELINE) if with_baseline else ())]
    about = [TableColumn(name, ColumnType.TEXT) for name in ("status", "error", "point")]
    in_rounds = {point.in_rounds for point in points}
    measured = measured_columns(with_baseline=with_baseline, replays=False in in_rounds, rounds=True in in_rounds)
    everything = [*swept, *figures, *of_baseline, *own, *about, *measured]
    return tuple({column.name: column for column in reversed(everything)}.values())[::-1]


def _figures(points: Sequence[SweepPoint]) -> Iterator[TableColumn]:
    """Give the columns of figures: those of replays, and those of rounds, as far as there are such points."""
    if not all(point.in_rounds for point in points):
        yield from _columns(ReplaySummary, _LEFT_OUT)
        yield TableColumn(HARVEST_NODE_H, ColumnType.NUMBER)
        yield TableColumn(TASKS_RAN_OUT, ColumnType.WHOLE)
        yield TableColumn(DOUBTFUL, ColumnType.NUMBER)
        yield TableColumn(_SOURCE, ColumnType.TEXT)
    if any(point.in_rounds for point in points):
        yield from _columns(RoundSummary, _LEFT_OUT)
        yield from _columns(TaskFigures, _LEFT_OUT)
    if any(point.cluster for point in points):
        yield TableColumn(_ENDED, ColumnType.TEXT)


def _own(points: Sequence[SweepPoint], prefix: str) -> Iterator[TableColumn]:
    """Return the columns of the chosen metrics."""
    for said in dict.fromkeys(point.settings.metrics for point in points):
        for name in figures_of(metrics_of(said)):
            yield TableColumn(f"{prefix}{METRICS}_{name}", ColumnType.NUMBER)


def measured_columns(*, with_baseline: bool, replays: bool = True, rounds: bool = True) -> tuple[TableColumn, ...]:
    """Give the columns of what a clock measured, and so differs from run to run."""
    own = _columns(MeasuredTimings, frozenset()) if replays else ()
    of_rounds = [TableColumn(name, ColumnType.NUMBER) for name in ("wall_s", _OF_SHARES)] if rounds else ()
    return (*own, *of_rounds, *(_columns(MeasuredTimings, frozenset(), BASELINE) if with_baseline else ()))


def write(folder: Path, columns: Sequence[TableColumn], rows: Sequence[PointRow], form: str) -> Path:
    """Write the table as csv or parquet; gives its file."""
    cells = ([_cell(column, row.cells.get(column.name)) for column in columns] for row in rows)
    if form == "parquet":
        path, other = folder / f"{NAME}{parquet_tables.SUFFIX}", csv_tables.SUFFIX
        parquet_tables.write_rows(path, columns, cells, FORMAT)
    else:
        path, other = folder / f"{NAME}{csv_tables.SUFFIX}", parquet_tables.SUFFIX
        csv_tables.write_rows(path, columns, cells)
    (folder / f"{NAME}{other}").unlink(missing_ok=True)  # of an earlier sweep
    return path


def _cell(column: TableColumn, value: object) -> object:
    return str(value) if column.kind is ColumnType.TEXT and value is not None else value


def _kind_of(option: str, points: Sequence[SweepPoint]) -> ColumnType:
    kinds = {type(point.options[option]) for point in points}
    if kinds == {int} and is_whole(option):
        return ColumnType.WHOLE
    return ColumnType.NUMBER if kinds <= {int, float} else ColumnType.TEXT


def _columns(figures: type[msgspec.Struct], left_out: Collection[str], prefix: str = "") -> Iterator[TableColumn]:
    """Give the columns of a record of figures; what it holds by name becomes a column for each name."""
    for name, hint in get_type_hints(figures).items():
        if name in left_out or (get_origin(hint) is dict and name not in _NAMES):
            continue
        kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not NoneType]
        column = f"{prefix}{_RENAMED.get(name, name)}"
        if name in _NAMES:
            parts = LostWork.__struct_fields__ if LostWork in kinds else ("",)
            for key in _NAMES[name]:
                yield from (
                    TableColumn("_".join(filter(None, (column, key, part))), ColumnType.NUMBER) for part in parts
                )
        elif kinds[0] in _SPREADS:
            yield from _columns(kinds[0], (), f"{column}_")
        elif kinds[0] in _KINDS:  # a series of figures has no place in a row
            yield TableColumn(column, _KINDS[kinds[0]])


def _flat(figures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Give figures by the names of their columns."""
    for name, value in figures.items():
        column = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _flat(value, f"{column}_")
        else:
            yield _RENAMED.get(column, column), value
