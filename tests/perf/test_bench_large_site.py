"""A large site: how fast it restarts and takes tasks, and what operators notice of an attack on its doors."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from bftrain import Client, Run, SpeedCurve, Submission
from bftrain.config import LiveSettings
from bftrain.live.model.site_config import Api
from tests.helpers.figures import Figures
from tests.helpers.live_inside import World
from tests.helpers.live_thread import live_thread

pytestmark = pytest.mark.bench

NODES: Final = tuple(f"node{number:04}" for number in range(4608))
TASKS: Final = 100
CURVE: Final = SpeedCurve(nodes=(1, 2, 4, 8, 16, 32, 64), rate=(1, 2, 3.9, 7.5, 14, 26, 50))
SILENT: Final = 10_000
OF_ANOTHER: Final = 600
ATTACK_S: Final = 20.0

# Opens so many connections, says how many it has, and keeps them until its input ends
ATTACKER: Final = """
import os, resource, socket, sys
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
family, address, count, uid = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
if family == "unix":
    os.chdir(os.path.dirname(address))  # before its rights are gone: the folders above are closed to it
    address = os.path.basename(address)
else:
    address = ("127.0.0.1", int(address))
if uid != os.getuid():
    os.setgid(uid)
    os.setuid(uid)
held = []
for _ in range(count):
    one = socket.socket(socket.AF_UNIX if family == "unix" else socket.AF_INET)
    one.settimeout(5)
    try:
        one.connect(address)
    except OSError:
        continue
    held.append(one)
print(len(held), flush=True)
sys.stdin.read()
"""


def a_task(number: int) -> Submission:
    return Submission(run=Run(argv=("train.py",)), name=f"t{number}", min_nodes=1, max_nodes=64, curve=CURVE)


def test_a_large_site_restarts_and_takes_tasks(figures: Figures, tmp_path: Path) -> None:
    world, deciding = World(), LiveSettings(max_tasks=TASKS)
    with live_thread(tmp_path, world, deciding=deciding) as run:
        run.do(lambda inside: inside.world.lend(*NODES))
        client = Client(run.socket)
        begun = time.perf_counter()
        for number in range(TASKS):
            client.submit(a_task(number))
        submitted_s = time.perf_counter() - begun
        run.do(lambda _: None)
    figures.add(f"{TASKS} submits by the socket, on {len(NODES):,} nodes", submitted_s, "s")
    begun = time.perf_counter()
    with live_thread(tmp_path, world, deciding=deciding) as run:
        client = Client(run.socket)
        tasks = client.tasks()
        restarted_s = time.perf_counter() - begun
    assert sum(task.size for task in tasks) == len(NODES)
    figures.add(f"restart with {len(NODES):,} nodes and {TASKS} tasks, until it answers with all", restarted_s, "s")
    assert submitted_s < 10
    assert restarted_s < 15


def test_an_attack_on_its_doors(figures: Figures, tmp_path: Path) -> None:
    """Silent connections over TCP, and those of another user at the socket: operators are answered all the same."""
    times: list[float] = []
    with live_thread(tmp_path, api=Api(tcp="127.0.0.1:0", mode="666")) as run, ExitStack() as attackers:

        def attack(*words: object) -> subprocess.Popen[str]:
            argv = [sys.executable, "-c", ATTACKER, *map(str, words)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            return attackers.enter_context(subprocess.Popen(argv, text=True, **pipes))  # type: ignore[call-overload]  # pipes

        running = [attack("tcp", run.http.rpartition(":")[2], SILENT, os.getuid())]
        if os.getuid() == 0:
            running.append(attack("unix", run.socket, OF_ANOTHER, 65_534))
        end = time.monotonic() + ATTACK_S
        while time.monotonic() < end:
            begun = time.perf_counter()
            client = Client(run.socket)
            client.status()
            times.append(time.perf_counter() - begun)
            time.sleep(0.02)
        held = [process.communicate()[0].strip() for process in running]
    what = f"{SILENT:,} silent connections, {OF_ANOTHER} of another user"
    for share in (50, 99, 100):
        figures.add(f"{what}: an operator's answer, p{share}", 1e3 * float(np.percentile(times, share)), "ms")
    figures.add(f"{what}: answers, all of them", len(times))
    assert int(held[0]) > SILENT // 2
    assert max(times) < 5
