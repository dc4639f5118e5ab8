"""Models that fully_shard divides, in groups of any size: losses and weights are those of one worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.helpers.warm_python import PRELOAD
from tests.helpers.workers import Workers

pytestmark = pytest.mark.torch
MODULES = "torch.distributed.fsdp torch.distributed.checkpoint.state_dict"

SCRIPT = """
import json, sys
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from bftrain_elastic import ShardedTraining, State, report, run

torch.set_num_threads(1)

def build():
    torch.manual_seed(1)
    layers = torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
    return torch.nn.Sequential(*layers).double()

def shard(model):
    workers = dist.get_world_size()
    hybrid = sys.argv[1] == "hybrid" and workers % 2 == 0  # two replicas, each of which is divided
    shape, names = ((2, workers // 2), ("replicate", "shard")) if hybrid else ((workers,), ("shard",))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for layer in model[::2]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)

def train(state):
    model, optimizer = state.sharded.join()
    while state.position < 40:
        x = torch.randn(10, 4, generator=torch.Generator().manual_seed(state.position)).double()
        mine, weight = state.share(10)
        loss = weight * torch.nn.functional.mse_loss(model(x[mine]), x[mine].prod(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        held = sum((one.to_local() if hasattr(one, "to_local") else one).numel() for one in model.parameters())
        state.position += 1
        print(json.dumps({"position": state.position, "held": held, "workers": state.workers}), flush=True)
        report(samples=10, loss=loss)
        state.commit()

optimize = lambda parameters: torch.optim.AdamW(parameters, lr=0.01)
state = State(sharded=ShardedTraining(build, shard, optimize), position=0)
run(state, train)
whole = state.sharded.state_dict()["model"]
print(json.dumps({"end": [float(one) for name in sorted(whole) for one in whole[name].flatten()]}), flush=True)
"""


@pytest.mark.parametrize(("kind", "planned"), [("plain", True), ("plain", False), ("hybrid", True)])
def test_a_sharded_model_trains_as_a_whole_one_at_any_size(tmp_path: Path, kind: str, *, planned: bool) -> None:
    (tmp_path / "straight").mkdir(), (tmp_path / "resized").mkdir()
    env = {PRELOAD: MODULES}
    with (
        Workers(tmp_path / "straight", SCRIPT, kind, count=1, **env) as alone,
        Workers(tmp_path / "resized", SCRIPT, kind, count=4, **env) as group,
    ):
        alone.ready()
        alone.go(1)
        group.ready()
        sizes = (1, 2, 4, 3, 1)
        everyone = group.all
        for generation, size in enumerate(sizes, 1):
            members = everyone[-size:] if generation > 3 else everyone[:size]
            group.go(generation, members)
            if generation == len(sizes):
                break
            seen = len(members[0].of("report"))
            while len(members[0].of("report")) < seen + 5:
                members[0].hear("report")
            if generation == 3 and not planned:
                everyone[0].process.kill()
                group.ready(everyone[1:])
            else:
                group.gather(generation + 1, members)
        for worker in (alone.all[0], everyone[-1]):
            worker.hear("done")
            assert worker.ends() == 0, worker.log.read_text()
        lines = [one for worker in everyone for one in worker.lines() if "held" in one]
        losses = {one["step"]: one["loss"] for worker in everyone for one in worker.of("report")}
        expected = {one["step"]: one["loss"] for one in alone.all[0].of("report")}
        ends = [worker.lines()[-1]["end"] for worker in (everyone[-1], alone.all[0])]
    assert {one["workers"] for one in lines} == {1, 2, 3, 4}
    assert len(expected) == 40
    assert losses == pytest.approx(expected, rel=1e-9)
    assert ends[0] == pytest.approx(ends[1], rel=1e-9, abs=1e-12)
    assert not [one for worker in everyone for what in ("drift", "misuse") for one in worker.of(what)]
    divisible, others = 4 * 8 + 8 + 8 * 4 + 4, 4 + 1  # a row of a matrix is not divided
    for workers in (1, 2, 4):
        parts = max(1, workers // 2) if kind == "hybrid" else workers
        assert max(one["held"] for one in lines if one["workers"] == workers) == divisible / parts + others
