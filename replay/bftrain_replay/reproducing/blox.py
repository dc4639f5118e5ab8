"""Blox's figures (Agarwal et al., EuroSys 2024): completion time and responsiveness over load, and admission.

The job stream follows Blox's rules: one-GPU jobs with durations and gaps from two generators with seed 1. In these
figures Blox's Tiresias has one queue, so it orders jobs as LAS does. Its Optimus orders jobs by remaining time, and a
table speeds jobs up where the load leaves GPUs free.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
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
    Line,
    Mark,
    Point,
    Request,
    XValue,
    distribution,
)

_GPUS: Final = 128
_SEED: Final = 1
_JOBS: Final = 9000  # enough that later jobs still compete when the last measured one finishes
_LARGEST_LOAD: Final = 8.0  # jobs per hour
# Factors by load, from Blox's grpc_client_rm.py; 1 beyond
_OPTIMUS_RATES: Final = {1.0: 5.0, 2.0: 3.0, 3.0: 1.4, 4.0: 1.2, 5.0: 1.1}
_CLASS_COUNT: Final = 9  # number of models; one is drawn after each gap


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


def _make(request: Request, figure: Figure) -> Figure:
    """Add points over the load, or the limit of admission at the largest load."""

    def options(line: Line, x: XValue, _seed: int) -> dict[str, Any]:
        load = x if isinstance(x, float) else _LARGEST_LOAD
        rate = _OPTIMUS_RATES.get(load, 1.0) if line.name == "Optimus" else 1.0
        made = {"tasks": request.tasks(f"philly-{load:g}-{rate:g}.csv", _tasks, load, rate), "policy": line.policy}
        if isinstance(x, str) and x.endswith("x"):
            # Blox admits jobs until their demand exceeds the limit, so one GPU more than fits below it
            made["admission"] = f"load={(math.floor(float(x[:-1]) * _GPUS) + 1) / _GPUS!r}"
        return made

    if figure.name.endswith("-cdf"):
        figure = replace(figure, read=partial(_shares, figure.name.removesuffix("-cdf")))
    return figure.over_x(request, options)


def _shares(time: str, point: Point, cells: Cells) -> Iterator[Mark]:
    values = ((cells.get(f"metrics_{time}_p{percent}"), percent / 100.0) for percent in metrics.PERCENTS)
    shares = [(value / HOUR_S, share) for value, share in values if isinstance(value, int | float)]
    return distribution(point.line, shares)


BLOX: Final = Experiment.read("blox", _make)
