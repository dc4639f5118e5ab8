"""``bftrain demo``: a first look in seconds, on a sample log and sample tasks."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from bftrain import text_formats
from bftrain.cli.command_help import DocumentedCommand
from bftrain.cli.output import Output, prints_results
from bftrain_datasets.commands.logfiles import FOLDER
from bftrain_replay.commands.shared_options import no_cache_option, quick_option

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bftrain.result_folder import ResultFolder
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_replay.study.study import ReplayStudy

_BASELINE = "equal-share"
_LOG, _TASKS, _REPLAY = "log.npz", "tasks.toml", "replay"


@click.command(
    cls=DocumentedCommand,
    example="bftrain demo\nbftrain demo -o gpus --unit gpu --quick",
    epilog="An earlier demo in DIR is replaced; other files are never touched.",
)
@click.option(
    "-o", "--output", "folder", metavar="DIR", type=FOLDER, default=Path("demo"), help="Folder for all files [demo]."
)
@click.option(
    "--unit",
    type=click.Choice(["node", "gpu"]),
    default="node",
    show_default=True,
    help="Sample: idle nodes of a supercomputer, or idle GPUs of shared nodes.",
)
@quick_option
@no_cache_option
@prints_results
def command(folder: Path, *, unit: str, quick: bool, no_cache: bool, out: Output) -> None:
    """Replay a sample log with the default solver and with equal shares, and write a report."""
    from bftrain.files import synced_later
    from bftrain.node_units import word_of
    from bftrain.result_folder import REPORT_FILE, ResultFolder, ResultKind
    from bftrain_datasets.log.log_generator import sample_log
    from bftrain_datasets.result_tables import CSV
    from bftrain_datasets.workloads.task_generators import sample_tasks
    from bftrain_replay.commands.replay_run import replay, run_into, show
    from bftrain_replay.commands.run_folder import RunFolder
    from bftrain_replay.commands.sensitivity import SideReplays
    from bftrain_replay.drawing import vega
    from bftrain_replay.run.provenance import InputSource
    from bftrain_replay.simulation.replay_settings import ReplaySettings
    from bftrain_replay.study.study import check_parts

    log, tasks, report = sample_log(unit), sample_tasks(unit), folder / REPORT_FILE
    source = InputSource(log=str(folder / _LOG), tasks=str(folder / _TASKS), baseline=_BASELINE)
    parts = check_parts(ReplaySettings(), _BASELINE)
    beside = SideReplays(out, cached=not no_cache)

    def write_demo(into: Path) -> None:
        for name in (_LOG, _TASKS):
            shutil.copyfile(inputs / name, into / name)
        if not lacking:
            shutil.copyfile(folder / _REPLAY / REPORT_FILE, into / REPORT_FILE)

    def run(main_done: Callable[[ReplayStudy], None]) -> ReplayStudy:
        done = replay(log, tasks, parts, out, main_done, quick=quick)
        return done if quick else beside.with_table(done, inputs / _LOG, inputs / _TASKS, parts.settings)

    names = frozenset({_LOG, _TASKS, REPORT_FILE})
    kind = ResultKind(title="demo", form="bftrain replay", summary=f"{_REPLAY}/summary.json", names=names)
    demo_folder = ResultFolder(folder, kind, continues=True)  # an earlier demo is replaced
    of_replay = _replay_folder(folder, log, tasks)
    with demo_folder as demo, RunFolder(of_replay, CSV) as place, TemporaryDirectory() as scratch:
        if of_replay.holds_finished:
            out.say(f"replacing the earlier demo in {folder}")
        inputs = Path(scratch)
        with synced_later():
            _write_inputs(log, tasks, inputs)
        done = run_into(place, source, run)
        lacking = vega.lacking()  # only now: replays need none of the drawing packages
        if place.written:
            demo.replace(write_demo)
    nodes, span = text_formats.counted(len(log.node_names), word_of(unit)), text_formats.duration(log.span_s)
    title = f"{nodes}, {span}, {text_formats.counted(len(tasks), 'task')}"
    show(done, source, out, title=title, report=None if lacking else str(report))
    out.say(f"no page: {lacking}" if lacking else f"report: {report}")
    place.end(None, complete=done.complete)
    beside.exit_if_interrupted(folder / _REPLAY)


def _write_inputs(log: EventLog, tasks: Sequence[TaskSpec], folder: Path) -> None:
    from bftrain.taskfiles.files import save_tasks
    from bftrain_datasets.log.log_files import save_log

    save_log(log, folder / _LOG)
    save_tasks(tasks, folder / _TASKS, note="The sample tasks of bftrain")


def _replay_folder(folder: Path, log: EventLog, tasks: Sequence[TaskSpec]) -> ResultFolder:
    """Return the folder for the replay; it replaces only replays of a demo's own log and tasks."""
    from bftrain.result_folder import ResultFolder
    from bftrain.taskfiles.files import load_tasks
    from bftrain_datasets.log.log_files import load_log
    from bftrain_replay.run.provenance import tasks_sha256
    from bftrain_replay.run.run import summary_in
    from bftrain_replay.study_run import REPLAY

    log_file, task_file, path = folder / _LOG, folder / _TASKS, folder / _REPLAY
    own = False
    if (path / "summary.json").exists():
        try:
            inputs = summary_in(path)["inputs"]
            replayed = inputs["log"]["sha256"], inputs["tasks"]["sha256"]
        except (LookupError, TypeError):
            replayed = None
        own = replayed == (log.sha256, tasks_sha256(tasks))  # a demo that was killed may lack its log and its tasks
        if not own and log_file.exists() and task_file.exists():  # input files from another version's demo
            own = replayed == (load_log(log_file).sha256, tasks_sha256(load_tasks(task_file)))
    return ResultFolder(path, REPLAY.folder, overwrite=own, advice="name another folder")
