"""Reproduces the BFTrainer study (Liu et al., arXiv:2106.12091): horizon, competing tasks, costs, heuristic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from bftrain.values.task import TaskSpec
from bftrain_datasets.importing.pipeline import import_logs
from bftrain_datasets.log.log_files import is_own_log, save_log
from bftrain_datasets.published.tasks import import_tasks
from bftrain_replay.reproducing.experiment import (
    Cells,
    Experiment,
    Figure,
    FigureMaker,
    Mark,
    Options,
    Point,
    Request,
    columns,
)

_DATA: Final = "the folder dataset of github.com/BFTrainer/Replayer"
_LOG: Final = "ndstat-10sdn6-evt.tar.gz"
_SETS: Final = {  # bounds and speeds tables with their published metric, by name
    "HPO": ("hps-shufflenet-{}-1000J.pkl", "throughput"),
    "NAS, throughput": ("ImageNet-imgps-{}-1001J.pkl", "throughput"),
    "NAS, speedup": ("ImageNet-spdup-{}-1001J.pkl", "speedup"),
}
# The first 1,024 nodes of Summit, 160 h from event 1,000 on, by the rules of the published replayer
_FIXED: Final[Options] = {
    "semantics": "published",
    "nodes": "0:1024",
    "skip_events": 1000,
    "window": ":2021-02-17T12:21:15",
    "horizon_s": 120.0,
    "max_tasks": 10,
    "solver": "exact",
    "cost_factor": 1.0,
}
_QUICK_WINDOW: Final = ":2021-02-11T00:21:15"  # 4 h; its U differs from the published one
_HORIZONS: Final = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_COMPETING: Final = (2, 5, 10, 20, 35)
_FACTORS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_SOLVERS: Final[Mapping[str, Options]] = {
    "": {},
    ", greedy": {"solver": "greedy"},
    ", equal shares": {"solver": "equal-share-published"},
}
_KEEP_PLAN_ON_TIMEOUT: Final[Options] = {"solver": "highs-or-stay", "fallback": "", "solver_deadline_s": 10.0}


def _kept_plans(point: Point, cells: Cells) -> Iterator[Mark]:
    fallbacks, decisions = cells.get("fallbacks"), cells.get("decisions")
    if isinstance(fallbacks, int) and isinstance(decisions, int):
        yield Mark(point.line, point.x, 100.0 * fallbacks / max(1, decisions))


def _figure(
    request: Request,
    x: str,
    option: str,
    values: Sequence[float],
    variants: Mapping[str, Options] = {"": {}},
    **more: Any,  # noqa: ANN401 - fields of a figure
) -> Figure:
    """Return a figure over the ``values`` of an option; the keys of ``variants`` extend the name of a line."""
    sets = request.once("task sets", lambda: _inputs(request))
    points = [
        Point(line=f"{line}{suffix}", x=float(value), options={**_FIXED, **set_options, option: value, **variant})
        for line, set_options in sets.items()
        for value in values
        for suffix, variant in variants.items()
    ]
    if request.quick:
        first = points[0]
        points = [Point(line=f"{first.line}, 4 h", x=first.x, options={**first.options, "window": _QUICK_WINDOW})]
    settings = {"y": "efficiency U", "marks": columns({"": "efficiency"}), "digits": 3, **more}
    return Figure(x=x, points=tuple(points), **settings)


def _inputs(request: Request) -> dict[str, Options]:
    """Import the published log and tasks; return the options of each task set."""
    log_source, sets = _source(request, _LOG), dict(list(_SETS.items())[: 1 if request.quick else None])
    tables = {
        line: [_source(request, name.format(part)) for part in ("Jbnd", "JNPs")] for line, (name, _) in sets.items()
    }
    log = request.input_path("summit.npz", is_own_log, "log")
    save_log(import_logs(log_source).log, log)
    options: dict[str, Options] = {}
    for line, (_, objective) in sets.items():
        path = request.tasks(f"{line.replace(', ', '-').lower()}.toml", _tasks, *tables[line])
        options[line] = {"log": str(log), "tasks": path, "objective": objective}
    return options


def _tasks(bounds: Path, speeds: Path) -> Sequence[TaskSpec]:
    return import_tasks(bounds, speeds).tasks


def _source(request: Request, name: str) -> Path:
    return request.published_files(name, fix=_DATA)[0]


_by_competing = partial(_figure, x="competing tasks", option="max_tasks", values=_COMPETING)

STUDY: Final = Experiment(
    name="bftrain",
    title="BFTrainer",
    source="Liu, Kettimuthu, Papka, Foster, arXiv:2106.12091",
    figures={
        "t-fwd": FigureMaker(
            "Efficiency U over the horizon T_fwd",
            partial(_figure, x="horizon, s", option="horizon_s", values=_HORIZONS),
        ),
        "p-jmax": FigureMaker(
            "Efficiency U over the number of competing tasks P_jmax",
            partial(_by_competing, marks=columns({"": "efficiency", ", without costs": "ceiling_efficiency"})),
        ),
        "rescale-cost": FigureMaker(
            "Efficiency U over a factor on all costs of rescaling",
            partial(_figure, x="factor", option="cost_factor", values=_FACTORS),
        ),
        "heuristic": FigureMaker(
            "Efficiency U over the number of competing tasks: optimum, greedy, equal shares",
            partial(_by_competing, variants=_SOLVERS),
        ),
        "timeout": FigureMaker(
            "Decisions that keep the previous plan because the solver takes more than 10 s, per cent",
            partial(_by_competing, variants={"": _KEEP_PLAN_ON_TIMEOUT}, y="per cent of decisions", marks=_kept_plans),
        ),
    },
    traces_help=_DATA,
)
