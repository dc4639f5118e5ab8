"""What a change of size costs by the size of the state, beside a raw broadcast of as many bytes at the same time."""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import median
from typing import TYPE_CHECKING

import pytest

from bftrain_elastic import conformance
from bftrain_elastic.manager import launchers
from bftrain_elastic.manager.speed_measurement import SpeedMeasurement

if TYPE_CHECKING:
    from pathlib import Path

    from tests.helpers.figures import Figures

pytestmark = [pytest.mark.bench, pytest.mark.torch]

ROUNDS = 5
BAR, BAR_S = 2.0, 0.1  # times a raw broadcast, and beside that
PATIENCE_S = 180.0

# A model in pieces of 4 MB and the two tensors of the same size that Adam keeps for each
SCRIPT = """
import sys, time, torch
import torch.distributed as dist
from bftrain_elastic import State, report, run
torch.set_num_threads(1)
left, parts = int(float(sys.argv[1]) * 1e6 / 12), []
while left:
    parts.append(torch.nn.Parameter(torch.full((min(left, 1 << 20),), 0.5)))
    left -= len(parts[-1])
model = torch.nn.ParameterList([*parts, torch.nn.Parameter(torch.zeros(8))])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

def train(state):
    if state.position == 0:
        for one in model:
            one.grad = torch.full_like(one, 0.1)
        optimizer.step()
        optimizer.zero_grad()
    while True:
        time.sleep(0.02)
        model[-1].grad = torch.ones(8)
        if state.workers > 1:
            dist.all_reduce(model[-1].grad)
        optimizer.step()
        state.position += 1
        report(samples=8)
        state.commit()

run(State(model=model, optimizer=optimizer, position=0), train)
"""

# A member of a group of two that broadcasts so many bytes: it prints the median of the seconds that it takes
RAW = """
import os, sys, time, torch
import torch.distributed as dist
from datetime import timedelta
rank, port, size = int(sys.argv[1]), int(sys.argv[2]), int(float(sys.argv[3]) * 1e6)
torch.set_num_threads(1)
store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
if rank == 0:
    print(store.port, flush=True)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=timedelta(minutes=5))
box, took = torch.full((size,), rank, dtype=torch.uint8), []
for _ in range(5):
    dist.barrier()
    begun = time.perf_counter()
    dist.broadcast(box, src=0)
    dist.barrier()
    took.append(time.perf_counter() - begun)
print(sorted(took)[2], flush=True)
os._exit(0)  # PyTorch may abort at the end of one whose peer ended first
"""


def raw_s(mb: float) -> float:
    """Return how long it takes to broadcast so many bytes from one process to another."""
    command = [sys.executable, "-c", RAW]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo"}
    first = subprocess.Popen([*command, "0", "0", str(mb)], stdout=subprocess.PIPE, text=True, env=environment)
    assert first.stdout is not None
    port = first.stdout.readline().strip()
    subprocess.run([*command, "1", port, str(mb)], check=True, env=environment, stdout=subprocess.DEVNULL)
    said, _ = first.communicate(timeout=PATIENCE_S)
    return float(said)


def changed(mb: float, folder: Path) -> tuple[SpeedMeasurement, float]:
    """Grow 1 -> 2 and shrink again, so often; return what that cost, and how long steps stood still for a save."""
    script = folder / "script.py"
    script.write_text(SCRIPT)
    with conformance.LocalStage(launchers.native, (str(script), str(mb)), nodes=("n1", "n2")) as stage:
        task = stage.new()

        def steps(size: int, count: int) -> None:
            before = len(stage.messages.of("report", task))
            stage.messages.until(
                lambda: [one["size"] for one in stage.messages.of("report", task)[before:]].count(size) >= count,
                f"{count} steps at size {size}",
                PATIENCE_S,
            )

        stage.do("start", task, "n1")
        steps(1, 12)
        stage.messages.until(lambda: bool(stage.messages.of("on_disk", task)), "it is on disk", PATIENCE_S)
        for _ in range(ROUNDS):
            stage.do("grow", task, "n2")
            steps(2, 6)
            stage.do("shrink", task, "n2", cause="decided")
            steps(1, 12)
        measuring, stood_s = SpeedMeasurement(), [0.0]
        last = None
        for one in stage.messages.of("report", task):
            measuring.on_message(one)
            if last and last["size"] == one["size"] == 1:
                stood_s.append(one["t"] - last["t"])
            last = one
    return measuring, max(stood_s)


@pytest.mark.parametrize("mb", [10, 100, 500, 1000])
def test_growth_costs_little_more_than_the_wire(mb: float, tmp_path: Path, figures: Figures) -> None:
    before = raw_s(mb)
    measuring, stood_s = changed(mb, tmp_path)
    wire_s = (before + raw_s(mb)) / 2  # the machine may be busier now
    costs = measuring.changes()
    grow_s, shrink_s = median(costs["grow"]), median(costs["shrink"])
    figures.add(f"{mb} MB: raw broadcast", wire_s, "s")
    figures.add(f"{mb} MB: grow 1 -> 2, median of {len(costs['grow'])}", grow_s, "s")
    figures.add(f"{mb} MB: grow less {BAR_S} s, times a raw broadcast", (grow_s - BAR_S) / wire_s)
    figures.add(f"{mb} MB: shrink 2 -> 1, median", shrink_s, "s")
    figures.add(f"{mb} MB: longest time between two steps of 0.02 s", stood_s, "s")
    assert grow_s <= BAR * wire_s + BAR_S
    assert shrink_s <= BAR_S
