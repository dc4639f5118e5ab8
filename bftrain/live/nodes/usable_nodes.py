"""NodeTracker: which nodes are ours to use, by what the scheduler, the agents and the operators say."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec


class NodesSeen(msgspec.Struct, frozen=True, kw_only=True):
    """What the outside says of nodes.

    ``allowed`` are those that the scheduler lets us use (``None``: it cannot be asked), ``taken`` those that it has
    taken back since; on ``present`` ones an agent is registered; ``expected`` ones may still come back after a
    restart; ``drained`` ones must not be used, nor ``noticed`` ones, whose agents say that they are about to be taken.
    ``agents_suffice``: an agent is proof enough that its node is ours.
    ``agents_used``: without agents a node is ours by the scheduler's word alone.
    """

    allowed: frozenset[str] | None = None
    taken: frozenset[str] = frozenset()
    present: frozenset[str] = frozenset()
    expected: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()
    noticed: frozenset[str] = frozenset()
    agents_suffice: bool = False
    agents_used: bool = True

    @property
    def ours(self) -> frozenset[str]:
        """The nodes to use now. Nodes in doubt are not ours."""
        by_word = frozenset() if self.allowed is None else self.allowed
        if self.agents_used:
            there = self.present | self.expected
            found = there if self.agents_suffice else there & by_word
        else:
            found = by_word
        return found - self.taken - self.drained - self.noticed


class NodeTracker:
    """Keeps what the outside says, piece by piece."""

    def __init__(self, *, agents_suffice: bool, agents_used: bool) -> None:
        self._agents_suffice = agents_suffice
        self._agents_used = agents_used
        self._allowed: set[str] = set()
        self._taken: set[str] = set()
        self._present: set[str] = set()
        self._expected: frozenset[str] = frozenset()
        self._drained: frozenset[str] = frozenset()
        self._noticed: set[str] = set()
        self._closed = False
        self.until_s: dict[str, float] = {}  # when nodes will probably be wanted, where that is known

    @property
    def world(self) -> NodesSeen:
        """All of it."""
        return NodesSeen(
            allowed=frozenset(self._allowed),
            taken=frozenset(self._taken),
            present=frozenset(self._present),
            expected=self._expected,
            drained=self._drained,
            noticed=frozenset(self._noticed),
            agents_suffice=self._agents_suffice,
            agents_used=self._agents_used,
        )

    @property
    def ours(self) -> frozenset[str]:
        """The nodes to use now; none any more once it is closed."""
        return frozenset() if self._closed else self.world.ours

    @property
    def present(self) -> frozenset[str]:
        """The nodes with a registered agent."""
        return frozenset(self._present)

    # -- the scheduler

    def allow(self, nodes: Collection[str], until_s: float | None) -> None:
        """Know that the scheduler lets us use nodes."""
        self._allowed.update(nodes)
        self._taken.difference_update(nodes)
        for node in nodes:
            if until_s is None:
                self.until_s.pop(node, None)
            else:
                self.until_s[node] = until_s

    def take(self, nodes: Collection[str]) -> None:
        """Know that the scheduler takes nodes back. With agents that suffice they are ours again with a new agent."""
        self._allowed.difference_update(nodes)
        if self._agents_suffice:
            self._taken.update(self._present.union(self._expected).intersection(nodes))
            self._expected -= set(nodes)  # their pilots are over, and all that ran in them
        for node in nodes:
            self.until_s.pop(node, None)

    def allow_only(self, nodes: Collection[str]) -> None:
        """Know all nodes that the scheduler lets us use."""
        self.take(self._allowed.difference(nodes))
        self._allowed = set(nodes)

    # -- agents and operators

    def came(self, node: str) -> None:
        """Know that an agent registered."""
        self._present.add(node)
        self._forget(node)

    def went(self, node: str) -> None:
        """Know that an agent left, or was lost."""
        self._present.discard(node)
        self._forget(node)

    def _forget(self, node: str) -> None:
        """Forget what was known of the agent that was there before."""
        self._expected -= {node}
        self._taken.discard(node)
        self._noticed.discard(node)

    def notice(self, node: str) -> None:
        """Know that a node is about to be taken; with a new agent it can be ours again."""
        self._noticed.add(node)

    def expect(self, nodes: Iterable[str]) -> None:
        """Give agents of these nodes the time to come back; none: no more."""
        self._expected = frozenset(nodes) - self._present

    @property
    def expected(self) -> frozenset[str]:
        """The nodes whose agents may still come back."""
        return self._expected

    def drain(self, nodes: Iterable[str]) -> None:
        """Know all nodes that must not be used."""
        self._drained = frozenset(nodes)

    def close(self) -> None:
        """Use no node any more."""
        self._closed = True
