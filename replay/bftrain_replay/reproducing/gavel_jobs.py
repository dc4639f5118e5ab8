"""Gavel's job streams, drawn by the published rules: the same jobs to the last digit as in Gavel's traces.

Jobs and gaps between arrivals come from two generators, so a stream at another rate has the same jobs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from msgspec.structs import replace

from bftrain.errors import BadInput
from bftrain.text_formats import counted
from bftrain.values.task import TaskSpec
from bftrain_datasets.workloads.job import WorkloadOptions
from bftrain_datasets.workloads.speed_table import load_speed_table
from bftrain_datasets.workloads.workload import import_workload
from bftrain_replay.reproducing.experiment import Request

KINDS: Final = ("v100", "p100", "k80")
SPEEDS: Final = Path(str(files(__package__).joinpath("published", "gavel_throughputs.json.gz")))
JOBS: Final = 16_000  # of a stream, as published: later jobs still compete when the last measured one finishes

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
        """The line; fields that a simulation does not need are dashes."""
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
    return request.tasks(name, lambda: _tasks(stream, seed, request.traces, count))


def _tasks(stream: Stream, seed: int, traces: Path | None, count: int) -> Sequence[TaskSpec]:
    options = WorkloadOptions(format="gavel", speeds=SPEEDS, kinds=KINDS, first=count)
    if traces is not None:
        trace = traces / stream.file_name(seed)
        if not trace.is_file():
            fix = f"--traces names the folder that contains {stream.file_name(seed)}; without it the jobs are drawn"
            raise BadInput("is missing", where=str(trace), fix=fix)
        tasks = import_workload(trace, options).tasks
        if len(tasks) < count:
            fix = "leave out --traces: without it the jobs are drawn"
            raise BadInput(f"contains {counted(len(tasks), 'job')}; {count:,} are needed", where=str(trace), fix=fix)
        return tasks
    with TemporaryDirectory() as folder:
        drawn = Path(folder) / "jobs.trace"
        drawn.write_text("".join(f"{job.line}\n" for job in draw(stream, seed, count)), encoding="utf-8")
        tasks = import_workload(drawn, options).tasks
    if not stream.entities:
        return tasks
    return [replace(task, user=f"entity-{number % 5}") for number, task in enumerate(tasks)]
