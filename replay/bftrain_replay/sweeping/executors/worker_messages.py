"""What workers of this machine and their master say to each other: JSON, one line a message."""

from __future__ import annotations

import msgspec

from bftrain_replay.sweeping.run_outcomes import PassOutcome
from bftrain_replay.sweeping.sweep_inputs import LogSource, TaskSource


class PreloadInputs(msgspec.Struct, frozen=True, kw_only=True):
    """To the foreman: inputs that all workers are to share."""

    logs: tuple[LogSource, ...]
    tasks: tuple[TaskSource, ...]


class WorkerStarted(msgspec.Struct, frozen=True, kw_only=True, tag="born"):
    """From the foreman: a worker is there."""

    pid: int


class WorkerExited(msgspec.Struct, frozen=True, kw_only=True, tag="died"):
    """From the foreman: a worker is gone; ``code`` is its exit code, or minus the signal that killed it."""

    pid: int
    code: int


class PassProgress(msgspec.Struct, frozen=True, kw_only=True, tag="at"):
    """From a worker: which share of its pass is done."""

    share: float


class PassEnded(msgspec.Struct, frozen=True, kw_only=True, tag="ended"):
    """From a worker: its pass is over."""

    outcome: PassOutcome


FromForeman = WorkerStarted | WorkerExited
FromWorker = PassProgress | PassEnded
