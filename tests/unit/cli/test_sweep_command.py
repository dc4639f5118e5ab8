"""``bftrain sweep`` as a function of its file."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from bftrain.cli.output import Output
from bftrain_replay.commands import sweep as sweep_command
from bftrain_replay.commands.sweep import progress
from bftrain_replay.drawing import vega
from bftrain_replay.sweeping.executors.slurm_jobs import option
from bftrain_replay.sweeping.run_point import WorkerActivity
from bftrain_replay.sweeping.sweep import SweepStatus
from tests.helpers.in_process import CommandLine

INPUTS = """\
log = "small"
tasks = "mix"
logs = { small = { nodes = 12, days = 0.1, seed = 3 } }
task_sets = { mix = { count = 3, max_nodes = 4, work_samples = 1e7 } }
"""


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(INPUTS + "[grid]\nmax_tasks = [1, 3]\ncost_factor = [1, 2.5]\n")
    return path


@pytest.mark.parametrize("option", [(), ("--dry-run",)])
@pytest.mark.parametrize("grid", ["", "tasks.count = [3, 0x7fffffff]\n"])
def test_more_tasks_than_memory_holds_are_refused(
    bftrain: CommandLine, tmp_path: Path, grid: str, option: tuple[str, ...]
) -> None:
    inputs = INPUTS if grid else INPUTS.replace("count = 3", "count = 0x7fffffff")
    path, out = tmp_path / "large.toml", tmp_path / "out"
    path.write_text(f"{inputs}[grid]\nmax_tasks = [1, 3]\n{grid}")
    ended = bftrain("sweep", path, "-o", out, *option)
    assert ended.code == 3
    assert "count must be at most 500,000, not 2,147,483,647" in ended.err
    assert not out.exists()


def test_a_sweep_prints_its_figures_and_writes_its_files(bftrain: CommandLine, spec: Path, tmp_path: Path) -> None:
    ended = bftrain("sweep", spec, "-o", tmp_path / "out", "--jobs", 1)
    assert ended.code == 0
    lines = ended.out.strip().splitlines()
    assert lines[0] == "mine: 4 points"
    assert lines[2].split()[:2] == ["max_tasks", "cost_factor"]
    assert [line.split()[:2] for line in lines[4:]] == [["1", "1"], ["1", "2.5"], ["3", "1"], ["3", "2.5"]]
    assert "status" not in lines[2]
    assert ended.err == f"result: {tmp_path / 'out'}\n"
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"table.csv", "sweep.json", "points.jsonl"} <= names


def test_the_terminal_says_what_compares_as_the_page_does(bftrain: CommandLine, spec: Path, tmp_path: Path) -> None:
    spec.write_text(spec.read_text().replace("work_samples = 1e7", "work_samples = 1000"))
    ended = bftrain("sweep", spec, "-o", tmp_path / "out", "--jobs", 1)
    note = "In 4 of 4 points the tasks ran out, and all harvests are equal: compare all tasks finished after"
    assert f"warning: {note}\n" in ended.err
    assert note in (tmp_path / "out" / "report.html").read_text()
    assert "finished after" in ended.out


def test_two_columns_can_be_drawn_against_each_other(bftrain: CommandLine, spec: Path, tmp_path: Path) -> None:
    out, svg = tmp_path / "out", tmp_path / "svg"
    wrong = bftrain("sweep", spec, "-o", out, "--pareto", "harvested,preemption")
    assert (wrong.code, "did you mean 'preemptions'?" in wrong.err, out.exists()) == (2, True, False)
    drawing = ("--svg", svg) if vega.available() else ()
    ended = bftrain("sweep", spec, "-o", out, "--jobs", 1, "--pareto", "harvested,preemptions", *drawing)
    assert (ended.code, ended.out.splitlines()[0]) == (0, "mine: 4 points")
    front = json.loads((out / "sweep.json").read_text())["pareto"]["front"]
    assert {frozenset(one["options"]) for one in front} == {frozenset({"max_tasks", "cost_factor"})}
    if drawing:
        assert 'id="pareto-harvested-preemptions"' in (out / "report.html").read_text()
        assert (svg / "pareto-harvested-preemptions.svg").read_text().startswith("<svg")


def test_on_a_narrow_terminal_no_word_is_broken(
    bftrain: CommandLine, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = bftrain("sweep", spec, "-o", tmp_path / "out", "--jobs", 1)
    monkeypatch.setattr("bftrain.cli.output._PIPE_WIDTH", 40)
    narrow = bftrain("sweep", spec, "-o", tmp_path / "out", "--jobs", 1)
    assert max(map(len, narrow.out.splitlines())) <= 40
    assert {word.strip(",") for word in whole.out.split()} - {word.strip(",") for word in narrow.out.split()} <= {
        word for word in whole.out.split() if "─" in word
    }
    assert "3, 2.5" in narrow.out


def test_json_has_the_table(bftrain: CommandLine, spec: Path, tmp_path: Path) -> None:
    ended = bftrain("sweep", spec, "-o", tmp_path / "out", "--jobs", 1, "--json", "-q")
    assert (ended.code, ended.err) == (0, "")
    output = json.loads(ended.out)
    written = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert {name: output[name] for name in written} == written
    assert [row["max_tasks"] for row in output["rows"]] == [1, 1, 3, 3]
    assert all(0 < row["efficiency"] <= 1 for row in output["rows"])


def test_a_dry_run_says_what_there_is_to_do(bftrain: CommandLine, spec: Path, tmp_path: Path) -> None:
    ended = bftrain("sweep", spec, "-o", tmp_path / "out", "--dry-run")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("mine: 4 points; 6 of 6 replays are still to be done\n")
    assert not (tmp_path / "out").exists()
    assert json.loads(bftrain("sweep", spec, "-o", tmp_path / "out", "--dry-run", "--json").out)["to_do"] == 6
    assert bftrain("sweep", spec, "-o", tmp_path / "out", "--jobs", 1).code == 0
    spec.write_text(spec.read_text().replace("[1, 3]", "[1, 3, 2]"))
    assert "; 3 of 9 replays are still to be done" in bftrain("sweep", spec, "-o", tmp_path / "out", "--dry-run").out


def test_points_that_fail_are_reported_and_the_rest_is_done(bftrain: CommandLine, spec: Path, tmp_path: Path) -> None:
    solvers = ["exact", "exakt", *(f"no-{number}" for number in range(6))]
    spec.write_text(f"{INPUTS}[grid]\nsolver = {solvers}\n")
    ended = bftrain("sweep", spec, "-o", tmp_path / "out", "--jobs", 1)
    assert ended.code == 1
    lines = ended.err.splitlines()
    assert lines[0] == "warning: failed: solver = exakt: no solver is called 'exakt' (did you mean 'exact'?)"
    assert "warning: 2 more reasons are in the table" in lines
    assert lines[-1] == (
        f"bftrain: {tmp_path / 'out'}: 7 of 8 points failed (the table says why; --retry-failed tries them again)"
    )
    assert [line.split()[-1] for line in ended.out.strip().splitlines()[4:]] == ["done"] + ["failed"] * 7
    spec.write_text(f'{INPUTS}[grid]\nsolver = ["exact"]\n')
    assert bftrain("sweep", spec, "-o", tmp_path / "out", "--jobs", 1).code == 0


def test_a_table_longer_than_a_screen_is_cut_on_it(bftrain: CommandLine, spec: Path, tmp_path: Path) -> None:
    spec.write_text(f"{INPUTS}yardsticks = false\n[grid]\nseed = {{ from = 1, to = 60 }}\n")
    ended = bftrain("sweep", spec, "-o", tmp_path / "out", "--dry-run")
    assert ended.out.startswith("mine: 60 points, the first 50 of them; 60 of 60 replays")
    assert len(ended.out.strip().splitlines()) == 4 + 50


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--dask", "slurm", "--dask-option", "queue"), "'queue' is not NAME=VALUE"),
        (("--dask-option", "queue=main"), "--dask-option: is for --dask slurm"),
        (("--dask", "tcp://127.0.0.1:1", "--jobs", "2"), "--jobs: is not ours to choose"),
        (("--jobs", "0"), "0 is not in the range x>=1"),
    ],
)
def test_options_that_do_not_go_together(
    bftrain: CommandLine, spec: Path, tmp_path: Path, options: tuple[str, ...], complaint: str
) -> None:
    ended = bftrain("sweep", spec, "-o", tmp_path / "out", *options)
    assert ended.code == 2
    assert complaint in ended.err
    assert not (tmp_path / "out").exists()


def test_a_wrong_file_is_refused_before_any_work(bftrain: CommandLine, spec: Path, tmp_path: Path) -> None:
    spec.write_text(INPUTS + "[grid]\nmax_taks = [1]\n")
    ended = bftrain("sweep", spec, "-o", tmp_path / "out")
    assert ended.code == 3
    assert ended.err == (f"bftrain: {spec}:6: grid.max_taks: there is no such option (did you mean 'max_tasks'?)\n")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("queue=main", ("queue", "main")),
        ("cores=2", ("cores", 2)),
        ("walltime=01:00:00", ("walltime", "01:00:00")),
        ("memory=2 GiB", ("memory", "2 GiB")),
        ('job_extra_directives=["--exclusive"]', ("job_extra_directives", ["--exclusive"])),
        ("account=", ("account", "")),
        ('account="a=b"', ("account", '"a=b"')),
    ],
)
def test_options_of_a_cluster(text: str, found: tuple[str, object]) -> None:
    assert option(text) == found


JOB = SimpleNamespace(words="seed = 1", kind="replay")


def standing(passes_over: int, share: float = 0.0) -> SweepStatus:
    at_work = {"worker 1": WorkerActivity("worker 1", None), "worker 2": WorkerActivity("worker 2", JOB, share)}  # type: ignore[arg-type]  # it is not worked on
    return SweepStatus(4, passes_over // 2, 1, 8, passes_over, at_work)


def test_away_from_a_terminal_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import rich.progress  # noqa: F401, PLC0415 - it takes the clock that there is when it is imported

    clock = iter([0.0, 0.0, 10.0, 31.0, 32.0, 70.0])  # when it begins, and at each telling
    monkeypatch.setattr(sweep_command.time, "monotonic", lambda: next(clock))
    with progress(Output(json=False, level=0)) as shown:
        for passes_over, share in ((0, 0.0), (1, 0.0), (1, 0.5), (2, 0.0), (6, 0.0)):
            shown.tell(standing(passes_over, share))
    assert capsys.readouterr().err.splitlines() == [
        "0 of 4 points, 1 failed, 1 at work, about 134 s left",
        "3 of 4 points, 1 failed, 1 at work, about 23 s left",
    ]
