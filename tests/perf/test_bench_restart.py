"""A restart with an agent on each of 4,608 nodes: until all tasks and agents are known, and the first decision."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import pytest

from bftrain import Client, NotAvailable, Run, SpeedCurve, Submission
from bftrain_elastic.wire.network_interfaces import free_port
from tests.helpers.fake_slurm import fake_slurm
from tests.helpers.figures import Figures

pytestmark = pytest.mark.bench

NODES: Final = 4608
TASKS: Final = 100
RESTARTS: Final = 3
REST_S: Final = 10.0
PATIENCE_S: Final = 120.0
MOST: Final = 0.98  # of the nodes: a task may hold fewer than it could while its speed is learned
CURVE: Final = SpeedCurve(nodes=(1, 2, 4, 8, 16, 32, 64), rate=(1, 2, 3.9, 7.5, 14, 26, 50))
SITE: Final = """\
state = "{folder}/state"
folder = "{folder}/shared"
launcher = "process"
[scheduler]
name = "slurm"
partition = "pilot"
[agents]
port = {port}
preload = []
[deciding]
max_tasks = 100
"""


class LargeSite:
    """A live run beside commands of Slurm that say the same all the time, and agents in one other process."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port("127.0.0.1")
        self.nodes = [f"node{number:04}" for number in range(1, NODES + 1)]
        programs = fake_slurm(folder, "bftrain", self.nodes)
        self.env = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}
        (folder / "site.toml").write_text(SITE.format(folder=folder, port=self.port))
        self.client = Client(str(folder / "state" / "api.sock"))
        self.daemon: subprocess.Popen[bytes]
        self.agents: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        for process in filter(None, (self.daemon, self.agents)):
            process.kill()
            process.communicate()

    def start(self) -> float:
        """Start the daemon; return when."""
        begun = time.monotonic()
        argv = [sys.executable, "-m", "bftrain", "live", "--config", str(self.folder / "site.toml")]
        with (self.folder / "live.log").open("ab") as log:
            self.daemon = subprocess.Popen(argv, env=self.env, stdout=log, stderr=log)
        return begun

    def connect(self) -> None:
        argv = [sys.executable, "-m", "tests.helpers.stub_agents", "127.0.0.1", str(self.port)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        secret = str(self.folder / "shared" / "secret")
        with (self.folder / "agents.log").open("ab") as log:
            self.agents = subprocess.Popen([*argv, secret, *self.nodes], stderr=log, **pipes)

    def counts(self) -> dict[str, int]:
        assert self.agents is not None
        assert self.agents.stdin is not None
        assert self.agents.stdout is not None
        self.agents.stdin.write("\n")
        self.agents.stdin.flush()
        counts: dict[str, int] = json.loads(self.agents.stdout.readline())
        return counts

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Wait until ``true``, while the daemon runs."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with suppress(NotAvailable):
                if true():
                    return
            tell = (self.folder / "live.log").read_text()[-2000:]
            assert self.daemon.poll() is None, tell
            assert time.monotonic() < deadline, f"{what}: {tell}"
            time.sleep(0.02)

    def whole(self) -> bool:
        """Return whether all agents are there, and something was decided since the start."""
        status = self.client.status()
        return status.agents == NODES and status.state == "running" and status.decision is not None

    def used_s(self) -> float:
        fields = Path(f"/proc/{self.daemon.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_restart_with_all_agents(figures: Figures, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "state").mkdir(mode=0o700)
    with LargeSite(tmp_path) as site:
        site.until(lambda: site.client.status().state == "running", "it answers")
        begun = time.monotonic()
        for number in range(TASKS):
            most = NODES // TASKS + (number < NODES % TASKS)
            run = Run(argv=("/bin/true",))
            site.client.submit(Submission(run=run, name=f"t{number}", min_nodes=1, max_nodes=most, curve=CURVE))
        figures.add(f"{TASKS} submits by the socket, beside {NODES:,} nodes", time.monotonic() - begun, "s")
        begun = time.monotonic()
        site.connect()
        site.until(site.whole, "all agents come")
        figures.add(f"{NODES:,} agents come at once: until all are there", time.monotonic() - begun, "s")
        site.until(lambda: site.counts()["running"] > MOST * NODES, "workers run")
        used_s = site.used_s()
        time.sleep(REST_S)
        rest = (site.used_s() - used_s) / REST_S
        figures.add(f"at rest, {NODES:,} agents and {TASKS} tasks: share of a core", 100 * rest, "%")
        before = site.counts()
        took = []
        for _ in range(RESTARTS):
            site.daemon.kill()
            site.daemon.wait()
            begun = site.start()
            site.until(site.whole, "all are back")
            took.append(time.monotonic() - begun)
            figures.add(f"restart with {NODES:,} agents, {TASKS} tasks: until a decision", took[-1], "s")
            figures.add("of that the daemon's processor time", site.used_s(), "s")
            tasks = site.client.tasks()
            assert len(tasks) == TASKS
            assert sum(task.size for task in tasks) > MOST * NODES
            assert site.counts()["started"] == before["started"], "nothing is started again"
    assert max(took) < PATIENCE_S
