"""Blox's figures (Agarwal et al., EuroSys 2024): completion time and responsiveness over load, and admission.

The job stream follows Blox's rules: one-GPU jobs with durations and gaps from two generators with seed 1. In these
figures Blox's Tiresias has one queue, so it orders jobs as LAS does. Its Optimus orders jobs by remaining time, and a
table speeds jobs up where the load leaves GPUs free.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from bftrain.values.curve import SpeedCurve
from bftrain.values.task import TaskSpec
from bftrain_replay.reproducing import metrics
from bftrain_replay.reproducing.experiment import Experiment, Figure, Line, Request, XValue

_GPUS: Final = 128
_SEED: Final = 1
_JOBS: Final = 9000  # enough that later jobs still compete when the last measured one finishes
_LARGEST_LOAD: Final = 8.0  # jobs per hour
# Factors by load, from Blox's grpc_client_rm.py; 1 beyond
_OPTIMUS_RATES: Final = {1.0: 5.0, 2.0: 3.0, 3.0: 1.4, 4.0: 1.2, 5.0: 1.1}
_CLASS_COUNT: Final = 9  # number of models; one is drawn after each gap


def draw(load: float, rate: float = 1.0) -> Iterator[TaskSpec]:
    """Draw the jobs of the stream at ``load`` jobs per hour; their work is in seconds, and ``rate`` their speed."""
    durations, gaps, now_s = Random(_SEED), Random(_SEED), 0  # noqa: S311 - Blox's generator
    curve = SpeedCurve(nodes=(1,), rate=(rate,))
    for number in range(_JOBS):
        exponents = (3.0, 4.0) if durations.random() >= 0.8 else (1.5, 3.0)  # noqa: PLR2004 - one job in five is long
        now_s += math.ceil(-math.log(1.0 - gaps.random()) / load * 60.0 * 60.0)
        gaps.randint(0, _CLASS_COUNT - 1)
        work = 60.0 * 10.0 ** durations.uniform(*exponents)
        yield TaskSpec(name=f"job-{number}", max_nodes=1, curve=curve, work_samples=work, submit_s=float(now_s))


def _make(request: Request, figure: Figure) -> Figure:
    """Add points over the load, or the limit of admission at the largest load."""

    def options(line: Line, x: XValue, _seed: int) -> dict[str, Any]:
        load = x if isinstance(x, float) else _LARGEST_LOAD
        rate = _OPTIMUS_RATES.get(load, 1.0) if line.name == "Optimus" else 1.0
        tasks = request.tasks(f"philly-{load:g}-{rate:g}.csv", lambda: draw(load, rate))
        made = {"tasks": tasks, "policy": line.policy}
        if isinstance(x, str) and x.endswith("x"):
            # Blox admits jobs until their demand exceeds the limit, so one GPU more than fits below it
            made["admission"] = f"load={(math.floor(float(x[:-1]) * _GPUS) + 1) / _GPUS!r}"
        return made

    if figure.name.endswith("-cdf"):
        column = f"metrics_{figure.name.removesuffix('-cdf')}_p"
        figure = replace(figure, columns={f"{percent}": f"{column}{percent}" for percent in metrics.PERCENTS})
    return figure.over_x(request, options)


BLOX: Final = Experiment.read("blox", _make)
