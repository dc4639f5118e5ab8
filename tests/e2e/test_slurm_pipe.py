"""``bftrain decide`` alongside a real Slurm: ``sinfo`` polls, a pipe and a journal."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.program import PROGRAM
from tests.helpers.slurm import Slurm, wait_until

pytestmark = pytest.mark.slurm

TASK = {"name": "a", "curve": {"nodes": [1, 2, 4], "rate": [10, 19, 35]}, "min_nodes": 1, "max_nodes": 4}
COSTS = {"grow_cost_s": 0.1, "shrink_cost_s": 0.1, "start_cost_s": 0.1}


def test_nodes_that_slurm_takes_are_released_immediately(slurm_cluster: Slurm, tmp_path: Path) -> None:
    journal, pool, steps = str(tmp_path / "harvest.db"), set[str](), 0
    command = [PROGRAM, "decide", "--journal", journal]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=slurm_cluster.env, text=True
    ) as decider:
        assert decider.stdin is not None
        assert decider.stdout is not None

        def tell(**event: object) -> None:
            nonlocal steps
            steps += 1
            print(json.dumps([{**event, "time_s": steps}]), file=decider.stdin, flush=True)

        def answer(kind: str) -> dict[str, Any]:
            """Read actions up to the next one of this kind."""
            assert decider.stdout is not None
            return next(action for action in map(json.loads, decider.stdout) if action["action"] == kind)

        def poll() -> set[str]:
            """Pass on the difference to the last poll, and return it."""
            nonlocal pool
            idle = slurm_cluster.idle()
            changed, event = (idle - pool, "nodes_joined") if idle > pool else (pool - idle, "nodes_left")
            tell(event=event, nodes=sorted(changed))
            pool = idle
            return changed

        nodes = poll()
        tell(event="task_submitted", spec={**TASK, **COSTS})
        assert set(answer("start")["nodes"]) == nodes == set(slurm_cluster.nodes)

        job = slurm_cluster.submit("sleep 300", "--nodes=2", "--exclusive")
        wait_until(lambda: len(slurm_cluster.idle()) == 2, "Slurm gave the job two nodes", slurm_cluster.logs)
        taken = poll()
        assert set(answer("release")["nodes"]) == taken
        shrunk = answer("shrink")
        assert (set(shrunk["nodes"]), shrunk["cause"]) == (taken, "preempted")

        slurm_cluster.run("scancel", job)
        wait_until(lambda: len(slurm_cluster.idle()) == 4, "the nodes are idle again", slurm_cluster.logs)
        assert poll() == taken
        assert set(answer("grow")["nodes"]) == taken
        decider.stdin.close()
        assert decider.wait(timeout=30) == 0

    verified = json.loads(slurm_cluster.run(PROGRAM, "journal", "verify", journal, "--json").stdout)
    assert verified == {"steps": 4, "different": []}
