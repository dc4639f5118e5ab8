"""Workers that are to be started as soon as their node has room for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from bftrain_elastic.manager.agent_connection import AgentConnection
from bftrain_elastic.manager.task_lifecycles import WorkerExit
from bftrain_elastic.wire.messages import Message


class HubListener(Protocol):
    """Hears of agents and workers: a launcher."""

    def node_up(self, node: str) -> None:
        """Know that an agent registered."""
        ...

    def node_gone(self, node: str) -> None:
        """Know that an agent left."""
        ...

    def notice(self, node: str, grace_s: float) -> None:
        """Know that a node will be taken in ``grace_s`` seconds."""
        ...

    def adopt(self, task: str, node: str, left: Message) -> bool:
        """Return whether a worker of an earlier manager is taken over, or its end is of use."""
        ...

    def spawned(self, task: str, worker: str, port: int) -> None:
        """Know that a worker was started."""
        ...

    def inspected(self, task: str, worker: str, process_state: str) -> None:
        """Know the state of a worker's process."""
        ...

    def said(self, task: str, worker: str, message: Message) -> None:
        """Hear what a worker says."""
        ...

    def exited(self, task: str, worker: str, exit: WorkerExit) -> None:  # noqa: A002 - as in Course
        """Know that a worker ended, and how."""
        ...

    def tick(self, now: float) -> None:
        """Look at the clock, ten times a second."""
        ...


@dataclass(frozen=True)
class WaitingWorker:
    """A worker that waits for its node: other tasks end there first, and what ran on its slot."""

    node: str
    task: str
    message: Message

    @property
    def name(self) -> str:
        """Return its name."""
        return str(self.message["worker"])

    def has_room(self, agent: AgentConnection) -> bool:
        """Return whether it can start now; nothing starts on a node that is about to be taken."""
        here = agent.workers.values()
        return not agent.noticed and all(one.task == self.task and one.slot != self.message["slot"] for one in here)


class SpawnQueue:
    """The workers that wait, in the order in which they were ordered."""

    def __init__(self) -> None:
        self._waiting: list[WaitingWorker] = []

    def add(self, worker: WaitingWorker) -> None:
        """Let a worker wait."""
        self._waiting.append(worker)

    def remove(self, unwanted: Callable[[WaitingWorker], bool]) -> list[str]:
        """Take some away; return their names."""
        taken = [one.name for one in self._waiting if unwanted(one)]
        self._waiting = [one for one in self._waiting if not unwanted(one)]
        return taken

    def on(self, nodes: Collection[str]) -> list[str]:
        """Take away those on these nodes; return their names."""
        return self.remove(lambda one: one.node in nodes)

    def ready(self, agents: Mapping[str, AgentConnection]) -> Iterator[tuple[AgentConnection, WaitingWorker]]:
        """Take out those that can start; the caller starts each before the next is looked for."""
        for one in list(self._waiting):
            agent = agents.get(one.node)
            if agent is not None and one in self._waiting and one.has_room(agent):
                self._waiting.remove(one)
                yield agent, one
