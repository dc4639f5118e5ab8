"""Harvesting: pauses and resumes the use of all nodes, and measures how fast they are handed back."""

from __future__ import annotations

import math
import time
from collections import deque
from typing import Any, Final

from bftrain.live.model.schemas import HandBack, HarvestingView
from bftrain.live.schedulers.base import Scheduler
from bftrain.live.tasks.task_store import TaskStore

_PAUSED: Final = "harvesting is paused until"  # fact: seconds since 1970, or inf
_HAND_BACKS: Final = 100
_WAITING: Final = "waiting"


class Harvesting:
    """The pause of a live run, which survives a restart, and the latest hand-backs.

    During a pause all tasks wait, and no job of ours is on a node or in the scheduler's queue.
    """

    def __init__(self, task_store: TaskStore, scheduler: Scheduler) -> None:
        self._task_store = task_store
        self._scheduler = scheduler
        self._until_s = float(task_store.fact(_PAUSED) or 0.0)
        self._leaving: dict[str, tuple[float, float]] = {}  # node -> when its workers were killed, and how long it took
        self._hand_backs: deque[HandBack] = deque(maxlen=_HAND_BACKS)

    @property
    def paused(self) -> bool:
        """Whether no node is to be used now."""
        return time.time() < self._until_s

    @property
    def until_s(self) -> float | None:
        """The end of a pause; ``None`` without a pause or a known end."""
        return self._until_s if self.paused and math.isfinite(self._until_s) else None

    def shown(self, state: str) -> str:
        """Return the state of the live run as callers see it."""
        return "paused" if state == "running" and self.paused else state

    @property
    def view(self) -> HarvestingView:
        """Return the state as the API shows it."""
        facts = self._scheduler.facts()
        return HarvestingView(
            paused=self.paused,
            until_s=self.until_s,
            waiting_pilots=(facts.pilots or {}).get(_WAITING, 0),
            partitions=facts.partitions,
            handbacks=tuple(self._hand_backs),
        )

    def set_until(self, until_s: float) -> None:
        """Use no node until a time; 0: use them now. The caller writes the due statements."""
        self._until_s = until_s
        self._task_store.record_fact(_PAUSED, f"{until_s:.3f}" if until_s else "")

    def observe(self, what: str, value: Any) -> None:  # noqa: ANN401 - a message or another observed value
        """Note how an agent left a node that the scheduler wanted."""
        if what != "message" or value["type"] not in {"gone", "agent_ended"}:
            return
        node, after_s = value["node"], float(value.get("after_s", 0.0))
        if value["type"] == "gone":
            self._leaving.pop(node, None)
            if value.get("noticed"):
                self._leaving[node] = (value["t"], after_s)
        elif (left := self._leaving.pop(node, None)) is not None:
            self._hand_backs.append(HandBack(node=node, time_s=left[0], kill_s=left[1], exit_s=after_s))
