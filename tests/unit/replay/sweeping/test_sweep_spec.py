"""What a sweep file may say, what its points are, and that every complaint names the line and the key."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bftrain import BadConfig
from tests.unit.replay.sweeping.sweep_case import planned

INPUTS = """\
log = "small"
tasks = "mix"

[logs]
small = { nodes = 8, days = 0.1, seed = 3 }

[task_sets]
mix = { count = 2, max_nodes = 4 }
"""


def points(folder: Path, text: str, inputs: str = INPUTS) -> list[Any]:
    path = folder / "sweep.toml"
    path.write_text(inputs + text)
    return [row.point for row in planned(path, folder / "out").rows]


def values(folder: Path, text: str, option: str = "horizon_s") -> list[object]:
    return [point.options[option] for point in points(folder, f"[grid]\n{option} = {text}\n")]


def test_all_combinations_are_points_and_the_last_option_changes_fastest(tmp_path: Path) -> None:
    found = points(tmp_path, '[fixed]\nseed = 4\n[grid]\nmax_tasks = [5, 10]\nsolver = ["exact", "greedy"]\n')
    assert [point.options for point in found] == [
        {"max_tasks": 5, "solver": "exact"},
        {"max_tasks": 5, "solver": "greedy"},
        {"max_tasks": 10, "solver": "exact"},
        {"max_tasks": 10, "solver": "greedy"},
    ]
    assert {(point.log, point.tasks, point.baseline, point.settings.seed) for point in found} == {
        ("small", "mix", "", 4)
    }
    assert [point.settings.max_tasks for point in found] == [5, 5, 10, 10]


def test_cases_are_options_that_go_together(tmp_path: Path) -> None:
    text = """
        [grid]
        max_tasks = [5, 10]
        [[cases]]
        objective = "max-min-now"
        solver = "highs"
        [[cases]]
        horizon_s = 60
    """
    assert [tuple(point.options.values()) for point in points(tmp_path, text)] == [
        ("max-min-now", "highs", "auto", 5),
        ("max-min-now", "highs", "auto", 10),
        ("throughput", "exact", 60.0, 5),
        ("throughput", "exact", 60.0, 10),
    ]


@pytest.mark.parametrize(
    ("text", "option", "found"),
    [
        ("[30, 60]", "horizon_s", [30.0, 60.0]),
        ("{ from = 0, to = 0.3, step = 0.1 }", "min_interval_s", [0.0, 0.1, 0.2, 0.3]),
        ("{ from = 3, to = 6 }", "seed", [3, 4, 5, 6]),
        ("{ from = 1, to = 3, step = 0.25 }", "max_tasks", [1, 2, 3]),
        ("[0, 'measured']", "decision_latency_s", [0.0, "measured"]),
        ("['30s', '2min', 300, 'auto']", "horizon_s", [30.0, 120.0, 300.0, "auto"]),
        ("{ from = '1min', to = '5min', step = '2min' }", "horizon_s", [60.0, 180.0, 300.0]),
    ],
)
def test_values_are_listed_or_a_range(tmp_path: Path, text: str, option: str, found: list[object]) -> None:
    assert values(tmp_path, text, option) == found


def test_inputs_and_the_baseline_can_be_swept_too(tmp_path: Path) -> None:
    text = '[grid]\nlog = ["small", "other"]\nbaseline = ["greedy", "equal-share"]\n'
    inputs = INPUTS.replace('log = "small"\n', "").replace("[logs]\n", "[logs]\nother = { nodes = 4, days = 0.1 }\n")
    found = points(tmp_path, text, inputs)
    assert len({(point.log, point.baseline) for point in found}) == 4


def test_without_a_grid_there_is_one_point(tmp_path: Path) -> None:
    (point,) = points(tmp_path, "")
    assert point.options == {}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[grid]\nhorizon = [1]\n", "sweep.toml:10: grid.horizon: there is no such option (did you mean 'horizon_s'?)"),
        ("[fixed]\nmax_task = 3\n", "sweep.toml:10: fixed.max_task: there is no such option (did you mean"),
        ("[grdi]\n", "sweep.toml:9: grdi: unknown key (did you mean 'grid'?)"),
        ("[grid]\nmax_tasks = 5\n", "sweep.toml:10: grid.max_tasks: must be a list of values, not 5"),
        ("[grid]\nmax_tasks = []\n", "sweep.toml:10: grid.max_tasks: has no value"),
        ("[grid]\nmax_tasks = [5, 2.5]\n", "sweep.toml:10: grid.max_tasks: must be a whole number, not 2.5"),
        ("[grid]\nmax_tasks = [true]\n", "sweep.toml:10: grid.max_tasks: must be text or a number, not True"),
        ("[fixed]\nhorizon_s = '2 fortnights'\n", "sweep.toml:10: fixed.horizon_s: "),
        ("[fixed]\nhorizon_s = -1\n", "sweep.toml:10: fixed.horizon_s: must be above 0, not -1"),
        ("[fixed]\nsemantics = 'publshed'\n", ":10: fixed.semantics: is 'publshed' (did you mean 'published'?)"),
        ("[[cases]]\n[[cases]]\nmax_tasks = 0\n", "sweep.toml:11: cases.2.max_tasks: must be at least 1, not 0"),
        ("[fixed]\nlog = 'a'\n", "sweep.toml:10: fixed.log: is no setting (write it at the top: log = ...)"),
        ("[fixed]\nseed = 1\n[grid]\nseed = [1]\n", "sweep.toml:12: grid.seed: is also in [fixed]"),
        ("[grid]\nseed = [1]\n[[cases]]\nseed = 2\n", "sweep.toml:12: cases.1.seed: also has values in [grid]"),
        ("[grid]\nlog = ['x']\n", "sweep.toml:10: grid.log: is also at the top of the file"),
        ("[grid]\nhorizon_s = [10, 10.0]\n", "sweep.toml:9: grid: the point horizon_s = 10.0 appears twice"),
        ("[grid]\nseed = { from = 1, to = 2000, step = 1 }\nmax_tasks = { from = 1, to = 2000 }\n", "4,000,000 points"),
        ("[grid]\nhorizon_s = { from = 1, to = 2, stpe = 3 }\n", "a range has no 'stpe' (did you mean 'step'?)"),
        ("[grid]\nhorizon_s = { from = 1, step = 3 }\n", "grid.horizon_s: has no to (write { from = 1"),
        ("[grid]\nhorizon_s = { from = 1, to = 'x', step = 3 }\n", "to: must be a number, not 'x'"),
        ("[grid]\nhorizon_s = { from = 2, to = 1, step = 1 }\n", "grid.horizon_s: goes nowhere"),
        ("[grid]\nseed = { from = 1, to = 1e9 }\n", "grid.seed: has 1,000,000,000 values"),
        ("cases = 3\n", "task_sets.cases: must be a file or a table, not 3"),
        ("a = {cuont = 3}\n", "sweep.toml:9: task_sets.a.cuont: unknown key (did you mean 'count'?)"),
        ("a = {count = 'x'}\n", "sweep.toml:9: task_sets.a: count: must be a whole number, not text"),
        ("a = {profile = 'vgg16'}\n", "sweep.toml:9: task_sets.a: profile requires kind = 'trials'"),
        ("a = 'nowhere.csv'\n", "sweep.toml:9: task_sets.a: there is no file"),
        ("[grid\n\n", "sweep.toml:9: is not valid TOML"),
    ],
)
def test_a_complaint_names_file_line_and_key(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(BadConfig) as refused:
        points(tmp_path, text)
    assert complaint in str(refused.value)


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        ('tasks = "t"\n', "sweep.toml: names no log (write log = "),
        ('log = "l.npz"\n[[cases]]\ntasks = "t"\n[[cases]]\n', "sweep.toml: names no tasks"),
        ('log = "l.npz"\ntasks = "t.csv"\n', "sweep.toml:1: log: there is no file"),
        ('log = "smal"\ntasks = "t.csv"\n[logs]\nsmall = { nodes = 2, days = 1 }\n', "(did you mean 'small'?)"),
        ("log = 3\ntasks = 't'\n", "sweep.toml:1: log: must be text, not 3"),
        ("title = 3\n", "sweep.toml:1: title: must be text, not 3"),
        ("yardsticks = 1\n", "sweep.toml:1: yardsticks: must be true or false, not 1"),
        ("grid = 3\n", "sweep.toml:1: grid: must be a table, not 3"),
        ("cases = 3\n", "sweep.toml:1: cases: must be tables such as [[cases]], not 3"),
        ("cases = [3]\n", "sweep.toml:1: cases: must be tables such as [[cases]]"),
        ("horizon_s = 3\n", "sweep.toml:1: horizon_s: unknown key (settings belong in [fixed] or [grid])"),
    ],
)
def test_what_a_sweep_needs(tmp_path: Path, inputs: str, complaint: str) -> None:
    with pytest.raises(BadConfig) as refused:
        points(tmp_path, "", inputs)
    assert complaint in str(refused.value)


def test_a_mapping_says_the_same_as_a_file(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"^sweep: grid\.sede: there is no such option"):
        planned({"log": "l", "tasks": "t", "grid": {"sede": [1]}}, tmp_path)
