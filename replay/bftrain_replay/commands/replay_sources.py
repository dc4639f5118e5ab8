"""``bftrain replay`` on the idle nodes of a log, on a cluster, or on a journal."""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from bftrain.cli.output import Output
from bftrain.cli.settings import option_of
from bftrain.errors import BadInput, BadValue, Interrupted, UsageError
from bftrain.text_formats import counted
from bftrain_replay.commands import replay_run
from bftrain_replay.commands.progress import watched
from bftrain_replay.commands.sensitivity import SideReplays

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bftrain.journal import Journal
    from bftrain.live.model.task_record import LiveTaskRecord
    from bftrain.rerun import Difference
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_replay.journal_events import JournalEvents
    from bftrain_replay.study.study import ReplayStudy


_SHOWN_DIFFERENCES = 10


def replay_log(asked: replay_run.ReplayRequest, out: Output) -> None:
    """Replay a log against the tasks of a file, or against trials; write the result and print it."""
    log, folder = _files(asked)
    from bftrain.node_units import in_words_of
    from bftrain_replay.run.provenance import InputSource
    from bftrain_replay.simulation.timeline import saturating_workload
    from bftrain_replay.study.study import check_parts, with_auto_cap
    from bftrain_replay.study_run import workload_ran_dry

    # Before any reading: check for missing named plugins
    settings = asked.settings
    baseline, kinds, task_file = asked.baseline, asked.kinds, asked.task_file
    parts = check_parts(settings, baseline)
    settings = parts.settings
    events = asked.load_log(log)
    workload = None
    file_tasks = _tasks(task_file, events) if task_file is not None else None
    if asked.auto_cap:
        settings = with_auto_cap(events, settings, file_tasks)
        parts = check_parts(settings, baseline)
        out.say(f"--max-tasks auto: {counted(settings.max_tasks, 'task')} may compete")
    if file_tasks is not None:
        specs = file_tasks
    else:
        workload = saturating_workload(events, settings)
        out.say(f"no --tasks: {in_words_of(events.unit, workload.sentence)} ({workload.command})")
        specs = workload.tasks
    options = ("--kinds", str(kinds)) if kinds is not None else ()
    source = InputSource(
        log=str(log), tasks=str(task_file or ""), baseline=baseline, options=options, workload=workload
    )
    beside = SideReplays(out, cached=not asked.no_cache)

    def run(main_done: Callable[[ReplayStudy], None]) -> ReplayStudy:
        done = replay_run.replay(events, specs, parts, baseline, out, main_done, quick=asked.quick)
        return done if asked.quick else beside.with_table(done, log, task_file or specs, settings, kinds)

    study, written = replay_run.run_into(folder, source, run, asked)
    if workload is not None and workload_ran_dry(study):
        out.warn("the trials ran out, which they should not: the harvest of enough work is larger")
    replay_run.show(study, source, out, title=f"{log} with {task_file or f'{len(specs):,} trials'}")
    if written:
        out.say(f"result: {folder}")
    from bftrain_replay.drawing import vega  # only now: the replays run without what draws

    if vega.lacking():
        out.say(f"no page: {vega.lacking()}")
    replay_run.exit_if_interrupted(study, folder, written=written)
    beside.exit_if_interrupted(folder)
    replay_run.exit_if_broken(study.broken_metrics)


def _files(asked: replay_run.ReplayRequest) -> tuple[Path, Path]:
    if asked.until_s is not None:
        raise UsageError("goes with --cluster only", where="--until", fix="choose a --window of the log")
    log, folder = asked.log, asked.folder
    if log is None or folder is None:
        fix = "bftrain replay LOG --tasks TASKS -o DIR, or --cluster NODES instead of LOG"
        raise UsageError("is missing", where="LOG" if log is None else "-o", fix=fix)
    return log, folder


def _tasks(task_file: Path, events: EventLog) -> tuple[TaskSpec, ...]:
    """Read the tasks; raise ``BadInput`` if a task fits no node of the log."""
    from bftrain.taskfiles.files import load_tasks
    from bftrain_replay.study.study import check_kinds

    tasks = tuple(load_tasks(task_file))
    try:
        check_kinds(events, tasks)
    except BadInput as error:
        raise BadInput(error.what, where=str(task_file), fix=error.fix) from error
    return tasks


def replay_cluster(nodes: Mapping[str, int], asked: replay_run.ReplayRequest, out: Output) -> None:
    """Replay the tasks of a file on a cluster, and write and print the result."""
    asked.check_cluster_alone()
    if asked.auto_cap:
        raise UsageError("is for the idle nodes of a log", where="--max-tasks auto", fix="give a number")
    task_file, folder, baseline = asked.task_file, asked.folder, asked.baseline
    if task_file is None or folder is None:
        missing = "--tasks" if task_file is None else "-o"
        raise UsageError("is missing", where=missing, fix="bftrain replay --cluster NODES --tasks TASKS -o DIR")
    from bftrain.taskfiles.files import load_tasks
    from bftrain_replay.run.provenance import InputSource
    from bftrain_replay.simulation.fixed_cluster import FixedCluster
    from bftrain_replay.study.study import check_cluster, check_parts, cluster_study

    parts = check_parts(asked.settings, baseline)
    settings = parts.settings
    try:
        check_cluster(settings)
    except UsageError as error:
        raise UsageError(error.what, where=option_of(error.where or ""), fix=error.fix) from error
    specs = load_tasks(task_file)
    try:
        cluster = FixedCluster(nodes=nodes, until_s=asked.until_s)
        cluster.check(specs)
    except BadValue as error:
        raise BadValue(error.what, where=option_of("until_s"), fix=error.fix) from error
    except BadInput as error:
        raise BadInput(error.what, where=str(task_file), fix=error.fix) from error
    until = ("--until", repr(asked.until_s)) if asked.until_s is not None else ()
    options = ("--cluster", cluster.text, *until)
    source = InputSource(tasks=str(task_file), baseline=baseline, options=options)

    def run(_: Callable[[ReplayStudy], None]) -> ReplayStudy:
        # The end is not known beforehand
        with watched(out, cluster.until_s or max(spec.submit_s for spec in specs)) as watch:
            done = cluster_study(cluster, specs, parts, watch=watch)
        replay_run.print_warnings(done.result, out)
        return done

    study, written = replay_run.run_into(folder, source, run, asked)
    replay_run.show(
        study, source, out, title=f"{cluster.text} {'node' if cluster.text == '1' else 'nodes'} with {task_file}"
    )
    if written:
        out.say(f"result: {folder}")
    replay_run.exit_if_interrupted(study, folder, written=written)
    replay_run.exit_if_broken(study.broken_metrics)


def replay_journal(
    path: Path, folder: Path | None, out: Output, *, baseline: str, tables: str, overwrite: bool
) -> None:
    """Replay a journal, print its figures, and write them into ``folder``, if any."""
    from bftrain.journal import Journal
    from bftrain.result_folder import ResultFolder
    from bftrain_replay.journal_events import recorded
    from bftrain_replay.journal_replay import rerun
    from bftrain_replay.run.provenance import InputSource
    from bftrain_replay.study_run import REPLAY, run_of

    written = False
    source = InputSource(log=str(path), baseline=baseline)
    place = nullcontext() if folder is None else ResultFolder(folder, REPLAY.folder, overwrite=overwrite)
    with place as result, Journal.open(path) as journal:
        events = recorded(journal)
        with watched(out, events.log.span_s) as watch:
            reported = reported_samples(journal, events)
            done = rerun(journal, events, baseline=baseline, reported=reported, watch=watch)
        if result is not None and (done.study.complete or not result.holds_finished):
            result.replace(lambda draft: run_of(done.study, source).write_into(draft, tables))
            written = True
    more = {"steps": done.steps, "different": [difference.step for difference in done.differences]}
    replay_run.show(done.study, source, out, title=str(path), **more)
    if not done.study.complete and folder is None:
        raise Interrupted("interrupted; what is shown covers a part")
    replay_run.exit_if_interrupted(done.study, folder or path, written=written)
    if folder is not None:
        out.say(f"result: {folder}")
    exit_on_differences(done.differences, done.steps, path, out)
    out.say(f"{counted(done.steps, 'step')}, every decision the same")


def reported_samples(journal: Journal, events: JournalEvents) -> dict[str, float]:
    """Return how many samples tasks reported, as far as a live run recorded it."""
    from bftrain.live.daemon.task_store import all_kept

    reported: defaultdict[str, deque[LiveTaskRecord]] = defaultdict(deque)
    for kept in all_kept(journal):
        reported[kept.name].append(kept)
    return {
        spec.name: reported[name].popleft().progress.harvested
        for name, spec in zip(events.names, events.tasks, strict=True)
        if reported[name]
    }


def exit_on_differences(found: tuple[Difference, ...], steps: int, path: Path, out: Output) -> None:
    """Exit as a failure if any decision differs, and print the differences."""
    for difference in found[:_SHOWN_DIFFERENCES]:
        out.say(
            f"step {difference.step}: recorded {dict(difference.recorded.sizes)} worth {difference.recorded.value:g}, "
            f"now {dict(difference.decided.sizes)} worth {difference.decided.value:g}"
        )
    if found:
        raise BadInput(f"{len(found):,} of {steps:,} decisions differ", where=str(path))
