"""Objectives that tie tasks together: linear expressions, and the builder of a mixed-integer programme of these."""

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
    """``constant`` plus the sum of coefficient times variable; variables are numbers handed out by a model."""

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
    """Add many expressions up; faster than ``sum``, which copies what it has at every step."""
    terms: dict[int, float] = {}
    constant = 0.0
    for expression in expressions:
        constant += expression.constant
        for variable, coefficient in expression.terms.items():
            terms[variable] = terms.get(variable, 0.0) + coefficient
    return LinearExpression(MappingProxyType(terms), constant)


class SizeColumns(Protocol):
    """What each column of a value table stands for."""

    @property
    def nodes(self) -> NDArray[np.int64]:
        """How many nodes each column stands for."""

    @property
    def kind_of(self) -> NDArray[np.int64]:
        """Place in ``kinds`` of the nodes of each column; -1 for the column of no node."""

    @property
    def values(self) -> NDArray[np.float64]:
        """Return one row per task with the value of each column; ``-inf`` where the size is not allowed."""


class CouplingModel(Protocol):
    """The programme under construction. Sizes, minima, maxima and the pool are in it already.

    Tasks are named by their place in ``problem.tasks``; sizes are the columns 0, 1, ... of the value table. Where
    nodes have several kinds, a column is a number of nodes of one kind: ``table.nodes`` and
    ``table.kind_of`` say which.
    """

    problem: AllocationProblem
    width: int  # number of columns; with one kind of nodes these are the sizes 0, 1, ..., width - 1

    @property
    def table(self) -> SizeColumns:
        """Return what the columns stand for."""

    def value(self, task: int) -> LinearExpression:
        """Table entry of the chosen size: value over the horizon, costs of rescaling taken off."""

    def size(self, task: int) -> LinearExpression:
        """Return the chosen size on nodes of any kind."""

    def speed(self, task: int) -> LinearExpression:
        """Give the speed in samples/s at the chosen size, on nodes of the chosen kind."""

    def over_sizes(self, task: int, numbers: ArrayLike) -> LinearExpression:
        """Entry of ``numbers`` (one per column) that belongs to the chosen one: any function of size and kind."""

    def variable(self, *, lower: float = 0.0, upper: float = float("inf"), integer: bool = False) -> LinearExpression:
        """Add a variable of your own."""

    def at_least(self, expression: LinearExpression, bound: float) -> None:
        """Demand ``expression >= bound``."""

    def at_most(self, expression: LinearExpression, bound: float) -> None:
        """Demand ``expression <= bound``."""

    def maximise(self, expression: LinearExpression) -> None:
        """Say what is best. A second call breaks the ties of the first, a third those of the second, and so on."""


class Coupling(Protocol):
    """The part of an objective that a table of values cannot express."""

    def couple(self, model: CouplingModel) -> None:
        """Add variables and rows to ``model``, and say what it maximises."""

    def total(self, chosen: NDArray[np.float64], sizes: Sequence[int], problem: AllocationProblem) -> float:
        """What the first ``maximise`` comes to for given ``sizes``, whose table entries are ``chosen``.

        Where nodes have several kinds, the tasks of ``problem`` are as they are on the kinds chosen for
        them: ``task.curve`` is the speed there, and ``task.kind`` that kind.
        """
