"""Models that fully_shard divides, and optimizers that are divided: losses and weights are those of one worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.helpers.warm_python import PRELOAD
from tests.helpers.workers import Worker, Workers

pytestmark = pytest.mark.torch
ENV = {PRELOAD: "torch.distributed.fsdp torch.distributed.optim"}

SCRIPT = """
import json, sys, time
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from bftrain_elastic import ShardedTraining, State, report, run

from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
torch.set_num_threads(1)
STOPS = json.loads(sys.argv[2])
STOPS = dict(zip(STOPS[::2], STOPS[1::2]))

def build():
    torch.manual_seed(1)
    layers = torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
    return torch.nn.Sequential(*layers).double()

def shard(model):
    if sys.argv[1] == "zero":
        return DistributedDataParallel(model, init_sync=False)
    workers = dist.get_world_size()
    hybrid = sys.argv[1] == "hybrid" and workers % 2 == 0  # two replicas, each of which is divided
    shape, names = ((2, workers // 2), ("replicate", "shard")) if hybrid else ((workers,), ("shard",))
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
    for layer in model[::2]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)

def train(state):
    model, optimizer = state.sharded.join()
    while state.position < 25:
        if STOPS.get(state.position) == state.workers:  # the test changes the group here
            time.sleep(0.005)
            state.commit()
            continue
        x = torch.randn(10, 4, generator=torch.Generator().manual_seed(state.position)).double()
        mine, weight = state.share(10)
        loss = weight * torch.nn.functional.mse_loss(model(x[mine]), x[mine].prod(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        values = model.parameters()
        if sys.argv[1] == "zero":  # divides what the optimizer holds
            values = [one["exp_avg"] for one in optimizer.optim.state.values()]
        total = loss.detach().clone()
        if state.workers > 1:
            dist.all_reduce(total)
        held = sum((one.to_local() if hasattr(one, "to_local") else one).numel() for one in values)
        state.position += 1
        loss_of_all = total.item() / state.workers
        held = {"position": state.position, "held": held, "workers": state.workers, "loss": loss_of_all}
        print(json.dumps(held), flush=True)
        report(samples=10, loss=loss)
        state.commit()
    whole = get_model_state_dict(
        state.sharded.model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    if whole:
        print(json.dumps({"end": [float(one) for name in sorted(whole) for one in whole[name].flatten()]}), flush=True)

def optimize(parameters):
    if sys.argv[1] == "zero":
        return ZeroRedundancyOptimizer(parameters, torch.optim.AdamW, lr=0.01)
    return torch.optim.AdamW(parameters, lr=0.01)

state = State(sharded=ShardedTraining(build, shard, optimize), position=0)
run(state, train)
"""


Straight = tuple[dict[int, float], list[float]]


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Straight:
    """Return the losses and the last weights of one worker that is never resized."""
    with Workers(tmp_path_factory.mktemp("straight"), SCRIPT, "plain", "[]", count=1, **ENV) as alone:
        alone.ready()
        alone.go(1)
        assert alone.all[0].ends() == 0, alone.all[0].log.read_text()
        *lines, last = alone.all[0].lines()
        return {one["position"]: one["loss"] for one in lines}, last["end"]


def step(member: Worker) -> None:
    """Wait until a worker has made five more steps."""
    for _ in range(5):
        member.hear("report")


def check(group: list[Worker], straight: Straight) -> list[dict[str, Any]]:
    """Compare what all workers did, and the last weights, with those of one that did it alone; return what they did."""
    lines = [one for worker in group for one in worker.lines()]
    (end,) = [one["end"] for one in lines if "end" in one]
    steps = [one for one in lines if "held" in one]
    wrong = [one for one in steps if one["loss"] != pytest.approx(straight[0][one["position"]], rel=1e-9)]
    assert not wrong
    assert end == pytest.approx(straight[1], rel=1e-9, abs=1e-12)
    assert not [one for worker in group for one in worker.of("drift")]
    return steps


@pytest.mark.parametrize(
    ("kind", "planned"),
    [
        ("plain", False),
        ("zero", True),
        *(pytest.param(*case, marks=pytest.mark.soak) for case in (("plain", True), ("hybrid", True), ("zero", False))),
    ],
)
def test_a_sharded_model_trains_as_a_whole_one_at_any_size(
    tmp_path: Path, straight: Straight, kind: str, *, planned: bool
) -> None:
    with Workers(tmp_path, SCRIPT, kind, "[5, 1, 10, 2, 15, 4, 20, 3]", count=4, **ENV) as group:
        group.ready()
        sizes = (1, 2, 4, 3, 1)
        everyone = group.all
        for generation, size in enumerate(sizes, 1):
            members = everyone[-size:] if generation > 3 else everyone[:size]
            group.go(generation, members)
            if generation == len(sizes):
                break
            step(members[0])
            if generation == 3 and not planned:
                everyone[0].process.kill()
                group.ready(everyone[1:])
            else:
                group.gather(generation + 1, members)
        assert everyone[-1].ends() == 0, everyone[-1].log.read_text()
        lines = check(everyone, straight)
    assert {one["workers"] for one in lines} == {1, 2, 3, 4}
    divisible, others = 4 * 8 + 8 + 8 * 4 + 4, 4 + 1  # a row of a matrix is not divided
    for workers in (1, 2, 4):
        parts = max(1, workers // 2) if kind == "hybrid" else workers
        held = max(one["held"] for one in lines if one["workers"] == workers)
        if kind == "zero":
            assert held <= (divisible + others) / workers + 32  # by whole parameters
        else:
            assert held == divisible / parts + others


@pytest.mark.parametrize("planned", [pytest.param(True, marks=pytest.mark.soak), False])
def test_a_sharded_model_goes_on_from_disk_at_another_size(
    tmp_path: Path, straight: Straight, *, planned: bool
) -> None:
    (tmp_path / "one").mkdir(), (tmp_path / "other").mkdir()
    with Workers(tmp_path / "one", SCRIPT, "plain", "[5, 3]", count=3, **ENV) as group:
        group.ready()
        group.go(1)
        first = group.all[0]
        step(first)
        if planned:
            group.gather(2)
            assert first.of("on_disk")[-1]["step"] == first.of("ready")[-1]["step"]
        elif not first.of("on_disk"):
            first.hear("on_disk")
        for worker in group.all:
            worker.process.kill()
        env = ENV | {"BFTRAIN_FOLDER": str(group.folder)}
        with Workers(tmp_path / "other", SCRIPT, "plain", "[]", count=2, **env) as later:
            later.ready()
            later.go(2)
            later.all[0].hear("done")
            lines = check(later.all, straight)
    begun = min(one["position"] for one in lines)
    assert begun == 6 if planned else begun > 1


def test_when_neighbours_are_lost_a_sharded_model_goes_on_from_disk(tmp_path: Path, straight: Straight) -> None:
    with Workers(tmp_path, SCRIPT, "plain", "[5, 3]", count=3, **ENV) as group:
        group.ready()
        group.go(1)
        lost, neighbour, last = group.all
        step(lost)
        if not lost.of("on_disk"):
            lost.hear("on_disk")
        lost.process.kill(), neighbour.process.kill()
        group.ready([last])
        group.go(2, [last])
        assert last.ends() == 0, last.log.read_text()
        check([last], straight)
        assert 0 < last.of("confirmed")[0]["step"] <= last.of("ready")[-1]["step"]
