"""Runs ``bftrain replay`` on a log's idle nodes or on a cluster, and prints the figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from bftrain.cli.interruption import unterminated
from bftrain.cli.output import Output
from bftrain.cli.settings import option_of, settings_of_kind
from bftrain.errors import BadInput, BadValue, UsageError
from bftrain.node_units import in_words_of
from bftrain.taskfiles.files import load_tasks
from bftrain.text_formats import counted
from bftrain.values.options import AUTO
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_replay.commands.progress import watched
from bftrain_replay.commands.run_folder import RunFolder, check_cluster_alone, load_log_with_kinds
from bftrain_replay.commands.sensitivity import SideReplays
from bftrain_replay.drawing import vega
from bftrain_replay.run.provenance import InputSource
from bftrain_replay.run.result import ReplayResult
from bftrain_replay.simulation.fixed_cluster import FixedCluster
from bftrain_replay.simulation.replay_settings import PUBLISHED, ReplaySettings
from bftrain_replay.simulation.timeline import saturating_workload
from bftrain_replay.study.study import (
    ReplayParts,
    ReplayStudy,
    check_cluster,
    check_kinds,
    check_parts,
    cluster_study,
    study,
    with_auto_cap,
)
from bftrain_replay.study_run import REPLAY, run_of, workload_ran_dry

# Modules for printing the figures, imported while comparison replays run
_NEEDED_LATER: Final = ("bftrain_replay.commands.replay_result", "rich.console", "rich.table", "numpy.ma")


def run_into(
    folder: RunFolder, source: InputSource, run: Callable[[Callable[[ReplayStudy], None]], ReplayStudy]
) -> ReplayStudy:
    """Run a replay and write it into a folder.

    ``run`` gets a callback that takes a study of the main replay alone, as soon as that is complete: its files are
    written while the comparison replays are still running.
    """

    def main_done(main: ReplayStudy) -> None:
        folder.write_early(run_of(main, source))
        for module in _NEEDED_LATER:
            import_module(module)

    done = run(main_done)
    folder.write(run_of(done, source), complete=done.complete)
    return done


def replay(
    log: EventLog,
    tasks: Sequence[TaskSpec],
    parts: ReplayParts,
    out: Output,
    main_done: Callable[[ReplayStudy], None],
    *,
    quick: bool,
) -> ReplayStudy:
    """Replay a log with progress; print warnings immediately, and call ``main_done`` as ``study`` does."""
    shown: list[str] = []

    def warn(text: str) -> None:
        shown.append(text)
        out.warn(text)

    with watched(out, log.span_s) as watch:
        done = study(log, tasks, parts, watch=watch, warn=warn, main_done=main_done, quick=quick)
    _print_warnings(done.result, out, shown)
    return done


def _print_warnings(result: ReplayResult, out: Output, shown: Collection[str] = ()) -> None:
    for warning in result.warnings:
        if warning not in shown:
            out.warn(warning)
    for time_s, note in result.decisions.notes:
        out.detail(f"note at {time_s:g} s: {note}")


def show(done: ReplayStudy, source: InputSource, out: Output, *, title: str, **more: object) -> None:
    """Print the figures side by side with a plot, or as JSON with ``more`` added."""
    from bftrain_replay.commands.replay_result import in_words

    data = {**run_of(done, source).summary, **more} if out.json else None
    out.result(data, lambda: in_words(done, title))


def _settings(asked: SimpleNamespace, given: Mapping[str, Any]) -> ReplaySettings:
    """Return the settings from file and options; raise for ``--progress`` with the published rules."""
    settings = settings_of_kind(asked.config, given, ReplaySettings)
    if settings.semantics == PUBLISHED and given.get("progress") is not None:
        fix = "omit it, or use --semantics realistic"
        raise BadValue("is unknown to the published rules", where=option_of("progress"), fix=fix)
    return settings


def replay_log(asked: SimpleNamespace, given: Mapping[str, Any], out: Output) -> None:
    """Replay a log against the tasks of a file, or against trials; write the result and print it.

    ``asked`` are the options that are not settings, ``given`` the settings.
    """
    if asked.until_s is not None:
        raise UsageError("requires --cluster", where="--until", fix="choose a --window of the log")
    log, folder = asked.log, asked.folder
    if log is None or folder is None:
        fix = "bftrain replay LOG --tasks TASKS -o DIR, or --cluster NODES instead of LOG"
        raise UsageError("is missing", where="LOG" if log is None else "-o", fix=fix)
    auto_cap = given.get("max_tasks") == AUTO
    # Before any file is read: reject unknown parts
    parts = check_parts(_settings(asked, {**given, "max_tasks": None} if auto_cap else given), asked.baseline)
    settings, task_file, kinds = parts.settings, asked.task_file, asked.kinds
    events = load_log_with_kinds(log, asked.kinds)
    workload, specs = None, None if task_file is None else _tasks(task_file, events)
    if auto_cap:
        settings = with_auto_cap(events, settings, specs)
        parts = check_parts(settings, asked.baseline)
        out.say(f"--max-tasks auto: {counted(settings.max_tasks, 'task')} may compete")
    if specs is None:
        workload = saturating_workload(events, settings)
        out.say(f"no --tasks: {in_words_of(events.unit, workload.sentence)} ({workload.command})")
        specs = workload.tasks
    options = ("--kinds", str(kinds)) if kinds is not None else ()
    named = {"log": str(log), "tasks": str(task_file or ""), "baseline": asked.baseline}
    source = InputSource(**named, options=options, workload=workload)
    beside = SideReplays(out, cached=not asked.no_cache)

    def run(main_done: Callable[[ReplayStudy], None]) -> ReplayStudy:
        done = replay(events, specs, parts, out, main_done, quick=asked.quick)
        return done if asked.quick else beside.with_table(done, log, task_file, settings, kinds)

    with unterminated(), RunFolder.of(REPLAY, folder, asked.tables, overwrite=asked.overwrite) as place:
        done = run_into(place, source, run)
    if workload is not None and workload_ran_dry(done):
        out.warn("the trials ran out, which they should not: the harvest of enough work is larger")
    show(done, source, out, title=f"{log} with {task_file or f'{len(specs):,} trials'}")
    if vega.lacking():
        out.say(f"no page: {vega.lacking()}")
    place.end(out, complete=done.complete, broken=() if beside.interrupted else done.broken_metrics)
    beside.exit_if_interrupted(folder)


def _tasks(task_file: Path, events: EventLog) -> tuple[TaskSpec, ...]:
    """Read the tasks; raise ``BadInput`` if a task fits no node of the log."""
    tasks = tuple(load_tasks(task_file))
    try:
        check_kinds(events, tasks)
    except BadInput as error:
        raise BadInput(error.what, where=str(task_file), fix=error.fix) from error
    return tasks


def replay_cluster(asked: SimpleNamespace, given: Mapping[str, Any], out: Output) -> None:
    """Replay the tasks of a file on a cluster, and write and print the result."""
    check_cluster_alone(asked.log, asked.kinds)
    if given.get("max_tasks") == AUTO:
        raise UsageError("is for the idle nodes of a log", where="--max-tasks auto", fix="give a number")
    task_file, folder = asked.task_file, asked.folder
    if task_file is None or folder is None:
        missing = "--tasks" if task_file is None else "-o"
        raise UsageError("is missing", where=missing, fix="bftrain replay --cluster NODES --tasks TASKS -o DIR")
    parts = check_parts(_settings(asked, given), asked.baseline)
    try:
        check_cluster(parts.settings)
    except UsageError as error:
        raise UsageError(error.what, where=option_of(error.where or ""), fix=error.fix) from error
    specs = load_tasks(task_file)
    try:
        cluster = FixedCluster(nodes=asked.cluster, until_s=asked.until_s)
        cluster.check(specs)
    except BadValue as error:
        raise BadValue(error.what, where=option_of("until_s"), fix=error.fix) from error
    except BadInput as error:
        raise BadInput(error.what, where=str(task_file), fix=error.fix) from error
    until = ("--until", repr(asked.until_s)) if asked.until_s is not None else ()
    options = ("--cluster", cluster.text, *until)
    source = InputSource(tasks=str(task_file), baseline=asked.baseline, options=options)
    with unterminated(), RunFolder.of(REPLAY, folder, asked.tables, overwrite=asked.overwrite) as place:
        # The end is unknown, so without a limit the progress is shown until the last arrival
        with watched(out, cluster.until_s or max(spec.submit_s for spec in specs)) as watch:
            done = cluster_study(cluster, specs, parts, watch=watch)
        _print_warnings(done.result, out)
        place.write(run_of(done, source), complete=done.complete)
    show(done, source, out, title=f"{cluster.text} {'node' if cluster.text == '1' else 'nodes'} with {task_file}")
    place.end(out, complete=done.complete, broken=done.broken_metrics)
