"""PolicyChoice: which policy would have served the recent tasks of a live run best, by simulation.

``policy = "auto"`` names it in a site file; ``auto=rho,las,max-min`` also gives the figure and the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from bftrain.errors import BftrainError, UnknownName
from bftrain.text_formats import counted
from bftrain.values.task import TaskSpec
from bftrain_replay.rounds.round_policy import find_policy
from bftrain_replay.rounds.round_settings import RoundSettings
from bftrain_replay.rounds.simulation import simulate

AUTO: Final = "auto"
FIGURES: Final = ("completion", "response", "rho", "makespan")
CANDIDATES: Final = ("fifo", "las", "srtf", "max-min", "finish-time")
_EVERY_ROUNDS: Final = 10
_FEWEST_TASKS: Final = 5  # a simulation of fewer would be no guide
RECENT: Final = 100  # number of tasks in a simulation, which keeps it short
_LEAST_GAIN: Final = 0.01  # smallest improvement for which the policy changes, relative


class PolicyChoice:
    """Chooses a policy again every ten rounds, and simulates one candidate a round. ``name`` is the present policy."""

    def __init__(self, settings: RoundSettings) -> None:
        word, *names = settings.policy.removeprefix(AUTO).removeprefix("=").split(",")
        self._figure = word or FIGURES[0]
        if self._figure not in FIGURES:
            raise UnknownName.among("figure", self._figure, FIGURES)
        self._candidates = tuple(names) or CANDIDATES
        self._settings = replace(settings, policy=self._candidates[0])
        for name in self._candidates:
            find_policy(replace(settings, policy=name))
        self._due_s = 0.0
        self._tasks: tuple[TaskSpec, ...] = ()  # the tasks of the present comparison
        self._found: dict[str, float | None] = {}  # the figures of its candidates so far
        self.name = self._candidates[0]

    def look(self, time_s: float, tasks: Sequence[TaskSpec], nodes: Mapping[str, int]) -> str:
        """Compare on ``nodes`` by kind at the start of a round; return the reason of a choice, or "" if none is due."""
        if not self._tasks:
            recent = sorted((task for task in tasks if task.work_samples is not None), key=lambda task: task.submit_s)
            if time_s < self._due_s or len(recent) < _FEWEST_TASKS:
                return ""
            self._due_s = time_s + _EVERY_ROUNDS * self._settings.round_s
            self._tasks = tuple(replace(task, submit_s=task.submit_s - recent[0].submit_s) for task in recent)
        name = self._candidates[len(self._found)]
        self._found[name] = self._simulated(name, self._tasks, nodes)
        return self._chosen() if len(self._found) == len(self._candidates) else ""

    def _chosen(self) -> str:
        """Take the best candidate; return the reason."""
        found = {name: figure for name, figure in self._found.items() if figure is not None}
        best = min(found, key=lambda name: found[name], default=self.name)
        if found and found[best] < found.get(self.name, math.inf) * (1.0 - _LEAST_GAIN):
            self.name = best
        values = ", ".join(f"{name} {figure:,.4g}" for name, figure in found.items())
        count = counted(len(self._tasks), "task")
        self._tasks, self._found = (), {}
        return f"{self.name} for {self._figure} of {count} in simulation: {values}" if found else ""

    def _simulated(self, name: str, tasks: Sequence[TaskSpec], nodes: Mapping[str, int]) -> float | None:
        """Return the figure with a policy; ``None`` if the policy or some tasks do not fit the nodes."""
        try:
            result = simulate(nodes, tasks, replace(self._settings, policy=name))
        except BftrainError:
            return None
        if self._figure == "makespan":
            return result.summary.makespan_s
        figures = result.task_figures
        by_name = {"completion": figures.completion_s, "response": figures.response_s, "rho": figures.rho}
        percentiles = by_name[self._figure]
        return percentiles.mean if percentiles is not None else None
