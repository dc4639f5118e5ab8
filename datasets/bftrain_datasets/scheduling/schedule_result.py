"""ScheduleResult: a schedule with all that was computed from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bftrain import text_formats
from bftrain.short_repr import ShortRepr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bftrain_datasets.log.eventlog import EventLog
    from bftrain_datasets.scheduling.campaign_figures import CampaignFigures
    from bftrain_datasets.scheduling.job_placement import PlacedJobs
    from bftrain_datasets.scheduling.jobs import JobWorkload
    from bftrain_datasets.scheduling.schedule_engine import JobSchedule
    from bftrain_datasets.scheduling.schedule_figures import JobFigures, ScheduleSummary
    from bftrain_datasets.scheduling.schedule_settings import ScheduleSettings


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ScheduleResult(ShortRepr):
    """What went in, what became of it, and ``wall_s``, the seconds that the simulation took.

    ``log`` is the derived log of idle nodes.
    """

    settings: ScheduleSettings
    workload: JobWorkload
    schedule: JobSchedule
    jobs: JobFigures
    campaigns: CampaignFigures
    places: PlacedJobs
    log: EventLog
    summary: ScheduleSummary
    wall_s: float

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures that stand for it in short."""
        figures = self.summary
        return f"simulated schedule by {figures.policy}", {
            "ended": figures.ended.replace("_", " "),
            "nodes": f"{figures.nodes:,}",
            "jobs done": f"{figures.done:,} of {figures.jobs:,}",
            "simulated": text_formats.duration(figures.simulated_s),
            "utilisation": text_formats.percent(figures.utilisation),
            "wait, mean": text_formats.duration(figures.wait_s.mean),
            "idle": text_formats.percent(self.log.idle_share),
        }

    @property
    def complete(self) -> bool:
        """Whether it ended as it was to end."""
        return self.summary.complete
