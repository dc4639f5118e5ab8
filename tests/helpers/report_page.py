"""The page of a replay's report, and the figures that it shows."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bftrain
from bftrain import EventLog, TaskSpec
from bftrain_replay.drawing.theme import LIGHT

__all__ = ["LIGHT", "ReportData", "material_of", "rendered"]


@dataclass(frozen=True)
class ReportData:
    """A replay of a log."""

    log: EventLog
    done: Any  # what bftrain.replay() returns

    @property
    def holdings(self) -> Any:  # noqa: ANN401 - of the result
        """Who held which node; it has ``table()``."""
        return self.done.result.allocations

    @property
    def nodes_over_time(self) -> Any:  # noqa: ANN401 - as below
        """How many nodes were idle and used, from each time on."""
        result = self.done.result
        return SimpleNamespace(times_s=result.times_s, columns={"idle": result.pool, "used": result.used})

    @property
    def tasks(self) -> list[dict[str, Any]]:
        """The rows of the table of tasks."""
        frame = self.done.result.table("tasks").astype(object)
        return list(frame.where(frame.notna(), None).to_dict("records"))


def material_of(log: EventLog, tasks: Sequence[TaskSpec], *, baseline: str = "") -> ReportData:
    """Replay a log, and return what its report shows."""
    return ReportData(log, bftrain.replay(log, tasks, baseline=baseline))


def rendered(material: ReportData) -> str:
    """Return the page."""
    with tempfile.TemporaryDirectory() as folder:
        material.done.report(Path(folder) / "page.html")
        return (Path(folder) / "page.html").read_text(encoding="utf-8")
