"""Floors: what the course of one task may ask of the hub."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.manager.spawn_queue import HubListener
from bftrain_elastic.manager.task_lifecycles import GroupPlace
from bftrain_elastic.wire.messages import Message


class HubTaskContext:
    """What one course may ask of the hub."""

    def __init__(self, hub: AgentHub, listener: HubListener, task: str, places: Mapping[str, str]) -> None:
        self._hub = hub
        self._listener = listener
        self._task = task
        self._places = dict(places)  # cwd and logs

    @property
    def settle_s(self) -> float:
        """How long a preemption may take to reach all processes of a node and its agent."""
        return self._hub.settle_s

    def now(self) -> float:
        """Seconds on a clock that does not run backwards."""
        return time.monotonic()

    def slots(self, node: str) -> int:
        """How many workers a node takes; 0 where no agent is registered."""
        agent = self._hub.agent(node)
        return agent.slots if agent else 0

    def address(self, node: str) -> str:
        """Where other nodes reach this one."""
        agent = self._hub.agent(node)
        return agent.address if agent else ""

    def name(self, node: str, slot: int) -> str:
        """Give a new worker's name."""
        return self._hub.new_name(self._task, node, slot)

    def spawn(self, node: str, worker: str, **how: Any) -> None:  # noqa: ANN401 - as in Floor
        """Start a worker."""
        place: GroupPlace | None = how.get("place")
        message: Message = {
            "type": "spawn",
            "worker": worker,
            "task": self._task,
            "argv": list(how["argv"]),
            "env": dict(how["env"]),
            "cwd": self._places["cwd"],
            "log": f"{self._places['logs']}/{node.replace('/', '_')}-{how.get('slot', 0)}.log",
            "slot": how.get("slot", 0),
            "warm": how.get("warm", True),
            "want_port": how.get("want_port", False),
            "all_gpus": how.get("all_gpus", False),
            "place": place and asdict(place),
            "finish_code": how.get("finish_code"),
            "finish_file": how.get("finish_file", ""),
        }
        self._hub.spawn(self._listener, node, self._task, message)

    def inspect(self, worker: str) -> None:
        """Have the stacks of a worker written into its log."""
        self._hub.inspect(worker)

    def say(self, worker: str, message: Message) -> None:
        """Send a worker a message."""
        self._hub.say(worker, message)

    def stop(self, worker: str, *, grace_s: float) -> None:
        """Stop a worker."""
        self._hub.stop(worker, grace_s)

    def tell(self, event: Message) -> None:
        """Tell the manager."""
        self._hub.tell({"task": self._task, **event})
