"""Gavel's figures (Narayanan and others, OSDI 2020): completion times over load, makespans, shares and run times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from bftrain.assembly import share
from bftrain.values.sharing import Entity, SharingProblem, SharingTask
from bftrain_datasets.workloads.speed_table import load_speed_table
from bftrain_replay.reproducing import gavel_metrics
from bftrain_replay.reproducing.experiment import (
    HOUR_S,
    Cells,
    Experiment,
    Figure,
    Mark,
    Place,
    Point,
    Request,
    column,
    published,
)
from bftrain_replay.reproducing.gavel_jobs import KINDS, MULTI, PRIORITIES, SINGLE, SPEEDS, STATIC, Stream, task_file

NAME: Final = "gavel"
FIGURES: Final = {
    "las": "Mean completion time over load: least attained service, single-GPU jobs (figure 8)",
    "las-multi": "Mean completion time over load: least attained service, gangs (figure 9)",
    "ftf": "Mean completion time over load: finish-time fairness (figure 10)",
    "makespan": "Makespan over the number of jobs, gangs",
    "hierarchical": "Share of the total throughput, three entities (figure 11)",
    "policy-runtimes": "Time to compute one allocation over the number of jobs (figure 12)",
    "ideal": "Mean completion time over load: rounds and ideal shares, single-GPU jobs (figure 13)",
    "rounds": "Mean completion time over load: length of a round, single-GPU jobs (figure 13)",
    "priorities": "Mean completion time over load: two priorities, gangs",
    "cluster-sizes": "Mean completion time over load: clusters with more and fewer V100, single-GPU jobs",
}
_SINGLE_LOADS: Final = tuple(round(0.4 * step, 1) for step in range(1, 16))  # jobs per hour
_MULTI_LOADS: Final = tuple(round(0.2 * step, 1) for step in range(1, 16))
_SEEDS: Final = (0, 1, 2)
_CLUSTER: Final = "v100=36,p100=36,k80=36"
_MEASURED: Final = "4000..4999"
_QUICK_MEASURED: Final = "50..99"  # without a published value
_LAS: Final = {
    "LAS": "max-min-blind",
    "Gavel": "max-min",
    "Gavel with space sharing": "max-min-packed",
    "AlloX": "allox",
    "Gandiva": "gandiva",
    "FIFO": "fifo-blind",
    "FIFO, fastest GPU": "fifo",
    "FIFO with space sharing": "fifo-packed",
}
_LAS_MULTI: Final = {name: policy for name, policy in _LAS.items() if name != "AlloX"}  # which knows no gangs
_FTF: Final = {"finish-time fairness": "finish-time-blind", "Gavel": "finish-time", "AlloX": "allox"}
_MAKESPAN: Final = {
    "Gavel": "makespan",
    "Gavel with space sharing": "makespan-packed",
    "Gandiva": "gandiva",
    "FIFO": "fifo-blind",
}
_V100_SHARES: Final = {"10 %": "v100=10,k80=90", "50 %": "v100=50,k80=50", "100 %": "v100=100"}
_RUNTIMES: Final = {
    "LAS: Gavel": "max-min",
    "LAS: Gavel with space sharing": "max-min-packed",
    "hierarchical: Gavel": "water-filling",
    "hierarchical: Gavel with space sharing": "water-filling-packed",
}
_QUICK_LINES: Final = {"las": "FIFO, fastest GPU", "las-multi": "FIFO, fastest GPU"}
_QUICK_LOADS: Final = {"las": (4.4,), "las-multi": (1.0,)}


def saturated(cells: Cells) -> bool:
    """Return whether the queue grew without bound, so that a mean has no meaning."""
    return cells.get("ended") == "overload"


_MEAN_H: Final = column("completion_s_mean", HOUR_S, saturated)


def _seeds(request: Request) -> tuple[int, ...]:
    return request.seeds or (_SEEDS[:1] if request.quick else _SEEDS)


def _policy(name: str, seed: int) -> dict[str, Any]:
    """Return the options of a policy. Gavel draws by the seed of the jobs."""
    paired = name == "gandiva" or name.endswith("-packed")
    own = {"policy": f"{name}={seed}" if name == "gandiva" else name, "seed": seed}
    return {**own, "pairs": str(SPEEDS)} if paired else own


Line = tuple[str, str, Stream, Mapping[str, Any]]  # its name, its policy, its jobs, and options of its own


def _over_load(name: str, lines: Iterable[Line], request: Request) -> Figure:
    """Return a figure of mean completion times.

    Loads are those with published values, or the usual ones.
    """
    known = {(value.line, value.x) for value in published(NAME) if value.figure == name}

    def loads(line: str, stream: Stream) -> Sequence[Place]:
        if request.quick:
            return _QUICK_LOADS.get(name, (2.0,))
        usual = _MULTI_LOADS if stream.gangs else _SINGLE_LOADS
        return sorted((x for each, x in known if each == line and isinstance(x, float)), key=float) or usual

    def points() -> Iterator[Point]:
        chosen, compared = list(lines), not request.quick or name in _QUICK_LINES
        if request.quick:
            chosen = [each for each in chosen if each[0] == _QUICK_LINES.get(name, each[0])][:2]
        for line, policy, stream, own in chosen:
            fixed = {
                "cluster": _CLUSTER,
                "round_s": 360.0,
                "like": "gavel",
                "measure": _MEASURED if compared else _QUICK_MEASURED,
                "max_backlog_s": _BACKLOG_S,
            }
            for seed in _seeds(request):
                tasks = str(task_file(stream, seed, request.folder, request.traces))
                for load in loads(line, stream):
                    options = {**fixed, "tasks": tasks, "tasks.rate": load, **_policy(policy, seed), **own}
                    title = line if compared else f"{line}, jobs {_QUICK_MEASURED.replace('..', ' to ')}"
                    yield Point(line=title, x=load, seed=seed, options=options)

    y = "mean completion time, hours"
    return Figure(name=name, title=FIGURES[name], x="jobs per hour", y=y, points=tuple(points()), marks=_MEAN_H)


_BACKLOG_S: Final = 36.0 * HOUR_S  # waiting work that all GPUs do in this time: the queue only grows then


def _las(request: Request) -> Figure:
    return _over_load("las", ((line, policy, SINGLE, {}) for line, policy in _LAS.items()), request)


def _las_multi(request: Request) -> Figure:
    return _over_load("las-multi", ((line, policy, MULTI, {}) for line, policy in _LAS_MULTI.items()), request)


def _ftf(request: Request) -> Figure:
    gangs: list[Line] = [(f"{line}, gangs", policy, MULTI, {}) for line, policy in _FTF.items() if policy != "allox"]
    return _over_load("ftf", [*((line, policy, SINGLE, {}) for line, policy in _FTF.items()), *gangs], request)


def _ideal(request: Request) -> Figure:
    ways = (("rounds of 360 s", "gavel"), ("ideal shares", "gavel-ideal"))
    return _over_load("ideal", ((line, "max-min", SINGLE, {"like": like}) for line, like in ways), request)


def _rounds(request: Request) -> Figure:
    lengths = (360.0, 720.0, 1440.0, 2880.0)
    return _over_load("rounds", ((f"{each:g} s", "max-min", SINGLE, {"round_s": each}) for each in lengths), request)


def _priorities(request: Request) -> Figure:
    metric = {"metrics": f"{Path(gavel_metrics.__file__)}:ByPriority"}
    lines = ((line, _LAS[line], PRIORITIES, metric) for line in ("LAS", "Gavel"))

    def marks(point: Point, cells: Cells) -> Iterator[Mark]:
        for level in ("high", "low"):
            line, name = f"{point.line}, {level} priority", f"metrics_completion_{level}_s"
            yield from column(name, HOUR_S, saturated)(Point(line=line, x=point.x, options={}), cells)

    return replace(_over_load("priorities", lines, request), marks=marks)


def _cluster_sizes(request: Request) -> Figure:
    lines = (
        (f"{line}, {part} V100", _LAS[line], SINGLE, {"cluster": cluster})
        for line in ("LAS", "Gavel")
        for part, cluster in _V100_SHARES.items()
    )
    return _over_load("cluster-sizes", lines, request)


def _makespan(request: Request) -> Figure:
    counts = (100,) if request.quick else range(100, 800, 100)
    lines = {"Gavel": _MAKESPAN["Gavel"]} if request.quick else _MAKESPAN

    def points() -> Iterator[Point]:
        for count in counts:
            for seed in _seeds(request):
                fixed = {"cluster": _CLUSTER, "round_s": 360.0, "like": "gavel"}
                fixed["tasks"] = str(task_file(STATIC, seed, request.folder, request.traces, count))
                for line, policy in lines.items():
                    yield Point(line=line, x=float(count), seed=seed, options={**fixed, **_policy(policy, seed)})

    marks = column("makespan_s", HOUR_S)
    title = FIGURES["makespan"]
    return Figure(name="makespan", title=title, x="jobs", y="hours", points=tuple(points()), marks=marks)


def _policy_runtimes(request: Request) -> Figure:
    """Measure the first allocation of jobs that all arrive at time 0."""

    def points() -> Iterator[Point]:
        for line, policy in _RUNTIMES.items():
            most = 64 if request.quick else 256 if "hierarchical" in line else 1024 if "-packed" in policy else 4096
            for count in (2**power for power in range(5, 13) if 2**power <= most):
                tasks = str(task_file(STATIC, 0, request.folder, request.traces, count))
                fixed = {"round_s": 360.0, "until_s": 360.0, "tasks": tasks, **_policy(policy, 0)}
                clusters = {line: ",".join(f"{kind}={count // 4}" for kind in KINDS)}
                if line.startswith("LAS"):
                    clusters[line.replace("LAS", "LAS, 108 GPUs")] = _CLUSTER
                for name, cluster in clusters.items():
                    yield Point(line=name, x=float(count), options={**fixed, "cluster": cluster})

    return Figure(
        name="policy-runtimes",
        title=FIGURES["policy-runtimes"],
        x="jobs",
        y="seconds",
        points=tuple(points()),
        marks=column("shares_wall_s"),
        log_y=True,
        digits=4,
        note="Times depend on the machine.",
    )


def _hierarchical(request: Request) -> Figure:
    """Solve the published example: every four steps a job comes, six to each of three entities of weight 1, 2 and 3."""
    del request
    rates = load_speed_table(SPEEDS).rates
    models = [model for model, by_gang in rates[KINDS[0]].items() if 1 in by_gang]
    draws = Random(0)  # noqa: S311 - Gavel's generator
    tasks = [_entity_task(number, draws.choice(models), rates) for number in range(18)]
    entities = {f"entity {place}": Entity(weight=place + 1.0) for place in range(3)}
    nodes = dict.fromkeys(KINDS, 3)
    marks = []
    for count in range(1, len(tasks) + 1):
        here = tuple(tasks[:count])
        found = share(SharingProblem(nodes=nodes, tasks=here, entities=entities, policy="hierarchical"))
        parts = {task.name: found.speeds[task.name] / sum(task.speeds.values()) for task in here}
        for entity in entities:
            own = sum(parts[task.name] for task in here if task.entity == entity)
            marks.append(Mark(entity, float(4 * count - 3), own / sum(parts.values())))
    title, y = FIGURES["hierarchical"], "share of the total throughput"
    note = "Throughputs are relative to a job's mean over all GPUs."
    return Figure(name="hierarchical", title=title, x="step", y=y, ready=tuple(marks), form="steps", note=note)


def _entity_task(number: int, model: str, rates: Mapping[str, Mapping[str, Mapping[int, float]]]) -> SharingTask:
    speeds = {kind: rates[kind][model].get(1, 0.0) for kind in KINDS}
    return SharingTask(name=f"{number}", speeds=speeds, weight=number % 2 + 1.0, entity=f"entity {number // 6}")


_MAKERS: Final[Mapping[str, Callable[[Request], Figure]]] = {
    "las": _las,
    "las-multi": _las_multi,
    "ftf": _ftf,
    "makespan": _makespan,
    "hierarchical": _hierarchical,
    "policy-runtimes": _policy_runtimes,
    "ideal": _ideal,
    "rounds": _rounds,
    "priorities": _priorities,
    "cluster-sizes": _cluster_sizes,
}

GAVEL: Final = Experiment(
    name=NAME,
    title="Gavel",
    source="Narayanan and others, OSDI 2020",
    figures=FIGURES,
    prepare=lambda request: [_MAKERS[name](request) for name in request.figures],
)
