"""Gavel's figures (Narayanan et al., OSDI 2020): completion times over load, makespans, shares and run times.

Jobs are drawn by the published rules and equal those in Gavel's traces to the last digit. Jobs and arrival gaps use two
generators, so streams of any rate have the same jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from importlib.resources import files
from itertools import product
from pathlib import Path
from random import Random
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from bftrain.assembly import share
from bftrain.errors import BadInput
from bftrain.text_formats import counted
from bftrain.values.sharing import Entity, SharingProblem, SharingTask
from bftrain.values.task import TaskSpec
from bftrain_datasets.workloads.job import WorkloadOptions
from bftrain_datasets.workloads.speed_table import load_speed_table
from bftrain_datasets.workloads.workload import import_workload
from bftrain_replay.reproducing import experiment, metrics
from bftrain_replay.reproducing.experiment import HOUR_S, RATE, Figure, FigureMaker, Mark, Point, Request, columns

KINDS: Final = ("v100", "p100", "k80")
SPEEDS: Final = Path(str(files(__package__).joinpath("published", "gavel_throughputs.json.gz")))
_FIX: Final = "the folder of Gavel's traces; without it the jobs are drawn"
JOBS: Final = 16_000  # jobs per stream, as published: later jobs still compete when the last measured one finishes

_GANGS: Final = ((0.7, 1), (0.8, 2), (0.95, 4), (1.0, 8))
_NOT_DISTRIBUTED: Final = ("A3C", "CycleGAN", "Recommendation")
_HIGH_SHARE, _HIGH_WEIGHT = 0.2, 5
_SHORT, _LONG, _SHORT_SHARE = (1.5, 3.0), (3.0, 4.0), 0.8  # decimal exponents of the duration in minutes


class Stream(NamedTuple):
    """A stream: its name, as the folder of the published traces, whether jobs are gangs, and have priorities.

    ``static``: all jobs arrive at time 0. ``entities``: each job belongs to one of five entities.
    """

    name: str
    gangs: bool = False
    priorities: bool = False
    static: bool = False
    entities: bool = False

    def file_name(self, seed: int) -> str:
        """Return the name of the published trace."""
        return f"static/{self.name}_seed{seed}.trace.gz" if self.static else f"{self.name}/seed{seed}.trace.gz"


SINGLE: Final = Stream("single")
MULTI: Final = Stream("multi", gangs=True)
PRIORITIES: Final = Stream("multi_priority", gangs=True, priorities=True)
STATIC: Final = Stream("multi", gangs=True, static=True)
STATIC_SINGLE: Final = Stream("single", static=True)
ENTITIES: Final = Stream("multi", gangs=True, static=True, entities=True)


class Job(NamedTuple):
    """One line of a trace."""

    model: str
    steps: int
    gang: int
    weight: int
    submit_s: float

    @property
    def line(self) -> str:
        """The job's line; fields unused by simulations are dashes."""
        model, steps, gang, weight, submit_s = self
        return "\t".join(map(str, (model, *"----", steps, gang, weight, "-1.000000", submit_s)))


def draw(stream: Stream, seed: int, count: int = JOBS) -> Iterator[Job]:
    """Draw the first jobs of a stream, with one arrival an hour on average."""
    rates = load_speed_table(SPEEDS).rates[KINDS[0]]
    models = [model for model, by_gang in rates.items() if 1 in by_gang]
    jobs, gaps, now_s = Random(seed + 2), Random(seed + 3), 0.0  # noqa: S311 - Gavel's generator
    for _ in range(count):
        u = jobs.random()
        gang = next(size for share, size in _GANGS if u < share) if stream.gangs else 1
        exponents = _LONG if jobs.random() >= _SHORT_SHARE else _SHORT
        duration_s = 60.0 * 10.0 ** jobs.uniform(*exponents)
        model = jobs.choice(models)
        while gang > 1 and model.startswith(_NOT_DISTRIBUTED):
            model = jobs.choice(models)
        weight = _HIGH_WEIGHT if stream.priorities and jobs.random() <= _HIGH_SHARE else 1
        yield Job(model, int(duration_s * rates[model][gang]), gang, weight, now_s)
        if not stream.static:
            now_s += -math.log(1.0 - gaps.random()) * 3600.0


def task_file(stream: Stream, seed: int, request: Request, count: int = JOBS) -> str:
    """Write the tasks of a stream, read from the published traces or drawn; return the path."""
    static, traces = "-static" if stream.static else "", "-traces" if request.traces else ""
    entities = "-entities" if stream.entities else ""
    name = f"{stream.name}{static}{entities}-{count}-seed{seed}{traces}.csv"
    return request.tasks(name, _tasks, stream, seed, request, count)


def _tasks(stream: Stream, seed: int, request: Request, count: int) -> Sequence[TaskSpec]:
    options = WorkloadOptions(format="gavel", speeds=SPEEDS, kinds=KINDS, first=count)
    if request.traces is not None:
        (trace,) = request.published_files(stream.file_name(seed), fix=_FIX)
        tasks = import_workload(trace, options).tasks
        if len(tasks) < count:
            raise BadInput(f"contains {counted(len(tasks), 'job')}; {count:,} are needed", where=str(trace), fix=_FIX)
        return tasks
    with TemporaryDirectory() as folder:
        drawn = Path(folder) / "jobs.trace"
        drawn.write_text("".join(f"{job.line}\n" for job in draw(stream, seed, count)), encoding="utf-8")
        tasks = import_workload(drawn, options).tasks
    if not stream.entities:
        return tasks
    return [replace(task, user=f"entity-{number % 5}") for number, task in enumerate(tasks)]


NAME: Final = "gavel"
_SINGLE_LOADS: Final = tuple(round(0.4 * step, 1) for step in range(1, 17))  # jobs per hour
_MULTI_LOADS: Final = tuple(round(0.2 * step, 1) for step in range(1, 18))
_SEEDS: Final = (0, 1, 2)
_CLUSTER: Final = "v100=36,p100=36,k80=36"
_FIXED: Final = {"cluster": _CLUSTER, "round_s": 360.0, "like": "gavel"}
_BY_PRIORITY: Final = f"{metrics.__file__}:ByPriority"
_SOLVED: Final = f"{metrics.__file__}:AfterFirstSolve"
_MEASURED: Final = "4000:4999"
_QUICK_MEASURED: Final = "50:99"  # jobs without a published value
_BACKLOG_S: Final = 36.0 * HOUR_S  # waiting work in seconds of all GPUs; beyond it the queue only grows
_QUICK: Final = {"las": ("FIFO, fastest GPU", 4.4), "las-multi": ("FIFO, fastest GPU", 1.0)}  # line and load
_RATIO_JOBS: Final = 500  # unpublished number of jobs; chosen for the nearest ratios
_ENTITIES: Final = {f"entity {number}": Entity(weight=number + 1.0) for number in range(3)}


def _v100_cluster(percent: int) -> dict[str, str]:
    """Return the option of a cluster of 100 GPUs with V100 and K80 only."""
    return {"cluster": f"v100={percent},k80={100 - percent}" if percent < 100 else "v100=100"}  # noqa: PLR2004 - per cent


class Line(NamedTuple):
    """A line of a figure: its name, policy and jobs, and options that replace the usual ones.

    With ``divides`` it is the denominator of the line with the same name.
    """

    name: str
    policy: str
    stream: Stream = SINGLE
    options: Mapping[str, Any] = {}
    divides: bool = False


_LAS: Final = (
    Line("LAS", "max-min-blind"),
    Line("Gavel", "max-min"),
    Line("Gavel with space sharing", "max-min-packed"),
    Line("AlloX", "allox"),
    Line("Gandiva", "gandiva"),
    Line("FIFO", "fifo-blind"),
    Line("FIFO, fastest GPU", "fifo"),
    Line("FIFO with space sharing", "fifo-packed"),
)
_FTF: Final = (Line("finish-time fairness", "finish-time-blind"), Line("Gavel", "finish-time"), Line("AlloX", "allox"))


def _with_gangs(lines: Sequence[Line], suffix: str = "") -> list[Line]:
    """Return the lines with gangs, without AlloX, which has none."""
    return [line._replace(name=line.name + suffix, stream=MULTI) for line in lines if line.policy != "allox"]


_OVER_LOAD: Final[Mapping[str, tuple[str, Sequence[Line]]]] = {  # title and lines of each figure
    "las": ("Least attained service, single-GPU jobs (figure 8)", _LAS),
    "las-multi": ("Least attained service, gangs (figure 9)", _with_gangs(_LAS)),
    "ftf": ("Finish-time fairness (figure 10)", [*_FTF, *_with_gangs(_FTF, ", gangs")]),
    "ideal": (
        "Rounds and ideal shares (figure 13)",
        [Line("rounds of 360 s", "max-min"), Line("ideal shares", "max-min", options={"like": "gavel-ideal"})],
    ),
    "rounds": (
        "Length of a round (figure 13)",
        [Line(f"{size} s", "max-min", options={"round_s": float(size)}) for size in (360, 720, 1440, 2880)],
    ),
    "priorities": (
        "Two priorities, gangs",
        [
            Line("LAS", "water-filling-blind", PRIORITIES, {"metrics": _BY_PRIORITY}),
            Line("Gavel", "water-filling", PRIORITIES, {"metrics": _BY_PRIORITY}),
        ],
    ),
    "cluster-sizes": (
        "LAS over Gavel by share of V100",
        [
            Line(f"{share} % V100", policy, options=_v100_cluster(share), divides=policy == "max-min")
            for share in (10, 50, 100)
            for policy in ("max-min-blind", "max-min")
        ],
    ),
}
_MAKESPAN: Final = (
    Line("Gavel", "makespan", STATIC),
    Line("Gavel with space sharing", "makespan-packed", STATIC),
    Line("Gandiva", "gandiva", STATIC),
    Line("FIFO", "fifo-blind", STATIC),
)
_TIMED_LINES: Final = (  # the GPUs are 108, or grow with the jobs
    Line("LAS: Gavel", "max-min", STATIC),
    Line("LAS: Gavel with space sharing", "max-min-packed", STATIC),
    Line("LAS, 108 GPUs: Gavel", "max-min", STATIC),
    Line("LAS, 108 GPUs: Gavel with space sharing", "max-min-packed", STATIC),
    Line("hierarchical: Gavel", "hierarchical", ENTITIES),
    Line("water filling, 108 GPUs: Gavel", "water-filling", STATIC_SINGLE),
    Line("water filling, 108 GPUs: Gavel with space sharing", "water-filling-packed", STATIC_SINGLE),
)


def _seeds(request: Request) -> tuple[int, ...]:
    return request.seeds or (_SEEDS[:1] if request.quick else _SEEDS)


def _point(request: Request, line: Line, x: float, seed: int, count: int = JOBS) -> Point:
    """Return a run of the first jobs of a stream. Gavel draws by the seed of the jobs."""
    options = {**_FIXED, "policy": line.policy, "seed": seed, "tasks": task_file(line.stream, seed, request, count)}
    if line.policy == "gandiva":
        options["policy"] = f"gandiva={seed}"
    if line.policy == "gandiva" or line.policy.endswith("-packed"):
        options["pairs"] = str(SPEEDS)
    return Point(line=line.name, x=x, seed=seed, options={**options, **line.options}, divides=line.divides)


def _over_load(request: Request, name: str) -> Figure:
    """Return a figure of mean completion times. Loads are the loads of published values, or the usual ones."""
    lines, measured, (quick_line, quick_load) = _OVER_LOAD[name][1], _MEASURED, _QUICK.get(name, ("", 2.0))
    if request.quick and quick_line:
        lines = [line for line in lines if line.name == quick_line]
    elif request.quick:
        measured, part = _QUICK_MEASURED, f", jobs {_QUICK_MEASURED.replace(':', ' to ')}"
        lines = [line._replace(name=line.name + part) for line in lines[:2]]
    points = []
    for line in lines:
        published = _published_x(name, line.name) or _published_x(name, f"{line.name}, high priority")
        usual = published or (_MULTI_LOADS if line.stream.gangs else _SINGLE_LOADS)
        for load in (quick_load,) if request.quick else usual:
            limits = {"measure": measured, "max_backlog_s": _BACKLOG_S, RATE: load}
            limited = line._replace(options={**limits, **line.options})
            points += [_point(request, limited, load, seed) for seed in _seeds(request)]
    means = {"": "completion_s_mean"}
    if name == "priorities":
        means = {f", {level} priority": f"metrics_completion_{level}_s" for level in ("high", "low")}
    y = "mean completion time, ratio" if name == "cluster-sizes" else "mean completion time, hours"
    return Figure(x="jobs per hour", y=y, points=tuple(points), marks=columns(means, HOUR_S))


def _published_x(figure: str, line: str) -> list[float]:
    values = (value for value in experiment.published(NAME) if (value.figure, value.line) == (figure, line))
    return sorted({value.x for value in values if isinstance(value.x, float)})


def _makespan(request: Request) -> Figure:
    counts, lines = ((100,), _MAKESPAN[:1]) if request.quick else (range(100, 800, 100), _MAKESPAN)
    runs = product(lines, counts, _seeds(request))
    points = tuple(_point(request, line, float(count), seed, count) for line, count, seed in runs)
    return Figure(x="jobs", y="hours", points=points, marks=columns({"": "makespan_s"}, HOUR_S))


def _makespan_ratio(request: Request) -> Figure:
    percents, count, name = range(10, 110, 10), _RATIO_JOBS, "gangs"
    if request.quick:
        percents, count, name = range(50, 60, 10), 100, "gangs, 100 jobs"
    points = []
    for percent, seed, policy in product(percents, _seeds(request), ("makespan-blind", "makespan")):
        line = Line(name, policy, STATIC, _v100_cluster(percent), divides=policy == "makespan")
        points.append(_point(request, line, percent / 100.0, seed, count))
    return Figure(x="share of V100", y="makespan, ratio", points=tuple(points), marks=columns({"": "makespan_s"}))


def _policy_runtimes(request: Request) -> Figure:
    """Measure the first allocation of jobs that all arrive at time 0. The jobs are drawn: traces have too few."""
    drawn = replace(request, traces=None)
    points = []
    for line in _TIMED_LINES:
        fixed_gpus = "108 GPUs" in line.name
        least, most = 1 if fixed_gpus else 32, 64 if request.quick else 4096  # gangs of 8 need 8 GPUs of a kind
        for count in map(int, _published_x("policy-runtimes", line.name)):
            if least <= count <= most:
                cluster = _CLUSTER if fixed_gpus else ",".join(f"{kind}={count // 4}" for kind in KINDS)
                options = {"cluster": cluster, "like": "", "until_s": 360.0, "metrics": _SOLVED}
                points.append(_point(drawn, line._replace(options=options), float(count), 0, count))
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
    """Solve the published example: one job every four steps, six for each of three entities of weight 1, 2 and 3."""
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
    "cluster-sizes-makespan": FigureMaker("Makespan without speeds over Gavel by share of V100", _makespan_ratio),
}

GAVEL: Final = experiment.Experiment(
    name=NAME,
    title="Gavel",
    source="Narayanan and others, OSDI 2020",
    figures=FIGURES,
    traces_help="the folder of Gavel's traces",
    without_traces=frozenset(FIGURES),
    takes_seeds=True,
)
