"""NodePool: the idle nodes with their kinds, allocations, and groups of simultaneous arrival."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from bftrain.values.curve import ANY_KIND


class NodePool:
    """The idle nodes by name.

    The nodes of an event form a group, and groups are numbered in sequence: they became idle together, so they
    will probably leave together, and a small number means long idle. All nodes of a group have one kind. All
    containers keep insertion order, so equal events always lead to equal choices.
    """

    def __init__(self) -> None:
        self.next_group = 0  # the number of the next group
        self.free: dict[int, dict[str, None]] = {}  # free nodes by group; groups without free nodes are absent
        self._group: dict[str, int] = {}
        self._kind: dict[str, str] = {}  # only nodes with a kind
        self._count: Counter[str] = Counter()  # nodes by kind

    def __len__(self) -> int:
        return len(self._group)

    def free_of(self, kind: str) -> Mapping[int, Mapping[str, None]]:
        """Return the free nodes of ``kind``, by group."""
        if not self._kind:
            return self.free if kind == ANY_KIND else {}
        return {group: nodes for group, nodes in self.free.items() if self.kind_of(next(iter(nodes))) == kind}

    @property
    def nodes(self) -> frozenset[str]:
        """All idle nodes, including allocated nodes."""
        return frozenset(self._group)

    @property
    def counts(self) -> dict[str, int]:
        """The number of idle nodes of every kind, including allocated nodes; empty if no node has a kind."""
        if not self._kind:
            return {}
        found = {kind: count for kind, count in self._count.items() if count}
        if len(self._kind) < len(self._group):
            found[ANY_KIND] = len(self._group) - len(self._kind)
        return dict(sorted(found.items()))  # independent of arrival: the same order after a restart

    def kind_of(self, node: str) -> str:
        """Return the kind of an idle node."""
        return self._kind.get(node, ANY_KIND)

    def restore(
        self, free: Mapping[int, Iterable[str]], held: Mapping[str, int], next_group: int, kinds: Mapping[str, str]
    ) -> None:
        """Fill an empty pool with free nodes by group, allocated nodes with their group, and known kinds."""
        self._kind = dict(kinds)
        self._count = Counter(self._kind.values())
        self._group = {**held, **{node: group for group, nodes in free.items() for node in nodes}}
        self.free = {group: dict.fromkeys(nodes) for group, nodes in free.items()}
        self.next_group = next_group

    def is_free(self, node: str) -> bool:
        """Return whether ``node`` is idle, and not allocated."""
        return node in self.free.get(self._group.get(node, -1), ())

    def join(self, nodes: Collection[str], kind: str = ANY_KIND) -> list[str]:
        """Add nodes as one new group; return those already in the pool, which stay unchanged."""
        known = [] if self._group.keys().isdisjoint(nodes) else [node for node in nodes if node in self._group]
        fresh = dict.fromkeys(nodes)
        for node in known:
            fresh.pop(node, None)
        if fresh:
            self._group.update(dict.fromkeys(fresh, self.next_group))
            if kind != ANY_KIND:
                self._kind.update(dict.fromkeys(fresh, kind))
                self._count[kind] += len(fresh)
            self.free[self.next_group] = fresh
            self.next_group += 1
        return known

    def leave(self, nodes: Iterable[str]) -> dict[str, int]:
        """Remove nodes that the main scheduler reclaimed; return the removed nodes of the pool, with their group."""
        gone = {node: group for node in nodes if (group := self._group.pop(node, None)) is not None}
        self._drop_free(gone)
        if self._kind:
            self._count.subtract([self._kind.pop(node) for node in gone if node in self._kind])
        return gone

    def take(self, nodes: Iterable[str]) -> dict[str, int]:
        """Allocate free nodes to a task; return node -> group."""
        taken = {node: self._group[node] for node in nodes}
        self._drop_free(taken)
        return taken

    def give_back(self, nodes: Iterable[str]) -> None:
        """Free allocated nodes; ignore nodes that have left the pool."""
        for node in nodes:
            if node in self._group:
                self.free.setdefault(self._group[node], {})[node] = None

    def _drop_free(self, nodes: Mapping[str, int]) -> None:
        """Remove nodes, with their groups, as far as they are free."""
        for node, group in nodes.items():
            if node in (members := self.free.get(group, {})):
                del members[node]
                if not members:
                    del self.free[group]
