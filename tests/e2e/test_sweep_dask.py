"""A sweep on a real Dask cluster: the same table, even if its workers are killed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import pytest

from tests.helpers.program import bftrain, environment, start
from tests.helpers.sweeping import SPEC, at_work, outcomes, prepare, release, repeatable, wait_until

pytestmark = pytest.mark.skipif(find_spec("distributed") is None, reason="Dask is not installed: pip install '.[dask]'")

HERE = ("--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0", "--no-dashboard")
SLOW = SPEC.replace('["gate.py:free", "gate.py:held"]', '["gate.py:slow"]').replace("[1, 3]", "[1, 2, 3]")


class Cluster:
    """A scheduler and two workers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.file = folder / "scheduler.json"
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        self._start("scheduler", "dask_scheduler", "--scheduler-file", str(self.file), "--port", "0")
        wait_until(lambda: self.file.exists() and self.file.stat().st_size > 0, "the scheduler has its file")
        self.address = json.loads(self.file.read_text())["address"]
        for name in ("w1", "w2"):
            self.start_worker(name)
        return self

    def start_worker(self, name: str) -> None:
        self._start(name, "dask_worker", self.address, "--name", name, "--nthreads", "1", "--no-nanny")

    def _start(self, name: str, module: str, *arguments: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                [sys.executable, "-m", f"distributed.cli.{module}", *arguments, *HERE],
                cwd=self._folder,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def replace_worker(self, name: str, new_name: str) -> None:
        """Kill a worker, and start another."""
        lost = self.processes.pop(name)
        lost.kill()
        lost.wait()
        self.start_worker(new_name)

    def client(self) -> Any:  # noqa: ANN401 - a class without types
        from distributed import Client  # noqa: PLC0415 - slow to import, and may be missing

        return Client(self.address, set_as_default=False)

    def __exit__(self, *_: object) -> None:
        for process in reversed(self.processes.values()):
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("dask")) as running:
        yield running


def test_the_table_is_the_same_to_the_byte(cluster: Cluster, tmp_path: Path) -> None:
    """Of inputs that are sent to the workers, and of inputs that these generate."""
    text = SPEC.replace('log = "log.npz"', "logs = { made = { nodes = 8, days = 0.1 } }")
    prepare(tmp_path, text.replace("max_tasks = [1, 3]", 'max_tasks = [3]\nlog = ["log.npz", "made"]\nseed = [1, 2]'))
    release(tmp_path)
    here = bftrain("sweep", "sweep.toml", "-o", "here", "--jobs", "2", "-q", cwd=tmp_path)
    there = bftrain("sweep", "sweep.toml", "-o", "there", "--dask", cluster.file, cwd=tmp_path, PYTHONWARNINGS="error")
    assert (here.code, there.code, there.err.splitlines()[-1]) == (0, 0, "result: there")
    assert repeatable(tmp_path / "here") == repeatable(tmp_path / "there")
    summaries = [json.loads((tmp_path / f"{name}/sweep.json").read_text()) for name in ("here", "there")]
    assert summaries[0] == summaries[1]


def test_what_a_lost_worker_had_in_hand_is_done_by_another(cluster: Cluster, tmp_path: Path) -> None:
    prepare(tmp_path)
    running = start("sweep", "sweep.toml", "-o", "out", "--dask", cluster.address, cwd=tmp_path)
    wait_until(lambda: len(at_work(tmp_path)) == 2, "both workers are held")
    (tmp_path / "log.npz").unlink()  # it was read once, and lies on the cluster
    (tmp_path / "tasks.toml").unlink()
    cluster.replace_worker("w1", "w3")
    release(tmp_path)
    _, err = running.communicate(timeout=180)
    assert running.returncode == 0, err
    assert {one["status"] for one in outcomes(tmp_path / "out")} == {"done"}


def test_a_pass_that_kills_every_worker_fails(cluster: Cluster, tmp_path: Path) -> None:
    spec = SPEC.replace("gate.py:held", "gate.py:deadly").replace("[1, 3]", "[1]")
    prepare(tmp_path, spec.replace('baseline = "greedy"', "yardsticks = false"))
    deadly = "def deadly(task, sizes):\n    os._exit(1)\n"
    (tmp_path / "gate.py").write_text((tmp_path / "gate.py").read_text() + deadly)
    running = start("sweep", "sweep.toml", "-o", "out", "--dask", cluster.address, cwd=tmp_path)
    number = 3
    while running.poll() is None:
        for name, process in list(cluster.processes.items()):
            if process.poll() is not None:
                del cluster.processes[name]
                number += 1
                cluster.start_worker(f"w{number}")
        time.sleep(0.1)
    _, err = running.communicate()
    assert running.returncode == 1, err
    assert b"1 of 2 points failed" in err
    done, died = sorted(one.get("reason", "") for one in outcomes(tmp_path / "out"))
    assert done == ""
    assert "on 4 different workers, but all those workers died while running it" in died


def test_an_interrupted_sweep_leaves_the_workers_free(cluster: Cluster, tmp_path: Path) -> None:
    prepare(tmp_path, SLOW)
    running = start("sweep", "sweep.toml", "-o", "out", "--dask", cluster.address, cwd=tmp_path)
    wait_until(lambda: len(at_work(tmp_path)) == 2, "both workers are at work")
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=180)
    assert running.returncode == 130
    assert b"Traceback" not in err
    with cluster.client() as client:
        wait_until(lambda: not any(client.processing().values()), "no worker has anything to do")
    release(tmp_path)
    assert bftrain("sweep", "sweep.toml", "-o", "out", "--dask", cluster.address, cwd=tmp_path).code == 0
