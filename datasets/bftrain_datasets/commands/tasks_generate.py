"""``bftrain tasks generate``: tasks to try things on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from bftrain.cli.command_help import DocumentedCommand, heading
from bftrain.cli.output import Output, prints_results
from bftrain_datasets.commands.taskfiles import FILE, kinds_of, task_output

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bftrain.values.task import TaskSpec
    from bftrain_datasets.workloads.generator import MeasuredModel
    from bftrain_datasets.workloads.speed_table import SpeedTable
    from bftrain_datasets.workloads.task_generators import TaskArrivals

CLUSTER: Final = "cluster"
_KINDS: Final = ("mix", "trials", CLUSTER)
# options that belong to one kind of tasks, or to two
_ONLY: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("trials",),
    "work_samples": ("mix", "trials"),
    "min_nodes": ("mix", "trials"),
    "max_nodes": ("mix", "trials"),
    "gangs": (CLUSTER,),
    "long_share": (CLUSTER,),
    "high_share": (CLUSTER,),
    "high_weight": (CLUSTER,),
    "deadlines": (CLUSTER,),
    "burst_share": (CLUSTER,),
    "burst_size": (CLUSTER,),
    "users": (CLUSTER,),
    "elastic": (CLUSTER,),
    "speeds": (CLUSTER,),
    "node_kind": (CLUSTER,),
    "kinds": (CLUSTER,),
}
_SHARE: Final = click.FloatRange(0, 1)
_GANGS: Final = "1:0.7,2:0.1,4:0.15,8:0.05"


@click.command(
    cls=DocumentedCommand,
    example="bftrain tasks generate -o tasks.toml --kind trials --count 50",
    epilog="A cluster's jobs are drawn as Gavel draws them: the options from --gangs on are for these. Each property "
    "has a random stream of its own: changing one option leaves the rest as it was. See docs/workloads.md.",
)
@heading("Tasks")
@task_output
@click.option(
    "--kind",
    type=click.Choice(_KINDS),
    default="mix",
    show_default=True,
    help="A mix of seven models, as in architecture search; identical trials of one; or a shared cluster's jobs.",
)
@click.option("--count", type=click.IntRange(min=1), default=100, show_default=True, help="How many tasks.")
@click.option("--profile", "model", default=None, help="The model of the trials [shufflenet].")
@click.option("--work", "work_samples", type=float, default=1.3e8, show_default=True, help="Samples a task.")
@click.option("--min-nodes", type=int, default=1, show_default=True, help="Fewest nodes of a task.")
@click.option("--max-nodes", type=int, default=64, show_default=True, help="Most nodes of a task.")
@click.option("--start-cost", "start_cost_s", type=float, default=18.0, show_default=True, help="Seconds to start.")
@click.option("--arrivals-per-hour", type=float, default=None, help="Random arrivals; else all come at once.")
@click.option(
    "--start",
    "start_s",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    help="Seconds into the log to begin at.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Chooses one file of many.")
@heading("Jobs of a cluster (--kind cluster)")
@click.option("--gangs", default=_GANGS, show_default=True, metavar="N:SHARE,..", help="Nodes that jobs want at once.")
@click.option("--long-share", type=_SHARE, default=0.2, show_default=True, help="Jobs of 17 h to a week; others less.")
@click.option("--high-share", type=_SHARE, default=0.0, show_default=True, help="Jobs with the high weight.")
@click.option("--high-weight", type=click.FloatRange(min=0), default=5.0, show_default=True, help="The high weight.")
@click.option(
    "--deadlines", default=None, metavar="X,..", help="Multiples of the ideal duration, equally likely [none]."
)
@click.option("--burst-share", type=_SHARE, default=0.0, show_default=True, help="Arrivals that bring a whole burst.")
@click.option("--burst-size", type=click.IntRange(min=1), default=10, show_default=True, help="Jobs of a burst.")
@click.option("--users", type=click.IntRange(min=0), default=0, show_default=True, help="How many people hand in jobs.")
@click.option("--elastic", is_flag=True, help="Any size that a model was measured on, not only the gang.")
@heading("Speeds")
@click.option("--speeds", type=FILE, default=None, help="Gavel's throughput table [the seven bundled models].")
@click.option("--kinds", default=None, metavar="KIND,..", help="Kinds of nodes in the table to give speeds on [all].")
@click.option("--node-kind", default=None, help="Speeds of this kind only, as if there were no other.")
@prints_results
def command(
    *,
    path: Path,
    kind: str,
    count: int,
    start_s: float,
    arrivals_per_hour: float | None,
    seed: int,
    out: Output,
    **given: Any,  # noqa: ANN401 - options of one kind or another
) -> None:
    """Generate tasks with measured speeds.

    Without --speeds they are those of arXiv:2106.12091, on 1 to 64 nodes. The same options give the same file.
    """
    from bftrain.taskfiles.files import MADE_BY, check_task_name, save_tasks
    from bftrain_datasets.workloads.task_generators import TaskArrivals

    check_task_name(path)
    _check(click.get_current_context(), kind)
    arrivals = TaskArrivals(start_s=start_s, per_hour=arrivals_per_hour)
    make = _cluster if kind == CLUSTER else _mix_or_trials
    made = make(kind, count, seed, arrivals, given)
    save_tasks(made, path, note=f"{kind} of {count} tasks, seed {seed}, {MADE_BY} tasks generate")
    last_s = max(task.submit_s for task in made)
    figures = {"file": str(path), "tasks": count, "kind": kind, "last_submit_s": last_s}
    arriving = f", the last at {last_s:,.0f} s" if arrivals_per_hour else ""
    out.result(figures, lambda: f"{path}: {count:,} tasks{arriving}")


def _check(context: click.Context, kind: str) -> None:
    """Refuse an option that was given and means nothing for this kind."""
    for parameter in context.command.params:
        kinds = _ONLY.get(parameter.name or "", _KINDS)
        if kind not in kinds and context.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT:
            reason = ": a mix takes all models" if parameter.name == "model" and kind == "mix" else ""
            raise click.UsageError(f"{parameter.opts[0]} goes with --kind {' or '.join(kinds)}{reason}")


def _mix_or_trials(
    kind: str, count: int, seed: int, arrivals: TaskArrivals, given: Mapping[str, Any]
) -> tuple[TaskSpec, ...]:
    from bftrain_datasets.workloads.task_generators import TaskShape, generate_mix, generate_trials

    names = ("work_samples", "min_nodes", "max_nodes", "start_cost_s")
    shape = TaskShape(**{name: given[name] for name in names})
    if kind == "mix":
        return generate_mix(count, seed, arrivals=arrivals, shape=shape)
    return generate_trials(count, given["model"] or "shufflenet", seed=seed, arrivals=arrivals, shape=shape)


def _cluster(
    kind: str, count: int, seed: int, arrivals: TaskArrivals, given: Mapping[str, Any]
) -> tuple[TaskSpec, ...]:
    del kind
    from bftrain_datasets.workloads import generator
    from bftrain_datasets.workloads.speed_table import load_speed_table

    names = (
        *("long_share", "high_share", "high_weight", "burst_share", "burst_size", "users", "elastic", "start_cost_s"),
    )
    shape = generator.ClusterShape(
        gangs=_shares(given["gangs"]),
        deadlines=_multiples(given["deadlines"]),
        **{name: given[name] for name in names},
    )
    models, kinds = None, kinds_of(given["kinds"])
    if given["speeds"] is not None:
        models = _models(load_speed_table(given["speeds"]), given["node_kind"], kinds)
    elif given["node_kind"] is not None or kinds:
        option = "--kinds" if kinds else "--node-kind"
        raise click.UsageError(f"{option} goes with --speeds: the bundled models were measured on one kind")
    return generator.generate_cluster(count, seed, models=models, arrivals=arrivals, shape=shape)


def _models(table: SpeedTable, one: str | None, kinds: tuple[str, ...]) -> Sequence[MeasuredModel]:
    from bftrain_datasets.workloads import generator

    if one is not None and kinds:
        raise click.UsageError("--kinds and --node-kind contradict each other")
    chosen = table.all_kinds(kinds) if one is None else (table.kind(one),)
    return generator.models_on(table, chosen) if len(chosen) > 1 else generator.models_of(table, chosen[0])


def _shares(text: str) -> dict[int, float]:
    """Read ``1:0.7,2:0.3``."""
    try:
        parts = [part.split(":") for part in text.split(",")]
        found = {int(gang): float(share) for gang, share in parts}
    except ValueError as error:
        raise click.UsageError(f"--gangs: {text!r} is no list of gangs; write {_GANGS}") from error
    if len(found) < len(parts):
        raise click.UsageError(f"--gangs: {text!r} has a gang twice")
    return found


def _multiples(text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",")) if text is not None else ()
    except ValueError as error:
        raise click.UsageError(f"--deadlines: {text!r} is no list of multiples; write 1.2,2,10") from error
