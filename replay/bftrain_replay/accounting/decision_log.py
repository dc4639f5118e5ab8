"""Compact column store for a run's decisions, sized for millions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain.values.decision import Decision
from bftrain.values.solution import Quality, Termination
from bftrain_replay.accounting.column_file import ColumnFile

NOTES_KEPT: Final = 100  # notes on decisions kept as text; all are counted
_EXACT: Final = "exact"
_PROVEN: Final = _EXACT, Termination.OPTIMAL, Quality.PROVEN
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
        self._rows = ColumnFile(
            dict.fromkeys(("time_s", "value", "bound", "solve_s", "decide_s"), "d")
            | dict.fromkeys(("pool", "used", "competing", "kind", "changes"), "i")
        )
        self._kinds: dict[tuple[str, Termination, Quality], int] = {}
        # Sizes are kept as changes, since most tasks keep theirs; a decision stores its number of changes
        self._changes = ColumnFile({"task": "i", "size": "i"})
        self._tasks: dict[str, int] = {}
        self._sizes: tuple[list[str], list[int]] = [], []  # names and sizes of the last decision
        self.fallbacks: dict[int, str] = {}
        self.fallback_causes: Counter[str] = Counter()  # decisions that are not the solver's, by why it stopped
        self.decided_by: Counter[str] = Counter()
        self.infeasible = 0  # decisions that the solver proved infeasible
        self.notes: list[tuple[float, str]] = []
        self.notes_counted = 0

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def solve_s(self) -> NDArray[np.float64]:
        """The seconds that the solver took for each decision."""
        return self._rows.column("solve_s")

    @property
    def decide_s(self) -> NDArray[np.float64]:
        """The seconds that each decision took."""
        return self._rows.column("decide_s")

    def add(self, decision: Decision, decide_s: float, changes: Collection[tuple[str, int]] | None = None) -> None:
        """Add a decision that took ``decide_s`` seconds; ``changes`` are the sizes that changed, if known."""
        if decision.fallback:
            self.fallbacks[len(self)] = decision.fallback
            self.fallback_causes[str(decision.termination)] += 1
        self.decided_by[decision.decided_by] += 1
        self.infeasible += decision.termination is Termination.INFEASIBLE
        # An answer replayed from an interrupted run counts its original time
        times_s = decision.solve_s, max(decide_s, decision.solve_s)
        nodes = decision.pool, decision.used
        kind = decision.solver, decision.termination, decision.quality
        changes = self._changes_to(decision.sizes) if changes is None else changes
        self.add_row(
            decision.time_s, decision.value, decision.bound, times_s, nodes, len(decision.sizes), kind, changes
        )
        self.add_notes(decision.time_s, decision.notes)

    def add_proven(
        self,
        time_s: float,
        value: float,
        times_s: tuple[float, float],
        nodes: tuple[int, int],
        competing: int,
        changes: Collection[tuple[str, int]],
    ) -> None:
        """Add a decision of ``exact`` that is proven to be the best; see :meth:`add_row`."""
        self.decided_by[_EXACT] += 1
        self.add_row(time_s, value, value, times_s, nodes, competing, _PROVEN, changes)

    def add_row(
        self,
        time_s: float,
        value: float,
        bound: float | None,
        times_s: tuple[float, float],
        nodes: tuple[int, int],
        competing: int,
        kind: tuple[str, Termination, Quality],
        changes: Collection[tuple[str, int]],
    ) -> None:
        """Add a row: the seconds of solver and decision, nodes idle and used, and the sizes that changed."""
        tasks = self._tasks
        if changes:
            self._changes.add_all([(tasks.setdefault(name, len(tasks)), size) for name, size in changes])
        bound = math.nan if bound is None else bound
        kind_number = self._kinds.setdefault(kind, len(self._kinds))
        self._rows.add(time_s, value, bound, *times_s, *nodes, competing, kind_number, len(changes))

    def add_notes(self, time_s: float, notes: Sequence[str]) -> None:
        """Add the notes of a decision."""
        if notes:
            self.notes_counted += len(notes)
            room = NOTES_KEPT - len(self.notes)
            self.notes.extend((time_s, note) for note in notes[:room])

    def _changes_to(self, sizes: Mapping[str, int]) -> list[tuple[str, int]]:
        """Return the size changes since the last decision."""
        names, numbers = list(sizes), list(sizes.values())
        names_before, numbers_before = self._sizes
        if names == names_before:
            if numbers == numbers_before:
                return []
            triples = zip(names, numbers, numbers_before, strict=True)
            changed = [(name, size) for name, size, was in triples if size != was]
        else:
            before = dict(zip(names_before, numbers_before, strict=True))
            changed = [(name, 0) for name, size in before.items() if size and name not in sizes]
            changed += [(name, size) for name, size in sizes.items() if before.get(name, 0) != size]
        self._sizes = names, numbers
        return changed

    def sizes(self) -> Iterator[Mapping[str, int]]:
        """Yield the sizes after each decision, without tasks of size 0."""
        names, sizes = list(self._tasks), dict[str, int]()
        changes = (
            change
            for block in self._changes.blocks()
            for change in zip(block["task"].tolist(), block["size"].tolist(), strict=True)
        )
        for block in self._rows.blocks():
            for count in block["changes"].tolist():
                if count:
                    sizes = dict(sizes)
                for task, size in islice(changes, count):
                    if size:
                        sizes[names[task]] = size
                    else:
                        sizes.pop(names[task], None)
                yield sizes

    def rows(self) -> Iterator[tuple[object, ...]]:
        """Yield the table's rows; all are independent of machine speed."""
        kinds = [tuple(map(str, kind)) for kind in self._kinds]
        sizes, place = self.sizes(), 0
        for block in self._rows.blocks():
            columns = (block[name].tolist() for name in ("time_s", "pool", "used", "competing", "value"))
            for row, bound, kind in zip(
                zip(*columns, strict=True), block["bound"].tolist(), block["kind"].tolist(), strict=True
            ):
                reason = self.fallbacks.get(place, "")
                place += 1
                yield (place, *row, None if math.isnan(bound) else bound, *kinds[kind], reason, next(sizes))


def spread_ms(seconds: NDArray[np.float64]) -> TimeSpread:
    """Summarise measured seconds."""
    if not seconds.size:
        return TimeSpread(p50=0.0, p99=0.0, max=0.0)
    p50, p99, top = (np.percentile(seconds, (50, 99, 100)) * 1000.0).tolist()
    return TimeSpread(p50=p50, p99=p99, max=top)


def bins_ms(seconds: NDArray[np.float64]) -> tuple[HistogramBin, ...]:
    """Count measured seconds in logarithmic bins, ten for a factor of ten, from the first to the last occupied one."""
    if not seconds.size:
        return ()
    tenths = np.floor(10.0 * np.log10(np.maximum(seconds * 1000.0, _SHORTEST_MS)) + 1e-9).astype(int)
    counts = np.bincount(tenths - tenths.min())
    edges = [round(10.0 ** (tenth / 10), 9) for tenth in range(tenths.min(), tenths.max() + 2)]
    return tuple(
        HistogramBin(from_ms=low, to_ms=high, count=count)
        for low, high, count in zip(edges[:-1], edges[1:], counts.tolist(), strict=True)
    )
