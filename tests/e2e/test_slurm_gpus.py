"""GPUs of shared nodes on a real Slurm: a task trains on those that other jobs leave idle, and gives back as many."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from bftrain import Client
from tests.helpers.live_run import LiveRun
from tests.helpers.slurm import Slurm

pytestmark = pytest.mark.slurm

SITE: Final = """\
name = "shared"
folder = "{folder}/shared"
state = "{folder}/state"
launcher = "process"

[scheduler]
name = "slurm"
partition = "pilot"
unit = "gpu"
poll_s = 1

[agents]
python = "{python}"
preload = []
"""
TASK: Final = """\
import os, time
from pathlib import Path
from bftrain_elastic import report

Path(f"{os.environ['WORLD_SIZE']}-{os.environ['RANK']}").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
while True:
    time.sleep(0.05)
    report(samples=1)
"""
MAIN_JOB: Final = "echo $SLURM_JOB_GPUS > {file}; exec sleep 600"


def test_main_jobs_take_as_many_gpus_of_a_node_as_they_ask_for(tmp_path: Path) -> None:
    with Slurm(nodes=1, gpus=4) as cluster, LiveRun(cluster, SITE) as live:
        client = Client(str(live.state / "api.sock"))
        (node,) = cluster.nodes
        script = live.folder / "train.py"
        script.write_text(TASK)
        live.call("submit", str(script), "--nodes", "1:4", "--name", "cnn")

        def train_on(size: int) -> set[str]:
            """Wait until the task trains on so many GPUs, and give what its workers see."""
            seen = [live.folder / f"{size}-{rank}" for rank in range(size)]
            live.until(lambda: len(client.task("cnn").nodes) == size, f"the task has {size} GPUs")
            live.until(lambda: all(file.exists() and file.read_text() for file in seen), "its workers run")
            return {file.read_text() for file in seen}

        def pilots() -> set[str]:
            return set(cluster.run("squeue", "-h", "-r", "-p", "pilot", "-t", "R", "-o", "%A").stdout.split())

        def started(name: str, gpus: int) -> tuple[str, Path]:
            file = tmp_path / name
            return cluster.submit(MAIN_JOB.format(file=file), f"--gres=gpu:{gpus}"), file

        assert train_on(4) == {"0", "1", "2", "3"}
        assert {one.name for one in client.nodes()} == {f"{node}/gpu{number}" for number in range(4)}
        before = pilots()
        for file in live.folder.glob("2-*"):  # of when it grew, if pilots came one by one
            file.unlink()
        two, file = started("two", 2)
        ours = train_on(2)
        live.until(lambda: file.exists() and bool(file.read_text()), "the main job has its GPUs")
        assert ours.isdisjoint(file.read_text().strip().split(","))
        assert len(pilots() & before) == 2, "two pilots were not touched"
        said = live.call("status").stdout
        assert "GPUs" in said
        assert "2 available, 2 of them used" in said

        cluster.run("scancel", two)
        _, file = started("all", 4)
        live.until(lambda: file.exists() and file.read_text() == "0,1,2,3\n", "the next one has the node alone")
        live.until(lambda: not client.task("cnn").nodes, "the task waits")
        assert live.end() == 0, live.tell()
        live.gone()
