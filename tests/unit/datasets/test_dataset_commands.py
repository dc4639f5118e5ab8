"""The commands that make and describe logs and tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bftrain import BadInput, NodeState, generate_log, generate_mix, load_log, load_tasks, sample_log, save_log
from bftrain.cli.main import main
from bftrain_datasets.log.provenance import LogFinding, LogProvenance, ProvenanceSource
from bftrain_datasets.workloads.task_generators import TaskArrivals, TaskShape, generate_trials
from tests.helpers.transitions import log_from_transitions


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


def test_generate_log_starts_at_a_date(tmp_path: Path) -> None:
    run("generate", "log", "-o", tmp_path / "log.npz", "--nodes", 4, "--days", 0.1, "--start", "2026-03-02T12:00")
    assert load_log(tmp_path / "log.npz").start_s == 1772452800.0


def test_generate_log_tells_json(tmp_path: Path) -> None:
    result = run("generate", "log", "-o", tmp_path / "log.npz", "--nodes", 32, "--days", 1, "--start", 1e9, "--json")
    log = load_log(tmp_path / "log.npz")
    output = json.loads(result.stdout)
    assert output["sha256"] == log.sha256
    assert output["events"] == len(log)
    assert log.start_s == 1e9


def test_tasks_generate_a_mix_and_trials(tmp_path: Path) -> None:
    mix, trials = tmp_path / "mix.toml", tmp_path / "trials.csv"
    run("generate", "tasks", "-o", mix, "--count", 9, "--seed", 2, "--max-nodes", 16)
    assert load_tasks(mix) == generate_mix(9, 2, shape=TaskShape(max_nodes=16))
    result = run(
        "generate", "tasks", "-o", trials, "--kind", "trials", "--profile", "vgg16", "--count", 4,
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
    run("generate", "tasks", "-o", mix, "--count", 9)
    assert load_tasks(mix) == generate_mix(9, 0)
    run("generate", "tasks", "-o", trials, "--count", 2, "--kind", "trials")
    assert load_tasks(trials) == generate_trials(2)


def test_a_profile_for_a_mix_is_a_mistake(tmp_path: Path) -> None:
    result = run("generate", "tasks", "-o", tmp_path / "t.toml", "--profile", "vgg16")
    assert result.exit_code == 2
    assert "--kind trials" in result.output


@pytest.mark.parametrize("arguments", [("generate", "log"), ("generate", "tasks")])
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
    assert "2.5 days, from 2026-03-02 00:00:00 UTC to 2026-03-04 12:00:00 UTC" in words
    output = json.loads(run("inspect", path, "--json").stdout)
    assert output["nodes"] == 256
    assert output["events"] == len(log)
    assert output["pool"]["percentiles"]["50"] >= 1
    assert output["provenance"]["made_by"] == log.provenance.made_by
    assert output["down_share"] == 0
    assert "generator summit-like" in words
    assert "seed = 54" in words
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
    assert "made by reader sacct, bftrain 0.2.0" in lines
    assert "with min_gap_s = 5.0" in lines
    assert "from jobs-4, 1,234 bytes, sha256 ab" in lines
    assert "and 2 more files" in lines
    assert "then kept 2 nodes" in lines
    option = "--nodes, --node-gpus or --node-cores, or --sharing cores"
    assert f"found over_capacity, 1,200 times: cut to the machine; change it with {option}" in lines


def test_inspect_of_a_short_log_does_not_round_its_idle_time_to_nothing(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    save_log(log_from_transitions([(0, "a", NodeState.IDLE), (1440, "a", NodeState.DOWN)], end_s=1800), path)
    lines = [" ".join(line.split()) for line in run("inspect", path).stdout.splitlines()]
    assert "idle 80.00 % of the node-time, 0.4 node-hours" in lines
    assert "down 20.0 % of the node-time, 0.1 node-hours" in lines


def test_inspect_of_a_log_without_idle_time_or_calendar(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("time,node,state\n1e300,a,busy\n")
    result = run("inspect", path)
    assert result.exit_code == 0
    assert "1e+300 s" in result.stdout


def test_a_quiet_import_prints_no_findings(tmp_path: Path) -> None:
    records = tmp_path / "jobs"
    records.write_text("JobID|Start|End|NodeList\n1|1700000000|1700003600|n1\n")
    loud, quiet = (run("import", records, "-o", tmp_path / "log.npz", *flag) for flag in ((), ("-q",)))
    assert "nodes_inferred" in loud.stdout
    assert "nodes_inferred" not in quiet.stdout
    assert "1 row read" in quiet.stdout


def test_import_takes_downtime_of_nodes(tmp_path: Path) -> None:
    records = tmp_path / "jobs"
    records.write_text("JobID|Start|End|NodeList\n1|1700000000|1700003600|n1\n2|1700007200|1700010800|n1\n")
    down = "n1@1700003600:1700007200"
    figures = json.loads(run("import", records, "-o", tmp_path / "log.npz", "--down", down, "--json").stdout)
    assert figures["idle_node_hours"] == 0


@pytest.mark.parametrize("down", ["@1:2", "n[1@1:2", "n1@x:y", "n9@1700000000:"])
def test_downtime_that_is_none_is_refused_by_its_option(tmp_path: Path, down: str) -> None:
    records = tmp_path / "jobs"
    records.write_text("JobID|Start|End|NodeList\n1|1700000000|1700003600|n1\n")
    with pytest.raises(BadInput, match="--down"):
        run("import", records, "-o", tmp_path / "log.npz", "--down", down)


GPU_DUMP = (
    "JobID|Start|End|NNodes|NodeList|State|AllocTRES\n"
    f"1|{1_700_000_000}|{1_700_007_200}|1|n1|COMPLETED|cpu=8,gres/gpu=2,node=1\n"
    f"2|{1_700_001_800}|{1_700_007_200}|2|n[1-2]|COMPLETED|cpu=8,gres/gpu:a100=2,gres/gpu=2,node=2\n"
)


@pytest.mark.parametrize("form", ["npz", "csv", "parquet"])
def test_a_log_of_gpus_says_so_in_every_command_and_file(tmp_path: Path, form: str) -> None:
    records, log = tmp_path / "gpus.txt", tmp_path / f"log.{form}"
    records.write_text(GPU_DUMP)
    (tmp_path / "gpus.csv").write_text("nodes,gpus\nn[1-2],4\n")
    made = run("import", records, "--unit", "gpu", "--node-gpus", tmp_path / "gpus.csv", "-o", log)
    assert f"{log}: 8 GPUs, 2 events, 56.25 % of the GPU-time idle,\n" in made.output
    assert "\n9 idle GPU-hours, of which 1 is sure" in made.output
    assert load_log(log).unit == "gpu"
    shown = run("inspect", log).output
    assert "GPU-hours" in shown
    assert "node-hours" not in shown
    assert json.loads(run("inspect", log, "--json").output)["provenance"]["unit"] == "gpu"
    assert "4 of 8 GPUs" in run("slice", log, "--nodes", "n2", "-o", tmp_path / "part.npz").output
    part = load_log(tmp_path / "part.npz")
    assert (part.unit, part.node_names) == ("gpu", tuple(f"n2/gpu{slot}" for slot in range(4)))
    assert "2 of 8 GPUs" in run("slice", log, "--nodes", "n1/gpu[0-1]", "-o", tmp_path / "part.npz").output
    assert "8 of 8 GPUs" in run("slice", "--anonymise", log, "-o", tmp_path / "hidden.npz").output
    hidden = load_log(tmp_path / "hidden.npz")
    assert hidden.unit == "gpu"
    assert [name.partition("/")[2] for name in hidden.node_names] == [f"gpu{slot}" for slot in range(4)] * 2
    assert len({name.partition("/")[0] for name in hidden.node_names}) == 2
    assert "GPU-hours" in run("import", "--dry-run", log).output


def test_a_log_of_whole_nodes_does_not_name_its_unit(tmp_path: Path) -> None:
    save_log(sample_log(), tmp_path / "log.csv")
    assert '"unit"' not in (tmp_path / "log.csv").read_text()
    assert load_log(tmp_path / "log.csv").unit == "node"


def test_nodes_go_down_with_their_gpus(tmp_path: Path) -> None:
    records, log = tmp_path / "gpus.txt", tmp_path / "log.npz"
    records.write_text(GPU_DUMP)
    down = ("--down", f"n2@{1_700_000_000}:{1_700_003_600}")
    run("import", records, "--unit", "gpu", "--node-gpus", "4", *down, "-o", log)
    states = load_log(log).states_at(1_700_000_900).tolist()
    assert states == [NodeState.BUSY] * 2 + [NodeState.IDLE] * 2 + [NodeState.DOWN] * 4


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--node-gpus", "8"), "--node-gpus requires --unit gpu"),
        (("--unit", "core", "--node-gpus", "8"), "--node-gpus requires --unit gpu"),
        (("--unit", "gpu", "--node-gpus", "0"), "neither a number from 1 to 999,999 nor a file"),
        (("--unit", "gpu", "--node-gpus", "1000004"), "neither a number from 1 to 999,999 nor a file"),
        (("--unit", "gpu", "--node-gpus", "x.csv"), "neither a number from 1 to 999,999 nor a file"),
    ],
)
def test_numbers_of_gpus_that_make_no_sense_are_refused(tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    (tmp_path / "gpus.txt").write_text(GPU_DUMP)
    refused = run("import", tmp_path / "gpus.txt", *options, "-o", tmp_path / "log.npz")
    assert refused.exit_code == 2
    assert says in " ".join(refused.output.split())
