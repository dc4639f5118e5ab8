"""Result: a schedule with all that was computed from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bftrain_datasets.eventlog import EventLog
    from bftrain_datasets.scheduling.campaign_figures import CampaignFigures
    from bftrain_datasets.scheduling.engine import Schedule
    from bftrain_datasets.scheduling.figures import JobFigures, ScheduleSummary
    from bftrain_datasets.scheduling.jobs import Workload
    from bftrain_datasets.scheduling.placing import Places
    from bftrain_datasets.scheduling.settings import ScheduleSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What went in, what became of it, and ``wall_s``, the seconds that the simulation took.

    ``log`` is the derived log of idle nodes.
    """

    settings: ScheduleSettings
    workload: Workload
    schedule: Schedule
    jobs: JobFigures
    campaigns: CampaignFigures
    places: Places
    log: EventLog
    summary: ScheduleSummary
    wall_s: float

    @property
    def complete(self) -> bool:
        """Whether it ended as it was to end."""
        return self.summary.complete
