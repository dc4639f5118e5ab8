"""``bftrain generate tasks``: generated tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from bftrain.cli.command_help import DocumentedCommand, heading, rare
from bftrain.cli.output import Output, prints_results
from bftrain.cli.settings import DurationType, SizeRange
from bftrain.text_formats import counted
from bftrain_datasets.commands import tasks_profiles
from bftrain_datasets.commands.logfiles import FILE, kinds_of, task_output

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bftrain.values.task import TaskSpec
    from bftrain_datasets.workloads.task_generators import TaskArrivals

CLUSTER: Final = "cluster"
_KINDS: Final = ("mix", "trials", CLUSTER)
_RARE: Final = (
    *("start_cost_s", "high_weight", "noise_scale", "gangs", "long_share", "high_share", "deadlines", "burst_share"),
    *("burst_size", "by_hosts", "node_kind"),
)
_SIZES_AND_WORK: Final = ("nodes", "min_nodes", "max_nodes", "work_samples", "endless")
_SHAPE: Final = ("long_share", "high_share", "high_weight", "burst_share", "burst_size")  # fields of ClusterShape
# Options that apply only to some kinds of tasks
_KINDS_OF_OPTION: Final[Mapping[str, tuple[str, ...]]] = {
    "model": ("trials",),
    **dict.fromkeys((*_SIZES_AND_WORK, "files", "node_kind", "noise_scale"), ("mix", "trials")),
    **dict.fromkeys((*_SHAPE, "gangs", "deadlines", "speeds", "kinds"), (CLUSTER,)),
}
# Advice for such an option, by kind of tasks
_ADVICE: Final = {("model", "mix"): ": a mix uses all models", ("node_kind", CLUSTER): ": for a cluster use --kinds"}
_READING: Final = ("node_kind", "noise_scale", "by_hosts")  # options for profile files
_SHARE: Final = click.FloatRange(0, 1)
_GANGS: Final = "1:0.7,2:0.1,4:0.15,8:0.05"


@click.command(
    "tasks",
    cls=DocumentedCommand,
    example="bftrain generate tasks -o tasks.toml --kind mix --count 50\n"
    "bftrain generate tasks -o tasks.toml --kind trials --profile vgg16",
    epilog="The jobs of a cluster have Gavel's distributions; --set changes them. Each property "
    "has a random stream of its own: changing one option leaves the rest unchanged. See docs/how-to/workloads.md.",
)
@rare("min_nodes", hint="--nodes MIN:")
@rare("max_nodes", hint="--nodes :MAX")
@rare(*_RARE)
@heading("Tasks")
@task_output
@click.option(
    "--kind",
    type=click.Choice(_KINDS),
    default="mix",
    show_default=True,
    help="A mix of seven models, as in architecture search; identical trials; or a shared cluster's jobs.",
)
@click.option("--count", type=click.IntRange(min=1), default=100, show_default=True, help="Number of tasks.")
@click.option("--profile", "model", default=None, help="The model of the trials [shufflenet, or the only one].")
@click.option(
    "--profiles",
    "files",
    type=FILE,
    multiple=True,
    help="Use the models of this file, as bftrain generate profiles reads it [the seven bundled]. May be repeated.",
)
@click.option("--work", "work_samples", type=float, help="Samples per task [1.3e8].")
@click.option("--endless", is_flag=True, help="Endless tasks: the workload never runs out.")
@click.option("--nodes", type=SizeRange(), help="Fewest and most nodes of a task [as measured]; one may be omitted.")
@click.option("--min-nodes", type=int)
@click.option("--max-nodes", type=int)
@click.option("--start-cost", "start_cost_s", type=DurationType())
@click.option("--arrivals-per-hour", type=float, default=None, help="Random arrivals [all arrive together].")
@click.option(
    "--start",
    "start_s",
    type=DurationType(min=0),
    default=0.0,
    show_default=True,
    help="First submission, in seconds from the start of the log.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Chooses one file of many.")
@heading("Jobs of a cluster (--kind cluster)")
@click.option("--gangs", default=_GANGS, show_default=True, metavar="N:SHARE,..", help="Gang sizes of jobs.")
@click.option("--long-share", type=_SHARE, default=0.2, show_default=True, help="Share of jobs of 17 h to a week.")
@click.option("--high-share", type=_SHARE, default=0.0, show_default=True, help="Jobs with the high weight.")
@click.option("--high-weight", type=click.FloatRange(min=0), default=5.0, show_default=True, help="The high weight.")
@click.option(
    "--deadlines", default=None, metavar="X,..", help="Multiples of the ideal duration, equally likely [none]."
)
@click.option("--burst-share", type=_SHARE, default=0.0, show_default=True, help="Share of arrivals that are bursts.")
@click.option("--burst-size", type=click.IntRange(min=1), default=10, show_default=True, help="Jobs per burst.")
@click.option("--users", type=click.IntRange(min=0), default=0, show_default=True, help="Number of users.")
@click.option("--elastic", is_flag=True, help="Any measured size of a model, not only the gang.")
@heading("Speeds")
@click.option("--speeds", type=FILE, default=None, help="Gavel's throughput table [the seven bundled models].")
@click.option("--kinds", default=None, metavar="KIND,..", help="Node kinds in the table to use [all].")
@tasks_profiles.reading_options
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
    **given: Any,  # noqa: ANN401 - options of any kind
) -> None:
    """Generate tasks with measured speeds.

    The bundled speeds are from arXiv:2106.12091, on 1 to 64 nodes. The same options lead to the same file.
    """
    from bftrain.taskfiles.files import MADE_BY, check_task_name, save_tasks
    from bftrain_datasets.workloads.task_generators import TaskArrivals

    check_task_name(path)
    # Reject options that have no effect for this kind
    context = click.get_current_context()
    for parameter in context.command.params:
        name = parameter.name or ""
        kinds = _KINDS_OF_OPTION.get(name, _KINDS)
        if kind not in kinds and context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            option = f"--set {parameter.opts[0].lstrip('-')}" if name in _RARE else parameter.opts[0]
            advice = _ADVICE.get((name, kind), "")
            raise click.UsageError(f"{option} requires --kind {' or '.join(kinds)}{advice}")
    if given["nodes"] is not None:
        given["min_nodes"], given["max_nodes"] = given["nodes"]
    arrivals = TaskArrivals(start_s=start_s, per_hour=arrivals_per_hour)
    if kind == CLUSTER:
        made = _cluster(count, seed, arrivals, given)
    else:
        made = _mix_or_trials(kind, count, seed, arrivals, given)
    save_tasks(made, path, note=f"{kind} of {count} tasks, seed {seed}, {MADE_BY} generate tasks")
    last_s = max(task.submit_s for task in made)
    figures = {"file": str(path), "tasks": count, "kind": kind, "last_submit_s": last_s}
    arriving = f", the last at {last_s:,.0f} s" if arrivals_per_hour else ""
    out.result(figures, lambda: f"{path}: {counted(count, 'task')}{arriving}")


def _mix_or_trials(
    kind: str, count: int, seed: int, arrivals: TaskArrivals, given: Mapping[str, Any]
) -> tuple[TaskSpec, ...]:
    from bftrain_datasets.workloads import catalogue
    from bftrain_datasets.workloads.task_generators import TaskShape, generate_mix, generate_trials

    if given["endless"] and given["work_samples"] is not None:
        raise click.UsageError("--endless and --work contradict each other")
    work = {"work_samples": given["work_samples"]} if given["work_samples"] is not None else {}
    work = {"work_samples": None} if given["endless"] else work
    shape = TaskShape(**work, **{name: given[name] for name in ("min_nodes", "max_nodes", "start_cost_s")})
    options = catalogue.CatalogueOptions(**{name: given[name] for name in _READING})
    known = catalogue.catalogue(given["files"], options)
    if kind == "mix":
        return generate_mix(count, seed, models=known.values(), arrivals=arrivals, shape=shape)
    name = given["model"] or (next(iter(known)) if len(known) == 1 else "shufflenet")
    return generate_trials(count, catalogue.chosen(known, name), seed=seed, arrivals=arrivals, shape=shape)


def _cluster(count: int, seed: int, arrivals: TaskArrivals, given: Mapping[str, Any]) -> tuple[TaskSpec, ...]:
    from bftrain_datasets.workloads import generator
    from bftrain_datasets.workloads.speed_table import load_speed_table

    text = given["gangs"]
    try:
        parts = [part.split(":") for part in text.split(",")]
        found = {int(gang): float(share) for gang, share in parts}
    except ValueError as error:
        raise click.UsageError(f"--set gangs: {text!r} is not a list of gangs; write {_GANGS}") from error
    if len(found) < len(parts):
        raise click.UsageError(f"--set gangs: {text!r} repeats a gang")
    settings = {name: given[name] for name in (*_SHAPE, "users", "elastic", "start_cost_s") if given[name] is not None}
    shape = generator.ClusterShape(gangs=found, deadlines=_multiples(given["deadlines"]), **settings)
    models, kinds = None, kinds_of(given["kinds"])
    if given["speeds"] is not None:
        table, by_hosts = load_speed_table(given["speeds"]), given["by_hosts"]
        models = generator.models_of(table, table.all_kinds(kinds, by_hosts=by_hosts), by_hosts=by_hosts)
    elif kinds or given["by_hosts"]:
        option = "--kinds" if kinds else "--set by-hosts"
        raise click.UsageError(f"{option} requires --speeds: the bundled models were measured on one kind")
    return generator.generate_cluster(count, seed, models=models, arrivals=arrivals, shape=shape)


def _multiples(text: str | None) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(",")) if text is not None else ()
    except ValueError as error:
        raise click.UsageError(f"--set deadlines: {text!r} is not a list of multiples; write 1.2,2,10") from error
