"""Result: a schedule with all that was computed from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bftrain import words
from bftrain.short_repr import ShortRepr

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bftrain_datasets.eventlog import EventLog
    from bftrain_datasets.scheduling.campaign_figures import CampaignFigures
    from bftrain_datasets.scheduling.engine import Schedule
    from bftrain_datasets.scheduling.figures import JobFigures, ScheduleSummary
    from bftrain_datasets.scheduling.jobs import Workload
    from bftrain_datasets.scheduling.placing import Places
    from bftrain_datasets.scheduling.settings import ScheduleSettings


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result(ShortRepr):
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

    def shown(self) -> tuple[str, Mapping[str, object]]:
        """Return the title and the figures that stand for it in short."""
        figures = self.summary
        return f"simulated schedule by {figures.policy}", {
            "ended": figures.ended.replace("_", " "),
            "nodes": f"{figures.nodes:,}",
            "jobs done": f"{figures.done:,} of {figures.jobs:,}",
            "simulated": words.duration(figures.simulated_s),
            "utilisation": words.percent(figures.utilisation),
            "wait, mean": words.duration(figures.wait_s.mean),
            "idle": words.percent(self.log.idle_share),
        }

    @property
    def complete(self) -> bool:
        """Whether it ended as it was to end."""
        return self.summary.complete
