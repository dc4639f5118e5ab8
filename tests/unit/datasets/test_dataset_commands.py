"""The commands that make and describe logs and tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrain.cli.main import main
from bftrain.errors import BadInput
from bftrain.taskfiles.files import load_tasks
from bftrain.values import wire
from bftrain_datasets.log.builder import log_from_transitions
from bftrain_datasets.log.eventlog import NodeState
from bftrain_datasets.log.log_files import load_log, save_log
from bftrain_datasets.log.log_generator import generate_log, sample_log
from bftrain_datasets.log.provenance import LogFinding, LogProvenance, ProvenanceSource
from bftrain_datasets.workloads.task_generators import TaskArrivals, TaskShape, generate_mix, generate_trials


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    if isinstance(result.exception, BadInput):
        raise result.exception
    return result


def test_generate_log_writes_what_the_library_generates(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    result = run("generate", "log", "-o", path, "--nodes", 64, "--days", 1, "--seed", 5, "--idle-share", 0.1)
    assert result.exit_code == 0, result.output
    made = generate_log(64, 1.0, 5, idle_share=0.1)
    assert load_log(path) == made
    assert f"64 nodes, {len(made)} events" in result.stdout


def test_generate_log_tells_json(tmp_path: Path) -> None:
    result = run("generate", "log", "-o", tmp_path / "log.npz", "--nodes", 32, "--days", 1, "--start", 1e9, "--json")
    log = load_log(tmp_path / "log.npz")
    told = json.loads(result.stdout)
    assert told["sha256"] == log.sha256
    assert told["events"] == len(log)
    assert log.start_s == 1e9


def test_tasks_generate_a_mix_and_trials(tmp_path: Path) -> None:
    mix, trials = tmp_path / "mix.toml", tmp_path / "trials.csv"
    run("tasks", "generate", "-o", mix, "--count", 9, "--seed", 2, "--max-nodes", 16)
    assert load_tasks(mix) == generate_mix(9, 2, shape=TaskShape(max_nodes=16))
    result = run(
        "tasks", "generate", "-o", trials, "--kind", "trials", "--profile", "vgg16", "--count", 4,
        "--arrivals-per-hour", 2, "--start", 100, "--work", 1e6, "--json",
    )  # fmt: skip
    expected = generate_trials(
        4, "vgg16", arrivals=TaskArrivals(start_s=100, per_hour=2), shape=TaskShape(work_samples=1e6)
    )
    assert load_tasks(trials) == expected
    assert json.loads(result.stdout)["last_submit_s"] == expected[-1].submit_s


def test_what_is_not_asked_for_is_as_in_the_library(tmp_path: Path) -> None:
    log, mix, trials = tmp_path / "log.csv", tmp_path / "mix.toml", tmp_path / "trials.toml"
    run("generate", "log", "-o", log, "--nodes", 64, "--days", 1)
    assert load_log(log) == generate_log(64, 1.0, 0)
    run("tasks", "generate", "-o", mix, "--count", 9)
    assert load_tasks(mix) == generate_mix(9, 0)
    run("tasks", "generate", "-o", trials, "--count", 2, "--kind", "trials")
    assert load_tasks(trials) == generate_trials(2)


def test_a_profile_for_a_mix_is_a_mistake(tmp_path: Path) -> None:
    result = run("tasks", "generate", "-o", tmp_path / "t.toml", "--profile", "vgg16")
    assert result.exit_code == 2
    assert "--kind trials" in result.output


@pytest.mark.parametrize("arguments", [("generate", "log"), ("tasks", "generate")])
def test_a_name_that_no_format_has_is_refused_before_any_work(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match=r"ends in '\.xls'"):
        run(*arguments, "-o", tmp_path / "a.xls")
    assert list(tmp_path.iterdir()) == []


def test_inspect_describes_a_log_in_words_and_json(tmp_path: Path) -> None:
    path = tmp_path / "log.npz"
    log = sample_log()
    save_log(log, path)
    words = run("inspect", path).stdout
    assert f"{100 * log.idle_share:.2f} % of the node-time" in words
    assert log.sha256 in words
    assert "2.5 days, from 1970-01-01 00:00:00 UTC to 1970-01-03 12:00:00 UTC" in words
    told = json.loads(run("inspect", path, "--json").stdout)
    assert told["nodes"] == 256
    assert told["events"] == len(log)
    assert told["pool"]["percentiles"]["50"] >= 1
    assert told["provenance"] == json.loads(wire.encode(log.provenance))
    assert told["down_share"] == 0
    assert "generator summit-like" in words
    assert "seed = 54" in words
    assert "idle nodes (█ mean, ░ largest)" in words
    assert "down" not in words


def test_inspect_tells_of_down_time_sources_steps_and_findings(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    story = LogProvenance(
        made_by="reader sacct",
        options={"min_gap_s": 5.0},
        sources=tuple(ProvenanceSource(name=f"jobs-{number}", sha256="ab", size_bytes=1234) for number in range(7)),
        findings=(LogFinding(name="over_capacity", count=1200, done="cut to the machine"),),
        steps=("kept 2 nodes",),
    )
    log = log_from_transitions(
        [(0, "a", NodeState.DOWN), (3600, "a", NodeState.IDLE), (3700, "a", NodeState.BUSY)],
        end_s=7200,
        provenance=story,
    )
    save_log(log, path)
    lines = [" ".join(line.split()) for line in run("inspect", path).stdout.splitlines()]
    assert "down 50.0 % of the node-time, 1 node-hours" in lines
    assert "made by reader sacct, bftrain 0.1.0" in lines
    assert "with min_gap_s = 5.0" in lines
    assert "from jobs-4, 1,234 bytes, sha256 ab" in lines
    assert "and 2 more files" in lines
    assert "then kept 2 nodes" in lines
    assert "found over_capacity, 1,200 times: cut to the machine; change it with --nodes N" in lines


def test_inspect_of_a_log_without_idle_time_or_calendar(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("time,node,state\n1e300,a,busy\n")
    result = run("inspect", path)
    assert result.exit_code == 0
    assert "1e+300 s" in result.stdout
