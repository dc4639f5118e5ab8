"""Gavel's figures (Narayanan and others, OSDI 2020): completion times over load, makespans, shares and run times."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from bftrain_replay.reproducing.experiment import HOUR_S, Cells, Experiment, Figure, Point, Request, column
from bftrain_replay.reproducing.gavel_jobs import MULTI, SINGLE, SPEEDS, Stream, task_file

_SINGLE_LOADS: Final = tuple(round(0.4 * step, 1) for step in range(1, 16))  # jobs per hour
_MULTI_LOADS: Final = tuple(round(0.2 * step, 1) for step in range(1, 16))
_QUICK_LOADS: Final = (2.0, 4.4)
_SEEDS: Final = (0, 1, 2)
_FIXED: Final[Mapping[str, Any]] = {
    "cluster": "v100=36,p100=36,k80=36",
    "round_s": 360.0,
    "like": "gavel",
    "measure": "4000..4999",
    "max_backlog_s": 48.0 * HOUR_S,
}
_LAS: Final = {
    "LAS": "max-min-blind",
    "Gavel": "max-min",
    "Gavel with space sharing": "max-min-packed",
    "AlloX": "allox",
    "Gandiva": "gandiva",
    "FIFO, fastest GPU": "fifo",
}
_QUICK_LINES: Final = ("FIFO, fastest GPU",)
_PAIRED: Final = ("gandiva",)  # and what ends with -packed

FIGURES: Final = {
    "las": "Mean completion time over load, least attained service, single-GPU jobs (figure 8)",
    "las-multi": "Mean completion time over load, least attained service, gangs (figure 9)",
}


def saturated(cells: Cells) -> bool:
    """Return whether the queue grew without bound, so that a mean has no meaning."""
    return cells.get("ended") == "overload"


def _over_load(name: str, request: Request, stream: Stream, lines: Mapping[str, str], loads: Sequence[float]) -> Figure:
    """Return a figure of mean completion times over load."""
    seeds = request.seeds or ((0,) if request.quick else _SEEDS)
    files = {seed: str(task_file(stream, seed, request.folder, request.traces)) for seed in seeds}
    if request.quick:
        lines, loads = {line: lines[line] for line in _QUICK_LINES}, _QUICK_LOADS

    def points() -> Iterator[Point]:
        for line, policy in lines.items():
            for load in loads:
                for seed, tasks in files.items():
                    own = {"tasks": tasks, "tasks.rate": load, "policy": policy}
                    pairs = {"pairs": str(SPEEDS)} if policy in _PAIRED or policy.endswith("-packed") else {}
                    yield Point(line=line, x=load, seed=seed, options={**_FIXED, **own, **pairs})

    return Figure(
        name=name,
        title=FIGURES[name],
        x="jobs per hour",
        y="mean completion time, hours",
        points=tuple(points()),
        marks=column("completion_s_mean", HOUR_S, saturated),
    )


def _las(request: Request) -> Figure:
    return _over_load("las", request, SINGLE, _LAS, _SINGLE_LOADS)


def _las_multi(request: Request) -> Figure:
    lines = {name: policy for name, policy in _LAS.items() if name != "AlloX"}  # which knows no gangs
    return _over_load("las-multi", request, MULTI, lines, _MULTI_LOADS)


_MAKERS: Final[Mapping[str, Callable[[Request], Figure]]] = {"las": _las, "las-multi": _las_multi}


def _prepare(request: Request) -> Sequence[Figure]:
    return [_MAKERS[name](request) for name in request.figures]


GAVEL: Final = Experiment(
    name="gavel", title="Gavel", source="Narayanan and others, OSDI 2020", figures=FIGURES, prepare=_prepare
)
