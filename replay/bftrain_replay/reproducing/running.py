"""The points of an experiment's figures as sweeps, and the rows of finished points."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bftrain.values import wire
from bftrain_replay.reproducing.experiment import Figure, Mark, Point, XValue
from bftrain_replay.sweeping.sweep import PreparedSweep
from bftrain_replay.sweeping.sweep_runs import PassOutcome
from bftrain_replay.sweeping.sweep_table import PointRow, PointState


class FigureSweep(NamedTuple):
    """A sweep and the keys of its points. ``timed``: the points must run one by one, without the cache."""

    keys: tuple[bytes, ...]
    prepared: PreparedSweep
    timed: bool

    def rows(self, known: Mapping[str, PassOutcome]) -> dict[bytes, PointRow]:
        """Return the rows of all points by key, from these outcomes."""
        return dict(zip(self.keys, self.prepared.swept(known).rows, strict=True))


@dataclass(frozen=True)
class Reproduction:
    """The figures of an experiment and the rows of its sweep, by the options of a point."""

    figures: tuple[Figure, ...]
    rows: Mapping[bytes, PointRow]

    def marks(self, figure: Figure) -> Iterator[tuple[int, Mark]]:
        """Yield the seed and each value of the finished points of a figure, and its computed values with seed 0."""
        yield from ((0, mark) for mark in figure.computed_marks)
        divisors: dict[tuple[int, str, XValue], Mark] = {}
        for point in sorted(figure.points, key=lambda point: not point.divides):
            row = self.rows[_key(point)]
            for mark in figure.marks(point, row.cells) if row.state is PointState.DONE else ():
                key = point.seed, mark.line, mark.x
                if point.divides:
                    divisors[key] = mark
                elif key in divisors:
                    yield point.seed, mark.over(divisors[key])
                elif not any(other.divides for other in figure.points):
                    yield point.seed, mark

    def count(self, state: PointState) -> int:
        """Return the number of runs in this state."""
        return sum(row.state is state for row in self.rows.values())

    @property
    def failures(self) -> Iterable[str]:
        """The different reasons of failed runs."""
        return dict.fromkeys(row.error for row in self.rows.values() if row.error)


def sweeps_of(title: str, figures: Sequence[Figure]) -> list[FigureSweep]:
    """Return the sweep of the points of ordinary figures, then of machine-dependent ones; each point runs once."""
    sweeps = []
    for timed in (False, True):
        group = [figure for figure in figures if figure.machine_dependent is timed]
        points = {_key(point): point for figure in group for point in figure.points}
        if points:
            spec = {"title": title, "cases": [dict(point.options) for point in points.values()]}
            sweeps.append(FigureSweep(tuple(points), PreparedSweep.of(spec, Path("/")), timed))
    return sweeps


def _key(point: Point) -> bytes:
    return wire.encode(dict(sorted(point.options.items())))
