"""The port (protocol) of batch schedulers.

A node is in the pool while both are true: the scheduler allows it, and an agent of ours has registered from it. With
pilot jobs the scheduler allows the nodes of running pilots, so the agents' messages suffice. With hooks, agents wait on
every node, and the scheduler's reports decide.

Nothing here may delay a release: ``post(Taken(...))`` leads to one before anything else.

A scheduler is registered by a function that builds it, a ``MakeScheduler``, in entry points ``bftrain.scheduler``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol, runtime_checkable

import msgspec

from bftrain.node_units import NODE, node_of
from bftrain.ports import Availability

PLACES: Final = re.compile(r"\{(node|host)\}")  # in the words of an AgentOrder


class Allowed(msgspec.Struct, frozen=True, kw_only=True, tag="allowed"):
    """The scheduler lets us use these nodes; ``until_s`` (seconds since 1970) is when they will probably be needed."""

    nodes: tuple[str, ...]
    until_s: float | None = None


class Taken(msgspec.Struct, frozen=True, kw_only=True, tag="taken"):
    """The scheduler takes these nodes back, or they went down."""

    nodes: tuple[str, ...]


class Remark(msgspec.Struct, frozen=True, kw_only=True, tag="remark"):
    """A notice for operators, such as a controller that does not answer; it changes nothing."""

    text: str


News = Allowed | Taken | Remark
Post = Callable[[News], None]


class AgentOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The command that starts an agent on a node.

    ``{node}`` in an argument is the name of the node or slot, ``{host}`` that of the node alone.
    """

    argv: tuple[str, ...]


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """The environment of a scheduler: ``name`` marks our jobs, ``folder`` is private and visible from all nodes.

    ``grace_s`` is how long agents use a node after the scheduler's SIGTERM, if it lets them. ``unit`` says what we
    get: whole nodes, or GPUs of nodes as slots such as ``n1/gpu3``. One that hands these out has a ``unit`` too.
    ``owner`` marks the jobs of one state, letters and digits: another live run of this name may have jobs, too.
    """

    name: str
    folder: Path
    grace_s: float = 0.0
    unit: str = NODE
    owner: str = ""


@runtime_checkable
class Scheduler(Protocol):
    """One batch scheduler. All methods run in the event loop of the daemon and may not block it."""

    name: str
    agents_suffice: bool
    """An agent that registers is proof enough that its node is ours: it is a pilot job. Else an ``Allowed`` is too."""

    def available(self) -> Availability:
        """Return whether its commands are installed, without calling the scheduler."""

    async def run(self, post: Post, agent: AgentOrder) -> None:
        """Post reports until cancelled, and keep agents on idle nodes; survives restarts of the scheduler.

        When cancelled it leaves agents running: a restarted daemon finds them again.
        """

    async def look(self) -> frozenset[str] | None:
        """Return the nodes that the scheduler lets us use now; ``None`` if it does not answer."""

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        """Set how many nodes could be used now, and which must not be (drained); called again on each change.

        Default before the first call: unlimited. It takes no node back: ``give_back`` does.
        """

    def hint(self) -> None:
        """Receive the hint that an agent came or went, so that this is a good time to look."""

    def noticed(self, node: str) -> None:
        """Record that the scheduler announced to the agent of a node that it takes the node."""

    async def give_back(self, nodes: Collection[str]) -> None:
        """Release nodes that are not needed or to be drained; their agents end. Call ``want`` first."""

    async def leave(self) -> None:
        """End all our jobs at the scheduler, running and waiting ones, for a drain."""


# Given the settings of the site for it (a table of TOML without ``name``), and the site; BadConfig says what is wrong
MakeScheduler = Callable[[Mapping[str, object], Site], Scheduler]


def filled(order: AgentOrder, node: str) -> Sequence[str]:
    """Return the command that starts the agent of ``node``."""
    names = {"node": node, "host": node_of(node)}
    return tuple(PLACES.sub(lambda found: names[found[1]], word) for word in order.argv)
