"""bftrain elastic check tells scripts whose workers train together from those whose workers only look like it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from bftrain_elastic.tryout import sample_script_horovod
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
ACCELERATE = RIGHT | {
    "begin": """global model, optimizer
    from accelerate import Accelerator
    from bftrain_elastic.accelerate import group_accelerator
    accelerator = {make}
    parallel, optimizer = accelerator.prepare(model, optimizer)""",
    "backward": "accelerator.backward(loss)",
}

TRAINER = """
from transformers import Trainer, TrainerCallback, TrainingArguments
from bftrain_elastic.huggingface import run_trainer

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        return {{"loss": torch.nn.functional.mse_loss(self.inside(x), labels)}}

class Commits(TrainerCallback):
    def __init__(self, state):
        self.state = state
    def on_step_end(self, *_, **__):
        report(samples=BATCH, loss=1.0)
        self.state.commit()

data = [{{"x": x, "labels": y}} for position in range(400) for x, y in zip(*batch(position, 0, 1))]
network = Model()
quiet = {{"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}}

def trainer(*callbacks):
    about = TrainingArguments(output_dir=".", use_cpu=True, per_device_train_batch_size=8, **quiet)
    return Trainer(model=network, args=about, train_dataset=data, callbacks=list(callbacks))

{start}
"""
LIGHTNING = """
import lightning
from bftrain_elastic.lightning import run_trainer

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Linear(4, 1)
    def training_step(self, found, _):
        return torch.nn.functional.mse_loss(self.inside(found[0]), found[1])
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

class Commits(lightning.Callback):
    def __init__(self, state):
        self.state = state
    def on_train_batch_end(self, *_):
        report(samples=BATCH, loss=1.0)
        self.state.commit()

network = Model()
data = torch.utils.data.TensorDataset(*map(torch.cat, zip(*(batch(position, 0, 1) for position in range(400)))))

def loader(shuffle):
    return torch.utils.data.DataLoader(data, batch_size=8, shuffle=shuffle)

def trainer(*callbacks):
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    return lightning.Trainer(accelerator="cpu", callbacks=list(callbacks), max_epochs=20, **quiet)

{start}
"""
USUAL_TRAINER = "run(State(model=network), lambda state: trainer(Commits(state)).train())"
USUAL_LIGHTNING = "run(State(model=network), lambda state: trainer(Commits(state)).fit(network, loader(False)))"


SAME, APART = "divides the work", "workers agree"


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed here; install it with pip")


def loop(**parts: str) -> str:
    return LOOP.format(**RIGHT | parts)


def accelerate(make: str) -> str:
    return LOOP.format(**{name: part.format(make=make) for name, part in ACCELERATE.items()})


def findings(folder: Path, script: str, *options: str) -> dict[str, Any]:
    path = folder / "script.py"
    path.write_text(BEGIN + script)
    done = bftrain("elastic", "check", path, "--json", *options)
    found = {one["name"]: one for one in json.loads(done.out)}
    assert done.code == (0 if all(one["ok"] for one in found.values()) else 3), done.err
    return found


@pytest.mark.parametrize(
    ("script", "name", "fix"),
    [
        (loop(begin="parallel = state.model", part="0, 1"), SAME, "model = state.parallel()"),
        (loop(part="0, 1"), SAME, "give each worker its share"),
        pytest.param(TRAINER.format(start=USUAL_TRAINER), SAME, "run_trainer(trainer)", marks=needs("transformers")),
        pytest.param(LIGHTNING.format(start=USUAL_LIGHTNING), SAME, "run_trainer(trainer, ", marks=needs("lightning")),
        (loop(begin="parallel = state.model"), APART, "model = state.parallel()"),
        pytest.param(accelerate("Accelerator(cpu=True)"), APART, "group_accelerator", marks=needs("accelerate")),
    ],
    ids=["neither parallel() nor share()", "no share()", "transformers", "lightning", "no parallel()", "accelerate"],
)
def test_workers_that_do_not_train_together_are_found(tmp_path: Path, script: str, name: str, fix: str) -> None:
    found = findings(tmp_path, script)
    assert {one for one, finding in found.items() if not finding["ok"]} - {"goes on learning"} == {name}, found
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
LIGHTNING_GROUP = "run_trainer(trainer(), network, train_dataloaders=loader(True))"
HOROVOD = Path(sample_script_horovod.__file__).read_text().replace("from __future__ import annotations", "")
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
        (EVALUATION + loop(commit="evaluate(state); state.commit()"), []),
        (EQUAL_SAMPLES + loop(), []),
        (FSDP, []),
        pytest.param(accelerate("group_accelerator(state)"), [], marks=needs("accelerate")),
        pytest.param(TRAINER.format(start="run_trainer(trainer())"), [], marks=needs("transformers")),
        pytest.param(LIGHTNING.format(start=LIGHTNING_GROUP), [], marks=needs("lightning")),
        pytest.param(HOROVOD, ["--backend", "horovod", "--", "--steps", "5000"], marks=pytest.mark.horovod),
    ],
    ids=["evaluation", "all samples are equal", "fully_shard", "accelerate", "transformers", "lightning", "horovod"],
)
def test_workers_that_train_together_are_right(tmp_path: Path, script: str, options: list[str]) -> None:
    found = findings(tmp_path, script, *options)
    assert found["divides the work"]["ok"], found
    assert {name for name, one in found.items() if not one["ok"]} <= {"goes on learning"}, found


def test_a_ddp_script_is_right_under_launchers_that_restart_it_but_for_its_checkpoint(tmp_path: Path) -> None:
    found = findings(tmp_path, DDP, "--backend", "process")
    assert found["divides the work"]["ok"], found
    same = findings(tmp_path, DDP.replace("sampler=sampler", "shuffle=False"), "--backend", "torchrun")
    assert "DistributedSampler" in same["divides the work"]["fix"]
