"""Findings: what was counted under each hazard while a log was made, and the books of the rows."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec

from bftrain.errors import Fault
from bftrain_datasets.importing.hazard_kinds import HAZARDS
from bftrain_datasets.log.provenance import LogFinding

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


READ: Final = "rows_read"
USED: Final = "rows_used"
ASIDE: Final = "rows_aside_"  # and the reason


class RowCounts(msgspec.Struct, frozen=True, kw_only=True):
    """``read`` = ``used`` + those set ``aside``, by reason."""

    read: int
    used: int
    aside: dict[str, int]

    def to_dict(self) -> dict[str, int]:
        """Give them under the names that they have in a log's provenance."""
        aside = {f"{ASIDE}{reason}": count for reason, count in sorted(self.aside.items())}
        return {READ: self.read, USED: self.used, **aside}

    @classmethod
    def from_dict(cls, counts: Mapping[str, int]) -> RowCounts:
        """Find them among the counts of a log's provenance."""
        aside = {name.removeprefix(ASIDE): count for name, count in counts.items() if name.startswith(ASIDE)}
        return cls(read=counts.get(READ, 0), used=counts.get(USED, 0), aside=aside)


@dataclass(slots=True)
class _Running:
    count: int
    node_s: float
    first: str
    done: str


class FindingsTally:
    """Counts rows and findings while a log is read. Every row is used or set aside, once."""

    def __init__(self) -> None:
        self.read = 0
        self.used = 0
        self.aside: Counter[str] = Counter()
        self._running: dict[str, _Running] = {}
        self.file = ""  # that is being read
        self.line = 0
        self._open = False  # whether the row is neither used nor set aside yet

    @property
    def where(self) -> str:
        """Name the place that is being read."""
        return f"{self.file}:{self.line}" if self.line else self.file

    def row(self, line: int) -> None:
        """Begin a row."""
        if self._open:
            raise Fault("a reader neither used a row nor set it aside", where=self.where)
        self.read += 1
        self.line = line
        self._open = True

    def use(self) -> None:
        """Use the row."""
        self._settle()
        self.used += 1

    def use_many(self, rows: int) -> None:
        """Begin and use so many rows at once."""
        self.read += rows
        self.used += rows

    def set_aside(self, reason: str, node_s: float = 0.0) -> None:
        """Set the row aside."""
        self._settle()
        if not HAZARDS[reason].aside:
            raise Fault(f"'{reason}' is no reason to set a row aside", where=self.where)
        self.aside[reason] += 1
        self.note(reason, node_s=node_s)

    def again(self, file: str, line: int) -> None:
        """Take up a row again that was used, because only now more is known of it."""
        if self._open:
            raise Fault("a reader neither used a row nor set it aside", where=self.where)
        self.used -= 1
        self.file, self.line = file, line
        self._open = True

    def unuse(self, reason: str, where: str, count: int, node_s: float) -> None:
        """Set rows aside that were used before more was known."""
        self.used -= count
        self.aside[reason] += count
        self.note(reason, where=where, count=count, node_s=node_s)

    def note(self, name: str, *, count: int = 1, node_s: float = 0.0, where: str | None = None, done: str = "") -> None:
        """Count something under a hazard; the first place is kept: the one being read, if none is given."""
        known = self._running.get(name)
        if known is None:
            place = self.where if where is None else where
            self._running[name] = _Running(count, node_s, place, done or HAZARDS[name].done)
        else:
            known.count += count
            known.node_s += node_s

    def rows(self) -> RowCounts:
        """Give the books; they balance."""
        if self._open:
            raise Fault("a reader neither used its last row nor set it aside", where=self.where)
        if self.read != self.used + self.aside.total():
            raise Fault(f"of {self.read} rows {self.used} were used and {self.aside.total()} set aside")
        return RowCounts(read=self.read, used=self.used, aside=dict(self.aside))

    def findings(self) -> tuple[LogFinding, ...]:
        """Give what was counted: doubts first, then in the order of the table of hazards.

        A node-time that is the difference of two sums may be less than nothing by its last digit.
        """
        return ordered(
            LogFinding(name=name, count=each.count, node_s=max(0.0, each.node_s), first=each.first, done=each.done)
            for name, each in self._running.items()
        )

    def _settle(self) -> None:
        if not self._open:
            raise Fault("a reader used or set aside a row that it had not begun, or did so twice", where=self.where)
        self._open = False


def ordered(findings: Iterable[LogFinding]) -> tuple[LogFinding, ...]:
    """Doubts first, then in the order of the table of hazards."""
    places = {name: place for place, name in enumerate(HAZARDS)}
    return tuple(sorted(findings, key=lambda each: (not is_doubt(each), places.get(each.name, len(places)))))


def is_doubt(finding: LogFinding) -> bool:
    """Whether ``--strict`` refuses it; a kind that we do not know is."""
    known = HAZARDS.get(finding.name)
    return known is None or known.doubt
