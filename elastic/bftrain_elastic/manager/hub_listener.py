"""The interface from the hub to a launcher: its events, and the launcher and task of each worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bftrain_elastic.manager.task_lifecycles import TaskLifecycle
from bftrain_elastic.wire.agent_messages import LeftWorker


class HubListener(Protocol):
    """A launcher, which passes events of agents and workers to the lifecycles of its tasks."""

    def tell_task(self, task: str, tell: Callable[[TaskLifecycle], object]) -> object:
        """Pass an event of a worker to the lifecycle of its task."""

    def tell_node(self, node: str, tell: Callable[[TaskLifecycle], object], *, leaves: bool = False) -> None:
        """Pass an event to the lifecycles of tasks that hold a node, or with ``leaves`` have workers there."""

    def adopt(self, task: str, node: str, left: LeftWorker) -> bool:
        """Return whether a worker of an earlier manager is taken over, or its end is of use."""

    def tick(self, now: float) -> None:
        """Do periodic work, ten times a second."""


@dataclass(frozen=True, slots=True)
class WorkerOwner:
    """The launcher and the task of a worker."""

    listener: HubListener
    task: str
    node: str
