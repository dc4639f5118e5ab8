"""The port behind which a batch scheduler stands.

A node is in the pool while both are true: the scheduler allows it, and an agent of ours has registered from it. With
pilot jobs the scheduler allows what its pilots run on, so the agents themselves are the news. With hooks, agents wait
on every node, and the scheduler's word decides.

Nothing here may be waited for when nodes are taken back: ``post(Taken(...))`` leads to a release before anything else.

A scheduler is registered as what makes one, a ``MakeScheduler``, in entry points ``bftrain.scheduler``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

import msgspec

from bftrain.ports import Availability


class Allowed(msgspec.Struct, frozen=True, kw_only=True, tag="allowed"):
    """These nodes are ours to use; ``until_s`` (seconds since 1970) is when they will probably be wanted, if known."""

    nodes: tuple[str, ...]
    until_s: float | None = None


class Taken(msgspec.Struct, frozen=True, kw_only=True, tag="taken"):
    """The scheduler takes these nodes back, or they went down."""

    nodes: tuple[str, ...]


class Remark(msgspec.Struct, frozen=True, kw_only=True, tag="remark"):
    """Something that people should know, such as a controller that does not answer; nothing follows from it."""

    text: str


News = Allowed | Taken | Remark
Post = Callable[[News], None]


class AgentOrder(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent is started on a node: what to run there. ``{node}`` in an argument is the node's name."""

    argv: tuple[str, ...]


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """Where a scheduler works: ``name`` marks what is ours there, ``folder`` is private and seen by all nodes.

    ``grace_s`` is how long agents use a node after the scheduler's SIGTERM, if it lets them.
    """

    name: str
    folder: Path
    grace_s: float = 0.0


@runtime_checkable
class Scheduler(Protocol):
    """One batch scheduler. All methods run in the event loop of the daemon and may not block it."""

    name: str
    agents_suffice: bool
    """An agent that registers is proof enough that its node is ours: it is a pilot job. Else an ``Allowed`` is too."""

    def available(self) -> Availability:
        """Say whether its commands are here, without talking to it."""

    async def run(self, post: Post, agent: AgentOrder) -> None:
        """Post news until cancelled, and keep agents on idle nodes; survives the scheduler's own restarts.

        When cancelled it leaves running agents alone: a daemon that comes back finds them again.
        """

    async def look(self) -> frozenset[str] | None:
        """Give the nodes that are ours to use by the scheduler's word now; ``None`` if it cannot be asked."""

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        """Say how many nodes could be used now, and which must not be (drained); said again whenever it changes.

        Until it is said, as many as there are. It takes nothing back: ``give_back`` does.
        """

    def hint(self) -> None:
        """Say that an agent came or went: now would be a good time to look."""

    def noticed(self, node: str) -> None:
        """Note that the scheduler announced to the agent of a node that it takes the node."""

    async def give_back(self, nodes: Collection[str]) -> None:
        """Let go of nodes that are not needed, or are to be drained; their agents end. Say ``want`` first."""

    async def leave(self) -> None:
        """End everything of ours at the scheduler: running agents and those that wait. For a drain."""


# Given the settings of the site for it (a table of TOML without ``name``), and the site; BadConfig says what is wrong
MakeScheduler = Callable[[Mapping[str, object], Site], Scheduler]


def filled(order: AgentOrder, node: str) -> Sequence[str]:
    """Give the words of the command that starts the agent of ``node``."""
    return tuple(word.replace("{node}", node) for word in order.argv)
