"""The neutral programme: its pieces, its size, its goals, and how raw answers become solutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from numpy.typing import NDArray

from bftrain import AllocationProblem, Availability, BadInput, Limits, Quality, Termination, ValueTable
from bftrain.values.coupling import CouplingModel, LinearExpression, linear_sum
from bftrain_solvers import highs
from bftrain_solvers.matrix import ModelMatrix
from bftrain_solvers.milp import MilpSolver, RawAnswer, draft_of, programme_of
from bftrain_solvers.scaling import scale_bits
from tests.helpers.tables import table_of


def pieces(row: list[float], pool: int = 100) -> list[tuple[int, int]]:
    (found,) = programme_of(table_of([row], pool=pool)).pieces
    return [(piece.first, piece.last) for piece in found]


def test_one_piece_for_each_straight_run() -> None:
    assert pieces([0, 2, 4, 6]) == [(0, 3)]
    assert pieces([0, 2, 4, 5, 6, 7]) == [(0, 2), (3, 5)]
    assert pieces([0, 2, 4, 3, 8]) == [(0, 2), (3, 4)]
    assert pieces([0]) == [(0, 0)]


def test_pieces_end_at_sizes_that_are_not_allowed() -> None:
    assert pieces([0, -inf, -inf, 3, 4, -inf, 6]) == [(0, 0), (3, 4), (6, 6)]


def test_rounding_makes_no_pieces() -> None:
    slope = 0.1
    assert pieces([slope * size for size in range(65)]) == [(0, 64)]


def test_a_piece_has_one_binary_and_one_integer_column() -> None:
    programme = programme_of(table_of([[0, 2, 4, 5, 6, 7], [0, 9, -inf, -inf, -inf, -inf]], pool=5))
    matrix = programme.matrix
    assert matrix.objective.size == 6  # three pieces of more than one size
    assert matrix.integer.all()
    assert sorted(matrix.upper.tolist()) == [1, 1, 1, 1, 2, 2]
    assert matrix.row_lower.size == 6  # one pick each, one limit a piece, the pool


def dense(matrix: ModelMatrix) -> NDArray[np.float64]:
    found = np.zeros((matrix.row_lower.size, matrix.objective.size))
    for row in range(matrix.row_lower.size):
        part = slice(matrix.starts[row], matrix.starts[row + 1])
        found[row, matrix.columns[part]] = matrix.coefficients[part]
    return found


def test_columns_stand_for_sizes_and_their_values() -> None:
    table = table_of([[0, 2, 4, 5, 6, 7], [0, 0, 3, 1, 1, -inf]], pool=6)
    programme = programme_of(table)
    matrix = programme.matrix
    rows = dense(matrix)
    for chosen in ((0, 0), (2, 4), (3, 3), (5, 1), (1, 2)):
        columns = np.zeros(matrix.objective.size)
        for size, of_task in zip(chosen, programme.pieces, strict=True):
            (piece,) = (piece for piece in of_task if piece.first <= size <= piece.last)
            columns[piece.pick] = 1.0
            if piece.beyond is not None:
                columns[piece.beyond] = size - piece.first
        assert matrix.objective @ columns == table.values[0, chosen[0]] + table.values[1, chosen[1]]
        assert programme.chosen(columns) == list(chosen)
        assert (rows @ columns <= matrix.row_upper).all()
        assert (rows @ columns >= matrix.row_lower).all()


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

    solution = highs.solver.solve(coupled(couple, lambda sizes: float(sizes[0] ** 2 - 3 * sizes[1])), Limits())
    assert dict(solution.sizes) == {"t0": 4, "t1": 0}
    assert (solution.value, solution.bound) == (16.0, 16.0)


def test_demands_and_variables_of_its_own() -> None:
    def couple(model: CouplingModel) -> None:
        apart = model.variable(integer=True)  # at least |size 0 - size 1|, which is at most 1
        model.at_least(apart - model.size(0) + model.size(1), 0.0)
        model.at_least(apart + model.size(0) - model.size(1), 0.0)
        model.at_most(apart, 1.0)
        model.maximise(model.value(0) - 0.25 * apart)

    solution = highs.solver.solve(
        coupled(couple, lambda sizes: [0, 3, 5, 6, 6.5][sizes[0]] - 0.25 * abs(sizes[0] - sizes[1])), Limits()
    )
    assert dict(solution.sizes) == {"t0": 3, "t1": 3}
    assert solution.value == 6.0


def test_later_goals_break_the_ties_of_earlier_ones() -> None:
    def couple(model: CouplingModel) -> None:
        model.maximise(model.size(0) + model.size(1))
        model.maximise(model.value(0))
        model.maximise(model.value(1))

    solution = highs.solver.solve(coupled(couple, lambda sizes: float(sum(sizes)), pool=3), Limits())
    assert dict(solution.sizes) == {"t0": 3, "t1": 0}
    assert solution.value == 3.0


def test_demands_that_cannot_be_met() -> None:
    def couple(model: CouplingModel) -> None:
        model.at_least(model.size(0), 99.0)
        model.maximise(model.value(0))

    solution = highs.solver.solve(coupled(couple, lambda _: 0.0), Limits())
    assert (solution.termination, solution.quality) == (Termination.INFEASIBLE, Quality.NONE)


def test_a_model_that_the_library_rejects_is_not_infeasible() -> None:
    matrix = programme_of(TABLE).matrix
    rejected = replace(matrix, coefficients=1e16 * matrix.coefficients, row_upper=1e16 * matrix.row_upper)
    answer = highs.solver.run(rejected, Limits())
    assert (answer.termination, "Model error" in answer.words) == (Termination.FAILED, True)


@pytest.mark.parametrize("unit", [1e-250, 1e250])
def test_rows_of_any_unit_are_scaled(unit: float) -> None:
    def couple(model: CouplingModel) -> None:
        level = model.variable()
        model.at_least(unit * model.value(0) - level, 0.0)
        model.at_least(unit * (model.value(1) + model.size(1)) - level, 0.0)
        model.maximise(level)

    def total(sizes: Sequence[int]) -> float:
        return unit * min([0, 3, 5, 6, 6.5][sizes[0]], 2 * sizes[1])

    solution = highs.solver.solve(coupled(couple, total, pool=4), Limits())
    assert (dict(solution.sizes), solution.quality) == ({"t0": 2, "t1": 2}, Quality.PROVEN)


def test_rows_of_numbers_too_far_apart_are_refused() -> None:
    def couple(model: CouplingModel) -> None:
        model.at_least(model.size(0) - 1e-15 * model.size(1), 0.0)
        model.maximise(model.size(1))

    solution = highs.solver.solve(coupled(couple, lambda sizes: float(sizes[1])), Limits())
    assert (solution.termination, solution.quality) == (Termination.FAILED, Quality.NONE)
    assert "the numbers lie too far apart for 'highs'" in solution.solver_words


def test_a_coupling_that_maximises_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match="did not call maximise"):
        draft_of(coupled(lambda _: None, lambda _: 0.0))


def test_numbers_for_the_wrong_sizes_are_refused() -> None:
    def couple(model: CouplingModel) -> None:
        model.maximise(model.over_sizes(1, [1.0, 2.0]))

    with pytest.raises(BadInput, match=r"task 't1'.*wants 5 finite numbers"):
        draft_of(coupled(couple, lambda _: 0.0))


def test_linear_expressions() -> None:
    x, y = LinearExpression({1: 1.0}), LinearExpression({2: 1.0})
    both = 2 * x - y / 4 + 3 - (1 - x)
    assert (dict(both.terms), both.constant) == ({1: 3.0, 2: -0.25}, 2.0)
    assert linear_sum([x, y, x, LinearExpression({}, 5.0)]) == LinearExpression({1: 2.0, 2: 1.0}, 5.0)
    assert -x == LinearExpression({1: -1.0}, -0.0)


class Canned(MilpSolver):
    """A backend with a prescribed answer."""

    name = "canned"

    def __init__(self, **raw: object) -> None:
        self._raw = raw

    def available(self) -> Availability:
        return Availability(ok=True)

    def run(self, matrix: ModelMatrix, limits: Limits) -> RawAnswer:  # noqa: ARG002 - it is all in the can
        return RawAnswer(**self._raw)  # type: ignore[arg-type]  # keyword arguments of every type


TABLE = table_of([[0, 2, 4, 6]], pool=2)
SIZE_2 = np.array([1.0, 2.0])
SCALE = 2.0 ** scale_bits(programme_of(TABLE).matrix.objective)


def test_optimal_is_proven_only_if_the_bound_says_so() -> None:
    raw = {"termination": Termination.OPTIMAL, "columns": SIZE_2, "words": "done"}
    proven = Canned(bound=4.0 * SCALE, **raw).solve(TABLE, Limits())
    assert (proven.termination, proven.quality, proven.value, proven.bound) == ("optimal", "proven", 4.0, 4.0)
    assert proven.solver_words == "done"
    gap = Canned(bound=4.1 * SCALE, **raw).solve(TABLE, Limits())
    assert (gap.termination, gap.quality, gap.bound) == ("gap", "feasible", pytest.approx(4.1))
    unknown = Canned(bound=None, **raw).solve(TABLE, Limits())
    assert (unknown.termination, unknown.quality, unknown.bound) == ("gap", "feasible", None)


def test_the_incumbent_is_kept_at_the_deadline() -> None:
    late = Canned(termination=Termination.TIME_LIMIT, columns=SIZE_2, bound=5.0 * SCALE).solve(TABLE, Limits())
    assert (late.termination, late.quality, dict(late.sizes)) == ("time_limit", "feasible", {"t0": 2})
    empty = Canned(termination=Termination.TIME_LIMIT, words="nothing yet").solve(TABLE, Limits())
    assert (empty.termination, empty.quality, empty.solver_words) == ("time_limit", "none", "nothing yet")


def test_columns_that_break_a_row_are_a_failure() -> None:
    wrong = Canned(termination=Termination.OPTIMAL, columns=np.array([1.0, 3.0]), words="sure").solve(TABLE, Limits())
    assert (wrong.termination, wrong.quality) == ("failed", "none")
    assert "not allowed (sure)" in wrong.solver_words


class TwoCans(MilpSolver):
    """Answers the first goal and then the second from two cans."""

    name = "sequence"

    def __init__(self, *raw: RawAnswer) -> None:
        self._raw = list(raw)
        self.asked: list[tuple[ModelMatrix, Limits]] = []

    def available(self) -> Availability:
        return Availability(ok=True)

    def run(self, matrix: ModelMatrix, limits: Limits) -> RawAnswer:
        self.asked.append((matrix, limits))
        return self._raw.pop(0)


def two_goals(model: CouplingModel) -> None:
    model.maximise(model.size(0))
    model.maximise(model.value(0))


@pytest.mark.parametrize(
    ("said", "ended"), [(Termination.TIME_LIMIT, Termination.TIME_LIMIT), (Termination.INFEASIBLE, Termination.FAILED)]
)
def test_breaking_ties_keeps_the_first_goal_and_the_time_that_is_left(said: Termination, ended: Termination) -> None:
    table = coupled(two_goals, lambda sizes: float(sizes[0]))
    columns = highs.solver.run(programme_of(table).matrix, Limits()).columns
    assert columns is not None
    bound = 4.0 * 2.0 ** scale_bits(programme_of(table).goals[0].coefficients)
    first = RawAnswer(termination=Termination.OPTIMAL, columns=columns, bound=bound)
    late = RawAnswer(termination=said, words="no time")
    solver = TwoCans(first, late)
    solution = solver.solve(table, Limits(deadline_s=5.0))
    assert (solution.termination, solution.quality) == (ended, Quality.FEASIBLE)
    assert (solution.value, solution.bound, solution.solver_words) == (4.0, 4.0, "breaking ties: no time")
    (matrix, limits), (kept, left) = solver.asked
    assert kept.row_lower.size == matrix.row_lower.size + 1
    assert left.deadline_s < limits.deadline_s <= 5.0  # to build the programme took some


def test_an_unfinished_first_goal_has_no_ties_to_break() -> None:
    table = coupled(two_goals, lambda sizes: float(sizes[0]))
    columns = highs.solver.run(programme_of(table).matrix, Limits()).columns
    solver = TwoCans(RawAnswer(termination=Termination.TIME_LIMIT, columns=columns, words="late"))
    assert solver.solve(table, Limits()).solver_words == "late"
    assert len(solver.asked) == 1


def failing(answer: object = None) -> float:
    raise KeyError(answer)


@pytest.mark.parametrize(
    ("couple", "total", "complaint"),
    [
        (failing, sum, r"couple\(\) raised KeyError"),
        (lambda _: None, sum, r"couple\(\) did not call maximise"),
        (lambda model: model.at_most(model.size(0), nan), sum, "demands nan"),
        (lambda model: model.maximise(model.size(0)), failing, r"total\(\) raised KeyError"),
        (lambda model: model.maximise(model.size(0)), lambda _: nan, r"total\(\) gave nan"),
    ],
)
def test_an_objective_that_fails_is_named(
    couple: Callable[[CouplingModel], None], total: Callable[[Sequence[int]], float], complaint: str
) -> None:
    with pytest.raises(BadInput, match=f"objective '.*': {complaint}"):
        highs.solver.solve(coupled(couple, total), Limits())
