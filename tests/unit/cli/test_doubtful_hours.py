"""Import, inspect, slice and replay say how many idle node-hours are sure, and how many doubtful for which cause."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bftrain import NodeState, load_log
from tests.helpers.in_process import CommandLine
from tests.helpers.schedules import Row, swf

HOUR = 3600
NODES = ("n1", "n2", "n3", "n4")
END = 40  # hours
# Jobs as (from hour, to hour, node). Only one of them goes on after six hours; then the dump was made
ENDED = [(hour, hour + 1, node) for hour in (0, 2, 4) for node in NODES[1:]] + [(0, 5, "n1"), (5, END, "n1")]
# Nothing runs from hour 2 to hour 38; a job that still runs shows that the records reach to their end
DOWN = [(0, 2, node) for node in NODES[:3]] + [(0, 1, "n4"), (38, None, "n1"), (38, 39, "n4")]
TASKS = '[[task]]\nname = "a"\nmax_nodes = 4\nwork_samples = 1e9\ncurve = { nodes = [1, 4], rate = [1.0, 4.0] }\n'


def sacct(path: Path, jobs: list[tuple[int, int | None, str]]) -> Path:
    rows = [
        f"{number}|{1_767_225_600 + HOUR * at}|{'Unknown' if to is None else 1_767_225_600 + HOUR * to}|{node}|"
        f"{'RUNNING' if to is None else 'COMPLETED'}"
        for number, (at, to, node) in enumerate(jobs)
    ]
    path.write_text("\n".join(["JobID|Start|End|NodeList|State", *rows]) + "\n")
    return path


def by_hand(jobs: list[tuple[int, int | None, str]], end: int, *, censored: bool) -> tuple[int, dict[str, int]]:
    """Look at every hour of every node: idle node-hours, and those that are doubtful, each for its first cause."""
    causes = {"censored_end": 0, "suspected_downtime": 0}
    idle = 0
    for hour in range(end):
        busy = {node for at, to, node in jobs if at <= hour < (end if to is None else to)}
        for node in set(NODES) - busy:
            idle += 1
            if censored and not any(at > hour for at, _, other in jobs if other == node):
                causes["censored_end"] += 1
            elif not busy:
                causes["suspected_downtime"] += 1
    return idle, {cause: hours for cause, hours in causes.items() if hours}


@pytest.mark.parametrize(
    ("jobs", "end", "censored"),
    [(ENDED, END, True), (DOWN, 39, False)],
    ids=["a dump of ended jobs", "a machine that was down"],
)
def test_every_command_says_both_numbers(
    bftrain: CommandLine,
    tmp_path: Path,
    jobs: list[tuple[int, int | None, str]],
    end: int,
    censored: bool,  # noqa: FBT001 - a case
) -> None:
    idle, causes = by_hand(jobs, end, censored=censored)
    doubtful = sum(causes.values())
    assert doubtful / idle > 0.75
    log, part = tmp_path / "log.parquet", tmp_path / "part.csv"
    said = bftrain("import", sacct(tmp_path / "jobs", jobs), "-o", log, "--timezone", "UTC").out
    found = json.loads(bftrain("inspect", log, "--json").out)["doubtful"]
    assert {cause: round(hours, 6) for cause, hours in found["causes"].items()} == causes
    assert (found["idle_node_h"], found["sure_node_h"], found["doubtful_node_h"]) == (idle, idle - doubtful, doubtful)
    both = f"{idle} idle node-hours, of which {idle - doubtful} are sure; {doubtful} doubtful: "
    assert found["sentence"].startswith(both)
    assert " ".join(said.split()).endswith(found["sentence"])
    assert both in " ".join(bftrain("inspect", log).out.split())
    # A part of the time has the doubts of this time, in another format and under other names too
    assert bftrain("slice", log, "-o", part, "--window", "2026-01-01T00:00..2026-01-01T04:00").code == 0
    hidden = tmp_path / "hidden.npz"
    assert bftrain("anonymise", part, "-o", hidden).code == 0
    _, early = by_hand([job for job in jobs if job[0] < 4] if not censored else jobs, 4, censored=censored)
    for each in (part, hidden):
        assert json.loads(bftrain("inspect", each, "--json").out)["doubtful"]["causes"] == early
    (tmp_path / "tasks.toml").write_text(TASKS)
    ended = bftrain("replay", log, "--tasks", tmp_path / "tasks.toml", "-o", tmp_path / "out", "--quick")
    assert found["sentence"] in " ".join(ended.out.split())
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["doubtful"] == found
    page = (tmp_path / "out" / "report.html").read_text()
    first = f"left <strong>{idle} node-hours</strong> idle, {idle / end / 4:.1%} of all, ".replace("%", "&nbsp;%")
    assert f"The batch queue {first}{found['sentence'].partition(', ')[2]}." in page


def test_a_log_made_by_schedule_is_a_simulated_schedule_and_never_observed(
    bftrain: CommandLine, tmp_path: Path
) -> None:
    rows = [Row(0, 7200, 3, 7200), Row(0, 3600, 4, 3600), Row(10, 7200, 2, 7200)]
    assert bftrain("schedule", swf(tmp_path / "log.swf", rows, "MaxNodes: 4"), "-o", tmp_path / "made").code == 0
    log = tmp_path / "made" / "idle.npz"
    found = json.loads(bftrain("inspect", log, "--json").out)["doubtful"]
    assert (found["source"], found["sure_node_h"], found["doubtful_node_h"]) == ("simulated", 0.0, found["idle_node_h"])
    (tmp_path / "tasks.toml").write_text(TASKS)
    ended = bftrain("replay", log, "--tasks", tmp_path / "tasks.toml", "-o", tmp_path / "out", "--quick")
    said = [
        ended.out,
        bftrain("inspect", log).out,
        re.sub("<script.*?</script>", "", (tmp_path / "out" / "report.html").read_text(), flags=re.DOTALL),
    ]
    for text in said:
        assert "simulated schedule" in " ".join(text.split())
        assert "observed" not in text
        assert "batch queue" not in text
    assert "A simulated schedule left <strong>" in said[2]


def test_jobs_whose_rows_cannot_be_used_make_idle_time_doubtful(bftrain: CommandLine, tmp_path: Path) -> None:
    rows = [
        "0|999999000|1000000000|n[1-4]|4|COMPLETED",
        "1|1000000000|1000036000|n[1-4]|4|COMPLETED",
        "2|1000072000|Unknown|n[1-4]|4|RUNNING",
        "3|1000036000|1000043200||3|COMPLETED",
        "4|1000039600|1000043200|n[[|2|COMPLETED",
    ]
    (tmp_path / "jobs").write_text("JobID|Start|End|NodeList|NNodes|State\n" + "\n".join(rows) + "\n")
    options = ("--nodes", "n[1-4]", "--downtime-after", "1e9")
    found = json.loads(bftrain("import", tmp_path / "jobs", "-o", tmp_path / "log.csv", "--json", *options).out)[
        "doubtful"
    ]
    assert found["idle_node_h"] == 40.0
    assert found["causes"] == {"rows_aside": 3 + 4.0}  # three nodes for an hour, then five of four
    assert "while jobs ran whose rows could not be used" in found["sentence"]


COLUMNS = {"sacct": "JobID|Start|End|NodeList|NNodes|State", "table": "job,start,end,hosts,nnodes,status"}
ODD_ROWS = [
    "5|soon|1000007200|n[1-2]|2|COMPLETED",  # it may have run from the beginning
    "6|1000064800|later|n[1-2|2|COMPLETED",  # and to the end
    "7|Unknown|1000003600|n3|1|COMPLETED",
    "8|1000061200|Unknown|n3||FAILED",
    "9|1000010800|1000014400|n[1-4]|2|COMPLETED",  # more nodes than it says, or fewer
    "10|1000018000|1000021600|n1,n|2|COMPLETED",
    "11|1000025200|1000028800|n[1-|0|COMPLETED",
]
MAY_RUN = [(-1e9, 7200, 2), (64800, 1e9, 2), (-1e9, 3600, 1), (61200, 1e9, 1), (10800, 14400, 4), (25200, 28800, 1)]


@pytest.mark.parametrize("form", list(COLUMNS))
def test_each_row_that_may_have_run_is_doubtful_for_as_long_as_it_may_have(
    bftrain: CommandLine, tmp_path: Path, form: str
) -> None:
    rows = ["1|1000000000|1000000600|n[1-4]|4|COMPLETED", *ODD_ROWS, "2|1000071400|1000072000|n[1-4]|4|COMPLETED"]
    text = "\n".join((COLUMNS[form].replace(",", "|"), *rows)) + "\n"
    (tmp_path / "jobs").write_text(text)
    options = ("--nodes", "n[1-4]", "--downtime-after", "1e9", "--window", "1000000000..1000072000")
    found = json.loads(bftrain("import", tmp_path / "jobs", "-o", tmp_path / "log.csv", "--json", *options).out)
    log = load_log(tmp_path / "log.csv")
    doubtful = 0
    for second in range(0, 72_000, 600):  # nothing changes in between
        idle = int((log.states_at(1e9 + second) == NodeState.IDLE).sum())
        doubtful += 600 * min(idle, sum(nodes for begin, end, nodes in MAY_RUN if begin <= second < end))
    assert found["doubtful"]["causes"]["rows_aside"] == pytest.approx(doubtful / 3600)
