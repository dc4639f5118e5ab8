"""Files of 0.1.0, written before modules were renamed: this version reads them, and replays them to the same bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from bftrain.live.model import site_config
from tests.helpers.local_daemon import LocalDaemon
from tests.helpers.program import bftrain

RELEASE = Path(__file__).parents[1] / "data" / "release-0.1.0"
TABLES = ("tasks.csv", "decisions.csv", "allocations.csv", "campaigns.csv", "over_time.csv")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Give a copy of the release's files, so that nothing is written beside them."""
    return Path(shutil.copytree(RELEASE, tmp_path / "release"))


def figures(folder: Path) -> dict[str, object]:
    """Return a result's figures but for those that were measured."""
    summary = json.loads((folder / "summary.json").read_text())
    measured = {"wall_s", "decisions_per_s", "solve_ms", "decide_ms", "decide_ms_bins", "versions", "inputs"}
    for part in (summary, summary["baseline"], summary["ceiling"]):
        for name in measured:
            part.pop(name, None)
    return dict(summary)


@pytest.mark.parametrize("log", ["log.npz", "log.csv", "log.parquet"])
def test_its_logs_hold_the_same_nodes_and_times(files: Path, log: str) -> None:
    contents = []
    for name in ("log.npz", log):
        read = bftrain("inspect", name, "--json", cwd=files)
        assert read.code == 0, read.err
        contents.append(
            {key: value for key, value in json.loads(read.out).items() if key not in {"file", "log", "path"}}
        )
    assert contents[0] == contents[1]


def test_its_log_and_tasks_replay_to_the_same_bytes(files: Path) -> None:
    settings = ("--baseline", "equal-share", "--config", "result/config.toml")
    again = bftrain(
        "replay", "log.npz", "--tasks", "tasks.toml", *settings, "-o", "again", cwd=files, BFTRAIN_QUICK="0"
    )
    assert again.code == 0, again.err
    for table in TABLES:
        assert (files / "again" / table).read_bytes() == (files / "result" / table).read_bytes(), table
    assert figures(files / "again") == figures(files / "result")
    compared = bftrain("compare", "result", "again", "--json", cwd=files)
    assert compared.code == 0, compared.err


@pytest.mark.parametrize(
    "command", [("report", "result", "-o", "page.html"), ("export", "result", "--to", "batsim", "-o", "jobs.csv")]
)
def test_its_result_is_read(files: Path, command: tuple[str, ...]) -> None:
    done = bftrain(*command, cwd=files)
    assert done.code == 0, done.err
    assert (files / command[-1]).stat().st_size > 0


def test_its_journal_leads_to_the_same_decisions(files: Path) -> None:
    verified = bftrain("journal", "verify", "journal.db", cwd=files)
    assert verified.code == 0, verified.err
    shown = bftrain("journal", "show", "journal.db", "--json", cwd=files)
    assert shown.code == 0, shown.err
    assert "nodes_joined" in shown.out


def test_its_sweep_is_complete(files: Path) -> None:
    table = (files / "sweep" / "table.csv").read_bytes()
    again = bftrain("sweep", "sweep.toml", "-o", "sweep", cwd=files)
    assert again.code == 0, again.err
    assert (files / "sweep" / "table.csv").read_bytes() == table, "no point is computed again"


@pytest.mark.parametrize("scheduler", ["slurm", "pbs"])
def test_its_site_files_mean_what_the_examples_of_today_mean(files: Path, tmp_path: Path, scheduler: str) -> None:
    today = tmp_path / "site.toml"
    today.write_text(bftrain("live", "--example", scheduler).out)
    # Paths count from the folder of the file, so both are read from the same one
    (tmp_path / "before.toml").write_bytes((files / f"site_{scheduler}.toml").read_bytes())
    assert site_config.load(tmp_path / "before.toml") == site_config.load(today)


def test_its_live_run_goes_on_with_its_tasks(files: Path, tmp_path: Path) -> None:
    site = (files / "live" / "site.toml").read_text().replace('state = "state"\n', "")
    daemon = LocalDaemon(tmp_path, site.replace("nodes = 3", 'nodes = 3\nidle = "0@0"'))  # so nothing starts
    for name in ("live.db", "history.json"):
        shutil.copy(files / "live" / name, daemon.state / name)
    with daemon:
        tasks = {task.name: task for task in daemon.client.tasks(over=True)}
        assert {name: task.state for name, task in tasks.items()} == {"short": "done", "long": "waiting"}
        assert tasks["long"].weight == 2.0
        assert tasks["long"].node_s == pytest.approx(23.6025, abs=1e-3)
        assert tasks["short"].campaign == "first"
    verified = bftrain("journal", "verify", daemon.state / "live.db")
    assert verified.code == 0, verified.err
