"""Harvesting: pauses and resumes the use of all nodes, and measures how fast they are handed back."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from bftrain.live.model.harvesting import HandBack, HarvestingView
from bftrain.live.nodes.node_manager import NodeManager
from bftrain.live.schedulers.base import Scheduler
from bftrain.live.tasks.task_store import TaskStore

_PAUSED: Final = "harvesting is paused until"  # as a fact: seconds since 1970, or inf
_REMEMBERED: Final = 100  # hand-backs
_WAITING: Final = "waiting"


class Harvesting:
    """Pauses and resumes the use of nodes. Everything belongs to the event loop.

    While it is paused all tasks wait and nothing of ours is on any node or in the scheduler's queue. That survives a
    restart.
    """

    def __init__(
        self, task_store: TaskStore, node_manager: NodeManager, scheduler: Scheduler, remark: Callable[[str], None]
    ) -> None:
        self._task_store = task_store
        self._node_manager = node_manager
        self._scheduler = scheduler
        self._remark = remark
        self._until_s = float(task_store.fact(_PAUSED) or 0.0)
        self._leaving: dict[str, tuple[float, float]] = {}  # node -> when its workers were killed, and how long it took
        self._handbacks: deque[HandBack] = deque(maxlen=_REMEMBERED)
        node_manager.node_tracker.paused = self.paused

    @property
    def paused(self) -> bool:
        """Whether no node is to be used now."""
        return time.time() < self._until_s

    @property
    def until_s(self) -> float | None:
        """The end of a pause; ``None`` if it is not paused, or without a known end."""
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
            handbacks=tuple(self._handbacks),
        )

    def set_until(self, until_s: float) -> None:
        """Use no node until a time; 0: use them now. The caller writes the due statements and updates the demand."""
        self._until_s = until_s
        self._task_store.record_fact(_PAUSED, f"{until_s:.3f}" if until_s else "")
        self.apply()

    def apply(self) -> bool:
        """Begin or end a pause whose time has come; return whether there was anything to do."""
        tracker = self._node_manager.node_tracker
        if tracker.paused == self.paused:
            return False
        tracker.paused = self.paused
        self._remark("harvesting is paused: no node is used" if self.paused else "harvesting goes on")
        self._node_manager.leave_all() if self.paused else self._node_manager.synchronise_pool()
        return True

    def observe(self, what: str, value: Any) -> None:  # noqa: ANN401 - a message, or what else is observed
        """Note how an agent left a node that the scheduler wanted."""
        if what != "message" or value["type"] not in {"gone", "agent_ended"}:
            return
        node, after_s = value["node"], float(value.get("after_s", 0.0))
        if value["type"] == "gone":
            self._leaving.pop(node, None)
            if value.get("noticed"):
                self._leaving[node] = (value["t"], after_s)
        elif (left := self._leaving.pop(node, None)) is not None:
            self._handbacks.append(HandBack(node=node, time_s=left[0], kill_s=left[1], exit_s=after_s))
