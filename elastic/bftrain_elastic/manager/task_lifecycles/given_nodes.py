"""The nodes that a task was given: which of them to run on, and whose agents have not come yet.

An agent that lost its manager keeps its workers for a while. After a restart of the manager nothing is started for a
task before it is certain what still runs of it, or two processes would have the same rank.
"""

from __future__ import annotations

from typing import Final

from bftrain_elastic.manager.task_lifecycles import TaskContext

ABSENCE_S: Final = 45.0  # longer than agents keep their workers without a manager


class GivenNodes:
    """Keeps what is known of one task's nodes."""

    def __init__(self, floor: TaskContext) -> None:
        self._floor = floor
        self.all: tuple[str, ...] = ()  # oldest first
        self._noticed: set[str] = set()  # they will be taken in a moment
        self._absent: dict[str, float] = {}  # nodes whose agents have not come -> since when
        self._gone: set[str] = set()  # nodes whose agents left, with all that they had

    @property
    def wanted(self) -> tuple[str, ...]:
        """The nodes to run on: all but those that will be taken."""
        return tuple(node for node in self.all if node not in self._noticed)

    @property
    def here(self) -> tuple[str, ...]:
        """The nodes to run on that have an agent."""
        return tuple(node for node in self.wanted if self._floor.slots(node))

    def give(self, nodes: tuple[str, ...]) -> None:
        """Know all nodes that the task is to hold from now on."""
        self._noticed -= set(nodes) - set(self.all)  # one that is given again has another agent by now
        self.all = nodes
        here = {node for node in nodes if self._floor.slots(node)}
        self._gone = self._gone.intersection(nodes) - here
        now, waited_for = self._floor.now(), set(nodes) - here - self._gone
        self._absent = {node: self._absent.get(node, now) for node in sorted(waited_for)}

    def came(self, node: str) -> None:
        """Know that the agent of a node came."""
        self._noticed.discard(node)
        self._absent.pop(node, None)
        self._gone.discard(node)

    def went(self, node: str) -> None:
        """Know that the agent of a node is gone."""
        self._noticed.discard(node)
        self._absent.pop(node, None)
        self._gone.add(node)

    def is_noticed(self, node: str) -> bool:
        """Return whether a node will be taken in a moment."""
        return node in self._noticed

    def notice(self, node: str) -> None:
        """Know that a node will be taken."""
        self._noticed.add(node)

    @property
    def waiting(self) -> bool:
        """Whether an agent may still come that has workers of another manager."""
        now = self._floor.now()
        return any(now - since <= ABSENCE_S for since in self._absent.values())
