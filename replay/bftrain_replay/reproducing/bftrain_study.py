"""The figures of the BFTrainer study (Liu and others, arXiv:2106.12091): horizon, competing tasks, costs, heuristic."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from bftrain.errors import BadInput
from bftrain.taskfiles.files import save_tasks
from bftrain_datasets.importing.pipeline import import_logs
from bftrain_datasets.log.log_files import save_log
from bftrain_datasets.published.tasks import import_tasks
from bftrain_replay.reproducing.experiment import Cells, Experiment, Figure, Mark, Options, Point, Request

_LOG: Final = "ndstat-10sdn6-evt.tar.gz"
_SETS: Final = {  # by name: the tables of bounds and speeds, and the metric that they were published with
    "HPO": ("hps-shufflenet-{}-1000J.pkl", "throughput"),
    "NAS, throughput": ("ImageNet-imgps-{}-1001J.pkl", "throughput"),
    "NAS, speedup": ("ImageNet-spdup-{}-1001J.pkl", "speedup"),
}
# The first 1,024 nodes of Summit, 160 h from event 1,000 on, by the rules of the published replayer
_FIXED: Final[Options] = {
    "semantics": "published",
    "nodes": "0:1024",
    "skip_events": 1000,
    "window": "..2021-02-17T12:21:15",
    "horizon_s": 120.0,
    "max_tasks": 10,
    "solver": "exact",
    "cost_factor": 1.0,
}
_HORIZONS: Final = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_COMPETING: Final = (2, 5, 10, 20, 35)
_FACTORS: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
_SOLVERS: Final = {"": "exact", ", greedy": "greedy", ", equal shares": "equal-share-published"}
_STAYS: Final = {"solver": "highs-or-stay", "fallback": "", "solver_deadline_s": 10.0}

FIGURES: Final = {
    "t-fwd": "Efficiency U over the horizon T_fwd",
    "p-jmax": "Efficiency U over the number of competing tasks P_jmax",
    "rescale-cost": "Efficiency U over a factor on all costs of rescaling",
    "heuristic": "Efficiency U over the number of competing tasks: optimum, greedy, equal shares",
    "timeout": "Decisions that keep the previous plan because the solver takes more than 10 s, per cent",
}


def _efficiency(point: Point, cells: Cells) -> Iterator[Mark]:
    """Yield U, and U of the replay without costs where the figure shows it."""
    columns = {"": "efficiency", ", without costs": "ceiling_efficiency"}
    for suffix, name in columns.items():
        value = cells.get(name)
        if isinstance(value, float):
            yield Mark(f"{point.line}{suffix}", point.x, value)


def _only_efficiency(point: Point, cells: Cells) -> Iterator[Mark]:
    return (mark for mark in _efficiency(point, cells) if mark.line == point.line)


def _kept(point: Point, cells: Cells) -> Iterator[Mark]:
    kept, count = cells.get("fallbacks"), cells.get("decisions")
    if isinstance(kept, int) and isinstance(count, int):
        yield Mark(point.line, point.x, 100.0 * kept / max(1, count))


def _figure(name: str, x: str, sets: Mapping[str, Options], swept: Iterable[Options], **more: Any) -> Figure:  # noqa: ANN401 - fields of a figure
    """Return a figure over the first option of ``swept``; the others extend the name of the line."""
    points = []
    for line, own in sets.items():
        for options in swept:
            (place, *_), suffix = options.items(), options.get("", "")
            chosen = {key: value for key, value in options.items() if key}
            points.append(Point(line=f"{line}{suffix}", x=float(place[1]), options={**_FIXED, **own, **chosen}))
    settings = {"y": "efficiency U", "marks": _only_efficiency, "digits": 3, **more}
    return Figure(name=name, title=FIGURES[name], x=x, points=tuple(points), **settings)


def _figures(sets: Mapping[str, Options]) -> Mapping[str, Callable[[], Figure]]:
    capped = [{"max_tasks": count} for count in _COMPETING]
    solved = [{**each, "solver": solver, "": suffix} for each in capped for suffix, solver in _SOLVERS.items()]
    late = [{**each, **_STAYS} for each in capped]
    competing = "tasks that compete"
    return {
        "t-fwd": lambda: _figure("t-fwd", "horizon, s", sets, ({"horizon_s": value} for value in _HORIZONS)),
        "p-jmax": lambda: _figure("p-jmax", competing, sets, capped, marks=_efficiency),
        "rescale-cost": lambda: _figure("rescale-cost", "factor", sets, ({"cost_factor": value} for value in _FACTORS)),
        "heuristic": lambda: _figure("heuristic", competing, sets, solved),
        "timeout": lambda: _figure("timeout", competing, sets, late, y="per cent of decisions", marks=_kept),
    }


def _inputs(request: Request) -> dict[str, Options]:
    """Import the published log and tasks, unless that is done; return the options of each set of tasks."""
    assert request.traces is not None  # noqa: S101 - the command asks for it
    log = request.folder / "summit.npz"
    if not log.exists():
        save_log(import_logs(_there(request.traces, _LOG)).log, log)
    sets: dict[str, Options] = {}
    for line, (names, objective) in list(_SETS.items())[: 1 if request.quick else None]:
        path = request.folder / f"{line.replace(', ', '-').lower()}.toml"
        if not path.exists():
            tables = (_there(request.traces, names.format(part)) for part in ("Jbnd", "JNPs"))
            save_tasks(import_tasks(*tables).tasks, path)
        sets[line] = {"log": str(log), "tasks": str(path), "objective": objective}
    return sets


def _there(folder: Path, name: str) -> Path:
    path = folder / name
    if not path.is_file():
        raise BadInput("is missing", where=str(path), fix="--traces names the folder dataset of BFTrainer/Replayer")
    return path


def _prepare(request: Request) -> Sequence[Figure]:
    makers = _figures(_inputs(request))
    figures = [makers[name]() for name in request.figures]
    if not request.quick:
        return figures
    # A shorter window, whose U is not the published one
    return [_quick(figure) for figure in figures if figure.name != "timeout"]


def _quick(figure: Figure) -> Figure:
    first = figure.points[0]
    point = Point(line=f"{first.line}, 4 h", x=first.x, options={**first.options, "window": "..2021-02-11T00:21:15"})
    return replace(figure, points=(point,))


STUDY: Final = Experiment(
    name="bftrain",
    title="BFTrainer",
    source="Liu, Kettimuthu, Papka, Foster, arXiv:2106.12091",
    figures=FIGURES,
    prepare=_prepare,
    needs="the folder dataset of github.com/BFTrainer/Replayer",
)
