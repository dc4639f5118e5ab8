"""``bftrain schedule``: what it prints, writes and warns of."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.helpers.in_process import CommandLine
from tests.helpers.schedules import Row, swf

ROWS = [Row(0, 100, 6, 100), Row(1, 50, 8, 50), Row(2, 50, 4, 50), Row(60, 300, 2, 200, user=2)]
SCHEDULE = ("schedule", "log.swf", "-o", "out")


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    swf(Path("log.swf"), ROWS, "MaxNodes: 10")


def column(name: str) -> list[float]:
    with Path("out/jobs.csv").open(newline="") as file:
        return [float(row[name]) for row in csv.DictReader(file)]


def test_it_prints_what_became_of_the_jobs(bftrain: CommandLine) -> None:
    ended = bftrain(*SCHEDULE)
    lines = [line.split() for line in ended.out.splitlines()]
    assert (ended.code, ended.err) == (0, "result: out\n")
    assert lines[0] == ["log.swf:", "easy,", "estimates", "limit,", "10", "nodes"]
    for row in ("jobs done 4 of 4", "outlived their estimate 1", "overtook another 2", "promised starts 1"):
        assert row.split() in lines
    quiet = bftrain(*SCHEDULE, "--overwrite", "--json", "-q", "--policy", "ostrich")
    assert (quiet.code, quiet.err) == (0, "")
    assert json.loads(quiet.out) == json.loads(Path("out/summary.json").read_text())


def test_its_configuration_runs_it_again(bftrain: CommandLine) -> None:
    options = "--policy fairshare --set estimates=actual --half-life 50 --nodes 9 --time-factor 2"
    assert bftrain(*SCHEDULE, *options.split()).code == 0
    config = Path("out/config.toml")
    assert config.read_text().splitlines()[0] == "# bftrain schedule log.swf --config THIS_FILE -o NEW_FOLDER"
    assert bftrain("schedule", "log.swf", "--config", config, "-o", "two").code == 0
    for name in ("config.toml", "jobs.csv", "campaigns.csv", "schedule.swf", "idle.npz"):
        assert Path("out", name).read_bytes() == Path("two", name).read_bytes()


def test_short_jobs_run_at_least_so_long(bftrain: CommandLine) -> None:
    swf(Path("log.swf"), [Row(0, 5, 3, 10), Row(1, 100, 3, 200)], "MaxNodes: 10")
    assert bftrain(*SCHEDULE, "--least-run", "1min").code == 0
    rows = [line.split() for line in Path("out/schedule.swf").read_text().splitlines() if line[0] != ";"]
    assert [float(row[3]) for row in rows] == [60.0, 100.0]


def test_too_large_jobs_are_named_and_counted(bftrain: CommandLine) -> None:
    swf(Path("log.swf"), [*ROWS, *[Row(70, 5, 11)] * 7], "MaxNodes: 10")
    ended = bftrain(*SCHEDULE)
    warnings = [line for line in ended.err.splitlines() if line.startswith("warning: ")]
    assert (ended.code, warnings[0].startswith("warning: job 5 wants 11 nodes of 10"), len(warnings)) == (0, True, 6)
    assert ("--nodes N" in warnings[5], "4 of 11, 7 refused" in ended.out) == (True, True)


def test_overload_and_odd_inputs_are_warned_of(bftrain: CommandLine) -> None:
    swf(Path("log.swf"), [Row(10 * number, 100, 1, user=-1) for number in range(300)], "MaxNodes: 4")
    with Path("log.swf").open("a") as file:
        file.write("no job\n")
    Path("shares").write_text("ann 2\n")
    ended = bftrain(*SCHEDULE, "--max-backlog", "500", "--shares", "shares", "-q")
    assert ended.code == 0
    for words in ("1 malformed", "no job names its user", "users that no job has: ann", "overload: after"):
        assert [line for line in ended.err.splitlines() if line.startswith("warning: ") and words in line]
    summary = json.loads(Path("out/summary.json").read_text())
    assert (summary["ended"], summary["complete"], summary["makespan_s"]) == ("overload", False, None)
    assert min(summary["waiting"], summary["not_arrived"]) > 0


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
"""


@pytest.mark.parametrize("name", ["Shortest", "made"])
def test_an_own_policy_is_found_in_a_file(bftrain: CommandLine, name: str) -> None:
    Path("mine.py").write_text(SHORTEST)
    swf(Path("log.swf"), [Row(0, 100, 10), Row(1, 50, 10), Row(2, 20, 10), Row(3, 30, 10)], "MaxNodes: 10")
    assert bftrain(*SCHEDULE, "--policy", f"mine.py:{name}", "--backfill-depth", "7").code == 0
    assert column("start_s") == [0, 150, 100, 120]
