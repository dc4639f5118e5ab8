"""Gavel's figures (Narayanan and others, OSDI 2020): completion times over load, makespans, shares and run times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from statistics import fmean
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from bftrain.assembly import share
from bftrain.values.sharing import Entity, SharingProblem, SharingTask
from bftrain_datasets.workloads.speed_table import load_speed_table
from bftrain_replay.reproducing import metrics
from bftrain_replay.reproducing.experiment import (
    HOUR_S,
    Experiment,
    Figure,
    FigureMaker,
    Mark,
    Point,
    Request,
    columns,
    published,
)
from bftrain_replay.reproducing.gavel_jobs import (
    ENTITIES,
    KINDS,
    MULTI,
    PRIORITIES,
    SINGLE,
    SPEEDS,
    STATIC,
    STATIC_SINGLE,
    Stream,
    task_file,
)

NAME: Final = "gavel"
_SINGLE_LOADS: Final = tuple(round(0.4 * step, 1) for step in range(1, 17))  # jobs per hour
_MULTI_LOADS: Final = tuple(round(0.2 * step, 1) for step in range(1, 18))
_SEEDS: Final = (0, 1, 2)
_CLUSTER: Final = "v100=36,p100=36,k80=36"
_FIXED: Final = {"cluster": _CLUSTER, "round_s": 360.0, "like": "gavel"}
_BY_PRIORITY: Final = f"{metrics.__file__}:ByPriority"
_SOLVED: Final = f"{metrics.__file__}:AfterFirstSolve"
_ROUNDS_S: Final = (360.0, 720.0, 1440.0, 2880.0)
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
_NO_GANGS: Final = "allox"
_FTF: Final = {"finish-time fairness": "finish-time-blind", "Gavel": "finish-time", "AlloX": "allox"}
_MAKESPAN: Final = {
    "Gavel": "makespan",
    "Gavel with space sharing": "makespan-packed",
    "Gandiva": "gandiva",
    "FIFO": "fifo-blind",
}
_PRIORITIES: Final = {"LAS": "max-min-blind", "Gavel": "water-filling"}  # the published figure uses water filling
_V100_SHARES: Final = {"10 %": "v100=10,k80=90", "50 %": "v100=50,k80=50", "100 %": "v100=100"}
_ENTITIES: Final = {f"entity {number}": Entity(weight=number + 1.0) for number in range(3)}
_BACKLOG_S: Final = 36.0 * HOUR_S  # waiting work that all GPUs do in this time: the queue only grows then
_QUICK_LINES: Final = {"las": "FIFO, fastest GPU", "las-multi": "FIFO, fastest GPU"}
_QUICK_LOADS: Final = {"las": (4.4,), "las-multi": (1.0,)}


def _seeds(request: Request) -> tuple[int, ...]:
    return request.seeds or (_SEEDS[:1] if request.quick else _SEEDS)


def _policy(name: str, seed: int) -> dict[str, Any]:
    """Return the options of a policy. Gavel draws by the seed of the jobs."""
    options = {"policy": f"{name}={seed}" if name == "gandiva" else name, "seed": seed}
    if name == "gandiva" or name.endswith("-packed"):
        options["pairs"] = str(SPEEDS)
    return options


class Line(NamedTuple):
    """A line of a figure over load: its name, policy and jobs, and options that replace the usual ones.

    With ``divides`` it is the denominator of the line with the same name.
    """

    name: str
    policy: str
    stream: Stream = SINGLE
    options: Mapping[str, Any] = {}
    divides: bool = False


_OVER_LOAD: Final[Mapping[str, tuple[str, Sequence[Line]]]] = {  # by figure: its title and lines
    "las": (
        "Least attained service, single-GPU jobs (figure 8)",
        [Line(line, policy) for line, policy in _LAS.items()],
    ),
    "las-multi": (
        "Least attained service, gangs (figure 9)",
        [Line(line, policy, MULTI) for line, policy in _LAS.items() if policy != _NO_GANGS],
    ),
    "ftf": (
        "Finish-time fairness (figure 10)",
        [Line(line, policy) for line, policy in _FTF.items()]
        + [Line(f"{line}, gangs", policy, MULTI) for line, policy in _FTF.items() if policy != _NO_GANGS],
    ),
    "ideal": (
        "Rounds and ideal shares (figure 13)",
        [Line("rounds of 360 s", "max-min"), Line("ideal shares", "max-min", SINGLE, {"like": "gavel-ideal"})],
    ),
    "rounds": (
        "Length of a round (figure 13)",
        [Line(f"{round_s:g} s", "max-min", SINGLE, {"round_s": round_s}) for round_s in _ROUNDS_S],
    ),
    "priorities": (
        "Two priorities, gangs",
        [Line(line, policy, PRIORITIES, {"metrics": _BY_PRIORITY}) for line, policy in _PRIORITIES.items()],
    ),
    "cluster-sizes": (
        "LAS over Gavel by share of V100",
        [
            Line(f"{part} V100", policy, SINGLE, {"cluster": cluster}, divides=policy == _LAS["Gavel"])
            for policy in (_LAS["LAS"], _LAS["Gavel"])
            for part, cluster in _V100_SHARES.items()
        ],
    ),
}


def _over_load(request: Request, name: str) -> Figure:
    """Return a figure of mean completion times. Loads are the loads of published values, or the usual ones."""
    compared, lines = not request.quick or name in _QUICK_LINES, _OVER_LOAD[name][1]
    if request.quick:
        first = lines[0].name if name == "cluster-sizes" else None
        lines = [line for line in lines if line.name == _QUICK_LINES.get(name, first or line.name)][:2]
    fixed = {**_FIXED, "measure": _MEASURED if compared else _QUICK_MEASURED, "max_backlog_s": _BACKLOG_S}
    suffix = "" if compared else f", jobs {_QUICK_MEASURED.replace('..', ' to ')}"
    points = []
    for line in lines:
        usual = _MULTI_LOADS if line.stream.gangs else _SINGLE_LOADS
        loads = _QUICK_LOADS.get(name, (2.0,)) if request.quick else _published_x(name, line.name) or usual
        for seed in _seeds(request):
            tasks = task_file(line.stream, seed, request)
            for load in loads:
                options = {**fixed, "tasks": tasks, "tasks.rate": load, **_policy(line.policy, seed), **line.options}
                label = f"{line.name}{suffix}"
                points.append(Point(line=label, x=load, seed=seed, options=options, divides=line.divides))
    mean = {"": "completion_s_mean"}
    if name == "priorities":
        mean = {f", {level} priority": f"metrics_completion_{level}_s" for level in ("high", "low")}
    marks = columns(mean, HOUR_S, lambda cells: cells.get("ended") == "overload")
    y = "mean completion time, ratio" if name == "cluster-sizes" else "mean completion time, hours"
    return Figure(x="jobs per hour", y=y, points=tuple(points), marks=marks)


def _published_x(figure: str, line: str) -> list[float]:
    values = (value for value in published(NAME) if (value.figure, value.line) == (figure, line))
    return sorted({value.x for value in values if isinstance(value.x, float)})


def _makespan(request: Request) -> Figure:
    points = []
    for count in (100,) if request.quick else range(100, 800, 100):
        for seed in _seeds(request):
            fixed = {**_FIXED, "tasks": task_file(STATIC, seed, request, count)}
            for line, policy in {"Gavel": _MAKESPAN["Gavel"]}.items() if request.quick else _MAKESPAN.items():
                points.append(Point(line=line, x=float(count), seed=seed, options={**fixed, **_policy(policy, seed)}))
    return Figure(x="jobs", y="hours", points=tuple(points), marks=columns({"": "makespan_s"}, HOUR_S))


_TIMED_LINES: Final = {  # by name: its policy and jobs; the GPUs are 108, or grow with the jobs
    "LAS: Gavel": ("max-min", STATIC),
    "LAS: Gavel with space sharing": ("max-min-packed", STATIC),
    "LAS, 108 GPUs: Gavel": ("max-min", STATIC),
    "LAS, 108 GPUs: Gavel with space sharing": ("max-min-packed", STATIC),
    "hierarchical: Gavel": ("hierarchical", ENTITIES),
    "water filling, 108 GPUs: Gavel": ("water-filling", STATIC_SINGLE),
    "water filling, 108 GPUs: Gavel with space sharing": ("water-filling-packed", STATIC_SINGLE),
}


def _policy_runtimes(request: Request) -> Figure:
    """Measure the first allocation of jobs that all arrive at time 0. The jobs are drawn: traces have too few."""
    drawn = replace(request, traces=None)
    points = []
    for line, (policy, stream) in _TIMED_LINES.items():
        fixed_gpus = "108 GPUs" in line
        least = 1 if fixed_gpus else 32  # gangs of 8 need 8 GPUs of a kind
        most = 64 if request.quick else 4096
        for count in map(int, _published_x("policy-runtimes", line)):
            if least <= count <= most:
                cluster = _CLUSTER if fixed_gpus else ",".join(f"{kind}={count // 4}" for kind in KINDS)
                tasks = task_file(stream, 0, drawn, count)
                fixed = {"round_s": 360.0, "until_s": 360.0, "tasks": tasks, "cluster": cluster, "metrics": _SOLVED}
                points.append(Point(line=line, x=float(count), options={**fixed, **_policy(policy, 0)}))
    return Figure(
        x="jobs",
        y="seconds",
        points=tuple(points),
        marks=columns({"": "shares_wall_s"}),
        log_x=True,
        log_y=True,
        digits=4,
        note="Times depend on the machine. The hierarchical policy has five entities.",
        machine_dependent=True,
    )


def _hierarchical(_request: Request, *, total: bool = False) -> Figure:
    """Solve the published example: every four steps a job comes, six to each of three entities of weight 1, 2 and 3."""
    rates = load_speed_table(SPEEDS).rates
    models = [model for model, by_gang in rates[KINDS[0]].items() if 1 in by_gang]
    draws = Random(0)  # noqa: S311 - Gavel's generator
    tasks = [_entity_task(number, draws.choice(models), rates) for number in range(18)]
    marks = []
    for count in range(1, len(tasks) + 1):
        step, active = 4.0 * count - 3.0, tasks[:count]
        speeds = _effective_speeds(active)
        if total:
            blind = [replace(task, speeds=dict.fromkeys(KINDS, 1.0)) for task in active]
            marks.append(Mark("Gavel", step, sum(speeds)))
            marks.append(Mark("multi-level fairness", step, sum(_effective_speeds(blind))))
            continue
        for entity in _ENTITIES:
            own = sum(speed for task, speed in zip(active, speeds, strict=True) if task.entity == entity)
            marks.append(Mark(entity, step, own / sum(speeds)))
    return Figure(
        x="step",
        y="total throughput" if total else "share of the total throughput",
        computed_marks=tuple(marks),
        form="steps",
        note="Throughputs are relative to a job's mean over all GPUs.",
    )


def _effective_speeds(tasks: Sequence[SharingTask]) -> list[float]:
    """Return the speed of each task on three GPUs of each kind, relative to its mean over the kinds."""
    nodes = dict.fromkeys(KINDS, 3)
    shares = share(SharingProblem(nodes=nodes, tasks=tuple(tasks), entities=_ENTITIES, policy="hierarchical"))
    return [shares.speeds[task.name] / fmean(task.speeds.values()) for task in tasks]


def _entity_task(number: int, model: str, rates: Mapping[str, Mapping[str, Mapping[int, float]]]) -> SharingTask:
    speeds = {kind: rates[kind][model].get(1, 0.0) for kind in KINDS}
    return SharingTask(name=f"{number}", speeds=speeds, weight=number % 2 + 1.0, entity=f"entity {number // 6}")


def _load_figure(name: str) -> FigureMaker:
    return FigureMaker(_OVER_LOAD[name][0], partial(_over_load, name=name))


FIGURES: Final = {
    **{name: _load_figure(name) for name in ("las", "las-multi", "ftf")},
    "makespan": FigureMaker("Makespan, gangs", _makespan),
    "hierarchical": FigureMaker("Share of the total throughput, three entities (figure 11a)", _hierarchical),
    "hierarchical-total": FigureMaker(
        "Total throughput, three entities (figure 11b)", partial(_hierarchical, total=True)
    ),
    "policy-runtimes": FigureMaker("Time to compute an allocation (figure 12)", _policy_runtimes),
    **{name: _load_figure(name) for name in ("ideal", "rounds", "priorities", "cluster-sizes")},
}

GAVEL: Final = Experiment(
    name=NAME,
    title="Gavel",
    source="Narayanan and others, OSDI 2020",
    figures=FIGURES,
    traces_help="the folder of Gavel's traces",
    without_traces=frozenset(FIGURES),
    takes_seeds=True,
)
