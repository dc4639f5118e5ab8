"""Trainers of others in groups that change: losses and weights are those of a training that is never resized."""

from __future__ import annotations

import importlib.util
import json
import signal
import socket
from pathlib import Path

import pytest

from tests.helpers.program import bftrain
from tests.helpers.warm_python import PRELOAD
from tests.helpers.workers import Worker, Workers

pytestmark = pytest.mark.torch
EXAMPLES = Path(__file__).parents[2] / "examples" / "training"

TRANSFORMERS = """
import json, os, sys
import torch
from transformers import Trainer, TrainerCallback, TrainingArguments
from bftrain_elastic.huggingface import run_trainer

torch.set_num_threads(1)
torch.manual_seed(1)
draw = torch.Generator().manual_seed(3)
sizes = {"vocab_size": 40, "num_labels": 3}
rows = [torch.randint(1, 40, (8,), generator=draw) for _ in range(43)]
if sys.argv[1] == "bert":
    from transformers import BertConfig, BertForSequenceClassification
    layers = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForSequenceClassification(BertConfig(**layers, **sizes, **dropout))
    data = [{"input_ids": row, "labels": int(row[0]) % 3} for row in rows]
else:
    from transformers import GPT2Config, GPT2LMHeadModel
    layers = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 16}
    model = GPT2LMHeadModel(GPT2Config(**layers, **sizes))  # with dropout
    data = [{"input_ids": row, "labels": row.where(torch.arange(8) > n % 5, -100)} for n, row in enumerate(rows)]
model.double()
by_sample = sys.argv[1] == "gpt2"

class Changed(torch.utils.data.Dataset):
    def __len__(self):
        return len(data)
    def __getitem__(self, number):
        move = int(torch.randint(0, 8, ())) if by_sample else 0
        return data[number] | {"input_ids": data[number]["input_ids"].roll(move)}

class Written(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **_):
        for name in {"loss", "learning_rate", "eval_loss"}.intersection(logs):
            print(json.dumps({"step": state.global_step, "logged": name, "value": logs[name]}), flush=True)

quiet = {"report_to": [], "disable_tqdm": True, "output_dir": os.environ["BFTRAIN_FOLDER"] + "-out"}
evaluated = {"eval_strategy": "epoch", "per_device_eval_batch_size": 2, "save_strategy": "no"}
if sys.argv[1] == "bert":
    evaluated |= {"save_strategy": "epoch", "load_best_model_at_end": True, "save_total_limit": 1}
    evaluated |= {"dataloader_num_workers": 1, "dataloader_persistent_workers": True}
about = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3, "num_train_epochs": 9, "logging_steps": 5}
args = TrainingArguments(**quiet, **evaluated, **about, learning_rate=0.01, warmup_steps=5, seed=7)
trainer = Trainer(model=model, args=args, train_dataset=Changed(), eval_dataset=data[:12], callbacks=[Written()])
output = run_trainer(trainer, random_by_sample=by_sample)  # 36 steps, the last of four an epoch is smaller
weights = [float(one.detach().sum()) for one in model.parameters()]
print(json.dumps({"end": [*weights, output.training_loss, trainer.evaluate()["eval_loss"]]}), flush=True)
"""


LIGHTNING = """
import json
import torch, lightning
from torch.utils.data import DataLoader, TensorDataset
from bftrain_elastic.lightning import run_trainer
torch.set_num_threads(1)
lightning.seed_everything(1)

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        layers = [torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Dropout(0.3), torch.nn.Linear(8, 1)]
        self.inside = torch.nn.Sequential(*layers)
    def written(self, name, value):
        print(json.dumps({"step": self.trainer.global_step, "logged": name, "value": value}), flush=True)
    def on_train_epoch_end(self):
        self.written("rate", self.trainer.optimizers[0].param_groups[0]["lr"])
    def training_step(self, batch, _):
        return torch.nn.functional.mse_loss(self.inside(batch[0]), batch[1])
    def validation_step(self, batch, _):
        self.log("val", torch.nn.functional.mse_loss(self.inside(batch[0]), batch[1]))
    def on_validation_epoch_end(self):
        self.written("val", float(self.trainer.callback_metrics["val"]))
    def configure_optimizers(self):
        optimizer = torch.optim.Adam(self.parameters(), lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.9)]

x = torch.randn(43, 4).double()
data = TensorDataset(x, x.prod(dim=1, keepdim=True))

class Changed(torch.utils.data.Dataset):
    def __len__(self):
        return len(data)
    def __getitem__(self, number):
        return data[number][0] + torch.randn(4).double() / 9, data[number][1]

model = Model().double()
quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
trainer = lightning.Trainer(accelerator="cpu", max_epochs=9, accumulate_grad_batches=3, num_sanity_val_steps=0, **quiet)
loader = DataLoader(data, batch_size=8)
shuffled = DataLoader(Changed(), batch_size=4, shuffle=True)
run_trainer(trainer, model, random_by_sample=True, train_dataloaders=shuffled, val_dataloaders=loader)
end = [float(one.detach().sum()) for one in model.parameters()]
print(json.dumps({"end": [*end, trainer.validate(model, loader, verbose=False)[0]["val"]]}), flush=True)
"""


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed here; install it with pip")


def until_step(worker: Worker, step: int) -> None:
    if not any(one["step"] >= step for one in worker.of("report")):
        worker.hear("report", lambda one: one["step"] >= step)


def train_resized(folder: Path, script: str, *words: str, modules: str, planned: bool) -> tuple[list[Worker], Worker]:
    """Train on one, three and two workers, and beside that on one alone; or the first of three is killed."""
    straight, resized = folder / "straight", folder / "resized"
    straight.mkdir(), resized.mkdir()
    env = {PRELOAD: modules}
    with (
        Workers(straight, script, *words, count=1, **env) as alone,
        Workers(resized, script, *words, count=3, **env) as group,
    ):
        alone.ready()
        alone.go(1)
        group.ready()
        for generation, members in enumerate((group.all[:1], group.all, group.all[1:]), 1):
            group.go(generation, members)
            until_step(members[0], generation * 7)
            if generation == 1 or (generation == 2 and planned):
                group.gather(generation + 1, members)
            elif generation == 2:
                group.all[0].process.kill()
                group.ready(group.all[1:])
        if planned:
            group.all[0].tell(type="leave")
        for worker in (alone.all[0], *group.all):
            assert worker.ends() == 0 or (worker is group.all[0] and not planned), worker.log.read_text()
    return group.all, alone.all[0]


def compare_training(first: Worker, second: Worker, third: Worker, alone: Worker) -> None:
    """Compare all steps and the end with those of a training that is never resized."""
    reports = {one["step"]: one for worker in (first, second) for one in worker.of("report")}
    straight = {one["step"]: one for one in alone.of("report")}
    assert sorted(reports) == list(range(1, 37))
    assert {one["size"] for one in reports.values()} == {1, 2, 3}
    for step, one in straight.items():
        assert reports[step]["samples"] == one["samples"] == (12 if step % 4 else 7)
        assert reports[step]["loss"] == pytest.approx(one["loss"], rel=1e-6)
    for worker in (second, third):
        assert worker.lines()[-1]["end"] == pytest.approx(alone.lines()[-1]["end"], rel=1e-6, abs=1e-9)


def compared_logs(first: Worker, second: Worker, alone: Worker) -> dict[tuple[int, str], float]:
    """Return what was logged, which is the same with resizes and without."""
    logged, expected = (
        {(one["step"], one["logged"]): one["value"] for worker in some for one in worker.lines() if "logged" in one}
        for some in ((first, second), (alone,))
    )
    assert logged == pytest.approx(expected, rel=1e-6)
    return logged


@needs("transformers")
@pytest.mark.parametrize(("model", "planned"), [("bert", True), pytest.param("gpt2", False, marks=pytest.mark.soak)])
def test_the_trainer_of_transformers_trains_as_one_process_through_resizes(
    tmp_path: Path, model: str, *, planned: bool
) -> None:
    about = {"modules": f"transformers.trainer transformers.models.{model}.modeling_{model}", "planned": planned}
    (first, second, third), alone = train_resized(tmp_path, TRANSFORMERS, model, **about)
    assert len(compared_logs(first, second, alone)) == 7 + 7 + 9
    compare_training(first, second, third, alone)


@needs("transformers")
def test_the_trainer_of_transformers_goes_on_from_disk_where_a_launcher_starts_all_again(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(TRANSFORMERS)
    env = {PRELOAD: "transformers.trainer transformers.models.gpt2.modeling_gpt2", "BFTRAIN_LAUNCHER": "process"}
    alone = Worker("alone", tmp_path / "straight", script, "gpt2", **env)
    workers = [alone]
    try:
        for count in (2, 1):
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(probe.getsockname()[1])}
            group = {"WORLD_SIZE": str(count), "BFTRAIN_SIZE": str(count), **place} if count > 1 else {}
            ranks = [{"RANK": str(rank)} if count > 1 else {} for rank in range(count)]
            members = [
                Worker(f"{count}-{rank}", tmp_path / "task", script, "gpt2", **env, **group, **one)
                for rank, one in enumerate(ranks)
            ]
            workers += members
            if count > 1:
                until_step(members[0], 7)
                members[0].process.send_signal(signal.SIGTERM)
            assert [one.ends() for one in members] == [0] * count, members[0].log.read_text()
        assert alone.ends() == 0
        reports = {one["step"]: one["loss"] for worker in workers[1:] for one in worker.of("report")}
        expected = {one["step"]: one["loss"] for one in alone.of("report")}
        assert {one["size"] for worker in workers[1:] for one in worker.of("report")} == {1, 2}
        assert reports == pytest.approx(expected, rel=1e-6)
        assert len(reports) == 36
    finally:
        for worker in workers:
            worker.close()


@needs("lightning")
@pytest.mark.parametrize("planned", [pytest.param(True, marks=pytest.mark.soak), False])
def test_the_trainer_of_lightning_trains_as_one_process_through_resizes(tmp_path: Path, *, planned: bool) -> None:
    (first, second, third), alone = train_resized(tmp_path, LIGHTNING, modules="lightning", planned=planned)
    assert len(compared_logs(first, second, alone)) == 18
    compare_training(first, second, third, alone)


@pytest.mark.parametrize(
    ("example", "modules"),
    [
        pytest.param("bert_huggingface.py", "transformers.trainer", marks=[needs("transformers"), pytest.mark.soak]),
        pytest.param("cnn_lightning.py", "lightning", marks=[needs("lightning"), pytest.mark.soak]),
    ],
)
def test_nothing_is_wrong_with_a_trainer_that_joins_the_group(tmp_path: Path, example: str, modules: str) -> None:
    words = (EXAMPLES / example, "--preload", modules, "--json", "--", "--output", tmp_path / "out")
    done = bftrain("elastic", "check", *words)
    assert done.code == 0, done.out + done.err
    assert all(one["ok"] for one in json.loads(done.out))
