"""Node kinds on the command line: decide, its journal, and solve."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from bftrain import NodesJoined, generate_log, load_log, save_log, save_tasks
from tests.helpers.in_process import CommandLine
from tests.helpers.lines import lines
from tests.unit.core.samples import curve, left, spec, submitted

FAST, SLOW = curve(10.0, 19.0), curve(4.0, 8.0)
BOTH = spec("both", largest=2, curves={"v100": FAST, "k80": SLOW}, start_cost_s=5.0, shrink_cost_s=5.0)
A_DAY: list[Any] = [
    [NodesJoined(time_s=0, nodes=("k1", "k2"), kind="k80"), submitted(0, BOTH)],
    NodesJoined(time_s=100, nodes=("v1", "v2"), kind="v100"),
    left(200, "v1", "v2"),
]
ACTIONS = [
    {"action": "start", "nodes": ["k1", "k2"], "task": "both"},
    {"action": "stop", "nodes": ["k1", "k2"], "task": "both", "cause": "decided"},
    {"action": "start", "nodes": ["v1", "v2"], "task": "both"},
    {"action": "release", "nodes": ["v1", "v2"]},
    {"action": "stop", "nodes": ["v1", "v2"], "task": "both", "cause": "preempted"},
    {"action": "start", "nodes": ["k1", "k2"], "task": "both"},
]
PROBLEM: dict[str, Any] = {
    "pool": 4,
    "pools": {"v100": 2, "k80": 2},
    "horizon_s": 100,
    "tasks": [
        {
            "name": "both",
            "max_nodes": 2,
            "curve": {"nodes": [1], "rate": [1]},
            "curves": {"v100": {"nodes": [1], "rate": [10]}, "k80": {"nodes": [1, 2], "rate": [4, 8]}},
        },
        {"name": "any", "max_nodes": 2, "curve": {"nodes": [1, 2], "rate": [3, 6]}},
    ],
}


def test_a_day_with_two_kinds_is_decided_recorded_and_decided_again(bftrain: CommandLine, tmp_path: Path) -> None:
    journal = tmp_path / "j.db"
    first = bftrain("decide", "--journal", journal, stdin=lines(A_DAY[:2]))
    second = bftrain("decide", "--journal", journal, stdin=lines(A_DAY[2:]))
    actions = [json.loads(line) for line in (first.out + second.out).splitlines()]
    assert actions == ACTIONS
    assert json.loads(bftrain("journal", "verify", journal, "--json").out)["steps"] == 3
    assert json.loads(bftrain("journal", "plan", journal, "--json").out)["holdings"] == {"both": ["k1", "k2"]}
    shown = bftrain("journal", "show", journal, "--json").out
    assert '"kind":"v100"' in shown.replace(" ", "")
    assert '"kinds":{"both":"v100"}' in shown.replace(" ", "")


def test_a_problem_with_pools_is_solved_and_its_answer_names_the_kinds(bftrain: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text(json.dumps(PROBLEM))
    ended = bftrain("solve", tmp_path / "p.json", "--json")
    answer = json.loads(ended.out)
    assert (ended.code, answer["value"], answer["termination"]) == (0, 1600.0, "optimal")
    assert (answer["sizes"], answer["kinds"]) == ({"both": 1, "any": 2}, {"both": "v100", "any": "k80"})
    assert "task 'both': on v100: nothing measured beyond 1 nodes" in ended.err
    both, any_kind = PROBLEM["tasks"]
    without = {**PROBLEM, "tasks": [{key: value for key, value in both.items() if key != "curve"}, any_kind]}
    assert json.loads(bftrain("solve", "-", "--json", stdin=json.dumps(without)).out)["sizes"] == answer["sizes"]
    neither = {**PROBLEM, "tasks": [{"name": "both", "max_nodes": 2}]}
    refused = bftrain("solve", "-", stdin=json.dumps(neither))
    assert refused.code == 3
    assert "curve: is missing (give curve, or curves by kind of node)" in refused.err
    shown = bftrain("solve", tmp_path / "p.json", "--solver", "all").out
    assert "2 v100, 2 k80, 100 s ahead" in shown
    assert "1 v100" in shown
    assert "'equal-share-published' cannot tell kinds of nodes apart" in " ".join(shown.split())


def test_a_task_that_runs_on_no_kind_of_a_log_is_refused_before_anything_is_written(
    bftrain: CommandLine, tmp_path: Path
) -> None:
    log, tasks, kinds, out = (tmp_path / name for name in ("log.npz", "tasks.toml", "kinds.toml", "out"))
    save_log(generate_log(4, 0.1, 1), log)
    names = load_log(log).node_names
    kinds.write_text(f'v100 = "{",".join(names[:2])}"\nk80 = "{",".join(names[2:])}"\n')
    save_tasks([BOTH, spec("lost", largest=2, curves={"tpu": FAST})], tasks)
    asked = ("replay", log, "--tasks", tasks, "--kinds", kinds, "-o", out)
    ended = bftrain(*asked)
    assert (ended.code, ended.out, out.exists()) == (3, "", False)
    assert ended.err.startswith(
        f"bftrain: {tasks}: no kind of node in the log can ever hold task 'lost', which runs on tpu only (leave"
    )
    save_tasks([BOTH], tasks)
    assert bftrain(*asked).code == 0
