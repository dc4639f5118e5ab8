"""Figures that benchmarks measure, and how they are printed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Figures:
    """Rows of (test, what was measured, number, unit), shared by the figures of all tests."""

    rows: list[tuple[str, str, float, str]] = field(default_factory=list)
    test: str = ""

    def of(self, test: str) -> Figures:
        """Return the same rows, to which ``test`` adds."""
        return Figures(self.rows, test)

    def add(self, what: str, number: float, unit: str = "") -> None:
        self.rows.append((self.test, what, number, unit))

    def lines(self) -> list[str]:
        tests = max((len(test) for test, *_ in self.rows), default=0)
        whats = max((len(what) for _, what, *_ in self.rows), default=0)
        return [
            f"{test:{tests}}  {what:{whats}}  {_plain(number):>12} {unit}".rstrip()
            for test, what, number, unit in self.rows
        ]


def _plain(number: float) -> str:
    """Return four figures, and all of them of a large number."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"
