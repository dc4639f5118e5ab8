"""``bftrain solve``: answers in words and JSON, and what is wrong with a problem."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.coupled_objective import COUPLED
from tests.helpers.in_process import CommandLine

PROBLEMS = Path(__file__).parents[3] / "examples" / "problems"
KINDS = PROBLEMS / "kinds.json"  # shared by time: test_solve_kinds.py
FROM_THE_TEXT = {
    "pool": 60,
    "horizon_s": 120,
    "objective": "throughput",
    "tasks": [
        {
            "name": "a",
            "size": 4,
            "min_nodes": 1,
            "max_nodes": 64,
            "curve": {"nodes": [1, 2, 4], "rate": [10.0, 19.0, 35.0]},
            "grow_cost_s": 18,
            "shrink_cost_s": 12,
            "start_cost_s": 0,
            "weight": 1,
        }
    ],
}


@pytest.mark.parametrize("file", sorted(set(PROBLEMS.glob("*.json")) - {KINDS}), ids=lambda path: path.stem)
def test_all_solvers_agree_on_the_examples(bftrain: CommandLine, file: Path) -> None:
    ended = bftrain("solve", file, "--solver", "all", "--json")
    assert ended.code == 0
    solutions = {solution["solver"]: solution for solution in json.loads(ended.out)}
    assert set(solutions) >= {"exact", "highs", "cbc", "gurobi", "greedy", "equal-share", "equal-share-published"}
    if json.loads(file.read_text())["objective"] == "hierarchical":
        assert (solutions["exact"]["termination"], solutions["exact"]["quality"]) == ("optimal", "proven")
        assert (
            "use exact" in solutions["highs"]["solver_words"]
        )  # levels of users are no sum that a programme could have
        return
    best = solutions["highs"]["value"]
    for name, package in (("highs", "scipy"), ("cbc", "mip"), ("gurobi", "gurobipy")):
        solution = solutions[name]
        if find_spec(package):
            assert (solution["termination"], solution["quality"]) == ("optimal", "proven")
            assert solution["value"] == pytest.approx(best, rel=1e-9)
            assert solution["bound"] == pytest.approx(best, rel=1e-9)
        else:
            assert f"pip install '.[{name}]'" in solution["solver_words"]
    assert solutions["exact"]["value"] == pytest.approx(best, rel=1e-9)


def test_the_answer_in_json_and_the_warning_apart_from_it(bftrain: CommandLine) -> None:
    ended = bftrain("solve", "-", "--json", stdin=json.dumps(FROM_THE_TEXT))
    assert ended.code == 0
    solution = json.loads(ended.out)
    assert solution.pop("wall_s") < 10.0
    assert solution == {
        "sizes": {"a": 4},
        "value": 4200.0,
        "bound": 4200.0,
        "termination": "optimal",
        "quality": "proven",
        "solver": "exact",
        "solver_words": "",
        "kinds": {},
    }
    assert ended.err == "warning: task 'a': nothing measured beyond 4 nodes, taken as flat there\n"


def test_the_answer_in_words(bftrain: CommandLine) -> None:
    ended = bftrain("solve", PROBLEMS / "fair.json", "--solver", "exact", "--objective", COUPLED)
    assert "48 nodes, 300 s ahead" in ended.out
    assert "use highs, gurobi or cbc" in ended.out
    assert ended.code == 4, "no sizes are no success"
    assert "fair.json: no solution" in ended.err


def test_an_objective_of_ones_own(bftrain: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "metric.py"
    file.write_text("def green(task, sizes):\n    return task.curve.speeds(int(sizes[-1])) - 8.5 * sizes\n")
    ended = bftrain("solve", "-", "--objective", f"{file}:green", "--json", stdin=json.dumps(FROM_THE_TEXT))
    assert json.loads(ended.out)["sizes"] == {"a": 2}
    missing = bftrain("solve", "-", "--objective", f"{file}:gren", stdin=json.dumps(FROM_THE_TEXT))
    assert missing.code == 3
    assert "did you mean 'green'?" in missing.err


def changed(**changes: Any) -> str:  # noqa: ANN401 - any wrong value
    return json.dumps({**FROM_THE_TEXT, **changes})


def changed_task(**changes: Any) -> str:  # noqa: ANN401 - any wrong value
    return changed(tasks=[{**FROM_THE_TEXT["tasks"][0], **changes}])  # type: ignore[index]  # a list, as the text says


@pytest.mark.parametrize(
    ("problem", "field"),
    [
        ("{", "not valid JSON"),
        (changed(pool=-1), "AllocationProblem.pool"),
        (changed(pool=3), "AllocationProblem.pool: is 3, but the tasks hold 4"),
        (changed(horizon_s=0), "AllocationProblem.horizon_s"),
        (changed(horizon=1), "`horizon`"),
        (changed(objective="througput"), "did you mean 'throughput'?"),
        (changed(tasks=FROM_THE_TEXT["tasks"] * 2), "'a' twice"),  # type: ignore[operator]  # a list
        (changed_task(max_nodes=0), "CompetingTask.max_nodes: must be at least 1, not 0 - at `tasks[0]`"),
        (changed_task(grow_cost_s="x"), "`tasks[0].grow_cost_s`"),
        (changed_task(curve={"nodes": [1], "rate": []}), "SpeedCurve.rate: has 0 values for 1 sizes"),
        (changed_task(curve={"nodes": [2, 1], "rate": [1, 2]}), "SpeedCurve.nodes: must rise strictly"),
    ],
)
def test_bad_problems_end_with_3_and_name_the_field(bftrain: CommandLine, problem: str, field: str) -> None:
    ended = bftrain("solve", "-", stdin=problem)
    assert (ended.code, ended.out) == (3, "")
    assert "stdin" in ended.err or "objective" in ended.err
    assert field in ended.err


def test_a_file_that_is_not_there(bftrain: CommandLine) -> None:
    ended = bftrain("solve", "nowhere.json")
    assert ended.code == 2
    assert "nowhere.json" in ended.err
