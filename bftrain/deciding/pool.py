"""NodePool: the idle nodes with their kinds, allocations, and groups of simultaneous arrival."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from bftrain.values.curve import ANY_KIND


class NodePool:
    """The idle nodes by name.

    Nodes that join in one step form a group with an increasing number: they became idle together, so they
    will probably leave together, and a small number means long idle. All nodes of a group have one kind. All
    containers keep insertion order, so equal events always lead to equal choices.
    """

    __slots__ = ("_by_group", "_count", "_free", "_group", "_kind", "next_group")

    def __init__(self) -> None:
        self.next_group = 0  # the number of the next group
        self._group: dict[str, int] = {}
        self._kind: dict[str, str] = {}  # only nodes with a kind
        self._count: Counter[str] = Counter()  # nodes by kind
        self._free: set[str] = set()
        self._by_group: dict[str, dict[int, dict[str, None]]] = {}  # kind -> group -> free nodes

    def __len__(self) -> int:
        return len(self._group)

    def __contains__(self, node: object) -> bool:
        return node in self._group

    @property
    def free(self) -> Mapping[int, Mapping[str, None]]:
        """Free nodes by group; groups without free nodes are absent."""
        # By name, not by arrival: a snapshot must be the same after a restart
        return {group: nodes for kind in sorted(self._by_group) for group, nodes in self._by_group[kind].items()}

    def free_of(self, kind: str) -> Mapping[int, Mapping[str, None]]:
        """Return the free nodes of ``kind``, by group."""
        return self._by_group.get(kind, {})

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
        self,
        free: Mapping[int, Iterable[str]],
        held: Mapping[str, int],
        next_group: int,
        kinds: Mapping[str, str] | None = None,
    ) -> None:
        """Fill an empty pool with free nodes by group, allocated nodes with their group, and known kinds."""
        self._kind = dict(kinds or {})
        self._count = Counter(self._kind.values())
        self._group = dict(held)
        for group, nodes in free.items():
            members = dict.fromkeys(nodes, group)
            self._group.update(members)
            self._add_free(members)
        self.next_group = next_group

    def is_free(self, node: str, kind: str | None = None) -> bool:
        """Return whether ``node`` is idle, not allocated, and of ``kind`` if given."""
        return node in self._free and (kind is None or kind == self.kind_of(node))

    def join(self, nodes: Collection[str], kind: str = ANY_KIND) -> list[str]:
        """Add nodes as one new group; return those already in the pool, which stay unchanged."""
        fresh = dict.fromkeys(nodes, self.next_group)
        known = [] if self._group.keys().isdisjoint(nodes) else [node for node in nodes if node in self._group]
        for node in known:
            fresh.pop(node, None)
        if fresh:
            self.next_group += 1
            self._group.update(fresh)
            if kind != ANY_KIND:
                self._kind.update(dict.fromkeys(fresh, kind))
                self._count[kind] += len(fresh)
            self._add_free(fresh)
        return known

    def leave(self, nodes: Iterable[str]) -> dict[str, int]:
        """Remove nodes that the main scheduler reclaimed; return the removed nodes of the pool, with their group."""
        gone = {node: group for node in nodes if (group := self._group.pop(node, None)) is not None}
        self._drop_free(self._free.intersection(gone), gone)
        if self._kind:
            self._count.subtract([self._kind.pop(node) for node in gone if node in self._kind])
        return gone

    def take(self, nodes: Iterable[str]) -> dict[str, int]:
        """Allocate free nodes to a task; return node -> group."""
        taken = {node: self._group[node] for node in nodes}
        self._drop_free(taken, taken)
        return taken

    def give_back(self, nodes: Iterable[str]) -> None:
        """Free allocated nodes; ignore nodes that have left the pool."""
        self._add_free([node for node in nodes if node in self._group])

    def _add_free(self, nodes: Collection[str]) -> None:
        """Add nodes of the pool that are not free yet."""
        self._free.update(nodes)
        for kind, of_kind in self._by_kind(nodes):
            groups = self._by_group.setdefault(kind, {})
            for node in of_kind:
                groups.setdefault(self._group[node], {})[node] = None

    def _drop_free(self, nodes: Collection[str], group_of: Mapping[str, int]) -> None:
        """Remove free nodes of these groups."""
        self._free.difference_update(nodes)
        for kind, of_kind in self._by_kind(nodes):
            groups = self._by_group[kind]
            for node in of_kind:
                members = groups[group_of[node]]
                del members[node]
                if not members:
                    del groups[group_of[node]]

    def _by_kind(self, nodes: Collection[str]) -> Iterable[tuple[str, Collection[str]]]:
        if not self._kind:
            return ((ANY_KIND, nodes),) if nodes else ()
        found: dict[str, list[str]] = {}
        for node in nodes:
            found.setdefault(self.kind_of(node), []).append(node)
        return found.items()
