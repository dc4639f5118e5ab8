"""``bftrain demo``: a first look in seconds, on a sample log and sample tasks."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from bftrain.cli.output import Output, prints_results
from bftrain.cli.sensitivity import quick_option

_BASELINE = "equal-share"


@click.command()
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo"),
    help="Folder for all files [demo].",
)
@quick_option
@prints_results
def command(folder: Path, *, quick: bool, out: Output) -> None:
    """Replay a sample log with the default solver and with equal shares, and write a report."""
    from bftrain import words
    from bftrain.cli.replay_run import leave_if_interrupted, replay, show
    from bftrain.cli.sensitivity import SensitivityTable
    from bftrain_datasets.files import save_log
    from bftrain_datasets.generators import sample_log
    from bftrain_datasets.task_generators import sample_tasks
    from bftrain_datasets.taskfiles import save_tasks
    from bftrain_replay import outputs
    from bftrain_replay.drawing import vega
    from bftrain_replay.origins import Source
    from bftrain_replay.settings import ReplaySettings

    outputs.prepare(folder)
    log, tasks = sample_log(), sample_tasks()
    log_file, task_file, report = folder / "log.npz", folder / "tasks.toml", folder / "report.html"
    save_log(log, log_file)
    save_tasks(tasks, task_file, note="The sample tasks of bftrain")
    source = Source(log=str(log_file), tasks=str(task_file), baseline=_BASELINE)
    settings = ReplaySettings()
    table = SensitivityTable(log_file, task_file, settings, out, wanted=not quick)
    study = table.added_to(replay(log, tasks, settings, _BASELINE, out))
    outputs.write(study, folder / "replay", source)
    lacking = vega.lacking()
    if not lacking:
        shutil.copyfile(folder / "replay" / outputs.REPORT_FILE, report)
    title = f"{len(log.node_names):,} nodes, {words.duration(log.span_s)}, {len(tasks):,} tasks"
    show(study, source, out, title=title, report=None if lacking else str(report))
    out.say(f"no page: {lacking}" if lacking else f"report: {report}")
    leave_if_interrupted(study, folder / "replay")
    table.leave_if_interrupted(folder / "replay")
