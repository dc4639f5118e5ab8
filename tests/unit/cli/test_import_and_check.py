"""``bftrain import`` and ``bftrain check``: a dump in which nearly everything is wrong, asserted line by line."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from bftrain import load_log
from bftrain_datasets.importing.findings import HAZARDS
from tests.helpers.broken_log import BROKEN, MENDED
from tests.helpers.in_process import CommandLine

# kind, how many, node-seconds, where first: worked out by hand
DOUBTS = [
    ("duplicate", 1, 3595, "broken:7"),
    ("backwards", 1, 0, "broken:20"),
    ("no_nodes", 1, 180, "broken:21"),
    ("no_end", 1, 0, "broken:22"),
    ("bad_time", 2, 0, "broken:23"),
    ("bad_nodes", 1, 60, "broken:25"),
    ("malformed", 2, 0, "broken:1"),
    ("overlong", 1, 0, "broken:27"),
    ("not_utf8", 1, 0, "broken:28"),
    ("unended_line", 1, 0, "broken:31"),
    ("local_times", 41, 0, "broken:3"),
    ("no_node_states", 1, 0, ""),
    ("preempted_jobs", 1, 600, "broken:11"),
    ("held_twice", 1, 300, "broken:13"),
    ("censored_start", 2, 5 * 5400, "at 2026-01-01 00:00:00 UTC"),
    ("censored_end", 4, 1200 + 22200 + 21900 + 24900, "at 2026-01-01 03:05:00 UTC"),
    ("suspected_downtime", 1, 5 * 18300, "at 2026-01-01 03:55:00 UTC"),
]
ORDINARY = [
    ("never_started", 3, 0, "broken:16"),
    ("zero_length", 1, 0, "broken:19"),
    ("step", 1, 0, "broken:6"),
    ("epoch_ms", 2, 0, "broken:15"),
    ("delimiter_in_text", 1, 0, "broken:9"),
    ("repeated_hosts", 1, 0, "broken:10"),
    ("unsorted", 1, 0, "broken:14"),
    ("nodes_inferred", 5, 0, ""),
    ("shared", 1, 1800, "broken:8"),
    ("back_to_back", 5, 0, "broken:4"),
]


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken"
    path.write_bytes(BROKEN)
    return path


def test_every_doubt_is_counted(bftrain: CommandLine, broken: Path) -> None:
    output = json.loads(bftrain("check", broken, "--json").out)
    found = [(each["name"], each["count"], each["node_s"], each["first"]) for each in output["findings"]]
    assert found == DOUBTS + ORDINARY
    aside = {name: count for name, count, *_ in found if HAZARDS[name].aside}
    assert output["rows"] == {"read": 29, "used": 14, "aside": aside}
    assert output["format"] == "sacct"


def test_the_report_line_by_line(bftrain: CommandLine, broken: Path) -> None:
    ended = bftrain("check", broken)
    assert ended.code == 0
    assert ended.err == ""
    lines = [line.strip() for line in ended.out.splitlines() if line.strip() and "──" not in line]
    assert lines[0] == "Doubtful: look at these"
    assert lines[-1] == "sacct: 29 rows read = 14 used + 15 set aside"
    places = [lines.index(f"{title}") for title in (lines[0], "Ordinary: counted, and nothing to worry about")]
    columns = r"kind\s+count\s+node-hours\s+what it is, what was done about it, and where it was seen first"
    assert all(re.fullmatch(columns, lines[place + 1]) for place in places)
    rest = [line for place, line in enumerate(lines[:-1]) if place not in (*places, *(place + 1 for place in places))]
    for name, count, node_s, first in DOUBTS + ORDINARY:
        hours = rf"{node_s / 3600:,.1f}\s+" if node_s else ""
        assert re.fullmatch(rf"{name}\s+{count}\s+{hours}{re.escape(HAZARDS[name].says)}", rest.pop(0))
        done = rest.pop(0)
        assert done.startswith((HAZARDS[name].done, "left out: the log begins when the first job ends, 1.5 h after"))
        assert done.endswith(f"; change it with {HAZARDS[name].option}") == bool(HAZARDS[name].option)
        if first:
            assert rest.pop(0) == first
    assert rest == []


def test_strict_refuses_and_writes_nothing(bftrain: CommandLine, broken: Path, tmp_path: Path) -> None:
    for ended in (
        bftrain("import", broken, "-o", tmp_path / "log.npz", "--strict"),
        bftrain("check", broken, "--strict"),
    ):
        assert ended.code == 3
        assert "Doubtful: look at these" in ended.out
        assert ended.err.startswith("bftrain: --strict: 17 kinds of doubt: duplicate, backwards, no_nodes, ")
        assert ended.err.rstrip().endswith("(see the options in the report above)")
    assert list(tmp_path.iterdir()) == [broken]
    output = json.loads(bftrain("import", broken, "-o", tmp_path / "log.npz", "--strict", "--json").out)
    assert output["file"] is None


def test_options_settle_the_doubts(bftrain: CommandLine, tmp_path: Path) -> None:
    mended = tmp_path / "mended"
    mended.write_bytes(MENDED)
    settled = [
        "--nodes",
        "n[1-2]",
        "--window",
        "2026-01-01..2026-01-01T10:00",
        "--timezone",
        "UTC",
        "--down",
        "suspected",
    ]
    ended = bftrain("import", mended, "-o", tmp_path / "log.npz", "--strict", *settled, "--min-gap", "60")
    assert ended.code == 0
    assert "Doubtful" not in ended.out
    assert "sacct: 6 rows read = 6 used + 0 set aside\n" in ended.out
    assert f"{tmp_path}/log.npz: 2 nodes, " in ended.out
    assert "10 h from 2026-01-01 00:00:00 UTC to 2026-01-01 10:00:00 UTC" in ended.out
    assert bftrain("check", tmp_path / "log.npz", "--strict").code == 0
    log = load_log(tmp_path / "log.npz")
    assert log.idle_node_s == 1800 + 1800 + 1200  # before and after the time when both are idle, which is down now
    assert log.provenance.options["min_gap_s"] == 60


def test_figures_as_json(bftrain: CommandLine, broken: Path, tmp_path: Path) -> None:
    ended = bftrain("import", broken, "-o", tmp_path / "log.csv", "--json")
    output = json.loads(ended.out)
    log = load_log(tmp_path / "log.csv")
    assert (output["file"], output["nodes"], output["events"]) == (str(tmp_path / "log.csv"), 5, len(log))
    assert (output["sha256"], output["idle_share"]) == (log.sha256, log.idle_share)
    assert output["rows"]["read"] == output["rows"]["used"] + sum(output["rows"]["aside"].values())
    assert output["findings"] == json.loads(bftrain("check", broken, "--json").out)["findings"]


def test_a_saved_log_is_checked_with_what_was_found(bftrain: CommandLine, broken: Path, tmp_path: Path) -> None:
    bftrain("import", broken, "-o", tmp_path / "log.npz")
    output, before = (json.loads(bftrain("check", path, "--json").out) for path in (tmp_path / "log.npz", broken))
    assert output["findings"] == before["findings"]
    assert output["rows"] == before["rows"]
    assert (
        bftrain("check", tmp_path / "log.npz").out.splitlines()[:-1] == bftrain("check", broken).out.splitlines()[:-1]
    )
    assert bftrain("check", tmp_path / "log.npz", broken).code == 2


def test_standard_input_plain_and_packed(bftrain: CommandLine, tmp_path: Path) -> None:
    hashes = set()
    for content in (BROKEN, gzip.compress(BROKEN)):
        ended = bftrain("import", "-", "-o", tmp_path / "log.npz", "--json", stdin=content)
        assert ended.code == 0
        hashes.add(json.loads(ended.out)["sha256"])
    assert len(hashes) == 1
    assert "stdin:7" in ended.out


def test_the_same_bytes_wherever_the_file_lies(bftrain: CommandLine, tmp_path: Path) -> None:
    written = set()
    for folder in ("a", "b/c"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "jobs").write_bytes(BROKEN)
        assert bftrain("import", tmp_path / folder / "jobs", "-o", tmp_path / folder / "log.npz").code == 0
        written.add((tmp_path / folder / "log.npz").read_bytes())
    assert len(written) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "what"),
    [
        (["absent"], 2, "absent.*does not exist"),
        (["."], 2, "is a folder: name the files in it, such as ./*"),
        (["/proc/self/mem"], 3, "/proc/self/mem: cannot be read: Input/output error"),
        (["/dev/null"], 3, "the file is empty"),
        (["broken", "--window", "5"], 3, "--window: '5' is not a window .write A..B"),
        (["broken", "--window", "2030-01-01.."], 3, "no row describes a node that was held: .*outside_window"),
        (["broken", "--down", "x..y"], 3, "--down: 'x..y' is not a window"),
        (["broken", "--timezone", "Mars"], 3, "unknown time zone 'Mars'"),
        (["broken", "--nodes", "n["], 3, "--nodes: not a node set"),
        (["broken", "--nodes", "5"], 2, "--nodes 5 is only a number, which is enough for --counts only"),
        (["broken", "--format", "sact"], 3, "no reader is called 'sact' .did you mean 'sacct'"),
        (["broken", "--format", "swf"], 3, "no row describes a node that was held|no job"),
        (["broken", "--min-gap", "-1"], 2, "'--min-gap': -1.0 is not in the range"),
        (["broken", "--min-gap", "nan"], 3, "min_gap_s"),
        (["broken", "--downtime-after", "0"], 2, "'--downtime-after': 0.0 is not in the range"),
        (["broken", "--counts", "--nodes", "0"], 2, "must be at least 1"),
        (["broken", "--window", "2019..2020"], 3, "--window is 2019 s .. 2020 s; bftrain check explains each"),
    ],
)
def test_mistakes_are_said_in_words_and_nothing_is_written(
    bftrain: CommandLine, broken: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, what: str
) -> None:
    monkeypatch.chdir(broken.parent)
    for command in (["import", "-o", "log.npz"], ["check"]):
        ended = bftrain(*command, *arguments)
        assert ended.code == code
        assert re.search(what, ended.err.replace("\n", " "))
        assert "fault" not in ended.err
    assert list(Path().iterdir()) == [Path("broken")]


def test_check_explains_even_what_no_log_can_be_made_of(bftrain: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "jobs"
    path.write_text("JobID|Start|End|NodeList|State\n1|Unknown|Unknown|None assigned|PENDING\n2|1|x|n1|COMPLETED\n")
    ended = bftrain("check", path)
    assert ended.code == 3
    assert re.search(r"bad_time +1 .*\n +row set aside\n +jobs:3\n", ended.out)
    assert ended.out.endswith("sacct: 2 rows read = 0 used + 2 set aside\n")
    assert ended.err.startswith("bftrain: jobs: no row describes a node that was held: ")
    output = json.loads(bftrain("check", path, "--json").out)
    assert output["rows"] == {"read": 2, "used": 0, "aside": {"bad_time": 1, "never_started": 1}}
    path.write_text("JobID|Start|End|NodeList|State\n")
    assert bftrain("check", path).out == "sacct: 0 rows read = 0 used + 0 set aside\n"


def test_a_partition_that_no_job_was_in_is_reported(bftrain: CommandLine, broken: Path) -> None:
    output = json.loads(bftrain("check", broken, "--json", "--preemptible", "pilot,scavange").out)
    (found,) = (each for each in output["findings"] if each["name"] == "unknown_partitions")
    assert (found["count"], found["first"]) == (1, "--preemptible scavange")


def test_a_folder_that_is_not_there_is_reported_before_the_work(bftrain: CommandLine, broken: Path) -> None:
    ended = bftrain("import", broken, "-o", broken.parent / "there" / "log.npz")
    assert (ended.code, ended.out) == (3, "")
    assert ended.err == f"bftrain: {broken.parent}/there: no such folder (create it first, for example by mkdir -p)\n"


def test_a_name_for_the_log_that_cannot_be_is_refused_before_the_work(bftrain: CommandLine, broken: Path) -> None:
    ended = bftrain("import", broken, "-o", broken.parent / "log.txt")
    assert (ended.code, ended.out) == (3, "")
    assert "no log file: its name ends in '.txt'" in ended.err
