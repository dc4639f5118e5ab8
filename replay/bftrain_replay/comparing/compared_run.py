"""The compared replays, each with its figures and its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bftrain.errors import BadInput
from bftrain.values import wire
from bftrain_replay.rounds.round_result import ROUNDS, RoundSummary
from bftrain_replay.run.result import ReplaySummary
from bftrain_replay.run.run import Run
from bftrain_replay.run.task_figures import TaskColumns
from bftrain_replay.study_run import REPLAY


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A replay, or a run in rounds, with its label."""

    label: str
    run: Run

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """Its figures; raise ``BadInput`` if they are not those of a replay or of rounds."""
        content, kind = self.run.content, self.run.kind
        if kind not in (REPLAY, ROUNDS):
            fix = "name replays, or runs in rounds"
            raise BadInput(f"a {kind.title} cannot be compared", where=content.place, fix=fix)
        where = content.place if content.made is not None else f"{content.place}/summary.json"
        try:
            wire.convert(self.run.summary, RoundSummary if self.in_rounds else ReplaySummary)
        except BadInput as error:
            what = f"not the summary of a replay: {error.what}"
            raise BadInput(what, where=where, fix="run the replay again, and do not edit its files") from error
        return self.run.summary

    @property
    def place(self) -> str:
        """Its folder; "" for a run in memory."""
        return "" if self.run.content.made is not None else self.run.content.place

    @property
    def in_rounds(self) -> bool:
        """Whether time was shared in rounds."""
        return self.run.kind is ROUNDS

    @property
    def cluster(self) -> Mapping[str, Any]:
        """The permanent nodes by kind, the latest stop and the stop reason; no nodes for a log."""
        summary, settings = self.summary, self.summary["settings"]
        if self.in_rounds:
            nodes = summary["inputs"].get("cluster", {})
            return {"nodes": nodes, "until_s": settings.get("until_s"), "why": summary["ended"]}
        found = summary.get("cluster") or {"nodes": {}, "until_s": None, "ended": {}}
        return {**found, "why": found["ended"].get(settings["solver"], "")}

    @property
    def tasks(self) -> TaskColumns:
        """The tasks; in rounds only the measured ones."""
        return self.run.task_columns

    @property
    def waits(self) -> int:
        """The number of waits of these tasks."""
        return sum(row["waits"] for row in self.run.measured_tasks)

    @cached_property
    def work_of_tasks(self) -> dict[str, tuple[float, float]]:
        """Return the samples and the node-hours of each task."""
        return {row["name"]: (row["done_samples"], row["node_h"]) for row in self.run.task_rows}
