"""bftrain beside a real Slurm: what a site can do today with `sinfo`, a pipe and a journal."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Self

import pytest

from tests.helpers.program import PROGRAM
from tests.helpers.slurm import Slurm, wait_until

pytestmark = pytest.mark.slurm

TASK = {
    "name": "resnet",
    "curve": {"nodes": [1, 2, 4], "rate": [10, 19, 35]},
    "min_nodes": 1,
    "max_nodes": 4,
    "grow_cost_s": 0.1,
    "shrink_cost_s": 0.1,
    "start_cost_s": 0.1,
}


class Decider:
    """``bftrain decide`` at the end of a pipe, and the pool as the last look at ``sinfo`` left it."""

    def __init__(self, cluster: Slurm, journal: Path) -> None:
        self._cluster = cluster
        self._process = subprocess.Popen(
            [PROGRAM, "decide", "--journal", str(journal)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=cluster.env,
            text=True,
        )
        self._time_s = 0
        self._pool: set[str] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(timeout=30) == 0
        self._process.__exit__(None, None, None)

    def look(self) -> None:
        """Poll ``sinfo`` once and tell the difference, all of one moment."""
        idle = self._cluster.idle()
        moment = [
            {"event": event, "nodes": sorted(nodes)}
            for event, nodes in (("nodes_left", self._pool - idle), ("nodes_joined", idle - self._pool))
            if nodes
        ]
        self._pool = idle
        if moment:
            self.tell(*moment)

    def tell(self, *events: dict[str, Any]) -> None:
        self._time_s += 1
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([{**event, "time_s": self._time_s} for event in events]) + "\n")
        self._process.stdin.flush()

    def answer(self, kind: str) -> dict[str, Any]:
        """Read actions up to the next one of this kind, which must come."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            action: dict[str, Any] = json.loads(line)
            if action["action"] == kind:
                return action
        pytest.fail(f"the stream ended without '{kind}'")


def test_nodes_that_slurm_takes_are_released_at_once(slurm_cluster: Slurm, tmp_path: Path) -> None:
    journal = tmp_path / "harvest.db"
    with Decider(slurm_cluster, journal) as decider:
        decider.look()
        decider.tell({"event": "task_submitted", "spec": TASK})
        assert set(decider.answer("start")["nodes"]) == set(slurm_cluster.nodes)

        job = slurm_cluster.submit("sleep 300", "--nodes=2", "--exclusive")
        wait_until(lambda: len(slurm_cluster.idle()) == 2, "Slurm gave the job two nodes", slurm_cluster.logs)
        taken = set(slurm_cluster.nodes) - slurm_cluster.idle()
        decider.look()
        assert set(decider.answer("release")["nodes"]) == taken
        shrunk = decider.answer("shrink")
        assert set(shrunk["nodes"]) == taken
        assert shrunk["cause"] == "preempted"

        slurm_cluster.run("scancel", job)
        wait_until(lambda: len(slurm_cluster.idle()) == 4, "the nodes are idle again", slurm_cluster.logs)
        decider.look()
        assert set(decider.answer("grow")["nodes"]) == taken

    verified = json.loads(slurm_cluster.run(PROGRAM, "journal", "verify", str(journal), "--json").stdout)
    assert verified == {"steps": 4, "different": []}
