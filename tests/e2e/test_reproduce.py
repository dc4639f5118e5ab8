"""``bftrain reproduce``: figures beside their published values, wrong input, and interrupted runs."""

from __future__ import annotations

import csv
import gzip
import json
import re
import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from bftrain_replay.reproducing import EXPERIMENTS
from bftrain_replay.reproducing.blox import draw as blox_jobs
from bftrain_replay.reproducing.experiment import Request, published
from bftrain_replay.reproducing.gavel import STREAMS, Stream, draw
from bftrain_replay.reproducing.pollux import tasks as pollux_tasks
from bftrain_replay.reproducing.results import run_all
from bftrain_replay.sweeping.sweep import PreparedSweep
from bftrain_replay.sweeping.sweep_table import PointRow, PointState
from tests.helpers.chromium import STICKING_OUT, Chromium, lacking
from tests.helpers.in_process import CommandLine
from tests.helpers.program import on_terminal, start
from tests.helpers.site_data import site_data
from tests.helpers.sweeping import outcomes, wait_until

MAKESPAN = ("reproduce", "gavel", "makespan", "--quick", "--seeds", "0,1,2")
GROWING = ("LAS: Gavel", "LAS: Gavel with space sharing", "hierarchical: Gavel")  # run times with GPUs by jobs
TEN_JOBS = tuple(draw(STREAMS["static"], 0, 10))
Output = dict[str, Any]
Reproduce = Callable[..., Output]


@pytest.fixture
def reproduce(bftrain: CommandLine, tmp_path: Path) -> Reproduce:
    """Run the command with a result in ``out``; return its output."""

    def run(*words: str | Path) -> Output:
        ended = bftrain("reproduce", *words, "-o", tmp_path / "out", "--jobs", "2", "--json", "-q")
        assert (ended.code, ended.err) == (0, "")
        output: Output = json.loads(ended.out)
        return output

    return run


def ours(output: Output, key: str = "x", **wanted: object) -> dict[Any, float]:
    """Return our values by a field of the rows whose other fields are ``wanted``."""
    return {row[key]: row["ours"] for row in output["values"] if wanted.items() <= row.items()}


def change_figure(
    monkeypatch: pytest.MonkeyPatch, name: str, values: tuple[float, ...] = (), **options: str | float
) -> None:
    """Replace x values and options of one of Gavel's figures."""
    figures = EXPERIMENTS["gavel"].figures
    figure = figures[name]
    changed = replace(figure, values=values or figure.values, options={**figure.options, **options})
    monkeypatch.setitem(figures, name, changed)


def write_log(path: Path, jobs: Iterable[tuple[int, int, int, int]]) -> None:
    """Write a log of 6 processors: submission, run time, processors and user of each job."""
    lines = (f"{n} {at} -1 {run} {size} -1 -1 {size} {run} -1 1 {user} 1 1 1 1 -1 -1\n" for n, (at, run, size, user) in
             enumerate(jobs, 1))  # fmt: skip
    path.write_text("; MaxProcs: 6\n" + "".join(lines), encoding="utf-8")


def four_users(run_s: int = 600) -> list[tuple[int, int, int, int]]:
    return [(0, run_s, 1, user) for user in range(1, 5)]


# -- the command


def test_a_figure_is_within_three_percent_and_drawn(reproduce: Reproduce, tmp_path: Path) -> None:
    (row,) = reproduce(*MAKESPAN[1:])["values"]
    assert (row["line"], row["seeds"], row["source"], row["saturated"]) == ("Gavel", [0, 1, 2], "text", False)
    assert row["ours"] == pytest.approx(161.164, rel=0.03)
    assert row["difference_percent"] == pytest.approx(100 * (row["ours"] / row["published"] - 1))
    with (tmp_path / "out" / "values.csv").open(encoding="utf-8", newline="") as file:
        (cells,) = csv.DictReader(file)
    assert (float(cells["ours"]), cells["x"], cells["seeds"]) == (row["ours"], "100.0", "0 1 2")
    assert cells["saturated"] == "false"
    assert {path.name for path in (tmp_path / "out").glob("*.[sp][vn]g")} == {"makespan.svg", "makespan.png"}
    assert "161.16" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_a_figure_without_values_is_not_drawn(
    reproduce: Reproduce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change_figure(monkeypatch, "las", max_backlog_s=1e-3)
    output = reproduce("gavel", "las", "--quick")
    assert [(row["ours"], row["saturated"]) for row in output["values"]] == [(None, True)] * 2
    assert (output["compared"], output["published"] > 2) == (0, True)
    assert list((tmp_path / "out").glob("*.[sp][vn]g")) == []
    assert "saturated" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_loads_above_a_saturated_one_are_not_simulated(
    reproduce: Reproduce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = (0.4, 50.0, 60.0, 70.0, 80.0)
    change_figure(monkeypatch, "rounds", loads, measure="50:99", max_backlog_s=3600.0)
    output = reproduce("gavel", "rounds", "--seeds", "0")
    assert (output["runs"], output["done"], len(outcomes(tmp_path / "out"))) == (20, 20, 12)
    assert {row["x"]: row["saturated"] for row in output["values"]} == {load: load > 1.0 for load in loads}


def test_an_interrupted_run_continues(reproduce: Reproduce, tmp_path: Path) -> None:
    words = (*MAKESPAN[:-1], ",".join(map(str, range(5))))
    running = start(*words, "-o", "out", "--jobs", "1", cwd=tmp_path)
    wait_until(lambda: bool(outcomes(tmp_path / "out")), "a run is kept")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=300)
    kept = outcomes(tmp_path / "out")
    assert running.returncode == 130
    assert b"the same command continues" in err
    assert b"Traceback" not in err
    output = reproduce(*words[1:])
    assert (output["runs"], output["done"]) == (5, 5)
    assert outcomes(tmp_path / "out")[: len(kept)] == kept


def test_no_load_is_started_after_an_interruption(tmp_path: Path) -> None:
    figures = EXPERIMENTS["gavel"].prepare(Request(folder=tmp_path, figures=("rounds",), seeds=(0,)))
    sweeps = []

    def interrupted(sweep: PreparedSweep, _: object) -> list[PointRow]:
        sweeps.append(sweep)
        return [PointRow(point, PointState.OPEN, "", {}) for point in sweep.points]

    rows = run_all("", figures, interrupted)
    assert len(sweeps) == 1
    assert {row.state for row in rows.values()} == {PointState.OPEN}
    assert len(rows) == len(figures[0].points) > len(sweeps[0].points)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("gavl",), "no experiment is called 'gavl' (did you mean 'gavel'?)"),
        (("gavel", "las", "lass", "-o", "out"), "experiment 'gavel': no figure is called 'lass' (did you mean 'las'?)"),
        (("gavel", "las"), "-o DIR: is missing"),
        *((("gavel", "las", "-o", "out", "--seeds", seeds), "Invalid value for '--seeds'") for seeds in
          ("5" * 5000, "4294967296", "", "1,", "-1")),
        (("blox", "-o", "out", "--seeds", "1"), "--seeds: has no effect on 'blox'"),
        *(((name, "-o", "out", "--traces", "."), "--traces: has no effect on") for name in ("blox", "pollux")),
        (("pollux", "-o", "out", "--seeds", "9"), "--seeds: there is no workload 9 (use 1 to 8)"),
        (("bftrain", "-o", "out"), "--traces DIR: is missing (name the folder dataset"),
        (("gavel", "makespan", "-o", "out", "--quick", "--traces", "."), "contains no static/multi_seed0.trace.gz"),
        (("bftrain", "-o", "out", "--traces", "."), "contains no ndstat-10sdn6-evt.tar.gz"),
        (("ostrich", "cdf", "-o", "out", "--traces", "."), "contains no *.swf"),
    ],
)  # fmt: skip
def test_wrong_input_is_named(
    bftrain: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    ended = bftrain("reproduce", *words)
    assert ended.code in {2, 3}
    assert message in ended.err
    assert "Traceback" not in ended.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "name", "content", "message"),
    [
        ("gavel makespan --quick", "static/multi_seed0.trace.gz", "\n".join(TEN_JOBS),
         "contains 10 jobs; 100 are needed"),
        ("ostrich cdf", "log.swf.gz", "; MaxProcs: 6\n", "has the same name as log.swf"),
    ],
)  # fmt: skip
def test_a_wrong_trace_is_named(
    bftrain: CommandLine, tmp_path: Path, words: str, name: str, content: str, message: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    (tmp_path / "log.swf").touch()
    ended = bftrain("reproduce", *words.split(), "-o", tmp_path / "out", "--traces", tmp_path)
    assert ended.code == 3
    assert message in ended.err
    assert not (tmp_path / "out").exists()


def test_a_result_of_another_experiment_or_of_other_options_is_kept(bftrain: CommandLine, tmp_path: Path) -> None:
    assert bftrain("reproduce", "gavel", "hierarchical", "hierarchical", "-o", tmp_path, "-q").code == 0
    before = (tmp_path / "values.csv").read_bytes()
    other = bftrain("reproduce", "ostrich", "slides", "-o", tmp_path, "-q")
    assert (other.code, "contains a finished reproduction" in other.err) == (2, True)
    quick = bftrain("reproduce", "gavel", "hierarchical", "--quick", "-o", tmp_path, "-q")
    assert (quick.code, "contains a finished reproduction" in quick.err) == (2, True)
    assert (tmp_path / "values.csv").read_bytes() == before
    same = bftrain("reproduce", "gavel", "hierarchical", "-o", tmp_path, "-q", "--json")
    assert (same.code, json.loads(same.out)["figures"]) == (0, ["hierarchical"])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("inputs/multi-static-100-seed0.csv", "is not a task file that bftrain wrote"),
        ("makespan.png", "was not written with a result of bftrain"),
    ],
)
def test_a_file_of_the_user_is_not_overwritten(bftrain: CommandLine, tmp_path: Path, name: str, message: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine\n", encoding="utf-8")
    ended = bftrain(*MAKESPAN, "-o", tmp_path, "-q")
    assert (ended.code, path.read_text(encoding="utf-8")) == (2, "mine\n")
    assert message in ended.err
    assert outcomes(tmp_path) == []  # before any run


def test_a_narrow_terminal_shows_whole_numbers(tmp_path: Path) -> None:
    shown = on_terminal("reproduce", "ostrich", "slides", "-o", tmp_path / "out", columns=44)
    lines = re.sub(r"\x1b\[[?\d]*[a-zA-Z]", "", shown.out).partition("result: ")[0].splitlines()
    assert max(map(len, lines)) <= 44
    assert sum(line.rstrip().endswith("0.0 %") for line in lines) == 6


@pytest.mark.skipif(bool(lacking()), reason=lacking() or "Chromium is here")
def test_the_page_fits_screens_of_all_widths(bftrain: CommandLine, tmp_path: Path) -> None:
    write_log(tmp_path / "log.swf", four_users())
    assert bftrain("reproduce", "ostrich", "--traces", tmp_path, "-o", tmp_path / "out", "-q").code == 0
    with Chromium() as browser:
        for width in (1400, 420):
            page = browser.open((tmp_path / "out" / "report.html").as_uri(), width=width)
            page.wait_until("document.querySelectorAll('.draw svg, .draw canvas').length >= 6")
            assert (page.complaints(), page.evaluate(STICKING_OUT)) == ([], [])
            cards = page.evaluate("[...document.querySelectorAll('.card')].map(card => card.innerText)")
            assert cards[0].split() == ["Within", "3", "%", "6", "of", "6", "published", "values"]
            assert cards[1].split()[:7] == ["In", "the", "published", "order", "2", "of", "2"]


def test_lines_in_another_order_than_published_are_named(
    reproduce: Reproduce, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swapped = {"FCFS": "OStrich", "OStrich": "FCFS"}
    values = [value._replace(line=swapped.get(value.line, value.line)) for value in published("ostrich")]
    monkeypatch.setattr("bftrain_replay.reproducing.results.published", lambda _: values)
    output = reproduce("ostrich", "slides")
    assert (output["pairs"], output["pairs_in_published_order"]) == (2, 0)
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "In another order than published: FCFS and OStrich at slowdown: stretch, user " in page


def test_every_published_value_has_a_point_or_an_explanation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Request, "tasks", lambda _self, name, *_: name)
    monkeypatch.setattr(Request, "input_path", lambda _self, name, *_: tmp_path / name)
    absent = set()
    for name in ("gavel", "blox", "pollux", "bftrain"):
        experiment = EXPERIMENTS[name]
        made: dict[str, Any] = {"log": "log"}
        keys = set()
        for figure in experiment.prepare(Request(folder=tmp_path, figures=tuple(experiment.figures), made=made)):
            marks = [mark for point in figure.points for mark in figure.marks(point, {})]
            keys |= {(figure.name, mark.line, mark.x) for mark in (*marks, *figure.computed_marks)}
        absent |= {value[:3] for value in published(name)} - keys
    assert absent == {
        # No policy for entities shares GPUs between tasks
        *(("policy-runtimes", "hierarchical: Gavel with space sharing", x) for x in (16, 32, 64, 128, 256)),
        # Gangs of 8 GPUs do not fit on 4 of a kind
        *(("policy-runtimes", line, 16) for line in GROWING),
    }


# -- Gavel


def test_a_ratio_of_two_runs(reproduce: Reproduce) -> None:
    output = reproduce("gavel", "cluster-sizes", "cluster-sizes-makespan", "--quick")
    assert output["runs"] == 4
    times, makespans = output["values"]
    assert (times["line"], makespans["line"]) == ("10 % V100, jobs 50 to 99", "gangs, 100 jobs")
    assert 1.0 < times["ours"] < 3.0  # without speeds over with them
    assert 1.0 < makespans["ours"] < 3.0


def test_gavels_entities_have_their_shares_and_more_throughput(reproduce: Reproduce) -> None:
    output = reproduce("gavel", "hierarchical", "hierarchical-total")
    shares = [ours(output, figure="hierarchical", line=f"entity {number}") for number in range(3)]
    assert shares[0][1.0] == pytest.approx(1.0)  # alone at first
    assert [share[69.0] for share in shares] == pytest.approx([1 / 6, 2 / 6, 3 / 6], abs=0.01)  # by their weights
    blind = ours(output, figure="hierarchical-total", line="multi-level fairness")
    assert list(blind.values()) == pytest.approx([min(jobs, 9) for jobs in range(1, 19)])
    total = ours(output, figure="hierarchical-total", line="Gavel")
    assert all(total[step] > blind[step] for step in blind)


def test_run_times_are_measured_one_by_one_and_not_compared_in_percent(reproduce: Reproduce) -> None:
    output = reproduce("gavel", "policy-runtimes", "--quick")
    assert (output["failed"], output["compared"], output["published"] > 0) == (0, 0, True)
    assert set(ours(output, line="hierarchical: Gavel")) == {32, 64}
    assert all(row["ours"] > 0 for row in output["values"])
    by_rule, *by_program = (min(ours(output, line=line).values()) for line in ("LAS, 108 GPUs: Gavel", *GROWING))
    assert min(by_program) < 20.0 * by_rule  # no import of the solver, which takes hundreds of milliseconds


@pytest.mark.parametrize(
    "stream", [STREAMS[name] for name in ("", "multi", "priorities", "static")], ids=lambda stream: stream.file_name(0)
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_drawn_jobs_are_those_of_gavels_streams_to_the_last_digit(stream: Stream, seed: int) -> None:
    path = site_data("gavel/continuous") / stream.file_name(seed)
    rows = [line.split("\t") for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    jobs = [line.split("\t") for line in draw(stream, seed, len(rows))]
    used = (0, 5, 6, 7)  # type, steps, gang, weight
    assert [[row[place] for place in used] for row in jobs] == [[row[place] for place in used] for row in rows]
    assert [float(row[9]) for row in jobs] == [float(row[9]) for row in rows]


# -- Blox and Pollux


def test_blox_check_values_to_all_digits(reproduce: Reproduce) -> None:
    output = reproduce("blox", "check")
    means = {line: f"{value:.5f}" for line, value in ours(output, "line").items()}
    for policy in ("FIFO", "LAS"):
        assert means[f"{policy}, completion"] == "74403.57426"
        assert means[f"{policy}, responsiveness"] == "440.20792"


def test_the_drawn_stream_is_the_job_list_of_blox() -> None:
    with site_data("blox/jobs_load4.csv").open(encoding="utf-8") as lines:
        rows = [(float(row["arrival_s"]), float(row["duration_s"])) for row in csv.DictReader(lines)]
    jobs = [(job.submit_s, round(job.work_samples, 3)) for job in blox_jobs(4.0)]
    assert jobs[: len(rows)] == rows


def test_distributions_end_with_the_slowest_job(reproduce: Reproduce) -> None:
    output = reproduce("blox", "completion", "completion-cdf", "--quick")
    means = ours(output, "line", figure="completion", x=8.0)
    for line, mean in means.items():
        shares = ours(output, figure="completion-cdf", line=line)
        times = list(shares)
        assert times == sorted(times)
        assert (shares[times[0]], shares[times[-1]]) == (0.02, 1.0)
        assert mean <= sum(times) / len(times) <= mean + times[-1] / len(times)  # each time is the largest of its share
    assert means["SRTF"] < means["FIFO"]


def test_pollux_workloads_are_the_published_ones() -> None:
    first = [(53, "cifar10-0", 6), (154, "cifar10-1", 6), (326, "deepspeech2-2", 8), (368, "cifar10-3", 16)]
    for kind, least in (("fixed", None), ("elastic", 1), ("adaptive", 1)):
        jobs = list(pollux_tasks(6, 1.0, kind))
        assert [(job.submit_s, job.name) for job in jobs[:4]] == [job[:2] for job in first]
        assert [job.min_nodes for job in jobs[:4]] == [least or gpus for _, _, gpus in first]
    assert [len(list(pollux_tasks(3, load, "fixed"))) for load in (0.5, 1.0, 1.5, 2.0)] == [80, 160, 240, 320]


def test_pollux_within_five_percent(reproduce: Reproduce) -> None:
    output = reproduce("pollux", "workloads", "--quick")
    differences = {row["line"]: row["difference_percent"] for row in output["values"]}
    assert differences.pop("goodput") is None
    assert {line: abs(value) < 5.0 for line, value in differences.items()} == dict.fromkeys(differences, True)
    means = ours(output, "line")
    assert means["goodput"] < means["Pollux"] < means["Tiresias"] < means["Optimus+Oracle"]


# -- OStrich


def test_ostrichs_slides_are_exact_and_need_no_logs(reproduce: Reproduce) -> None:
    output = reproduce("ostrich", "slides")
    assert [row["ours"] for row in output["values"]] == pytest.approx([row["published"] for row in output["values"]])
    assert (output["compared"], output["pairs"], output["pairs_in_published_order"]) == (6, 2, 2)


def test_schedules_show_their_progress(tmp_path: Path) -> None:
    write_log(tmp_path / "long.swf", ((400 * n, 600, 3, n % 9) for n in range(20_000)))
    shown = on_terminal("reproduce", "ostrich", "users", "--traces", tmp_path, "-o", tmp_path / "out", columns=120)
    assert "long: OStrich, % scheduled" in shown.out
    assert "long: fair share, % scheduled" in shown.out
    assert shown.code == 0


def test_ostrich_and_fair_share_on_a_log(reproduce: Reproduce) -> None:
    output = reproduce("ostrich", "summary", "heat", "cdf", "--quick", "--traces", site_data("swf"))
    by_ostrich, by_fair_share = ours(output, "line", x="mean of campaigns").values()
    assert by_ostrich < by_fair_share
    assert sum(row["ours"] for row in output["values"] if row["figure"] == "heat") == 0  # both have the same campaigns
    assert max(row["ours"] for row in output["values"] if row["figure"] == "cdf") == 1.0


def test_equal_values_of_a_distribution_have_the_last_share(reproduce: Reproduce, tmp_path: Path) -> None:
    write_log(tmp_path / "log.swf", four_users())
    rows = reproduce("ostrich", "cdf", "--traces", tmp_path)["values"]
    assert [(row["line"], row["x"], row["ours"]) for row in rows] == [
        (f"log: {policy}", 1.0, 1.0) for policy in ("OStrich", "fair share")
    ]


def test_summary_lines_are_named_by_logs(reproduce: Reproduce, tmp_path: Path) -> None:
    for name in ("NASA-iPSC-1993-3.1-cln", "NASA-iPSC-1993-3", "KTH-SP2-1996-2"):
        write_log(tmp_path / f"{name}.swf", four_users())
    rows = reproduce("ostrich", "summary", "--traces", tmp_path)["values"]
    assert len({row["line"] for row in rows}) == 6
    assert sum(row["published"] is not None for row in rows) == 28


def test_a_changed_log_is_scheduled_again(reproduce: Reproduce, tmp_path: Path) -> None:
    for schedules, run_s in enumerate((600, 900), 1):
        write_log(tmp_path / "log.swf", four_users(run_s))
        reproduce("ostrich", "utilization", "--traces", tmp_path)
        assert len(list((tmp_path / "out" / "inputs").glob("log-OStrich-*.json"))) == schedules


def test_an_interrupted_experiment_keeps_finished_schedules(tmp_path: Path) -> None:
    write_log(tmp_path / "a.swf", four_users())
    write_log(tmp_path / "b.swf", ((n, 600, 3, n % 9) for n in range(200_000)))
    running = start("reproduce", "ostrich", "cdf", "--traces", ".", "-o", "out", cwd=tmp_path)
    wait_until(lambda: len(list((tmp_path / "out" / "inputs").glob("a-*.json"))) == 2, "schedules are kept")
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=60)
    assert (running.returncode, b"Traceback" in err) == (130, False)
    assert len(list((tmp_path / "out" / "inputs").glob("a-*.json"))) == 2


# -- the study


def test_every_set_of_the_study_has_all_points(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(Request, "tasks", lambda _self, name, *_: name)
    figures = ("t-fwd", "p-jmax", "rescale-cost", "heuristic")
    request = Request(folder=tmp_path, figures=figures, made={"log": "log"})
    assert [len(figure.points) for figure in EXPERIMENTS["bftrain"].prepare(request)] == [18, 15, 21, 45]


def test_the_published_study_runs_on_its_files(reproduce: Reproduce) -> None:
    output = reproduce("bftrain", "--traces", site_data("summit/ndstat-10sdn6-evt.tar.gz").parent, "--quick")
    assert output["runs"] == output["done"] == 4  # t-fwd at 10 s, 2 tasks, a quarter of the costs; 2 tasks by HiGHS
    counts = [row["ours"] for row in output["values"] if row["figure"] == "timeout"]  # decisions, and plans kept
    assert 0 <= counts[1] < counts[0]
    assert all(0.0 <= row["ours"] <= 1.1 for row in output["values"] if row["figure"] != "timeout")
