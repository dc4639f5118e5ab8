"""What every policy costs in harvest on the sample log: python docs/scripts/policy_costs.py [NAME...].

Objectives and allocators come first, then policies of rounds and sharing policies, in rounds of 300 s with a node a
task. The log and the tasks are those of ``bftrain demo``; each task belongs to a user named after its model.
docs/reference/policies.md shows what comes of it. The tasks say no batches, so for ``goodput`` samples are progress.
"""  # noqa: INP001 - a script, which belongs to no package

from __future__ import annotations

import sys
from math import inf
from statistics import mean, median
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from bftrain import rounds
from bftrain.cli.output import show, table
from bftrain.registry import BUILT_IN
from bftrain_datasets.log.log_generator import sample_log
from bftrain_datasets.workloads.task_generators import sample_tasks
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study.study import StudyPasses, check_parts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bftrain.values.task import TaskSpec
    from bftrain_replay.run.result import ReplayResult

OBJECTIVES: Final = (
    *("throughput", "cost", "weighted", "speedup", "deadline", "proportional"),
    *("finish-time", "max-min", "hierarchical", "max-min-plain", "water-filling", "max-min-now"),
    *("completion", "goodput", "makespan"),
)
ALLOCATORS: Final = (
    *("greedy", "equal-share", "proportional-share", "marginal-gain"),
    *("srtf", "isolated", "las", "fifo"),
)
# Left out: packed policies, which are the plain ones without pairs; those with deadlines, as nothing is due; and
# strategy-proof shares, which take too long with all of these tasks
_PLAIN: Final = ("isolated", "max-min", "max-min-blind", "water-filling", "hierarchical", "finish-time", "makespan")
IN_ROUNDS: Final = (*BUILT_IN["rounds"], *_PLAIN, "throughput", "cost", "proportional", "allox")
ROUNDS_HEADER: Final = ("policy", "harvest", "node-time used", "finished", "completion", "preemptions")
HEADER: Final = ("policy", "harvest", "finished", "never started", "completion", "median rho", "rho over 1", "rescales")


def sample() -> list[TaskSpec]:
    """Give the tasks, each of a user named after its model."""
    return [replace(task, user=task.name.split("-")[0]) for task in sample_tasks()]


def replayed(name: str) -> ReplayResult:
    """Replay the sample with one objective, or with one allocator."""
    choice = {"solver": name} if name in ALLOCATORS else {"objective": name}
    tasks = sample()
    settings = replace(ReplaySettings(max_tasks=len(tasks)), **choice)
    result = StudyPasses(sample_log(), tasks, check_parts(settings)).replay()
    if result is None:
        raise RuntimeError(name)
    return result


def paces(result: ReplayResult) -> list[float]:
    """Give rho of every task; of one that has not finished what it would be if it went on as so far."""
    found = []
    for task in result.tasks:
        ended_s = result.simulated_s if task.finish_s is None else task.finish_s
        part = task.done_samples / (task.work_samples or inf)
        found.append((ended_s - task.submit_s) / part / (task.alone_s or inf) if part else inf)
    return found


def row(name: str, result: ReplayResult, most: float) -> tuple[str, ...]:
    """Give the figures of one policy; ``most`` is the harvest of throughput in samples."""
    figures, rho = result.summary(), paces(result)
    return (
        f"`{name}`",
        f"{result.harvested_samples / most:.1%}",
        f"{result.tasks_finished}",
        f"{figures.tasks_never_started}",
        f"{(figures.completion_at_least_s or 0.0) / 3600.0:.1f} h",
        f"{median(rho):.2f}",
        f"{sum(each > 1.0 for each in rho)}",
        f"{figures.starts + figures.rescales:,}",
    )


def rows(names: tuple[str, ...] = (*OBJECTIVES, *ALLOCATORS)) -> Iterator[tuple[str, ...]]:
    """Give the rows of the page, one a policy."""
    most = replayed("throughput").harvested_samples
    for name in names:
        yield row(name, replayed(name), most)


def round_row(name: str, most: float) -> tuple[str, ...]:
    """Give the figures of one policy in rounds; ``most`` is the harvest of throughput in samples, of elastic tasks."""
    gang = "" if name == "optimus" else "min"
    result = rounds(sample_log(), sample(), policy=name, round_s=300.0, gang=gang)
    figures, columns = result.result.summary, result.tasks_table
    ends = zip(columns["submit_s"], columns["finish_s"], strict=True)
    waits = [(figures.simulated_s if finish_s is None else finish_s) - submit_s for submit_s, finish_s in ends]
    return (
        f"`{name}`",
        f"{figures.harvested / most:.1%}",
        f"{figures.coverage:.1%}",
        f"{figures.tasks_finished}",
        f"{mean(waits) / 3600.0:.1f} h",
        f"{figures.preemptions:,}",
    )


if __name__ == "__main__":
    wanted = tuple(sys.argv[1:]) or (*OBJECTIVES, *ALLOCATORS, *IN_ROUNDS)
    elastic = tuple(name for name in wanted if name in {*OBJECTIVES, *ALLOCATORS})
    if elastic:
        show(table("What each policy costs on the sample log", HEADER, list(rows(elastic))))
    most = replayed("throughput").harvested_samples
    of_rounds = [round_row(name, most) for name in wanted if name in IN_ROUNDS]
    if of_rounds:
        show(table("What each policy of rounds costs there", ROUNDS_HEADER, of_rounds))
