"""``bftrain reproduce``: a figure beside its published values, interrupted and run again, and wrong input."""

from __future__ import annotations

import csv
import gzip
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from bftrain_replay.reproducing.experiment import Request, published
from bftrain_replay.reproducing.experiments import EXPERIMENTS
from bftrain_replay.reproducing.gavel_jobs import MULTI, PRIORITIES, SINGLE, STATIC, Stream, draw
from tests.helpers.in_process import CommandLine
from tests.helpers.program import start
from tests.helpers.site_data import site_data
from tests.helpers.sweeping import outcomes, wait_until

MAKESPAN = ("reproduce", "gavel", "makespan", "--quick", "--seeds", "0,1,2")


_GROWING = ("LAS: Gavel", "LAS: Gavel with space sharing", "hierarchical: Gavel")  # run times with GPUs by jobs


def values(folder: Path) -> list[dict[str, str]]:
    with (folder / "values.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_figure_is_within_three_percent_and_drawn(bftrain: CommandLine, tmp_path: Path) -> None:
    ended = bftrain(*MAKESPAN, "-o", tmp_path / "out", "--jobs", "2", "--json", "-q")
    assert (ended.code, ended.err) == (0, "")
    (row,) = json.loads(ended.out)["values"]
    assert (row["line"], row["seeds"], row["source"]) == ("Gavel", [0, 1, 2], "text")
    assert row["ours"] == pytest.approx(161.164, rel=0.03)
    assert row["difference_percent"] == pytest.approx(100 * (row["ours"] / row["published"] - 1))
    (cells,) = values(tmp_path / "out")
    assert (float(cells["ours"]), cells["x"], cells["seeds"]) == (row["ours"], "100.0", "0 1 2")
    assert (cells["saturated"], row["saturated"]) == ("false", False)
    assert {path.name for path in (tmp_path / "out" / "pictures").iterdir()} == {"makespan.svg", "makespan.png"}
    assert "161.16" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_ratio_of_two_runs(bftrain: CommandLine, tmp_path: Path) -> None:
    ended = bftrain("reproduce", "gavel", "cluster-sizes", "--quick", "-o", tmp_path / "out", "--json", "-q")
    output = json.loads(ended.out)
    (row,) = output["values"]
    assert (output["runs"], row["line"]) == (2, "10 % V100, jobs 50 to 99")
    assert 1.0 < row["ours"] < 3.0  # LAS over Gavel


def test_gavels_entities_have_their_shares_and_more_throughput(bftrain: CommandLine, tmp_path: Path) -> None:
    ended = bftrain("reproduce", "gavel", "hierarchical", "hierarchical-total", "-o", tmp_path / "out", "--json", "-q")
    rows = {(row["figure"], row["line"], row["x"]): row["ours"] for row in json.loads(ended.out)["values"]}
    assert rows["hierarchical", "entity 0", 1.0] == pytest.approx(1.0)  # alone at first
    last = [rows["hierarchical", f"entity {number}", 69.0] for number in range(3)]
    assert last == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.01)  # by their weights in the end
    for jobs in range(1, 19):
        step = 4.0 * jobs - 3.0
        assert rows["hierarchical-total", "multi-level fairness", step] == pytest.approx(min(jobs, 9))
        assert rows["hierarchical-total", "Gavel", step] > rows["hierarchical-total", "multi-level fairness", step]


def test_an_interrupted_run_continues(bftrain: CommandLine, tmp_path: Path) -> None:
    words = (*MAKESPAN[:-1], ",".join(map(str, range(5))))
    running = start(*words, "-o", "out", "--jobs", "1", cwd=tmp_path)
    wait_until(lambda: bool(outcomes(tmp_path / "out")), "a run is kept")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=300)
    kept = outcomes(tmp_path / "out")
    assert running.returncode == 130
    assert b"the same command continues" in err
    assert b"Traceback" not in err
    ended = bftrain(*words, "-o", tmp_path / "out", "--jobs", "1", "-q", "--json")
    assert ended.code == 0
    assert (json.loads(ended.out)["runs"], json.loads(ended.out)["done"]) == (5, 5)
    assert outcomes(tmp_path / "out")[: len(kept)] == kept


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gavl",), "no experiment is called 'gavl' (did you mean 'gavel'?)"),
        (("gavel", "las", "lass", "-o", "out"), "experiment 'gavel': no figure is called 'lass' (did you mean 'las'?)"),
        (("gavel", "las"), "-o DIR: is missing"),
        (("gavel", "las", "-o", "out", "--seeds", "1,1"), "--seeds: is '1,1'"),
        (("gavel", "las", "-o", "out", "--seeds", "00,0"), "--seeds: is '00,0'"),
        (("gavel", "las", "-o", "out", "--seeds", "5" * 5000), "--seeds: is '555"),
        (("gavel", "las", "-o", "out", "--seeds", "4294967296"), "--seeds: is '4294967296'"),
        (("blox", "-o", "out", "--seeds", "1"), "--seeds: has no effect on 'blox'"),
        (("blox", "-o", "out", "--traces", "."), "--traces: has no effect on 'blox'"),
        (("bftrain", "timeout", "-o", "out", "--quick"), "--quick: is not possible for the figure 'timeout'"),
        (("bftrain", "-o", "out"), "--traces DIR: is missing (name the folder dataset"),
        (("gavel", "makespan", "-o", "out", "--quick", "--traces", "."), "multi_seed0.trace.gz: is missing"),
        (("pollux", "-o", "out", "--traces", "."), "contains no philly*.csv"),
    ],
)
def test_wrong_input_is_named(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = bftrain("reproduce", *words)
    assert ended.code in {2, 3}
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "out").exists()


def test_a_result_of_another_experiment_or_of_other_options_is_kept(bftrain: CommandLine, tmp_path: Path) -> None:
    assert bftrain("reproduce", "gavel", "hierarchical", "hierarchical", "-o", tmp_path, "-q").code == 0
    before = (tmp_path / "values.csv").read_bytes()
    other = bftrain("reproduce", "ostrich", "slides", "-o", tmp_path, "-q")
    assert (other.code, "holds a finished reproduction" in other.err) == (2, True)
    quick = bftrain("reproduce", "gavel", "hierarchical", "--quick", "-o", tmp_path, "-q")
    assert (quick.code, "contains a result with other options" in quick.err) == (2, True)
    assert (tmp_path / "values.csv").read_bytes() == before
    same = bftrain("reproduce", "gavel", "hierarchical", "-o", tmp_path, "-q", "--json")
    assert (same.code, json.loads(same.out)["figures"]) == (0, ["hierarchical"])


def test_a_file_of_the_user_is_not_overwritten(bftrain: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "inputs" / "multi-static-100-seed0.csv"
    path.parent.mkdir()
    path.write_text("mine\n", encoding="utf-8")
    ended = bftrain(*MAKESPAN, "-o", tmp_path, "-q")
    assert (ended.code, path.read_text(encoding="utf-8")) == (2, "mine\n")
    assert "is not a task file that bftrain wrote" in ended.err


def test_stale_inputs_are_written_again(bftrain: CommandLine, tmp_path: Path) -> None:
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    for name in ("slowdown", "pareto"):
        (inputs / f"{name}.swf").write_text(
            "; MaxProcs: 6\n1 0 -1 5 1 -1 -1 1 5 -1 1 1 1 1 1 1 -1 -1\n", encoding="utf-8"
        )
    ended = bftrain("reproduce", "ostrich", "slides", "-o", tmp_path, "-q", "--json")
    assert (json.loads(ended.out)["compared"], json.loads(ended.out)["within_3_percent"]) == (6, 6)


def test_a_trace_with_too_few_jobs_is_rejected(bftrain: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "static" / "multi_seed0.trace.gz"
    path.parent.mkdir()
    path.write_bytes(gzip.compress("".join(f"{job.line}\n" for job in draw(STATIC, 0, 10)).encode()))
    ended = bftrain("reproduce", "gavel", "makespan", "--quick", "--traces", tmp_path, "-o", tmp_path / "out")
    assert ended.code == 3
    assert "contains 10 jobs; 100 are needed" in ended.err
    assert not (tmp_path / "out").exists()


def test_every_published_value_has_a_point_or_an_explanation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Request, "tasks", lambda _self, name, _make: name)
    monkeypatch.setattr(Request, "input_path", lambda _self, name, *_: tmp_path / name)
    absent = set()
    for name in ("gavel", "blox", "pollux", "bftrain"):
        experiment = EXPERIMENTS[name]
        made: dict[str, Any] = {"task sets": {"HPO": {}}}
        request = Request(folder=tmp_path, figures=tuple(experiment.figures), made=made)
        marks = [
            (figure.name, mark)
            for figure in experiment.prepare(request)
            for mark in (*(mark for point in figure.points for mark in figure.marks(point, {})), *figure.computed_marks)
        ]
        keys = {(figure, mark.line, mark.x) for figure, mark in marks}
        absent |= {(v.figure, v.line, v.x) for v in published(name) if (v.figure, v.line, v.x) not in keys}
    assert absent == {
        # No policy for entities shares GPUs between tasks
        *(("policy-runtimes", "hierarchical: Gavel with space sharing", x) for x in (16, 32, 64, 128, 256)),
        # Gangs of 8 GPUs do not fit on 4 of a kind
        *(("policy-runtimes", line, 16) for line in _GROWING),
    }


def test_every_set_of_the_study_has_all_points(tmp_path: Path) -> None:
    figures = ("t-fwd", "p-jmax", "rescale-cost", "heuristic")
    request = Request(folder=tmp_path, figures=figures, made={"task sets": {"a": {}, "b": {}, "c": {}}})
    assert [len(figure.points) for figure in EXPERIMENTS["bftrain"].prepare(request)] == [18, 15, 21, 45]


def test_run_times_are_measured_one_by_one_and_not_compared_in_percent(bftrain: CommandLine, tmp_path: Path) -> None:
    words = ("reproduce", "gavel", "policy-runtimes", "--quick", "-o", tmp_path / "out", "-q", "--json")
    output = json.loads(bftrain(*words).out)
    assert output["compared"] == 0
    assert (output["failed"], output["not_run"] > 0) == (0, True)
    assert {row["x"] for row in output["values"] if row["line"] == "hierarchical: Gavel"} == {32, 64}
    assert all(row["ours"] > 0 for row in output["values"])
    lines = ("LAS, 108 GPUs: Gavel", "LAS: Gavel", "hierarchical: Gavel", "LAS: Gavel with space sharing")
    by_rule, *by_program = (min(row["ours"] for row in output["values"] if row["line"] == line) for line in lines)
    assert min(by_program) < 20.0 * by_rule  # no import of the solver, which takes hundreds of milliseconds


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
