"""The Trainer of Lightning in elastic training: one training, in one group of workers after another.

Lightning forms its own group when it begins to fit. Here it fits in each group that comes, by a strategy that finds the
group there, and goes on from the last commit by its own way of resuming from a checkpoint, which is in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

from bftrain_elastic.errors import BadScript
from bftrain_elastic.worker import progress_report
from bftrain_elastic.worker.divided_batches import GivenBatch, divide
from bftrain_elastic.worker.random_numbers import mixed_seed, random_numbers_by_sample, seed_all
from bftrain_elastic.worker.run_loop import run
from bftrain_elastic.worker.state import RegroupSignal, State
from bftrain_elastic.worker.state_values import inner

_COMMITTED: Final = "the last commit"  # the path of a checkpoint that is in memory
_WHOLE: Final = frozenset({"SingleDeviceStrategy", "DDPStrategy"})  # strategies that leave each worker the whole model
_TRAINERS: Final = {f"{root}.trainer.trainer": root for root in ("lightning.pytorch", "pytorch_lightning")}
_EPOCH_LOOP: Final = "epoch_loop.state_dict"  # Lightning's own names in a checkpoint
_BATCHES: Final = "epoch_loop.batch_progress"
_STEPPED: Final = "_batches_that_stepped"
Untyped = Any  # a Trainer and what it takes and gives: Lightning is imported only where a script uses it
_Base: Any = object


def run_trainer(trainer: Untyped, model: Untyped, *, random_by_sample: bool = False, **arguments: Untyped) -> None:
    """Train as ``trainer.fit(model, **arguments)`` does, by all workers of the present group.

    The batch size of the training data counts the samples of all workers together, so that the same batches are trained
    at any size, with the gradient of one process. Each step is reported, and committed before the next one.
    ``ckpt_path`` counts as long as nothing was committed. With ``random_by_sample`` what a sample and the model draw
    for it is the same at any size, too: see ``State.random_numbers``.

    Example::

        from bftrain_elastic.lightning import run_trainer

        trainer = lightning.Trainer(max_epochs=10)
        run_trainer(trainer, model, train_dataloaders=data)  # instead of trainer.fit(model, ...)
    """
    group = TrainerGroup(trainer, model, random_by_sample=random_by_sample)
    try:
        run(group.state, lambda _state: group.fit(arguments))
    finally:
        group.enter(group.state.rank, 1)  # what follows in the script is done by each worker alone


class TrainerGroup:
    """A Trainer and the group that trains its model; its ``state_dict`` is Lightning's checkpoint without the model."""

    def __init__(self, trainer: Untyped, model: Untyped, *, random_by_sample: bool) -> None:
        root = next(
            (_TRAINERS[kind.__module__] for kind in type(trainer).__mro__ if kind.__module__ in _TRAINERS), None
        )
        if root is None:
            what, fix = f"a {type(trainer).__name__} is no Trainer of Lightning", "give it a lightning.Trainer"
            raise BadScript(what, where="run_trainer", fix=fix)
        name = type(trainer.strategy).__name__
        if name not in _WHOLE:
            fix = "leave the strategy out, or train with --backend process, from Lightning's own checkpoints"
            raise BadScript(f"{name} divides the model: each worker must hold all of it", where="run_trainer", fix=fix)
        self.trainer, self.model, self.random_by_sample = trainer, model, random_by_sample
        self.state = State(model=model, fit=self)
        self.rank, self.workers = 0, 1
        self.progress: dict[str, Any] = {}
        self.committed = 0
        self.optimizers: list[Any] = []
        self.samples, self.loss = 0, 0.0  # of the present step
        self.given = GivenBatch(0)  # of which this worker trains its share now
        self.left: RegroupSignal | None = None  # what ended the last group as was planned
        trainer._accelerator_connector.strategy = _strategy(root, self)  # noqa: SLF001 - there is no public way
        trainer._accelerator_connector.use_distributed_sampler = False  # noqa: SLF001 - as above
        trainer._signal_connector.register_signal_handlers = lambda: None  # noqa: SLF001 - the agent says what SIGTERM means
        callback = import_module(f"{root}.callbacks").Callback
        trainer.callbacks.insert(0, type("GroupCallback", (_CallbackMixin, callback), {"_group": self})())

    def enter(self, rank: int, workers: int) -> None:
        """Make the Trainer a member of a group that exists already, or of none."""
        self.rank, self.workers = rank, workers
        self.trainer.strategy.set_world_ranks()

    def fit(self, arguments: Mapping[str, Any]) -> None:
        """Train in the present group."""
        self.enter(self.state.rank, self.state.workers)
        self.left = None
        self.trainer.fit_loop._combined_loader = None  # noqa: SLF001 - what reads ahead has read for another group
        path = {"ckpt_path": _COMMITTED} if self.progress else {}
        self.trainer.fit(self.model, **{**arguments, **path})
        if self.left is not None:
            raise self.left

    def commit(self) -> None:
        """Commit the last step, unless that was done."""
        if self.trainer.global_step != self.committed:
            self.committed = self.trainer.global_step
            self.progress = self._checkpoint()
            self.state.commit()

    def state_dict(self) -> dict[str, Any]:
        """Return what Lightning knew of its progress at the last commit; tensors are those in use."""
        return self.progress

    def load_state_dict(self, found: Mapping[str, Any]) -> None:
        """Keep the progress that the next group goes on from."""
        self.progress = dict(found)

    def _checkpoint(self) -> dict[str, Any]:
        found = self.trainer._checkpoint_connector.dump_checkpoint(weights_only=False)  # noqa: SLF001 - there is no public way
        kept = {name: value for name, value in found.items() if "hparams" not in name and "hyper_param" not in name}
        del kept["state_dict"]  # the model is in the State itself
        fit_loop = kept["loops"]["fit_loop"]
        fit_loop[_BATCHES]["is_last_batch"] = False  # that is said of the next batch already
        return {**kept, "loops": {"fit_loop": fit_loop}}

    def seed(self, *numbers: int) -> int:
        """Return the seed of ``seed_everything``, or the one of what has these numbers."""
        return mixed_seed(int(os.environ.get("PL_GLOBAL_SEED", "0")), *numbers)

    def divide(self, loader: Untyped) -> Untyped:
        """Return a DataLoader of this worker's shares."""
        divided = divide(loader, self.seed(), seed_samples=self.random_by_sample)
        kind: Any = type("GroupLoader", (_LoaderMixin, type(loader)), {"_group": self})
        found = kind.__new__(kind)
        vars(found).update(vars(divided))
        return found

    def resume(self) -> None:
        """Record that the Trainer goes on from here, and set what its way of resuming counts otherwise."""
        self.committed, self.optimizers = self.trainer.global_step, list(self.trainer.strategy.optimizers)
        self.samples, self.loss = 0, 0.0
        if self.progress:
            loop = self.trainer.fit_loop.epoch_loop
            loop.batch_progress.total.ready = loop.batch_progress.total.completed
            setattr(loop, _STEPPED, self.progress["loops"]["fit_loop"][_EPOCH_LOOP][_STEPPED])


class _CallbackMixin:
    """A callback that reports each step, and commits it before the next one, when Lightning has validated."""

    _group: TrainerGroup

    def on_train_start(self, *_: Untyped) -> None:
        self._group.resume()

    def on_train_batch_start(self, trainer: Untyped, *_: Untyped) -> None:
        self._group.commit()
        seed_all(self._group.seed(trainer.fit_loop.epoch_loop.total_batch_idx, self._group.rank))

    def on_train_batch_end(self, trainer: Untyped, *_: Untyped) -> None:
        group = self._group
        group.samples += group.given.samples
        if trainer.global_step != group.committed:
            progress_report.report(samples=group.samples, loss=group.loss)
            group.samples, group.loss = 0, 0.0

    def on_train_end(self, *_: Untyped) -> None:
        group = self._group
        group.progress = group._checkpoint()  # noqa: SLF001 - of this module
        if group.workers > 1:  # no commit follows
            progress_report.average(inner(group.state).group.sums)


class _StrategyMixin(_Base):  # type: ignore[misc]  # it is put before DDPStrategy, which is known when it is imported
    """Changes to DDPStrategy in an existing group."""

    _group: TrainerGroup

    global_rank = property(lambda self: self._group.rank)
    node_rank = global_rank
    local_rank = property(lambda _self: 0)
    world_size = property(lambda self: self._group.workers)
    root_device = property(lambda self: self._group.state.device)

    def setup_distributed(self) -> None:
        self.set_world_ranks()

    def setup(self, trainer: Untyped) -> None:
        self._plain.setup(self, trainer)

    def _setup_model(self, model: Untyped) -> Untyped:
        group = self._group
        if group.workers == 1 or not group.trainer.training:
            return model
        inner(group.state).wrapped.append(super()._setup_model(model))
        return inner(group.state).wrapped[-1]

    def teardown(self) -> None:
        self.model = self.lightning_module
        if self._group.left is None:
            self._plain.teardown(self)  # which moves model and optimizers to the CPU
        else:
            self.precision_plugin.teardown()
            self.accelerator.teardown()

    def process_dataloader(self, dataloader: Untyped) -> Untyped:
        loader = super().process_dataloader(dataloader)
        return self._group.divide(loader) if self._group.trainer.training else loader

    def training_step(self, *arguments: Untyped, **named: Untyped) -> Untyped:
        group = self._group
        if not group.random_by_sample:
            return super().training_step(*arguments, **named)
        seed = group.seed(group.trainer.fit_loop.epoch_loop.total_batch_idx)
        with random_numbers_by_sample(seed, group.given.samples, group.given.share):
            return super().training_step(*arguments, **named)

    def backward(self, closure_loss: Untyped, *arguments: Untyped, **named: Untyped) -> Untyped:
        loss = closure_loss * self._group.given.weight
        self._group.loss += float(loss.detach())
        return super().backward(loss, *arguments, **named)

    def load_checkpoint(self, checkpoint_path: Untyped, *arguments: Untyped, **named: Untyped) -> Untyped:
        if checkpoint_path != _COMMITTED:
            return super().load_checkpoint(checkpoint_path, *arguments, **named)
        return {**self._group.progress, "state_dict": self.lightning_module.state_dict()}


def _strategy(root: str, group: TrainerGroup) -> Untyped:
    """Return a strategy for the groups that come, with what the Trainer's own one was given."""
    strategies, before = import_module(f"{root}.strategies"), group.trainer.strategy
    kept = {"accelerator": before.accelerator, "checkpoint_io": before.checkpoint_io}
    options = {"init_sync": False, **getattr(before, "_ddp_kwargs", {})}  # all hold the same state already
    kind = type("GroupStrategy", (_StrategyMixin, strategies.DDPStrategy), {"_plain": strategies.Strategy})
    found = kind(**kept, precision_plugin=before.precision_plugin, parallel_devices=[group.state.device], **options)
    found._group = group  # noqa: SLF001 - of this module
    base = import_module(f"{root}.strategies.launchers.launcher")._Launcher  # noqa: SLF001 - there is no public way
    found._launcher = type("GroupLauncher", (_LauncherMixin, base), {"_group": group})()  # noqa: SLF001 - as above
    return found


class _LauncherMixin:
    """Runs what a Trainer does; a planned change of the group is no error that its callbacks and loggers should see."""

    is_interactive_compatible = True
    _group: TrainerGroup

    def launch(self, function: Untyped, *arguments: Untyped, trainer: Untyped, **named: Untyped) -> Untyped:
        try:
            return function(*arguments, **named)
        except RegroupSignal as signal:
            self._group.left = signal
            trainer._teardown()  # noqa: SLF001 - there is no public way
            trainer.state.stage = None

    def kill(self, _number: int) -> None:
        pass


class _LoaderMixin(_Base):  # type: ignore[misc]  # it is put before the class of the script's own DataLoader
    """A DataLoader that begins where Lightning is in the epoch."""

    _group: TrainerGroup

    def __iter__(self) -> Iterator[Any]:
        fit, batches = self._group.trainer.fit_loop, self.batch_sampler
        batches.epoch = fit.epoch_progress.current.processed
        batches.start = fit.epoch_loop.batch_progress.current.ready
        for batch in super().__iter__():
            self._group.given = batches.given.popleft()
            yield batch

    def state_dict(self) -> dict[str, Any]:  # or Lightning says that an epoch cannot be gone on with
        return {}

    def load_state_dict(self, _found: Untyped) -> None:
        pass
