"""``bftrain replay --cluster``: tasks on nodes that never leave, until all are done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bftrain.cli.settings import option_of
from bftrain.errors import BadInput, BadValue, UsageError
from bftrain_replay.commands.replay_progress import watched
from bftrain_replay.commands.replay_run import leave_if_broken, leave_if_interrupted, run_into, show, warn_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bftrain.cli.output import Output
    from bftrain.values.task import TaskSpec
    from bftrain_replay.commands.replay_request import ReplayRequest
    from bftrain_replay.resume.solver_cache import AnswerFile
    from bftrain_replay.simulation.fixed_cluster import FixedCluster
    from bftrain_replay.simulation.replay_settings import ReplaySettings
    from bftrain_replay.study import ReplayStudy


def replay_cluster(nodes: Mapping[str, int], asked: ReplayRequest, out: Output) -> None:
    """Replay the tasks of a file on a cluster, and write and show what came of it."""
    _insist_on_cluster_alone(asked)
    task_file, folder = _there(asked.task_file, "--tasks"), _there(asked.folder, "-o")
    from bftrain.taskfiles.files import load_tasks
    from bftrain_replay import replay_folder
    from bftrain_replay.provenance import InputSource
    from bftrain_replay.resume.solver_cache import origin_of
    from bftrain_replay.simulation.fixed_cluster import FixedCluster
    from bftrain_replay.study import check_parts

    settings = asked.settings
    baseline = asked.baseline
    check_parts(settings, baseline)
    _check(settings)
    replay_folder.check_tables(asked.tables)
    specs = load_tasks(task_file)
    try:
        cluster = FixedCluster(nodes=nodes, until_s=asked.until_s)
        cluster.check(specs)
    except BadValue as error:
        raise BadValue(error.what, where=option_of("until_s"), fix=error.fix) from error
    except BadInput as error:
        raise BadInput(error.what, where=str(task_file), fix=error.fix) from error
    source = InputSource(tasks=str(task_file), baseline=baseline, options=_options(cluster, asked))
    study, written = run_into(
        folder,
        source,
        origin_of(cluster.log(), specs, settings, baseline),
        lambda answers: _replay(cluster, specs, settings, asked, out, answers),
        out,
        tables=asked.tables,
        resume=asked.resume,
        overwrite=asked.overwrite,
    )
    show(study, source, out, title=f"{cluster.text} nodes with {task_file}")
    if written:
        out.say(f"result: {folder}")
    leave_if_interrupted(study, folder, "; the same command with --resume goes on", written=written)
    leave_if_broken(study.broken_metrics)


def _insist_on_cluster_alone(asked: ReplayRequest) -> None:
    """Refuse what a cluster says itself."""
    if asked.log is not None:
        raise UsageError("a cluster takes the place of a log", where="--cluster", fix="leave LOG or --cluster out")
    if asked.kinds is not None:
        raise UsageError("a cluster names its kinds itself", where="--kinds", fix="leave it out")


def _there(given: Path | None, option: str) -> Path:
    if given is None:
        raise UsageError("is missing", where=option, fix="bftrain replay --cluster NODES --tasks TASKS -o DIR")
    return given


def _check(settings: ReplaySettings) -> None:
    """Refuse settings that are for logs, by the names of their options."""
    from bftrain_replay.study import check_cluster

    try:
        check_cluster(settings)
    except UsageError as error:
        raise UsageError(error.what, where=option_of(error.where or ""), fix=error.fix) from error


def _options(cluster: FixedCluster, asked: ReplayRequest) -> tuple[str, ...]:
    """Give the options that say the cluster."""
    until = ("--until", repr(asked.until_s)) if asked.until_s is not None else ()
    return ("--cluster", cluster.text, *until, *(("--ideal",) if asked.ideal else ()))


def _replay(
    cluster: FixedCluster,
    specs: Sequence[TaskSpec],
    settings: ReplaySettings,
    asked: ReplayRequest,
    out: Output,
    answers: AnswerFile,
) -> ReplayStudy:
    """Replay and show progress in hours: the end is not known beforehand."""
    from bftrain_replay.study import cluster_study

    last_s = max(spec.submit_s for spec in specs)
    with watched(out, cluster.until_s or last_s) as watch:
        done = cluster_study(
            cluster,
            specs,
            settings,
            baseline=asked.baseline,
            watch=watch,
            answers=answers,
            ideally=bool(asked.ideal),
        )
    warn_of(done.result, out)
    return done
