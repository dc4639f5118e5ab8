"""``bftrain solve``: answers in words and JSON, of one solver or all, with batches, kinds, shares and own code."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.coupled_objective import COUPLED
from tests.helpers.in_process import CommandLine

PROBLEMS = Path(__file__).parents[3] / "examples" / "problems"
KINDS = PROBLEMS / "kinds.json"  # shared by time
CURVE = {"nodes": [1, 2, 4], "rate": [10.0, 19.0, 35.0]}
TASK = {"name": "a", "size": 4, "max_nodes": 64, "curve": CURVE, "grow_cost_s": 18, "shrink_cost_s": 12}
PROBLEM = json.dumps({"pool": 60, "horizon_s": 120, "objective": "throughput", "tasks": [TASK]})


@pytest.mark.parametrize("file", sorted(set(PROBLEMS.glob("*.json")) - {KINDS}), ids=lambda path: path.stem)
def test_all_solvers_agree_on_the_examples(bftrain: CommandLine, file: Path) -> None:
    ended = bftrain("solve", file, "--solver", "all", "--json")
    assert ended.code == 0
    solutions = {solution["solver"]: solution for solution in json.loads(ended.out)}
    assert set(solutions) >= {"exact", "highs", "cbc", "gurobi", "greedy", "equal-share", "equal-share-published"}
    if json.loads(file.read_text())["objective"] == "hierarchical":  # no sum that a linear programme could have
        assert (solutions["exact"]["termination"], solutions["exact"]["quality"]) == ("optimal", "proven")
        assert "use exact" in solutions["highs"]["solver_words"]
        return
    best = pytest.approx(solutions["highs"]["value"], rel=1e-9)
    assert solutions["exact"]["value"] == best
    for name, package in (("highs", "scipy"), ("cbc", "mip"), ("gurobi", "gurobipy")):
        solution = solutions[name]
        if find_spec(package):
            assert (solution["termination"], solution["quality"]) == ("optimal", "proven")
            assert (solution["value"], solution["bound"]) == (best, best)
        else:
            assert f"pip install '.[{name}]'" in solution["solver_words"]


def test_the_answer_in_json_and_the_warning_apart_from_it(bftrain: CommandLine) -> None:
    ended = bftrain("solve", "-", "--json", stdin=PROBLEM)
    solution = json.loads(ended.out)
    assert (ended.code, solution["sizes"], solution["value"], solution["bound"]) == (0, {"a": 4}, 4200.0, 4200.0)
    assert (solution["termination"], solution["quality"], solution["solver"]) == ("optimal", "proven", "exact")
    assert ended.err.startswith("warning: task 'a': no measurement beyond 4 nodes")


def test_a_solver_that_cannot_express_an_objective_is_no_success(bftrain: CommandLine) -> None:
    ended = bftrain("solve", PROBLEMS / "fair.json", "--solver", "exact", "--objective", COUPLED)
    assert (ended.code, "use highs, gurobi or cbc" in ended.out, "fair.json: no solution" in ended.err) == (
        4, True, True,
    )  # fmt: skip


def test_an_objective_of_ones_own_sees_users_and_prices(bftrain: CommandLine, tmp_path: Path) -> None:
    file, shares = tmp_path / "mine.py", tmp_path / "shares.toml"
    shares.write_text("[entities]\nann = 3\n[prices]\na = 2\n")
    file.write_text(
        "def green(task, sizes):\n    return task.curve.speeds(int(sizes[-1])) - 8.5 * sizes\n\n\n"
        "class Mine:\n    name = 'mine'\n\n    def values(self, task, sizes):\n"
        "        return green(task, sizes)\n\n    def recast(self, table):\n"
        "        print(dict(table.problem.entities), dict(table.problem.prices))\n        return table\n"
    )
    ended = bftrain("solve", "-", "--objective", f"{file}:green", "--json", stdin=PROBLEM)
    assert json.loads(ended.out)["sizes"] == {"a": 2}
    ended = bftrain("solve", "-", "--shares", shares, "--objective", f"{file}:Mine", stdin=PROBLEM)
    assert (ended.code, "'ann': Entity(weight=3.0" in ended.out, "{'a': 2.0}" in ended.out) == (0, True, True)


@pytest.mark.parametrize("solver", ["exact", "all"])
def test_the_best_batch_stands_beside_the_size(bftrain: CommandLine, solver: str) -> None:
    ended = bftrain("solve", PROBLEMS / "batches.json", "--solver", solver)
    assert ended.code == 0, ended.err
    shown = {row.split()[0]: " ".join(row.split()[1:]) for row in ended.out.splitlines() if row.strip()}
    # 4 nodes exchange as long as they compute 4 * 128 * (4 * 500 / 1700 - 1) = 90.4 samples, 12 as long as 1314:
    # sqrt(300 * 90.4) = 165, sqrt(20,000 * 1314) = 5127
    assert shown["early"].startswith("4, batch 165")
    assert shown["late"].startswith("12, batch 5,127")


def test_time_on_kinds_is_shared_by_a_policy(bftrain: CommandLine) -> None:
    shown = bftrain("solve", KINDS)
    assert ["resnet", "19.91%", "80.09%", "1.19905"] in [line.split() for line in shown.out.splitlines()]
    output = json.loads(bftrain("solve", KINDS, "--policy", "makespan", "--json").out)
    assert (output["policy"], output["value"]) == ("makespan", pytest.approx(253_846.153846))
    assert output["speeds"]["lstm"] == pytest.approx(2.0)  # more than the makespan needs: the time is there


def test_time_is_shared_by_weight_and_price(bftrain: CommandLine, tmp_path: Path) -> None:
    shares = tmp_path / "shares.toml"
    shares.write_text("[entities]\nann = 3\n[prices]\na = 2\n")
    users = [{"name": name, "speeds": {"a": 1.0}, "entity": user} for name, user in (("one", "ann"), ("two", "bob"))]

    def solved(**problem: object) -> dict[str, Any]:
        ended = bftrain("solve", "-", "--shares", shares, "--json", stdin=json.dumps(problem))
        assert ended.code == 0, ended.err
        found: dict[str, Any] = json.loads(ended.out)
        return found

    assert solved(nodes={"a": 1}, policy="hierarchical", tasks=users)["speeds"] == {
        "one": pytest.approx(0.75), "two": pytest.approx(0.25),
    }  # fmt: skip
    dear = solved(nodes={"a": 1, "b": 1}, policy="cost", tasks=[{"name": "x", "speeds": {"a": 3.0, "b": 2.0}}])
    assert dear["shares"] == {"x": {"b": 1.0}}  # 2 samples for 1 are more than 3 for 2


OWN = """
from bftrain.values.sharing import Shares

class Nothing:
    name = "nothing"
    def share(self, problem):
        names = [task.name for task in problem.tasks]
        shares, speeds = dict.fromkeys(names, {}), dict.fromkeys(names, 0.0)
        return Shares(policy="nothing", value=0.0, value_is="-", shares=shares, speeds=speeds)

ready = Nothing()
"""


@pytest.mark.parametrize("name", ["Nothing", "ready"])
def test_a_policy_of_ones_own(bftrain: CommandLine, tmp_path: Path, name: str) -> None:
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    output = json.loads(bftrain("solve", KINDS, "--policy", f"{tmp_path / 'own.py'}:{name}", "--json").out)
    assert (output["policy"], output["speeds"]["bert"]) == ("nothing", 0.0)


def test_each_task_gets_nodes_of_one_kind(bftrain: CommandLine) -> None:
    curves = {"v100": {"nodes": [1], "rate": [10]}, "k80": {"nodes": [1, 2], "rate": [4, 8]}}
    both: dict[str, object] = {"name": "both", "max_nodes": 2, "curves": curves}  # which needs no other curve
    any_kind = {"name": "any", "max_nodes": 2, "curve": {"nodes": [1, 2], "rate": [3, 6]}}
    problem = {"pool": 4, "pools": {"v100": 2, "k80": 2}, "horizon_s": 100, "tasks": [both, any_kind]}
    ended = bftrain("solve", "-", "--json", stdin=json.dumps(problem))
    answer = json.loads(ended.out)
    assert (ended.code, answer["value"], answer["termination"]) == (0, 1600.0, "optimal")
    assert (answer["sizes"], answer["kinds"]) == ({"both": 1, "any": 2}, {"both": "v100", "any": "k80"})
    assert "task 'both': on v100: no measurement beyond 1 nodes" in ended.err
    shown = bftrain("solve", "-", "--solver", "all", stdin=json.dumps(problem)).out
    assert "'equal-share-published' does not support node kinds" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ('{"nodes": {"a": 1}, "tasks": []}', ("--policy", "makespan")),
        ('{"pool": 3, "horizon_s": 60, "tasks": []}', ()),
        ('{"pool": 3, "horizon_s": 60, "tasks": []}', ("--solver", "all")),
    ],
)
def test_without_tasks_all_nodes_stay_idle(bftrain: CommandLine, problem: str, options: tuple[str, ...]) -> None:
    ended = bftrain("solve", "-", *options, stdin=problem)
    assert (ended.code, "no tasks" in ended.out, ended.err) == (0, True, "")
    assert json.loads(bftrain("solve", "-", *options, "--json", stdin=problem).out)


def test_many_solvers_stand_below_each_other_best_first(bftrain: CommandLine) -> None:
    ended = bftrain("solve", PROBLEMS / "quickstart.json", "--solver", "all")
    rows = [line.split() for line in ended.out.splitlines() if line.strip()]
    ranks = {row[0]: row[1] for row in rows if len(row) > 5}
    assert (ranks["exact"], ranks["greedy"], ranks["equal-share"] == "1") == ("1", "1", False)
    values = [float(row[2]) for row in rows if row[3:] and row[-2] in {"optimal", "heuristic"}]
    assert values == sorted(values, reverse=True)


def test_an_objective_by_its_old_name_is_noted(bftrain: CommandLine) -> None:
    for words in (("solve", PROBLEMS / "quickstart.json"), ("decide", PROBLEMS.parent / "events.jsonl")):
        old, new = (bftrain(*words, "--solver", "highs", "--objective", name) for name in ("max_min", "max-min-now"))
        assert (old.code, new.code, old.out.split()[:4]) == (0, 0, new.out.split()[:4])
        assert (old.err.count("'max-min-now'"), "max-min-now" in new.err) == (1, False)


@pytest.mark.parametrize("more", [("--json",), ()])
def test_solvers_print_nothing_themselves(bftrain: CommandLine, more: tuple[str, ...]) -> None:
    # For this problem HiGHS repairs a solution, and prints so with any options
    ended = bftrain("solve", PROBLEMS / "fair.json", "--solver", "highs", "--objective", "max-min", *more)
    assert "Highs" not in ended.out + ended.err


def test_what_own_code_prints_while_highs_solves_is_not_lost(bftrain: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def loud(task, sizes):\n    print('a line')\n    return 1.0 * sizes\n")
    ended = bftrain("solve", "-", "--solver", "highs", "--objective", f"{tmp_path / 'mine.py'}:loud", stdin=PROBLEM)
    assert (ended.code, "a line" in ended.out) == (0, True)


@pytest.mark.parametrize("beyond", [b'{"tasks":"\xff"}', b'{"tasks":' + b"[" * 5000])
def test_a_pipe_of_something_else_is_rejected(bftrain: CommandLine, beyond: bytes) -> None:
    ended = bftrain("solve", "-", stdin=beyond)
    assert (ended.code, ended.err.startswith("bftrain: stdin")) == (3, True)
