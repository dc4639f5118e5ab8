"""Blox's figures (Agarwal and others, EuroSys 2024): completion time and responsiveness over load, and admission.

The job stream follows Blox's rules: one-GPU jobs whose durations and gaps are drawn from two generators with seed 1.
In these figures Blox's Tiresias has one queue, so it orders jobs as LAS does. Its Optimus orders jobs by remaining
time, and a job does more per second where the load leaves GPUs free, by a table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from bftrain.taskfiles.files import save_tasks
from bftrain.values.curve import SpeedCurve
from bftrain.values.task import TaskSpec
from bftrain_replay.reproducing import blox_metrics
from bftrain_replay.reproducing.experiment import HOUR_S, Cells, Experiment, Figure, Mark, Point, Request, column

_GPUS: Final = 128
_SEED: Final = 1
_JOBS: Final = 9000  # enough that later jobs still compete when the last measured one finishes
_LOADS: Final = tuple(map(float, range(1, 9)))  # jobs per hour
_CDF_LOAD: Final = 8.0
_MEASURED: Final = "3000..4000"
_LINES: Final = {
    "FIFO": "fifo",
    "LAS": "las",
    "SRTF": "srtf",
    "Optimus": "srtf",
    "Tiresias": "las",
    "Tiresias, two queues": "tiresias",
}
_QUICK_LINES: Final = ("FIFO", "SRTF")
_OPTIMUS_RATES: Final = {1.0: 5.0, 2.0: 3.0, 3.0: 1.4, 4.0: 1.2, 5.0: 1.1}  # by load; 1 beyond
_FIXED: Final[Mapping[str, Any]] = {
    "cluster": str(_GPUS),
    "round_s": 300.0,
    "finish": "boundary",
    "max_backlog_s": 1e9,  # Blox goes on with any queue
    "metrics": f"{Path(blox_metrics.__file__)}:{blox_metrics.TaskQuantiles.__name__}",
}
_CLASS_COUNT: Final = 9  # of models; one is drawn after each gap
_LIMITS: Final = {
    "accept all": None,
    "1.5x": 1.5,
    "1.2x": 1.2,
    "1.0x": 1.0,
}  # demand over GPUs up to which jobs come in

FIGURES: Final = {
    "completion": "Mean completion time over load, Philly job stream (figure 6)",
    "responsiveness": "Mean responsiveness over load, Philly job stream (figure 7)",
    "completion-cdf": "Distribution of completion times at load 8",
    "responsiveness-cdf": "Distribution of responsiveness at load 8",
    "admission": "Admission by load under LAS, load 8 (figure 12)",
    "check": "Jobs 100 to 200 at load 4",
}


def draw(load: float, count: int = _JOBS) -> Iterator[tuple[float, float]]:
    """Draw submission and duration of each job of the stream at ``load`` jobs per hour, in seconds."""
    durations, gaps, now_s = Random(_SEED), Random(_SEED), 0  # noqa: S311 - Blox's generator
    for _ in range(count):
        exponents = (3.0, 4.0) if durations.random() >= 0.8 else (1.5, 3.0)  # noqa: PLR2004 - one job in five is long
        now_s += math.ceil(-math.log(1.0 - gaps.random()) / load * 60.0 * 60.0)
        gaps.randint(0, _CLASS_COUNT - 1)
        yield float(now_s), 60.0 * 10.0 ** durations.uniform(*exponents)


def _tasks(load: float, rate: float, folder: Path) -> str:
    path = folder / f"philly-{load:g}-{rate:g}.csv"
    if not path.exists():
        curve = SpeedCurve(nodes=(1,), rate=(rate,))
        save_tasks(
            (
                TaskSpec(name=f"job-{number}", max_nodes=1, curve=curve, work_samples=duration_s, submit_s=submit_s)
                for number, (submit_s, duration_s) in enumerate(draw(load))
            ),
            path,
        )
    return str(path)


def _point(request: Request, line: str, load: float, **options: object) -> Point:
    rate = _OPTIMUS_RATES.get(load, 1.0) if line == "Optimus" else 1.0
    own = {"tasks": _tasks(load, rate, request.folder), "policy": _LINES[line], "measure": _MEASURED}
    return Point(line=line, x=load, seed=_SEED, options={**_FIXED, **own, **options})


def _over_load(name: str, request: Request) -> Figure:
    lines, loads = (_QUICK_LINES, (4.0, _CDF_LOAD)) if request.quick else (tuple(_LINES), _LOADS)
    return Figure(
        name=name,
        title=FIGURES[name],
        x="jobs per hour",
        y=f"mean {name.removesuffix('-cdf')} time, hours",
        points=tuple(_point(request, line, load) for line in lines for load in loads),
        marks=column(f"{name}_s_mean", HOUR_S),
        log_y=name == "responsiveness",
    )


def _distribution(name: str, request: Request) -> Figure:
    what = name.removesuffix("-cdf")

    def marks(point: Point, cells: Cells) -> Iterable[Mark]:
        for percent in blox_metrics.PERCENTS:
            value = cells.get(f"metrics_{what}_p{percent}")
            if isinstance(value, int | float):
                yield Mark(point.line, value / HOUR_S, percent / 100.0)

    lines = _QUICK_LINES if request.quick else tuple(_LINES)
    return Figure(
        name=name,
        title=FIGURES[name],
        x=f"{what} time, hours",
        y="share of jobs",
        points=tuple(_point(request, line, _CDF_LOAD) for line in lines),
        marks=marks,
        form="steps",
        log_x=True,
    )


def _admission(name: str, request: Request) -> Figure:
    def points() -> Iterator[Point]:
        for label, limit in _LIMITS.items():
            # Blox admits jobs until their demand exceeds the limit, so one GPU more than fits below it
            most = 0 if limit is None else math.floor(limit * _GPUS) + 1
            admission = {"admission": f"load={most / _GPUS!r}"} if most else {}
            if label == "1.2x" or not request.quick:
                yield Point(
                    line="", x=label, seed=_SEED, options=_point(request, "LAS", _CDF_LOAD, **admission).options
                )

    def marks(point: Point, cells: Cells) -> Iterable[Mark]:
        for what in ("completion", "responsiveness"):
            value = cells.get(f"{what}_s_mean")
            yield Mark(what, point.x, value / HOUR_S if isinstance(value, int | float) else None)

    return Figure(
        name=name,
        title=FIGURES[name],
        x="admitted demand over GPUs",
        y="mean time, hours",
        points=tuple(points()),
        marks=marks,
        form="bars",
    )


def _check(name: str, request: Request) -> Figure:
    def marks(point: Point, cells: Cells) -> Iterable[Mark]:
        for what in ("completion", "responsiveness"):
            yield Mark(point.line, what, float(str(cells[f"{what}_s_mean"])))

    points = tuple(_point(request, line, 4.0, measure="100..200") for line in ("FIFO", "LAS"))
    title = FIGURES[name]
    return Figure(name=name, title=title, x="", y="mean, s", points=points, marks=marks, form="bars", digits=5)


_MAKERS: Final[Mapping[str, Callable[[str, Request], Figure]]] = {
    "completion": _over_load,
    "responsiveness": _over_load,
    "completion-cdf": _distribution,
    "responsiveness-cdf": _distribution,
    "admission": _admission,
    "check": _check,
}


def _prepare(request: Request) -> list[Figure]:
    return [_MAKERS[name](name, request) for name in request.figures]


BLOX: Final = Experiment(
    name="blox", title="Blox", source="Agarwal and others, EuroSys 2024", figures=FIGURES, prepare=_prepare
)
