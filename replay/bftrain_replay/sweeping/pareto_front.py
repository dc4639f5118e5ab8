"""Pareto front: the combinations of options that no other one dominates in two metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from bftrain.errors import BadConfig, BftrainError, suggestion
from bftrain_replay.run.summary_figures import BetterDirection
from bftrain_replay.sweeping.seed_spread import Cells, SeedSpread, spreads
from bftrain_replay.sweeping.sweep_grid import SweepPoint
from bftrain_replay.sweeping.sweep_options import SEED
from bftrain_replay.sweeping.sweep_spec import SweepSpec
from bftrain_replay.sweeping.sweep_table import (
    BASELINE_PREFIX,
    MetricColumn,
    PointRow,
    metric_of,
    number_columns,
    tasks_ran_out,
)

_EXAMPLE: Final = "such as harvested and preemptions"
_MORE, _LESS = BetterDirection
# Figures that are not ranked alone; weighed against another figure, their direction is clear
_WEIGHED: Final = {
    "harvest_node_h": _MORE,
    "used_node_h": _MORE,
    "rescales": _LESS,
    "preemptions": _LESS,
    "starts": _LESS,
    "moves": _LESS,
    "wall_s": _LESS,
}


class ParetoAxis(NamedTuple):
    """A metric and its better direction; unknown if the figure has none and none was given."""

    metric: MetricColumn
    better: BetterDirection | None

    @classmethod
    def of(cls, name: str) -> ParetoAxis:
        """Return the axis of a column, which may have a direction: ``metrics_mine:less``."""
        column, _, asked = name.partition(":")
        metric = metric_of(column)
        usual = metric.figure.better or _WEIGHED.get(column.removeprefix(BASELINE_PREFIX))
        return cls(metric, BetterDirection(asked) if asked else usual)

    def in_unit(self, unit: str) -> ParetoAxis:
        """Return it with the unit in its title."""
        return self._replace(metric=self.metric._replace(unit=unit))

    def rank(self, value: float) -> float:
        """Return a number that increases with the quality of the metric."""
        return -value if self.better is _LESS else value


def check(
    names: Sequence[object], points: Sequence[SweepPoint], where: str, error: type[BftrainError] = BadConfig
) -> None:
    """Raise unless both columns are numeric and have a known better direction."""
    known = number_columns(points)
    columns = [str(name).partition(":")[0] for name in names]
    if len(set(columns)) != 2 or len(columns) != 2:  # noqa: PLR2004 - a plane has two axes
        raise error("must name two different columns", where=where, fix=_EXAMPLE)
    for name, column in zip(map(str, names), columns, strict=True):
        if column not in known:
            raise error(f"there is no column of numbers '{column}'", where=where, fix=suggestion(column, known))
        fix = f"write '{column}:more' or '{column}:less'"
        if name != column and name.removeprefix(f"{column}:") not in set(BetterDirection):
            raise error(f"'{name}' names no direction", where=where, fix=fix)
        if ParetoAxis.of(name).better is None:
            raise error(f"it is not known whether more of '{column}' is better", where=where, fix=fix)


class ParetoPoint(NamedTuple):
    """One combination of options: its two metrics over the seeds, and whether it is on the front."""

    cells: Cells
    x: SeedSpread
    y: SeedSpread
    best: bool


@dataclass(frozen=True)
class ParetoPlane:
    """All combinations in the plane of two metrics."""

    x: ParetoAxis
    y: ParetoAxis
    names: tuple[str, ...]  # option names
    points: tuple[ParetoPoint, ...]
    left_out: int  # combinations that ran out of tasks, where U is meaningless

    @classmethod
    def of(cls, rows: Sequence[PointRow], asked: Sequence[str], names: Sequence[str]) -> ParetoPlane:
        """Place the combinations of these options by their means over seeds."""
        x, y = map(ParetoAxis.of, asked)
        metrics = (x.metric, y.metric)
        known = [row for row in rows if all(metric.of(row) is not None for metric in metrics)]
        short = {
            tuple(row.point.options[name] for name in names)
            for row in known
            if any(tasks_ran_out(metric, row) for metric in metrics)
        }
        across, up = (spreads(known, metric, names) for metric in metrics)
        cells = [each for each in across if each not in short]
        best = front([(x.rank(across[each].mean), y.rank(up[each].mean)) for each in cells])
        points = [ParetoPoint(each, across[each], up[each], one) for each, one in zip(cells, best, strict=True)]
        return cls(x, y, tuple(names), tuple(sorted(points, key=lambda point: point.x.mean)), len(short))

    @property
    def front(self) -> tuple[ParetoPoint, ...]:
        """The combinations on the front, ordered by the first metric."""
        return tuple(point for point in self.points if point.best)

    def to_dict(self) -> dict[str, Any]:
        """Return its entry in ``sweep.json``."""
        return {
            "better": {axis.metric.column: str(axis.better) for axis in (self.x, self.y)},
            "combinations": len(self.points),
            "tasks_ran_out": self.left_out,
            "front": [
                {
                    "options": dict(zip(self.names, point.cells, strict=True)),
                    self.x.metric.column: point.x.to_dict(),
                    self.y.metric.column: point.y.to_dict(),
                }
                for point in self.front
            ],
        }


def front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """Return for each point whether no other is as good in both and better in one; larger is better.

    >>> front([(1, 3), (2, 2), (2, 1), (3, 1), (3, 1)])
    [True, True, False, True, True]
    """
    tops: dict[float, float] = {}
    for x, y in points:
        tops[x] = max(y, tops.get(x, -math.inf))
    kept, highest = set(), -math.inf
    for x in sorted(tops, reverse=True):
        if tops[x] > highest:
            highest = tops[x]
            kept.add((x, highest))
    return [point in kept for point in points]


def in_summary(rows: Sequence[PointRow], spec: SweepSpec) -> dict[str, Any]:
    """Return the front's entry in ``sweep.json``; empty if none is requested."""
    names = [name for name in spec.swept if name != SEED]
    return {"pareto": ParetoPlane.of(rows, spec.pareto, names).to_dict()} if spec.pareto else {}
