"""``bftrain tasks import`` and ``tasks generate``: what is typed, printed, written and refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bftrain import WorkloadOptions, generate_log, import_workload, load_log, load_tasks, save_log
from bftrain_datasets.commands import tasks_import
from bftrain_datasets.workloads.generator import ClusterShape, generate_cluster, models_of
from bftrain_datasets.workloads.speed_table import load_speed_table
from bftrain_datasets.workloads.task_generators import TaskArrivals
from bftrain_datasets.workloads.workload import FORMATS
from tests.helpers.in_process import CommandLine
from tests.helpers.samples import PICKLES
from tests.helpers.workloads import ARRIVALS, BLOX, GAVEL, PHILLY, SAMPLES, gavel_line, table

PAIR = [min(PICKLES.glob(f"*-{name}.pkl")) for name in ("bounds", "speeds")]


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    """Return a Gavel trace; its throughput table lies beside it."""
    path = tmp_path / "jobs.trace"
    path.write_text(GAVEL)
    table(tmp_path)
    return path


def saved(folder: Path, text: str) -> Path:
    path = folder / "jobs"
    path.write_text(text)
    return path


@pytest.mark.parametrize("suffix", ["toml", "csv"])
@pytest.mark.parametrize("name", SAMPLES)
def test_import_writes_what_the_library_reads(bftrain: CommandLine, tmp_path: Path, name: str, suffix: str) -> None:
    path, made = saved(tmp_path, SAMPLES[name]), tmp_path / f"tasks.{suffix}"
    speeds = ["--speeds", table(tmp_path)] if name == "gavel" else []
    ended = bftrain("tasks", "import", path, "-o", made, *speeds, "--json")
    assert ended.code == 0, ended.err
    found = import_workload(path, WorkloadOptions(speeds=table(tmp_path) if name == "gavel" else None))
    assert load_tasks(made) == found.tasks
    output = json.loads(ended.out)
    assert (output["tasks"], output["format"], output["begin_s"]) == (len(found.tasks), found.format, found.begin_s)
    assert (output["first_submit_s"], output["last_submit_s"]) == (0.0, found.tasks[-1].submit_s)
    assert output["rows"] == {"read": 3 if name == "gavel" else 2, "used": len(found.tasks), "aside": {}}
    again = bftrain("tasks", "import", path, "-o", made, *speeds, "--format", name.partition(" ")[0])
    assert again.code == 0


def test_every_format_can_be_named(bftrain: CommandLine) -> None:
    help_text = bftrain("tasks", "import", "-h").out
    assert f"[{'|'.join(sorted({*FORMATS}, key=['gavel', 'philly', 'blox', 'swf'].index))}|published]" in help_text


def test_words_and_file_say_where_tasks_come_from(bftrain: CommandLine, tmp_path: Path, jobs: Path) -> None:
    made = tmp_path / "tasks.toml"
    ended = bftrain("tasks", "import", jobs, "-o", made, "--speeds", tmp_path / "speeds.json", "--kind", "v100")
    first, *words = ended.out.splitlines()
    assert first == f"{made}: 3 tasks"
    assert words[0].startswith("from jobs.trace, sha256 ")
    assert words[1].startswith("from speeds.json, sha256 ")
    assert words[2:] == [
        "format gavel; submit_s counts from 0 s",
        "speeds in steps/s on v100, the gang asked for; work in steps",
        "deadlines are multiples of the duration on v100",
        "3 rows read = 3 tasks + 0 set aside",
    ]
    comments = ("made by bftrain tasks import", *words)
    assert made.read_text().splitlines()[: len(comments)] == [f"# {line}" for line in comments]
    assert ended.err == ""


def test_the_options_reach_the_reader(bftrain: CommandLine, tmp_path: Path, jobs: Path) -> None:
    made, speeds = tmp_path / "tasks.toml", tmp_path / "speeds.json"
    words = bftrain("tasks", "import", jobs, "-o", made, "--speeds", speeds, "--elastic", "--per-node", 2, "-q").out
    assert "all sizes in the table" in words
    assert load_tasks(made)[1].curve.nodes == (1, 2, 4)
    ended = bftrain(
        "tasks", "import", jobs, "-o", made, "--speeds", speeds, "--node-kind", "k80", "--reference", "k80", "--json"
    )
    output = json.loads(ended.out)
    assert (output["node_kind"], output["reference"], output["tasks"]) == ("k80", "k80", 1)
    assert [each["reason"] for each in output["refused"]] == ["does_not_fit", "does_not_fit"]
    assert "warning: 2 does_not_fit, first at jobs.trace:1: jobs whose model" in ended.err


def test_what_is_refused_is_reported_by_name_and_strict_ends_there(bftrain: CommandLine, tmp_path: Path) -> None:
    path, made = saved(tmp_path, BLOX + "".join(f"{n},500,9,{n}\n" for n in range(10, 18))), tmp_path / "tasks.toml"
    ended = bftrain("tasks", "import", path, "-o", made, "--nodes", 2)
    assert ended.code == 0
    assert "warning: jobs:3: 'job-1' needs 4 nodes, more than 2: rejected\n" in ended.err
    assert ended.err.count(": rejected\n") == 5
    assert (
        "warning: 9 too_large, first at jobs:3: jobs that so many nodes can never hold; row set aside: refused; "
        in ended.err
    )
    assert "10 rows read = 1 task + 9 set aside" in ended.out
    made.unlink()
    strict = bftrain("tasks", "import", path, "-o", made, "--nodes", 2, "--strict")
    assert (strict.code, strict.out) == (3, "")
    assert "jobs:3: 'job-1' needs 4 nodes, more than 2 (set the number" in strict.err
    assert not made.exists()


def test_ordinary_rows_are_reported_and_are_no_refusal(bftrain: CommandLine, tmp_path: Path) -> None:
    path = saved(tmp_path, BLOX + "7,500,0,1\n")
    ended = bftrain("tasks", "import", path, "-o", tmp_path / "tasks.toml", "--strict")
    assert ended.code == 0
    assert ended.err == (
        "warning: 1 no_work, first at jobs:4: jobs without any work: no time, or no step; "
        "row set aside: there is nothing to do\n"
    )


def test_what_submit_s_counts_from(bftrain: CommandLine, tmp_path: Path) -> None:
    made, log = tmp_path / "tasks.toml", tmp_path / "log.npz"
    blox, philly = saved(tmp_path, BLOX), tmp_path / "philly"
    assert bftrain("tasks", "import", blox, "-o", made, "--begin", 0).code == 0
    assert [task.submit_s for task in load_tasks(made)] == [130.0, 396.0]
    philly.write_text(PHILLY)
    zone = ("--timezone", "America/Los_Angeles")
    ended = bftrain("tasks", "import", philly, "-o", made, *zone, "--begin", "2017-10-07T00:59:00")
    assert "submit_s counts from 2017-10-07 07:59:00 UTC" in ended.out
    assert [task.submit_s for task in load_tasks(made)] == [60.0, 90.0]
    save_log(generate_log(4, 0.1, 1, start_s=1_507_338_010), log)
    ended = bftrain("tasks", "import", philly, "-o", made, "--log", log)
    begin_s = load_log(log).start_s
    assert load_tasks(made)[0].submit_s == 1_507_338_000 - begin_s
    assert "1 task handed in before the time that submit_s counts from" in ended.err
    assert bftrain("tasks", "import", blox, "-o", made, "--log", log).code == 3


def test_a_part_of_a_file(bftrain: CommandLine, tmp_path: Path) -> None:
    made = tmp_path / "tasks.toml"
    ended = bftrain("tasks", "import", saved(tmp_path, BLOX), "-o", made, "--window", "200..400")
    assert [task.name for task in load_tasks(made)] == ["job-1"]
    assert (
        "1 outside_window, first at jobs:2: rows outside the window; row set aside; change it with --window"
        in ended.err
    )
    ended = bftrain("tasks", "import", saved(tmp_path, BLOX), "-o", made, "--first", 1)
    assert [task.name for task in load_tasks(made)] == ["job-0"]
    assert ended.err == ""
    zone = ("--timezone", "America/Los_Angeles", "--window", "2017-10-07T01:00:20..2017-10-08")
    bftrain("tasks", "import", saved(tmp_path, PHILLY), "-o", made, *zone)
    assert [task.name for task in load_tasks(made)] == ["app_2"]


def test_standard_input_is_read(bftrain: CommandLine, tmp_path: Path) -> None:
    made = tmp_path / "tasks.toml"
    ended = bftrain("tasks", "import", "-", "-o", made, stdin=BLOX)
    assert ended.code == 0, ended.err
    assert "from stdin, sha256 " in ended.out
    assert len(load_tasks(made)) == 2
    nothing = bftrain("tasks", "import", "-", "-o", made, stdin="")
    assert (nothing.code, nothing.out) == (3, "")
    assert "stdin: the file is empty" in nothing.err


def test_a_large_file_is_read_as_a_small_one(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "tasks.toml"
    small = bftrain("tasks", "import", saved(tmp_path, BLOX), "-o", made, "--json")
    monkeypatch.setattr(tasks_import, "_WORTH_A_BAR", 1)
    large = bftrain("tasks", "import", saved(tmp_path, BLOX), "-o", made, "--json")
    assert large == small
    assert large.code == 0


def test_a_pair_of_published_tables_is_known_as_such(bftrain: CommandLine, tmp_path: Path) -> None:
    output = [
        json.loads(bftrain("tasks", "import", *PAIR, "-o", tmp_path / "tasks.toml", *more, "--json").out)
        for more in ([], ["--format", "published"])
    ]
    assert output[0] == output[1]
    assert output[0]["format"] == "published"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["JOBS", "JOBS", "JOBS"], 2, "an import takes one file, not 3"),
        (["JOBS", "JOBS", "--format", "blox"], 2, "blox takes one file, not 2"),
        (["JOBS", "--format", "published"], 2, "published takes a pair of files, JBND and JNPS, not 1"),
        (["PICKLE"], 3, "tasks of the published replayer come as a pair"),
        (["PICKLE", "PICKLE", "--nodes", "3"], 2, "--nodes does not go with tasks of the published replayer"),
        (["PICKLE", "PICKLE", "--elastic"], 2, "--elastic does not go with"),
        (["PICKLE", "PICKLE", "--begin", "0"], 2, "--begin does not go with"),
        (["JOBS", "--exact"], 2, "--exact goes with tasks of the published replayer only"),
        (["JOBS", "--begin", "noon"], 2, "--begin: 'noon' is not a time"),
        (["JOBS", "--begin", "0", "--log", "JOBS"], 2, "--log and --begin contradict each other"),
        (["JOBS", "--timezone", "Mars"], 3, "unknown time zone 'Mars'"),
        (["JOBS", "--kind", "v100"], 3, "--node-kind needs jobs with models"),
        (["JOBS", "--nodes", "0"], 2, "--nodes"),
    ],
)
def test_what_does_not_go_together_is_refused(
    bftrain: CommandLine, tmp_path: Path, words: list[str], code: int, says: str
) -> None:
    files = {"JOBS": saved(tmp_path, BLOX), "PICKLE": PAIR[0]}
    ended = bftrain("tasks", "import", *(files.get(word, word) for word in words), "-o", tmp_path / "tasks.toml")
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.err
    assert not (tmp_path / "tasks.toml").exists()


def test_a_doubt_that_is_no_row_is_reported_too(bftrain: CommandLine, tmp_path: Path) -> None:
    ended = bftrain("tasks", "import", saved(tmp_path, ARRIVALS), "-o", tmp_path / "tasks.toml")
    assert "warning: 2 local_times, first at jobs:2: times without a zone; taken as UTC; change it with --timezone" in (
        ended.err
    )
    assert "unsorted" not in ended.err  # ordinary


def test_generate_writes_what_the_library_generates(bftrain: CommandLine, tmp_path: Path) -> None:
    made = tmp_path / "tasks.csv"
    ended = bftrain("tasks", "generate", "-o", made, "--kind", "cluster")
    assert ended.code == 0, ended.err
    assert load_tasks(made) == generate_cluster(100)
    ended = bftrain(
        "tasks", "generate", "-o", made, "--kind", "cluster", "--count", 30, "--seed", 4, "--arrivals-per-hour", 2,
        "--start", 50, "--gangs", "1:1,2:3", "--long-share", 0.5, "--high-share", 0.3, "--high-weight", 7,
        "--deadlines", "1.2,2,10", "--burst-share", 0.2, "--burst-size", 3, "--users", 4, "--start-cost", 5, "--json",
    )  # fmt: skip
    shape = ClusterShape(
        gangs={1: 1.0, 2: 3.0}, long_share=0.5, high_share=0.3, high_weight=7.0, deadlines=(1.2, 2.0, 10.0),
        burst_share=0.2, burst_size=3, users=4, start_cost_s=5.0,
    )  # fmt: skip
    expected = generate_cluster(30, 4, arrivals=TaskArrivals(start_s=50.0, per_hour=2.0), shape=shape)
    assert load_tasks(made) == expected
    output = json.loads(ended.out)
    assert (output["tasks"], output["kind"], output["last_submit_s"]) == (30, "cluster", expected[-1].submit_s)


def test_generate_takes_speeds_of_a_table(bftrain: CommandLine, tmp_path: Path) -> None:
    made, speeds = tmp_path / "tasks.toml", table(tmp_path)
    options = ["--kind", "cluster", "--speeds", speeds, "--elastic", "--gangs", "2:1", "--count", 5]
    assert bftrain("tasks", "generate", "-o", made, *options, "--node-kind", "k80").code == 0
    models = models_of(load_speed_table(speeds), "k80")
    assert load_tasks(made) == generate_cluster(5, models=models, shape=ClusterShape(gangs={2: 1.0}, elastic=True))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--gangs", "1:1"], "--gangs goes with --kind cluster"),
        (["--kind", "trials", "--users", "2"], "--users goes with --kind cluster"),
        (["--kind", "cluster", "--max-nodes", "2"], "--max-nodes goes with --kind mix or trials"),
        (["--kind", "cluster", "--profile", "vgg16"], "--profile goes with --kind trials"),
        (["--kind", "cluster", "--gangs", "1,2"], "--gangs: '1,2' is not a list of gangs"),
        (["--kind", "cluster", "--gangs", "1:1,1:2"], "--gangs: '1:1,1:2' repeats a gang"),
        (["--kind", "cluster", "--deadlines", "soon"], "--deadlines: 'soon' is not a list of multiples"),
        (["--kind", "cluster", "--long-share", "2"], "--long-share"),
        (["--kind", "cluster", "--node-kind", "k80"], "--node-kind goes with --speeds"),
        (["--kind", "cluster", "--kinds", "k80,v100"], "--kinds goes with --speeds"),
        (["--kind", "cluster", "--kinds", "k80,"], "--kinds: 'k80,' has an empty kind"),
        (["--kinds", "k80"], "--kinds goes with --kind cluster"),
    ],
)
def test_options_of_another_kind_are_a_mistake(
    bftrain: CommandLine, tmp_path: Path, words: list[str], says: str
) -> None:
    ended = bftrain("tasks", "generate", "-o", tmp_path / "tasks.toml", *words)
    assert (ended.code, ended.out) == (2, "")
    assert says in ended.err


def test_a_gang_that_no_model_has_is_refused(bftrain: CommandLine, tmp_path: Path) -> None:
    ended = bftrain("tasks", "generate", "-o", tmp_path / "tasks.toml", "--kind", "cluster", "--gangs", "128:1")
    assert (ended.code, ended.out) == (3, "")
    assert "no model was measured on a gang of 128 (choose gangs among: 1, 2, 4, 8, 16, 32, 64)" in ended.err


def test_a_trace_that_names_no_gang_of_the_table_says_which_row(bftrain: CommandLine, tmp_path: Path) -> None:
    path = saved(tmp_path, gavel_line(gang=3))
    ended = bftrain("tasks", "import", path, "-o", tmp_path / "tasks.toml", "--speeds", table(tmp_path))
    assert ended.code == 3
    assert "no row becomes a task: 1 unknown_speed; first at jobs:1: 'net-b16-0': the table has no speed of" in (
        ended.err
    )


def test_models_of_a_file_become_tasks_of_the_sizes_that_were_measured(bftrain: CommandLine, tmp_path: Path) -> None:
    sizes = [saved(tmp_path, PROFILE).rename(tmp_path / "cnn.toml"), "-o", tmp_path / "tasks.toml"]
    ended = bftrain("tasks", "generate", "--profiles", *sizes, "--kind", "trials", "--count", "2", "--endless")
    assert ended.code == 0, ended.err
    tasks = load_tasks(tmp_path / "tasks.toml")
    assert [(task.name, task.min_nodes, task.max_nodes, task.work_samples) for task in tasks] == [
        ("cnn-1", 2, 8, None),
        ("cnn-2", 2, 8, None),
    ]
    assert (tasks[0].curve.rate, tasks[0].grow_cost_s, tasks[0].start_cost_s) == ((170.0, 600.0), 0.5, 2.0)
    ended = bftrain("tasks", "generate", "-o", tmp_path / "tasks.toml", "--kind", "mix", "--endless", "--work", "3")
    assert (ended.code, "contradict" in ended.err) == (2, True)


PROFILE = '[[profile]]\nname = "cnn"\nnodes = [2, 8]\nrate = [170.0, 600.0]\ngrow_cost_s = 0.5\nstart_cost_s = 2.0\n'


def test_profiles_are_listed_and_written(bftrain: CommandLine, tmp_path: Path) -> None:
    listed = json.loads(bftrain("tasks", "profiles", "--json").out)
    assert [row["name"] for row in listed][:2] == ["alexnet", "resnet18"]
    row = next(line.split() for line in bftrain("tasks", "profiles").out.splitlines() if line.split()[:1] == ["vgg16"])
    assert row[1:6] == ["1..64", "1,193", "70,152", f"{100 * 70152 / 1193 / 64:.1f}", "%"]
    made = tmp_path / "all.toml"
    assert bftrain("tasks", "profiles", "-o", made).out.startswith(f"{made}: 7 profiles\n")
    again = json.loads(bftrain("tasks", "profiles", made, "--json").out)
    assert again == listed
