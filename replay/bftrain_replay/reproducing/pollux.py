"""Pollux's simulations (Qiao et al., OSDI 2021): mean completion times on eight workloads of 160 jobs.

``published/pollux_models.csv`` contains the models, their steps and noise, and step times by GPUs, measured and
interpolated by AdaptDL's authors as in their simulator. Jobs are drawn from Microsoft's Philly trace by its rules.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from bftrain.errors import BadInput
from bftrain.files import head_of, write_text
from bftrain.text_formats import counted
from bftrain.values.curve import SpeedCurve
from bftrain.values.task import TaskSpec
from bftrain_replay.reproducing.experiment import PUBLISHED, Experiment, Figure, Line, Request
from bftrain_replay.rounds.round_inputs import PHASE_COLUMNS

_GPUS, _HOURS, _START_HOUR = 64, 8, 2  # number of GPUs, hours per workload, hour of the day at its start
_RESTART_S: Final = 30.0
_FIXED, _ADAPTIVE = "fixed", "adaptive"  # kinds of jobs, in pollux.toml
_PHASES: Final = 10
_TRACE_FIX: Final = "the folder of AdaptDL's philly.csv; without it jobs are drawn from its shares"
_LEAST_LOCAL: Final = {"bert": 4, "cifar10": 32, "deepspeech2": 10, "imagenet": 20, "ncf": 32, "yolov3": 4}  # samples
# The GPUs and batches that a user may have chosen: efficient for the model, and finished within 12 hours
_CONFIGURATIONS: Final[Mapping[str, Sequence[tuple[int, int]]]] = {
    "bert": ((6, 384), (8, 384), (12, 384), (16, 384)),
    "cifar10": ((6, 2048), (8, 2048), (12, 4096), (16, 4096)),
    "deepspeech2": ((6, 320), (8, 320), (12, 640)),
    "imagenet": ((24, 3200), (32, 6400), (48, 6400)),
    "ncf": ((1, 32768),),
    "yolov3": ((4, 64),),
}
_NOT_SCALED: Final = "ncf"  # always trains on one GPU with its largest batch
_BY_GPU_HOURS: Final = ((1, ("cifar10", "ncf")), (10, ("deepspeech2",)), (100, ("yolov3",)), (1000, ("imagenet",)))
# Statistics used without the trace: the fraction of jobs per hour (eight hours) and per range of GPU-hours
_HOUR_SHARES: Final = (0.113, 0.108, 0.072, 0.119, 0.165, 0.21, 0.112, 0.101)
_LENGTH_SHARES: Final = (0.783, 0.152, 0.046, 0.019)


class Batch(NamedTuple):
    """One batch size of a model: training steps, noise scale by tenth of the training, seconds per step by GPUs."""

    samples: int
    steps: float
    noise: tuple[float, ...]
    step_s: Mapping[int, float]


@cache
def models() -> Mapping[str, Mapping[int, Batch]]:
    """Return the models by name, each by batch size; the first batch is the initial one."""
    by_model: dict[str, dict[int, Batch]] = {}
    with (PUBLISHED / "pollux_models.csv").open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            noise = tuple(float(row[f"noise_{number}"]) for number in range(_PHASES))
            step_s = {int(name[5:]): float(cell) for name, cell in row.items() if name.startswith("gpus_") and cell}
            batch = Batch(int(row["batch"]), float(row["steps"]), noise, step_s)
            by_model.setdefault(row["model"], {})[batch.samples] = batch
    return by_model


class Job(NamedTuple):
    """A job of a workload: arrival time, model, and the user's choices."""

    submit_s: float
    model: str
    gpus: int
    batch: int


def draw(seed: int, count: int, trace: Path | None = None) -> list[Job]:
    """Draw a workload by the published rules from the Philly ``trace``; without it, from its rounded shares."""
    random, of_bert = Random(seed), Random(seed + 3)  # noqa: S311 - AdaptDL's generator
    sampler = np.random.RandomState(random.randint(0, 1 << 32))
    candidates, jobs = _trace(trace), []
    if len(candidates) < count:
        what = f"contains {counted(len(candidates), 'job')} of these hours and lengths; {count:,} are needed"
        raise BadInput(what, where=str(trace), fix=f"--traces names {_TRACE_FIX}")
    for index in sampler.choice(len(candidates), size=count, replace=False).tolist():
        submit_s, gpu_hours = candidates[index]
        names = next(names for limit, names in _BY_GPU_HOURS if gpu_hours < limit)
        model = random.choice(names) if len(names) > 1 else names[0]  # one name takes no random number
        configuration = random.choice(_CONFIGURATIONS[model])
        if model == "deepspeech2" and of_bert.randint(0, 1):
            model = "bert"
            configuration = of_bert.choice(_CONFIGURATIONS[model])
        jobs.append(Job(submit_s, model, *configuration))
    return sorted(jobs, key=lambda job: job.submit_s)


@cache
def _trace(path: Path | None) -> Sequence[tuple[float, float]]:
    """Return the time of day and the GPU-hours of all jobs in the eight hours."""
    if path is None:
        sampler = np.random.default_rng(0)
        hours, lengths = (np.asarray(shares) / sum(shares) for shares in (_HOUR_SHARES, _LENGTH_SHARES))
        times = 3600.0 * (sampler.choice(_HOURS, 20_000, p=hours) + sampler.random(20_000))
        limits = np.array([limit - 0.5 for limit, _ in _BY_GPU_HOURS])
        return list(zip(times.tolist(), sampler.choice(limits, 20_000, p=lengths).tolist(), strict=True))
    jobs = []
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            for row in csv.DictReader(lines):
                time = datetime.fromisoformat(row["timestamp"]) - timedelta(hours=_START_HOUR)
                gpu_hours = float(row["gpu_time"]) / 3600.0
                if float(row["duration"]) >= 60.0 and gpu_hours < 1000.0 and time.hour < _HOURS:  # noqa: PLR2004 - rules
                    jobs.append((float(time.hour * 3600 + time.minute * 60 + time.second), gpu_hours))
    except KeyError as error:
        raise BadInput(f"has no column {error}", where=str(path), fix=f"--traces names {_TRACE_FIX}") from error
    except (ValueError, TypeError, EOFError, csv.Error, gzip.BadGzipFile) as error:
        raise BadInput(
            f"is not AdaptDL's trace: {error}", where=str(path), fix=f"--traces names {_TRACE_FIX}"
        ) from error
    return jobs


def tasks(seed: int, count: int, trace: Path | None, kind: str) -> list[TaskSpec]:
    """Draw jobs as tasks. Work is in samples, or if adaptive in samples of the model's initial batch."""
    return [_task(f"{job.model}-{number}", job, kind) for number, job in enumerate(draw(seed, count, trace))]


def _task(name: str, job: Job, kind: str) -> TaskSpec:
    model = models()[job.model]
    initial, batch = next(iter(model.values())), model[job.batch]
    curve, work, largest = curves(job.model)[0], initial.steps * initial.samples, max(model)
    if kind != _ADAPTIVE:
        curve = _curve({gpus: job.batch / step_s for gpus, step_s in batch.step_s.items()})
        work, largest = batch.steps * job.batch, job.batch
    most = 1 if job.model == _NOT_SCALED else min(_GPUS, largest // _LEAST_LOCAL[job.model])
    least, most = (job.gpus, job.gpus) if kind == _FIXED else (1, most)
    return TaskSpec(
        name=name,
        submit_s=job.submit_s,
        min_nodes=least,
        max_nodes=most,
        curve=curve,
        work_samples=work,
        start_cost_s=_RESTART_S,
    )


@cache
def curves(name: str) -> Sequence[SpeedCurve]:
    """Return the progress of a model by GPUs in each tenth of its training, with the best batch for them."""
    model = models()[name]
    initial = next(iter(model))
    batches = [model[max(model)]] if name == _NOT_SCALED else list(model.values())

    def progress(batch: Batch, gpus: int, phase: int) -> float:
        noise = batch.noise[phase]
        return batch.samples / batch.step_s[gpus] * (noise + initial) / (noise + batch.samples)

    sizes = sorted({gpus for batch in batches for gpus in batch.step_s})
    return [
        _curve({gpus: max(progress(batch, gpus, phase) for batch in batches if gpus in batch.step_s) for gpus in sizes})
        for phase in range(_PHASES)
    ]


def _curve(points: Mapping[int, float]) -> SpeedCurve:
    return SpeedCurve(nodes=tuple(points), rate=tuple(points.values()))


def _phases(request: Request) -> str:
    """Write the curves of all models by phase, as rounds read them; return the path."""
    header = ",".join(PHASE_COLUMNS)
    path = request.input_path("phases.csv", lambda path: head_of(path).startswith(header.encode()), "table of phases")
    rows = [
        f"{model},{phase / _PHASES},{gpus},{rate:.6g}"
        for model in models()
        for phase, curve in enumerate(curves(model))
        for gpus, rate in zip(curve.nodes, curve.rate, strict=True)
    ]
    write_text(path, "\n".join([header, *rows, ""]))
    return str(path)


def _make(request: Request, figure: Figure) -> Figure:
    """Add points over the relative job load, or at load 1 over the workloads, which are the seeds."""
    trace = request.published_files("philly*.csv", "philly*.csv.gz", fix=_TRACE_FIX)[0] if request.traces else None

    def options(line: Line, load: float, seed: int) -> dict[str, Any]:
        name = f"{line.stream}-{load:g}-{seed}{'-trace' if trace else ''}.csv"
        made = {"tasks": request.tasks(name, tasks, seed, round(160 * load), trace, line.stream), "policy": line.policy}
        if line.stream == _ADAPTIVE:
            made["phases"] = request.once("phases", lambda: _phases(request))
        return made

    figure = figure.over_x(request, options)
    if figure.name == "workloads":
        figure = replace(figure, points=tuple(replace(point, x=float(point.seed)) for point in figure.points))
    return figure


POLLUX: Final = Experiment.read("pollux", _make)
