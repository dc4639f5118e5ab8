"""The Trainer of Transformers in elastic training: one training, in one group of workers after another.

Trainer forms its own group, from what its launcher says, once for the life of a process. Here it is put into each group
that comes, and goes on from the last commit by its own way of resuming.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from itertools import islice
from pathlib import Path
from typing import Any, Final

from bftrain_elastic.accelerate import group_environment, in_group
from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker import progress_report
from bftrain_elastic.worker.divided_batches import GivenBatch, divide
from bftrain_elastic.worker.random_numbers import mixed_seed, random_numbers_by_sample, seed_all
from bftrain_elastic.worker.run_loop import run
from bftrain_elastic.worker.state import State
from bftrain_elastic.worker.state_values import inner

_STATE_FILE: Final = "trainer_state.json"  # Trainer's own name for it
Untyped = Any  # a Trainer and what it takes and gives: Transformers is imported only where a script uses it
_Base: Any = object
_HALF: Final = 0.75  # of a loss: what is below was divided by twice the number of items


def run_trainer(trainer: Untyped, *, random_by_sample: bool = False, **arguments: Untyped) -> Untyped:
    """Train as ``trainer.train(**arguments)`` does, by all workers of the present group; return what it returns.

    ``per_device_train_batch_size`` counts the samples of all workers together, so that the same batches are trained at
    any size, with the gradient and the loss of one process. Each step is reported, and committed before the next one.
    ``resume_from_checkpoint`` counts as long as nothing was committed. With ``random_by_sample`` what a sample and the
    model draw for it is the same at any size, too: see ``State.random_numbers``.

    Example::

        from bftrain_elastic.huggingface import run_trainer

        trainer = Trainer(model=model, args=TrainingArguments(...), train_dataset=data)
        run_trainer(trainer)  # instead of trainer.train()
    """
    group = TrainerGroup(trainer, random_by_sample=random_by_sample)
    state = State(model=trainer.model, optimizer=trainer.optimizer, schedule=trainer.lr_scheduler, trainer=group)
    group.state = state
    output: list[Any] = []
    try:
        run(state, lambda _state: output.append(group.train(arguments)))
    finally:
        group.enter(state.rank, 1)  # what follows in the script is done by each worker alone
    return output[-1]


class TrainerGroup:
    """A Trainer and the group that trains it; its ``state_dict`` is what Trainer knows of its progress."""

    state: State

    def __init__(self, trainer: Untyped, *, random_by_sample: bool) -> None:
        if not hasattr(trainer, "create_accelerator_and_postprocess"):
            what, fix = f"a {type(trainer).__name__} is no Trainer of Transformers", "give it a transformers.Trainer"
            raise BadScript(what, where="run_trainer", fix=fix)
        if trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled:
            what = f"a Trainer with {'DeepSpeed' if trainer.is_deepspeed_enabled else 'FSDP'} divides the model"
            fix = "leave it out, or train with --backend process, from Trainer's own checkpoints"
            raise BadScript(f"{what}: each worker must hold all of it", where="run_trainer", fix=fix)
        if getattr(trainer.args, "train_sampling_strategy", "") == "batch_rebalance":
            what = "train_sampling_strategy='batch_rebalance' divides the data for a number of workers that will change"
            raise BadScript(what, where="run_trainer", fix="take 'group_by_length' or 'random'")
        from transformers import TrainerCallback

        self.trainer, self.random_by_sample = trainer, random_by_sample
        self.progress: dict[str, Any] = {"trainer": "", "losses": [0.0, 0.0, 0], "normalised": None, "scaler": {}}
        self.committed = 0
        self.samples, self.loss, self.parts = 0, 0.0, 0  # of the present step
        self.given = GivenBatch(0)  # of which this worker trains its share now
        self._history: tuple[int, str] = (-1, "")
        self._store = _leave_own_group()
        trainer.__class__ = type(type(trainer).__name__, (_TrainerMixin, type(trainer)), {"_group": self})
        trainer.add_callback(type("GroupCallback", (_CallbackMixin, TrainerCallback), {})(self))
        trainer.args.average_tokens_across_devices = False  # this is done here, for all models rightly
        trainer.model_init = None  # Trainer has made the model by it, and would do so again for each group
        loader = trainer.get_train_dataloader()
        trainer.create_optimizer()
        trainer.create_scheduler(trainer.set_initial_training_values(trainer.args, loader)[-1])
        self._parts = (trainer.optimizer, trainer.lr_scheduler)

    @property
    def seed(self) -> int:
        """The seed of the order of samples."""
        args = self.trainer.args
        return int(args.seed if args.data_seed is None else args.data_seed)

    def enter(self, rank: int, workers: int) -> None:
        """Make the Trainer a member of a group that exists already, or of none."""
        import torch
        from accelerate.state import AcceleratorState, GradientState

        trainer = self.trainer
        AcceleratorState._reset_state(reset_partial_state=True)  # noqa: SLF001 - there is no public way
        GradientState._reset_state()  # noqa: SLF001 - as above
        vars(trainer.args).pop("_setup_devices", None)  # a cached property
        trainer._eval_dataloaders = {}  # noqa: SLF001 - those that Trainer keeps are divided for an earlier group
        trainer.args.use_cpu = trainer.args.use_cpu or not torch.cuda.is_available()
        with group_environment(rank, workers, torch.get_num_threads()):
            _ = trainer.args._setup_devices  # noqa: SLF001 - as above
            trainer.create_accelerator_and_postprocess()
        trainer.args.distributed_state.process_index = rank  # also when alone after the training: one of them writes
        trainer.accelerator.__class__ = in_group(type(trainer.accelerator), inner(self.state).wrapped)
        trainer.model_wrapped = trainer.model
        trainer.optimizer, trainer.lr_scheduler = self._parts
        trainer._created_lr_scheduler = False  # noqa: SLF001 - or it would make another
        if getattr(trainer, "neftune_hook_handle", None) is not None:
            trainer.neftune_hook_handle.remove()

    def train(self, arguments: Mapping[str, Any]) -> Untyped:
        """Train in the present group."""
        self.enter(self.state.rank, self.state.workers)
        if not self.progress["trainer"]:
            return self.trainer.train(**arguments)
        with tempfile.TemporaryDirectory(prefix="bftrain-trainer-") as folder:
            Path(folder, _STATE_FILE).write_text(self.progress["trainer"], encoding="utf-8")
            return self.trainer.train(**{**arguments, "resume_from_checkpoint": folder})

    def commit(self) -> None:
        """Commit the last step, unless that was done."""
        trainer = self.trainer
        if trainer.state.global_step != self.committed:
            self.committed = trainer.state.global_step
            self.share_losses()
            self.state.commit()

    def share_losses(self) -> None:
        """Replace the losses that were not logged yet by their mean over all members; called by all members."""
        if self.state.workers > 1:
            mine = self.trainer._tr_loss  # noqa: SLF001 - there is no public way
            mine.fill_(inner(self.state).group.sums([float(mine)])[0] / self.state.workers)

    def state_dict(self) -> dict[str, Any]:
        """Return Trainer's progress."""
        trainer = self.trainer
        if self.committed and self.committed == trainer.state.global_step:
            losses = [float(trainer._tr_loss), trainer._total_loss_scalar, trainer._globalstep_last_logged]  # noqa: SLF001 - no public way
            scaler = getattr(trainer.accelerator, "scaler", None)
            scaler_state = {} if scaler is None else scaler.state_dict()
            self.progress |= {"trainer": self._trainer_state(), "losses": losses, "scaler": scaler_state}
        return self.progress

    def load_state_dict(self, found: Mapping[str, Any]) -> None:
        """Keep the progress that the next group goes on from."""
        self.progress, self.committed = dict(found), 0

    def _trainer_state(self) -> str:
        """Return Trainer's state as the JSON that it reads; what was logged is encoded only when it has grown."""
        from transformers.trainer_callback import ExportableState

        state, handler = self.trainer.state, self.trainer.callback_handler
        exported = [one for one in (*handler.callbacks, self.trainer.control) if isinstance(one, ExportableState)]
        values = {one.name: getattr(state, one.name) for one in fields(state) if one.name != "log_history"}
        values["stateful_callbacks"] = {type(one).__name__: one.state() for one in exported}
        if self._history[0] != len(state.log_history):
            self._history = len(state.log_history), json.dumps(state.log_history)
        return f'{json.dumps(values)[:-1]}, "log_history": {self._history[1]}}}'

    def resume(self) -> None:
        """Restore the parts of a Trainer that its own way of resuming leaves out."""
        trainer = self.trainer
        self.committed = trainer.state.global_step
        self.samples, self.loss = 0, 0.0
        if not self.progress["trainer"]:
            return
        unlogged, logged, last = self.progress["losses"]
        trainer._tr_loss.fill_(unlogged)  # noqa: SLF001 - there is no public way
        trainer._total_loss_scalar, trainer._globalstep_last_logged = logged, last  # noqa: SLF001 - as above
        trainer._initial_global_step = 0  # noqa: SLF001 - as above
        if self.progress["scaler"]:
            trainer.accelerator.scaler.load_state_dict(self.progress["scaler"])


def _leave_own_group() -> Untyped:
    """Leave the group that TrainingArguments formed as a launcher says; return its store, where :func:`run` meets."""
    import torch.distributed as dist

    if not dist.is_initialized():
        return None
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - there is no public way
    dist.destroy_process_group()
    os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "True"  # it is there as long as it is kept
    return store


class _CallbackMixin:
    """A callback that reports each step, and commits it before the next one, when Trainer has logged and evaluated."""

    def __init__(self, group: TrainerGroup) -> None:
        self._group = group

    def on_train_begin(self, *_: Untyped, **__: Untyped) -> None:
        self._group.resume()

    def on_step_begin(self, _args: Untyped, state: Untyped, *_: Untyped, **__: Untyped) -> None:
        group = self._group
        group.commit()
        group.parts = 0
        seed_all(mixed_seed(group.seed, state.global_step, group.state.rank))

    def on_step_end(self, *_: Untyped, **__: Untyped) -> None:
        group = self._group
        progress_report.report(samples=group.samples, loss=group.loss)
        group.samples, group.loss = 0, 0.0

    def on_train_end(self, _args: Untyped, state: Untyped, *_: Untyped, **__: Untyped) -> None:
        self._group.committed = state.global_step
        if self._group.state.workers > 1:  # no commit follows
            progress_report.average(inner(self._group.state).group.sums)


class _TrainerMixin(_Base):  # type: ignore[misc]  # it is put before a class that is known when it is imported
    """Changes to a Trainer in a group; this class is put before the Trainer's own."""

    _group: TrainerGroup

    def get_train_dataloader(self) -> Untyped:
        group = self._group
        with _left_alone(self.accelerator):
            loader = super().get_train_dataloader()
        self._divided = divide(loader, group.seed, seed_samples=group.random_by_sample)
        return self._divided

    def get_total_train_batch_size(self, args: Untyped) -> int:
        return int(self._train_batch_size * args.gradient_accumulation_steps)

    def _load_from_checkpoint(self, folder: str, *arguments: Untyped) -> None:
        if not self._group.progress["trainer"]:  # or the model is what was committed
            super()._load_from_checkpoint(folder, *arguments)

    def _load_callback_state(self) -> None:
        if not self._group.progress["trainer"]:
            super()._load_callback_state()
            return
        for one in (*self.callback_handler.callbacks, self.control):
            found = self.state.stateful_callbacks.get(type(one).__name__, {})
            vars(one).update(found.get("attributes", {}))

    def _run_epoch(self, *, epoch: int, **named: Untyped) -> None:
        batches = self._divided.batch_sampler
        batches.epoch, self._skipped = epoch, 0
        if epoch == named["epochs_trained"] and named["resume_from_checkpoint"] is not None:
            self._skipped = named["steps_trained_in_current_epoch"]
        super()._run_epoch(epoch=epoch, **named)

    def get_batch_samples(self, epoch_iterator: Iterator[Any], num_batches: int, device: Untyped) -> Untyped:
        found = list(islice(epoch_iterator, num_batches))
        given = self._divided.batch_sampler.given
        for _ in range(self._skipped):
            given.popleft()
        self._skipped = 0
        batches, items = super().get_batch_samples(iter(found), num_batches, device)
        if items is None or self._group.state.workers == 1:
            return batches, items
        mine = [batch for batch, share in zip(found, given, strict=False) if share.weight]
        own = self._get_num_items_in_batch(mine, device) if mine else items * 0
        return batches, self.accelerator.gather(own.reshape(1)).sum()

    def _finalize_training(self, *arguments: Untyped) -> Untyped:
        self._group.share_losses()
        return super()._finalize_training(*arguments)

    def training_step(self, *arguments: Untyped, **named: Untyped) -> Untyped:
        group = self._group
        group.given = self._divided.batch_sampler.given.popleft()
        if group.random_by_sample:
            seed = mixed_seed(group.seed, self.state.global_step, group.parts)
            with random_numbers_by_sample(seed, group.given.samples, group.given.share):
                loss = super().training_step(*arguments, **named)
        else:
            loss = super().training_step(*arguments, **named)
        group.parts += 1
        group.samples += group.given.samples
        group.loss += float(loss)
        return loss

    def compute_loss(self, model: Untyped, inputs: Untyped, *more: Untyped, **named: Untyped) -> Untyped:
        group, items = self._group, named.get("num_items_in_batch")
        if group.state.workers == 1 or not model.training:
            return super().compute_loss(model, inputs, *more, **named)
        weight = group.given.weight
        if items is not None and weight and group.progress["normalised"] is None:
            group.progress["normalised"] = self._is_normalised(model, inputs, named)
        found = super().compute_loss(model, inputs, *more, **named)
        if items is not None and group.progress["normalised"]:  # a sum over this share, by the items of all workers
            weight = group.state.workers * bool(weight)
        return (found[0] * weight, *found[1:]) if isinstance(found, tuple) else found * weight

    def _is_normalised(self, model: Untyped, inputs: Untyped, named: Untyped) -> bool:
        """Return whether the loss is a sum divided by the items of the whole batch: models and functions differ."""
        import torch

        alone, losses = self.accelerator.unwrap_model(model), []
        alone.eval()
        with torch.no_grad():
            for factor in (1, 2):
                items = {"num_items_in_batch": named["num_items_in_batch"] * factor}
                losses.append(abs(float(super().compute_loss(alone, dict(inputs), **{**named, **items}))))
        alone.train()
        return losses[1] < _HALF * losses[0]


@contextmanager
def _left_alone(accelerator: Untyped) -> Iterator[None]:
    """Make an Accelerator prepare nothing: it would divide a DataLoader in its own way."""
    accelerator.prepare = lambda *parts, **_: parts if len(parts) > 1 else parts[0]
    try:
        yield
    finally:
        del accelerator.prepare
