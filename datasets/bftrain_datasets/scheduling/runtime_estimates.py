"""Estimates: what a main scheduler believes of run times, and how it learns that it was wrong.

No job is ever ended here for running long: it did run as long as the log says. But a policy plans with estimates.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from bftrain_datasets.scheduling.jobs import UNLIMITED
from bftrain_datasets.scheduling.schedule_settings import ACTUAL, LAST_TWO, LIMIT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bftrain_datasets.scheduling.jobs import JobTable

# How much longer a job is believed to run each time it outlives what was believed. These are the steps that D. Tsafrir,
# Y. Etsion and D. Feitelson take in "Backfilling using system-generated predictions" (2007).
STEPS_S: Final = (60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 18_000.0, 36_000.0, 72_000.0, 180_000.0, 360_000.0)
LEAST_S: Final = 1.0  # a job that takes no time needs its nodes all the same


class RuntimeEstimator(Protocol):
    """Says how long a job will run, once when it is submitted, and again whenever it has run longer."""

    def at_submission(self, job: int) -> float:
        """Give the seconds that the job is believed to run."""
        ...

    def ended(self, job: int) -> None:
        """Learn from a job that ended."""
        ...

    def longer(self, job: int, times: int, ran_s: float) -> float:
        """Give a larger estimate than ``ran_s`` for a job that outlives its estimate for so many ``times``."""
        ...


class RequestedLimits:
    """The time that a user asked for; where none was asked for, the run time itself."""

    def __init__(self, jobs: JobTable) -> None:
        self._known_s = [
            (run_s or LEAST_S) if limit_s == UNLIMITED else limit_s
            for run_s, limit_s in zip(jobs.run_s, jobs.limit_s, strict=True)
        ]

    def at_submission(self, job: int) -> float:
        """Give the limit."""
        return self._known_s[job]

    def ended(self, job: int) -> None:
        """Learn nothing."""

    def longer(self, job: int, times: int, ran_s: float) -> float:  # noqa: ARG002 - see Estimator
        """Add a step."""
        return ran_s + step_s(times)


class ActualRuntimes:
    """The run time itself: what a scheduler could do that knew it."""

    def __init__(self, jobs: JobTable) -> None:
        self._run_s = [run_s or LEAST_S for run_s in jobs.run_s]

    def at_submission(self, job: int) -> float:
        """Give the run time."""
        return self._run_s[job]

    def ended(self, job: int) -> None:
        """Learn nothing."""

    def longer(self, job: int, times: int, ran_s: float) -> float:  # noqa: ARG002 - see Estimator
        """Add a step; no job ever needs it."""
        return ran_s + step_s(times)


class LastTwoRuntimes:
    """The mean of the run times of the two jobs of the same user that ended last, and never more than the limit.

    Until two have ended it is the limit.
    """

    def __init__(self, jobs: JobTable) -> None:
        self._jobs = jobs
        self._limits = RequestedLimits(jobs)
        self._last: dict[int, tuple[float, ...]] = {}

    def at_submission(self, job: int) -> float:
        """Give the mean, if there are two."""
        last = self._last.get(self._jobs.user[job], ())
        if len(last) < 2:  # noqa: PLR2004 - the two
            return self._limits.at_submission(job)
        return min(max(sum(last) / 2, LEAST_S), self._jobs.limit_s[job])

    def ended(self, job: int) -> None:
        """Remember how long it ran."""
        user = self._jobs.user[job]
        self._last[user] = (*self._last.get(user, ())[-1:], self._jobs.run_s[job])

    def longer(self, job: int, times: int, ran_s: float) -> float:
        """Add a step, up to the limit as long as that is not reached."""
        limit_s = self._jobs.limit_s[job]
        raised_s = ran_s + step_s(times)
        return min(raised_s, limit_s) if limit_s > ran_s else raised_s


KINDS: Final[Mapping[str, Callable[[JobTable], RuntimeEstimator]]] = {
    LIMIT: RequestedLimits,
    ACTUAL: ActualRuntimes,
    LAST_TWO: LastTwoRuntimes,
}


def estimator(kind: str, jobs: JobTable) -> RuntimeEstimator:
    """Make the estimator of this kind."""
    return KINDS[kind](jobs)


def step_s(times: int) -> float:
    """Give the step for the time in question, from 1 on; the last one is for all further ones."""
    return STEPS_S[min(times, len(STEPS_S)) - 1]
