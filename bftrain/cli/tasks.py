"""``bftrain tasks``: task files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from bftrain.cli.output import Output, prints_results


@click.group()
def command() -> None:
    """Generate task files."""


@command.command("generate")
@click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The file to write; its name ends in .toml or .csv.",
)
@click.option(
    "--kind",
    type=click.Choice(["mix", "trials"]),
    default="mix",
    show_default=True,
    help="A mix of seven models, as in architecture search, or identical trials of one.",
)
@click.option("--count", type=click.IntRange(min=1), default=100, show_default=True, help="How many tasks.")
@click.option("--profile", "model", default=None, help="The model of the trials [shufflenet].")
@click.option("--work", "work_samples", type=float, default=1.3e8, show_default=True, help="Samples a task.")
@click.option("--min-nodes", type=int, default=1, show_default=True, help="Fewest nodes of a task.")
@click.option("--max-nodes", type=int, default=64, show_default=True, help="Most nodes of a task.")
@click.option("--start-cost", "start_cost_s", type=float, default=18.0, show_default=True, help="Seconds to start.")
@click.option("--arrivals-per-hour", type=float, default=None, help="Random arrivals; else all come at once.")
@click.option(
    "--start", "start_s", type=float, default=0.0, show_default=True, help="Seconds into the log to begin at."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Chooses one file of many.")
@prints_results
def generate(  # noqa: PLR0913, PLR0917 - one argument for each option
    path: Path,
    kind: Literal["mix", "trials"],
    count: int,
    model: str | None,
    work_samples: float,
    min_nodes: int,
    max_nodes: int,
    start_cost_s: float,
    arrivals_per_hour: float | None,
    start_s: float,
    seed: int,
    out: Output,
) -> None:
    """Generate tasks with speeds measured on Summit.

    The speeds are those of arXiv:2106.12091, on 1 to 64 nodes. The same options give the same file.
    """
    from bftrain_datasets.task_generators import Arrivals, TaskShape, generate_mix, generate_trials
    from bftrain_datasets.taskfiles import check_task_name, save_tasks

    check_task_name(path)
    if model is not None and kind == "mix":
        raise click.UsageError("--profile goes with --kind trials: a mix takes all models")
    shape = TaskShape(work_samples=work_samples, min_nodes=min_nodes, max_nodes=max_nodes, start_cost_s=start_cost_s)
    arrivals = Arrivals(start_s=start_s, per_hour=arrivals_per_hour)
    if kind == "mix":
        made = generate_mix(count, seed, arrivals=arrivals, shape=shape)
    else:
        made = generate_trials(count, model or "shufflenet", seed=seed, arrivals=arrivals, shape=shape)
    save_tasks(made, path, note=f"{kind} of {count} tasks, seed {seed}, made by bftrain tasks generate")
    last_s = max(task.submit_s for task in made)
    figures = {"file": str(path), "tasks": count, "kind": kind, "last_submit_s": last_s}
    arriving = f", the last at {last_s:,.0f} s" if arrivals_per_hour else ""
    out.result(figures, lambda: f"{path}: {count} tasks{arriving}")
