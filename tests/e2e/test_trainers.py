"""Trainers of other libraries that are restarted at another size: losses and weights are those of one process."""

from __future__ import annotations

import importlib
import importlib.util
import json
import signal
import socket
from pathlib import Path

import pytest

from tests.helpers.program import bftrain
from tests.helpers.warm_python import PRELOAD
from tests.helpers.workers import Worker

pytestmark = pytest.mark.torch
EXAMPLES = Path(__file__).parents[2] / "examples" / "training"

TRANSFORMERS = """
import json, os
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from bftrain_elastic.huggingface import ElasticCallback, last_checkpoint, per_worker

torch.set_num_threads(1)
torch.manual_seed(1)
sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
model = BertForSequenceClassification(BertConfig(vocab_size=40, num_labels=3, **sizes, **dropout)).double()
rows = [torch.randint(1, 40, (8,)) for _ in range(48)]
data = [{"input_ids": row, "labels": int(row[0]) % 3} for row in rows]
folder = os.environ["BFTRAIN_FOLDER"]
args = TrainingArguments(
    output_dir=folder, per_device_train_batch_size=per_worker(4), gradient_accumulation_steps=3, num_train_epochs=9,
    logging_steps=1, save_strategy="no", report_to=[], disable_tqdm=True, learning_rate=0.01, warmup_steps=5, seed=7,
    use_cpu=True, average_tokens_across_devices=False,
)
trainer = Trainer(model=model, args=args, train_dataset=data, callbacks=[ElasticCallback()])
trainer.train(resume_from_checkpoint=last_checkpoint(folder))
print(json.dumps({"end": [float(one.detach().sum()) for one in model.parameters()]}), flush=True)
"""

LIGHTNING = """
import json, os
import torch, lightning
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from torch.utils.data import DataLoader, TensorDataset
from bftrain_elastic.lightning import ElasticCallback

torch.set_num_threads(1)
lightning.seed_everything(1)

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.inside(batch[0]), batch[1])
    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)]

x = torch.randn(48, 4).double()
data = TensorDataset(x, x.prod(dim=1, keepdim=True))
model = Model().double()
quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
elastic = ElasticCallback(os.environ["BFTRAIN_FOLDER"], samples=len(data), batch_size=4)
nodes = int(os.environ.get("WORLD_SIZE", "1"))
more = {"plugins": [TorchElasticEnvironment()], "strategy": "ddp"} if nodes > 1 else {}
trainer = lightning.Trainer(
    accelerator="cpu", max_epochs=9, accumulate_grad_batches=3, num_nodes=nodes, devices=1, callbacks=[elastic],
    use_distributed_sampler=False, **more, **quiet,
)
trainer.fit(model, DataLoader(data, batch_sampler=elastic), ckpt_path=elastic.checkpoint)
print(json.dumps({"end": [float(one.detach().sum()) for one in model.parameters()]}), flush=True)
"""


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed here; install it with pip")


def until_step(worker: Worker, step: int) -> None:
    if not any(one["step"] >= step for one in worker.of("report")):
        worker.hear("report", lambda one: one["step"] >= step)


@pytest.mark.parametrize(
    ("script", "modules"),
    [
        pytest.param(TRANSFORMERS, "transformers.trainer", marks=needs("transformers"), id="transformers"),
        pytest.param(LIGHTNING, "lightning", marks=needs("lightning"), id="lightning"),
    ],
)
def test_a_trainer_goes_on_from_its_checkpoint_at_another_size(tmp_path: Path, script: str, modules: str) -> None:
    path = tmp_path / "script.py"
    path.write_text(script)
    env = {PRELOAD: modules, "BFTRAIN_LAUNCHER": "process"}
    alone = Worker("alone", tmp_path / "straight", path, **env)
    workers = [alone]
    try:
        for count in (2, 1):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
            group |= {"WORLD_SIZE": str(count), "BFTRAIN_SIZE": str(count), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
            members = [
                Worker(f"{count}-{rank}", tmp_path / "task", path, **env, **group, RANK=str(rank), GROUP_RANK=str(rank))
                for rank in range(count)
            ]
            workers += members
            if count > 1:
                until_step(members[0], 7)
                members[1].process.send_signal(signal.SIGTERM)  # of all workers one is enough
            assert [one.ends() for one in members] == [0] * count, members[0].log.read_text()
        assert alone.ends() == 0
        reports, expected = (
            {one["step"]: (one["samples"], one["loss"]) for worker in some for one in worker.of("report")}
            for some in (workers[1:], [alone])
        )
        assert {one["size"] for worker in workers[1:] for one in worker.of("report")} == {1, 2}
        assert sorted(reports) == sorted(expected) == list(range(1, 37)), "each step is done once"
        assert {samples for samples, _ in reports.values()} == {12}
        if script is TRANSFORMERS:  # Lightning gives each worker the loss of its share
            losses = [[seen[step][1] for step in sorted(seen)] for seen in (reports, expected)]
            assert losses[0] == pytest.approx(losses[1], abs=2e-4), "as Trainer rounds them"
        end = alone.lines()[-1]["end"]
        assert workers[-1].lines()[-1]["end"] == pytest.approx(end, rel=1e-6, abs=1e-9)
    finally:
        for worker in workers:
            worker.close()


@pytest.mark.soak
@pytest.mark.parametrize(
    ("example", "launcher", "modules"),
    [
        pytest.param("bert_huggingface.py", "process", "transformers.trainer", marks=needs("transformers")),
        pytest.param("cnn_lightning.py", "process", "lightning", marks=needs("lightning")),
        pytest.param("cnn_accelerate.py", "process", "accelerate", marks=needs("accelerate")),
    ],
)
def test_nothing_is_wrong_with_the_examples(example: str, launcher: str, modules: str) -> None:
    words = (EXAMPLES / example, "--launcher", launcher, "--preload", modules, "--json")
    done = bftrain("check", *words)
    assert done.code == 0, done.out + done.err
    assert all(one["ok"] for one in json.loads(done.out))


@needs("transformers")
def test_the_last_checkpoint_is_the_last_whole_one_of_trainer(tmp_path: Path) -> None:
    last_checkpoint = importlib.import_module("bftrain_elastic.huggingface").last_checkpoint
    assert last_checkpoint(str(tmp_path)) is None
    states = {"checkpoint-5": "{}", "checkpoint-10": "{}", "checkpoint-15": '{"epoch": 1.', "checkpoint-20": None}
    for name, text in {**states, "checkpoint-30-old": "{}", "checkpoint-best": "{}"}.items():
        (tmp_path / name).mkdir()
        if text is not None:
            (tmp_path / name / "trainer_state.json").write_text(text)
    assert last_checkpoint(str(tmp_path)) == str(tmp_path / "checkpoint-10")
