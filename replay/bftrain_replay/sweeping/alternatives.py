"""The sensitivity table and the advice of a replay: both replayed side by side, in processes of this machine.

The workers are those of a sweep, so one that dies costs its row and no more, and Ctrl-C ends them all.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from bftrain.values import wire
from bftrain_replay import plugin_files
from bftrain_replay.alternatives import advice, sensitivity
from bftrain_replay.alternatives.sensitivity import AlternativeFigures, SensitivityRow, alternatives
from bftrain_replay.provenance import tasks_sha256
from bftrain_replay.sweeping.executors.local_processes import LocalExecutor, usable_cpus
from bftrain_replay.sweeping.run_outcomes import PassStatus
from bftrain_replay.sweeping.sweep_runs import MadeFrom, RunKind, SweepPass, versions_here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bftrain_replay.alternatives.advice import AdviceRow, AdviceTrial
    from bftrain_replay.alternatives.sensitivity import SettingsAlternative
    from bftrain_replay.results.result import ReplaySummary
    from bftrain_replay.simulation.replay_settings import ReplaySettings
    from bftrain_replay.study import ReplayStudy
    from bftrain_replay.sweeping.executors import AtWork
    from bftrain_replay.sweeping.sweep_inputs import SweepLog, TaskFile

    # Called with how many replays are done, fractions of running ones included, and how many there are; returns
    # whether to go on
    Watch = Callable[[float, int], bool]

_PRINTS: Final = "workers.log"


class AlternativeReplays(NamedTuple):
    """The rows of table and advice; none if they were interrupted. ``failed`` says why replays have no figures."""

    rows: tuple[SensitivityRow, ...] | None
    advice: tuple[AdviceRow, ...] | None = None
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AlternativePlan:
    """The replays that the table and the advice of ``study`` need; its log and tasks lie in files."""

    study: ReplayStudy
    settings: ReplaySettings
    found: Sequence[SettingsAlternative]
    trials: Sequence[AdviceTrial]
    jobs: Mapping[int, str]  # by the place of an alternative: the id of its pass
    trial_jobs: Mapping[int, str]  # by the place of a trial: the id of its pass, which may be one of an alternative
    passes: tuple[SweepPass, ...]

    @property
    def workers(self) -> int:
        """How many replays run at once."""
        return min(usable_cpus(), len(self.passes))

    @property
    def expected_s(self) -> float:
        """Estimate how long it takes, if each takes as long as the main replay did."""
        return self.study.result.wall_s * -(-len(self.passes) // max(self.workers, 1))

    def results(self, figures: Mapping[str, ReplaySummary]) -> AlternativeReplays:
        """Return the rows of both, from the figures by the ids of their passes."""
        replayed = {place: AlternativeFigures.of(figures[job]) for place, job in self.jobs.items()}
        tried = {place: figures[job] for place, job in self.trial_jobs.items()}
        return AlternativeReplays(
            sensitivity.rows_of(self.found, self.study.result, replayed),
            advice.rows_of(self.trials, self.study.result.summary(), tried),
        )


class _Inputs(NamedTuple):
    """Files of a log and of tasks, and the hashes of what they hold."""

    log: SweepLog
    tasks: TaskFile
    log_sha256: str
    tasks_sha256: str

    def pass_with(self, settings: ReplaySettings, words: str) -> SweepPass:
        """Return the pass that replays these inputs with ``settings``; ``words`` name it in messages."""
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
            settings=settings,
            made_from=made_from,
        )


def plan(study: ReplayStudy, settings: ReplaySettings, log: SweepLog, tasks: TaskFile) -> AlternativePlan:
    """Return the replays that the table and the advice of ``study`` need; the files are those of its inputs."""
    sensitivity.check(settings)
    anywhere = plugin_files.from_anywhere(replace(settings, metrics=""))  # no metric stands in the table or the advice
    found = alternatives(anywhere, study.tasks)
    trials = advice.trials(study.result.summary(), anywhere)
    inputs = _Inputs(log, tasks, study.log.sha256, tasks_sha256(study.tasks))
    changes = {
        place: inputs.pass_with(each.settings, f"{each.what} {each.setting}")
        for place, each in enumerate(found)
        if each.settings is not None
    }
    tried = {place: inputs.pass_with(each.settings, each.option) for place, each in enumerate(trials)}
    passes: dict[str, SweepPass] = {}
    for each in (*changes.values(), *tried.values()):
        passes.setdefault(each.id, each)  # a trial of the advice may be an alternative of the table too
    jobs, trial_jobs = ({place: each.id for place, each in made.items()} for made in (changes, tried))
    return AlternativePlan(study, settings, found, trials, jobs, trial_jobs, tuple(passes.values()))


def replay_alternatives(what: AlternativePlan, watch: Watch | None = None) -> AlternativeReplays:
    """Replay them all; return no rows once ``watch`` returns ``False``."""
    words = {each.id: each.words for each in what.passes}
    figures: dict[str, ReplaySummary] = {}
    failed: list[str] = []
    at_work: dict[str, float] = {}
    over, going = 0, True

    def look() -> bool:
        nonlocal going
        going = going and (watch is None or watch(over + sum(at_work.values()), len(what.passes)))
        return not going

    def tell(now: AtWork) -> None:
        at_work[now.worker] = now.share if now.job is not None else 0.0

    with tempfile.TemporaryDirectory(prefix="bftrain-") as folder:
        executor = LocalExecutor(what.workers, Path(folder) / _PRINTS)
        for outcome in executor.outcomes(what.passes, tell, look):
            over += 1
            if outcome.status is PassStatus.DONE and outcome.figures is not None:
                figures[outcome.id] = outcome.figures
            else:
                failed.append(f"{words[outcome.id]}: {outcome.reason}")
    if not going or over < len(what.passes):
        return AlternativeReplays(None)
    if failed:
        return AlternativeReplays(None, failed=tuple(failed))
    return what.results(figures)
