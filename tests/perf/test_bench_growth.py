"""What a change of size costs by the size of the state, beside a raw broadcast of as many bytes at the same time.

Each case alone takes less than three minutes on an idle machine: ``pytest -m bench tests/perf -k "growth and 2000MB"``.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

import pytest

from bftrain_elastic.manager import launchers
from bftrain_elastic.manager.speed_measurement import SpeedMeasurement
from tests.helpers import launcher_conformance as conformance
from tests.helpers.figures import Figures
from tests.helpers.wire_speed import broadcast_s

pytestmark = [pytest.mark.bench, pytest.mark.torch]

ROUNDS, LARGE_MB, LARGE_ROUNDS = 5, 1000, 3
# Memory of the machine, in MB and in sizes of the state: a new worker takes only half of what is free for itself
MEMORY_MB, MEMORY, MEMORY_EACH = 500, 7.3, 3.3
BAR, BAR_S = 2.0, 0.1  # times a raw broadcast, and beside that
PATIENCE_S = 180.0

# A model in pieces of 4 MB and the two tensors of the same size that Adam keeps for each; a step changes a few numbers
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


def free_memory_mb() -> float:
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("MemAvailable:"))


def changed(mb: float, folder: Path, size: int = 2) -> tuple[SpeedMeasurement, float]:
    """Grow by one node to ``size`` and shrink again several times; return the costs, and the longest step."""
    nodes = [f"n{number}" for number in range(1, size + 1)]
    script = folder / "script.py"
    script.write_text(SCRIPT)
    with conformance.LocalStage(launchers.native, (str(script), str(mb)), nodes=nodes) as stage:
        task = stage.new()
        few = 5 if mb > LARGE_MB else 6  # five give a median step
        stage.do("start", task, *nodes[:-1])
        stage.messages.steps(task, size - 1, few if mb > LARGE_MB else 12, PATIENCE_S)
        stage.messages.until(lambda: bool(stage.messages.of("on_disk", task)), "it is on disk", PATIENCE_S)
        for _ in range(rounds_of(mb)):
            stage.do("grow", task, nodes[-1])
            stage.messages.steps(task, size, few, PATIENCE_S)
            stage.do("shrink", task, nodes[-1], cause="decided")
            stage.messages.steps(task, size - 1, 12, PATIENCE_S)
        measuring, stood_s = SpeedMeasurement(), [0.0]
        last = None
        for one in stage.messages.of("report", task):
            measuring.on_message(one)
            if last and last["size"] == one["size"] == size - 1:
                stood_s.append(one["t"] - last["t"])
            last = one
    return measuring, max(stood_s)


def rounds_of(mb: float) -> int:
    """Return how often a state of this size is grown."""
    return LARGE_ROUNDS if mb > LARGE_MB else ROUNDS


def need_memory(mb: float, size: int) -> None:
    """Skip the test if the machine has not the memory for it."""
    needed, free = MEMORY_MB + mb * (MEMORY + (size - 2) * MEMORY_EACH), free_memory_mb()
    if free < needed:
        pytest.skip(f"{needed:,.0f} MB of memory are needed, and {free:,.0f} MB are free")


def wire(mb: float) -> float:
    """Return how long a raw broadcast of so many bytes takes now."""
    found = broadcast_s(int(mb * 1e6))
    assert found is not None
    return found


def cases(*found: tuple[int, int]) -> pytest.MarkDecorator:
    """Return a test's sizes: of the state in MB, and of the group that is grown to."""
    names = [f"{mb}MB-{size - 1}-to-{size}" for mb, size in found]
    return pytest.mark.parametrize(("mb", "size"), found, ids=names)


@cases((10, 2), (100, 2), (500, 2), (1000, 2), (2000, 2), (3000, 2), (4000, 2), (500, 4))
def test_growth_costs_little_more_than_the_wire(mb: int, size: int, tmp_path: Path, figures: Figures) -> None:
    need_memory(mb, size)
    before = wire(mb)
    measuring, stood_s = changed(mb, tmp_path, size)
    wire_s = (before + wire(mb)) / 2  # the machine may be busier now
    costs = measuring.changes()
    grow_s, shrink_s = median(costs["grow"]), median(costs["shrink"])
    what = f"{mb} MB, {size - 1} -> {size}"
    figures.add(f"{what}: raw broadcast", wire_s, "s")
    figures.add(f"{what}: growth, median of {len(costs['grow'])}", grow_s, "s")
    figures.add(f"{what}: growth less {BAR_S} s, times a raw broadcast", (grow_s - BAR_S) / wire_s)
    figures.add(f"{what}: back again, median", shrink_s, "s")
    figures.add(f"{what}: longest time between two steps of 0.02 s", stood_s, "s")
    figures.add(f"{what}: load of the machine", os.getloadavg()[0])
    assert grow_s <= BAR * wire_s + BAR_S
    assert shrink_s <= BAR_S
