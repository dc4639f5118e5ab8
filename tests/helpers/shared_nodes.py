"""A live run that watches the nodes of a Slurm of the tests, agents on all of them, and how long jobs share a node."""

from __future__ import annotations

import os
import random
import subprocess
import threading
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from bftrain_elastic.agent.process_tree import children, state_of
from tests.helpers.live_run import LiveRun, ordinary
from tests.helpers.schedulers import install_hook
from tests.helpers.slurm import Slurm, wait_until

HOOKS: Final = "PrologSlurmctld={home}/hook\nEpilogSlurmctld={home}/hook\n"
SITE: Final = """\
name = "shared"
folder = "{{folder}}/shared"
state = "{{folder}}/state"

[scheduler]
name = "slurm-nodes"
spool = "{spool}"

[agents]
python = "{{python}}"
preload = []
port = {port}
"""
# Needs no torch: which launcher it is does not matter here
SCRIPT: Final = """\
import time

from bftrain_elastic import report

while True:
    time.sleep(0.05)
    report(samples=4)
"""
_LOOK_S: Final = 0.01


class WatchedNodes:
    """Slurm, a live run with ``slurm-nodes`` and both hooks, and an agent on each node that is started again."""

    def __init__(self, nodes: int, folder: Path) -> None:
        self.cluster = Slurm(nodes=nodes, more_settings=HOOKS)
        user = ordinary()
        spool, hook = self.cluster.home / "spooled", self.cluster.home / "hook"
        install_hook("slurm", spool=spool, hook=hook, owner=user.name)
        self.port = random.SystemRandom().randrange(32_000, 32_700)
        self.live = LiveRun(self.cluster, SITE.format(spool=spool, port=self.port))
        self.jobs = folder / "jobs"
        self.jobs.mkdir()
        self._submitted = 0
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._seen: dict[str, list[float]] = defaultdict(list)  # node -> when there was a worker
        self._end = threading.Event()

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        self.live.__enter__()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._look, self._serve)]
        for thread in self._threads:
            thread.start()
        self.live.until(lambda: self.live.asked("status")["agents"] == len(self.cluster.nodes), "agents came")
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        for agent in self._agents.values():
            agent.terminate()
            agent.wait()
        self.live.__exit__()
        self.cluster.stop()

    def train(self) -> None:
        """Hand in a task for all nodes, and wait until it has them."""
        (self.live.folder / "train.py").write_text(SCRIPT)
        words = ("--name", "train", "--nodes", f"1:{len(self.cluster.nodes)}", "--launcher", "process")
        self.live.call("submit", "train.py", *words)
        self.trains()

    def trains(self) -> None:
        """Wait until the task makes steps."""
        step = self.live.tasks()["train"]["step"]
        self.live.until(lambda: self.live.tasks()["train"]["step"] > step, "it trains")

    def submit(self, chance: random.Random) -> None:
        """Submit a main job that writes down where it ran, and from when to when."""
        self._submitted += 1
        file = self.jobs / str(self._submitted)
        words = f"echo $SLURM_JOB_NODELIST $(date +%s.%N) > {file}.part; sleep {chance.uniform(1, 8):.2f}"
        nodes = chance.randint(1, max(1, len(self.cluster.nodes) // 2))
        self.cluster.submit(f"{words}; date +%s.%N >> {file}.part; mv {file}.part {file}", f"-N{nodes}", "--exclusive")

    def run(self, jobs: int, chance: random.Random) -> None:
        """Submit main jobs one after the other, and wait until all are over."""
        for _ in range(jobs):
            self.submit(chance)
            time.sleep(chance.uniform(0.0, 2.0))
        wait_until(lambda: len(self._over()) == self._submitted, "all main jobs ran", self.cluster.logs)

    def run_without_daemon(self, jobs: int, chance: random.Random) -> None:
        """Kill the daemon while it trains, submit main jobs at once, and start it again when they are over."""
        self.trains()
        self.live.kill()
        self.run(jobs, chance)
        self.live.start()

    def _over(self) -> list[Path]:
        return [file for file in self.jobs.iterdir() if not file.suffix]

    def shared_s(self) -> list[float]:
        """Return by job and node the seconds for which a worker was on the node after the job began."""
        found = []
        for file in self._over():
            nodes, began, ended = file.read_text().split()
            for node in self.cluster.run("scontrol", "show", "hostnames", nodes).stdout.split():
                there = [at for at in self._seen[node] if float(began) <= at <= float(ended)]
                found.append(max(there, default=float(began)) - float(began))
        return found

    def _serve(self) -> None:
        """Keep an agent on each node, as a service of the system does."""
        user, live = self.live.user, self.live
        while not self._end.wait(0.5):
            for node in self.cluster.nodes:
                agent = self._agents.get(node)
                if (agent is not None and agent.poll() is None) or not (live.folder / "shared/secret").exists():
                    continue
                words = ["--manager", f"127.0.0.1:{self.port}", "--secret", str(live.folder / "shared/secret")]
                with (live.folder / "agents.log").open("ab") as log:
                    self._agents[node] = subprocess.Popen(
                        [user.python, "-m", "bftrain_elastic.agent", *words, "--node", node, "--preload", ""],
                        env=live.env,
                        cwd="/",
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        user=user.uid,
                        group=user.gid,
                        extra_groups=[] if os.geteuid() == 0 else None,
                    )

    def _look(self) -> None:
        """Write down when there is a worker on a node: a child of the prefork server of its agent."""
        while not self._end.wait(_LOOK_S):
            for node, agent in list(self._agents.items()):
                with suppress(OSError):
                    workers = [worker for prefork in children(agent.pid) for worker in children(prefork)]
                    if any(state_of(worker) not in {"", "Z"} for worker in workers):
                        self._seen[node].append(time.time())


def shared(folder: Path, jobs: int, kills: int, *, nodes: int) -> dict[str, float]:
    """Run main jobs of 1 to 8 s beside a training, half of them after kills of the daemon; give what was measured."""
    chance = random.Random(1)  # noqa: S311 - jobs of a test
    with WatchedNodes(nodes, folder) as watched:
        watched.train()
        watched.run(jobs - jobs // 2, chance)
        alive_s = watched.shared_s()
        for _ in range(kills):
            watched.run_without_daemon(jobs // 2 // kills, chance)
        all_s = watched.shared_s()
        watched.trains()
        status = watched.live.asked("status")
    return {
        "main jobs": jobs,
        "starts of them on a node": len(all_s),
        "longest on a node with a worker, s": max(alive_s),
        "the same with kills of the daemon, s": max(all_s),
        "remarks": len(status["remarks"]),
    }
