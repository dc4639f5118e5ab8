"""Work: one pass of a sweep, done in this process. What comes of it is an outcome, also if it fails."""

from __future__ import annotations

import traceback
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Final

from bftrain.errors import BadInput, BftrainError, NotAvailable
from bftrain_replay import own_files
from bftrain_replay.oddities import odd_decisions, odd_inputs
from bftrain_replay.origins import tasks_sha256, versions_with
from bftrain_replay.study import CEILING, Passes, check_parts
from bftrain_replay.sweeping.outcomes import Outcome, Status
from bftrain_replay.sweeping.passes import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from bftrain_datasets.eventlog import EventLog
    from bftrain_replay.sweeping.inputs import Tasks
    from bftrain_replay.sweeping.passes import Pass

    # Told which share of a pass is done; says whether to go on
    Watch = Callable[[float], bool]

_CEILING_SHARE: Final = 0.9  # of what yardsticks take: few events befall the dedicated pool


class Stopped(Exception):
    """The pass is not wanted any more."""


def work(job: Pass, log: Callable[[], EventLog], tasks: Callable[[], Tasks], watch: Watch) -> Outcome:
    """Do a pass; whatever goes wrong in it is told in its outcome, but being stopped."""
    begun = perf_counter()
    try:
        return _worked(job, log(), tasks(), watch, begun)
    except Stopped:
        raise
    except BftrainError as error:
        reason = str(error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a solver or an objective may raise anything
        (place,) = traceback.extract_tb(error.__traceback__)[-1:]
        reason = f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
    # The objective as the sweep file names it: the same reason on every machine
    reason = reason.replace(job.settings.objective, str(job.made_from.settings["objective"]))
    return failed(job, reason, perf_counter() - begun)


def failed(job: Pass, reason: str, wall_s: float = 0.0) -> Outcome:
    """Give the outcome of a pass that failed."""
    return Outcome(id=job.id, status=Status.FAILED, reason=reason, wall_s=wall_s, made_from=job.made_from)


def _worked(job: Pass, log: EventLog, tasks: Tasks, watch: Watch, begun: float) -> Outcome:
    _check_same(job, log, tasks)
    settings = job.settings
    objective = check_parts(settings)

    def going(name: str, simulated_s: float, _decisions: int) -> bool:
        share = simulated_s / span_s
        if job.kind is Kind.YARDSTICKS:
            share = _CEILING_SHARE * share if name == CEILING else _CEILING_SHARE + (1.0 - _CEILING_SHARE) * share
        if not watch(share):
            raise Stopped
        return True

    passes = Passes(log, tasks, settings, objective, going)
    span_s = passes.part.span_s or 1.0
    if job.kind is Kind.YARDSTICKS:
        ceiling, dedicated = passes.ceiling(), passes.dedicated()
        return Outcome(
            id=job.id,
            status=Status.DONE,
            yardsticks=passes.yardsticks(ceiling, dedicated),
            warnings=tuple(odd_decisions({passes.ceiling_words: ceiling})),
            wall_s=perf_counter() - begun,
            made_from=job.made_from,
        )
    result = passes.replay()
    assert result is not None  # noqa: S101 - for the type checker: only a pass that was stopped is none
    return Outcome(
        id=job.id,
        status=Status.DONE,
        figures=result.summary(),
        timings=result.timings(),
        warnings=(*odd_inputs(passes.part, tasks), *odd_decisions({settings.solver: result})),
        wall_s=perf_counter() - begun,
        made_from=job.made_from,
    )


def _check_same(job: Pass, log: EventLog, tasks: Tasks) -> None:
    """Make sure that a pass is made from what it is said to be made from, on whatever machine this is."""
    made_from = job.made_from
    if log.sha256 != job.log_sha256:
        raise BadInput("is not any more what it was when the sweep began", where=f"log of {job.words}")
    if tasks_sha256(tasks) != job.tasks_sha256:
        raise BadInput("are not any more what they were when the sweep began", where=f"tasks of {job.words}")
    if made_from.objective_file:
        files = list(own_files.files(job.settings))
        for file in files:
            if not file.is_file():
                fix = "put it where every worker sees it under the same name"
                raise NotAvailable("is not on this machine", where=str(file), fix=fix)
        if own_files.sha256(job.settings) != made_from.objective_file:
            raise BadInput("is not any more what it was when the sweep began", where=", ".join(map(str, files)))
    here = versions_with(job.settings.solver)
    for name, version in made_from.versions.items():
        if version and here[name] != version:
            raise NotAvailable(
                f"this worker has {name} {here[name]}, and the sweep was begun with {version}",
                fix="install the same versions everywhere: figures may depend on them",
            )
