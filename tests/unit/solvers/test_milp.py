"""The neutral programme: its pieces, its size, its goals, and how raw answers become solutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from typing import Any, TypeAlias

import numpy as np
import pytest

from bftrain import AllocationProblem, BadInput, Limits, Quality, Termination, ValueTable
from tests.helpers.named_parts import HIGHS
from tests.helpers.tables import table_of

CouplingModel: TypeAlias = Any  # what a coupling adds its columns and rows to


class Coupling:
    """A coupling made of two functions."""

    def __init__(self, couple: Callable[[CouplingModel], None], total: Callable[[Sequence[int]], float]) -> None:
        self._couple = couple
        self._total = total

    def couple(self, model: CouplingModel) -> None:
        self._couple(model)

    def total(self, chosen: object, sizes: Sequence[int], problem: AllocationProblem) -> float:  # noqa: ARG002
        return self._total(sizes)


def coupled(
    couple: Callable[[CouplingModel], None], total: Callable[[Sequence[int]], float], pool: int = 6
) -> ValueTable:
    plain = table_of([[0, 3, 5, 6, 6.5], [0, 1, 2, 3, 4]], pool=pool)
    return ValueTable(problem=plain.problem, values=plain.values, coupling=Coupling(couple, total))


def test_a_function_of_the_size_need_not_be_the_value() -> None:
    squares = np.arange(5.0) ** 2

    def couple(model: CouplingModel) -> None:
        model.maximise(model.over_sizes(0, squares) - 3 * model.size(1))

    solution = HIGHS.solve(coupled(couple, lambda sizes: float(sizes[0] ** 2 - 3 * sizes[1])), Limits())
    assert dict(solution.sizes) == {"t0": 4, "t1": 0}
    assert (solution.value, solution.bound) == (16.0, 16.0)


def test_demands_and_variables_of_its_own() -> None:
    def couple(model: CouplingModel) -> None:
        apart = model.variable(integer=True)  # at least |size 0 - size 1|, which is at most 1
        model.at_least(apart - model.size(0) + model.size(1), 0.0)
        model.at_least(apart + model.size(0) - model.size(1), 0.0)
        model.at_most(apart, 1.0)
        model.maximise(model.value(0) - 0.25 * apart)

    solution = HIGHS.solve(
        coupled(couple, lambda sizes: [0, 3, 5, 6, 6.5][sizes[0]] - 0.25 * abs(sizes[0] - sizes[1])), Limits()
    )
    assert dict(solution.sizes) == {"t0": 3, "t1": 3}
    assert solution.value == 6.0


def test_later_goals_break_the_ties_of_earlier_ones() -> None:
    def couple(model: CouplingModel) -> None:
        model.maximise(model.size(0) + model.size(1))
        model.maximise(model.value(0))
        model.maximise(model.value(1))

    solution = HIGHS.solve(coupled(couple, lambda sizes: float(sum(sizes)), pool=3), Limits())
    assert dict(solution.sizes) == {"t0": 3, "t1": 0}
    assert solution.value == 3.0


def test_demands_that_cannot_be_met() -> None:
    def couple(model: CouplingModel) -> None:
        model.at_least(model.size(0), 99.0)
        model.maximise(model.value(0))

    solution = HIGHS.solve(coupled(couple, lambda _: 0.0), Limits())
    assert (solution.termination, solution.quality) == (Termination.INFEASIBLE, Quality.NONE)


@pytest.mark.parametrize("unit", [1e-250, 1e250])
def test_rows_of_any_unit_are_scaled(unit: float) -> None:
    def couple(model: CouplingModel) -> None:
        level = model.variable()
        model.at_least(unit * model.value(0) - level, 0.0)
        model.at_least(unit * (model.value(1) + model.size(1)) - level, 0.0)
        model.maximise(level)

    def total(sizes: Sequence[int]) -> float:
        return unit * min([0, 3, 5, 6, 6.5][sizes[0]], 2 * sizes[1])

    solution = HIGHS.solve(coupled(couple, total, pool=4), Limits())
    assert (dict(solution.sizes), solution.quality) == ({"t0": 2, "t1": 2}, Quality.PROVEN)


def test_rows_of_numbers_too_far_apart_are_refused() -> None:
    def couple(model: CouplingModel) -> None:
        model.at_least(model.size(0) - 1e-15 * model.size(1), 0.0)
        model.maximise(model.size(1))

    solution = HIGHS.solve(coupled(couple, lambda sizes: float(sizes[1])), Limits())
    assert (solution.termination, solution.quality) == (Termination.FAILED, Quality.NONE)
    assert "the numbers differ by too many orders of magnitude for 'highs'" in solution.solver_words


def failing(answer: object = None) -> float:
    raise KeyError(answer)


@pytest.mark.parametrize(
    ("couple", "total", "complaint"),
    [
        (failing, sum, r"couple\(\) raised KeyError"),
        (lambda _: None, sum, r"couple\(\) did not call maximise"),
        (lambda model: model.at_most(model.size(0), nan), sum, "demands nan"),
        (lambda model: model.maximise(model.size(0)), failing, r"total\(\) raised KeyError"),
        (lambda model: model.maximise(model.size(0)), lambda _: nan, r"total\(\) returned nan"),
    ],
)
def test_an_objective_that_fails_is_named(
    couple: Callable[[CouplingModel], None], total: Callable[[Sequence[int]], float], complaint: str
) -> None:
    with pytest.raises(BadInput, match=f"objective '.*': {complaint}"):
        HIGHS.solve(coupled(couple, total), Limits())
