"""``bftrain schedule``: what it prints, warns of and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from bftrain.durations import parse_duration
from bftrain_datasets.scheduling.schedule_settings import (
    DECAYS,
    DONE_CAMPAIGNS,
    ESTIMATES,
    PLACEMENTS,
    ScheduleSettings,
)
from bftrain_replay.commands.schedule import OPTIONS
from tests.helpers.in_process import CommandLine
from tests.helpers.schedules import Row, swf

ROWS = [Row(0, 100, 6, 100), Row(1, 50, 8, 50), Row(2, 50, 4, 50), Row(60, 300, 2, 200, user=2)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return swf(tmp_path / "log.swf", ROWS, "MaxNodes: 10")


def test_every_setting_has_its_option_and_its_default_is_shown() -> None:
    fields = {field.name: field for field in msgspec.structs.fields(ScheduleSettings)}
    assert list(OPTIONS) == list(fields)
    assert OPTIONS["estimates"][0].choices == ESTIMATES
    assert OPTIONS["placement"][0].choices == PLACEMENTS
    assert OPTIONS["decay"][0].choices == DECAYS
    assert OPTIONS["done_campaigns"][0].choices == DONE_CAMPAIGNS
    for name, (_, text) in OPTIONS.items():
        default = fields[name].default
        if default not in (None, ""):
            shown = text.rpartition("[")[2].removesuffix("].")
            assert parse_duration(shown) == default if isinstance(default, float) else shown == str(default), name


def test_it_prints_what_became_of_the_jobs(bftrain: CommandLine, log: Path, tmp_path: Path) -> None:
    ended = bftrain("schedule", log, "-o", tmp_path / "out")
    assert ended.code == 0
    lines = [line.split() for line in ended.out.splitlines()]
    assert ended.out.splitlines()[0].rstrip() == f"{log}: easy, estimates limit, 10 nodes"
    assert ["jobs", "done", "4", "of", "4"] in lines
    assert ["outlived", "their", "estimate", "1"] in lines
    assert ["overtook", "another", "2"] in lines
    assert ["promised", "starts", "1"] in lines
    assert ["campaigns", "beyond", "their", "bound", "0", "of", "2"] in lines
    assert "derived, not recorded" in ended.out
    assert ended.err == f"result: {tmp_path / 'out'}\n"


def test_json_is_the_summary(bftrain: CommandLine, log: Path, tmp_path: Path) -> None:
    ended = bftrain("schedule", log, "-o", tmp_path / "out", "--json", "-q", "--policy", "ostrich")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == json.loads((tmp_path / "out" / "summary.json").read_text())


def test_its_configuration_runs_it_again(bftrain: CommandLine, log: Path, tmp_path: Path) -> None:
    options = (
        "--policy",
        "fairshare",
        "--estimates",
        "last2",
        "--half-life",
        "50",
        "--nodes",
        "9",
        "--time-factor",
        "2",
    )
    assert bftrain("schedule", log, "-o", tmp_path / "one", *options, "--placement", "contiguous").code == 0
    config = tmp_path / "one" / "config.toml"
    first = config.read_text().splitlines()[0]
    assert first == f"# bftrain schedule {log} --config THIS_FILE -o NEW_FOLDER"
    assert bftrain("schedule", log, "--config", config, "-o", tmp_path / "two").code == 0
    for name in ("config.toml", "jobs.csv", "campaigns.csv", "schedule.swf", "idle.npz"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_short_jobs_run_at_least_so_long(bftrain: CommandLine, tmp_path: Path) -> None:
    log = swf(tmp_path / "log.swf", [Row(0, 5, 3, 10), Row(1, 100, 3, 200)], "MaxNodes: 10")
    assert bftrain("schedule", log, "-o", tmp_path / "out", "--least-run", "60").code == 0
    rows = [line.split() for line in (tmp_path / "out" / "schedule.swf").read_text().splitlines() if line[0] != ";"]
    assert [float(row[3]) for row in rows] == [60.0, 100.0]
    assert "60.0" in (tmp_path / "out" / "jobs.csv").read_text().splitlines()[1].split(",")


def test_refused_jobs_are_named_and_counted(bftrain: CommandLine, tmp_path: Path) -> None:
    log = swf(tmp_path / "log.swf", [*ROWS, *[Row(70, 5, 11)] * 7], "MaxNodes: 10")
    ended = bftrain("schedule", log, "-o", tmp_path / "out")
    assert ended.code == 0
    warnings = [line for line in ended.err.splitlines() if line.startswith("warning: ")]
    assert warnings[0] == "warning: job 5 wants 11 nodes of 10: refused"
    assert len(warnings) == 6
    assert warnings[5] == "warning: 7 jobs in all are larger than the machine; --nodes N says how large that is"
    assert "4 of 11, 7 refused" in ended.out


def test_overload_is_said(bftrain: CommandLine, tmp_path: Path) -> None:
    log = swf(tmp_path / "log.swf", [Row(10 * number, 100, 1) for number in range(300)], "MaxNodes: 4")
    ended = bftrain("schedule", log, "-o", tmp_path / "out", "--max-backlog", "500")
    assert ended.code == 0
    assert "warning: overload: after" in ended.err
    assert "the queue grows without bound" in ended.err
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (summary["ended"], summary["complete"], summary["makespan_s"]) == ("overload", False, None)
    assert summary["waiting"] > 0
    assert summary["not_arrived"] > 0


def test_what_is_odd_is_said(bftrain: CommandLine, tmp_path: Path) -> None:
    log = swf(tmp_path / "log.swf", [row._replace(user=-1) for row in ROWS], "MaxNodes: 10")
    with log.open("a") as file:
        file.write("no job\n")
    shares = tmp_path / "shares"
    shares.write_text("ann 2\n")
    ended = bftrain("schedule", log, "-o", tmp_path / "out", "--shares", shares, "-q")
    assert ended.err.splitlines() == [
        "warning: rows set aside: 1 malformed; docs/readers.md explains each",
        "warning: no job names its user: shares, campaigns and estimates take all for one user's",
        "warning: --shares names users that no job has: ann",
    ]


@pytest.mark.parametrize(
    ("options", "code", "what"),
    [
        (["--policy", "eazy"], 3, "did you mean 'easy'?"),
        (["--estimates", "guess"], 2, "'guess' is not one of"),
        (["--nodes", "0"], 3, "--nodes: "),
        (["--cores-per-node", "-2"], 3, "--cores-per-node: "),
        (["--time-factor", "0"], 3, "--time-factor: "),
        (["--max-backlog", "0"], 3, "--max-backlog: "),
        (["--window", "5"], 3, "not a window"),
        (["--until", "noon"], 3, "is not a time"),
        (["--shares", "/no/such/file"], 3, "/no/such/file: No such file or directory"),
        (["--first", "1.5"], 2, "'1.5' is not a valid integer"),
    ],
)
def test_nonsense_is_refused(
    bftrain: CommandLine, log: Path, tmp_path: Path, options: list[str], code: int, what: str
) -> None:
    ended = bftrain("schedule", log, "-o", tmp_path / "out", *options)
    assert (ended.code, ended.out) == (code, "")
    assert what in ended.err


def test_a_folder_that_is_a_file_is_found_before_the_work(bftrain: CommandLine, log: Path) -> None:
    ended = bftrain("schedule", log, "-o", log.parent / "log.swf" / "out")
    assert ended.code == 3
    assert "out" in ended.err


def test_an_own_policy_is_found_by_its_name(
    bftrain: CommandLine, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.core import plugins  # noqa: PLC0415 - helpers of another room

    policy = "bftrain_datasets.scheduling.queue_policies:FirstComePolicy"
    plugins.register(monkeypatch, ("queue_policy", "mine", policy))
    ended = bftrain("schedule", log, "-o", tmp_path / "out", "--policy", "mine", "--json", "-q")
    output = json.loads(ended.out)
    assert (output["policy"], output["overtook"]) == ("mine", 0)


SHORTEST = """
class Shortest:
    name = "shortest"

    def starts(self, cluster):
        free, started = cluster.free, []
        for job in sorted(cluster.waiting, key=lambda job: (cluster.planned_s[job], job)):
            if cluster.size[job] <= free:
                free -= cluster.size[job]
                started.append(job)
        return started

def made(options):
    assert options.backfill_depth == 7
    return Shortest()

def nothing():
    return None

def broken():
    raise ValueError("no")
"""


@pytest.mark.parametrize("name", ["Shortest", "made"])
def test_an_own_policy_is_found_in_a_file(bftrain: CommandLine, tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.py").write_text(SHORTEST)
    options = ("--policy", f"{tmp_path / 'mine.py'}:{name}", "--backfill-depth", "7")
    log = swf(tmp_path / "log.swf", [Row(0, 100, 10), Row(1, 50, 10), Row(2, 20, 10), Row(3, 30, 10)], "MaxNodes: 10")
    assert bftrain("schedule", log, "-o", tmp_path / "out", *options).code == 0
    rows = (tmp_path / "out" / "jobs.csv").read_text().splitlines()
    column = rows[0].split(",").index("start_s")
    assert [float(row.split(",")[column]) for row in rows[1:]] == [0, 150, 100, 120]


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("nothing", "returned a NoneType, not a policy"),
        ("broken", "cannot be created: ValueError: no"),
        ("shortest", "did you mean 'Shortest'?"),
        ("other.py:x", "no such file"),
    ],
)
def test_what_is_no_policy_is_refused(bftrain: CommandLine, log: Path, tmp_path: Path, name: str, what: str) -> None:
    (tmp_path / "mine.py").write_text(SHORTEST)
    policy = f"{tmp_path}/{name}" if ":" in name else f"{tmp_path / 'mine.py'}:{name}"
    ended = bftrain("schedule", log, "-o", tmp_path / "out", "--policy", policy)
    assert ended.code == 3
    assert what in ended.err
