"""DailyHarvest: what was done on each of the last days, kept through restarts."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from msgspec.structs import replace

from bftrain.errors import BftrainError
from bftrain.live.model.schemas import Harvested
from bftrain.live.model.task_record import Progress
from bftrain.values import wire

_DAYS: Final = 31


class DailyHarvest:
    """Samples and node-seconds by day, from the progress of tasks."""

    def __init__(self, text: str = "") -> None:
        self._days: dict[str, Harvested] = {}
        self._seen: dict[int, Progress] = {}  # task -> what of it is counted already
        try:
            known = wire.decode(text, tuple[Harvested, ...]) if text else ()
        except BftrainError:
            known = ()  # it is for people to look at, nothing depends on it
        self._days = {one.day: one for one in known}

    def begin(self, number: int, progress: Progress) -> None:
        """Know what a task had done before."""
        self._seen[number] = progress

    def count(self, number: int, progress: Progress, time_s: float) -> None:
        """Count what a task did since it was counted last."""
        before = self._seen.get(number, Progress())
        self._seen[number] = progress
        samples, node_s = progress.harvested - before.harvested, progress.node_s - before.node_s
        if samples or node_s:
            day = time.strftime("%Y-%m-%d", time.localtime(time_s))
            today = self._days.get(day) or Harvested(day=day)
            self._days[day] = replace(today, samples=today.samples + samples, node_s=today.node_s + node_s)
            for old in sorted(self._days)[:-_DAYS]:
                del self._days[old]

    def forget(self, numbers: Iterable[int]) -> None:
        """Forget tasks that are over."""
        for number in numbers:
            self._seen.pop(number, None)

    @property
    def days(self) -> tuple[Harvested, ...]:
        """Give the days, the last one last."""
        return tuple(self._days[day] for day in sorted(self._days))

    @property
    def text(self) -> str:
        """Its JSON form, to go on from."""
        return wire.encode(self.days).decode()
