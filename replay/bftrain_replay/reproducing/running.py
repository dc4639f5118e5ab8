"""Runs all points of an experiment's figures as one sweep. Finished points are kept, and taken from other sweeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bftrain.values import wire
from bftrain_replay.reproducing.experiment import Figure, Mark, Point
from bftrain_replay.sweeping.run_point import PassExecutor
from bftrain_replay.sweeping.sweep import PreparedSweep, SweepStatus
from bftrain_replay.sweeping.sweep_runs import OutcomeFile
from bftrain_replay.sweeping.sweep_table import PointRow, PointState


@dataclass(frozen=True)
class Reproduction:
    """The figures of an experiment and the rows of its sweep, by the options of a point."""

    figures: tuple[Figure, ...]
    rows: Mapping[bytes, PointRow]

    def row(self, point: Point) -> PointRow:
        """Return the row of a point."""
        return self.rows[_key(point)]

    def marks(self, figure: Figure) -> Iterator[tuple[int, Mark]]:
        """Yield the seed and each value of the finished points of a figure, and its ready values with seed 0."""
        yield from ((0, mark) for mark in figure.ready)
        for point in figure.points:
            row = self.row(point)
            if row.state is PointState.DONE:
                yield from ((point.seed, mark) for mark in figure.marks(point, row.cells))

    def count(self, state: PointState) -> int:
        """Return the number of runs in this state."""
        return sum(row.state is state for row in self.rows.values())

    @property
    def failures(self) -> Iterable[str]:
        """The different reasons of failed runs."""
        return dict.fromkeys(row.error for row in self.rows.values() if row.error)


def sweep_of(title: str, figures: Sequence[Figure]) -> PreparedSweep | None:
    """Return the sweep of all points, each once; none if there are no points."""
    points = {_key(point): point for figure in figures for point in figure.points}
    if not points:
        return None
    return PreparedSweep.of({"title": title, "cases": [dict(point.options) for point in points.values()]}, Path("/"))


def run(
    sweep: PreparedSweep | None,
    figures: Sequence[Figure],
    outcomes: OutcomeFile,
    executor: PassExecutor,
    *,
    watch: Callable[[SweepStatus], None] | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Reproduction:
    """Run the open points, until all are done or ``stopping()``; failed points are tried again."""
    if sweep is None:
        return Reproduction(tuple(figures), {})
    sweep.run(outcomes, executor, retry_failed=True, watch=watch, stopping=stopping)
    keys = dict.fromkeys(_key(point) for figure in figures for point in figure.points)
    rows = zip(keys, sweep.swept(outcomes.known).rows, strict=True)
    return Reproduction(tuple(figures), dict(rows))


def _key(point: Point) -> bytes:
    return wire.encode(dict(sorted(point.options.items())))
