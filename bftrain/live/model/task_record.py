"""Task records: the stored owner, job and progress of each task of a live run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from bftrain.values import wire
from bftrain.values.job import END, Run
from bftrain.values.task import TaskSpec

_NAME: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_LETTERS: Final = "up to 100 letters, digits, '.', '_' and '-', beginning with a letter or digit"
NAME_OR_NONE: Final = wire.pattern_of(_LETTERS, f"^({_NAME})?{END}")


class LiveTaskState(StrEnum):
    """State of a task; a submitted task runs if it has nodes, and waits otherwise."""

    SUBMITTED = "submitted"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNFINISHED: Final = frozenset({LiveTaskState.SUBMITTED, LiveTaskState.PAUSED})


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a task by its reports, and its measurements."""

    samples: float = 0.0  # samples of steps, without repetitions
    # Only for tasks that report batch sizes: the equivalent number of samples at the initial batch size
    equivalent_samples: float | None = None
    earlier_samples: float | None = None  # samples of an earlier task in the same folder, if known
    step: int = 0  # the furthest one reported
    in_memory_step: int = 0  # last step whose state is in the memory of two or more nodes
    committed_step: int = 0  # last step whose state is on disk
    loss: float | None = None
    noise_scale: float | None = None  # noise scale of its gradients, smoothed over its reports
    node_s: float = 0.0  # allocated node-seconds
    started_s: float | None = None  # time of the first allocation
    rescales: int = 0  # decided changes of size
    preemptions: int = 0  # number of preemptions
    failures: int = 0
    speeds: Mapping[int, float] = {}  # samples/s by size
    settled: tuple[int, ...] = ()  # sizes with a reliable measured speed
    costs: Mapping[str, float] = {}  # seconds of grow, shrink, start
    # The running sum in the last report that had one: from which step, to which step, how many samples
    counted_since: int | None = None
    counted_step: int = 0
    counted_total: float = 0.0
    report_stride: int = 0  # the least difference between the steps of two reports of a process; 0: none was seen

    @property
    def done_samples(self) -> float:
        """Return the finished samples; for tasks that report batch sizes, in samples of the initial size."""
        return self.samples if self.equivalent_samples is None else self.equivalent_samples

    @property
    def harvested(self) -> float:
        """Return the samples that this task has processed itself."""
        return self.samples - (self.earlier_samples or 0.0)


class LiveTaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One task. A ``number`` is never reused; a ``name`` can be reused after the task has finished."""

    number: int
    name: str
    uid: int
    user: str
    launcher: str
    spec: TaskSpec  # the submitted description
    guessed: bool  # whether its speed is a guess, as none was given
    run: Run
    submitted_s: float
    state: LiveTaskState = LiveTaskState.SUBMITTED
    ended_s: float | None = None
    after: tuple[int, ...] = ()  # numbers of tasks that have to be done before
    reason: str = ""  # why it failed, or its last trouble
    progress: Progress = Progress()

    @property
    def unfinished(self) -> bool:
        """Whether the task is not over yet."""
        return self.state in UNFINISHED


def is_name(text: str) -> bool:
    """Return whether a task can have this name, which becomes part of paths, file names and addresses."""
    return re.fullmatch(_NAME, text) is not None
