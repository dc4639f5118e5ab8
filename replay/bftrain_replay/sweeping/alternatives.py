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
from bftrain_replay import advice, own_files, sensitivity
from bftrain_replay.origins import tasks_sha256
from bftrain_replay.sensitivity import Figures, SensitivityRow, alternatives
from bftrain_replay.sweeping.executors.local import Local, usable_cpus
from bftrain_replay.sweeping.outcomes import Status
from bftrain_replay.sweeping.passes import Kind, MadeFrom, Pass, versions_here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bftrain_replay.advice import AdviceRow, AdviceTrial
    from bftrain_replay.result import Summary
    from bftrain_replay.sensitivity import Alternative
    from bftrain_replay.settings import ReplaySettings
    from bftrain_replay.study import Study
    from bftrain_replay.sweeping.executors import AtWork
    from bftrain_replay.sweeping.inputs import LogFile, TaskFile

    # Told how many replays are done, parts of one counted, and of how many; says whether to go on
    Watch = Callable[[float, int], bool]

_PRINTS: Final = "workers.log"


class AlternativeReplays(NamedTuple):
    """What came of it: no rows if it was stopped; ``failed`` says why a replay of either has no figures."""

    rows: tuple[SensitivityRow, ...] | None
    advice: tuple[AdviceRow, ...] | None = None
    failed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AlternativePlan:
    """The replays that the table and the advice of ``study`` need; its log and tasks lie in files."""

    study: Study
    settings: ReplaySettings
    found: Sequence[Alternative]
    trials: Sequence[AdviceTrial]
    jobs: Mapping[int, str]  # by the place of an alternative: the id of its pass
    trial_jobs: Mapping[int, str]  # by the place of a trial: the id of its pass, which may be one of an alternative
    passes: tuple[Pass, ...]

    @property
    def workers(self) -> int:
        """How many replays run at once."""
        return min(usable_cpus(), len(self.passes))

    @property
    def expected_s(self) -> float:
        """About how long it takes: each as long as the main replay did."""
        return self.study.result.wall_s * -(-len(self.passes) // max(self.workers, 1))

    def results(self, figures: Mapping[str, Summary]) -> AlternativeReplays:
        """Return the rows of both, from the figures by the ids of their passes."""
        replayed = {place: Figures.of(figures[job]) for place, job in self.jobs.items()}
        tried = {place: figures[job] for place, job in self.trial_jobs.items()}
        return AlternativeReplays(
            sensitivity.rows_of(self.found, self.study.result, replayed),
            advice.rows_of(self.trials, self.study.result.summary(), tried),
        )


def plan(study: Study, settings: ReplaySettings, log: LogFile, tasks: TaskFile) -> AlternativePlan:
    """Find out what is to be replayed for the table and the advice of ``study``; the files are those of its inputs."""
    sensitivity.check(settings)
    anywhere = own_files.from_anywhere(replace(settings, metrics=""))  # nobody sees their metrics
    found = alternatives(anywhere, study.tasks)
    trials = advice.trials(study.result.summary(), anywhere)
    log_sha256, contents = study.log.sha256, tasks_sha256(study.tasks)
    passes: dict[str, Pass] = {}

    def job(words: str, changed: ReplaySettings) -> str:
        """Return the id of a pass with these settings, which is made if there is none."""
        made_from = MadeFrom(
            kind=Kind.REPLAY,
            log=log_sha256,
            tasks=contents,
            objective_file=own_files.sha256(changed),
            settings=wire.plain(changed),
            versions=versions_here(changed.solver),
        )
        if made_from.id not in passes:
            passes[made_from.id] = Pass(
                id=made_from.id,
                words=words,
                log=log,
                tasks=tasks,
                log_sha256=log_sha256,
                tasks_sha256=contents,
                settings=changed,
                made_from=made_from,
            )
        return made_from.id

    jobs = {
        place: job(f"{each.what} {each.setting}", each.settings)
        for place, each in enumerate(found)
        if each.settings is not None
    }
    trial_jobs = {place: job(each.option, each.settings) for place, each in enumerate(trials)}
    return AlternativePlan(study, settings, found, trials, jobs, trial_jobs, tuple(passes.values()))


def replay_alternatives(what: AlternativePlan, watch: Watch | None = None) -> AlternativeReplays:
    """Replay them all; nothing comes of it once ``watch`` says no."""
    words = {each.id: each.words for each in what.passes}
    figures: dict[str, Summary] = {}
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
        executor = Local(what.workers, Path(folder) / _PRINTS)
        for outcome in executor.outcomes(what.passes, tell, look):
            over += 1
            if outcome.status is Status.DONE and outcome.figures is not None:
                figures[outcome.id] = outcome.figures
            else:
                failed.append(f"{words[outcome.id]}: {outcome.reason}")
    if not going or over < len(what.passes):
        return AlternativeReplays(None)
    if failed:
        return AlternativeReplays(None, failed=tuple(failed))
    return what.results(figures)
