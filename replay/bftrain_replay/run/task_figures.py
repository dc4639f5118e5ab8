"""Figures of a run over its tasks, users and node kinds. docs/reference/results.md explains each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from bftrain_replay.run.fair_time import IdlePools
from bftrain_replay.run.tables import SECONDS_AN_HOUR


class TaskPercentiles(msgspec.Struct, frozen=True, kw_only=True):
    """The number of known values, and their mean, median, 95th percentile and maximum."""

    count: int
    mean: float
    p50: float
    p95: float
    max: float

    @classmethod
    def of(cls, values: NDArray[np.float64]) -> Self | None:
        """Summarise the known values (not NaN); return ``None`` if all are unknown."""
        known = values[~np.isnan(values)]
        if not known.size:
            return None
        p50, p95 = np.percentile(known, (50.0, 95.0)).tolist()
        mean = math.fsum(known.tolist()) / known.size  # an exact sum, independent of task order
        return cls(count=int(known.size), mean=mean, p50=p50, p95=p95, max=float(known.max()))


def share_of(part: float | None, whole: float | None) -> float | None:
    """Return a part as a fraction of the whole; ``None`` if either is unknown, or the whole is 0."""
    return float(part) / float(whole) if part is not None and whole else None


class KindFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one kind: idle and allocated node-hours, and their ratio."""

    idle_node_h: float
    used_node_h: float
    coverage: float | None


def kind_figures(pools: IdlePools, used_node_s: Mapping[str, float]) -> dict[str, KindFigures]:
    """Return the figures of every kind of the pool."""
    lengths_s = np.diff(pools.times_s, append=pools.end_s)
    found = {}
    for kind, nodes in pools.counts.items():
        idle_s, used_s = math.fsum((nodes * lengths_s).tolist()), used_node_s.get(kind, 0.0)
        found[kind] = KindFigures(
            idle_node_h=idle_s / SECONDS_AN_HOUR,
            used_node_h=used_s / SECONDS_AN_HOUR,
            coverage=share_of(used_s, idle_s),
        )
    return found


def cost_of(kinds: Mapping[str, KindFigures], prices: Mapping[str, float]) -> float | None:
    """Return allocated node-hours times the price of their kind (default: 1); ``None`` without prices."""
    if not prices:
        return None
    return math.fsum(figures.used_node_h * prices.get(kind, 1.0) for kind, figures in kinds.items())


Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_TEXTS = ("name", "state", "user", "campaign")


class TaskColumns(msgspec.Struct, frozen=True, kw_only=True, eq=False, dict=True):
    """Columns of the table of tasks, and times derived from them; NaN marks a missing value."""

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
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> Self:
        """Read the columns from rows of the table of tasks."""
        rows, columns = list(rows), dict[str, Any]()
        for name in cls.__struct_fields__:
            cells = [row[name] for row in rows]
            if name in _TEXTS:
                columns[name] = tuple(str(cell or "") for cell in cells)
            else:
                columns[name] = np.array([np.nan if cell is None else cell for cell in cells], dtype=np.float64)
        return cls(**columns)

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.name)

    def chosen(self, which: Flags) -> TaskColumns:
        """Return the chosen tasks only."""
        places = np.flatnonzero(which).tolist()
        columns: dict[str, Any] = {}
        for name in self.__struct_fields__:
            column = getattr(self, name)
            columns[name] = tuple(column[place] for place in places) if name in _TEXTS else column[places]
        return TaskColumns(**columns)

    @cached_property
    def came_s(self) -> Floats:
        """Return the submission times; tasks submitted before the log count from its start."""
        return np.maximum(self.submit_s, 0.0)

    @cached_property
    def arrived(self) -> Flags:
        """Return which tasks were submitted before the end."""
        return np.array([state != "not_arrived" for state in self.state], dtype=bool)

    @cached_property
    def dropped(self) -> Flags:
        """Return which tasks were cancelled, or failed for good."""
        return np.array([state == "dropped" for state in self.state], dtype=bool)

    @cached_property
    def ends(self) -> Flags:
        """Return which tasks have an end: their work is known, or they finished."""
        return ~np.isnan(self.work_samples) | self.finished

    @cached_property
    def finished(self) -> Flags:
        """Return which tasks finished."""
        return ~np.isnan(self.finish_s)

    @cached_property
    def unfinished(self) -> Flags:
        """Return which tasks are unfinished: submitted, with an end, not dropped and not finished."""
        return self.arrived & self.ends & ~self.finished & ~self.dropped

    @cached_property
    def completion_s(self) -> Floats:
        """Return the times from submission to completion."""
        return self.finish_s - self.came_s

    @cached_property
    def response_s(self) -> Floats:
        """Return the times from submission to the first node."""
        return self.first_start_s - self.came_s

    @cached_property
    def waiting_s(self) -> Floats:
        """Return each task's time without nodes; NaN if never submitted."""
        waiting: Floats = np.where(self.arrived, self.waited_s, np.nan)
        return waiting

    @cached_property
    def slowdown(self) -> Floats:
        """Return completion times divided by the shortest possible ones."""
        return _over(self.completion_s, self.shortest_s)

    @cached_property
    def rho(self) -> Floats:
        """Return completion times divided by the times alone on 1/n of the nodes."""
        return _over(self.completion_s, self.alone_s)

    @property
    def makespan_s(self) -> float | None:
        """The time from the first submission to the last finish; ``None`` unless every task finished."""
        if not self.finished.size or not self.finished.all():
            return None
        return float(self.finish_s.max()) - float(self.came_s.min())

    def late_s(self, end_s: float) -> Floats:
        """Return each task's lateness after its deadline, up to the time the run stopped.

        NaN for tasks on time or without deadlines.
        """
        ended = np.where(self.finished, self.finish_s, np.where(self.arrived, end_s, np.nan))
        late = ended - self.deadline_s
        return np.where(late > 0.0, late, np.nan)


def _over(times_s: Floats, others_s: Floats) -> Floats:
    return np.divide(times_s, others_s, out=np.full_like(times_s, np.nan), where=others_s > 0.0)


class UserFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one user: ``share`` is the fraction of all allocated node-time."""

    tasks: int
    tasks_finished: int
    node_h: float
    share: float | None
    completion_s: TaskPercentiles | None
    slowdown: TaskPercentiles | None
    rho: TaskPercentiles | None


class TaskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of all tasks. Times are seconds; a distribution is ``None`` if no task has a value.

    ``tasks_endless``, ``tasks_unfinished`` and ``tasks_never_started`` count the tasks that distributions leave out.
    """

    tasks_endless: int
    tasks_unfinished: int
    tasks_never_started: int
    completion_s: TaskPercentiles | None
    completion_at_least_s: float | None
    response_s: TaskPercentiles | None
    waited_s: TaskPercentiles | None
    slowdown: TaskPercentiles | None
    rho: TaskPercentiles | None
    rho_over_1: float | None
    deadlines: int
    deadlines_missed: int
    late_s: TaskPercentiles | None
    users: dict[str, UserFigures]


def task_figures(tasks: TaskColumns, end_s: float) -> TaskFigures:
    """Compute the figures from the task table of a run that stopped ``end_s`` after its start."""
    late_s, rho = tasks.late_s(end_s), tasks.rho
    known = rho[~np.isnan(rho)]
    # Lower bound of the mean completion time: unfinished tasks count their time so far
    so_far_s = np.where(tasks.unfinished, end_s - tasks.came_s, tasks.completion_s)
    some = so_far_s[~np.isnan(so_far_s)]
    return TaskFigures(
        tasks_endless=int((tasks.arrived & ~tasks.ends).sum()),
        tasks_unfinished=int(tasks.unfinished.sum()),
        tasks_never_started=int((tasks.arrived & np.isnan(tasks.first_start_s)).sum()),
        completion_s=TaskPercentiles.of(tasks.completion_s),
        completion_at_least_s=math.fsum(some.tolist()) / some.size if some.size else None,
        response_s=TaskPercentiles.of(tasks.response_s),
        waited_s=TaskPercentiles.of(tasks.waiting_s),
        slowdown=TaskPercentiles.of(tasks.slowdown),
        rho=TaskPercentiles.of(rho),
        rho_over_1=float((known > 1.0).mean()) if known.size else None,
        deadlines=int((~np.isnan(tasks.deadline_s)).sum()),
        deadlines_missed=int((~np.isnan(late_s)).sum()),
        late_s=TaskPercentiles.of(late_s),
        users=user_figures(tasks),
    )


def user_figures(tasks: TaskColumns) -> dict[str, UserFigures]:
    """Return the figures of every user, by name; empty if no task has a user."""
    names = sorted({*tasks.user})
    if names in ([], [""]):
        return {}
    held_h, found = math.fsum(tasks.node_h.tolist()), {}
    for name in names:
        own = tasks.chosen(np.array([user == name for user in tasks.user]))
        node_h = math.fsum(own.node_h.tolist())
        found[name] = UserFigures(
            tasks=len(own),
            tasks_finished=int(own.finished.sum()),
            node_h=node_h,
            share=share_of(node_h, held_h),
            completion_s=TaskPercentiles.of(own.completion_s),
            slowdown=TaskPercentiles.of(own.slowdown),
            rho=TaskPercentiles.of(own.rho),
        )
    return found
