"""Our values beside the published ones, and the difference in percent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import fmean

import msgspec

from bftrain_replay.reproducing.experiment import Figure, Mark, Place, Published
from bftrain_replay.reproducing.running import Reproduction


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One value of a figure: ours, the mean over ``seeds``, and the published one, if there is one.

    ``difference`` is in percent of the published value. A ``saturated`` value has no meaning: the queue grew without
    bound.
    """

    figure: str
    line: str
    x: Place
    seeds: tuple[int, ...]
    ours: float | None
    saturated: bool
    published: float | None = None
    published_seeds: tuple[int, ...] = ()
    source: str = ""

    @property
    def difference(self) -> float | None:
        """The difference in percent, where both values mean something and are of the same seeds."""
        others = bool(self.published_seeds) and self.published_seeds != self.seeds
        if self.ours is None or not self.published or self.saturated or others:
            return None
        return 100.0 * (self.ours / self.published - 1.0)


def compared(done: Reproduction, figure: Figure, published: Sequence[Published]) -> list[Compared]:
    """Return one row for each value of a figure, twice where two values are published."""
    by_place: dict[tuple[str, Place], list[tuple[int, Mark]]] = defaultdict(list)
    for seed, mark in done.marks(figure):
        by_place[mark.line, mark.x].append((seed, mark))
    wanted: dict[tuple[str, Place], list[Published]] = defaultdict(list)
    for value in published:
        if value.figure == figure.name:
            wanted[value.line, value.x].append(value)
    return [row for place, marks in by_place.items() for row in _rows(figure.name, marks, wanted[place])]


def _rows(figure: str, marks: list[tuple[int, Mark]], wanted: list[Published]) -> Iterator[Compared]:
    line, x = marks[0][1].line, marks[0][1].x
    values: list[Published | None] = [*wanted] or [None]
    for value in values:
        own = [each for each in marks if value is None or not value.seeds or each[0] in value.seeds] or marks
        numbers = [mark.y for _, mark in own if mark.y is not None]
        row = Compared(
            figure=figure,
            line=line,
            x=x,
            seeds=tuple(sorted({seed for seed, _ in own})),
            ours=fmean(numbers) if len(numbers) == len(own) else None,
            saturated=any(mark.saturated for _, mark in own),
        )
        if value is None:
            yield row
        else:
            more = {"published": value.value, "published_seeds": value.seeds, "source": value.source}
            yield msgspec.structs.replace(row, **more)
