"""``bftrain reproduce`` of Blox, OStrich and Pollux: check values, the published job lists, and quick runs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from bftrain_replay.reproducing.blox import draw as blox_jobs
from bftrain_replay.reproducing.pollux import draw as pollux_jobs
from tests.helpers.in_process import CommandLine
from tests.helpers.site_data import site_data


@pytest.fixture
def values(bftrain: CommandLine, tmp_path: Path) -> Any:  # noqa: ANN401 - a function
    def run(*words: str | Path) -> list[dict[str, Any]]:
        ended = bftrain("reproduce", *words, "-o", tmp_path / "out", "--jobs", "2", "--json", "-q")
        assert (ended.code, ended.err) == (0, "")
        found: list[dict[str, Any]] = json.loads(ended.out)["values"]
        return found

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
    means = {row["line"]: row["ours"] for row in rows if row["figure"] == "completion" and row["x"] == "8"}
    for line, mean in means.items():
        times = [
            float(row["x"].replace(",", "")) for row in rows if (row["figure"], row["line"]) == ("completion-cdf", line)
        ]
        shares = [row["ours"] for row in rows if (row["figure"], row["line"]) == ("completion-cdf", line)]
        assert times == sorted(times)
        assert (shares[0], shares[-1]) == (0.02, 1.0)
        assert mean <= sum(times) / len(times) <= mean + times[-1] / len(times)  # each time is the largest of its share
    assert means["SRTF"] < means["FIFO"]


def test_ostrichs_slides_are_exact(values: Any, tmp_path: Path) -> None:  # noqa: ANN401
    rows = values("ostrich", "slides", "--traces", tmp_path)
    assert len(rows) == 6
    assert [row["ours"] for row in rows] == pytest.approx([row["published"] for row in rows])


def test_ostrich_and_fair_share_on_a_log(values: Any) -> None:  # noqa: ANN401
    rows = values("ostrich", "summary", "heat", "cdf", "--quick", "--traces", site_data("swf"))
    mean = {row["line"].partition(": ")[2]: row["ours"] for row in rows if row["x"] == "mean of campaigns"}
    assert set(mean) == {"OStrich", "fair share"}
    assert mean["OStrich"] < mean["fair share"]
    assert sum(row["ours"] for row in rows if row["figure"] == "heat") == 0  # both have the same campaigns
    assert max(row["ours"] for row in rows if row["figure"] == "cdf") == 1.0


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
