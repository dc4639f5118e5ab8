"""Linear expressions: sums of variables times numbers. What an objective that ties tasks together is written in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Linear:
    """``constant`` plus the sum of coefficient times variable; variables are numbers handed out by a model."""

    terms: Mapping[int, float] = field(default_factory=lambda: MappingProxyType({}))
    constant: float = 0.0

    def __add__(self, other: Linear | float) -> Linear:
        if not isinstance(other, Linear):
            return Linear(self.terms, self.constant + other)
        terms = dict(self.terms)
        for variable, coefficient in other.terms.items():
            terms[variable] = terms.get(variable, 0.0) + coefficient
        return Linear(MappingProxyType(terms), self.constant + other.constant)

    __radd__ = __add__

    def __mul__(self, factor: float) -> Linear:
        return Linear(
            MappingProxyType({key: factor * value for key, value in self.terms.items()}), factor * self.constant
        )

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Linear:
        return self * (1.0 / divisor)

    def __neg__(self) -> Linear:
        return self * -1.0

    def __sub__(self, other: Linear | float) -> Linear:
        return self + (-other)

    def __rsub__(self, other: float) -> Linear:
        return -self + other


def linear_sum(expressions: Iterable[Linear]) -> Linear:
    """Add many expressions up; faster than ``sum``, which copies what it has at every step."""
    terms: dict[int, float] = {}
    constant = 0.0
    for expression in expressions:
        constant += expression.constant
        for variable, coefficient in expression.terms.items():
            terms[variable] = terms.get(variable, 0.0) + coefficient
    return Linear(MappingProxyType(terms), constant)
