"""A small sweep: nodes and hours so few that a pass takes milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bftrain import ReplaySettings
from bftrain_replay.sweeping.run_point import Stopping, Tell, WorkerActivity, failed, work
from bftrain_replay.sweeping.sweep import PreparedSweep, SweepResult
from bftrain_replay.sweeping.sweep_grid import SweepPoint
from bftrain_replay.sweeping.sweep_inputs import InputCache
from bftrain_replay.sweeping.sweep_runs import OutcomeFile, PassOutcome, PassStatus, RunKind, SweepPass, known_in
from bftrain_replay.sweeping.sweep_table import PointRow, PointState

__all__ = [
    "OutcomeFile",
    "PassOutcome",
    "PassStatus",
    "PointState",
    "PreparedSweep",
    "RunKind",
    "SweepPass",
    "SweepPoint",
    "SweepResult",
    "WorkerActivity",
    "failed",
    "known_in",
]

LOGS = {"small": {"nodes": 12, "days": 0.1, "seed": 3}}
TASK_SETS = {"mix": {"count": 3, "max_nodes": 4, "work_samples": 1e7}}


def small(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - as in a sweep file
    """Return a sweep of one point, and ``more``."""
    return {"log": "small", "tasks": "mix", "logs": LOGS, "task_sets": TASK_SETS, **more}


def done_rows(*options: dict[str, Any], **columns: Callable[[dict[str, Any]], float | None]) -> list[PointRow]:
    """Make rows of points that are done, with these options and with figures that are computed from them."""
    return [
        PointRow(
            SweepPoint(options=one, log="l", tasks="t", baseline="", settings=ReplaySettings()),
            PointState.DONE,
            "",
            {**one, "harvested": 1.0, **{column: value(one) for column, value in columns.items()}},
        )
        for one in options
    ]


class Here:
    """An executor that does all passes in this process, and notes which."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.done: list[SweepPass] = []
        self._stop_after = stop_after

    def outcomes(self, jobs: Sequence[SweepPass], tell: Tell, stopping: Stopping) -> Iterator[PassOutcome]:
        inputs = InputCache()
        for job in jobs:
            if stopping() or len(self.done) == self._stop_after:
                return
            tell(WorkerActivity("here", job))
            self.done.append(job)
            yield done(job, inputs)
            tell(WorkerActivity("here", None))


def done(job: SweepPass, inputs: InputCache | None = None) -> PassOutcome:
    known, seed = inputs or InputCache(), job.seed
    return work(job, lambda: known.log(job.log, seed), lambda: known.tasks(job.tasks, seed), lambda _: True)
