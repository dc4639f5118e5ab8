"""Training on a real GPU, which the workers share: losses after any change of size are those of one worker."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.helpers.gpu import PATIENCE_S, GpuTraining

pytestmark = [pytest.mark.torch, pytest.mark.gpu]
SIZES = (1, 2, 4, 3, 1)

BEGIN = """
import faulthandler, json, sys, time
faulthandler.dump_traceback_later(30)  # its log is shown if it waits for ever
import torch
import torch.distributed as dist
from bftrain_elastic import State, report, run
WRITTEN, STOPS, LAST = sys.argv[1], {int(at): size for at, size in json.loads(sys.argv[2]).items()}, int(sys.argv[3])

def waits(state):
    if STOPS.get(state.position) != state.workers:
        return False
    time.sleep(0.01)
    state.commit()
    return True

def batch(state, dtype=torch.double):
    x = torch.randn(12, 16, generator=torch.Generator().manual_seed(state.position)).to(state.device, dtype)
    return x, x.prod(dim=1, keepdim=True)

def note(state, loss, **more):
    total = loss.detach().clone()
    if state.workers > 1:
        dist.all_reduce(total)
    total = total.item() / state.workers
    state.position += 1
    if state.rank == 0:
        backend = dist.group.WORLD._get_backend(state.device).name() if state.workers > 1 else "none"
        about = {"position": state.position, "size": state.workers, "loss": total, **more}
        with open(WRITTEN, "a") as file:
            file.write(json.dumps(about | {"device": str(loss.device), "backend": backend}) + "\\n")
    report(samples=12, loss=loss)

def build():
    torch.manual_seed(1)
    layers = torch.nn.Linear(16, 64), torch.nn.Tanh(), torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)
    return torch.nn.Sequential(*layers)
"""

PLAIN = """
def train(state):
    while state.position < LAST:
        if waits(state):
            continue
        x, y = batch(state)
        mine, weight = state.share(len(x))
        optimizer.zero_grad()
        loss = weight * torch.nn.functional.mse_loss(state.parallel()(x[mine]), y[mine])
        loss.backward()
        optimizer.step()
        note(state, loss)
        state.commit()

model = build().double().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
run(State(model=model, optimizer=optimizer, position=0), train)
"""

# The graph is captured again for each size, as its batch is another; the tensors of model and optimizer stay in place
GRAPH = """
def captured(state, x, y):
    def step():
        for one in model.parameters():
            one.grad.zero_()
        with torch.autocast("cuda", torch.bfloat16):
            loss = state.share(12).weight * torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        return loss
    for one in model.parameters():
        one.grad = torch.zeros_like(one)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    return graph, loss

def train(state):
    x, y = batch(state, torch.float)
    mine, _ = state.share(12)
    here, wanted = x[mine].clone(), y[mine].clone()
    graph, loss = captured(state, here, wanted)
    while state.position < LAST:
        if waits(state):
            continue
        x, y = batch(state, torch.float)
        here.copy_(x[mine]), wanted.copy_(y[mine])
        graph.replay()
        if state.workers > 1:
            for one in model.parameters():
                dist.all_reduce(one.grad)
                one.grad /= state.workers
        optimizer.step()
        note(state, loss)
        state.commit()

model = build().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
run(State(model=model, optimizer=optimizer, position=0), train)
"""

SHARDED = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from bftrain_elastic import ShardedTraining

def shard(model):
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    for layer in model[::2]:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)

def train(state):
    model, optimizer = state.sharded.join()
    while state.position < LAST:
        if waits(state):
            continue
        x, y = batch(state)
        mine, weight = state.share(len(x))
        optimizer.zero_grad()
        loss = weight * torch.nn.functional.mse_loss(model(x[mine]), y[mine])
        loss.backward()
        optimizer.step()
        note(state, loss, held=sum(getattr(one, "to_local", lambda: one)().numel() for one in model.parameters()))
        state.commit()

sharded = ShardedTraining(lambda: build().double().cuda(), shard, lambda own: torch.optim.AdamW(own, lr=0.01))
run(State(sharded=sharded, position=0), train)
"""


@pytest.mark.parametrize(("script", "tolerance"), [(PLAIN, 1e-9), (GRAPH, 0.05), (SHARDED, 1e-9)])
def test_losses_are_those_of_one_worker(tmp_path: Path, script: str, tolerance: float) -> None:
    (tmp_path / "resized").mkdir(), (tmp_path / "alone").mkdir()
    resized = GpuTraining(tmp_path / "resized", BEGIN + script, sizes=SIZES).run()
    alone = GpuTraining(tmp_path / "alone", BEGIN + script, sizes=(1,) * len(SIZES)).run()
    assert [one["size"] for one in resized] == [size for size in SIZES for _ in range(10)]
    assert {one["device"] for one in resized} == {"cuda:0"}
    assert {one["backend"] for one in resized if one["size"] > 1} == {"nccl"}
    for mine, wanted in zip(resized, alone, strict=True):
        assert mine["loss"] == pytest.approx(wanted["loss"], rel=tolerance, abs=tolerance * alone[0]["loss"])
    if "held" in resized[0]:  # each member holds its share of the model
        whole = resized[0]["held"]
        assert all(one["held"] <= whole / one["size"] + 200 for one in resized)


def test_a_killed_member_is_survived(tmp_path: Path) -> None:
    """The others may wait for it on the GPU. They go on without it, or with another in its place."""
    (tmp_path / "killed").mkdir(), (tmp_path / "alone").mkdir()
    training = GpuTraining(tmp_path / "killed", BEGIN + PLAIN, sizes=(3, 2))
    with training.stage as stage:
        task = stage.new()
        stage.do("start", task, *training.nodes)
        training.until(10)
        before = len(stage.messages.of("confirmed", task))
        stage.send(signal.SIGKILL, "worker", "n2")
        stage.messages.until(lambda: len(stage.messages.of("confirmed", task)) > before, "a new group", PATIENCE_S)
        stage.do("shrink", task, "n3", cause="decided")
        training.finish()
    alone = GpuTraining(tmp_path / "alone", BEGIN + PLAIN, sizes=(1, 1)).run()
    assert len(training.lines()) == len(alone) == 20
    assert training.lines()[-1]["size"] < 3
    for mine, wanted in zip(training.lines(), alone, strict=True):
        assert mine["loss"] == pytest.approx(wanted["loss"], rel=1e-9)


def test_a_task_that_lost_its_last_node_goes_on_from_disk(tmp_path: Path) -> None:
    training = GpuTraining(tmp_path, BEGIN + PLAIN, sizes=(2, 1))
    with training.stage as stage:
        task = stage.new()
        stage.do("start", task, *training.nodes)
        training.until(10)
        stage.messages.until(lambda: bool(stage.messages.of("on_disk", task)), "it is on disk", PATIENCE_S)
        for node in training.nodes:
            stage.lose(node)
        stage.find("n1")
        stage.do("start", task, "n1")
        training.finish()
    assert [one["position"] for one in training.lines()] == list(range(1, 21))
