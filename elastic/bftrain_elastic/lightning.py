"""The Trainer of Lightning as an elastic task under the launcher ``process``.

A change of size stops the script at a step, and starts it again from the checkpoint that the Trainer saves there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback

from bftrain_elastic.trainers import StopRequest
from bftrain_elastic.worker import progress_report
from bftrain_elastic.worker.data import BatchShare, epoch_order

Untyped = Any  # objects that Lightning passes to its callbacks


class ElasticCallback(Callback):  # type: ignore[misc]  # Lightning may not be installed
    """Reports each step, saves a checkpoint when the task must stop, and divides the training data.

    It is a batch sampler: each worker gets its share of batches of ``batch_size`` samples of all workers together. The
    sample sequence depends on the seed and the epoch alone, and an interrupted epoch continues.

    Args:
        folder: folder of the checkpoint.
        samples: length of the data set.
        batch_size: samples of a batch, of all workers together.
        seed: seed of the sample sequence; ``None``: unshuffled.
        every: steps between checkpoints, the restart points after a death.

    Example::

        elastic = ElasticCallback(folder, samples=len(data), batch_size=240)
        trainer = Trainer(max_epochs=10, num_nodes=nodes, callbacks=[elastic], use_distributed_sampler=False)
        trainer.fit(model, DataLoader(data, batch_sampler=elastic), ckpt_path=elastic.checkpoint)

    """

    _request: StopRequest  # set while training

    def __init__(self, folder: str, *, samples: int, batch_size: int, seed: int | None = 0, every: int = 500) -> None:
        self._path = Path(folder, "elastic.ckpt")
        self._samples, self.batch_size, self._seed, self._every = samples, batch_size, seed, every
        self._epoch, self._start = 0, 0  # position of the next batch
        self._step, self._done = 0, 0  # latest step, and the samples since then

    @property
    def checkpoint(self) -> str | None:
        """The path of the checkpoint to continue from, or None."""
        return str(self._path) if self._path.exists() else None

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(range(0, self._samples, self.batch_size))

    def __iter__(self) -> Iterator[list[int]]:
        """Yield this worker's part of each remaining batch of the epoch."""
        order = epoch_order(self._samples, self._seed, self._epoch)
        rank, workers = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
        for start in range(self._start * self.batch_size, self._samples, self.batch_size):
            batch = order[start : start + self.batch_size]
            yield batch[BatchShare.of(len(batch), rank, workers).mine]

    def state_dict(self) -> dict[str, int]:
        """Return the position in the data."""
        return {"epoch": self._epoch, "start": self._start}

    def load_state_dict(self, state_dict: Mapping[str, int]) -> None:
        """Continue from a position."""
        self._epoch, self._start = state_dict["epoch"], state_dict["start"]

    def on_train_start(self, trainer: Untyped, _module: Untyped) -> None:
        """Watch for SIGTERM."""
        self._request, self._step = StopRequest(), trainer.global_step

    def on_train_batch_end(self, trainer: Untyped, _: Untyped, outputs: Untyped, __: Untyped, batch_idx: int) -> None:
        """Report a step; save a checkpoint and exit if the task must stop."""
        self._done += min(self.batch_size, self._samples - batch_idx * self.batch_size)
        if trainer.global_step == self._step:  # gradients are accumulated
            return
        self._step = trainer.global_step
        ended, self._start = divmod(batch_idx + 1, len(self))
        self._epoch = trainer.current_epoch + ended
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        progress_report.report(self._done, loss, step=self._step)
        self._done = 0
        stops = self._request.agreed()
        if stops or self._step % self._every == 0:
            unfinished = f"{self._path}.new"
            trainer.save_checkpoint(unfinished)
            if trainer.is_global_zero:
                Path(unfinished).replace(self._path)
        if stops:
            StopRequest.stop(self._step)

    def on_train_epoch_end(self, trainer: Untyped, _module: Untyped) -> None:
        """Start the next epoch."""
        self._epoch, self._start = trainer.current_epoch + 1, 0

    def on_train_end(self, trainer: Untyped, _module: Untyped) -> None:
        """Report that the work is done."""
        if trainer.is_global_zero:
            progress_report.finish()
