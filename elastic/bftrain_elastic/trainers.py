"""Shared parts of the callbacks for trainers of other libraries: stopping on request, and dividing a batch."""

from __future__ import annotations

import os
import signal
from typing import NoReturn

from bftrain_elastic.errors import BadScript
from bftrain_elastic.wire.worker_messages import TrainingStopped
from bftrain_elastic.worker.agent_channel import AgentChannel
from bftrain_elastic.worker.lazy_torch import dist, torch


def per_worker(batch: int) -> int:
    """Return each worker's part of a global batch, so that the training is the same at any number of workers."""
    workers = int(os.environ.get("WORLD_SIZE", "1"))
    if batch % workers:
        what = f"a batch of {batch} samples is not divisible by {workers} workers"
        raise BadScript(what, where="per_worker", fix="choose a batch that is divisible by all sizes of the task")
    return batch // workers


class StopRequest:
    """Whether any worker received SIGTERM since this was created; all workers learn of it in the same step."""

    def __init__(self) -> None:
        self._received = False
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, *_: object) -> None:
        self._received = True

    def agreed(self) -> bool:
        """Return whether to stop after this step; called by all workers."""
        if not dist.is_initialized():
            return self._received
        flag = torch.tensor([int(self._received)], device="cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        return bool(flag.item())

    @staticmethod
    def stop(step: int) -> NoReturn:
        """Exit as requested, once all workers have saved ``step``."""
        if dist.is_initialized():
            dist.barrier()
        channel = AgentChannel.from_environment()
        if channel is not None:
            channel.send(TrainingStopped(step))
            channel.close()
        raise SystemExit(0)
