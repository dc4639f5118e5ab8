"""How campaigns fared: their stretch, and the bound that the fair schedule sets to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from bftrain_datasets.scheduling.campaigns import NO_CAMPAIGN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain_datasets.scheduling.schedule_engine import JobSchedule

LEAST_S: Final = 10.0  # no campaign is taken to need less time than this
ROUNDING: Final = 1e-9  # relative; the two sides of a comparison are sums of different numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class CampaignFigures:
    """One place a campaign, in order of creation; NaN where something did not happen.

    ``work`` and ``previous`` are node-seconds (of shared nodes processor-seconds), all ``_s`` are seconds;
    ``created_s`` and the two ends count from the first submission. ``done`` are campaigns all of whose jobs ended;
    only these have a ``stretch`` and a ``bound_s``.
    """

    user: NDArray[np.int64]
    created_s: NDArray[np.float64]
    jobs: NDArray[np.int64]
    work: NDArray[np.float64]
    longest_s: NDArray[np.float64]
    least_s: NDArray[np.float64]
    end_s: NDArray[np.float64]
    virtual_end_s: NDArray[np.float64]
    rivals: NDArray[np.float64]
    previous: NDArray[np.float64]
    bound_s: NDArray[np.float64]
    stretch: NDArray[np.float64]
    stretch_bound: NDArray[np.float64]

    @property
    def done(self) -> NDArray[np.bool_]:
        """Whether all jobs of a campaign ended."""
        return np.isfinite(self.end_s)

    @property
    def flow_s(self) -> NDArray[np.float64]:
        """Time from the creation to the end of the last job."""
        return self.end_s - self.created_s

    @property
    def within(self) -> NDArray[np.bool_]:
        """Whether a campaign ended within its bound; those that have not ended did not."""
        return self.flow_s <= self.bound_s * (1 + ROUNDING)


@dataclass(frozen=True, slots=True)
class _Members:
    """The jobs that were submitted and not refused: the campaign of each, and what is known of it."""

    campaign: NDArray[np.int64]
    size: NDArray[np.float64]
    submit_s: NDArray[np.float64]
    run_s: NDArray[np.float64]
    stop_s: NDArray[np.float64]  # infinite for those that have not ended


def figures(schedule: JobSchedule) -> CampaignFigures:
    """Compute them. Jobs that were refused belong to no campaign.

    The bound is that of OStrich (docs/schedule.md has the proof): a campaign waits for the work that its user had left
    and for its own, each as often as there are rivals; for one job that was running; and for its own longest job.
    """
    campaigns, members = schedule.campaigns, _members(schedule)
    number, count = members.campaign, len(campaigns)
    user = np.array(campaigns.user, dtype=np.int64)
    created_s = np.array(campaigns.created_s, dtype=np.float64)
    work = np.bincount(number, members.size * members.run_s, minlength=count).astype(np.float64)
    longest_s = _largest(number, members.run_s, count)
    end_s = _ends(schedule, members)
    virtual_end_s = campaigns.virtual.times_of(campaigns.virtual.tag)
    rivals = campaigns.virtual.most_shares(created_s, np.nan_to_num(virtual_end_s, nan=schedule.end_s))
    rivals = rivals / np.array(schedule.jobs.shares)[user]
    previous = np.maximum(np.array(campaigns.previous), 0.0)
    last_submit_s = np.maximum(_largest(number, members.submit_s, count), created_s)
    waited_for = rivals * (previous + np.maximum(np.array(campaigns.planned), work)) / schedule.nodes
    bound_s = last_submit_s - created_s + waited_for + float(members.run_s.max(initial=0.0)) + longest_s
    bound_s[np.isnan(end_s)] = np.nan
    least_s = np.maximum(np.maximum(work / schedule.nodes, longest_s), LEAST_S)
    jobs = np.bincount(number, minlength=count)
    virtual_end_s[jobs == 0] = np.nan
    return CampaignFigures(
        user=user,
        created_s=created_s,
        jobs=jobs,
        work=work,
        longest_s=longest_s,
        least_s=least_s,
        end_s=end_s,
        virtual_end_s=virtual_end_s,
        rivals=rivals,
        previous=previous,
        bound_s=bound_s,
        stretch=np.maximum(1.0, (end_s - created_s) / least_s),
        stretch_bound=np.maximum(1.0, bound_s / least_s),
    )


def _members(schedule: JobSchedule) -> _Members:
    jobs = schedule.jobs
    taken = np.isfinite(schedule.first_planned_s)
    run_s = np.array(jobs.run_s)[taken]
    stop_s = np.array(schedule.start_s)[taken] + run_s
    return _Members(
        campaign=np.array(schedule.campaigns.of, dtype=np.int64)[taken],
        size=np.array(jobs.size, dtype=np.float64)[taken],
        submit_s=np.array(jobs.submit_s)[taken],
        run_s=run_s,
        stop_s=np.where(stop_s <= schedule.end_s, stop_s, np.inf),
    )


def _ends(schedule: JobSchedule, members: _Members) -> NDArray[np.float64]:
    """Give when the last job of each campaign ended; NaN if one has not ended, or has not even arrived."""
    count = len(schedule.campaigns)
    end_s = _largest(members.campaign, members.stop_s, count)
    all_jobs = np.array(schedule.campaigns.of, dtype=np.int64)
    expected = np.bincount(all_jobs[all_jobs != NO_CAMPAIGN], minlength=count)
    arrived = np.bincount(members.campaign, minlength=count)
    return np.where((arrived == expected) & (arrived > 0) & np.isfinite(end_s), end_s, np.nan)


def _largest(number: NDArray[np.int64], values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Give the largest value of each campaign; 0 for one that has none."""
    largest = np.full(count, -np.inf)
    np.maximum.at(largest, number, values)
    return np.where(largest == -np.inf, 0.0, largest)
