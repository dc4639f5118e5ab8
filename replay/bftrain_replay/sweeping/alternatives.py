"""The sensitivity table and the advice of a replay: both replayed side by side, in processes of this machine.

The workers are those of a sweep, so one that dies costs its row and no more, and Ctrl-C ends them all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from msgspec.structs import replace

from bftrain.values import wire
from bftrain_replay import plugin_files
from bftrain_replay.forked_pass import usable_cpus
from bftrain_replay.provenance import tasks_sha256
from bftrain_replay.simulation.replay_settings import ReplaySettings
from bftrain_replay.study import ReplayStudy
from bftrain_replay.sweeping.local_executor import LocalExecutor
from bftrain_replay.sweeping.outcome_cache import CachedExecutor, OutcomeCache
from bftrain_replay.sweeping.run_point import WorkerActivity
from bftrain_replay.sweeping.sweep_inputs import SweepLog, TaskFile
from bftrain_replay.sweeping.sweep_runs import MadeFrom, PassOutcome, RunKind, SweepPass, origin_sha256, versions_here
from bftrain_replay.variations import AdviceRow, SensitivityRow, Variation, assumptions, check_rules, remedies

# Called with how many replays are done, fractions of running ones included, and how many there are; returns
# whether to go on
Watch = Callable[[float, int], bool]

_PRINTS: Final = "workers.log"


class AlternativeReplays(NamedTuple):
    """The rows of table and advice; empty if interrupted. ``failed`` says why replays have no figures."""

    rows: tuple[SensitivityRow, ...] | None
    advice: tuple[AdviceRow, ...] | None = None
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AlternativePlan:
    """The replays for table and advice of ``study``; its log and tasks are in files."""

    study: ReplayStudy
    table: Sequence[tuple[Variation, str]]  # each with the ID of its pass; "": the main replay
    advice: Sequence[tuple[Variation, str]]
    passes: tuple[SweepPass, ...]

    @property
    def workers(self) -> int:
        """The number of replays that run at once."""
        return min(usable_cpus(), len(self.passes))

    def expected_s(self, done: int = 0) -> float:
        """Return the estimated time for all but ``done`` of them, if each takes as long as the main replay."""
        return self.study.result.wall_s * -(-(len(self.passes) - done) // max(self.workers, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class PassInputs:
    """A log and tasks in files, and the hashes of their contents."""

    log: SweepLog
    tasks: TaskFile
    log_sha256: str
    tasks_sha256: str
    log_origin: str

    def replay(self, settings: ReplaySettings, words: str, edges_s: tuple[float, ...] = ()) -> SweepPass:
        """Return the pass that replays them; its outcome has the harvest between the edges, if there are any."""
        made_from = MadeFrom(
            kind=RunKind.REPLAY,
            log=self.log_sha256,
            tasks=self.tasks_sha256,
            objective_file=plugin_files.sha256(settings),
            settings=wire.plain(settings),
            versions=versions_here(settings.solver),
        )
        return SweepPass(
            id=made_from.id,
            words=words,
            log=self.log,
            tasks=self.tasks,
            log_sha256=self.log_sha256,
            tasks_sha256=self.tasks_sha256,
            log_origin=self.log_origin,
            settings=settings,
            edges_s=edges_s,
            made_from=made_from,
        )


def plan(study: ReplayStudy, settings: ReplaySettings, log: SweepLog, tasks: TaskFile) -> AlternativePlan:
    """Return the replays for the table and the advice of ``study``; the files are those of its inputs."""
    check_rules(settings)
    anywhere = plugin_files.from_anywhere(replace(settings, metrics=""))  # no metric stands in the table or the advice
    inputs = PassInputs(
        log=log,
        tasks=tasks,
        log_sha256=study.log.sha256,
        tasks_sha256=tasks_sha256(study.tasks),
        log_origin=origin_sha256(study.log),
    )
    passes: dict[str, SweepPass] = {}  # a variation of the advice may be one of the table too

    def planned(variation: Variation, words: str) -> tuple[Variation, str]:
        if variation.settings is None:
            return variation, ""
        job = inputs.replay(variation.settings, words)
        return variation, passes.setdefault(job.id, job).id

    table = [planned(each, f"{each.what} {each.label}") for each in assumptions(anywhere, study.tasks)]
    advice = [planned(each, each.label) for each in remedies(study.result.summary(), anywhere)]
    return AlternativePlan(study, table, advice, tuple(passes.values()))


def replay_alternatives(
    what: AlternativePlan, watch: Watch | None = None, cache: OutcomeCache | None = None
) -> AlternativeReplays:
    """Run all replays that ``cache`` lacks; return no rows once ``watch`` returns ``False``."""
    outcomes = outcomes_of(what.passes, what.workers, watch, cache)
    if outcomes is None:
        return AlternativeReplays(None)
    failed = tuple(f"{each.words}: {outcomes[each.id].reason}" for each in what.passes if not outcomes[each.id].figures)
    if failed:
        return AlternativeReplays(None, failed=failed)
    result = what.study.result
    main, dedicated = result.summary(), result.yardsticks.dedicated_samples if result.yardsticks else 0.0
    figures = {"": main, **{name: each.figures for name, each in outcomes.items() if each.figures is not None}}
    advice = [AdviceRow.of(each, main, figures[job]) for each, job in what.advice]
    return AlternativeReplays(
        tuple(SensitivityRow.of(each, figures[job], dedicated) for each, job in what.table),
        tuple(sorted(advice, key=lambda row: -row.gain)),
    )


def outcomes_of(
    passes: Sequence[SweepPass], workers: int, watch: Watch | None = None, cache: OutcomeCache | None = None
) -> dict[str, PassOutcome] | None:
    """Run passes in processes of this machine, but for those whose outcome is in ``cache``.

    Return their outcomes by id, or ``None`` once ``watch`` returns false.
    """
    # Two variations may be the same pass, such as earlier departures on a log that no node leaves
    passes = tuple({job.id: job for job in passes}.values())
    outcomes: dict[str, PassOutcome] = {}
    at_work: dict[str, float] = {}
    going = True

    def stopping() -> bool:
        nonlocal going
        going = going and (watch is None or watch(len(outcomes) + sum(at_work.values()), len(passes)))
        return not going

    def tell(now: WorkerActivity) -> None:
        at_work[now.worker] = now.share if now.job is not None else 0.0

    with tempfile.TemporaryDirectory(prefix="bftrain-") as folder:
        executor = CachedExecutor(LocalExecutor(workers, Path(folder) / _PRINTS), cache)
        for outcome in executor.outcomes(passes, tell, stopping):
            outcomes[outcome.id] = outcome
    return outcomes if going and len(outcomes) == len(passes) else None
