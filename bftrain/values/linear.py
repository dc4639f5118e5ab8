"""Linear expressions: sums of variables times numbers. What an objective that ties tasks together is written in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


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
