"""``bftrain reproduce``: a figure beside its published values, interrupted and run again, and wrong input."""

from __future__ import annotations

import csv
import gzip
import json
import signal
from pathlib import Path

import pytest

from bftrain_replay.reproducing.gavel_jobs import MULTI, PRIORITIES, SINGLE, STATIC, Stream, draw
from tests.helpers.in_process import CommandLine
from tests.helpers.program import start
from tests.helpers.site_data import site_data
from tests.helpers.sweeping import outcomes, wait_until

MAKESPAN = ("reproduce", "gavel", "makespan", "--quick", "--seeds", "0,1,2")


def values(folder: Path) -> list[dict[str, str]]:
    with (folder / "values.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_figure_is_within_three_percent_and_drawn(bftrain: CommandLine, tmp_path: Path) -> None:
    ended = bftrain(*MAKESPAN, "-o", tmp_path / "out", "--jobs", "2", "--json", "-q")
    assert (ended.code, ended.err) == (0, "")
    (row,) = json.loads(ended.out)["values"]
    assert (row["line"], row["seeds"], row["source"]) == ("Gavel", "0 1 2", "text")
    assert row["ours"] == pytest.approx(161.164, rel=0.03)
    assert row["difference_percent"] == pytest.approx(100 * (row["ours"] / row["published"] - 1))
    assert [float(each["ours"]) for each in values(tmp_path / "out")] == [row["ours"]]
    assert {path.name for path in (tmp_path / "out" / "pictures").iterdir()} == {"makespan.svg", "makespan.png"}
    assert "161.16" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_an_interrupted_run_continues(bftrain: CommandLine, tmp_path: Path) -> None:
    running = start(*MAKESPAN, "-o", "out", "--jobs", "1", cwd=tmp_path)
    wait_until(lambda: bool(outcomes(tmp_path / "out")), "a run is kept")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=300)
    kept = outcomes(tmp_path / "out")
    if running.returncode == 130:  # else the last run was quicker than the signal
        assert b"the same command continues" in err
        assert b"Traceback" not in err
    ended = bftrain(*MAKESPAN, "-o", tmp_path / "out", "--jobs", "1", "-q", "--json")
    assert ended.code == 0
    assert (json.loads(ended.out)["runs"], json.loads(ended.out)["done"]) == (3, 3)
    assert outcomes(tmp_path / "out")[: len(kept)] == kept


def test_the_published_example_of_entities_needs_no_run(bftrain: CommandLine, tmp_path: Path) -> None:
    ended = bftrain("reproduce", "gavel", "hierarchical", "-o", tmp_path / "out", "-q", "--json")
    assert (ended.code, ended.err) == (0, "")
    shares = {(row["line"], row["x"]): row["ours"] for row in json.loads(ended.out)["values"]}
    assert shares["entity 0", "1"] == pytest.approx(1.0)  # alone at first
    last = [shares[f"entity {number}", "69"] for number in range(3)]
    assert last == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.01)  # by their weights in the end


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gavl",), "no experiment is called 'gavl' (did you mean 'gavel'?)"),
        (("gavel", "las", "lass", "-o", "out"), "experiment 'gavel': no figure is called 'lass' (did you mean 'las'?)"),
        (("gavel", "las"), "-o DIR: is missing"),
        (("gavel", "las", "-o", "out", "--seeds", "1,1"), "--seeds: is '1,1'"),
        (("bftrain", "-o", "out"), "--traces DIR: is missing (name the folder dataset"),
        (("gavel", "makespan", "-o", "out", "--quick", "--traces", "."), "multi_seed0.trace.gz: is missing"),
    ],
)
def test_wrong_input_is_named(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = bftrain("reproduce", *words)
    assert ended.code in {2, 3}
    assert message in ended.err
    assert not (tmp_path / "out" / "values.csv").exists()


def test_a_result_of_another_experiment_is_kept(bftrain: CommandLine, tmp_path: Path) -> None:
    assert bftrain("reproduce", "gavel", "hierarchical", "-o", tmp_path, "-q").code == 0
    before = (tmp_path / "values.csv").read_bytes()
    summary = tmp_path / "reproduce.json"
    summary.write_text(summary.read_text(encoding="utf-8").replace('"gavel"', '"other"'), encoding="utf-8")
    assert bftrain("reproduce", "gavel", "hierarchical", "-o", tmp_path, "-q").code == 2
    assert (tmp_path / "values.csv").read_bytes() == before


@pytest.mark.parametrize(
    "stream", [SINGLE, MULTI, PRIORITIES, STATIC], ids=lambda stream: f"{stream.name}-{stream.static}"
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_drawn_jobs_are_those_of_gavels_streams_to_the_last_digit(stream: Stream, seed: int) -> None:
    path = site_data("gavel/continuous") / stream.file_name(seed)
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    published = [line.split("\t") for line in lines]
    jobs = [job.line.split("\t") for job in draw(stream, seed, len(lines))]
    used = (0, 5, 6, 7)  # type, steps, gang, weight
    assert [[row[place] for place in used] for row in jobs] == [[row[place] for place in used] for row in published]
    assert [float(row[9]) for row in jobs] == [float(row[9]) for row in published]


def test_the_published_study_runs_on_its_files(bftrain: CommandLine, tmp_path: Path) -> None:
    data = site_data("summit/ndstat-10sdn6-evt.tar.gz").parent
    words = ("reproduce", "bftrain", "--traces", data, "--quick", "-o", tmp_path / "out", "-q", "--json")
    ended = bftrain(*words)
    assert ended.code == 0
    output = json.loads(ended.out)
    assert output["runs"] == output["done"] == 3  # t-fwd at 10 s, 2 tasks, a quarter of the costs; 2 tasks once
    assert all(0.0 < row["ours"] <= 1.1 for row in output["values"])
