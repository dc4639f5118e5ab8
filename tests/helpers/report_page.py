"""The page of a replay's report, and what it was made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bftrain import EventLog, Settings, TaskSpec
from bftrain_replay.drawing.theme import DARK, LIGHT
from bftrain_replay.provenance import InputSource
from bftrain_replay.reporting import report
from bftrain_replay.reporting.losses import CAUSES
from bftrain_replay.reporting.report_data import ReportData, of_study
from bftrain_replay.study import study

LOSSES: Final = tuple(cause.name for cause in CAUSES)

__all__ = ["DARK", "LIGHT", "LOSSES", "ReportData", "material_of", "rendered"]


def material_of(log: EventLog, tasks: Sequence[TaskSpec], *, baseline: str = "") -> ReportData:
    """Replay a log, and return what its report shows."""
    return of_study(study(log, tasks, Settings(), baseline=baseline), InputSource(log="a.npz", tasks="b.toml"))


def rendered(material: ReportData) -> str:
    """Return the page."""
    return report.render(material)
