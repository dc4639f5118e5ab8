"""What harvesting costs those who use a Slurm: how long their jobs wait, and how soon a node is free."""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import pytest

from bftrain.live.schedulers.hooks import HookListener, HookNews, HookSpool
from bftrain_elastic.agent.process_tree import descendants
from bftrain_elastic.manager import launchers
from tests.helpers import torch
from tests.helpers.figures import Figures
from tests.helpers.live_run import LiveRun
from tests.helpers.pilots import Pilots, end_all
from tests.helpers.preemptions import busy_machine
from tests.helpers.schedulers import install_hook
from tests.helpers.slurm import Slurm, wait_until

pytestmark = [pytest.mark.bench, pytest.mark.slurm]

NODES: Final = 8
HOOKS: Final = 300
# One after the other takes 1.7 s each, 1 s of that to meet all phases of Slurm's cycle: 13 minutes for twice 200
AT_ONCE: Final = {"sbatch": 4, "srun": 2}
# Backfill as often as Slurm does it by itself. If it comes every second, as in other tests, it gives idle nodes that a
# job is just about to get to pilots that wait, and the job has to take them back again
SCHEDULING: Final = "bf_interval=30,sched_interval=60,batch_sched_delay=0"
TIMES: Final = "slurmctld.times"  # its log once more, with times
# What agents import for their workers -> how often such a one is preempted; torch takes seconds, which all share here
PREEMPTIONS: Final = {"": 200} if torch.lacking() else {"torch": 40, "": 160}

SITE: Final = """\
name = "bench"
folder = "{folder}/shared"
state = "{folder}/state"

[scheduler]
name = "slurm"
partition = "pilot"
RESERVE

[agents]
python = "{python}"
preload = []
"""
# It holds every node there is and would take more, so that pilots wait for each that becomes idle. It leaves the
# processors, which all nodes share here, to Slurm
TASK: Final = f"""\
name = "everywhere"
command = "sleep"
args = ["100000"]
launcher = "process"
nodes = "1:{2 * NODES}"
curve = {{nodes = [1, {2 * NODES}], rate = [100.0, {2 * NODES}00.0]}}
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Slurm]:
    times = f"SlurmctldLogFile={{home}}/{TIMES}\nLogTimeFormat=iso8601_ms\n"
    with Slurm(nodes=NODES, more_settings=times, scheduling=SCHEDULING) as own:
        yield own


def holding(live: LiveRun) -> int:
    return len(live.tasks()["everywhere"]["nodes"])


@contextmanager
def harvesting(cluster: Slurm, *, reserve: int = 0) -> Iterator[LiveRun]:
    """Have a task run on all nodes but ``reserve``, by bftrain live, while this is open."""
    with LiveRun(cluster, SITE.replace("RESERVE", f"reserve = {reserve}")) as live:
        (live.folder / "task.toml").write_text(TASK, encoding="utf-8")
        live.call("submit", "task.toml")
        live.until(lambda: holding(live) == NODES - reserve, "it holds the nodes")
        yield live
        live.until(lambda: holding(live) > 0, "it comes back", 30)
        assert live.end() == 0, live.tell()
        live.gone()


@pytest.mark.parametrize("loops", [0, 2], ids=["quiet", "busy"])
@pytest.mark.parametrize(("by", "jobs", "reserve"), [("sbatch", 200, 0), ("srun", 60, 0), ("srun", 60, 2)])
def test_main_jobs_wait_no_longer_because_of_harvesting(
    cluster: Slurm, figures: Figures, by: str, jobs: int, reserve: int, loops: int
) -> None:
    """By turns with and without it, as operators measure it; also beside so many busy loops for each processor."""
    words = ("--jobs", f"{jobs}", "--block", f"{jobs // 10}", "--by", by, "--partition", "main", "--gap", "0.2")
    words += ("--at-once", f"{AT_ONCE[by]}")
    end_all(cluster)
    with harvesting(cluster, reserve=reserve) as live, busy_machine(loops * (os.cpu_count() or 1)):
        begun = time.monotonic()
        done = live.call("live", "measure", *words, "--yes", "--json", patience_s=3600)
        took_s = time.monotonic() - begun
    found = json.loads(done.stdout)
    name = f"{by}{f', reserve = {reserve}' if reserve else ''}{f', beside {loops} loops a core' if loops else ''}"
    figures.add(f"{name}: all of it took", took_s, "s")
    compared = {one["name"]: one for one in found["compared"]}
    for what in ("median", "p95"):
        one = compared[what]
        figures.add(f"{name}: {what} wait of {jobs} without harvesting", one["without_s"], "s")
        figures.add(f"{name}: {what} wait with it", one["with_s"], "s")
        figures.add(f"{name}: least and most that it adds, with 95 % confidence: {what}", one["low_s"], "s")
        figures.add(f"{name}: the most", one["high_s"], "s")
    for step in found["steps"]:
        figures.add(f"{name}: {step['name']}: p99", step["p99_s"] * 1000, "ms")
    if by == "sbatch" or reserve:
        assert compared["median"]["low_s"] <= 0.2, "most of it is Slurm's own: a pilot's end, and the next schedule"
        assert compared["p95"]["low_s"] <= 0.2


def test_a_hook_takes_no_time_with_or_without_a_reader(tmp_path: Path, figures: Figures) -> None:
    """Slurm runs it at each end of a job; it is compared with a script that does nothing."""
    spool, hook, nothing = tmp_path / "spool", tmp_path / "hook", tmp_path / "nothing"
    tmp_path.chmod(0o700)
    install_hook("slurm", spool=spool, hook=hook)
    nothing.write_text("#!/bin/sh\nexit 0\n")
    nothing.chmod(0o755)
    heard: list[HookNews] = []
    listener = HookListener(HookSpool(spool), heard.extend, lambda _: None)

    def once(script: Path, job: int) -> float:
        env = {
            "SLURM_JOB_ID": f"{job}",
            "SLURM_JOB_NODELIST": "nid[0001-0004]",
            "SLURM_SCRIPT_CONTEXT": "epilog_slurmctld",
        }
        begun = time.monotonic()
        subprocess.run([script], env=env, check=True)
        return time.monotonic() - begun

    took: dict[str, list[float]] = {"nothing": [], "unread": [], "read": []}
    for job in range(HOOKS):
        took["nothing"].append(once(nothing, job))
        took["unread"].append(once(hook, job))
    assert [path.name for path in spool.iterdir()] == []
    listener.start()
    try:
        took["read"] = [once(hook, job) for job in range(HOOKS)]
        wait_until(lambda: len(heard) == HOOKS, "all is heard")
    finally:
        listener.stop()
    for name in ("nothing", "unread", "read"):
        figures.add(f"hook, {name}: median", statistics.median(took[name]) * 1000, "ms")
        figures.add(f"hook, {name}: p99", statistics.quantiles(took[name], n=100)[-1] * 1000, "ms")
    assert statistics.median(took["unread"]) < statistics.median(took["nothing"]) + 0.001
    assert statistics.median(took["read"]) < statistics.median(took["nothing"]) + 0.002


def test_from_sigterm_to_a_free_node(cluster: Slurm, tmp_path: Path, figures: Figures) -> None:
    """A node is free when nothing of ours is on it: agent, prefork server, and workers that end only when killed."""
    took: list[float] = []
    whole: list[float] = []
    for preload, count in PREEMPTIONS.items():
        end_all(cluster)
        some: list[float] = []
        with Pilots(cluster, tmp_path / f"site-{preload}", preload=preload, pending=4) as pilots:
            launcher = launchers.process(pilots.messages.append, pilots.hub)
            turn = 0
            while len(some) < count:
                turn += 1
                pilots.wait_for(cluster.nodes)
                fresh, since_decided = preempted(pilots, launcher, f"stubborn{turn}", tmp_path / preload)
                some += fresh
                whole += since_decided
            launcher.close()
            pilots.ask(pilots.scheduler.leave())
        figures.add(
            f"SIGTERM to node free, {preload or 'nothing'} loaded: median", statistics.median(some) * 1000, "ms"
        )
        took += some
    p99 = statistics.quantiles(took, n=100)[-1]
    figures.add(f"SIGTERM to node free: p99 of {len(took)}", p99 * 1000, "ms")
    figures.add("SIGTERM to node free: longest", max(took) * 1000, "ms")
    figures.add("Slurm's decision to node free: median", statistics.median(whole) * 1000, "ms")
    figures.add("Slurm's decision to node free: p99", statistics.quantiles(whole, n=100)[-1] * 1000, "ms")
    assert len(took) >= 200
    assert p99 < 0.5


def preempted(pilots: Pilots, launcher: Any, task: str, folder: Path) -> tuple[list[float], list[float]]:  # noqa: ANN401 - a launcher
    """Let a main job take four nodes; give how long it took until nothing of ours was there any more.

    First from the goodbye of each agent, which is the first thing that it does with the signal; then from the moment
    in which Slurm decided to take them all.
    """
    cluster = pilots.cluster
    nodes = cluster.nodes
    stubborn = "trap '' TERM INT HUP; while :; do sleep 60; done"
    launcher.add(task, {"argv": ["sh", "-c", stubborn], "folder": str(folder / task)})
    launcher.apply([{"action": "start", "task": task, "nodes": list(nodes)}])
    registered = [one for one in pilots.messages if one["type"] == "registered"]
    agents = {node: next(one["pid"] for one in reversed(registered) if one["node"] == node) for node in nodes}
    wait_until(lambda: all(workers(pid) for pid in agents.values()), "workers run everywhere", pilots.tell)
    pids = {node: {pid, *descendants(pid)} for node, pid in agents.items()}
    begun = time.time()
    job = cluster.submit("sleep 600", "--nodes=4", "--exclusive")
    free_at: dict[str, float] = {}
    deadline = time.monotonic() + 60
    while len(free_at) < 4:
        assert time.monotonic() < deadline, pilots.tell()
        for node in set(nodes) - set(free_at):
            if not any(os.path.exists(f"/proc/{pid}") for pid in pids[node]):  # noqa: PTH110 - called often
                free_at[node] = time.time()
        time.sleep(0.002)
    said = {node: pilots.gone_at(node, begun) for node in free_at}
    launcher.drop(task)
    cluster.run("scancel", job)
    wait_until(lambda: not cluster.run("squeue", "-h", "-p", "main").stdout, "the main job is gone", cluster.logs)
    goodbyes = [max(0.0, at - goodbye) for node, at in free_at.items() if (goodbye := said[node]) is not None]
    return goodbyes, [at - decided_at(cluster, job) for at in free_at.values()]


def decided_at(cluster: Slurm, job: str) -> float:
    """Return when Slurm decided to take the first node for a job."""
    words = rf"\[(\S+)\] preempted JobId=\S+ has been killed to reclaim resources for JobId={job}$"
    times = re.findall(words, (cluster.home / TIMES).read_text(encoding="utf-8"), re.MULTILINE)
    return min(datetime.fromisoformat(at).timestamp() for at in times)


def workers(agent: int) -> list[int]:
    """Return the processes of workers below an agent: those that are not its prefork server."""
    return [pid for pid in descendants(agent) if b"trap" in Path(f"/proc/{pid}/cmdline").read_bytes()]
