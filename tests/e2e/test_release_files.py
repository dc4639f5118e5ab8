"""Files of 0.1.0, written before modules were renamed: this version reads and replays them to the same figures."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from bftrain import load_log
from bftrain.live.model.site_config import load as load_site
from tests.helpers.in_process import CommandLine
from tests.helpers.local_daemon import LocalDaemon
from tests.unit.replay.cases import without_times

RELEASE = Path(__file__).parents[1] / "data" / "release-0.1.0"
TABLES = ("tasks.csv", "decisions.csv", "allocations.csv", "over_time.csv")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the release's files, so that nothing is written beside them; commands run in it."""
    made = Path(shutil.copytree(RELEASE, tmp_path / "release"))
    monkeypatch.chdir(made)
    return made


def summary(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


def _cells(table: Path) -> list[list[str]]:
    """Return the cells of a table without quoted commas, as they are written."""
    return [line.split(",") for line in table.read_text().splitlines()]


@pytest.mark.parametrize("name", ["log.npz", "log.csv", "log.parquet"])
def test_its_logs_hold_what_its_result_says_that_it_replayed(name: str) -> None:
    assert load_log(RELEASE / name).sha256 == summary(RELEASE / "result")["inputs"]["log"]["sha256"]


def test_its_log_and_tasks_replay_to_the_same_figures(
    bftrain: CommandLine, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BFTRAIN_QUICK", "0")
    settings = ("--baseline", "equal-share", "--config", "result/config.toml")
    again = bftrain("replay", "log.npz", "--tasks", "tasks.toml", *settings, "-o", "again")
    assert again.code == 0, again.err
    for table in TABLES:
        before_lines, now_lines = (_cells(files / name / table) for name in ("result", "again"))
        assert now_lines[0][: len(before_lines[0])] == before_lines[0], "new columns come last"
        assert [line[: len(before_lines[0])] for line in now_lines] == before_lines, table
    results = [summary(files / name) for name in ("result", "again")]
    before, now = map(without_times, results)
    for machine in (before, now):
        machine.pop("versions")
        machine.pop("figures_sha256")  # of the settings too, of which there are more now
    later = {"racks": {}, "speed_error": 0.0, "profiled": 0.0, "learning": "no", "turn_s": 20.0}
    assert {name: now["settings"].pop(name) for name in later} == later
    assert now.pop("weekly")["harvest"]["median"] > 0.0  # added since
    for figures in (now, now["baseline"], now["ceiling"]):
        for name in ("wasted_starts", "bound_samples", "one_each_samples"):
            figures.pop(name)
    # Figures about doubts have been added since; those that there were are as they were
    assert before.pop("doubtful").items() <= now.pop("doubtful").items()
    for figures in (before, now):  # their wording changed
        figures["headline"].pop("sentence")
        figures["progress"].pop("sentence")
    assert now == before
    compared = bftrain("compare", "result", "again")
    assert compared.code == 0, compared.err


@pytest.mark.parametrize("command", [("report", "result", "-o", "page.html"), ("export", "result", "-o", "trace.json")])
def test_its_result_is_read(bftrain: CommandLine, files: Path, command: tuple[str, ...]) -> None:
    done = bftrain(*command)
    assert done.code == 0, done.err
    assert (files / command[-1]).stat().st_size > 0


@pytest.mark.usefixtures("files")
def test_its_journal_leads_to_the_same_decisions(bftrain: CommandLine) -> None:
    verified = bftrain("journal", "verify", "journal.db")
    assert verified.code == 0, verified.err
    shown = bftrain("journal", "show", "journal.db", "--json")
    assert shown.code == 0, shown.err
    assert "nodes_joined" in shown.out


def test_its_sweep_runs_again_to_the_same_figures(bftrain: CommandLine, files: Path) -> None:
    table = (files / "sweep" / "table.csv").read_bytes()
    path = files / "sweep" / "table.csv"
    again = bftrain("sweep", "sweep.toml", "-o", "sweep")
    assert again.code == 0, again.err
    before, now = (list(csv.DictReader(io.StringIO(text.decode()))) for text in (table, path.read_bytes()))
    for row, old in zip(now, before, strict=True):
        figures = [name for name in old if name != "point" and not re.search("wall_s|per_s|_ms_", name)]
        assert len(figures) > 30
        assert {name: row[name] for name in figures} == {name: old[name] for name in figures}


def test_its_events_lead_to_the_same_actions(bftrain: CommandLine, files: Path) -> None:
    decided = bftrain("decide", "events.jsonl")
    assert decided.code == 0, decided.err
    assert decided.out == (files / "actions.jsonl").read_text()


@pytest.mark.parametrize(
    ("file", "scheduler", "max_tasks"),
    [("site.toml", "local", 35), ("site_slurm.toml", "slurm", 35), ("site_pbs.toml", "pbs", 35)],
)
def test_its_site_files_are_read(file: str, scheduler: str, max_tasks: int) -> None:
    site = load_site(RELEASE / file)
    assert site.scheduler["name"] == scheduler
    assert site.deciding.max_tasks == max_tasks
    assert site.agents.patience_s == 30.0


def test_its_live_run_goes_on_with_its_tasks(bftrain: CommandLine, files: Path, tmp_path: Path) -> None:
    site = (files / "live" / "site.toml").read_text().replace('state = "state"\n', "")
    daemon = LocalDaemon(tmp_path, site.replace("nodes = 3", 'nodes = 3\nidle = "0@0"'))  # so nothing starts
    shutil.copy(files / "live" / "live.db", daemon.state / "live.db")
    with daemon:
        tasks = {task.name: task for task in daemon.client.tasks(over=True)}
        assert {name: task.state for name, task in tasks.items()} == {"short": "done", "long": "waiting"}
        assert tasks["long"].weight == 2.0
        assert tasks["long"].node_s == pytest.approx(23.6025, abs=1e-3)
        assert tasks["short"].campaign == "first"
    verified = bftrain("journal", "verify", daemon.state / "live.db")
    assert verified.code == 0, verified.err
