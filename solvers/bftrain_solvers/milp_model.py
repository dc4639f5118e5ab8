"""MilpModel: a ModelDraft as a mixed-integer programme. Each task picks one linear piece and a whole size in it.

No special ordered sets and no big numbers: for a piece from size ``a`` to size ``b``, a 0/1 column says whether it is
picked and an integer column counts the nodes beyond ``a``, at most ``b - a`` of them and none if it is not picked.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from bftrain_solvers.matrix import Floats, MatrixBuilder, ModelMatrix
from bftrain_solvers.model_draft import draft_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from bftrain.values.linear import LinearExpression
    from bftrain.values.table import ValueTable
    from bftrain_solvers.model_draft import ModelDraft

# Two steps of a row have one slope if they differ by rounding only: a few times 2**-52 of the row's entries
_SAME_SLOPE = 1e-14


@dataclass(frozen=True, slots=True)
class LinearPiece:
    """Sizes ``first`` to ``last`` of a task on one kind of nodes, on which all its functions are linear.

    These are columns of the table: with one kind the number of nodes, else ``nodes`` is that at ``first``.

    Column ``pick`` says whether the size is among them, column ``beyond`` how many nodes it has beyond ``first``.
    """

    first: int
    last: int
    pick: int
    beyond: int | None
    nodes: int
    kind: int


@dataclass(frozen=True, slots=True)
class ModelGoal:
    """One thing to maximise: coefficients of the columns and a constant that belongs to it."""

    coefficients: Floats
    constant: float


@dataclass(frozen=True, slots=True)
class MilpModel:
    """The matrix, what it maximises in order of importance, and the way back to sizes."""

    matrix: ModelMatrix
    goals: tuple[ModelGoal, ...]
    pieces: tuple[tuple[LinearPiece, ...], ...]

    def chosen(self, columns: Floats) -> list[int]:
        """Read off a solution which column of the table every task is at."""
        return [_chosen(pieces, columns) for pieces in self.pieces]


def programme_of(table: ValueTable) -> MilpModel:
    """Bring a table, coupled or not, into columns and rows."""
    return _Assembly(draft_of(table)).programme()


def _chosen(pieces: Sequence[LinearPiece], columns: Floats) -> int:
    picked = max(pieces, key=lambda piece: float(columns[piece.pick]))
    beyond = 0 if picked.beyond is None else round(float(columns[picked.beyond]))
    return picked.first + beyond


class _Assembly:
    """One pass over a draft."""

    def __init__(self, draft: ModelDraft) -> None:
        self._draft = draft
        self._builder = MatrixBuilder()
        self._columns: dict[int, dict[int, float]] = {}  # handle -> column -> coefficient
        self._kinds = np.maximum(draft.table.kind_of, 0)  # no node is none of the first kind

    def programme(self) -> MilpModel:
        draft, builder = self._draft, self._builder
        for handle, (lower, upper, integer) in draft.own.items():
            self._columns[handle] = {builder.column(lower, upper, integer=integer): 1.0}
        per_task: list[list[tuple[int, Floats]]] = [[] for _ in draft.problem.tasks]
        for handle, (task, numbers) in draft.functions.items():
            per_task[task].append((handle, numbers))
        pieces = tuple(self._task(task, functions) for task, functions in enumerate(per_task))
        pools: list[dict[int, float]] = [{} for _ in draft.table.kinds]
        for piece in (piece for of_task in pieces for piece in of_task):
            pools[piece.kind][piece.pick] = float(piece.nodes)
            if piece.beyond is not None:
                pools[piece.kind][piece.beyond] = 1.0
        for pool, count in zip(pools, draft.problem.by_kind.values(), strict=True):
            builder.row(pool, -inf, float(count))
        for expression, lower, upper in draft.rows:
            terms, constant = self._in_columns(expression)
            builder.row(terms, lower - constant, upper - constant)
        goals = [self._in_columns(goal) for goal in draft.goals]
        return MilpModel(
            matrix=builder.matrix(goals[0][0]),
            goals=tuple(ModelGoal(builder.dense(terms), constant) for terms, constant in goals),
            pieces=pieces,
        )

    def _task(self, task: int, functions: list[tuple[int, Floats]]) -> tuple[LinearPiece, ...]:
        allowed = np.flatnonzero(self._draft.values[task] > -inf)
        stacked = np.array([numbers[allowed] for _, numbers in functions]).reshape(len(functions), allowed.size)
        for handle, _ in functions:
            self._columns[handle] = {}
        pieces = []
        for start, end in _linear_runs(allowed, self._kinds[allowed], stacked):
            piece = self._piece(int(allowed[start]), int(allowed[end]))
            pieces.append(piece)
            for (handle, _), numbers in zip(functions, stacked, strict=True):
                columns = self._columns[handle]
                columns[piece.pick] = float(numbers[start])
                if piece.beyond is not None:
                    columns[piece.beyond] = float(numbers[end] - numbers[start]) / (piece.last - piece.first)
        self._builder.row({piece.pick: 1.0 for piece in pieces}, 1.0, 1.0)
        return tuple(pieces)

    def _piece(self, first: int, last: int) -> LinearPiece:
        pick = self._builder.column(0.0, 1.0, integer=True)
        nodes, kind = int(self._draft.table.nodes[first]), int(self._kinds[last])
        if first == last:
            return LinearPiece(first, last, pick, None, nodes, kind)
        length = float(last - first)
        beyond = self._builder.column(0.0, length, integer=True)
        self._builder.row({beyond: 1.0, pick: -length}, -inf, 0.0)
        return LinearPiece(first, last, pick, beyond, nodes, kind)

    def _in_columns(self, expression: LinearExpression) -> tuple[dict[int, float], float]:
        terms: dict[int, float] = {}
        for handle, factor in expression.terms.items():
            for column, coefficient in self._columns[handle].items():
                terms[column] = terms.get(column, 0.0) + factor * coefficient
        return terms, expression.constant


def _linear_runs(sizes: NDArray[np.int64], kinds: NDArray[np.int64], functions: Floats) -> list[tuple[int, int]]:
    """Cut the places 0, 1, ... of ``sizes`` into runs of one kind, without a gap, on which every function is linear."""
    if sizes.size == 1:
        return [(0, 0)]
    steps = np.diff(functions, axis=1)
    tolerance = _SAME_SLOPE * np.abs(functions).max(axis=1, initial=0.0)
    gaps = (np.diff(sizes) > 1) | (np.diff(kinds) > 0)
    bends = (np.abs(np.diff(steps, axis=1)) > tolerance[:, None]).any(axis=0)
    runs = []
    start = 0
    while start < sizes.size:
        end = start
        while end + 1 < sizes.size and not gaps[end] and (end == start or not bends[end - 1]):
            end += 1
        runs.append((start, end))
        start = end + 1
    return runs
