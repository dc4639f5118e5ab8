"""Sweeps on clusters, whose nodes never leave, and of time shared in rounds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bftrain import BadConfig, load_tasks, rounds, save_log
from tests.helpers.campaigns import CAMPAIGN_STRETCH
from tests.helpers.in_process import CommandLine
from tests.unit.replay.cases import log_of
from tests.unit.replay.sweeping.sweep_case import LOGS, SweepResult, counted, planned
from tests.unit.replay.sweeping.sweep_case import swept as sweep_here

GANGS = {"kind": "cluster", "count": 8, "gangs": "1:0.7,2:0.3", "long_share": 0.0, "users": 2}
ROUNDS = {"round_s": 360}
FOUR = {"v100": 2, "k80": 2}


def given(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - as in a sweep file
    return {"cluster": "v100=2,k80=2", "tasks": "jobs", "task_sets": {"jobs": GANGS}, **more}


def swept(folder: Path, sweep_file: dict[str, Any]) -> SweepResult:
    return sweep_here(sweep_file, folder)


@pytest.fixture(autouse=True)
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> CommandLine:
    monkeypatch.chdir(tmp_path)
    return CommandLine(monkeypatch, capfd)


def jobs(command: CommandLine, seed: int, *options: object) -> Path:
    """Let the command generate the same tasks as the sweep; return their file."""
    asked = ("--kind", "cluster", "--count", 8, "--gangs", "1:0.7,2:0.3", "--long-share", 0, "--users", 2)
    ended = command("generate", "tasks", "-o", f"{seed}{options}.toml", "--seed", seed, *asked, *options)
    assert ended.code == 0, ended.err
    return Path(f"{seed}{options}.toml")


def test_rounds_come_to_the_figures_of_the_command(command: CommandLine, tmp_path: Path) -> None:
    grid = {"policy": ["fifo", "max-min"], "tasks.arrivals_per_hour": [1, 40], "seed": [1, 2]}
    done = swept(tmp_path, given(fixed=ROUNDS, grid=grid))
    assert [row.state for row in done.rows] == ["done"] * 8
    for row in done.rows:
        options = row.point.options
        tasks = load_tasks(jobs(command, options["seed"], "--arrivals-per-hour", options["tasks.arrivals_per_hour"]))
        one = rounds(FOUR, tasks, round_s=360.0, policy=options["policy"])
        assert one.task_figures.completion_s is not None
        assert row.cells["completion_s_mean"] == one.task_figures.completion_s.mean
        assert row.cells["preemptions"] == one.summary["preemptions"]
        cells = (row.cells["policy"], row.cells["ended"], row.cells["task_count"])
        assert cells == (options["policy"], "all_done", 8)
    names = [column.name for column in done.columns]
    assert len(set(names)) == len(names)
    assert {"responsiveness_s_mean", "rho_p95", "rounds", "wall_s", "shares_wall_s"} < set(names)
    assert not {"solver", "efficiency", "solve_ms_p50", "kinds", "users"} & set(names)


def test_a_cluster_without_rounds_comes_to_the_figures_of_the_command(command: CommandLine, tmp_path: Path) -> None:
    grid = {"cluster": [2, "v100=2,k80=2"], "seed": [1]}
    sweep_file = {**given(baseline="equal-share", grid=grid)}
    del sweep_file["cluster"]
    done = swept(tmp_path, sweep_file)
    assert [row.state for row in done.rows] == ["done"] * 2
    tasks = jobs(command, 1)
    for row, nodes in zip(done.rows, ("2", "v100=2,k80=2"), strict=True):
        asked = ("--cluster", nodes, "--tasks", tasks, "--baseline", "equal-share", "-o", f"of {nodes}")
        ended = command("replay", *asked, "--json", "-q")
        assert ended.code == 0, ended.err
        figures = json.loads(ended.out)
        assert row.cells["completion_s_mean"] == figures["completion_s"]["mean"]
        assert row.cells["harvested"] == figures["harvested"]
        assert row.cells["ended"] == "all_done"
        assert row.cells["baseline_makespan_s"] == figures["baseline"]["makespan_s"]
    assert done.summary()["passes"] == 4  # and no yardsticks
    assert "2 replays of 2 nodes, v100=2,k80=2 with jobs" in (tmp_path / "report.html").read_text()


def test_rounds_share_the_idle_nodes_of_a_log_too(tmp_path: Path) -> None:
    sweep_file = given(log="small", logs=LOGS, fixed=ROUNDS, grid={"policy": ["fifo", "las"], "nodes": ["0:8"]})
    del sweep_file["cluster"]
    done = swept(tmp_path, sweep_file)
    assert [(row.state, row.cells["ended"]) for row in done.rows] == [("done", "log_end")] * 2


def test_until_ends_both(tmp_path: Path) -> None:
    done = swept(tmp_path, given(grid={"until_s": [600, 1e7]}))
    assert [(row.cells["until_s"], row.cells["ended"]) for row in done.rows] == [(600, "until"), (1e7, "all_done")]
    done = swept(tmp_path / "rounds", given(fixed=ROUNDS, grid={"until_s": [720, 1e7]}))
    assert (done.rows[0].cells["until_s"], done.rows[0].cells["simulated_s"]) == (720, 720.0)


def test_an_early_end_is_reported(tmp_path: Path) -> None:
    flood = {**GANGS, "count": 40, "arrivals_per_hour": 20.0}
    fixed = {"round_s": 360, "max_backlog_s": 3600}
    done = swept(tmp_path, given(task_sets={"jobs": flood}, fixed=fixed, grid={"policy": ["fifo", "las"]}))
    assert [row.cells["ended"] for row in done.rows] == ["overload"] * 2
    (warning,) = done.warnings
    assert warning.startswith("ended early: the queue grows without bound")
    assert "Ended early: the queue grows" in (tmp_path / "report.html").read_text()


def test_a_policy_of_ones_own_is_known_by_its_content(tmp_path: Path) -> None:
    mine, out = tmp_path / "mine.py", tmp_path / "out"
    mine.write_text("class Mine:\n    name = 'mine'\n\n    def priorities(self, now):\n        return -now.submit_s\n")
    sweep_file = given(fixed=ROUNDS, grid={"policy": ["mine.py:Mine", "fifo"]})
    count, done = counted(sweep_file, out)
    assert done.rows[0].cells["policy"] == "mine.py:Mine"
    assert done.rows[0].cells["completion_s_mean"] == pytest.approx(done.rows[1].cells["completion_s_mean"])
    mine.write_text(mine.read_text().replace("-now", "+now"))
    assert (count, counted(sweep_file, out)[0]) == (2, 1)
    mine.unlink()
    failed = swept(tmp_path / "without", sweep_file).rows[0]
    assert failed.state == "failed"
    assert str(tmp_path) not in failed.error.partition("no such file")[0]


SPEEDS = {
    "phases": ("model,from,nodes,rate\nresnet18,0,1,{}\n", 100, 200),
    "pairs": ('{{"v100": {{"(\'A\', 1)": {{"null": 1.0, "(\'A\', 1)": [{0}, {0}]}}}}}}', 0.5, 0.9),
}


@pytest.mark.parametrize("name", SPEEDS)
def test_a_table_of_speeds_is_identified_by_its_content(name: str, tmp_path: Path) -> None:
    text, first, second = SPEEDS[name]
    table, out = tmp_path / "folder" / "table", tmp_path / "out"
    table.parent.mkdir()
    spec = table.with_name("sweep.toml")
    spec.write_text(
        f'cluster = 2\ntasks = "jobs"\ntask_sets = {{ jobs = {{ kind = "cluster", count = 2 }} }}\n'
        f'[fixed]\nround_s = 60\n{name} = "table"\n'
    )
    counts = []
    for rate in (first, second, second, first):
        table.write_text(text.format(rate))
        count, done = counted(spec, out)
        counts.append(count)
        assert done.rows[0].error == ""
    assert counts == [1, 1, 0, 0]
    table.rename(tmp_path / "other")
    spec.write_text(spec.read_text().replace('"table"', '"../other"'))
    assert counted(spec, out)[0] == 0
    (tmp_path / "other").unlink()
    with pytest.raises(BadConfig, match=rf"sweep.toml:6: fixed.{name}: there is no file .*other"):
        planned(spec, out)


def test_an_edited_table_of_speeds_fails_its_passes(tmp_path: Path) -> None:
    table = tmp_path / "phases.csv"
    table.write_text("model,from,nodes,rate\nresnet18,0,1,100\n")
    fixed = {**ROUNDS, "phases": "phases.csv"}

    def edit(_: object) -> None:
        table.write_text("model,from,nodes,rate\nresnet18,0,1,200\n")

    (row,) = sweep_here(given(fixed=fixed), tmp_path / "out", watch=edit).rows
    assert row.error == "phases.csv: has changed since the sweep started"


def test_admissions_can_be_swept_and_metrics_have_columns(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def longest(run):\n    return max(task.waited_s for task in run.tasks)\n")
    fixed = {**ROUNDS, "policy": "las", "metrics": f"mine.py:longest,{CAMPAIGN_STRETCH}"}
    done = swept(tmp_path, given(fixed=fixed, grid={"admission": ["all", "load=1"]}))
    assert [row.state for row in done.rows] == ["done"] * 2, [row.error for row in done.rows]
    assert [row.cells["metrics_campaigns"] for row in done.rows] == [2, 2]  # one of each user: all come at once
    assert all(row.cells["metrics_longest"] == row.cells["waited_s_max"] for row in done.rows)
    assert [column.name for column in done.columns].count("metrics_longest") == 1


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('log = "l"', r"sweep.toml:1: cluster: takes the place of a log"),
        ("[fixed]\npolicy = 'las'", r"sweep.toml:\d+: fixed.policy: is for time shared in rounds .*round_s = 360"),
        ("[fixed]\nround_s = 60\n[grid]\nsolver = ['exact']", r"grid.solver: has no effect in rounds"),
        ("[fixed]\nround_s = 0", r"fixed.round_s: must be at least 1e-09, not 0"),
        ("[fixed]\nround_s = 1e308", r"fixed.round_s: must not exceed 1e\+12, but is 1e\+308"),
        ("[fixed]\nround_s = 5e-324", r"fixed.round_s: must be at least 1e-09, not 4\.9"),
        ("[fixed]\nround_s = 60\nfinish = 'soon'", r"fixed.finish: is 'soon'"),
        ("baseline = 'greedy'\n[fixed]\nround_s = 60", r"baseline: is a solver, and in rounds a policy decides"),
        ("[fixed]\nround_s = 60\nnodes = '0:3'", r"fixed.nodes: is for logs"),
        ("[fixed]\nwindow = '0:3'", r"fixed.window: is for logs"),
        ("[fixed]\nuntil_s = 'late'", r"fixed.until_s: must be a finite number above 0, not 'late'"),
        ("[grid]\nuntil_s = [60, inf]", r"sweep.toml:5: grid.until_s: must be a finite number above 0, not inf"),
        ("[fixed]\nround_s = 60\n[grid]\nuntil_s = [inf]", r"sweep.toml:7: grid.until_s: must be a finite number"),
        ("[grid]\nadmission = ['laod=1']", r"sweep.toml:5: grid.admission: no admission is called 'laod'"),
        ("[grid]\nadmission = ['all', 'load,size=1']", r"sweep.toml:5: grid.admission: has no setting 'size'"),
        ("[fixed]\nround_s = 60\nadmission = 'laod'", r"sweep.toml:6: fixed.admission: no admission is called 'laod'"),
        ("[fixed]\nround_s = 60\n[grid]\npolicy = ['las', 'lsa']", r"sweep.toml:7: grid.policy: no policy of rounds"),
        (
            "[fixed]\nround_s = 60\n[grid]\npolicy = ['tiresias=abc']",
            r"sweep.toml:7: grid.policy: threshold_node_s must",
        ),
        ("[fixed]\nmetrics = 'campagins'", r"fixed.metrics: no metric is called 'campagins'"),
        ("[grid]\nlog.nodes = [3]", r"grid.log.nodes: requires a generated log"),
        ("[grid]\ntasks.speeds = ['none.json']", r"grid.tasks.speeds: there is no file .*none.json"),
        ("[grid]\ntasks.kinds = ['v100']", r"grid.tasks.kinds: .*kinds requires speeds"),
    ],
)
def test_complaints_name_line_and_option(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "sweep.toml"
    path.write_text(
        f'cluster = 4\ntasks = "jobs"\ntask_sets = {{ jobs = {{ kind = "cluster", count = 2 }} }}\n{text}\n'
    )
    with pytest.raises(BadConfig, match=complaint):
        planned(path, tmp_path / "out")


def test_means_over_tasks_that_are_not_there_are_refused_before_any_work(tmp_path: Path) -> None:
    sweep_file = given(fixed=ROUNDS, grid={"tasks.count": [8, 4], "measure": ["0:3", "2:5"]})
    with pytest.raises(BadConfig, match=r"grid.measure: goes to 5 \(the last task is 3\)"):
        planned(sweep_file, tmp_path / "out")


@pytest.mark.parametrize(
    ("nodes", "complaint"),
    [("v100=0", "there must be at least 1 node of 'v100'"), (0, "at least 1 node"), (1.5, "must be text")],
)
def test_what_is_no_cluster_is_refused(nodes: str | float, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=complaint):
        planned(given(cluster=nodes), tmp_path)


def test_a_log_has_an_end_and_a_point_needs_nodes(tmp_path: Path) -> None:
    sweep_file = {"tasks": "jobs", "task_sets": {"jobs": GANGS}, "logs": LOGS}
    with pytest.raises(BadConfig, match=r"until_s: is for clusters: a log has an end"):
        planned({**sweep_file, "log": "small", "fixed": {"until_s": 60}}, tmp_path)
    with pytest.raises(BadConfig, match=r"names no log \(write log = .*, or cluster = "):
        planned(sweep_file, tmp_path)
    save_log(log_of((0.0, "ab", ""), end_s=100.0), tmp_path / "log.npz")
    cases = [{"cluster": 3}, {"log": "log.npz"}]
    assert len(planned({**sweep_file, "cases": cases}, tmp_path / "out").rows) == 2


def test_a_task_that_no_node_can_hold_fails_its_points_by_name(tmp_path: Path) -> None:
    wide = {**GANGS, "gangs": "4:1"}
    done = swept(tmp_path, given(task_sets={"jobs": wide}, cases=[{"max_tasks": 4}, {"round_s": 360}]))
    assert [row.state for row in done.rows] == ["failed"] * 2
    assert "this cluster can never hold task" in done.rows[0].error
    assert "can never run: it needs 4 nodes of a kind" in done.rows[1].error
