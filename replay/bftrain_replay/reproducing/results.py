"""The runs of an experiment's figures, and our values next to the published ones."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, combinations
from statistics import fmean
from typing import Final, NamedTuple, Self

import msgspec

from bftrain.values import wire
from bftrain_replay.reproducing.experiment import (
    FOLDER,
    RATE,
    Experiment,
    Figure,
    Mark,
    Point,
    Published,
    Request,
    XValue,
    published,
)
from bftrain_replay.rounds.round_engine import OVERLOAD
from bftrain_replay.sweeping.sweep import PreparedSweep
from bftrain_replay.sweeping.sweep_table import PointRow, PointState

CLOSE: Final = 3.0  # percent: a smaller difference counts as agreement
_LOADS_AT_ONCE: Final = 3  # each wave starts workers, which load their inputs again


def run_all(
    title: str, figures: Sequence[Figure], run: Callable[[PreparedSweep, bool], Sequence[PointRow]]
) -> dict[bytes, PointRow]:
    """Run all points, each once, lower loads first; return their rows by key.

    ``run`` gets a sweep, and whether it must run point by point, without the cache, to measure times. Loads above a
    saturated one are not simulated: they have its row.
    """
    rows: dict[bytes, PointRow] = {}
    saturated: dict[bytes, PointRow] = {}  # the first saturated run of all loads of a line and seed
    for timed in (False, True):
        group = [figure for figure in figures if figure.machine_dependent is timed]
        points = {_key(point): point for figure in group for point in figure.points}
        for wave in _waves(points):
            rows |= {key: saturated[load] for key, load in wave.items() if load in saturated}
            keys = [key for key in wave if key not in rows]
            if keys:
                spec = {"title": title, "cases": [dict(points[key].options) for key in keys]}
                rows |= zip(keys, run(PreparedSweep.of(spec, FOLDER), timed), strict=True)
            for key in keys:
                if rows[key].cells.get("ended") == OVERLOAD:
                    saturated.setdefault(wave[key], rows[key])
    return rows


def _waves(points: Mapping[bytes, Point]) -> Iterator[dict[bytes, bytes]]:
    """Yield a few loads at a time, the lowest first: keys of points, and their keys without the load."""
    loads: dict[bytes, list[tuple[float, bytes]]] = defaultdict(list)
    for key, point in points.items():
        loads[_key(point, without=RATE)].append((point.options.get(RATE, 0.0), key))
    for first in range(0, max(map(len, loads.values()), default=0), _LOADS_AT_ONCE):
        parts = {load: sorted(runs)[first : first + _LOADS_AT_ONCE] for load, runs in loads.items()}
        chosen = {key: load for load, runs in parts.items() for _, key in runs}
        yield {key: chosen[key] for key in points if key in chosen}


def _key(point: Point, without: str = "") -> bytes:
    return wire.encode({name: value for name, value in sorted(point.options.items()) if name != without})


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a figure: ours, the mean over ``seeds``, and the published one, if any.

    A ``saturated`` value is omitted: the queue grows without bound. ``difference_percent`` is ``None`` for values of
    different seeds or machines.
    """

    figure: str
    line: str
    x: XValue
    seeds: tuple[int, ...]
    ours: float | None
    published: float | None = None
    difference_percent: float | None = None
    saturated: bool = False
    published_seeds: tuple[int, ...] = ()
    source: str = ""


class Agreement(NamedTuple):
    """The agreement of values: how many are compared and close, and the largest difference in percent.

    ``pairs`` counts the pairs of lines with clearly different published values at one x; ``in_order`` counts the pairs
    that our values order in the same way.
    """

    compared: int
    close: int
    largest: float | None
    pairs: int
    in_order: int

    @classmethod
    def of(cls, values: Iterable[Value]) -> Self:
        """Compare these values."""
        differences, in_order = [], []
        by_x: dict[tuple[str, XValue, str], list[tuple[str, float, float]]] = defaultdict(list)
        for value in values:
            if value.difference_percent is not None and value.ours and value.published:
                differences.append(abs(value.difference_percent))
                by_x[value.figure, value.x, value.source].append((value.line, value.ours, value.published))
        for group in by_x.values():
            for (line, ours, theirs), (other_line, our_other, their_other) in combinations(group, 2):
                gap = theirs / their_other - 1.0
                if line != other_line and abs(gap) > CLOSE / 100.0:
                    in_order.append((ours / our_other - 1.0) * gap > 0.0)
        close = sum(difference <= CLOSE for difference in differences)
        return cls(len(differences), close, max(differences, default=None), len(in_order), sum(in_order))


@dataclass(frozen=True)
class Reproduction:
    """The figures of an experiment and its runs, by the options of a point."""

    experiment: Experiment
    request: Request
    figures: tuple[Figure, ...]
    runs: Mapping[bytes, PointRow]

    @cached_property
    def values(self) -> dict[str, list[Value]]:
        """The values by figure, one for each line and x; two where two values are published."""
        return {figure.name: list(chain(*self._compared(figure))) for figure in self.figures}

    @cached_property
    def _published(self) -> dict[tuple[str, str, XValue], list[Published]]:
        names, by_key = {figure.name for figure in self.figures}, defaultdict(list)
        for value in published(self.experiment.name):
            if value.figure in names:
                by_key[value.figure, value.line, value.x].append(value)
        return by_key

    @property
    def not_run(self) -> int:
        """The number of published values of these figures without a counterpart."""
        values = chain(*self.values.values())
        keys = {(value.figure, value.line, value.x) for value in values if value.ours is not None or value.saturated}
        return sum(len(values) for key, values in self._published.items() if key not in keys)

    def count(self, state: PointState) -> int:
        """Return the number of runs in this state."""
        return sum(run.state is state for run in self.runs.values())

    @property
    def failure(self) -> str:
        """The reason of the first failed run; empty if all succeeded."""
        return next((run.error for run in self.runs.values() if run.error), "")

    def _compared(self, figure: Figure) -> Iterable[list[Value]]:
        by_key: dict[tuple[str, XValue], dict[int, Mark]] = defaultdict(dict)
        for seed, mark in self._marks(figure):
            by_key[mark.line, mark.x][seed] = mark
        for (line, x), marks in by_key.items():
            yield [_value(figure, marks, one) for one in self._published.get((figure.name, line, x), [None])]

    def _marks(self, figure: Figure) -> list[tuple[int, Mark]]:
        """Return the seed and each value of the finished points of a figure, and its computed values with seed 0."""
        marks: dict[bool, dict[tuple[int, str, XValue], Mark]] = {False: {}, True: {}}
        for point in figure.points:
            run = self.runs[_key(point)]
            for mark in figure.marks(point, run.cells) if run.state is PointState.DONE else ():
                marks[point.divides][point.seed, mark.line, mark.x] = mark
        values, divisors = marks[False], marks[True]
        if any(point.divides for point in figure.points):
            values = {key: mark.over(divisors[key]) for key, mark in values.items() if key in divisors}
        return [(0, mark) for mark in figure.computed_marks] + [(seed, mark) for (seed, *_), mark in values.items()]


def _value(figure: Figure, marks: Mapping[int, Mark], one: Published | None) -> Value:
    """Compare with the mean over the published seeds, or over all seeds if no published seed ran."""
    used = {seed: mark for seed, mark in marks.items() if one and seed in one.seeds} or marks
    numbers = [mark.y for mark in used.values() if mark.y is not None]
    saturated, mark, seeds = (
        any(mark.saturated for mark in used.values()),
        next(iter(marks.values())),
        tuple(sorted(used)),
    )
    ours = None if saturated or len(numbers) < len(used) else fmean(numbers)
    value = Value(figure=figure.name, line=mark.line, x=mark.x, seeds=seeds, ours=ours, saturated=saturated)
    if one is None:
        return value
    comparable = one.seeds in {(), seeds} and one.value and not figure.machine_dependent
    difference = 100.0 * (ours / one.value - 1.0) if comparable and ours is not None else None
    return msgspec.structs.replace(
        value, published=one.value, difference_percent=difference, published_seeds=one.seeds, source=one.source
    )
