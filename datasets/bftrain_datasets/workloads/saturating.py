"""A saturating workload: more identical trials than the idle nodes of a log can complete."""

from __future__ import annotations

import math
from typing import Final

import msgspec

from bftrain import text_formats
from bftrain.taskfiles.records import MEASURED_WORK_SAMPLES, profile
from bftrain.values.task import TaskSpec
from bftrain_datasets.workloads.task_generators import TaskShape, generate_trials

MODEL: Final = "shufflenet"  # the model of the published hyper-parameter search
# For logs with more idle node-time, each trial has a multiple of the published work
MOST_TRIALS: Final = 2000


class SaturatingWorkload(msgspec.Struct, frozen=True, kw_only=True):
    """Trials of a single model, all submitted at the start, with more total work than the log's idle nodes can do."""

    model: str
    trials: int
    work_samples: float

    @classmethod
    def of(cls, idle_node_s: float, competing: int) -> SaturatingWorkload:
        """Return the workload for this idle node-time and number of competing tasks.

        No allocation processes more samples than all node-time at the best speed per node. There are ``competing``
        trials beyond that, so at any time that many are unfinished.

        >>> found = SaturatingWorkload.of(idle_node_s=3600.0 * 1269, competing=35)
        >>> found.trials, found.work_samples
        (135, 130000000.0)
        """
        curve = profile(MODEL).curve
        best = max(rate / nodes for nodes, rate in zip(curve.nodes, curve.rate, strict=True))
        needed = idle_node_s * best / MEASURED_WORK_SAMPLES
        multiple = max(1, math.ceil(needed / MOST_TRIALS))
        return cls(
            model=MODEL, trials=math.ceil(needed / multiple) + competing, work_samples=multiple * MEASURED_WORK_SAMPLES
        )

    @property
    def tasks(self) -> tuple[TaskSpec, ...]:
        """The trials."""
        return generate_trials(self.trials, self.model, shape=TaskShape(work_samples=self.work_samples))

    @property
    def sentence(self) -> str:
        """The description of the workload."""
        work = text_formats.large(self.work_samples)
        return (
            f"{self.trials:,} identical trials of {self.model}, {work} samples each: more than the idle nodes can do, "
            "so that the queue never empties"
        )

    @property
    def command(self) -> str:
        """The command that writes these tasks to a file."""
        work = f" --work {self.work_samples:g}" if self.work_samples != MEASURED_WORK_SAMPLES else ""
        return f"bftrain generate tasks -o tasks.toml --kind trials --count {self.trials}{work}"
