"""``bftrain reproduce`` of Blox, OStrich and Pollux: check values, the published job lists, and quick runs."""

from __future__ import annotations

import csv
import gzip
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from bftrain_replay.reproducing.blox import draw as blox_jobs
from bftrain_replay.reproducing.pollux import draw as pollux_jobs
from tests.helpers.chromium import STICKING_OUT, Chromium, lacking
from tests.helpers.in_process import CommandLine
from tests.helpers.program import on_terminal, start
from tests.helpers.site_data import site_data
from tests.helpers.sweeping import wait_until


@pytest.fixture
def values(bftrain: CommandLine, tmp_path: Path) -> Any:  # noqa: ANN401 - a function
    def run(*words: str | Path) -> list[dict[str, Any]]:
        ended = bftrain("reproduce", *words, "-o", tmp_path / "out", "--jobs", "2", "--json", "-q")
        assert (ended.code, ended.err) == (0, "")
        rows: list[dict[str, Any]] = json.loads(ended.out)["values"]
        return rows

    return run


def test_blox_check_values_to_all_digits(values: Any) -> None:  # noqa: ANN401
    found = {(row["line"], row["x"]): f"{row['ours']:.5f}" for row in values("blox", "check")}
    expected = {"completion": "74403.57426", "responsiveness": "440.20792"}
    assert found == {(line, what): value for line in ("FIFO", "LAS") for what, value in expected.items()}


def test_the_drawn_stream_is_the_job_list_of_blox() -> None:
    with site_data("blox/jobs_load4.csv").open(encoding="utf-8") as lines:
        rows = [(float(row["arrival_s"]), float(row["duration_s"])) for row in csv.DictReader(lines)]
    assert [(submit_s, round(duration_s, 3)) for submit_s, duration_s in blox_jobs(4.0, len(rows))] == rows


def test_distributions_end_with_the_slowest_job(values: Any) -> None:  # noqa: ANN401
    rows = values("blox", "completion", "completion-cdf", "--quick")
    means = {row["line"]: row["ours"] for row in rows if row["figure"] == "completion" and row["x"] == 8.0}
    for line, mean in means.items():
        times = [row["x"] for row in rows if (row["figure"], row["line"]) == ("completion-cdf", line)]
        shares = [row["ours"] for row in rows if (row["figure"], row["line"]) == ("completion-cdf", line)]
        assert times == sorted(times)
        assert (shares[0], shares[-1]) == (0.02, 1.0)
        assert mean <= sum(times) / len(times) <= mean + times[-1] / len(times)  # each time is the largest of its share
    assert means["SRTF"] < means["FIFO"]


def test_ostrichs_slides_are_exact_and_need_no_logs(bftrain: CommandLine, tmp_path: Path) -> None:
    ended = bftrain("reproduce", "ostrich", "slides", "-o", tmp_path / "out", "--json", "-q")
    output = json.loads(ended.out)
    rows = output["values"]
    assert [row["ours"] for row in rows] == pytest.approx([row["published"] for row in rows])
    assert (len(rows), output["pairs"], output["pairs_in_published_order"]) == (6, 2, 2)


def test_a_narrow_terminal_shows_whole_numbers(tmp_path: Path) -> None:
    shown = on_terminal("reproduce", "ostrich", "slides", "-o", tmp_path / "out", columns=44)
    lines = re.sub(r"\x1b\[\d*m", "", shown.out).partition("result: ")[0].splitlines()
    assert max(map(len, lines)) <= 44
    assert sum(line.rstrip().endswith("0.0 %") for line in lines) == 6


@pytest.mark.skipif(bool(lacking()), reason=lacking() or "Chromium is here")
def test_the_page_fits_screens_of_all_widths(bftrain: CommandLine, tmp_path: Path) -> None:
    write_log(tmp_path / "log.swf")
    assert bftrain("reproduce", "ostrich", "--traces", tmp_path, "-o", tmp_path / "out", "-q").code == 0
    with Chromium() as browser:
        for width in (1400, 420):
            page = browser.open((tmp_path / "out" / "report.html").as_uri(), width=width)
            page.wait_until("document.querySelectorAll('.draw svg, .draw canvas').length >= 6")
            assert (page.complaints(), page.evaluate(STICKING_OUT)) == ([], [])
            cards = page.evaluate("[...document.querySelectorAll('.card')].map(card => card.innerText)")
            assert cards[0].split() == ["Within", "3", "%", "6", "of", "6", "published", "values"]


def test_schedules_show_their_progress(tmp_path: Path) -> None:
    write_long_log(tmp_path / "long.swf", 20_000, every_s=400)
    shown = on_terminal("reproduce", "ostrich", "users", "--traces", tmp_path, "-o", tmp_path / "out", columns=120)
    assert "long: OStrich, % scheduled" in shown.out
    assert "long: fair share, % scheduled" in shown.out
    assert shown.code == 0


def test_ostrich_and_fair_share_on_a_log(values: Any) -> None:  # noqa: ANN401
    rows = values("ostrich", "summary", "heat", "cdf", "--quick", "--traces", site_data("swf"))
    mean = {row["line"].partition(": ")[2]: row["ours"] for row in rows if row["x"] == "mean of campaigns"}
    assert set(mean) == {"OStrich", "fair share"}
    assert mean["OStrich"] < mean["fair share"]
    assert sum(row["ours"] for row in rows if row["figure"] == "heat") == 0  # both have the same campaigns
    assert max(row["ours"] for row in rows if row["figure"] == "cdf") == 1.0


def write_log(path: Path, run_s: int = 600) -> None:
    """Write a log of four users with a campaign of one job each, on enough processors for all."""
    jobs = (f"{n} 0 -1 {run_s} 1 -1 -1 1 {run_s} -1 1 {n} 1 1 1 1 -1 -1\n" for n in range(1, 5))
    path.write_text("; MaxProcs: 6\n" + "".join(jobs), encoding="utf-8")


def write_long_log(path: Path, jobs: int, every_s: int) -> None:
    """Write a log of jobs that each take half of the processors for 10 minutes."""
    lines = (f"{n} {every_s * n} -1 600 3 -1 -1 3 600 -1 1 {n % 9} 1 1 1 1 -1 -1\n" for n in range(1, jobs))
    path.write_text("; MaxProcs: 6\n" + "".join(lines), encoding="utf-8")


def test_equal_values_of_a_distribution_have_the_last_share(values: Any, tmp_path: Path) -> None:  # noqa: ANN401
    write_log(tmp_path / "log.swf")
    rows = values("ostrich", "cdf", "--traces", tmp_path)
    assert [(row["line"], row["x"], row["ours"]) for row in rows] == [
        ("log: OStrich", 1.0, 1.0),
        ("log: fair share", 1.0, 1.0),
    ]


def test_summary_lines_are_named_by_logs(values: Any, tmp_path: Path) -> None:  # noqa: ANN401
    for name in ("NASA-iPSC-1993-3.1-cln", "NASA-iPSC-1993-3", "KTH-SP2-1996-2"):
        write_log(tmp_path / f"{name}.swf")
    rows = values("ostrich", "summary", "--traces", tmp_path)
    assert len({row["line"] for row in rows}) == 6
    assert sum(row["published"] is not None for row in rows) == 28


def test_a_changed_log_is_scheduled_again(bftrain: CommandLine, tmp_path: Path) -> None:
    counts: list[int] = []
    for run_s in (600, 900):
        write_log(tmp_path / "log.swf", run_s)
        words = ("reproduce", "ostrich", "utilization", "--traces", tmp_path, "-o", tmp_path / "out", "-q", "--json")
        assert bftrain(*words).code == 0
        counts.append(len(list((tmp_path / "out" / "inputs").glob("log-OStrich-*.json"))))
    assert counts == [1, 2]


def test_two_logs_of_the_same_name_are_rejected(bftrain: CommandLine, tmp_path: Path) -> None:
    write_log(tmp_path / "log.swf")
    (tmp_path / "log.swf.gz").write_bytes(gzip.compress((tmp_path / "log.swf").read_bytes()))
    ended = bftrain("reproduce", "ostrich", "cdf", "-o", tmp_path / "out", "--traces", tmp_path)
    assert (ended.code, "has the same name as log.swf" in ended.err) == (3, True)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "has no column 'timestamp'"),
        ("timestamp,duration,gpu_time\nnoon,1,1\n", "is not AdaptDL's trace"),
        ("timestamp,duration,gpu_time\n2017-10-09 07:01:55,66,66\n", "contains 1 job of these hours"),
    ],
)
def test_a_wrong_philly_trace_is_named(bftrain: CommandLine, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "philly.csv.bak").write_text("", encoding="utf-8")
    (tmp_path / "philly_jobs.csv").write_text(content, encoding="utf-8")
    ended = bftrain("reproduce", "pollux", "-o", tmp_path / "out", "--traces", tmp_path, "--quick")
    assert (ended.code, message in ended.err) == (3, True)
    assert not (tmp_path / "out").exists()


def test_an_interrupted_experiment_keeps_finished_schedules(tmp_path: Path) -> None:
    write_log(tmp_path / "a.swf")
    write_long_log(tmp_path / "b.swf", 200_000, every_s=1)
    running = start("reproduce", "ostrich", "cdf", "--traces", ".", "-o", "out", "--jobs", "1", cwd=tmp_path)
    inputs = tmp_path / "out" / "inputs"
    wait_until(lambda: len(list(inputs.glob("a-*.json"))) == 2, "schedules are kept")
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=60)  # the process that schedules has ended too
    assert (running.returncode, b"Traceback" in err) == (130, False)
    assert b"interrupted; 2 of 4 schedules are done and kept in" in err


def test_a_folder_without_logs_is_named(bftrain: CommandLine, tmp_path: Path) -> None:
    ended = bftrain("reproduce", "ostrich", "cdf", "-o", tmp_path / "out", "--traces", tmp_path)
    assert ended.code == 3
    assert "contains no *.swf" in ended.err


def test_pollux_workloads_are_the_published_ones() -> None:
    jobs = pollux_jobs(6, 160, site_data("gpu/philly_jobs.csv.gz"))
    first = [(53, "cifar10", 6, 2048), (154, "cifar10", 6, 2048), (326, "deepspeech2", 8, 320)]
    assert [(job.submit_s, *job[1:]) for job in jobs[:4]] == [*first, (368, "cifar10", 16, 4096)]
    assert len(jobs) == 160


def test_pollux_within_five_percent(values: Any) -> None:  # noqa: ANN401
    rows = values("pollux", "workloads", "--quick", "--traces", site_data("gpu"))
    differences = {row["line"]: row["difference_percent"] for row in rows}
    assert differences.pop("goodput") is None
    assert {line: abs(value) < 5.0 for line, value in differences.items()} == dict.fromkeys(differences, True)
    ours = {row["line"]: row["ours"] for row in rows}
    assert ours["goodput"] < ours["Pollux"] < ours["Tiresias"] < ours["Optimus+Oracle"]
