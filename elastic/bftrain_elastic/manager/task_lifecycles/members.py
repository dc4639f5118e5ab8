"""GroupMembers: the workers of one task as its course knows them, and where each is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from bftrain_elastic.manager.task_lifecycles import WorkerExit
from bftrain_elastic.manager.task_lifecycles.failures import WorkerDeath, exit_text
from bftrain_elastic.wire.messages import Message

NOTHING: Final = -1  # the step of a worker without a state


class MemberPhase(StrEnum):
    """Where a worker is."""

    COMING = "coming"
    READY = "ready"
    IN = "in"
    GOING = "going"


@dataclass(eq=False)
class GroupMember:
    """One worker."""

    name: str
    node: str
    slot: int
    number: int  # counts up: the smaller, the older
    since: float
    phase: MemberPhase = MemberPhase.COMING
    step: int = NOTHING
    store: tuple[str, int] = ("", 0)
    astray: int = 0  # steps that it reported in no group
    rank: int = 0  # in its group
    ended: bool = False  # we had it killed
    coming_since: float | None = None  # when it was started, until it is ready
    leaves_by: float | None = None  # when it is killed if it has not left by itself
    done: bool = False  # its training is over: what the script does then may take its time
    finished: bool = False  # the program said that its work is done
    saves: bool = False  # it writes the state to the folder before it leaves

    @property
    def stays(self) -> bool:
        """Whether it has not been ordered to end."""
        return self.phase is not MemberPhase.GOING


class GroupMembers:
    """All workers of one task."""

    def __init__(self) -> None:
        self._by_name: dict[str, GroupMember] = {}
        self._number = 0

    def __iter__(self) -> Iterator[GroupMember]:
        return iter(list(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def add(self, member: GroupMember) -> None:
        """Add a worker, as the youngest."""
        self._number += 1
        member.number = self._number
        self._by_name[member.name] = member

    def get(self, worker: str) -> GroupMember | None:
        """Return a worker."""
        return self._by_name.get(worker)

    def pop(self, worker: str) -> GroupMember | None:
        """Remove a worker that has ended."""
        return self._by_name.pop(worker, None)

    def on(self, node: str) -> list[GroupMember]:
        """Return the workers on a node."""
        return [member for member in self if member.node == node]

    def of(self, phase: MemberPhase) -> list[GroupMember]:
        """Return the workers that are in one phase."""
        return [member for member in self if member.phase is phase]

    @property
    def group(self) -> list[GroupMember]:
        """The workers that are in the present group."""
        return self.of(MemberPhase.IN)


def nodes_of(members: Iterable[GroupMember], wanted: Iterable[str]) -> list[str]:
    """Return the nodes of these workers, in the order in which the task was given them."""
    there = {member.node for member in members}
    first = [node for node in wanted if node in there]
    return [*first, *sorted(there.difference(first))]


def go_orders(members: list[GroupMember], generation: int, size: int) -> Iterator[tuple[GroupMember, Message]]:
    """Return the order for each member of a new group: its rank, the other members, and where they meet.

    They are in the order of their ranks, so that rank 0 is the furthest, and its store the meeting point.
    """
    sync = len({member.step for member in members}) > 1 or members[0].step == NOTHING
    for rank, member in enumerate(members):
        yield (
            member,
            {
                "type": "go",
                "generation": generation,
                "rank": rank,
                "workers": len(members),
                "size": size,
                "store": list(members[0].store),
                "sync": sync,
            },
        )


def death_of(
    member: GroupMember, end: WorkerExit, nodes: Iterable[str], formed_at: float, entrance: str
) -> WorkerDeath:
    """Describe the end of a worker that was not ordered. ``nodes`` are those of its group, formed at ``formed_at``."""
    text, fatal = exit_text(member.name, end.code), False
    if end.code == 0 and member.phase is MemberPhase.COMING:  # it will do no better the next time
        text, fatal = f"{member.name} ended, and its script never called {entrance}", True
    grouped = member.phase is MemberPhase.IN
    return WorkerDeath(
        text=text,
        node=member.node,
        nodes=frozenset({member.node, *(nodes if grouped else ())}),
        exit=end,
        began_s=formed_at if grouped else member.since,
        started=member.phase is not MemberPhase.COMING,
        fatal=fatal,
    )


def epoch_of(worker: str) -> int:
    """Return which start of the manager a worker's name comes from; 0 if the name does not say."""
    epoch, dash, _ = worker.rpartition("/")[2].partition("-")
    return int(epoch) if dash and epoch.isdecimal() else 0
