"""Our values next to the published ones, and the difference in percent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Final, NamedTuple, Self

import msgspec

from bftrain_replay.reproducing.experiment import Figure, Mark, Published, XValue
from bftrain_replay.reproducing.running import Reproduction

CLOSE: Final = 3.0  # percent: a smaller difference counts as agreement


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a figure: ours, the mean over ``seeds``, and the published one, if there is one.

    A ``saturated`` value has no meaning: the queue grows without bound.
    """

    figure: str
    line: str
    x: XValue
    seeds: tuple[int, ...]
    ours: float | None
    saturated: bool = False
    machine_dependent: bool = False
    published: float | None = None
    published_seeds: tuple[int, ...] = ()
    source: str = ""

    @property
    def difference(self) -> float | None:
        """The difference in percent of the published value; none between different seeds or machines."""
        other_seeds = bool(self.published_seeds) and self.published_seeds != self.seeds
        if self.ours is None or not self.published or self.saturated or self.machine_dependent or other_seeds:
            return None
        return 100.0 * (self.ours / self.published - 1.0)


class Agreement(NamedTuple):
    """The agreement of values: how many are compared and close, and the largest difference in percent.

    Of the ``pairs`` of lines whose published values at one x are not close, ``in_order`` have our values in this order.
    """

    compared: int
    close: int
    largest: float | None
    pairs: int
    in_order: int

    @classmethod
    def of(cls, rows: Sequence[Compared]) -> Self:
        """Compare these values."""
        differences = [abs(row.difference) for row in rows if row.difference is not None]
        ratios = []
        by_x: dict[tuple[str, XValue, str], list[Compared]] = defaultdict(list)
        for row in rows:
            if row.difference is not None:
                by_x[row.figure, row.x, row.source].append(row)
        for group in by_x.values():
            for one, other in combinations(group, 2):
                theirs = _ratio(one.published, other.published)
                if one.line != other.line and abs(theirs - 1.0) > CLOSE / 100.0:
                    ratios.append((_ratio(one.ours, other.ours) - 1.0) * (theirs - 1.0) > 0.0)
        close = sum(difference <= CLOSE for difference in differences)
        return cls(len(differences), close, max(differences, default=None), len(ratios), sum(ratios))


def _ratio(one: float | None, other: float | None) -> float:
    return (one or 0.0) / other if other else 1.0


def compared(reproduction: Reproduction, figure: Figure, published: Sequence[Published]) -> list[Compared]:
    """Return one row for each value of a figure, twice where two values are published."""
    marks: dict[tuple[str, XValue], dict[int, Mark]] = defaultdict(dict)
    for seed, mark in reproduction.marks(figure):
        if marks[mark.line, mark.x].setdefault(seed, mark) is not mark:
            raise ValueError(f"figure {figure.name}: two values for {mark.line}, {mark.x} with seed {seed}")
    published_by_key: dict[tuple[str, XValue], list[Published]] = defaultdict(list)
    for value in published:
        if value.figure == figure.name:
            published_by_key[value.line, value.x].append(value)
    return [
        _row(figure, by_seed, value) for key, by_seed in marks.items() for value in published_by_key.get(key, (None,))
    ]


def missing(rows: Sequence[Compared], figures: Sequence[Figure], published: Sequence[Published]) -> list[Published]:
    """Return the published values of these figures that no row has a counterpart for."""
    names = {figure.name for figure in figures}
    keys = {(row.figure, row.line, row.x) for row in rows if row.ours is not None or row.saturated}
    return [value for value in published if value.figure in names and (value.figure, value.line, value.x) not in keys]


def _row(figure: Figure, marks: Mapping[int, Mark], value: Published | None) -> Compared:
    """Compare with the mean over the published seeds, or over all seeds if none of them ran."""
    same_seeds = {seed: mark for seed, mark in marks.items() if value and seed in value.seeds} or marks
    numbers = [mark.y for mark in same_seeds.values() if mark.y is not None]
    any_mark = next(iter(marks.values()))
    row = Compared(
        figure=figure.name,
        line=any_mark.line,
        x=any_mark.x,
        seeds=tuple(sorted(same_seeds)),
        ours=fmean(numbers) if len(numbers) == len(same_seeds) else None,
        saturated=any(mark.saturated for mark in same_seeds.values()),
        machine_dependent=figure.machine_dependent,
    )
    if value is None:
        return row
    return msgspec.structs.replace(row, published=value.value, published_seeds=value.seeds, source=value.source)
