"""Objectives, value tables, and objectives out of a file."""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import inf, nan
from pathlib import Path

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from bftrain import (
    AllocationProblem,
    BadInput,
    CompetingTask,
    Limits,
    NodesJoined,
    Settings,
    Solver,
    SpeedCurve,
    TaskSpec,
    TaskSubmitted,
    Termination,
    assembly,
    build_harvester,
    registry,
)
from bftrain.ports import Objective
from tests.helpers import solver_conformance as conformance
from tests.helpers.coupled_objective import WorstOff
from tests.helpers.named_parts import EXACT, HIGHS, THROUGHPUT, OwnObjective, table_for

CURVE = SpeedCurve(nodes=(1, 2, 4), rate=(10.0, 18.0, 30.0))


def task(**changes: object) -> CompetingTask:
    plain = CompetingTask(name="a", max_nodes=5, curve=CURVE)
    return msgspec.structs.replace(plain, **changes)


@pytest.mark.parametrize("changes", [{"max_nodes": 10**12}, {"size": 10**12}])
def test_what_no_memory_would_hold_is_refused(changes: dict[str, int]) -> None:
    problem = AllocationProblem(pool=10**12, horizon_s=1.0, tasks=(task(**changes),))
    with pytest.raises(BadInput, match=r"AllocationProblem.tasks: 1 tasks of up to 1,000,000,000,000 nodes.*max_nodes"):
        table_for(THROUGHPUT, problem)


@pytest.mark.parametrize("changes", [{}, {"size": 1, "shrink_cost_s": 1e300}, {"start_cost_s": 1e300}])
def test_values_that_are_too_large_to_add_up_are_refused(changes: dict[str, float]) -> None:
    fast = SpeedCurve(nodes=(1,), rate=(1e150,))
    horizon_s = 1.0 if changes else 1e200
    problem = AllocationProblem(pool=5, horizon_s=horizon_s, tasks=(task(curve=fast, **changes),))
    with pytest.raises(BadInput, match=r"objective 'throughput', task 'a': .* at size [01] "):
        table_for(THROUGHPUT, problem)


@pytest.mark.parametrize("solver", [EXACT, HIGHS])
@pytest.mark.parametrize("weight", [1e-12, 1e12])
def test_max_min_looks_at_weights_as_they_compare(weight: float, solver: Solver) -> None:
    for seed in range(12):
        problem = conformance.random_problem(seed)
        tasks = tuple(msgspec.structs.replace(each, weight=weight) for each in problem.tasks)
        plain = solver.solve(table_for("max-min-now", problem), Limits())
        weighed = table_for("max-min-now", msgspec.structs.replace(problem, tasks=tasks))
        solution = solver.solve(weighed, Limits())
        assert plain.value is not None
        assert solution.sizes == plain.sizes
        assert solution.termination is Termination.OPTIMAL or solution.value == 0.0
        assert solution.value == pytest.approx(plain.value / weight, rel=1e-9, abs=0.0)


def wrong(answer: Callable[[NDArray[np.int64]], object]) -> Objective:
    return OwnObjective("mine", lambda _, sizes: answer(sizes))  # type: ignore[arg-type, return-value]  # wrong on purpose


@pytest.mark.parametrize(
    ("answer", "complaint"),
    [
        (lambda sizes: np.where(sizes == 3, nan, 1.0), "returned nan at size 3"),
        (lambda sizes: -inf * np.maximum(sizes, 1), "returned -inf at size 0"),
        (lambda sizes: sizes[:-1], r"returned shape \(5,\) for 6 sizes"),
        (lambda _: 3.0, r"returned shape \(\) for 6 sizes"),
        (lambda _: 1 / 0, "raised ZeroDivisionError"),
        (lambda _: ["a"] * 6, "raised ValueError"),
        (lambda _: [1j] * 6, "returned complex numbers"),
        (lambda sizes: sizes.__imul__(2), "raised ValueError: .*read-only"),
        (lambda sizes: sizes.resize(3, refcheck=False), "raised|returned shape"),
        (lambda _: sys.exit(3), "raised SystemExit: 3"),
    ],
)
def test_a_metric_that_fails_is_named_with_its_task(answer: Callable[[object], object], complaint: str) -> None:
    with pytest.raises(BadInput, match=f"objective 'mine', task 'a': {complaint}"):
        table_for(wrong(answer), AllocationProblem(pool=5, horizon_s=100.0, tasks=(task(),)))


FILE = """
from dataclasses import dataclass
import numpy as np

def squares(task, sizes):
    return sizes.astype(float) ** 2

class Cubes:
    name = "cubes"
    def values(self, task, sizes):
        return sizes.astype(float) ** 3

@dataclass
class Power:
    exponent: float = 4.0
    name: str = "power"
    def values(self, task, sizes):
        return sizes ** self.exponent

fifth = Power(5.0)
number = 3

class Nameless:
    def values(self, task, sizes):
        return sizes

class Greedy:
    name = "greedy"
    def __init__(self, something):
        pass
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my objectives.py"
    path.write_text(FILE)
    return path


@pytest.mark.parametrize(("name", "at_3"), [("squares", 9.0), ("Cubes", 27.0), ("Power", 81.0), ("fifth", 243.0)])
def test_objectives_out_of_a_file(file: Path, name: str, at_3: float) -> None:
    problem = AllocationProblem(pool=3, horizon_s=1.0, tasks=(task(),))
    assert table_for(f"{file}:{name}", problem).values[0, 3] == at_3


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("squres", "did you mean 'squares'"),
        ("number", "is of the type int"),
        ("Nameless", "has no name"),
        ("Greedy", "cannot be created without arguments"),
    ],
)
def test_a_value_that_is_no_objective_is_refused(file: Path, name: str, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        build_harvester(Settings(objective=f"{file}:{name}"))


def test_files_that_cannot_be_loaded_are_refused(tmp_path: Path) -> None:
    leaving = tmp_path / "leaving.py"
    leaving.write_text("raise SystemExit(3)\n")
    with pytest.raises(BadInput, match=r"leaving.py raised SystemExit: 3"):
        build_harvester(Settings(objective=f"{leaving}:f"))
    with pytest.raises(BadInput, match="no such file"):
        build_harvester(Settings(objective=f"{tmp_path}/none.py:f"))
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    with pytest.raises(BadInput, match=r"broken.py raised SyntaxError"):
        build_harvester(Settings(objective=f"{broken}:f"))
    other = tmp_path / "objective.txt"
    other.write_text(FILE)
    with pytest.raises(BadInput, match=r"suffix \.py"):
        build_harvester(Settings(objective=f"{other}:squares"))


def test_solve_names_the_objective_it_used(file: Path) -> None:
    problem = AllocationProblem(pool=5, horizon_s=1.0, tasks=(task(), task(name="b")))
    solution = assembly.solve(problem, objective=f"{file}:squares")
    assert (dict(solution.sizes), solution.value) == ({"a": 5, "b": 0}, 25.0)
    coupled = assembly.solve(problem, objective=WorstOff())
    assert "the objective 'worst-off' ties tasks together" in coupled.solver_words


def test_solve_takes_the_json_form_and_names_the_wrong_field() -> None:
    data = {"pool": 2, "horizon_s": 10, "tasks": [{"name": "a", "max_nodes": 2, "curve": {"nodes": [1], "rate": [4]}}]}
    assert assembly.solve(data).value == 40.0
    with pytest.raises(BadInput, match=r"max_nodes.*at least 1"):
        assembly.solve({**data, "tasks": [{**data["tasks"][0], "max_nodes": 0}]})


def test_solve_with_all_leaves_no_solver_out() -> None:
    problem = AllocationProblem(pool=5, horizon_s=1.0, tasks=(task(), task(name="b")))
    solutions = {solution.solver: solution for solution in assembly.solve_with_all(problem)}
    assert list(solutions)[:2] == ["exact", "highs"]
    assert {"cbc", "gurobi", "equal-share", "equal-share-published", "greedy"} <= set(solutions)
    assert solutions["exact"].value == solutions["highs"].value == 42.0


def test_a_coupled_objective_needs_a_solver_that_can() -> None:
    said = r"'worst-off' ties tasks together, which the solver 'exact' cannot express \("
    with pytest.raises(BadInput, match=said):
        build_harvester(Settings(), objective=WorstOff())
    harvester = build_harvester(Settings(solver="highs"), objective=WorstOff())
    for name, rate in (("a", 9.0), ("b", 4.5)):
        spec = TaskSpec(name=name, max_nodes=9, curve=SpeedCurve(nodes=(9,), rate=(rate,)))
        harvester.absorb(TaskSubmitted(time_s=0.0, spec=spec))
    harvester.absorb(NodesJoined(time_s=0.0, nodes=tuple("abcdef")))
    assert dict(harvester.decide(0.0).sizes) == {"a": 2, "b": 4}


def test_a_broken_plug_in_does_not_keep_the_others_from_solving(monkeypatch: pytest.MonkeyPatch) -> None:
    known = registry.parts("solver")
    broken = registry.RegisteredPart(
        port="solver", name="broken", target="bftrain_solvers.nowhere:solver", origin="a package"
    )
    monkeypatch.setattr(registry, "parts", lambda _: {"broken": broken, "exact": known["exact"]})
    problem = AllocationProblem(pool=5, horizon_s=1.0, tasks=(task(),))
    first, second = assembly.solve_with_all(problem)
    assert (first.solver, first.termination, second.value) == ("broken", Termination.FAILED, 30.0)
    assert "cannot be loaded from bftrain_solvers.nowhere" in first.solver_words
