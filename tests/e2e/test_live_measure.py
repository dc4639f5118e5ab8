"""``bftrain live measure`` beside a real Slurm: what it measures, and that it leaves all as it was."""

from __future__ import annotations

import json
from typing import Final

import pytest

from tests.helpers.live_run import LiveRun
from tests.helpers.slurm import Slurm

pytestmark = [pytest.mark.slurm]

NODES: Final = 2
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
        done = live.call(
            "live", "measure", "--jobs", "2", "--block", "2", "--gap", "0", "--partition", "main", "--yes", "--json"
        )
        found = json.loads(done.stdout)
        assert [len(found[side][0]) for side in ("without_s", "with_s")] == [2, 2]
        assert all(0 < wait < 60 for side in ("without_s", "with_s") for wait in found[side][0])
        assert found["preempted"] >= 1, "a job took a node from the task"
        assert all(step["median_s"] < 60 for step in found["steps"])
        assert len(found["steps"]) == 5
        status = live.asked("status")
        assert status["state"] == "running"
        assert "bftrain-measure" not in cluster.run("squeue", "-h", "-o", "%j").stdout
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
