"""Interfaces for objectives that tie tasks together: linear expressions and the mixed-integer model to add them to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from bftrain.values.problem import AllocationProblem


@dataclass(frozen=True, slots=True)
class LinearExpression:
    """``constant`` plus the sum of coefficient times variable; the model numbers the variables."""

    terms: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    constant: float = 0.0

    def __add__(self, other: LinearExpression | float) -> LinearExpression:
        if not isinstance(other, LinearExpression):
            return LinearExpression(self.terms, self.constant + other)
        terms = dict(self.terms)
        for variable, coefficient in other.terms.items():
            terms[variable] = terms.get(variable, 0.0) + coefficient
        return LinearExpression(MappingProxyType(terms), self.constant + other.constant)

    __radd__ = __add__

    def __mul__(self, factor: float) -> LinearExpression:
        return LinearExpression(
            MappingProxyType({key: factor * value for key, value in self.terms.items()}), factor * self.constant
        )

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> LinearExpression:
        return self * (1.0 / divisor)

    def __neg__(self) -> LinearExpression:
        return self * -1.0

    def __sub__(self, other: LinearExpression | float) -> LinearExpression:
        return self + (-other)

    def __rsub__(self, other: float) -> LinearExpression:
        return -self + other


def linear_sum(expressions: Iterable[LinearExpression]) -> LinearExpression:
    """Return the sum of many expressions; faster than ``sum``, which copies the partial sum at every step."""
    terms: dict[int, float] = {}
    constant = 0.0
    for expression in expressions:
        constant += expression.constant
        for variable, coefficient in expression.terms.items():
            terms[variable] = terms.get(variable, 0.0) + coefficient
    return LinearExpression(MappingProxyType(terms), constant)


class SizeColumns(Protocol):
    """The meaning of each column of a value table."""

    @property
    def nodes(self) -> NDArray[np.int64]:
        """Number of nodes of each column."""

    @property
    def kind_of(self) -> NDArray[np.int64]:
        """Index of the node kind of each column, among the table's kinds; -1 for the column without nodes."""

    @property
    def values(self) -> NDArray[np.float64]:
        """Values by task (row) and column; ``-inf`` where the size is not allowed."""


class CouplingModel(Protocol):
    """The optimisation model under construction. Sizes, minima, maxima and the pool are already constrained.

    Tasks are identified by their index in ``problem.tasks``; sizes are the columns 0, 1, ... of the value table. If
    nodes have several kinds, a column is a number of nodes of a single kind: see ``table.nodes`` and
    ``table.kind_of``.
    """

    problem: AllocationProblem
    width: int  # number of columns; with one kind of nodes these are the sizes 0, 1, ..., width - 1

    @property
    def table(self) -> SizeColumns:
        """The meaning of the columns."""

    def value(self, task: int) -> LinearExpression:
        """Return the table entry of the chosen size: value over the horizon minus rescaling costs."""

    def size(self, task: int) -> LinearExpression:
        """Return the chosen size on nodes of any kind."""

    def speed(self, task: int) -> LinearExpression:
        """Return the speed in samples/s at the chosen size, on nodes of the chosen kind."""

    def over_sizes(self, task: int, numbers: ArrayLike) -> LinearExpression:
        """Return the entry of ``numbers`` (one per column) at the chosen column: any function of size and kind."""

    def variable(self, *, lower: float = 0.0, upper: float = float("inf"), integer: bool = False) -> LinearExpression:
        """Add a new variable."""

    def at_least(self, expression: LinearExpression, bound: float) -> None:
        """Add the constraint ``expression >= bound``."""

    def at_most(self, expression: LinearExpression, bound: float) -> None:
        """Add the constraint ``expression <= bound``."""

    def maximise(self, expression: LinearExpression) -> None:
        """Set the goal. A second call breaks ties of the first, a third breaks ties of the second, and so on."""


class Coupling(Protocol):
    """The part of an objective that a value table cannot express."""

    def couple(self, model: CouplingModel) -> None:
        """Add variables and constraints to ``model``, and set its goal."""

    def total(self, chosen: NDArray[np.float64], sizes: Sequence[int], problem: AllocationProblem) -> float:
        """Return the value of the first goal for ``sizes``, with their table entries ``chosen``.

        If nodes have several kinds, the tasks of ``problem`` are described for the kind chosen for each:
        ``task.curve`` is the speed on that kind, and ``task.kind`` its name.
        """
