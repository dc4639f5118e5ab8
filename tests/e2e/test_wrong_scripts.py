"""bftrain check tells scripts whose workers train together from those whose workers only look like it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import sample_scripts
from tests.helpers.program import bftrain

pytestmark = pytest.mark.torch

BEGIN = """
import time, torch
from bftrain_elastic import State, report, run
torch.set_num_threads(1)
torch.manual_seed(1)
BATCH = 24

def batch(position, rank, workers):
    x = torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(position))[rank::workers]
    return x, x.sum(dim=1, keepdim=True)

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
"""
LOOP = """
def train(state):
    {begin}
    while state.position < 1000:
        x, y = batch(state.position, {part})
        loss = torch.nn.functional.mse_loss(parallel(x), y)
        optimizer.zero_grad()
        {backward}
        optimizer.step()
        state.position += 1
        time.sleep(0.005)
        report(samples=BATCH, loss=loss)
        {commit}

run(State(model=model, optimizer=optimizer, position=0), train)
"""
RIGHT = {
    "begin": "parallel = state.parallel()",
    "part": "state.rank, state.workers",
    "backward": "loss.backward()",
    "commit": "state.commit()",
}
SAME, APART = "divides the work", "workers agree"


def loop(**parts: str) -> str:
    return LOOP.format(**RIGHT | parts)


def findings(folder: Path, script: str, *options: str) -> dict[str, Any]:
    path = folder / "script.py"
    path.write_text(BEGIN + script)
    done = bftrain("check", path, "--json", *options)
    found = {one["name"]: one for one in json.loads(done.out)}
    assert done.code == (0 if all(one["ok"] for one in found.values()) else 3), done.err
    return found


@pytest.mark.parametrize(
    ("script", "name", "fix"),
    [
        pytest.param(
            loop(begin="parallel = state.model", part="0, 1"), SAME, "model = state.parallel()", marks=pytest.mark.soak
        ),
        (loop(part="0, 1"), SAME, "give each worker its share"),
        (loop(begin="parallel = state.model"), APART, "model = state.parallel()"),
    ],
    ids=["neither parallel() nor share()", "no share()", "no parallel()"],
)
def test_workers_that_do_not_train_together_are_found(tmp_path: Path, script: str, name: str, fix: str) -> None:
    found = findings(tmp_path, script)
    assert {one for one, finding in found.items() if not finding["ok"]} - {"continues to learn"} == {name}, found
    words = {SAME: "all workers computed the same, so more nodes", APART: "no gradients were exchanged"}
    assert words[name] in found[name]["detail"]
    assert "at script.py:" in found[name]["detail"]
    assert fix in found[name]["fix"]


EVALUATION = """
def evaluate(state):
    state.model.eval()
    with torch.no_grad():
        torch.nn.functional.mse_loss(state.model(torch.ones(2, 4)), torch.ones(2, 1))
    state.model.train()
"""
FSDP = """
from torch.distributed.fsdp import fully_shard
from bftrain_elastic import ShardedTraining

def build():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
""" + loop(begin="parallel, optimizer = state.sharded.join()").replace(
    "model=model, optimizer=optimizer", "sharded=ShardedTraining(build, fully_shard, torch.optim.AdamW)"
)
EQUAL_SAMPLES = """
def batch(position, rank, workers):
    return torch.ones(BATCH, 4)[rank::workers], torch.ones(BATCH, 1)[rank::workers]
"""
HOROVOD = Path(sample_scripts.HOROVOD[0]).read_text().replace("from __future__ import annotations", "")
DDP = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
dist.init_process_group("gloo")
data = TensorDataset(*batch(0, 0, 1))
sampler = DistributedSampler(data)
model = DistributedDataParallel(model)
for epoch in range(1000):
    sampler.set_epoch(epoch)
    for x, y in DataLoader(data, batch_size=4, sampler=sampler):
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(0.005)
        report(samples=4 * dist.get_world_size(), loss=loss)
"""


@pytest.mark.parametrize(
    ("script", "options"),
    [
        pytest.param(EVALUATION + loop(commit="evaluate(state); state.commit()"), [], marks=pytest.mark.soak),
        pytest.param(EQUAL_SAMPLES + loop(), [], marks=pytest.mark.soak),
        pytest.param(FSDP, [], marks=pytest.mark.soak),
        pytest.param(
            HOROVOD, ["--launcher", "horovod", "--", "--steps", "5000"], marks=[pytest.mark.horovod, pytest.mark.soak]
        ),
    ],
    ids=["evaluation", "all samples are equal", "fully_shard", "horovod"],
)
def test_workers_that_train_together_are_right(tmp_path: Path, script: str, options: list[str]) -> None:
    found = findings(tmp_path, script, *options)
    assert found["divides the work"]["ok"], found
    assert {name for name, one in found.items() if not one["ok"]} <= {"continues to learn"}, found


def test_a_ddp_script_is_right_under_launchers_that_restart_it_but_for_its_checkpoint(tmp_path: Path) -> None:
    found = findings(tmp_path, DDP, "--launcher", "process")
    assert found["divides the work"]["ok"], found
