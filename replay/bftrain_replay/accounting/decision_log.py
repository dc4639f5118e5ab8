"""The decisions of a run, column by column, so that a million of them stay small."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np

from bftrain.values.decision import Decision
from bftrain.values.solution import Termination

NOTES_KEPT: Final = 100  # of what a decision has to say beyond figures; all are counted
_SHORTEST_MS: Final = 1e-4  # the finest bin


class TimeSpread(msgspec.Struct, frozen=True, kw_only=True):
    """Median, 99th percentile and maximum of measured times, milliseconds."""

    p50: float
    p99: float
    max: float


class HistogramBin(msgspec.Struct, frozen=True, kw_only=True):
    """The number of measured times from ``from_ms`` on and below ``to_ms``."""

    from_ms: float
    to_ms: float
    count: int


class DecisionColumns:
    """The decisions of a run: time, reason, quality and duration."""

    def __init__(self) -> None:
        self._time_s, self._value, self._bound = array("d"), array("d"), array("d")
        self.solve_s, self.decide_s = array("d"), array("d")
        self._pool, self._used, self._competing, self._kind = array("i"), array("i"), array("i"), array("i")
        self._kinds: dict[tuple[str, str, str], int] = {}
        # Sizes are kept as changes, since most tasks keep theirs: how many in a decision, and task and size of each
        self._changes, self._changed_task, self._changed_size = array("i"), array("i"), array("i")
        self._tasks: dict[str, int] = {}
        self._sizes: Mapping[str, int] = {}
        self.fallbacks: dict[int, str] = {}
        self.fallback_causes: Counter[str] = Counter()  # decisions that are not the solver's, by why it stopped
        self.decided_by: Counter[str] = Counter()
        self.infeasible = 0  # decisions in which the solver found that there is no plan
        self.notes: list[tuple[float, str]] = []
        self.notes_counted = 0

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled: read-only views, which the sizes of a decision are, cannot be."""
        return {**vars(self), "_sizes": dict(self._sizes)}

    def __len__(self) -> int:
        return len(self._time_s)

    def add(self, decision: Decision, decide_s: float) -> None:
        """Add a decision that took ``decide_s`` seconds."""
        if decision.fallback:
            self.fallbacks[len(self)] = decision.fallback
            self.fallback_causes[str(decision.termination)] += 1
        self.decided_by[decision.decided_by] += 1
        self.infeasible += decision.termination is Termination.INFEASIBLE
        self._time_s.append(decision.time_s)
        self._pool.append(decision.pool)
        self._used.append(decision.used)
        self._competing.append(len(decision.sizes))
        self._value.append(decision.value)
        self._bound.append(math.nan if decision.bound is None else decision.bound)
        kind = (decision.solver, str(decision.termination), str(decision.quality))
        self._kind.append(self._kinds.setdefault(kind, len(self._kinds)))
        self.solve_s.append(decision.solve_s)
        # An answer that is repeated from an interrupted run took as long as when it was new
        self.decide_s.append(max(decide_s, decision.solve_s))
        before, count = self._sizes, len(self._changed_task)
        if decision.sizes != before:
            if list(decision.sizes) == list(before):
                pairs = zip(decision.sizes.items(), before.values(), strict=True)
                changed = [(name, size) for (name, size), was in pairs if size != was]
            else:
                changed = [(name, 0) for name in before if name not in decision.sizes and before[name]]
                changed += [(name, size) for name, size in decision.sizes.items() if before.get(name, 0) != size]
            for name, size in changed:
                self._note_size(name, size)
            self._sizes = decision.sizes
        self._changes.append(len(self._changed_task) - count)
        if decision.notes:
            self.notes_counted += len(decision.notes)
            room = NOTES_KEPT - len(self.notes)
            self.notes.extend((decision.time_s, note) for note in decision.notes[:room])

    def _note_size(self, name: str, size: int) -> None:
        self._changed_task.append(self._tasks.setdefault(name, len(self._tasks)))
        self._changed_size.append(size)

    def sizes(self) -> Iterator[Mapping[str, int]]:
        """Yield the sizes after each decision, without tasks that hold nothing."""
        names, sizes, begin = list(self._tasks), dict[str, int](), 0
        for count in self._changes:
            if count:
                sizes = dict(sizes)
            for place in range(begin, begin + count):
                name, size = names[self._changed_task[place]], self._changed_size[place]
                if size:
                    sizes[name] = size
                else:
                    sizes.pop(name, None)
            begin += count
            yield sizes

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Yield the rows of the table; none of them depends on the speed of the machine."""
        kinds = list(self._kinds)
        sizes = self.sizes()
        for place, time_s in enumerate(self._time_s):
            bound = self._bound[place]
            yield (
                place + 1,
                time_s,
                self._pool[place],
                self._used[place],
                self._competing[place],
                self._value[place],
                None if math.isnan(bound) else bound,
                *kinds[self._kind[place]],
                self.fallbacks.get(place, ""),
                next(sizes),
            )


def spread_ms(seconds: array[float]) -> TimeSpread:
    """Summarise measured seconds."""
    if not seconds:
        return TimeSpread(p50=0.0, p99=0.0, max=0.0)
    p50, p99, top = (np.percentile(np.array(seconds), (50, 99, 100)) * 1000.0).tolist()
    return TimeSpread(p50=p50, p99=p99, max=top)


def bins_ms(seconds: array[float]) -> tuple[HistogramBin, ...]:
    """Count measured seconds in logarithmic bins, ten for a factor of ten, from the first to the last occupied one."""
    if not seconds:
        return ()
    tenths = np.floor(10.0 * np.log10(np.maximum(np.array(seconds) * 1000.0, _SHORTEST_MS)) + 1e-9).astype(int)
    counts = np.bincount(tenths - tenths.min())
    edges = [round(10.0 ** (tenth / 10), 9) for tenth in range(tenths.min(), tenths.max() + 2)]
    return tuple(
        HistogramBin(from_ms=low, to_ms=high, count=count)
        for low, high, count in zip(edges[:-1], edges[1:], counts.tolist(), strict=True)
    )
