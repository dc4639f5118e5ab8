"""What the hub knows of a launcher: the events it wants to know of, and which launcher and task a worker belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from bftrain_elastic.manager.task_lifecycles import TaskLifecycle
from bftrain_elastic.wire.messages import Message


class HubListener(Protocol):
    """A launcher: knows the lifecycles that events of agents and workers are for."""

    def tell_task(self, task: str, tell: Callable[[TaskLifecycle], object]) -> object:
        """Let the lifecycle of a task know of an event of one of its workers."""

    def tell_node(self, node: str, tell: Callable[[TaskLifecycle], object], *, leaves: bool = False) -> None:
        """Let the lifecycles of tasks that hold a node, or with ``leaves`` have workers there, know of an event."""

    def adopt(self, task: str, node: str, left: Message) -> bool:
        """Return whether a worker of an earlier manager is taken over, or its end is of use."""

    def tick(self, now: float) -> None:
        """Look at the clock, ten times a second."""


@dataclass(frozen=True, slots=True)
class WorkerOwner:
    """The launcher that started a worker, and for what."""

    listener: HubListener
    task: str
    node: str
