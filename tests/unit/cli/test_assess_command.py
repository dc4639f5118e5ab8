"""``bftrain assess``: one screen of words, a folder, records as they are, and delays of jobs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bftrain import generate_log, load_log, sample_log, save_log
from tests.helpers.in_process import CommandLine
from tests.helpers.samples import DAY
from tests.helpers.scheduler_lines import poll, shown

WORTH = (
    *("--node-watts", "idle=150,busy=500", "--price-kwh", "0.2", "--co2", "300", "--node-hour-price", "1.5"),
    *("--timezone", "Europe/Berlin"),
)
SACCT = (
    "JobID|Submit|Start|End|NNodes|NodeList|State\n"
    "1|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T12:00:00|2|n[1-2]|COMPLETED\n"
    "2|2026-01-01T00:00:00|2026-01-01T03:00:00|2026-01-02T12:00:00|1|n3|COMPLETED\n"
    "3|2026-01-01T00:00:00|2026-01-02T00:00:00|2026-01-02T12:00:00|2|n[1-2]|COMPLETED\n"
)
PARTITIONS = (
    "JobID|Partition|Submit|Start|End|NNodes|NodeList|State\n"
    "1|<b>all</b>|2026-01-01T00:00:00|2026-01-01T00:00:00|2026-01-01T00:30:00|1|n1|COMPLETED\n"
    "2|<b>all</b>|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T12:00:00|2|n[1-2]|COMPLETED\n"
    "3|gpu|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-02T12:00:00|1|n3|COMPLETED\n"
    "4|gpu|2026-01-01T00:00:00|2026-01-02T02:00:00|2026-01-02T12:00:00|2|n[1-2]|COMPLETED\n"
)


@pytest.fixture(autouse=True)
def _in_a_folder_with_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("sacct.txt").write_text(SACCT)


def assessed(bftrain: CommandLine, *arguments: object) -> dict[str, Any]:
    ended = bftrain("assess", *map(str, arguments), "-o", "out", "--overwrite", "--json")
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads(ended.out)
    assert found == json.loads(Path("out/assess.json").read_text())
    return found


def test_all_of_it_fits_on_a_screen_and_is_in_the_folder(bftrain: CommandLine, terminal: Callable[[int], None]) -> None:
    save_log(generate_log(6, 2, 1), Path("log.npz"))
    Path("kinds.csv").write_text("nodes,kind\n0:3,first\n3:6,second\n")
    terminal(80)
    asked = ("log.npz", "-o", "out", "--quick", "--kinds", "kinds.csv", "--handback-delay", 30)
    ended = bftrain("assess", *asked, *WORTH)
    assert ended.code == 0, ended.err
    assert len(ended.out.splitlines()) <= 24
    data = json.loads(Path("out/assess.json").read_text())
    assert (data["format"], data["log"]["time_zone"]) == ("bftrain assess 1", "Europe/Berlin")
    assert {group["name"] for group in data["groups"]} == {"first", "second"}
    assert data["command"].startswith("bftrain assess ")
    assert Path("out/assess.html").exists()
    assert ended.err.splitlines()[-1] == (
        "next: try it: bftrain live --example slurm > site.toml; bftrain live check --config site.toml"
    )


def test_the_next_step_depends_on_doubts_and_prices(bftrain: CommandLine) -> None:
    save_log(generate_log(6, 2, 1), Path("log.npz"))
    ended = bftrain("assess", "log.npz", "-o", "out", "--quick")
    assert ended.err.splitlines()[-1].startswith("next: add its value: bftrain assess log.npz --node-watts ")
    ended = bftrain("assess", "sacct.txt", "-o", "doubtful", "--quick")
    assert ended.err.splitlines()[-1] == "next: settle the doubtful idle time: bftrain import sacct.txt --dry-run"


def test_cheaper_rescaling_harvests_no_less_and_leaving_on_notice_is_a_replay_of_the_log_that_slice_writes(
    bftrain: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BFTRAIN_QUICK", "0")
    save_log(sample_log().select(nodes=slice(0, 6)), Path("log.npz"))
    found = assessed(bftrain, "log.npz", "-q", "--events", 0)
    assert {row["what"] for row in found["what_ifs"]} == {"tasks", "costs", "progress", "notice", "lead"}
    works = [row["work"]["median"] for row in found["mixes"]]
    assert (len(works), works) == (10, sorted(works, reverse=True))
    rows = {row["option"]: row["harvest"]["median"] for row in found["what_ifs"]}
    assert rows["--cost-factor 0.25"] > rows["--cost-factor 1"] > rows["--cost-factor 4"] > rows["--cost-factor 10"]
    assert rows["--progress disk:1800"] < rows["--progress memory"] <= rows["--progress memory:1"]
    assert rows["--max-tasks 35"] == found["harvest"]["median"] == rows["--progress memory"]
    early = [row for row in found["what_ifs"] if row["what"] == "lead"]
    assert [row["value"] for row in early] == [30.0, 120.0, 600.0]
    harvests = [rows["--progress memory:1"], *(row["harvest"]["median"] for row in early)]
    assert harvests == sorted(harvests, reverse=True)
    changes = [row["change"] for row in found["what_ifs"] if not row["assumed"]]
    assert all(change["low"] <= change["median"] <= change["high"] for change in changes)

    on_notice = next(row["harvest"]["median"] for row in early if row["value"] == 120.0)
    tasks = ("generate", "tasks", "--kind", "trials", "--count", 400, "-o", "tasks.toml", "--work", "1e9")
    assert bftrain(*tasks).code == 0  # more than the idle nodes can do, as the assessment's own
    assert bftrain("slice", "log.npz", "-o", "early.npz", "--leave-early", "2min").code == 0
    alone = assessed(bftrain, "early.npz", "--tasks", "tasks.toml", "--progress", "memory:1", "--quick", "--events", 0)
    assert on_notice == pytest.approx(alone["harvest"]["median"], rel=0.01)


def test_records_are_read_with_the_options_of_import_and_their_doubts_are_printed(bftrain: CommandLine) -> None:
    Path("events.txt").write_text(f"NodeName|TimeStart|TimeEnd|State\nn4|{DAY}|{DAY + 5}|drain\n")
    options = ("--nodes", "n[1-4]", "--timezone", "UTC", "--min-gap", "30s", "--keep-end")
    for files in (("sacct.txt",), ("sacct.txt", "events.txt")):
        made = bftrain("import", *files, "-o", "log.npz", *options)
        ended = bftrain("assess", *files, "-o", "out", "--overwrite", "--quick", *options)
        assert ended.code == 0, ended.err
        assert "always_idle" in made.out
        assert made.out.partition("Ordinary")[0].partition("sacct:")[0].strip() in ended.err
        assert ("no_node_states" in ended.err) == (len(files) == 1)
        figures, log = json.loads(Path("out/assess.json").read_text()), load_log(Path("log.npz"))
        assert (figures["log"]["sha256"], figures["log"]["nodes"]) == (log.sha256, 4)
        a_week = log.idle_node_s / 3600 * 604_800 / (log.end_s - log.start_s)
        assert figures["idle"] == {"median": pytest.approx(a_week), "low": None, "high": None}  # a day has no interval
    assert bftrain("assess", "sacct.txt", "-o", "no", "--strict", *options).code == 3
    assert not Path("no").exists()


@pytest.mark.parametrize("imported", [True, False], ids=["log", "records"])
def test_partitions_of_records_are_rows_of_a_table(bftrain: CommandLine, imported: bool) -> None:  # noqa: FBT001 - a case
    Path("sacct.txt").write_text(PARTITIONS)
    if imported:
        assert bftrain("import", "sacct.txt", "-o", "log.npz").code == 0
    found = assessed(bftrain, "log.npz" if imported else "sacct.txt", "--quick")
    assert found["groups_by"] == "partition"
    groups = {group["name"]: (group["nodes"], group["idle"]["median"]) for group in found["groups"]}
    hours = 26.0  # until the last job begins
    assert groups == {
        "<b>all</b>": (2, pytest.approx((14.5 + 15.0) * 168.0 / hours)),
        "gpu": (1, pytest.approx(1.0 * 168.0 / hours)),
    }
    page = Path("out/assess.html").read_text()
    assert ("By partition" in page, "<b>all</b>" in page) == (True, False)


def test_of_records_of_states_no_job_is_known(bftrain: CommandLine) -> None:
    nodes = ("n[1-2]", "n3"), ("n[1-3]",), ("n[1-2]", "n3"), ("n[1-3]",)
    Path("polls.txt").write_text(
        "".join(
            poll(DAY + 600 * at, *(shown(state, names) for state, names in zip(("idle", "alloc"), sets, strict=False)))
            for at, sets in enumerate(nodes)
        )
    )
    assessed(bftrain, "polls.txt", "--quick", "--handback-delay", 30)
    assert "Not answered here: which jobs and users would wait" in Path("out/assess.html").read_text()
    asked = ("assess", "polls.txt", "-o", "no", "--quick", "--handback-delay", 30, "--records", "polls.txt")
    assert bftrain(*asked).code == 3


def test_a_delay_of_nodes_is_reported_job_by_job_if_records_are_there(bftrain: CommandLine) -> None:
    assert bftrain("import", "sacct.txt", "-o", "log.npz", "--keep-end").code == 0
    asked = ("log.npz", "--handback-delay", 60, "--quick")
    alone = assessed(bftrain, *asked)["handback"]
    assert (alone["delay_s"], alone["jobs"]) == (60.0, None)
    output = assessed(bftrain, *asked, "--records", "sacct.txt")["handback"]
    # Only the third job begins on nodes that were idle; the two others hold theirs when the log begins
    assert (output["jobs"], output["jobs_delayed"], output["most_s"]) == (1, 1, 60.0)
    assert [each["jobs"] for each in output["distribution"]] == [1, 1, 0, 0, 0, 0]
    Path("other.txt").write_text(SACCT.replace("n3", "n4"))
    ended = bftrain("assess", *asked, "-o", "no", "--records", "other.txt")
    assert (ended.code, "are not the records of this log" in ended.err) == (3, True)


def test_folder_of_a_schedule_stands_for_the_log_in_it(bftrain: CommandLine) -> None:
    Path("schedule").mkdir()
    save_log(generate_log(6, 0.5, 1), Path("schedule/idle.npz"))
    assert assessed(bftrain, "schedule", "--quick")["log"]["nodes"] == 6
