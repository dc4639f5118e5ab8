"""``examples/live/measure_waits.py``, and ``bftrain live pause`` and ``resume``: Slurm's commands are scripts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bftrain import Client
from tests.helpers.in_process import CommandLine
from tests.helpers.live_inside import submit
from tests.helpers.live_thread import LiveThread, live_thread

SCRIPT = Path(__file__).parents[3] / "examples" / "live" / "measure_waits.py"
# The job runs immediately, in another folder; jobs after the number in the file "hold" never do
SBATCH = """#!/bin/sh
echo "sbatch $*" >>"$PLAYED/calls"
cat >"$PLAYED/job.$$"
cd /
if [ -e "$PLAYED/hold" ] && [ "$(wc -l <"$PLAYED/calls")" -gt "$(cat "$PLAYED/hold")" ]; then exit 0; fi
sh "$PLAYED/job.$$"
"""
SCANCEL = """#!/bin/sh
echo "scancel $*" >>"$PLAYED/calls"
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LiveThread]:
    """Yield a live run with a task on a node, and Slurm's commands."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PLAYED", str(tmp_path))
    with live_thread(tmp_path / "run") as found:
        monkeypatch.setenv("BFTRAIN_LIVE", found.socket)
        found.do(lambda inside: submit(inside.service, "a"))
        found.do(lambda inside: inside.world.lend("n1"))
        yield found


def paused(run: LiveThread) -> bool:
    return bool(run.do(lambda inside: inside.service.harvesting().paused))


def measure(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, SCRIPT, "--partition", "main", "--folder", folder.name, "--gap", "0", "--steady", "0.01"]
    return subprocess.run(
        [*command, *words], capture_output=True, text=True, check=False, timeout=120, cwd=folder.parent
    )


def test_blocks_with_and_without_harvesting_are_compared_and_nothing_is_left(run: LiveThread, tmp_path: Path) -> None:
    ended = measure(tmp_path, "--jobs", "4", "--block", "1", "--option=--account=a")
    assert ended.returncode == 0, ended.stderr
    blocks = [line.partition(" ")[0] for line in ended.stdout.splitlines() if line.endswith("1 jobs")]
    assert blocks == ["without", "with", "with", "without"] * 2
    confidence = r"\(95 % confidence: [-+][0-9.]+ to [-+][0-9.]+ s\)"
    assert re.search(rf"^median: [-0-9.]+ s without, .* {confidence}$", ended.stdout, re.MULTILINE)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sum("--partition=main" in call and "--account=a" in call for call in calls) == 8
    assert calls[-1].startswith("scancel --quiet --me --name=measure-waits-")
    assert not list(tmp_path.glob(".measure-waits-*"))
    assert not paused(run)
    remarks = run.do(lambda inside: [one.text for one in inside.daemon.notices.latest])
    assert "harvesting is paused: no nodes are used" in remarks


def test_a_job_that_never_starts_ends_the_measurement_with_the_figures_until_then(
    run: LiveThread, tmp_path: Path
) -> None:
    folder = tmp_path / "all our jobs"
    folder.mkdir()
    (tmp_path / "hold").write_text("2")
    ended = measure(folder, "--jobs", "2", "--block", "1", "--patience", "3")
    assert ended.returncode != 0
    assert re.search(r"^median: [-0-9.]+ s without, ", ended.stdout, re.MULTILINE), ended.stderr
    assert "a probe job has waited for 3 s" in ended.stderr
    assert not paused(run)


def test_harvesting_that_was_paused_stays_paused(run: LiveThread, tmp_path: Path) -> None:
    client = Client(run.socket)
    client.pause_harvesting()
    ended = measure(tmp_path, "--jobs", "1")
    assert ended.returncode == 0, ended.stderr
    view = client.harvesting()
    assert (view.paused, view.until_s) == (True, None)


@pytest.mark.usefixtures("run")
def test_harvesting_is_paused_for_a_time_and_resumed(bftrain: CommandLine) -> None:
    assert bftrain("live", "pause", "--for", "1h").out.startswith("harvesting is paused until ")
    assert "is not in the range x>0" in bftrain("live", "pause", "--for", "0").err
    assert "paused" in bftrain("status").out
    assert bftrain("live", "resume").out == "harvesting continues\n"
