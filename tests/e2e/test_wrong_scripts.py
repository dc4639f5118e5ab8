"""bftrain elastic check names what a script does wrong that looks right: each worker trains, but not together."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

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
        x, y = batch(state.position, state.rank, state.workers)
        loss = torch.nn.functional.mse_loss(parallel(x), y)
        optimizer.zero_grad()
        {backward}
        optimizer.step()
        state.position += 1
        time.sleep(0.005)
        report(samples=BATCH, loss=loss)
        state.commit()

run(State({held}, position=0), train)
"""
PLAIN = {
    "begin": "parallel = state.parallel()",
    "backward": "loss.backward()",
    "held": "model=model, optimizer=optimizer",
}
ACCELERATE = """global model, optimizer
    from accelerate import Accelerator
    accelerator = Accelerator(cpu=True)
    parallel, optimizer = accelerator.prepare(model, optimizer)"""

TRAINER = """
from transformers import Trainer, TrainerCallback, TrainingArguments

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        return {"loss": torch.nn.functional.mse_loss(self.inside(x), labels)}

class Commits(TrainerCallback):
    def __init__(self, state):
        self.state = state
    def on_step_end(self, *_, **__):
        time.sleep(0.005)
        report(samples=BATCH, loss=1.0)
        self.state.commit()

data = [{"x": x, "labels": y} for x, y in zip(*batch(0, 0, 1))] * 4000
network = Model()

def train(state):
    quiet = {"report_to": [], "save_strategy": "no", "logging_strategy": "no", "disable_tqdm": True}
    about = TrainingArguments(output_dir=".", use_cpu=True, seed=state.rank, per_device_train_batch_size=8, **quiet)
    Trainer(model=network, args=about, train_dataset=data, callbacks=[Commits(state)]).train()

run(State(model=network), train)
"""
LIGHTNING = """
import lightning

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
        time.sleep(0.005)
        report(samples=BATCH, loss=1.0)
        self.state.commit()

network = Model()

def train(state):
    data = torch.utils.data.TensorDataset(*(part.repeat(1000, 1) for part in batch(state.rank, 0, 1)))
    quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
    trainer = lightning.Trainer(accelerator="cpu", callbacks=[Commits(state)], max_epochs=1, **quiet)
    trainer.fit(network, torch.utils.data.DataLoader(data, batch_size=8))

run(State(model=network), train)
"""


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed here; install it with pip")


@pytest.mark.parametrize(
    ("script", "missing", "words"),
    [
        pytest.param(
            LOOP.format(**PLAIN | {"begin": "parallel = state.model"}),
            {"workers agree"},
            "nothing exchanges their gradients",
            id="state.parallel() is forgotten",
        ),
        pytest.param(
            LOOP.format(**PLAIN | {"held": "model=model"}),
            {"workers agree", "keeps what it trains"},
            "an optimizer is not in the State",
            id="the optimizer is not in the State",
        ),
        pytest.param(
            "BATCH = 25\n" + LOOP.format(**PLAIN),
            {"weighs its shares"},
            "its workers have unequal shares of a batch",
            id="a batch that the workers do not divide",
        ),
        pytest.param(
            "model = torch.nn.Sequential(torch.nn.Linear(4, 1), torch.nn.Dropout(0.1))\n"
            "optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)\n" + LOOP.format(**PLAIN),
            {"draws its own random numbers"},
            "its workers draw the same random numbers in the model",
            id="dropout after torch.manual_seed",
        ),
        pytest.param(
            LOOP.format(**PLAIN | {"begin": ACCELERATE, "backward": "accelerator.backward(loss)"}),
            {"workers agree"},
            "Accelerate sees one process",
            marks=needs("accelerate"),
            id="Accelerate",
        ),
        pytest.param(
            TRAINER,
            {"workers agree", "keeps what it trains"},
            "the Trainer of Transformers sees one process",
            marks=needs("transformers"),
            id="transformers.Trainer",
        ),
        pytest.param(
            LIGHTNING,
            {"workers agree", "keeps what it trains"},
            "the Trainer of Lightning sees one process",
            marks=needs("lightning"),
            id="lightning.Trainer",
        ),
    ],
)
def test_workers_that_train_apart_are_found_with_the_cause(
    tmp_path: Path, script: str, missing: set[str], words: str
) -> None:
    path = tmp_path / "script.py"
    path.write_text(BEGIN + script)
    done = bftrain("elastic", "check", path, "--json")
    assert done.code == 3, done.err
    found = json.loads(done.out)
    assert {one["name"] for one in found if not one["ok"]} - {"goes on learning"} == missing, found
    assert any(words in one["detail"] and one["fix"] for one in found)
