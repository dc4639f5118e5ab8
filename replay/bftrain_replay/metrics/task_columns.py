"""Columns: the table of tasks as arrays, and the times that follow from it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

_TEXTS = ("name", "state", "user", "campaign")


@dataclass(frozen=True, kw_only=True, eq=False)
class TaskColumns:
    """Tasks in their order, with the columns that the table of tasks has. NaN: there is no value."""

    name: tuple[str, ...]
    state: tuple[str, ...]
    user: tuple[str, ...]
    campaign: tuple[str, ...]
    submit_s: Floats
    first_start_s: Floats
    finish_s: Floats
    waited_s: Floats
    node_h: Floats
    work_samples: Floats
    deadline_s: Floats
    shortest_s: Floats
    alone_s: Floats

    @classmethod
    def of_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Self:
        """Take rows of the table of tasks."""
        return cls._of([row.__getitem__ for row in rows])

    @classmethod
    def of_records(cls, records: Iterable[object]) -> Self:
        """Take records that have the columns as attributes."""

        def of(record: object) -> Callable[[str], Any]:
            return lambda name: getattr(record, name)

        return cls._of([of(record) for record in records])

    @classmethod
    def _of(cls, tasks: list[Callable[[str], Any]]) -> Self:
        columns: dict[str, Any] = {}
        for field in fields(cls):
            cells = [task(field.name) for task in tasks]
            if field.name in _TEXTS:
                columns[field.name] = tuple(str(cell or "") for cell in cells)
            else:
                columns[field.name] = np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)
        return cls(**columns)

    def __len__(self) -> int:
        """Count the tasks."""
        return len(self.name)

    def chosen(self, which: Flags) -> TaskColumns:
        """Give some of the tasks only."""
        places = np.flatnonzero(which).tolist()
        columns: dict[str, Any] = {}
        for field in fields(self):
            column = getattr(self, field.name)
            columns[field.name] = tuple(column[place] for place in places) if field.name in _TEXTS else column[places]
        return TaskColumns(**columns)

    @cached_property
    def came_s(self) -> Floats:
        """When they came: what came before the log comes at its start."""
        return np.maximum(self.submit_s, 0.0)

    @cached_property
    def arrived(self) -> Flags:
        """Who came before the end."""
        return np.array([state != "not_arrived" for state in self.state], dtype=bool)

    @cached_property
    def dropped(self) -> Flags:
        """Who was cancelled, or failed for good."""
        return np.array([state == "dropped" for state in self.state], dtype=bool)

    @cached_property
    def ends(self) -> Flags:
        """Who has an end: its work is known, or it is done."""
        return ~np.isnan(self.work_samples) | self.finished

    @cached_property
    def finished(self) -> Flags:
        """Who finished."""
        return ~np.isnan(self.finish_s)

    @cached_property
    def unfinished(self) -> Flags:
        """Who came, has an end, was not given up, and had not reached it when the run ended."""
        return self.arrived & self.ends & ~self.finished & ~self.dropped

    @cached_property
    def completion_s(self) -> Floats:
        """From coming to the end of its work."""
        return self.finish_s - self.came_s

    @cached_property
    def response_s(self) -> Floats:
        """From coming to its first node."""
        return self.first_start_s - self.came_s

    @cached_property
    def waiting_s(self) -> Floats:
        """How long it held no node; NaN if it never came."""
        waiting: Floats = np.where(self.arrived, self.waited_s, np.nan)
        return waiting

    @cached_property
    def slowdown(self) -> Floats:
        """Completion time over the shortest possible."""
        return _over(self.completion_s, self.shortest_s)

    @cached_property
    def rho(self) -> Floats:
        """Completion time over what it takes alone on an n-th part of everything."""
        return _over(self.completion_s, self.alone_s)

    def late_s(self, end_s: float) -> Floats:
        """By how much each has missed its deadline, up to the end of the run; NaN if it has not, or has none."""
        ended = np.where(self.finished, self.finish_s, np.where(self.arrived, end_s, np.nan))
        late = ended - self.deadline_s
        return np.where(late > 0.0, late, np.nan)


def _over(times_s: Floats, others_s: Floats) -> Floats:
    return np.divide(times_s, others_s, out=np.full_like(times_s, np.nan), where=others_s > 0.0)
