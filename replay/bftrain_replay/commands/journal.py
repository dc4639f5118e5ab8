"""``bftrain journal``: what is in a journal, and does it lead to the same decisions again?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results, table

if TYPE_CHECKING:
    from bftrain.journal import JournalStep

_MADE_BY: Final = "made by bftrain journal export from the journal"
_journal_file = click.argument("path", metavar="JOURNAL", type=click.Path(path_type=Path))


@click.group()
def command() -> None:
    """Look into a journal, and check that it leads to the same decisions again."""


@command.command(cls=DocumentedCommand, example="bftrain journal show journal.db")
@_journal_file
@prints_results
def show(path: Path, out: Output) -> None:
    """Print every step of JOURNAL: its events and its decision."""
    from bftrain.journal import Journal
    from bftrain.values import wire

    with Journal.open(path) as journal:
        if out.json:
            for step in journal.steps():
                click.echo(wire.encode(step))
            return
        rows = [_row(step) for step in journal.steps()]
    columns = ("step", "time_s", "events", "pool", "used", "running", "fallback")
    out.result(None, lambda: table(f"{path}: {len(rows):,} steps", columns, rows, left=(2, 6)))


def _row(step: JournalStep) -> tuple[object, ...]:
    tags = ", ".join(str(event.__struct_config__.tag) for event in step.events)
    decision = step.decision
    if decision is None:
        return (step.number, f"{step.events[-1].time_s:g}", tags, "", "", "", "none was recorded")
    running = sum(size > 0 for size in decision.sizes.values())
    return (
        step.number,
        f"{decision.time_s:g}",
        tags,
        decision.pool,
        decision.used,
        running,
        decision.fallback,
    )


@command.command(cls=DocumentedCommand, example="bftrain journal plan journal.db")
@_journal_file
@prints_results
def plan(path: Path, out: Output) -> None:
    """Print which task holds which nodes where JOURNAL ends, for a program that takes over from there."""
    from bftrain.journal import Journal
    from bftrain.rerun import restore

    with Journal.open(path) as journal:
        held = restore(journal).plan
    rows = [(task, len(nodes), " ".join(nodes)) for task, nodes in held.holdings.items()]
    out.result(held, lambda: table("", ("task", "size", "nodes"), rows, left=(0, 2)))


@command.command(cls=DocumentedCommand, example="bftrain journal verify journal.db")
@_journal_file
@prints_results
def verify(path: Path, out: Output) -> None:
    """Decide every step of JOURNAL again; exit 3 if any decision differs from the recorded one."""
    from bftrain.journal import Journal
    from bftrain.rerun import Rerun
    from bftrain_replay.commands.replay_journal import say_differences

    with Journal.open(path) as journal:
        found = list(Rerun(journal).differences())
        steps = len(journal)
    report = {"steps": steps, "different": [difference.step for difference in found]}
    if not found:
        out.result(report, lambda: f"{steps:,} steps, every decision the same")
        return
    if out.json:
        out.result(report, str)
    say_differences(tuple(found), steps, path, out)


@command.command(
    cls=DocumentedCommand,
    example="bftrain journal export journal.db -o log.npz --tasks tasks.toml",
)
@_journal_file
@click.option(
    "-o", "--output", "log", metavar="LOG", type=click.Path(path_type=Path), required=True, help="Where the log goes."
)
@click.option("--tasks", metavar="TASKS", type=click.Path(path_type=Path), help="Where the tasks go, .toml or .csv.")
@click.option("--config", metavar="CONFIG", type=click.Path(path_type=Path), help="Where the settings go.")
@prints_results
def export(path: Path, log: Path, tasks: Path | None, config: Path | None, out: Output) -> None:
    """Make a log and a task file out of JOURNAL, to ask what else could have been: bftrain replay takes them."""
    from bftrain.config import dump
    from bftrain.files import check_replaceable, head_of, whole_file
    from bftrain.journal import Journal
    from bftrain.taskfiles.files import check_task_name, save_tasks
    from bftrain_datasets.log.log_files import check_log_name, save_log
    from bftrain_replay.commands.replay_journal import reported_samples
    from bftrain_replay.journal_replay import go_through
    from bftrain_replay.resume.journal_events import recorded
    from bftrain_replay.simulation.replay_settings import ReplaySettings

    check_log_name(log)
    if tasks is not None:
        check_task_name(tasks)
    if config is not None:
        check_replaceable(config, lambda file: head_of(file).startswith(f"# {_MADE_BY}".encode()))
    with Journal.open(path) as journal:
        events = recorded(journal)
        over = dict(go_through(journal, events, decide_again=False).work_samples)
        over.update({name: samples for name, samples in reported_samples(journal, events).items() if name in over})
        specs = events.with_work(over)
        settings = ReplaySettings.of(journal.settings_now)
    save_log(events.log, log)
    if tasks is not None:
        save_tasks(specs, tasks, note=f"{_MADE_BY} {path.name}; submit_s counts from the log's begin")
    if config is not None:
        with whole_file(config) as file:
            file.write(f"# {_MADE_BY} {path.name}\n{dump(settings)}".encode())
    figures = {"nodes": len(events.log.node_names), "idle_node_s": events.log.idle_node_s, "span_s": events.log.span_s}
    made = {"log": log, "tasks": tasks, "config": config}
    written = {name: str(file) for name, file in made.items() if file is not None}
    rows = [
        *written.items(),
        *((name, f"{value:,.0f}") for name, value in {**figures, "tasks in all": len(specs)}.items()),
    ]
    out.result({**written, **figures, "task_count": len(specs)}, lambda: table("", ("", ""), rows, left=(0, 1)))
