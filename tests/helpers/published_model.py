"""The published task x node programme, for comparison only: one 0/1 column for every task and every node.

For a task with ``C`` of ``N`` nodes now and ``n`` afterwards, changing ``W`` of its nodes:

    W <= n - C + M (1 - up)          W <= C - n + M up

so that it only grows (up) or only shrinks. When ``up`` is 0 the first row reads ``W <= M - W``, so ``M`` must be at
least ``2 N``; the published code has ``N + 1``, and no task can change by more than ``(N + 1) / 2`` nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from bftrain import AllocationProblem, CompetingTask
from bftrain_solvers.matrix import MatrixBuilder, ModelMatrix


def published_model(problem: AllocationProblem, big: int) -> ModelMatrix:
    """Return the programme for throughput, with ``big`` for ``M``: ``2 * pool + 1`` is right, ``pool + 1`` published.

    The objective lacks a constant: nothing, as every task's speed enters with its choice of size.
    """
    builder = MatrixBuilder()
    worth: dict[int, float] = {}
    users: list[dict[int, float]] = [{} for _ in range(problem.pool)]
    first_held = 0
    for task in problem.tasks:
        held = range(first_held, first_held + task.size)
        first_held += task.size
        on_node = [builder.column(0.0, 1.0, integer=True) for _ in range(problem.pool)]
        for node, column in enumerate(on_node):
            users[node][column] = 1.0
        size = _size(builder, task, problem, worth)
        builder.row({**dict.fromkeys(on_node, 1.0), size: -1.0}, 0.0, 0.0)
        _only_grow_or_only_shrink(builder, task, (size, on_node), held, big)
        _costs(builder, task, problem, size, worth)
    for of_node in users:
        builder.row(of_node, -inf, 1.0)
    return builder.matrix(worth)


def _size(builder: MatrixBuilder, task: CompetingTask, problem: AllocationProblem, worth: dict[int, float]) -> int:
    """Add the size, 0 or between the bounds, and its speed between measured points."""
    size = builder.column(0.0, float(problem.pool), integer=True)
    runs = builder.column(0.0, 1.0, integer=True)
    builder.row({size: 1.0, runs: -float(task.min_nodes)}, 0.0, inf)
    builder.row({size: 1.0, runs: -float(task.max_nodes)}, -inf, 0.0)
    points = [0, *task.curve.nodes]
    if points[-1] < task.max_nodes:
        points.append(task.max_nodes)
    # The size is a mix of two neighbouring points; a 0/1 column for each interval says which
    shares = [builder.column(0.0, 1.0, integer=False) for _ in points]
    intervals = [builder.column(0.0, 1.0, integer=True) for _ in points[1:]]
    builder.row(dict.fromkeys(shares, 1.0), 1.0, 1.0)
    builder.row(dict.fromkeys(intervals, 1.0), 1.0, 1.0)
    builder.row({**dict(zip(shares, map(float, points), strict=True)), size: -1.0}, 0.0, 0.0)
    for place, share in enumerate(shares):
        around = [intervals[near] for near in (place - 1, place) if 0 <= near < len(intervals)]
        builder.row({share: 1.0, **dict.fromkeys(around, -1.0)}, -inf, 0.0)
        worth[share] = problem.horizon_s * task.curve.speed(points[place])
    return size


def _only_grow_or_only_shrink(
    builder: MatrixBuilder, task: CompetingTask, columns: tuple[int, list[int]], held: Sequence[int], big: int
) -> None:
    size, on_node = columns
    # W counts nodes taken that it did not hold, and nodes given up of those it held: size(held) - kept
    changed = {column: -1.0 if node in held else 1.0 for node, column in enumerate(on_node)}
    up = builder.column(0.0, 1.0, integer=True)
    builder.row({**changed, size: -1.0, up: float(big)}, -inf, float(big - 2 * task.size))
    builder.row({**changed, size: 1.0, up: -float(big)}, -inf, 0.0)


def _costs(
    builder: MatrixBuilder, task: CompetingTask, problem: AllocationProblem, size: int, worth: dict[int, float]
) -> None:
    grows = builder.column(0.0, 1.0, integer=True)
    shrinks = builder.column(0.0, 1.0, integer=True)
    builder.row({size: 1.0, grows: -float(problem.pool)}, -inf, float(task.size))
    builder.row({size: -1.0, shrinks: -float(problem.pool)}, -inf, -float(task.size))
    speed = task.curve.speed(task.size)
    worth[grows] = -speed * task.grow_cost_s
    worth[shrinks] = -speed * task.shrink_cost_s
