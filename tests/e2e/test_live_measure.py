"""``examples/live/measure_waits.py`` beside a real Slurm: its figures, and that it leaves all as it was."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tests.helpers.live_run import LiveRun
from tests.helpers.slurm import Slurm

pytestmark = [pytest.mark.slurm]

NODES: Final = 2
SCRIPT: Final = Path(__file__).parents[2] / "examples" / "live" / "measure_waits.py"
SITE: Final = """\
name = "e2e"
folder = "{folder}/shared"
state = "{folder}/state"

[scheduler]
name = "slurm"
partition = "pilot"
poll_s = 1

[agents]
python = "{python}"
preload = []
"""


def test_the_waits_of_the_main_queue_are_measured_and_all_is_as_before() -> None:
    with Slurm(nodes=NODES) as cluster, LiveRun(cluster, SITE) as live:
        live.call("submit", "sleep", "--launcher", "process", "--nodes", f"1:{NODES}", "--", "1000")
        live.until(lambda: len(live.tasks()["sleep"]["nodes"]) == NODES, "it holds all nodes")
        done = subprocess.run(
            [live.user.python, SCRIPT, "--jobs", "2", "--block", "2", "--gap", "0", "--partition", "main"],
            env=live.env,
            cwd=live.folder,
            capture_output=True,
            text=True,
            user=live.user.uid,
            group=live.user.gid,
            extra_groups=[] if os.geteuid() == 0 else None,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{done.stderr}\n{live.tell()}"
        assert "median: " in done.stdout
        assert "SIGTERM to free node: " in done.stdout, "a job took a node from the task"
        status = live.asked("status")
        assert status["state"] == "running"
        assert "measure-waits" not in cluster.run("squeue", "-h", "-o", "%j").stdout
        live.call("live", "pause")
        live.until(lambda: live.asked("status")["pool"] == 0, "no node is ours")
        live.until(lambda: not cluster.run("squeue", "-h", "-p", "pilot").stdout, "no pilot is left")
        live.kill()
        live.start()
        assert live.asked("status")["state"] == "paused", "over a restart too"
        live.call("live", "resume")
        live.until(lambda: len(live.tasks()["sleep"]["nodes"]) == NODES, "it holds all nodes again")
        assert live.end() == 0, live.tell()
        live.gone()
