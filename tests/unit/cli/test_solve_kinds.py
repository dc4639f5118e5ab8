"""``bftrain solve`` on a problem that counts nodes by kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers.in_process import CommandLine

KINDS = Path(__file__).parents[3] / "examples" / "problems" / "kinds.json"


def test_shares_and_speeds_are_shown(bftrain: CommandLine) -> None:
    ended = bftrain("solve", KINDS)
    assert ended.code == 0, ended.err
    assert ended.out.startswith("water-filling: 1.308056872 (speed of the slowest")
    rows = [line.split() for line in ended.out.splitlines()]
    assert ["resnet", "19.91%", "80.09%", "1.19905"] in rows


def test_as_json_with_another_policy(bftrain: CommandLine) -> None:
    output = json.loads(bftrain("solve", KINDS, "--policy", "makespan", "--json").out)
    assert (output["policy"], output["value_is"]) == ("makespan", "seconds until all are done")
    assert output["value"] == pytest.approx(253_846.153846)
    assert set(output["shares"]) == {"resnet", "lstm", "bert"}
    assert output["speeds"]["lstm"] == pytest.approx(2.0)  # more than the makespan needs: the time is there
    assert output["speeds"]["lstm"] > 500_000 / 253_846.153846


OWN = """
from bftrain.values.sharing import Shares

class Nothing:
    name = "nothing"

    def share(self, problem):
        names = [task.name for task in problem.tasks]
        shares, speeds = dict.fromkeys(names, {}), dict.fromkeys(names, 0.0)
        return Shares(policy="nothing", value=0.0, value_is="-", shares=shares, speeds=speeds)

ready = Nothing()

def five():
    return 5
"""


def test_a_policy_of_ones_own(bftrain: CommandLine, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN, encoding="utf-8")
    for name in ("Nothing", "ready"):
        output = json.loads(bftrain("solve", KINDS, "--policy", f"{own}:{name}", "--json").out)
        assert (output["policy"], output["speeds"]["bert"]) == ("nothing", 0.0)
    refused = bftrain("solve", KINDS, "--policy", f"{own}:five")
    assert refused.code == 3
    assert "returned a int, not a policy (define a class with name and share(problem)" in refused.err


def test_speeds_by_kind_need_no_other_curve(bftrain: CommandLine) -> None:
    curves = {"v100": {"nodes": [1], "rate": [10]}, "k80": {"nodes": [1, 2], "rate": [4, 12]}}
    problem = {"pool": 3, "pools": {"v100": 1, "k80": 2}, "horizon_s": 100}
    problem["tasks"] = [{"name": "t", "max_nodes": 2, "curves": curves}]
    output = json.loads(bftrain("solve", "-", "--json", stdin=json.dumps(problem)).out)
    assert (output["sizes"], output["kinds"], output["value"]) == ({"t": 2}, {"t": "k80"}, 1200.0)
    problem["tasks"] = [{"name": "t", "max_nodes": 2}]
    refused = bftrain("solve", "-", stdin=json.dumps(problem))
    assert refused.code == 3
    assert "curve" in refused.err


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ('{"nodes": {"a": 1}, "tasks": []}', ()),
        ('{"nodes": {"a": 1}, "tasks": []}', ("--policy", "makespan")),
        ('{"pool": 3, "horizon_s": 60, "tasks": []}', ()),
        ('{"pool": 3, "horizon_s": 60, "tasks": []}', ("--solver", "all")),
    ],
)
def test_without_tasks_to_divide_over_it_says_so(bftrain: CommandLine, problem: str, options: tuple[str, ...]) -> None:
    ended = bftrain("solve", "-", *options, stdin=problem)
    assert (ended.code, ended.out, ended.err) == (0, "there are no tasks: all nodes stay idle\n", "")
    assert json.loads(bftrain("solve", "-", *options, "--json", stdin=problem).out)


def test_what_is_wrong_is_said(bftrain: CommandLine) -> None:
    ended = bftrain("solve", KINDS, "--policy", "max")
    assert (ended.code, ended.out) == (3, "")
    assert "no sharing is called 'max' (did you mean 'max-min'?)" in ended.err
    for words in ("--objective", "throughput"), ("--solver", "all"):
        ended = bftrain("solve", KINDS, *words)
        assert (ended.code, ended.out) == (2, "")
        assert f"{words[0]}: a problem with node kinds has none" in ended.err
    quickstart = KINDS.with_name("quickstart.json")
    assert (
        "--policy: is for problems that count nodes by kind" in bftrain("solve", quickstart, "--policy", "max-min").err
    )
    ended = bftrain("solve", "-", stdin='{"nodes": {"a": 1}, "tasks": [{"name": "x", "speeds": {"b": 1}}]}')
    assert "task 'x' has a speed on 'b', an unknown kind" in ended.err


def test_many_solvers_stand_below_each_other_with_their_plans(bftrain: CommandLine) -> None:
    ended = bftrain("solve", KINDS.with_name("quickstart.json"), "--solver", "all")
    assert ended.code == 0, ended.err
    rows = [line.split() for line in ended.out.splitlines() if line.strip()]
    found = {row[0]: row[1:] for row in rows}
    assert found["exact"][:4] == ["1", "6334.730769", "6334.730769", "optimal"]
    assert found["greedy"][:4] == ["1", "6334.730769", "-", "heuristic"]
    assert found["equal-share"][0] != "1"
    assert found["resnet"][0] == "4"
    values = [float(row[2]) for row in rows if row[3:] and row[-2] in {"optimal", "heuristic"}]
    assert values == sorted(values, reverse=True)
    assert max(map(len, ended.out.splitlines())) <= 80


def test_an_objective_by_its_old_name_is_noted(bftrain: CommandLine) -> None:
    note = "warning: the objective 'max_min' is called 'max-min-now' now; 'max-min' is another objective\n"
    words = ("solve", KINDS.with_name("quickstart.json"), "--solver", "highs", "--objective")
    old, new = (bftrain(*words, name) for name in ("max_min", "max-min-now"))
    assert (old.code, new.code) == (0, 0)
    assert old.err.count(note) == 1
    assert note not in new.err
    decided = bftrain("decide", KINDS.parents[1] / "events.jsonl", "--solver", "highs", "--objective", "max_min")
    assert (decided.code, decided.err.count(note)) == (0, 1)
