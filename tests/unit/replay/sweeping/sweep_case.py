"""Small sweeps, of nodes and hours so few that a pass takes milliseconds; their passes run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from unittest import mock

import bftrain
from bftrain_replay.sweeping import sweep_inputs, sweep_passes

LOGS = {"small": {"nodes": 12, "days": 0.1, "seed": 3}}
TASK_SETS = {"mix": {"count": 3, "max_nodes": 4, "work_samples": 1e7}}

SweepResult: TypeAlias = Any  # what bftrain.sweep() returns


def small(**more: Any) -> dict[str, Any]:  # noqa: ANN401 - as in a sweep file
    """Return a sweep of one point, and ``more``."""
    return {"log": "small", "tasks": "mix", "logs": LOGS, "task_sets": TASK_SETS, **more}


class Here:
    """An executor that runs all passes in this process, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def outcomes(
        self, jobs: Sequence[Any], tell: Callable[[Any], None], stopping: Callable[[], bool]
    ) -> Iterator[object]:
        for job in jobs:
            if stopping():
                return
            tell({job.id: 0.0})
            self.count += 1
            sweep_inputs.forget_inputs()
            yield sweep_passes.work(job, lambda _: True)
            tell({})


def counted(spec: Mapping[str, Any] | Path, folder: Path, **options: Any) -> tuple[int, SweepResult]:  # noqa: ANN401 - as sweep() takes them
    """Sweep without other processes; return how many passes were run, and the result."""
    here = Here()
    with mock.patch("bftrain_replay.sweeping.sweep.LocalExecutor", return_value=here):
        result = bftrain.sweep(spec, folder, **options)
    return here.count, result


def swept(spec: Mapping[str, Any] | Path, folder: Path, **options: Any) -> SweepResult:  # noqa: ANN401 - as above
    """Sweep without other processes."""
    return counted(spec, folder, **options)[1]


def planned(spec: Mapping[str, Any] | Path, folder: Path) -> SweepResult:
    """Return the result of a sweep that ends before its first pass."""
    return swept(spec, folder, stopping=lambda: True)
