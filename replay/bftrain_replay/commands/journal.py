"""``bftrain journal``: show a journal, decide it again, account for it, or export it for replays."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bftrain.cli.command_help import CommandGroup, DocumentedCommand
from bftrain.cli.output import Output, prints_results, table
from bftrain.cli.settings import TimeType, overwrite_option
from bftrain.errors import BadInput
from bftrain.text_formats import counted
from bftrain_datasets.commands.logfiles import FOLDER
from bftrain_replay.commands.shared_options import baseline_option, tables_option

if TYPE_CHECKING:
    from bftrain.journal import JournalStep

_MADE_BY: Final = "made by bftrain journal export from the journal"
_journal_file = click.argument("path", metavar="JOURNAL", type=click.Path(path_type=Path))


@click.group(cls=CommandGroup)
def command() -> None:
    """Look into a journal, and check that it leads to the same decisions again."""


@command.command(
    cls=DocumentedCommand,
    example="bftrain journal show journal.db --task cnn\nbftrain journal show live.db --node n[1-4] | tail",
)
@_journal_file
@click.option("--task", "tasks", metavar="NAME", multiple=True, help="Only steps of this task; may be given again.")
@click.option("--node", "nodes", metavar="NODES", multiple=True, help="Only steps of these nodes, such as n[1-4].")
@click.option("--since", type=TimeType(), help="Only after this time: 2026-11-25T17:00, or seconds.")
@click.option("--until", type=TimeType(), help="Only until then.")
@prints_results
def show(
    path: Path, tasks: tuple[str, ...], nodes: tuple[str, ...], since: float | None, until: float | None, out: Output
) -> None:
    """Print the steps of JOURNAL: what happened, which tasks got or lost which nodes, and the pool after it."""
    from bftrain.journal import Journal
    from bftrain.live.daemon.task_store import last_cluster
    from bftrain.nodesets import expand
    from bftrain.values import wire
    from bftrain_replay.journal_story import StepFilter

    try:
        named = tuple(node for text in nodes for node in expand(text))
    except ValueError as error:
        raise BadInput(str(error), where="--node", fix="such as n[1-4]") from error
    wanted = StepFilter(tasks=tasks, nodes=named, since_s=since, until_s=until)
    with Journal.open(path) as journal:
        found = filter(wanted.wants, journal.steps())
        if out.json:
            for step in found:
                click.echo(wire.encode(step))
            return
        rows = [_row(step) for step in found]
        cluster = last_cluster(journal)
        count = counted(len(journal), "step") + (f" on cluster {cluster}" if cluster else "")
    title = f"{path}: {count}" if wanted == StepFilter() else f"{path}: {len(rows):,} of {count}"
    out.result(None, lambda: table(title, ("step", "time", "what", "pool", "used"), rows, left=(1, 2)))


def _row(step: JournalStep) -> tuple[object, ...]:
    from bftrain_replay.journal_story import clock, sentences, time_of

    decision = step.decision
    pool, used = ("", "") if decision is None else (decision.pool, decision.used)
    return (step.number, clock(time_of(step)), "\n".join(sentences(step)), pool, used)


@command.command(
    cls=DocumentedCommand, example="bftrain journal plan journal.db\nbftrain journal plan journal.db --json"
)
@_journal_file
@prints_results
def plan(path: Path, out: Output) -> None:
    """Print each task's nodes after the last entry of JOURNAL, for a program that takes over."""
    from bftrain.journal import Journal
    from bftrain.rerun import restore

    with Journal.open(path) as journal:
        held = restore(journal).plan
    rows = [(task, len(nodes), " ".join(nodes)) for task, nodes in held.holdings.items()]
    out.result(held, lambda: table("", ("task", "size", "nodes"), rows, left=(0, 2)))


@command.command(cls=DocumentedCommand, example="bftrain journal verify journal.db\nbftrain journal verify live.db -q")
@_journal_file
@prints_results
def verify(path: Path, out: Output) -> None:
    """Decide every step of JOURNAL again; exit 3 if any decision differs from the recorded one.

    If older steps were removed, the rerun starts from the snapshot after them.
    """
    from bftrain.journal import Journal
    from bftrain.rerun import Rerun
    from bftrain_replay.commands.journal_run import exit_on_differences

    with Journal.open(path) as journal:
        journal.check_integrity()
        found = list(Rerun(journal).differences())
        steps, first = len(journal), journal.first
    report = {
        "steps": steps,
        **({"first": first + 1} if first else {}),
        "different": [difference.step for difference in found],
    }
    if not found:
        since = f" from step {first + 1:,} on; earlier ones are in the archive" if first else ""
        out.result(report, lambda: f"{counted(steps, 'step')}, every decision the same{since}")
        return
    if out.json:
        out.result(report, str)
    exit_on_differences(tuple(found), steps, path, out)


@command.command(
    cls=DocumentedCommand,
    example="bftrain journal replay live.db -o recorded --baseline greedy\nbftrain journal replay live.db",
    epilog="The journal supplies settings, nodes and tasks. To change them, use bftrain journal export.",
)
@_journal_file
@click.option("-o", "--output", "folder", metavar="DIR", type=FOLDER, help="Folder for the result.")
@baseline_option
@tables_option
@overwrite_option
@prints_results
def replay(path: Path, folder: Path | None, baseline: str, tables: str, out: Output, *, overwrite: bool) -> None:
    """Account for the node-time of JOURNAL, a live run: the figures of a replay, with the recorded decisions."""
    from bftrain_replay.commands.journal_run import replay_journal

    replay_journal(path, folder, out, baseline=baseline, tables=tables, overwrite=overwrite)


@command.command(
    cls=DocumentedCommand,
    example="bftrain journal export journal.db -o log.npz --tasks tasks.toml\n"
    "bftrain journal export live.db -o log.npz --config settings.toml",
)
@_journal_file
@click.option(
    "-o", "--output", "log", metavar="LOG", type=click.Path(path_type=Path), required=True, help="The log to write."
)
@click.option(
    "--tasks", metavar="TASKS", type=click.Path(path_type=Path), help="The task file to write, .toml or .csv."
)
@click.option("--config", metavar="CONFIG", type=click.Path(path_type=Path), help="The settings file to write.")
@prints_results
def export(path: Path, log: Path, tasks: Path | None, config: Path | None, out: Output) -> None:
    """Make a log and a task file out of JOURNAL, to try alternatives with bftrain replay."""
    from bftrain.config import dump
    from bftrain.files import check_replaceable, head_of, whole_file
    from bftrain.journal import Journal
    from bftrain.taskfiles.files import check_task_name, save_tasks
    from bftrain_datasets.log.log_files import check_log_name, save_log
    from bftrain_replay.commands.journal_run import reported_samples
    from bftrain_replay.journal_replay import process_steps, recorded
    from bftrain_replay.simulation.replay_settings import ReplaySettings

    check_log_name(log)
    if tasks is not None:
        check_task_name(tasks)
    if config is not None:
        check_replaceable(config, lambda file: head_of(file).startswith(f"# {_MADE_BY}".encode()), "settings file")
    with Journal.open(path) as journal:
        events = recorded(journal)
        engine, _ = process_steps(journal, events, decide_again=False)
        over = dict(engine.work_samples)
        over.update({name: samples for name, samples in reported_samples(journal, events).items() if name in over})
        specs = events.with_work(over)
        settings = ReplaySettings.of(journal.settings_now)
    save_log(events.log, log)
    if tasks is not None:
        save_tasks(specs, tasks, note=f"{_MADE_BY} {path.name}; submit_s counts from the log's start")
    if config is not None:
        with whole_file(config) as file:
            file.write(f"# {_MADE_BY} {path.name}\n{dump(settings)}".encode())
    figures = {"nodes": len(events.log.node_names), "idle_node_s": events.log.idle_node_s, "span_s": events.log.span_s}
    made = {"log": log, "tasks": tasks, "config": config}
    written = {name: str(file) for name, file in made.items() if file is not None}
    counts = {**figures, "tasks in all": len(specs)}
    rows = [*written.items(), *((name, f"{value:,.0f}") for name, value in counts.items())]
    out.result({**written, **figures, "task_count": len(specs)}, lambda: table("", ("", ""), rows, left=(0, 1)))
