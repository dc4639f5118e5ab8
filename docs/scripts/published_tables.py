"""The tables of the published study, reproduced: python docs/scripts/published_tables.py LOG.npz TASKS.toml.

LOG is the two-week log of Summit with its nodes in the published order, TASKS the thousand trials of the published
hyper-parameter search, their submissions counted from the first of them. docs/semantics.md says what the figures are.
"""  # noqa: INP001 - a script, which belongs to no package

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bftrain import load_log, load_tasks
from bftrain.cli.output import show, table
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study import study

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bftrain import EventLog, TaskSpec
    from bftrain_replay.results.result import ReplayResult

NODES: Final = "0:1024"
SKIPPED: Final = 1000
HORIZON_S: Final = 160 * 3600.0
HORIZONS: Final = ((10, 0.859), (30, 0.872), (60, 0.877), (120, 0.880), (300, 0.875), (600, 0.877))
CAPS: Final = ((2, 0.546, 0.586), (5, 0.777, 0.814), (10, 0.880, 0.907), (20, 0.922, 0.949), (35, 0.940, 0.963))
FINISHES: Final = ((10, 203.52), (35, 179.96))
EQUAL_SHARE: Final = 0.794

Row = tuple[str, ...]


def of_the_window(log: EventLog, tasks: Sequence[TaskSpec], *, baseline: str = "", **settings: object) -> Row:
    """Replay 160 h, or what there is of them, and give U, the ceiling and, if asked for, the U of the baseline."""
    end = datetime.fromtimestamp(min(float(log.times[SKIPPED]) + HORIZON_S, log.end_s), UTC).isoformat()
    given = {"semantics": "published", "nodes": NODES, "skip_events": SKIPPED, "window": f"..{end}"}
    how = ReplaySettings(**given | settings)  # type: ignore[arg-type]  # the fields' own types
    done = study(log, tasks, how, baseline=baseline)
    results = (done.result, done.ceiling, done.baseline)
    return tuple(f"{result.efficiency:.3f}" for result in results if result and result.efficiency is not None)


def horizons(log: EventLog, tasks: Sequence[TaskSpec]) -> Iterator[Row]:
    """U by horizon, with 10 tasks competing."""
    for horizon_s, published in HORIZONS:
        efficiency, _ = of_the_window(log, tasks, max_tasks=10, horizon_s=float(horizon_s))
        yield f"{horizon_s} s", efficiency, f"{published:.3f}"


def caps(log: EventLog, tasks: Sequence[TaskSpec]) -> Iterator[Row]:
    """U and ceiling by the number of tasks that compete, with a horizon of 120 s."""
    for max_tasks, published, ceiling in CAPS:
        found = of_the_window(log, tasks, max_tasks=max_tasks)
        yield f"{max_tasks}", found[0], f"{published:.3f}", found[1], f"{ceiling:.3f}"
    shared = of_the_window(log, tasks, max_tasks=10, baseline="equal-share-published")[2]
    yield "10, equal share", shared, f"{EQUAL_SHARE:.3f}", "", ""


def finishes(log: EventLog, tasks: Sequence[TaskSpec]) -> Iterator[Row]:
    """When all tasks are done, and what is lost, as a share of the work."""
    work = sum(spec.work_samples or 0.0 for spec in tasks)
    for max_tasks, published_h in FINISHES:
        how = ReplaySettings(
            semantics="published", events="chosen", nodes=NODES, skip_events=SKIPPED, max_tasks=max_tasks
        )
        done = study(log, tasks, how).result
        lost = [f"{100 * done.lost_samples[loss] / work:.2f} %" for loss in done.lost_samples]
        yield f"{max_tasks}", _hours(done), f"{published_h:.2f} h", f"{len(done.decisions):,}", *lost[:2]


def _hours(result: ReplayResult) -> str:
    return "never" if result.makespan_s is None else f"{result.makespan_s / 3600:.2f} h"


@click.command()
@click.argument("log_file", metavar="LOG", type=click.Path(path_type=Path, exists=True))
@click.argument("task_file", metavar="TASKS", type=click.Path(path_type=Path, exists=True))
def main(log_file: Path, task_file: Path) -> None:
    """Replay by the published rules, and print the figures beside those to be reached."""
    log, tasks = load_log(log_file), load_tasks(task_file)
    show(table("U by horizon", ("horizon", "U", "wanted"), list(horizons(log, tasks))))
    show(table("U by tasks that compete", ("tasks", "U", "wanted", "ceiling", "wanted"), list(caps(log, tasks))))
    headings = ("tasks", "all done after", "wanted", "decisions", "preemption", "rescaling")
    show(table("All tasks done", headings, list(finishes(log, tasks))))


if __name__ == "__main__":
    main()
