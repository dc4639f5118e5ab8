"""``bftrain assess``: one screen of words, a folder, records as they are, and what it refuses."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from bftrain import load_log, sample_log, save_log
from bftrain_replay.commands import assess_run
from bftrain_replay.commands.assess_result import in_words
from bftrain_replay.commands.sensitivity import QUICK
from tests.helpers.in_process import CommandLine
from tests.helpers.samples import DAY
from tests.helpers.scheduler_lines import poll, shown

WORTH = (
    *("--node-watts", "idle=150,busy=500", "--price-kwh", 0.2, "--co2", 300, "--node-hour-price", 1.5),
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
def _with_what_if(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(QUICK, raising=False)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log.npz"
    save_log(sample_log().select(nodes=slice(0, 24)), path)
    return path


def test_all_of_it_fits_on_a_screen_and_is_in_the_folder(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, shown = tmp_path / "log.npz", []
    save_log(sample_log().select(nodes=slice(0, 12)), log)  # decisions over three kinds of more nodes take long
    monkeypatch.setattr(assess_run, "in_words", lambda found: shown.append(found) or in_words(found))
    kinds = tmp_path / "kinds.csv"
    kinds.write_text("nodes,kind\n0:4,first\n4:8,second\n8:12,third\n")
    ended = bftrain("assess", log, "-o", tmp_path / "out", "--kinds", kinds, "--handback-delay", 30, *WORTH)
    assert ended.code == 0, ended.err
    data = json.loads((tmp_path / "out" / "assess.json").read_text())
    assert data["format"] == "bftrain assess 1"
    assert data["log"]["time_zone"] == "Europe/Berlin"
    assert {group["name"] for group in data["groups"]} == {"first", "second", "third"}
    assert {row["what"] for row in data["what_ifs"]} == {"tasks", "costs", "progress", "notice", "lead"}
    works = [row["work"]["median"] for row in data["mixes"]]
    assert (len(works), works) == (10, sorted(works, reverse=True))
    assert data["command"].startswith("bftrain assess ")
    assert "assess.html" in {path.name for path in (tmp_path / "out").iterdir()}
    console = Console(width=80, file=io.StringIO())
    with console.capture() as screen:
        console.print(in_words(shown[0]))
    assert len(screen.get().splitlines()) <= 24


def test_cheaper_rescaling_harvests_no_less_and_leaving_on_notice_is_a_replay_of_the_log_that_slice_writes(
    bftrain: CommandLine, log: Path, tmp_path: Path
) -> None:
    asked = ("-o", tmp_path / "out", "--json", "-q", "--overwrite", "--events", 0)
    found = json.loads(bftrain("assess", log, *asked).out)
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
    tasks = ("tasks", "generate", "--kind", "trials", "--count", 400, "-o", tmp_path / "tasks.toml", "--work", "1e9")
    assert bftrain(*tasks).code == 0  # more than the idle nodes can do, as the assessment's own
    left = tmp_path / "early.npz"
    assert bftrain("slice", log, "-o", left, "--leave-early", "2min").code == 0
    again = ("--tasks", tmp_path / "tasks.toml", "--progress", "memory:1", "--quick")
    alone = json.loads(bftrain("assess", left, *asked, *again).out)["harvest"]["median"]
    assert on_notice == pytest.approx(alone, rel=0.01)


def test_records_are_read_as_they_are(bftrain: CommandLine, tmp_path: Path) -> None:
    records = tmp_path / "sacct.txt"
    records.write_text(SACCT)
    ended = bftrain("assess", records, "-o", tmp_path / "out", "--quick", "--json")
    assert ended.code == 0, ended.err
    assert "sacct: 3 rows read = 3 used + 0 set aside" in ended.err
    found = json.loads(ended.out)
    log = json.loads(bftrain("import", records, "-o", tmp_path / "log.npz", "--json").out)
    assert found["log"]["sha256"] == log["sha256"]
    a_week = log["idle_node_hours"] * 604_800 / (log["end_s"] - log["start_s"])
    assert found["idle"] == {"median": pytest.approx(a_week), "low": None, "high": None}  # a day has no interval


@pytest.mark.parametrize("imported", [True, False], ids=["log", "records"])
def test_partitions_of_records_are_rows_of_a_table(bftrain: CommandLine, tmp_path: Path, imported: bool) -> None:  # noqa: FBT001 - a case
    records = tmp_path / "sacct.txt"
    records.write_text(PARTITIONS)
    if imported:
        assert bftrain("import", records, "-o", tmp_path / "log.npz").code == 0
    log = tmp_path / "log.npz" if imported else records
    found = json.loads(bftrain("assess", log, "-o", tmp_path / "out", "--quick", "--json").out)
    assert found["groups_by"] == "partition"
    groups = {group["name"]: (group["nodes"], group["idle"]["median"]) for group in found["groups"]}
    hours = 26.0  # until the last job begins
    assert groups == {
        "<b>all</b>": (2, pytest.approx((14.5 + 15.0) * 168.0 / hours)),
        "gpu": (1, pytest.approx(1.0 * 168.0 / hours)),
    }
    page = (tmp_path / "out" / "assess.html").read_text()
    assert "By partition" in page
    assert "<b>all</b>" not in page


def test_records_are_read_with_the_options_of_import_and_their_doubts_are_printed(
    bftrain: CommandLine, tmp_path: Path
) -> None:
    records, events = tmp_path / "sacct.txt", tmp_path / "events.txt"
    records.write_text(SACCT)
    events.write_text(f"NodeName|TimeStart|TimeEnd|State\nn4|{DAY}|{DAY + 5}|drain\n")
    options = ("--nodes", "n[1-4]", "--timezone", "UTC", "--min-gap", "30s", "--keep-end")
    for files in ((records,), (records, events)):
        made = bftrain("import", *files, "-o", tmp_path / "log.npz", *options)
        ended = bftrain("assess", *files, "-o", tmp_path / "out", "--overwrite", "--quick", *options)
        assert ended.code == 0, ended.err
        assert "always_idle" in made.out
        assert made.out.partition("Ordinary")[0].partition("sacct:")[0].strip() in ended.err
        assert ("no_node_states" in ended.err) == (files == (records,))
        figures = json.loads((tmp_path / "out" / "assess.json").read_text())
        log = load_log(tmp_path / "log.npz")
        assert (figures["log"]["sha256"], figures["log"]["nodes"]) == (log.sha256, 4)
    assert bftrain("assess", records, "-o", tmp_path / "no", "--strict", *options).code == 3
    assert "import options go with records" in bftrain("assess", tmp_path / "log.npz", *options).err
    assert "assess it alone" in bftrain("assess", records, tmp_path / "log.npz").err
    assert not (tmp_path / "no").exists()


def test_records_of_states_are_assessed_and_the_page_says_that_no_job_is_known(
    bftrain: CommandLine, tmp_path: Path
) -> None:
    polls = tmp_path / "polls.txt"
    nodes = ("n[1-2]", "n3"), ("n[1-3]",), ("n[1-2]", "n3"), ("n[1-3]",)
    polls.write_text(
        "".join(
            poll(
                DAY + 600 * number,
                *(shown(state, names) for state, names in zip(("idle", "alloc"), sets, strict=False)),
            )
            for number, sets in enumerate(nodes)
        )
    )
    ended = bftrain("assess", polls, "-o", tmp_path / "out", "--quick", "--handback-delay", 30)
    assert ended.code == 0, ended.err
    assert "Not answered here: which jobs would wait" in (tmp_path / "out" / "assess.html").read_text()
    ended = bftrain("assess", polls, "-o", tmp_path / "no", "--quick", "--handback-delay", 30, "--records", polls)
    assert ended.code == 3


def test_a_delay_of_nodes_is_reported_job_by_job_if_records_are_there(bftrain: CommandLine, tmp_path: Path) -> None:
    records, log = tmp_path / "sacct.txt", tmp_path / "log.npz"
    records.write_text(SACCT)
    assert bftrain("import", records, "-o", log, "--keep-end").code == 0
    asked = ("assess", log, "--handback-delay", 60, "--quick", "--overwrite", "-o", tmp_path / "out", "--json")
    alone = json.loads(bftrain(*asked).out)["handback"]
    assert (alone["delay_s"], alone["jobs"]) == (60.0, None)
    output = json.loads(bftrain(*asked, "--records", records).out)["handback"]
    # Only the third job begins on nodes that were idle; the two others hold theirs when the log begins
    assert (output["jobs"], output["jobs_delayed"], output["most_s"]) == (1, 1, 60.0)
    assert [each["jobs"] for each in output["distribution"]] == [1, 1, 0, 0, 0, 0]
    text = bftrain(*asked[:-1], "--records", records).out
    for words in ("at most 100.0 %", "start later, by at most", "an upper bound", "kill_s + exit_s"):
        assert words in text
    again = json.loads(bftrain(*asked, "--records", records, "--resimulate", "easy").out)["handback"]["resimulated"]
    assert (again["policy"], again["delayed_wait_mean_s"] - again["wait_mean_s"]) == ("easy", again["extra_mean_s"])
    other = tmp_path / "other.txt"
    other.write_text(SACCT.replace("n3", "n4"))
    ended = bftrain(*asked, "--records", other)
    assert ended.code == 3
    assert "are not the records that the log was made of" in ended.err


def test_jobs_that_share_nodes_leave_open_how_the_queue_would_be_scheduled_again(
    bftrain: CommandLine, tmp_path: Path
) -> None:
    records, asked = tmp_path / "sacct.txt", ("--quick", "--handback-delay", 60, "--resimulate")
    records.write_text(SACCT + "4|2026-01-01T00:00:00|2026-01-01T13:00:00|2026-01-02T09:00:00|1|n3|COMPLETED\n")
    ended = bftrain("assess", records, "-o", tmp_path / "out", *asked, "easy")
    assert ended.code == 0, ended.err
    assert "--resimulate: jobs share nodes for " in ended.err
    assert "Not answered here: how the queue would be scheduled again" in (tmp_path / "out" / "assess.html").read_text()
    ended = bftrain("assess", records, "-o", tmp_path / "no", *asked, "esy")
    assert "did you mean 'easy'?" in ended.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--price-kwh", 0.2), "--price-kwh: needs the power of a node"),
        (("--co2", 300), "--co2: needs the power of a node"),
        (("--node-watts", "busy=3"), "write idle=150,busy=500"),
        (("--node-watts", "idle=300,busy=3"), "a busy node draws no less than an idle one"),
        (("--timezone", "Nowhere/Atlantis"), "Nowhere/Atlantis"),
        (("--handback-delay", 30, "--resimulate", "--json"), "'--resimulate' requires an argument, POLICY, before"),
        (("--resimulate", "easy"), "--resimulate: needs a delay, and the records"),
    ],
)
def test_what_makes_no_sense_is_refused(
    bftrain: CommandLine, log: Path, tmp_path: Path, arguments: tuple[object, ...], words: str
) -> None:
    ended = bftrain("assess", log, "-o", tmp_path / "out", "--quick", *map(str, arguments))
    assert ended.code in {2, 3}
    assert words in ended.err
    assert not (tmp_path / "out").exists()


def test_folder_of_a_schedule_stands_for_the_log_in_it(bftrain: CommandLine, tmp_path: Path, log: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "schedule").mkdir()
    log.rename(tmp_path / "schedule" / "idle.npz")
    assert "24 nodes" in bftrain("assess", tmp_path / "schedule", "--quick", "-o", tmp_path / "out").out
    assert "empty' is a folder: name the log in it" in bftrain("assess", tmp_path / "empty").err
