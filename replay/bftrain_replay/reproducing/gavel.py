"""Gavel's figures (Narayanan et al., OSDI 2020): completion times over load, makespans, shares and run times.

Jobs are drawn by the published rules and equal those in Gavel's traces to the last digit. Jobs and arrival gaps use two
generators, so streams of any rate have the same jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
from bftrain_replay.reproducing.experiment import PUBLISHED, RATE, Experiment, Figure, Line, Mark, Request, published

KINDS: Final = ("v100", "p100", "k80")
SPEEDS: Final = PUBLISHED / "gavel_throughputs.json.gz"
_FIX: Final = "the folder of Gavel's traces; without it the jobs are drawn"
JOBS: Final = 16_000  # jobs per stream, as published: later jobs still compete when the last measured one finishes

_GANGS: Final = ((0.7, 1), (0.8, 2), (0.95, 4), (1.0, 8))
_NOT_DISTRIBUTED: Final = ("A3C", "CycleGAN", "Recommendation")
_HIGH_SHARE, _HIGH_WEIGHT = 0.2, 5
_SHORT, _LONG, _SHORT_SHARE = (1.5, 3.0), (3.0, 4.0), 0.8  # decimal exponents of the duration in minutes


class Stream(NamedTuple):
    """A stream of jobs; ``name`` is the folder of its published traces.

    ``gangs``: some jobs use several GPUs. ``priorities``: some have a larger weight. ``static``: all arrive at time 0.
    ``entities``: each belongs to one of five entities.
    """

    name: str
    gangs: bool = False
    priorities: bool = False
    static: bool = False
    entities: bool = False

    def file_name(self, seed: int) -> str:
        """Return the name of the published trace."""
        return f"static/{self.name}_seed{seed}.trace.gz" if self.static else f"{self.name}/seed{seed}.trace.gz"


STREAMS: Final = {
    "": Stream("single"),
    "multi": Stream("multi", gangs=True),
    "priorities": Stream("multi_priority", gangs=True, priorities=True),
    "static": Stream("multi", gangs=True, static=True),
    "static-single": Stream("single", static=True),
    "entities": Stream("multi", gangs=True, static=True, entities=True),
}


def draw(stream: Stream, seed: int, count: int = JOBS) -> Iterator[str]:
    """Draw the first ``count`` lines of a trace, with one arrival an hour on average; unused fields are dashes."""
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
        steps = int(duration_s * rates[model][gang])
        yield "\t".join(map(str, (model, *"----", steps, gang, weight, "-1.000000", now_s)))
        if not stream.static:
            now_s += -math.log(1.0 - gaps.random()) * 3600.0


def task_file(stream: Stream, seed: int, request: Request, count: int = JOBS) -> str:
    """Write the tasks of a stream, read from the published traces or drawn; return the path."""
    static, traces = "-static" if stream.static else "", "-traces" if request.traces else ""
    entities = "-entities" if stream.entities else ""
    name = f"{stream.name}{static}{entities}-{count}-seed{seed}{traces}.csv"
    return request.tasks(name, lambda: _tasks(stream, seed, request, count))


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
        drawn.write_text("\n".join(draw(stream, seed, count)), encoding="utf-8")
        tasks = import_workload(drawn, options).tasks
    if not stream.entities:
        return tasks
    return [replace(task, user=f"entity-{number % 5}") for number, task in enumerate(tasks)]


_ENTITIES: Final = {f"entity {number}": Entity(weight=number + 1.0) for number in range(3)}


def _options(request: Request, line: Line, seed: int, count: int = JOBS) -> dict[str, Any]:
    """Return the options of a run of a line's first jobs. As in Gavel, their seed also seeds the policy."""
    tasks = task_file(STREAMS[line.stream], seed, request, count)
    options = {"policy": line.policy, "seed": seed, "tasks": tasks}
    if line.policy == "gandiva":
        options["policy"] = f"gandiva={seed}"
    if line.policy == "gandiva" or line.policy.endswith("-packed"):
        options["pairs"] = str(SPEEDS)
    return options


def _make(request: Request, figure: Figure) -> Figure:
    """Add the values or the points of a figure; most are over the loads of published values, or the usual loads."""
    if figure.name.startswith("hierarchical"):
        return _hierarchical(figure)
    timed = figure.machine_dependent

    def options(line: Line, x: float, seed: int) -> dict[str, Any]:
        if figure.name == "makespan":
            return _options(request, line, seed, int(x))
        if figure.name == "cluster-sizes-makespan":  # the published number of jobs is unknown; 500 are nearest
            v100 = round(100 * x)
            cluster = f"v100={v100},k80={100 - v100}" if x < 1.0 else "v100=100"
            return {"cluster": cluster, **_options(request, line, seed, 100 if request.quick else 500)}
        if timed:  # the first allocation of jobs that all arrive at time 0: drawn ones, since traces have too few
            gpus = 36 if "108 GPUs" in line.name else int(x) // 4
            cluster = ",".join(f"{kind}={gpus}" for kind in KINDS)
            return {"cluster": cluster, **_options(replace(request, traces=None), line, 0, int(x))}
        return {**_options(request, line, seed), RATE: x}

    def values(line: Line) -> Sequence[Any]:
        names = {f"{line.name}{label}" for label in figure.columns}
        known = {one.x for one in published("gavel") if one.figure == figure.name and one.line in names}
        numbers = sorted(x for x in known if isinstance(x, float))
        if timed:
            least, most = 1 if "108 GPUs" in line.name else 32, 64 if request.quick else 4096  # gangs have up to 8 GPUs
            return [x for x in numbers if least <= x <= most]
        return numbers or figure.values

    return figure.over_x(replace(request, seeds=()) if timed else request, options, values)


def _hierarchical(figure: Figure) -> Figure:
    """Solve the published example: one job every four steps, six for each of three entities of weight 1, 2 and 3."""
    rates = load_speed_table(SPEEDS).rates
    models = [model for model, by_gang in rates[KINDS[0]].items() if 1 in by_gang]
    draws = Random(0)  # noqa: S311 - Gavel's generator
    tasks, marks = [], []
    for number in range(18):
        model = draws.choice(models)
        rate = {kind: rates[kind][model].get(1, 0.0) for kind in KINDS}
        entity = f"entity {number // 6}"
        tasks.append(SharingTask(name=f"{number}", speeds=rate, weight=number % 2 + 1.0, entity=entity))
    for count in range(1, len(tasks) + 1):
        step, active = 4.0 * count - 3.0, tasks[:count]
        speeds = _effective_speeds(active)
        if figure.name == "hierarchical-total":
            blind = [replace(task, speeds=dict.fromkeys(KINDS, 1.0)) for task in active]
            marks.append(Mark("Gavel", step, sum(speeds)))
            marks.append(Mark("multi-level fairness", step, sum(_effective_speeds(blind))))
            continue
        for entity in _ENTITIES:
            own = sum(speed for task, speed in zip(active, speeds, strict=True) if task.entity == entity)
            marks.append(Mark(entity, step, own / sum(speeds)))
    return replace(figure, computed_marks=tuple(marks))


def _effective_speeds(tasks: Sequence[SharingTask]) -> list[float]:
    """Return the speed of each task on three GPUs of each kind, relative to its mean over the kinds."""
    nodes = dict.fromkeys(KINDS, 3)
    shares = share(SharingProblem(nodes=nodes, tasks=tuple(tasks), entities=_ENTITIES, policy="hierarchical"))
    return [shares.speeds[task.name] / fmean(task.speeds.values()) for task in tasks]


GAVEL: Final = Experiment.read("gavel", _make)
