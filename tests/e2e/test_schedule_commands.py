"""``bftrain schedule`` as its users run it: real archive logs to idle nodes to a replay, the slides' cases, Ctrl-C."""

from __future__ import annotations

import csv
import hashlib
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from bftrain import load_log
from tests.helpers.in_process import CommandLine
from tests.helpers.program import let_work, start
from tests.helpers.schedules import Row, swf
from tests.helpers.site_data import site_data

EXACT = 1e-6


def scheduled(bftrain: CommandLine, log: Path, folder: Path, *options: str) -> dict[str, Any]:
    """Run the command; its figures must be what is in the files."""
    ended = bftrain("schedule", log, "-o", folder, "--json", "-q", *options)
    assert ended.code == 0, ended.err
    output: dict[str, Any] = json.loads(ended.out)
    assert output == json.loads((folder / "summary.json").read_text())
    idle = load_log(folder / "idle.npz")
    assert idle.span_s == output["simulated_s"]
    assert output["busy_h"] + output["free_h"] == pytest.approx(
        output["capacity"] * output["simulated_s"] / 3600, rel=1e-12
    )
    return output


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def column(folder: Path, name: str) -> list[float]:
    return [float(row[name]) for row in rows(folder / "campaigns.csv")]


def test_the_slides_of_ostrich(bftrain: CommandLine, tmp_path: Path) -> None:
    slowdown, pareto = site_data("ostrich/slide_slowdown.swf"), site_data("ostrich/slide_pareto.swf")
    for policy, stretches in (("fcfs", [1, 3]), ("ostrich", [1.5, 1])):
        scheduled(bftrain, slowdown, tmp_path / policy, "--policy", policy)
        assert column(tmp_path / policy, "stretch") == pytest.approx(stretches, abs=EXACT)
    scheduled(bftrain, pareto, tmp_path / "pareto", "--policy", "ostrich")
    assert column(tmp_path / "pareto", "end_s") == pytest.approx([600, 1200], abs=EXACT)


def _check_against_import(bftrain: CommandLine, folder: Path, nodes: int) -> None:
    """Read the schedule as an archive's log: as many nodes must be idle."""
    counts = folder / "counts.npz"
    ended = bftrain("import", folder / "schedule.swf", "--counts", "--nodes", str(nodes), "-o", counts)
    assert ended.code == 0, ended.err
    counted, idle = load_log(counts), load_log(folder / "idle.npz")
    assert counted.idle_node_s == idle.select(window=(counted.start_s, counted.end_s)).idle_node_s


@pytest.mark.parametrize(
    ("log", "options", "jobs"),
    [
        ("swf/KTH-SP2-1996-2.swf.gz", ["--policy", "easy"], 28_489),
        ("swf/NASA-iPSC-1993-3.1-cln.swf.gz", ["--policy", "ostrich", "--first", "3000"], 3_000),
        ("swf/theta_2022.swf.gz", ["--nodes", "4392"], 23_911),
        ("pernode/wagap-2013.swf.gz", ["--nodes", "44", "--cores-per-node", "48", "--sharing", "cores"], 17_900),
    ],
    ids=["kth", "nasa", "theta", "wagap"],
)
def test_an_archive_log_says_what_could_be_harvested(
    bftrain: CommandLine, log: str, options: list[str], jobs: int, tmp_path: Path
) -> None:
    summary = scheduled(bftrain, site_data(log), tmp_path / "main", *options)
    assert summary["rows"]["read"] == jobs
    assert summary["done"] + summary["refused"] == summary["rows"]["used"]
    assert summary["ended"] == "all_done"
    schedule = rows(tmp_path / "main" / "jobs.csv")
    assert len(schedule) == summary["rows"]["used"]
    idle = load_log(tmp_path / "main" / "idle.npz")
    held = sum(int(row["size"]) * (float(row["end_s"]) - float(row["start_s"])) for row in schedule if row["end_s"])
    if summary["unit"] == "processor":
        assert held <= summary["capacity"] * idle.span_s
        assert idle.idle_node_s * summary["capacity"] / summary["nodes"] + held < summary["capacity"] * idle.span_s
    else:  # to the node-second: all times are whole seconds
        assert held + idle.idle_node_s == summary["nodes"] * idle.span_s
        _check_against_import(bftrain, tmp_path / "main", summary["nodes"])
    begin, day = idle.start_s + 30 * 86_400 if idle.span_s > 40 * 86_400 else idle.start_s, 86_400
    replay = (
        "replay",
        tmp_path / "main" / "idle.npz",
        "--window",
        f"{begin}:{begin + day}",
        "-o",
        tmp_path / "harvest",
    )
    assert bftrain("generate", "tasks", "-o", tmp_path / "t.toml", "--kind", "trials", "--count", "20").code == 0
    ended = bftrain(*replay, "--tasks", tmp_path / "t.toml", "--json", "-q")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["harvested"] > 0


@pytest.mark.parametrize(
    ("policy", "interval_s", "digest"),  # of what github.com/filipjs/Simulator 59ce7f9 printed for 100 CPUs
    [
        ("ostrich", 0, "7b35c3270d49ef1f192e75096cb9a95ada2c28fa02f8d9daf7fa997809196a0e"),
        ("ostrich", 300, "c14fbea0f4249d8074a9d2057061b786be6ef9a4b4c59ad51358f3ba965a50d7"),
        ("ostrich-fifo", 300, "44a223108c7d05af63c4f99a000bc9ef9e2c7c5a52fa7dd1f91e82594ec2b409"),  # FifoOStrich there
    ],
)
def test_kth_starts_as_in_the_published_simulator_of_ostrich(
    bftrain: CommandLine, policy: str, interval_s: int, digest: str, tmp_path: Path
) -> None:
    options = ["--policy", policy, "--set", "estimates=actual", "--least-run", "60", "--done-campaigns", "oldest-first"]
    options += ["--backfill-interval", str(interval_s), "--backfill-window", "86400", "--first", "8000"]
    scheduled(bftrain, site_data("swf/KTH-SP2-1996-2.swf.gz"), tmp_path / "out", *options)
    without_run_time = {"2466", "4360", "4866", "6608"}  # it leaves these out, and they make no difference
    started = [row for row in rows(tmp_path / "out" / "jobs.csv") if row["job"] not in without_run_time]
    found = ",".join(f"{row['job']}:{float(row['start_s']):.0f}" for row in started)
    assert hashlib.sha256(found.encode()).hexdigest() == digest


def test_campaigns_of_nasa_stay_within_their_bound(bftrain: CommandLine, tmp_path: Path) -> None:
    log = site_data("swf/NASA-iPSC-1993-3.1-cln.swf.gz")
    summary = scheduled(bftrain, log, tmp_path / "out", "--policy", "ostrich", "--first", "3000")
    assert (summary["campaigns_done"], summary["beyond_bound"]) == (summary["campaigns"], 0)
    flows, bounds = column(tmp_path / "out", "flow_s"), column(tmp_path / "out", "bound_s")
    assert all(flow <= bound for flow, bound in zip(flows, bounds, strict=True))


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak)])
def test_interrupted_it_keeps_what_is_done(number: signal.Signals, tmp_path: Path) -> None:
    many = [Row(3 * place, 1000 + place % 977, 1 + place % 7, 4000, place % 5) for place in range(20_000)]
    log = swf(tmp_path / "log.swf", many, "MaxNodes: 64")
    folder = tmp_path / "out"
    options = ("--policy", "fairshare", "--set", "backfill-depth=20000", "--max-backlog", "1e9", "-o", folder)
    with start("schedule", log, *options) as running:
        let_work(running, 2.5)  # into the simulation: the queue is so long that it would take hours
        running.send_signal(number)
        out, err = running.communicate(timeout=180)
    assert running.returncode == 130, err
    assert b"interrupted; the result in" in err
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["ended"], summary["complete"]) == ("interrupted", False)
    assert 0 < summary["done"] < 20_000
    assert len(rows(folder / "jobs.csv")) == 20_000
    idle = load_log(folder / "idle.npz")
    assert idle.span_s == summary["simulated_s"]
    assert b"derived" in out
