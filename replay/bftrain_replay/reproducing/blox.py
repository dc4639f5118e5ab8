"""Blox's figures (Agarwal et al., EuroSys 2024): completion time and responsiveness over load, and admission.

The job stream follows Blox's rules: one-GPU jobs with durations and gaps from two generators with seed 1. In these
figures Blox's Tiresias has one queue, so it orders jobs as LAS does. Its Optimus orders jobs by remaining time, and a
table speeds jobs up where the load leaves GPUs free.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from bftrain.values.curve import SpeedCurve
from bftrain.values.task import TaskSpec
from bftrain_replay.reproducing import metrics
from bftrain_replay.reproducing.experiment import (
    HOUR_S,
    Cells,
    Experiment,
    Figure,
    FigureMaker,
    Mark,
    Point,
    Request,
    columns,
    distribution,
)

_GPUS: Final = 128
_SEED: Final = 1
_JOBS: Final = 9000  # enough that later jobs still compete when the last measured one finishes
_LOADS: Final = tuple(map(float, range(1, 9)))  # jobs per hour
_CDF_LOAD: Final = 8.0
_MEASURED: Final = "3000:4000"
_LINES: Final = {
    "FIFO": "fifo",
    "LAS": "las",
    "SRTF": "srtf",
    "Optimus": "srtf",
    "Tiresias": "las",
    "Tiresias, two queues": "tiresias",
}
_QUICK_LINES: Final = ("FIFO", "SRTF")
# Factors by load, from Blox's grpc_client_rm.py; 1 beyond
_OPTIMUS_RATES: Final = {1.0: 5.0, 2.0: 3.0, 3.0: 1.4, 4.0: 1.2, 5.0: 1.1}
_FIXED: Final[Mapping[str, Any]] = {
    "cluster": str(_GPUS),
    "round_s": 300.0,
    "finish": "boundary",
    "max_backlog_s": 1e9,  # Blox continues with any queue
    "metrics": f"{metrics.__file__}:TaskQuantiles",
}
_CLASS_COUNT: Final = 9  # number of models; one is drawn after each gap
# Demand over GPUs up to which jobs are admitted
_LIMITS: Final = {"accept all": None, "1.5x": 1.5, "1.2x": 1.2, "1.0x": 1.0}
_MEANS: Final = {"completion": "completion_s_mean", "responsiveness": "responsiveness_s_mean"}


def draw(load: float, count: int = _JOBS) -> Iterator[tuple[float, float]]:
    """Draw submission and duration of each job of the stream at ``load`` jobs per hour, in seconds."""
    durations, gaps, now_s = Random(_SEED), Random(_SEED), 0  # noqa: S311 - Blox's generator
    for _ in range(count):
        exponents = (3.0, 4.0) if durations.random() >= 0.8 else (1.5, 3.0)  # noqa: PLR2004 - one job in five is long
        now_s += math.ceil(-math.log(1.0 - gaps.random()) / load * 60.0 * 60.0)
        gaps.randint(0, _CLASS_COUNT - 1)
        yield float(now_s), 60.0 * 10.0 ** durations.uniform(*exponents)


def _tasks(load: float, rate: float) -> Iterator[TaskSpec]:
    curve = SpeedCurve(nodes=(1,), rate=(rate,))
    for number, (submit_s, duration_s) in enumerate(draw(load)):
        yield TaskSpec(name=f"job-{number}", max_nodes=1, curve=curve, work_samples=duration_s, submit_s=submit_s)


def _point(request: Request, line: str, load: float, **options: object) -> Point:
    rate = _OPTIMUS_RATES.get(load, 1.0) if line == "Optimus" else 1.0
    tasks = request.tasks(f"philly-{load:g}-{rate:g}.csv", _tasks, load, rate)
    line_options = {"tasks": tasks, "policy": _LINES[line], "measure": _MEASURED}
    return Point(line=line, x=load, seed=_SEED, options={**_FIXED, **line_options, **options})


def _points(request: Request, loads: tuple[float, ...]) -> tuple[Point, ...]:
    lines = _QUICK_LINES if request.quick else tuple(_LINES)
    return tuple(_point(request, line, load) for line in lines for load in loads)


def _over_load(request: Request, time: str) -> Figure:
    return Figure(
        x="jobs per hour",
        y=f"mean {time} time, hours",
        points=_points(request, (4.0, _CDF_LOAD) if request.quick else _LOADS),
        marks=columns({"": f"{time}_s_mean"}, HOUR_S),
        log_y=time == "responsiveness",
    )


def _distribution(request: Request, time: str) -> Figure:
    def marks(point: Point, cells: Cells) -> Iterator[Mark]:
        values = ((cells.get(f"metrics_{time}_p{percent}"), percent / 100.0) for percent in metrics.PERCENTS)
        shares = [(value / HOUR_S, share) for value, share in values if isinstance(value, int | float)]
        return distribution(point.line, shares)

    x, points = f"{time} time, hours", _points(request, (_CDF_LOAD,))
    return Figure(x=x, y="share of jobs", points=points, marks=marks, form="steps", log_x=True)


def _admission(request: Request) -> Figure:
    points = []
    for label, limit in _LIMITS.items():
        if label == "1.2x" or not request.quick:
            # Blox admits jobs until their demand exceeds the limit, so one GPU more than fits below it
            load = None if limit is None else (math.floor(limit * _GPUS) + 1) / _GPUS
            options = {} if load is None else {"admission": f"load={load!r}"}
            points.append(replace(_point(request, "LAS", _CDF_LOAD, **options), line="", x=label))
    marks = columns(_MEANS, HOUR_S)
    x, y = "admitted demand over GPUs", "mean time, hours"
    return Figure(x=x, y=y, points=tuple(points), marks=marks, form="points")


def _check(request: Request) -> Figure:
    points = tuple(_point(request, line, 4.0, measure="100:200") for line in ("FIFO", "LAS"))
    return Figure(x="", y="mean, s", points=points, marks=columns(_MEANS, as_x=True), form="points", digits=5)


BLOX: Final = Experiment(
    name="blox",
    title="Blox",
    source="Agarwal and others, EuroSys 2024",
    figures={
        "completion": FigureMaker(
            "Mean completion time over load, Philly job stream (figure 6)", partial(_over_load, time="completion")
        ),
        "responsiveness": FigureMaker(
            "Mean responsiveness over load, Philly job stream (figure 7)", partial(_over_load, time="responsiveness")
        ),
        "completion-cdf": FigureMaker(
            "Distribution of completion times at load 8", partial(_distribution, time="completion")
        ),
        "responsiveness-cdf": FigureMaker(
            "Distribution of responsiveness at load 8", partial(_distribution, time="responsiveness")
        ),
        "admission": FigureMaker("Admission by load under LAS, load 8 (figure 12)", _admission),
        "check": FigureMaker("Jobs 100 to 200 at load 4", _check),
    },
)
