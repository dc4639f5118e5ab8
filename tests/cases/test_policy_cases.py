"""Policies case by case: each file in ``policies/`` is a problem and the sizes or shares that policies give for it.

A file has ``source`` (by hand, published or brute force), then either ``[problem]``, solved by ``bftrain.solve``, or
``[sharing]``, divided by ``bftrain.share``. A task may give ``rates``: its speeds on 1, 2, 3, ... nodes. Each
``[[expected]]`` names solvers and objectives, or policies, that give the same answer. Its other keys replace those of
the problem; ``only`` names its tasks in order, and ``change`` has changes of tasks. Add a case by adding a file.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import bftrain

ANSWER = {"solvers", "objectives", "policies", "sizes", "sorted", "kinds", "value", "shares", "speeds", "error", "only"}
CASES = [
    pytest.param(case, expected, id=f"{path.stem}-{number}")
    for path in sorted((Path(__file__).parent / "policies").glob("*.toml"))
    for case in [tomllib.loads(path.read_text())]
    for number, expected in enumerate(case["expected"])
]


def problem_of(given: dict[str, Any], expected: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON form of the problem of one expectation."""
    problem = {**given, **{key: value for key, value in expected.items() if key not in ANSWER}}
    tasks = {task["name"]: dict(task) for task in given.get("tasks", ())}
    for name, changes in problem.pop("change", {}).items():
        tasks[name] |= changes
    problem["tasks"] = [tasks[name] for name in expected.get("only", tasks)]
    for task in problem["tasks"]:
        if "rates" in task:
            rates = task.pop("rates")
            curve = {"nodes": list(range(1, len(rates) + 1)), "rate": rates}
            task.setdefault("max_nodes", len(rates))
            task.setdefault("curves", dict.fromkeys(task.pop("on", ()), curve))
            task.setdefault("curve", curve)
    return problem


@pytest.mark.parametrize(("case", "expected"), CASES)
def test_a_policy_gives_the_sizes_or_shares_of_its_case(case: dict[str, Any], expected: dict[str, Any]) -> None:
    if "sharing" in case:
        for policy in expected["policies"]:
            check_shares(problem_of(case["sharing"], expected), policy, expected)
        return
    for solver in expected.get("solvers", ["exact"]):
        for objective in expected.get("objectives", ["throughput"]):
            found = bftrain.solve(problem_of(case["problem"], expected), solver, objective=objective)
            where = f"{solver}, {objective}: {found.solver_words}"
            assert found.quality != "none", where
            if "sizes" in expected:
                assert dict(found.sizes) == expected["sizes"], where
            if "sorted" in expected:
                assert sorted(found.sizes.values()) == expected["sorted"], where
            if "kinds" in expected:
                assert dict(found.kinds) == expected["kinds"], where
            if "value" in expected:
                assert found.value == pytest.approx(expected["value"], rel=1e-9), where


def check_shares(problem: dict[str, Any], policy: str, expected: dict[str, Any]) -> None:
    if "error" in expected:
        with pytest.raises(bftrain.BadInput, match=expected["error"]):
            bftrain.share(problem, policy)
        return
    found = bftrain.share(problem, policy)
    if "value" in expected:
        assert found.value == pytest.approx(expected["value"], rel=1e-9), policy
    if "speeds" in expected:
        assert dict(found.speeds) == pytest.approx(expected["speeds"], rel=1e-6, abs=1e-6), policy
    for name, row in expected.get("shares", {}).items():
        assert dict(found.shares[name]) == pytest.approx(row, abs=1e-6), (policy, name)
