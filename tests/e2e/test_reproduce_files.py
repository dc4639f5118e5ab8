"""The sweep files of the published figures: each is read and runs, with small stand-ins for the published files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bftrain import EventLog, generate_log, generate_mix, save_log, save_tasks
from bftrain_datasets.workloads.task_generators import TaskShape, generate_trials
from tests.helpers.program import bftrain

FILES = sorted((Path(__file__).parents[2] / "examples" / "reproduce").glob("*.toml"))
POINTS = {"heuristic": 45, "p-jmax": 15, "rescale-cost": 21, "t-fwd": 18}
PAGE = (Path(__file__).parents[2] / "docs" / "reproduce.md").read_text(encoding="utf-8")


def stand_in() -> EventLog:
    """Return a log with a thousand events before the time at which the published window ends."""
    end_s = datetime(2021, 2, 17, 12, 21, 15, tzinfo=UTC).timestamp()
    log = generate_log(1100, 1, seed=3, idle_share=0.2, start_s=end_s - 80_000)
    assert log.times[1000] < end_s - 10_000
    return log


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("reproduce")
    save_log(stand_in(), made / "summit.npz")
    shape = TaskShape(work_samples=2e6)
    save_tasks(generate_trials(4, shape=shape), made / "hpo.toml")
    for name in ("nas-throughput", "nas-speedup"):
        save_tasks(generate_mix(4, 1, shape=shape), made / f"{name}.toml")
    for file in FILES:
        shutil.copy(file, made)
    return made


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_it_runs(folder: Path, file: Path) -> None:
    ended = bftrain("sweep", file.name, "-o", file.stem, "--jobs", "2", "-q", "--json", cwd=folder)
    assert ended.code == 0, ended.err
    output = json.loads(ended.out)
    assert (output["points"], output["done"]) == (POINTS[file.stem], POINTS[file.stem])
    assert {row["objective"] for row in output["rows"]} == {"throughput", "speedup"}
    assert {row["simulated_s"] for row in output["rows"]} == {output["rows"][0]["simulated_s"]}


def script(*words: str | Path) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [FILES[0].parent / "reproduce.sh", *words],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout


def test_one_script_does_all_of_them(folder: Path, tmp_path: Path) -> None:
    place = tmp_path / "all"
    place.mkdir()
    for name in ("summit.npz", "hpo.toml", "nas-throughput.toml", "nas-speedup.toml"):  # what it would import
        shutil.copy(folder / name, place)
    printed = script(tmp_path, place, "--dry-run")
    assert [int(count) for count in re.findall(r": (\d+) points", printed)] == [18, 15, 21, 45]
    assert not list(place.glob("*/points.jsonl")), "nothing is done"
    assert [line for line in PAGE.splitlines() if "reproduce.sh DATASET DIR" in line]
