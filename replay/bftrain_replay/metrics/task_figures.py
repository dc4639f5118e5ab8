"""Figures: what a run took for its tasks, in a few numbers. docs/results.md says what each means."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from bftrain_replay.metrics.percentiles import TaskPercentiles

if TYPE_CHECKING:
    from bftrain_replay.metrics.task_columns import TaskColumns


class UserFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one user got: ``share`` is the part of all node-time that tasks held."""

    tasks: int
    tasks_finished: int
    node_h: float
    share: float | None
    completion_s: TaskPercentiles | None
    slowdown: TaskPercentiles | None
    rho: TaskPercentiles | None


class TaskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of all tasks. Times are seconds; ``None`` where no task reached it; missing tasks are counted."""

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
    """Draw the figures out of the table of tasks of a run that ended ``end_s`` after its start."""
    late_s, rho = tasks.late_s(end_s), tasks.rho
    known = rho[~np.isnan(rho)]
    return TaskFigures(
        tasks_endless=int((tasks.arrived & ~tasks.ends).sum()),
        tasks_unfinished=int(tasks.unfinished.sum()),
        tasks_never_started=int((tasks.arrived & np.isnan(tasks.first_start_s)).sum()),
        completion_s=TaskPercentiles.of(tasks.completion_s),
        completion_at_least_s=_at_least(tasks, end_s),
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
    """Give the figures of every user, by name; nothing where no task has one."""
    names = sorted({*tasks.user})
    if names in ([], [""]):
        return {}
    held_h = math.fsum(tasks.node_h.tolist())
    return {name: _of_user(tasks.chosen(np.array([user == name for user in tasks.user])), held_h) for name in names}


def _of_user(tasks: TaskColumns, held_h: float) -> UserFigures:
    node_h = math.fsum(tasks.node_h.tolist())
    return UserFigures(
        tasks=len(tasks),
        tasks_finished=int(tasks.finished.sum()),
        node_h=node_h,
        share=node_h / held_h if held_h else None,
        completion_s=TaskPercentiles.of(tasks.completion_s),
        slowdown=TaskPercentiles.of(tasks.slowdown),
        rho=TaskPercentiles.of(tasks.rho),
    )


def _at_least(tasks: TaskColumns, end_s: float) -> float | None:
    """Give what the mean completion time is at least: who has not finished has been there up to now."""
    so_far_s = np.where(tasks.unfinished, end_s - tasks.came_s, tasks.completion_s)
    some = so_far_s[~np.isnan(so_far_s)]
    return math.fsum(some.tolist()) / some.size if some.size else None
