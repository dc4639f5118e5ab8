"""``bftrain generate from-trace``, ``generate`` and ``profiles``: what is typed, printed and written."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from bftrain import WorkloadOptions, generate_log, import_workload, load_log, load_tasks, save_log
from tests.helpers.in_process import CommandLine, Ended
from tests.helpers.pollux import PolluxRule, mean_completion_h, models, tasks_of
from tests.helpers.samples import PICKLES
from tests.helpers.site_data import site_data
from tests.helpers.workloads import ARRIVALS, BLOX, GAVEL, PHILLY, SAMPLES, gavel_line, table

IMPORT = ("generate", "from-trace", "jobs", "-o", "tasks.toml")
MADE = Path("tasks.toml")
ZONE = ("--timezone", "America/Los_Angeles")


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_speed_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table(tmp_path)  # speeds.json


def imported(bftrain: CommandLine, text: str, *options: str | Path | float) -> Ended:
    Path("jobs").write_text(text)
    ended = bftrain(*IMPORT, *options)
    assert ended.code == 0, ended.err
    return ended


def names() -> list[str]:
    return [task.name for task in load_tasks(MADE)]


@pytest.mark.parametrize("suffix", ["toml", "csv"])
@pytest.mark.parametrize("name", SAMPLES)
def test_import_writes_what_the_library_reads(bftrain: CommandLine, name: str, suffix: str) -> None:
    Path("jobs").write_text(SAMPLES[name])
    speeds = ("--speeds", "speeds.json") if name == "gavel" else ()
    ended = bftrain("generate", "from-trace", "jobs", "-o", f"tasks.{suffix}", *speeds, "--json")
    assert ended.code == 0, ended.err
    found = import_workload(Path("jobs"), WorkloadOptions(speeds=Path("speeds.json") if speeds else None))
    assert load_tasks(Path(f"tasks.{suffix}")) == found.tasks
    output = json.loads(ended.out)
    assert (output["tasks"], output["format"], output["begin_s"]) == (len(found.tasks), found.format, found.begin_s)
    assert (output["first_submit_s"], output["last_submit_s"]) == (0.0, found.tasks[-1].submit_s)
    assert output["rows"] == {"read": 3 if name == "gavel" else 2, "used": len(found.tasks), "aside": {}}
    named = ("--format", name.partition(" ")[0])
    assert bftrain("generate", "from-trace", "jobs", "-o", f"tasks.{suffix}", *speeds, *named).code == 0


def test_words_and_file_tell_where_tasks_come_from(bftrain: CommandLine) -> None:
    ended = imported(bftrain, GAVEL, "--speeds", "speeds.json", "--kinds", "v100")
    first, *words = ended.out.splitlines()
    assert (first, ended.err) == ("tasks.toml: 3 tasks", "")
    for begin, line in zip(("from jobs, sha256 ", "from speeds.json, sha256 ", "format gavel; "), words, strict=False):
        assert line.startswith(begin)
    assert words[-1] == "3 rows read = 3 tasks + 0 skipped"
    comments = ("made by bftrain generate from-trace", *words)
    assert MADE.read_text().splitlines()[: len(comments)] == [f"# {line}" for line in comments]


def test_the_options_reach_the_reader(bftrain: CommandLine) -> None:
    ended = imported(bftrain, GAVEL, "--speeds", "speeds.json", "--elastic", "--set", "per-node=2", "-q")
    assert "all sizes in the table" in ended.out
    assert load_tasks(MADE)[1].curve.nodes == (1, 2, 4)
    options = ("--speeds", "speeds.json", "--kinds", "k80", "--reference", "k80", "--json")
    ended = imported(bftrain, GAVEL, *options)
    output = json.loads(ended.out)
    assert (output["node_kind"], output["reference"], output["tasks"]) == ("k80", "k80", 1)
    assert output["rows"]["aside"] == {"does_not_fit": 2}
    assert "warning: 2 does_not_fit, first at jobs:1" in ended.err


def test_rows_that_become_no_task_are_reported(bftrain: CommandLine) -> None:
    ended = imported(bftrain, BLOX + "".join(f"{n},500,9,{n}\n" for n in range(10, 18)), "--nodes", 2)
    assert "warning: 9 does_not_fit, first at jobs:3: jobs that do not fit these nodes" in ended.err
    assert "10 rows read = 1 task + 9 skipped" in ended.out
    ended = imported(bftrain, BLOX + "7,500,0,1\n", "--strict")
    assert ended.err.startswith("warning: 1 no_usage, first at jobs:4")  # ordinary
    ended = imported(bftrain, ARRIVALS)
    assert ("2 local_times, first at jobs:2" in ended.err, "notation" in ended.err) == (True, False)
    Path("jobs").write_text(gavel_line(gang=3))
    ended = bftrain(*IMPORT, "--speeds", "speeds.json")
    assert (
        ended.code,
        "jobs that do not fit these nodes, or have no measured speed there (1); first at jobs:1" in ended.err,
    ) == (3, True)


def test_what_submit_s_counts_from(bftrain: CommandLine) -> None:
    imported(bftrain, BLOX, "--set", "begin=0")
    assert [task.submit_s for task in load_tasks(MADE)] == [130.0, 396.0]
    ended = imported(bftrain, PHILLY, *ZONE, "--set", "begin=2017-10-07T00:59:00")
    assert "submit_s counts from 2017-10-07 07:59:00 UTC" in ended.out
    assert [task.submit_s for task in load_tasks(MADE)] == [60.0, 90.0]
    save_log(generate_log(4, 0.1, 1, start_s=1_507_338_010), Path("log.npz"))
    ended = imported(bftrain, PHILLY, "--log", "log.npz")
    assert load_tasks(MADE)[0].submit_s == 1_507_338_000 - load_log(Path("log.npz")).start_s
    assert "1 task submitted before the origin of submit_s" in ended.err
    Path("jobs").write_text(BLOX)
    assert bftrain(*IMPORT, "--log", "log.npz").code == 3


def test_a_part_of_a_file(bftrain: CommandLine) -> None:
    ended = imported(bftrain, BLOX, "--window", "200:400")
    assert (names(), "1 not_selected, first at jobs:2" in ended.err) == (["job-1"], True)
    assert (imported(bftrain, BLOX, "--set", "first=1").err, names()) == ("", ["job-0"])
    imported(bftrain, PHILLY, *ZONE, "--window", "2017-10-07T01:00:20:2017-10-08")
    assert names() == ["app_2"]


def test_standard_input_and_a_pair_of_published_tables_are_read(bftrain: CommandLine) -> None:
    ended = bftrain("generate", "from-trace", "-", "-o", "tasks.toml", stdin=BLOX)
    assert (ended.code, "from stdin, sha256 " in ended.out, len(names())) == (0, True, 2)
    pair = [min(PICKLES.glob(f"*-{name}.pkl")) for name in ("bounds", "speeds")]
    words = ("generate", "from-trace", *pair, "-o", "tasks.toml", "--json")
    found, named = (json.loads(bftrain(*words, *more).out) for more in ((), ("--format", "published")))
    assert (found, found["format"]) == (named, "published")


def generated(bftrain: CommandLine, *options: str | Path | float) -> dict[str, Any]:
    ended = bftrain("generate", "tasks", "-o", "tasks.toml", *options, "--json")
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    return found


def test_generate_makes_jobs_of_a_cluster(bftrain: CommandLine) -> None:
    output = generated(
        bftrain, "--kind", "cluster", "--count", 30, "--seed", 4, "--arrivals-per-hour", 2, "--start", "50s",
        "--gangs", "1:1,2:3", "--high-share", 0.3, "--high-weight", 7, "--deadlines", "1.2,2,10", "--users", 4,
        "--start-cost", 5,
    )  # fmt: skip
    tasks = load_tasks(MADE)
    assert (output["tasks"], output["kind"], output["last_submit_s"]) == (30, "cluster", tasks[-1].submit_s)
    assert (len(tasks), tasks[0].submit_s, {task.start_cost_s for task in tasks}) == (30, 50.0, {5.0})
    assert {task.max_nodes for task in tasks} == {1, 2}
    assert ({task.weight for task in tasks}, len({task.user for task in tasks})) == ({1.0, 7.0}, 4)
    assert all(task.deadline_s is not None for task in tasks)
    first = MADE.read_bytes()
    generated(bftrain, "--kind", "cluster", "--count", 30, "--seed", 5)
    assert first != MADE.read_bytes()


def test_generate_takes_speeds_of_a_table(bftrain: CommandLine) -> None:
    options = ("--kind", "cluster", "--speeds", "speeds.json", "--elastic", "--gangs", "2:1", "--count", 5)
    generated(bftrain, *options, "--kinds", "k80")
    assert {task.curve.nodes for task in load_tasks(MADE)} == {(1, 2, 4)}
    assert {task.curve.rate[1:] for task in load_tasks(MADE)} == {(4.0, 6.0)}


def test_models_of_a_file_become_tasks_of_the_sizes_that_were_measured(bftrain: CommandLine) -> None:
    Path("cnn.toml").write_text(
        '[[profile]]\nname = "cnn"\nnodes = [2, 8]\nrate = [170.0, 600.0]\ngrow_cost_s = 0.5\nstart_cost_s = 2.0\n'
    )
    generated(bftrain, "--profiles", "cnn.toml", "--kind", "trials", "--count", "2", "--endless")
    first, second = load_tasks(MADE)
    assert [(task.min_nodes, task.max_nodes, task.work_samples) for task in (first, second)] == [(2, 8, None)] * 2
    assert (first.name, first.curve.rate, first.grow_cost_s, first.start_cost_s) == ("cnn-1", (170.0, 600.0), 0.5, 2.0)


def test_profiles_are_listed_and_written(bftrain: CommandLine) -> None:
    listed = json.loads(bftrain("generate", "profiles", "--json").out)
    row = next(
        line.split() for line in bftrain("generate", "profiles").out.splitlines() if line.split()[:1] == ["vgg16"]
    )
    assert row[1:6] == ["1:64", "1,193", "70,152", f"{100 * 70152 / 1193 / 64:.1f}", "%"]
    assert bftrain("generate", "profiles", "-o", "all.toml").out.startswith("all.toml: 7 profiles\n")
    assert json.loads(bftrain("generate", "profiles", "all.toml", "--json").out) == listed


# 2 and 4 GPUs: a sample takes 10 ms on a GPU, and a step 100 ms more for any batch, on 4 GPUs 200 ms
SET = """num_nodes,num_replicas,local_bsz,step_time,sync_time
1,2,10,0.2,0.1
1,2,40,0.5,0.1
1,4,10,0.3,0.2
1,4,40,0.6,0.2
"""


def test_two_commands_from_a_set_of_adaptdl_to_a_replay_by_goodput(bftrain: CommandLine) -> None:
    Path("adaptdl_toy_scalability.csv").write_text(SET)
    profiles = ("adaptdl_toy_scalability.csv", "--noise-scale", "600")
    (record,) = json.loads(bftrain("generate", "profiles", *profiles, "--json").out)
    assert record["batch"] == {
        "initial": 10, "noise_scale": 600.0, "largest": 160, "per_node": 40, "fixed_share": pytest.approx(0.2),
    }  # fmt: skip
    generated(bftrain, "--profiles", *profiles, "--count", "2", "--work", "1e5")
    replay = ("replay", "--cluster", "4", "--tasks", "tasks.toml", "--objective", "goodput", "-o", "out")
    assert bftrain(*replay).code == 0
    rows = list(csv.DictReader(Path("out/tasks.csv").read_text().splitlines()))
    # On two GPUs 100 ms are as long as computing 20 samples: sqrt(600 * 20) = 110, and the largest is 160; on four 80
    assert {row["state"] for row in rows} == {"finished"}
    assert all(109.0 <= float(row["mean_batch"]) <= 160.0 and float(row["mean_goodput"]) > 0.0 for row in rows)


def test_goodput_is_no_slower_than_polluxs_published_rule() -> None:
    known = models(site_data("profiles"))
    tasks = tasks_of(known, 0, 16, hours=0.0)
    ours, rule = (mean_completion_h(tasks, 16, objective="goodput", solver=solver) for solver in (None, PolluxRule()))
    assert ours < rule
