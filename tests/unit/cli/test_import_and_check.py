"""``bftrain import``, ``check`` and ``inspect``: a dump with nearly every defect, and doubtful idle hours."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from bftrain import NodeState, load_log
from tests.helpers.broken_log import BROKEN, MENDED
from tests.helpers.in_process import CommandLine
from tests.helpers.schedules import Row, swf

# kind, how many, node-seconds, where first: worked out by hand
DOUBTS = [
    ("duplicate", 1, 3595, "broken:7"),
    ("no_nodes", 1, 180, "broken:21"),
    ("bad_nodes", 1, 60, "broken:25"),
    ("bad_time", 3, 0, "broken:22"),
    ("bad_value", 1, 0, "broken:20"),
    ("malformed", 3, 0, "broken:1"),
    ("truncated", 2, 0, "broken:28"),
    ("local_times", 40, 0, "broken:3"),
    ("no_node_states", 1, 0, ""),
    ("preemption", 1, 600, "broken:11"),
    ("held_twice", 1, 300, "broken:13"),
    ("log_trimmed", 2, 5 * 5400, "at 2026-01-01 00:00:00 UTC"),
    ("censored_end", 4, 1200 + 22200 + 21900 + 24900, "at 2026-01-01 03:05:00 UTC"),
    ("suspected_downtime", 1, 5 * 18300, "at 2026-01-01 03:55:00 UTC"),
]
ORDINARY = [
    ("no_usage", 4, 0, "broken:16"),
    ("other_record", 1, 0, "broken:6"),
    ("notation", 5, 0, "broken:9"),
    ("nodes_inferred", 5, 0, ""),
    ("shared", 1, 1800, "broken:8"),
    ("short_gaps", 5, 0, "broken:4"),
]


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_broken_dump(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken").write_bytes(BROKEN)


def test_every_doubt_is_counted_and_reported(bftrain: CommandLine) -> None:
    output = json.loads(bftrain("import", "--dry-run", "broken", "--json").out)
    found = [(each["name"], each["count"], each["node_s"], each["first"]) for each in output["findings"]]
    assert found == DOUBTS + ORDINARY
    rows = output["rows"]
    assert (output["format"], rows["read"], rows["used"], sum(rows["aside"].values())) == ("sacct", 29, 14, 15)
    ended = bftrain("import", "--dry-run", "broken")
    lines = [line.strip() for line in ended.out.splitlines()]
    assert (ended.code, ended.err, lines[0]) == (0, "", "Doubtful: look at these")
    assert lines[-1] == "sacct: 29 rows read = 14 used + 15 skipped"
    for name, count, node_s, first in DOUBTS + ORDINARY:
        hours = rf" +{node_s / 3600:,.1f}" if node_s else ""
        (at,) = [at for at, line in enumerate(lines) if re.match(rf"{name} +{count}{hours}\s+[a-z]", line)]
        assert first in lines[at + 1 : at + 3] or not first


def test_strict_writes_nothing(bftrain: CommandLine) -> None:
    for command in (("import", "broken", "-o", "log.npz"), ("import", "broken", "--dry-run")):
        ended = bftrain(*command, "--strict")
        assert (ended.code, "Doubtful: look at these" in ended.out) == (3, True)
        assert ended.err.startswith("bftrain: --strict: 14 kinds of doubt: duplicate, no_nodes, bad_nodes, ")
    assert json.loads(bftrain("import", "broken", "-o", "log.npz", "--strict", "--json").out)["file"] is None
    assert list(Path().iterdir()) == [Path("broken")]


def test_options_settle_the_doubts(bftrain: CommandLine) -> None:
    Path("mended").write_bytes(MENDED)
    settled = ("--nodes", "n[1-2]", "--window", "2026-01-01:2026-01-01T10:00", "--timezone", "UTC", "--min-gap", "60")
    ended = bftrain("import", "mended", "-o", "log.npz", "--strict", "--down", "suspected", *settled)
    assert (ended.code, "Doubtful" in ended.out) == (0, False), ended.err
    assert "10 h from 2026-01-01 00:00:00 UTC to 2026-01-01 10:00:00 UTC" in ended.out
    assert bftrain("import", "--dry-run", "log.npz", "--strict").code == 0
    log = load_log(Path("log.npz"))
    assert log.idle_node_s == 1800 + 1800 + 1200  # before and after the time when both are idle, which is down now
    assert log.provenance.options["min_gap_s"] == 60


def test_the_saved_log_has_the_figures_and_findings(bftrain: CommandLine) -> None:
    output = json.loads(bftrain("import", "broken", "-o", "log.npz", "--json").out)
    log = load_log(Path("log.npz"))
    assert (output["file"], output["nodes"], output["events"]) == ("log.npz", 5, len(log))
    assert (output["sha256"], output["idle_share"]) == (log.sha256, log.idle_share)
    kept, before = (json.loads(bftrain("import", "--dry-run", path, "--json").out) for path in ("log.npz", "broken"))
    assert (
        (kept["findings"], kept["rows"]) == (before["findings"], before["rows"]) == (output["findings"], output["rows"])
    )
    assert (
        bftrain("import", "--dry-run", "log.npz").out.splitlines()[:-1]
        == bftrain("import", "--dry-run", "broken").out.splitlines()[:-1]
    )


def test_the_same_bytes_from_a_pipe_packed_and_wherever_the_file_lies(bftrain: CommandLine) -> None:
    written, hashes = set(), set()
    for folder in ("a", "b/c"):
        Path(folder).mkdir(parents=True)
        Path(folder, "jobs").write_bytes(BROKEN)
        assert bftrain("import", f"{folder}/jobs", "-o", f"{folder}/log.npz").code == 0
        written.add(Path(folder, "log.npz").read_bytes())
    for content in (BROKEN, gzip.compress(BROKEN)):
        ended = bftrain("import", "-", "-o", "log.npz", "--json", stdin=content)
        assert "stdin:7" in ended.out
        hashes.add(json.loads(ended.out)["sha256"])
    assert (len(written), len(hashes)) == (1, 1)


def test_check_explains_even_what_no_log_can_be_made_of(bftrain: CommandLine) -> None:
    Path("jobs").write_text("JobID|Start|End|NodeList|State\n1|Unknown|Unknown|None|PENDING\n2|1|x|n1|COMPLETED\n")
    ended = bftrain("import", "--dry-run", "jobs")
    assert (ended.code, "no row describes an allocated node" in ended.err) == (3, True)
    assert re.search(r"bad_time +1 .*\n.*\n +jobs:3\n", ended.out)
    rows = json.loads(bftrain("import", "--dry-run", "jobs", "--json").out)["rows"]
    assert rows == {"read": 2, "used": 0, "aside": {"bad_time": 1, "no_usage": 1}}


def test_a_partition_that_no_job_was_in_is_reported(bftrain: CommandLine) -> None:
    output = json.loads(bftrain("import", "--dry-run", "broken", "--json", "--preemptible", "pilot,scavange").out)
    (found,) = (each for each in output["findings"] if each["name"] == "preemption")
    assert (found["count"], found["first"]) == (1, "--preemptible scavange")


def test_the_cut_end_of_a_dump_is_reported_with_the_option_that_keeps_it(bftrain: CommandLine) -> None:
    hours = [(number, number + (12 if number > 37 else 2)) for number in range(40)]  # the last one is much longer
    jobs = [f"{at}|{10**9 + 3600 * at}|{10**9 + 3600 * end}|{'abcd'[at % 4]}" for at, end in hours]
    Path("dump").write_text("\n".join(("JobID|Start|End|NodeList", *jobs, "")))
    for command in (
        ("import", "dump", "-o", "log.npz"),
        ("import", "log.npz", "--dry-run"),
        ("inspect", "log.npz"),
        ("import", "dump", "--dry-run"),
    ):
        assert "; change it with --window A:B or --keep-end" in " ".join(bftrain(*command).out.split())
        if command[0] != "inspect":
            findings = json.loads(bftrain(*command, "--json").out)["findings"]
            assert {each["name"]: each["option"] for each in findings}["log_trimmed"] == "--window A:B or --keep-end"
    trimmed = "the log stops at the last job start"
    assert trimmed in bftrain("import", "dump", "-o", "log.npz").out.replace("\n", " ")
    assert trimmed not in bftrain("import", "dump", "-o", "log.npz", "--keep-end").out.replace("\n", " ")


HOUR = 3600
NODES = ("n1", "n2", "n3", "n4")
END = 40  # hours
# Jobs as (from hour, to hour, node). Only one of them goes on after six hours; then the dump was made
ENDED = [(hour, hour + 1, node) for hour in (0, 2, 4) for node in NODES[1:]] + [(0, 5, "n1"), (5, END, "n1")]
# Nothing runs from hour 2 to hour 38; a job that still runs shows that the records reach to their end
DOWN = [(0, 2, node) for node in NODES[:3]] + [(0, 1, "n4"), (38, None, "n1"), (38, 39, "n4")]
TASKS = '[[task]]\nname = "a"\nmax_nodes = 4\nwork_samples = 1e9\ncurve = { nodes = [1, 4], rate = [1.0, 4.0] }\n'


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
    ("jobs", "end", "censored"), [(ENDED, END, True), (DOWN, 39, False)], ids=["a dump of ended jobs", "a machine down"]
)
def test_every_command_prints_sure_and_doubtful_hours(
    bftrain: CommandLine,
    jobs: list[tuple[int, int | None, str]],
    end: int,
    censored: bool,  # noqa: FBT001 - a case
) -> None:
    rows = [
        f"{number}|{1_767_225_600 + HOUR * at}|{'Unknown' if to is None else 1_767_225_600 + HOUR * to}|{node}|"
        f"{'RUNNING' if to is None else 'COMPLETED'}"
        for number, (at, to, node) in enumerate(jobs)
    ]
    Path("jobs").write_text("\n".join(["JobID|Start|End|NodeList|State", *rows, ""]))
    idle, causes = by_hand(jobs, end, censored=censored)
    doubtful = sum(causes.values())
    imported = bftrain("import", "jobs", "-o", "log.parquet", "--timezone", "UTC").out
    found = json.loads(bftrain("inspect", "log.parquet", "--json").out)["doubtful"]
    assert {cause: round(hours, 6) for cause, hours in found["causes"].items()} == causes
    assert (found["idle_node_h"], found["sure_node_h"], found["doubtful_node_h"]) == (idle, idle - doubtful, doubtful)
    # A part of the time has the doubts of this time, in another format and under other names too
    window = "2026-01-01T00:00:2026-01-01T04:00"
    assert bftrain("slice", "log.parquet", "-o", "part.csv", "--window", window).code == 0
    assert bftrain("slice", "--anonymise", "part.csv", "-o", "hidden.npz").code == 0
    _, early = by_hand([job for job in jobs if job[0] < 4] if not censored else jobs, 4, censored=censored)
    for each in ("part.csv", "hidden.npz"):
        assert json.loads(bftrain("inspect", each, "--json").out)["doubtful"]["causes"] == early
    Path("tasks.toml").write_text(TASKS)
    replayed = bftrain("replay", "log.parquet", "--tasks", "tasks.toml", "-o", "out").out
    for text in (imported, bftrain("inspect", "log.parquet").out, replayed, Path("out/report.html").read_text()):
        assert found["sentence"].partition(", ")[2] in " ".join(text.split())
    assert json.loads(Path("out/summary.json").read_text())["doubtful"] == found


def test_a_log_made_by_schedule_is_a_simulated_schedule_and_never_observed(bftrain: CommandLine) -> None:
    rows = [Row(0, 7200, 3, 7200), Row(0, 3600, 4, 3600), Row(10, 7200, 2, 7200)]
    assert bftrain("schedule", swf(Path("log.swf"), rows, "MaxNodes: 4"), "-o", "made").code == 0
    found = json.loads(bftrain("inspect", "made/idle.npz", "--json").out)["doubtful"]
    assert (found["source"], found["sure_node_h"], found["doubtful_node_h"]) == ("simulated", 0.0, found["idle_node_h"])
    Path("tasks.toml").write_text(TASKS)
    replayed = bftrain("replay", "made/idle.npz", "--tasks", "tasks.toml", "-o", "out").out
    page = re.sub("<script.*?</script>", "", Path("out/report.html").read_text(), flags=re.DOTALL)
    for text in (replayed, bftrain("inspect", "made/idle.npz").out, page):
        assert "simulated schedule" in " ".join(text.split())
        assert not re.search("observed|batch queue", text)


COLUMNS = {"sacct": "JobID|Start|End|NodeList|NNodes|State", "table": "job|start|end|hosts|nnodes|status"}
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


@pytest.mark.parametrize("form", COLUMNS)
def test_each_row_that_may_have_run_is_doubtful_for_as_long_as_it_may_have(bftrain: CommandLine, form: str) -> None:
    rows = ["1|1000000000|1000000600|n[1-4]|4|COMPLETED", *ODD_ROWS, "2|1000071400|1000072000|n[1-4]|4|COMPLETED"]
    Path("jobs").write_text("\n".join((COLUMNS[form], *rows, "")))
    options = ("--nodes", "n[1-4]", "--downtime-after", "1e9", "--window", "1000000000:1000072000")
    found = json.loads(bftrain("import", "jobs", "-o", "log.csv", "--json", *options).out)
    log = load_log(Path("log.csv"))
    doubtful = 0
    for second in range(0, 72_000, 600):  # nothing changes in between
        idle = int((log.states_at(1e9 + second) == NodeState.IDLE).sum())
        doubtful += 600 * min(idle, sum(nodes for begin, end, nodes in MAY_RUN if begin <= second < end))
    assert found["doubtful"]["causes"]["rows_aside"] == pytest.approx(doubtful / 3600)
