"""What a change of size costs on a GPU by the size of the state, beside a raw NCCL broadcast of as many bytes."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median

import pytest

from bftrain_elastic.manager import launchers
from bftrain_elastic.manager.speed_measurement import SpeedMeasurement
from tests.helpers.figures import Figures
from tests.helpers.gpu import PATIENCE_S
from tests.helpers.local_stage import LocalStage

pytestmark = [pytest.mark.torch, pytest.mark.gpu]
ROUNDS = 3
BAR, BAR_S = 2.0, 0.1  # times a raw broadcast; and beside that and what NCCL needs to make a group
SHRINK_S = 0.1
MOST_RAW_MB = 1000  # a longer broadcast takes as much longer

# The same among processes that share the GPU: how long NCCL needs for its first words, and for so many bytes
RAW = """
import os, sys, time, torch
import torch.distributed as dist
rank, members, size = int(sys.argv[1]), int(sys.argv[4]), int(float(sys.argv[3]) * 1e6)
os.environ |= {"NCCL_HOSTID": str(rank), "NCCL_SOCKET_IFNAME": "=lo"}
torch.cuda.set_device(0)
box, one = torch.zeros(size, dtype=torch.uint8, device="cuda"), torch.zeros(1, device="cuda")
store = dist.TCPStore("127.0.0.1", int(sys.argv[2]), is_master=rank == 0, wait_for_workers=False)
dist.init_process_group("nccl", store=store, rank=rank, world_size=members)

def took(*works):
    torch.cuda.synchronize()
    begun = time.perf_counter()
    for work in works:
        work()
    torch.cuda.synchronize()
    return time.perf_counter() - begun

def together():
    dist.all_reduce(one)

group_s, times = took(lambda: dist.broadcast(one, src=0), together), []
for _ in range(3):
    together()
    times.append(took(lambda: dist.broadcast(box, src=0)))
if rank == 1:
    print(group_s, min(times), flush=True)
store.add("received", 1)
if rank:
    store.wait(["end"])  # what was sent is lost if its sender ends
else:
    while store.add("received", 0) < members:
        time.sleep(0.01)
    store.set("end", "yes")
    time.sleep(0.5)
os._exit(0)
"""

SCRIPT = """
import faulthandler, sys, time, torch
faulthandler.dump_traceback_later(30)
import torch.distributed as dist
from bftrain_elastic import State, report, run
left, parts = int(float(sys.argv[1]) * 1e6 / 12), []
while left:
    parts.append(torch.nn.Parameter(torch.full((min(left, 1 << 24),), 0.5, device="cuda")))
    left -= len(parts[-1])
model = torch.nn.ParameterList([*parts, torch.nn.Parameter(torch.zeros(8, device="cuda"))])
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

def train(state):
    if state.position == 0:
        for one in model:
            one.grad = torch.full_like(one, 0.1)
        optimizer.step()
        optimizer.zero_grad()
    while True:
        time.sleep(0.05)
        model[-1].grad = torch.ones(8, device="cuda")
        if state.workers > 1:
            dist.all_reduce(model[-1].grad)
        optimizer.step()
        torch.cuda.synchronize()
        state.position += 1
        report(samples=8)
        state.commit()

run(State(model=model, optimizer=optimizer, position=0), train)
"""


def raw(mb: float, folder: Path, members: int) -> tuple[float, float]:
    """Return how long NCCL needs to make a group with its first broadcast and sum, and to broadcast so many bytes."""
    script = folder / "raw.py"
    script.write_text(RAW)
    from bftrain_elastic.wire.network_interfaces import free_port  # noqa: PLC0415 - of this test alone

    words = [str(free_port("127.0.0.1")), str(min(mb, MOST_RAW_MB)), str(members)]
    commands = [[sys.executable, str(script), str(rank), *words] for rank in range(members)]
    with ExitStack() as running:
        for command in [commands[0], *commands[2:]]:
            one = running.enter_context(subprocess.Popen(command))
            running.callback(one.kill)
        done = subprocess.run(commands[1], check=True, capture_output=True, text=True, timeout=PATIENCE_S)
    group_s, broadcast_s = map(float, done.stdout.split())
    return group_s, broadcast_s * max(1.0, mb / MOST_RAW_MB)


def changed(mb: float, folder: Path, size: int) -> SpeedMeasurement:
    """Grow by one worker to ``size`` and shrink again, so often."""
    nodes = [f"n{number}" for number in range(1, size + 1)]
    script = folder / "script.py"
    script.write_text(SCRIPT)
    measuring = SpeedMeasurement()
    with LocalStage(launchers.native, (str(script), str(mb)), nodes=nodes) as stage:
        task = stage.new()
        stage.do("start", task, *nodes[:-1])
        stage.messages.steps(task, size - 1, 12, PATIENCE_S)
        for _ in range(ROUNDS):
            stage.do("grow", task, nodes[-1])
            stage.messages.steps(task, size, 8, PATIENCE_S)
            stage.do("shrink", task, nodes[-1], cause="decided")
            stage.messages.steps(task, size - 1, 8, PATIENCE_S)
        for one in stage.messages.of("report", task):
            measuring.on_message(one)
    return measuring


@pytest.mark.parametrize(("mb", "size"), [(100, 2), (1000, 2), (4000, 2), (10000, 2), (1000, 4)])
def test_growth_costs_little_more_than_nccl_does(mb: float, size: int, tmp_path: Path, figures: Figures) -> None:
    group_s, wire_s = raw(mb, tmp_path, size)
    costs = changed(mb, tmp_path, size).changes()
    grow_s, shrink_s = median(costs["grow"]), median(costs["shrink"])
    what = f"{mb} MB on the GPU, {size - 1} -> {size}"
    figures.add(f"{what}: NCCL's group", group_s, "s")
    figures.add(f"{what}: raw broadcast", wire_s, "s")
    figures.add(f"{what}: grow, median of {len(costs['grow'])}", grow_s, "s")
    figures.add(f"{what}: shrink, median", shrink_s, "s")
    assert grow_s <= BAR * wire_s + group_s + BAR_S
    assert shrink_s <= SHRINK_S + (group_s if size > 2 else 0.0)  # what is left of three is a new group
