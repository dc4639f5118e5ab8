"""Figures that benchmarks measure, and how they are printed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Figures:
    """Rows of (test, what was measured, number, unit), shared by the figures of all tests."""

    rows: list[tuple[str, str, float, str]] = field(default_factory=list)
    test: str = ""

    def of(self, test: str) -> Figures:
        """Give the same rows, to which ``test`` adds."""
        return Figures(self.rows, test)

    def add(self, what: str, number: float, unit: str = "") -> None:
        """Add one figure."""
        self.rows.append((self.test, what, number, unit))

    def lines(self) -> list[str]:
        """Give the rows as a table."""
        wide = [max((len(row[column]) for row in self.rows), default=0) for column in (0, 1)]
        return [
            f"{test:{wide[0]}}  {what:{wide[1]}}  {number:>12,.4g} {unit}".rstrip()
            for test, what, number, unit in self.rows
        ]
