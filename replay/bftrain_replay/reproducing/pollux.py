"""Pollux's simulations (Qiao et al., OSDI 2021): mean completion times on eight workloads of 160 jobs.

The tables in ``published`` hold measurements of AdaptDL's authors, interpolated as in their simulator, and the jobs:

- ``pollux_models.csv``: the models by batch, with steps, noise by tenth of the training, and step times by GPUs.
- ``pollux_phases.csv``: the progress of each model from a part of its training on, in samples of its initial batch per
  second, with the best batch for the GPUs: batch / step time * (noise + initial batch) / (noise + batch).
- ``pollux_jobs.csv.gz``: the jobs of the workloads, from Microsoft's Philly trace, each with the lowest relative load
  that includes it.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from bftrain.errors import UsageError
from bftrain.values.curve import SpeedCurve
from bftrain.values.task import TaskSpec
from bftrain_replay.reproducing.experiment import PUBLISHED, Experiment, Figure, Line, Request

_GPUS: Final = 64
_RESTART_S: Final = 30.0
_LEAST_LOCAL: Final = {"bert": 4, "cifar10": 32, "deepspeech2": 10, "imagenet": 20, "ncf": 32, "yolov3": 4}  # samples
_NOT_SCALED: Final = "ncf"  # always trains on one GPU with its largest batch


class Job(msgspec.Struct, frozen=True):
    """A job of a workload: arrival time, model, and the GPUs and the batch that its user chose."""

    workload: int
    load: float
    submit_s: float
    model: str
    gpus: int
    batch: int


@cache
def _table(name: str) -> Sequence[Mapping[str, str]]:
    path = PUBLISHED / name
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def tasks(workload: int, load: float, kind: str) -> Iterator[TaskSpec]:
    """Yield the jobs as tasks; ``kind`` is a stream in ``pollux.toml``.

    Work is in samples, or if adaptive in samples of the model's initial batch.
    """
    rows = [row for row in _table("pollux_jobs.csv.gz") if int(row["workload"]) == workload]
    if not rows:
        raise UsageError(f"there is no workload {workload}", where="--seeds", fix="use 1 to 8")
    jobs = (job for job in msgspec.convert(rows, list[Job], strict=False) if job.load <= load)
    for number, job in enumerate(jobs):
        batches = {int(row["batch"]): row for row in _table("pollux_models.csv") if row["model"] == job.model}
        largest = max(batches) if kind == "adaptive" else job.batch
        most = 1 if job.model == _NOT_SCALED else min(_GPUS, largest // _LEAST_LOCAL[job.model])
        batch = min(batches) if kind == "adaptive" else job.batch
        yield TaskSpec(
            name=f"{job.model}-{number}",
            submit_s=job.submit_s,
            min_nodes=job.gpus if kind == "fixed" else 1,
            max_nodes=job.gpus if kind == "fixed" else most,
            curve=_curve(job.model) if kind == "adaptive" else _curve_of_batch(batches[batch]),
            work_samples=float(batches[batch]["steps"]) * batch,
            start_cost_s=_RESTART_S,
        )


def _curve(model: str) -> SpeedCurve:
    """Return the progress by GPUs at the start of the training."""
    rows = [row for row in _table("pollux_phases.csv") if (row["model"], row["from"]) == (model, "0.0")]
    return SpeedCurve(nodes=tuple(int(row["nodes"]) for row in rows), rate=tuple(float(row["rate"]) for row in rows))


def _curve_of_batch(row: Mapping[str, str]) -> SpeedCurve:
    step_s = {int(name[5:]): float(cell) for name, cell in row.items() if name.startswith("gpus_") and cell}
    return SpeedCurve(nodes=tuple(step_s), rate=tuple(int(row["batch"]) / seconds for seconds in step_s.values()))


def _make(request: Request, figure: Figure) -> Figure:
    """Add points over the relative job load, or at load 1 over the workloads, which are the seeds."""

    def options(line: Line, load: float, seed: int) -> dict[str, Any]:
        name = f"{line.stream}-{load:g}-{seed}.csv"
        return {"tasks": request.tasks(name, lambda: tasks(seed, load, line.stream)), "policy": line.policy}

    figure = figure.over_x(request, options)
    if figure.name == "workloads":
        figure = replace(figure, points=tuple(replace(point, x=float(point.seed)) for point in figure.points))
    return figure


POLLUX: Final = Experiment.read("pollux", _make)
