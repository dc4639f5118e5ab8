"""``bftrain.replay``, ``bftrain.rounds`` and ``bftrain.schedule``: each returns a run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from bftrain.config import Settings, changed
from bftrain.errors import BadInput, UsageError
from bftrain.parts import as_objective
from bftrain.ports import Objective
from bftrain.taskfiles.files import load_tasks
from bftrain.values.options import AUTO
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.log_files import load_log
from bftrain_datasets.scheduling import scheduling
from bftrain_datasets.scheduling.jobs import read_workload
from bftrain_datasets.scheduling.schedule_settings import ScheduleSettings
from bftrain_replay.rounds import round_result, simulation
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.run.provenance import InputSource, file_name
from bftrain_replay.run.run import Run
from bftrain_replay.run.variations import check_rules
from bftrain_replay.schedule_run import run_of_schedule
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.simulation.timeline import saturating_workload
from bftrain_replay.study.study import ReplayStudy, Watch, check_parts, study, with_auto_cap
from bftrain_replay.study_run import run_of
from bftrain_replay.sweeping.alternatives import ReplayFiles, runner, with_table

T = TypeVar("T")

_TABLE: Final = "sensitivity"  # name of the replays of the sensitivity table for ``watch``


def replay(
    log: EventLog | str | Path,
    tasks: Sequence[TaskSpec] | str | Path | None = None,
    settings: Settings | None = None,
    *,
    baseline: str = "",
    objective: str | Objective | Callable[..., object] | None = None,
    watch: Watch | None = None,
    sensitivity: bool = False,
    **options: Any,  # noqa: ANN401 - the fields of ReplaySettings
) -> Run:
    """Replay ``log`` against ``tasks``, each a value or a file name; the numbers equal the command's.

    Without ``tasks`` identical trials are replayed, more than the log's idle nodes can finish.

    ``options`` are settings by name, such as ``max_tasks=10``, and override ``settings``. ``max_tasks="auto"`` sets the
    limit beyond which twice as many competing tasks add less than 1 % to the proven bound. ``objective`` is a name, or
    a function ``(task, sizes) -> values``. ``watch(replay, simulated_seconds, decisions)`` is called as the replays
    advance; return False to stop. ``baseline`` is the name of another solver to replay for comparison. With
    ``sensitivity`` the usual alternative assumptions and candidate setting changes are also replayed, in separate
    processes; this takes about four times as long on two processors.

    Raises :class:`bftrain.errors.UsageError` for an unknown setting, :class:`bftrain.errors.BadInput` for an invalid
    log, task, value, name or objective, or a missing file, and ``OSError`` for an unreadable file.

    >>> from bftrain import replay
    >>> done = replay("log.npz", "tasks.toml", progress="disk:300")
    >>> round(done.metrics["efficiency"], 2)
    0.96
    """
    metric = _objective_in_memory(objective)
    if objective is not None:
        options["objective"] = objective if metric is None else metric.name
    auto_cap = options.get("max_tasks") == AUTO
    if auto_cap:
        del options["max_tasks"]
    how = ReplaySettings.with_options(options, "replay", settings)
    if sensitivity:
        check_rules(how)
        if metric is not None:
            what = "replays in other processes, which cannot receive a function"
            raise UsageError(what, where="sensitivity", fix="name the objective as FILE.py:FUNCTION")
    events = _loaded(log)
    if not isinstance(events, EventLog):
        raise BadInput(f"{log!r} is not a log", where="log", fix="pass a file name, or the result of bftrain.load_log")
    given = load_tasks(Path(tasks)) if isinstance(tasks, str | Path) else tasks
    if auto_cap:
        how = with_auto_cap(events, how, given)
    workload = saturating_workload(events, how) if given is None else None
    specs = workload.tasks if workload is not None else given or ()
    source = InputSource(log=file_name(log), tasks=file_name(tasks), baseline=baseline, workload=workload)
    done = study(events, specs, check_parts(how, baseline, metric), watch=watch)
    if sensitivity and done.complete:
        done = _with_table(done, how, source, watch)
    return run_of(done, source)


def _loaded(log: T | str | Path) -> T | EventLog:
    return load_log(Path(log)) if isinstance(log, str | Path) else log


def _objective_in_memory(objective: str | Objective | Callable[..., object] | None) -> Objective | None:
    """Return an objective that was given as an object or a function; ``None`` for a name."""
    if objective is None or isinstance(objective, str):
        return None
    name = getattr(objective, "name", None) or getattr(objective, "__name__", type(objective).__name__)
    return as_objective(str(name), objective)


def _with_table(done: ReplayStudy, how: ReplaySettings, source: InputSource, watch: Watch | None) -> ReplayStudy:
    """Return the study with its sensitivity table; inputs given as values are written to files for the workers."""
    span_s = done.part.span_s

    def going(finished: float, count: int) -> bool:
        return watch is None or watch(_TABLE, span_s * finished / count, int(finished))

    with tempfile.TemporaryDirectory(prefix="bftrain-") as folder:
        log_file, task_file = Path(source.log or f"{folder}/log.npz"), Path(source.tasks) if source.tasks else None
        files = ReplayFiles.of(done.log, log_file, done.tasks, task_file, Path(folder))
        return with_table(done, how, files, runner(_TABLE, going))


def rounds(
    source: Mapping[str, int] | EventLog | str | Path,
    tasks: Sequence[TaskSpec] | str | Path,
    settings: RoundSettings | None = None,
    /,
    **options: Any,  # noqa: ANN401 - the fields of RoundSettings
) -> Run:
    """Share the time of a cluster, or of a log's idle nodes, in rounds, as ``bftrain rounds`` does.

    ``source`` is a number of nodes by kind, or a log; a log and ``tasks`` may be file names. ``options`` are settings
    by name, such as ``round_s=360.0``, and override ``settings``. Raises :class:`bftrain.errors.BadInput` for an
    invalid value or name, a missing file, or ``tasks`` that can never run, and :class:`bftrain.errors.UsageError` for
    an unknown option.

    >>> from bftrain import rounds
    >>> rounds({"v100": 4}, "tasks.toml", gang="min", until_s=3600.0).metrics["rounds"]
    12
    """
    settings = changed(settings or RoundSettings(), options, "rounds")
    specs = load_tasks(Path(tasks)) if isinstance(tasks, str | Path) else tasks
    return round_result.run_of(simulation.simulate(_loaded(source), specs, settings))


def schedule(
    log: Path | str,
    settings: ScheduleSettings | None = None,
    **options: Any,  # noqa: ANN401 - the fields of ScheduleSettings
) -> Run:
    """Reschedule the jobs of an SWF log or a table of jobs, as ``bftrain schedule`` does.

    ``log`` is the file. ``options`` are settings by name, such as ``policy="easy"``, and override ``settings``.
    Raises :class:`bftrain.errors.BadInput` for unusable jobs, an unknown policy or a missing file, and
    :class:`bftrain.errors.UsageError` for an unknown option.

    >>> from bftrain import schedule
    >>> schedule("jobs.swf", policy="fcfs").metrics["jobs"]
    3
    """
    settings = changed(settings or ScheduleSettings(), options, "schedule")
    return run_of_schedule(scheduling.simulate(read_workload(log, settings), settings), str(log))
