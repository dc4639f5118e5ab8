"""``bftrain tasks``: task files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from bftrain.cli.output import Output, prints_results

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bftrain_datasets.published.tasks import PublishedTasks


@click.group()
def command() -> None:
    """Make task files: generated ones, or those of the published replayer."""


_output = click.option(
    "-o",
    "--output",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="The file to write; its name ends in .toml or .csv.",
)


@command.command("generate")
@_output
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


_FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


@command.command("import")
@click.argument("jbnd", type=_FILE)
@click.argument("jnps", type=_FILE)
@_output
@click.option("--log", type=_FILE, help="The log that the tasks are for: submit_s counts from its start.")
@click.option("--exact", is_flag=True, help="Keep speeds as they are, even where a bundled profile has them rounded.")
@prints_results
def import_(jbnd: Path, jnps: Path, path: Path, log: Path | None, exact: bool, out: Output) -> None:  # noqa: FBT001 - click's way
    """Read tasks of the published replayer: JBND (Tcup, Tcdw, Jmin, Jmax, Pmax) and JNPS (Ns, Ps, Os), a pair.

    Without --log the first task is handed in at 0.
    """
    from bftrain_datasets.files import load_log
    from bftrain_datasets.published.tasks import import_tasks
    from bftrain_datasets.taskfiles import check_task_name, save_tasks

    check_task_name(path)
    begin_s = load_log(log).start_s if log else None
    found = import_tasks(jbnd, jnps, begin_s=begin_s, exact=exact)
    words = list(_words(found))
    save_tasks(found.tasks, path, note="\n".join(words))
    moments = [task.submit_s for task in found.tasks]
    figures = {
        "file": str(path),
        "tasks": len(found.tasks),
        "objective": found.objective,
        "begin_s": found.begin_s,
        "first_submit_s": min(moments),
        "last_submit_s": max(moments),
        "profiles": found.profiles,
        "rounded": found.rounded,
        "sources": found.sources,
    }
    if found.objective is None:
        out.warn("Os is neither samples/s nor speedup: the task file has no place for it, see docs/objectives.md")
    if found.unused:
        out.warn(f"not used: {', '.join(found.unused)}")
    if min(moments) < 0:
        out.warn(f"{sum(moment < 0 for moment in moments)} tasks are handed in before the log begins")
    out.result(figures, lambda: f"{path}: {len(found.tasks)} tasks\n" + "\n".join(words))


def _words(found: PublishedTasks) -> Iterator[str]:
    """Say where the tasks come from, and what the file cannot hold."""
    from bftrain_replay.words import moment

    for source in found.sources:
        yield f"from {source.name}, sha256 {source.sha256}"
    yield f"submit_s counts from {moment(found.begin_s)}"
    if found.objective is not None:
        yield f"Os holds the objective {found.objective}: replay with --objective {found.objective}"
    if found.rounded:
        changed = sum(found.profiles.values())
        yield f"speeds of {changed} tasks are those of profiles, changed by {100 * found.rounded:.3f} % at most"
