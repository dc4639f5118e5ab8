"""``bftrain replay LOG``: tasks of a file, or more identical trials than fit, on the idle nodes of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bftrain.errors import BadInput, UsageError
from bftrain_replay.commands.replay_run import leave_if_broken, leave_if_interrupted, replay, run_into, show
from bftrain_replay.commands.sensitivity import SensitivityTable

if TYPE_CHECKING:
    from pathlib import Path

    from bftrain.cli.output import Output
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_datasets.workloads.saturating import SaturatingWorkload
    from bftrain_replay.commands.replay_request import ReplayRequest
    from bftrain_replay.simulation.replay_settings import ReplaySettings


def replay_log(asked: ReplayRequest, out: Output) -> None:
    """Replay a log against the tasks of a file, or against trials; write the result and show it."""
    log, folder = _files(asked)
    from bftrain_replay.drawing import vega
    from bftrain_replay.output.summary_json import workload_ran_dry
    from bftrain_replay.provenance import InputSource
    from bftrain_replay.resume.solver_cache import origin_of

    settings = _checked_settings(asked, out)
    baseline, kinds, task_file = asked.baseline, asked.kinds, asked.task_file
    events = _log(log, kinds)
    specs, workload = _tasks(task_file, events), None
    if specs is None:
        workload = _trials(events, settings, out)
        specs = workload.tasks
    options = ("--kinds", str(kinds)) if kinds is not None else ()
    source = InputSource(
        log=str(log), tasks=str(task_file or ""), baseline=baseline, options=options, workload=workload
    )
    table = SensitivityTable(log, task_file or specs, settings, out, kinds=kinds, wanted=not asked.quick)
    study, written = run_into(
        folder,
        source,
        origin_of(events, specs, settings, baseline),
        lambda answers: table.added_to(replay(events, specs, settings, baseline, out, answers)),
        out,
        tables=asked.tables,
        resume=asked.resume,
        overwrite=asked.overwrite,
    )
    if workload is not None and workload_ran_dry(study):
        out.warn("the trials ran out, which they should not: the harvest of enough work is larger")
    show(study, source, out, title=f"{log} with {task_file or f'{len(specs):,} trials'}")
    if written:
        out.say(f"result: {folder}")
    if vega.lacking():
        out.say(f"no page: {vega.lacking()}")
    leave_if_interrupted(study, folder, "; the same command with --resume goes on", written=written)
    table.leave_if_interrupted(folder)
    leave_if_broken(study.broken_metrics)


def _checked_settings(asked: ReplayRequest, out: Output) -> ReplaySettings:
    """Return the settings; raise an error before anything is read if a part that they name is missing."""
    from bftrain_replay import replay_folder
    from bftrain_replay.study import check_parts

    settings = asked.settings
    if asked.note_on_config:
        out.warn(asked.note_on_config)
    check_parts(settings, asked.baseline)
    replay_folder.check_tables(asked.tables)
    return settings


def _files(asked: ReplayRequest) -> tuple[Path, Path]:
    """Return log and folder; raise ``UsageError`` if one is missing, or for an option of clusters."""
    for name, given, fix in (
        ("--until", asked.until_s, "choose a --window of the log"),
        ("--ideal", asked.ideal, "a log is replayed without costs instead"),
    ):
        if given is not None:
            raise UsageError("goes with --cluster only", where=name, fix=fix)
    log, folder = asked.log, asked.folder
    if log is None or folder is None:
        fix = "bftrain replay LOG --tasks TASKS -o DIR, or --cluster NODES or --journal JOURNAL instead of LOG"
        raise UsageError("is missing", where="LOG" if log is None else "-o", fix=fix)
    return log, folder


def _log(path: Path, kinds: Path | None) -> EventLog:
    from bftrain_datasets.log.kind_files import with_kinds
    from bftrain_datasets.log.log_files import load_log

    return load_log(path) if kinds is None else with_kinds(load_log(path), kinds)


def _tasks(task_file: Path | None, events: EventLog) -> tuple[TaskSpec, ...] | None:
    """Read the tasks, if a file was named; raise ``BadInput`` if the log has no node for one of them."""
    if task_file is None:
        return None
    from bftrain.taskfiles.files import load_tasks
    from bftrain_replay.study import check_kinds

    tasks = tuple(load_tasks(task_file))
    try:
        check_kinds(events, tasks)
    except BadInput as error:
        raise BadInput(error.what, where=str(task_file), fix=error.fix) from error
    return tasks


def _trials(events: EventLog, settings: ReplaySettings, out: Output) -> SaturatingWorkload:
    """Return the trials that stand in for a file of tasks, and say so."""
    from bftrain_replay.simulation.log_selection import saturating_workload

    workload = saturating_workload(events, settings)
    out.say(f"no --tasks: {workload.sentence} ({workload.command})")
    return workload
