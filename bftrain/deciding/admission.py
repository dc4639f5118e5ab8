"""Admission: who competes. First come, first served, up to a number that bounds the decision's effort."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice


@dataclass(frozen=True, slots=True)
class FirstCome:
    """The ``max_tasks`` oldest unfinished tasks compete; the others wait until one of them is over."""

    max_tasks: int = 35
    name: str = "first-come"

    def admit(self, waiting_or_running: Iterator[str], pool: int) -> Sequence[str]:  # noqa: ARG002 - others look at the pool
        """Take the first names."""
        return tuple(islice(waiting_or_running, self.max_tasks))


def first_come(max_tasks: int) -> FirstCome:
    """Build the admission; every registered admission is built from ``max_tasks``."""
    return FirstCome(max_tasks)
