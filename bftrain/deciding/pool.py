"""NodePool: the idle nodes, their kinds, whether a task holds them, and which became idle together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from bftrain.values.curve import ANY_KIND
from bftrain.values.ordered_nodes import OrderedNodes


class NodePool:
    """The idle nodes by name.

    Nodes that join in one step form a group with a rising number: they became idle together, so they
    will probably leave together, and a small number means long idle. All nodes of a group have one kind. All
    containers keep insertion order, so the same events always lead to the same choices.
    """

    __slots__ = ("_count", "_free", "_group", "_kind", "_ordered", "_position", "next_group")

    def __init__(self, position: Callable[[str], int] | None = None) -> None:
        self._position = position
        self.next_group = 0  # the number of the next group
        self._ordered: dict[str, OrderedNodes] = {}  # free nodes by kind, built at first use
        self._group: dict[str, int] = {}
        self._kind: dict[str, str] = {}  # only nodes with a kind
        self._count: Counter[str] = Counter()  # nodes by kind
        self._free: dict[str, dict[int, dict[str, None]]] = {ANY_KIND: {}}  # kind -> group -> nodes

    def __len__(self) -> int:
        return len(self._group)

    def __contains__(self, node: object) -> bool:
        return node in self._group

    @property
    def free(self) -> Mapping[int, Mapping[str, None]]:
        """Free nodes by group; groups without free nodes are absent."""
        if not self._kind:
            return self._free[ANY_KIND]
        # By name, not by arrival: a snapshot must be the same after a restart
        return {group: nodes for _, of_kind in sorted(self._free.items()) for group, nodes in of_kind.items()}

    def free_of(self, kind: str) -> Mapping[int, Mapping[str, None]]:
        """Return the free nodes of ``kind``, by group."""
        return self._free.get(kind, {})

    def ordered_of(self, kind: str) -> OrderedNodes:
        """Return the free nodes of ``kind`` in the order of their positions; only for a pool with positions."""
        if kind not in self._ordered and self._position is not None:
            nodes = (node for group in self.free_of(kind).values() for node in group)
            self._ordered[kind] = OrderedNodes(self._position, nodes)
        return self._ordered[kind]

    @property
    def nodes(self) -> frozenset[str]:
        """All idle nodes, held by tasks or not."""
        return frozenset(self._group)

    @property
    def counts(self) -> dict[str, int]:
        """The number of idle nodes of every kind, held or not; empty if none has a kind."""
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
        """Fill an empty pool with free nodes by group, held ones with their group, and known kinds."""
        self._kind = dict(kinds or {})
        self._count = Counter(self._kind.values())
        self._free = {kind: {} for kind in (ANY_KIND, *self._count)}
        self._group = dict(held)
        for group, nodes in free.items():
            members = dict.fromkeys(nodes)
            self._group.update(dict.fromkeys(members, group))
            self._free[self.kind_of(next(iter(members)))][group] = members
        self.next_group = next_group

    def is_free(self, node: str, kind: str | None = None) -> bool:
        """Return whether ``node`` is idle, free, and of ``kind`` if given."""
        groups = self._free.get(self.kind_of(node) if kind is None else kind, {})
        return node in groups.get(self._group.get(node, -1), ())

    def join(self, nodes: Iterable[str], kind: str = ANY_KIND) -> list[str]:
        """Add nodes as one new group; return those already in the pool, which stay unchanged."""
        known = self._group
        group = self.next_group
        fresh = {node: None for node in nodes if node not in known}
        if fresh:
            self.next_group += 1
            self._free.setdefault(kind, {})[group] = fresh
            if kind in self._ordered:
                self._ordered[kind].add(fresh)
            known.update(dict.fromkeys(fresh, group))
            if kind != ANY_KIND:
                self._kind.update(dict.fromkeys(fresh, kind))
                self._count[kind] += len(fresh)
        return [node for node in nodes if node not in fresh]

    def leave(self, nodes: Iterable[str]) -> dict[str, int]:
        """Remove nodes that the main scheduler reclaimed; return those that were in the pool, with their group."""
        gone = {node: group for node in nodes if (group := self._group.pop(node, None)) is not None}
        self._drop_free(gone)
        if self._kind:
            self._count.subtract([self._kind.pop(node) for node in gone if node in self._kind])
        return gone

    def take(self, nodes: Iterable[str]) -> dict[str, int]:
        """Mark free nodes as held by a task; return node -> group."""
        taken = {node: self._group[node] for node in nodes}
        self._drop_free(taken)
        return taken

    def give_back(self, nodes: Iterable[str]) -> None:
        """Mark held nodes as free again; ignore nodes that have left the pool."""
        for kind, of_kind in self._by_kind(node for node in nodes if node in self._group):
            free, group_of = self._free[kind], self._group
            for node in of_kind:
                free.setdefault(group_of[node], {})[node] = None
            if of_kind and kind in self._ordered:
                self._ordered[kind].add(of_kind)

    def _drop_free(self, nodes: Mapping[str, int]) -> None:
        for kind, of_kind in self._by_kind(nodes):
            free, dropped = self._free[kind], []
            for node in of_kind:
                group = nodes[node]
                members = free.get(group)
                if members is not None and node in members:
                    del members[node]
                    dropped.append(node)
                    if not members:
                        del free[group]
            if dropped and kind in self._ordered:
                self._ordered[kind].remove(dropped)

    def _by_kind(self, nodes: Iterable[str]) -> Iterable[tuple[str, list[str]]]:
        if not self._kind:
            return ((ANY_KIND, list(nodes)),)
        found: dict[str, list[str]] = {}
        for node in nodes:
            found.setdefault(self.kind_of(node), []).append(node)
        return found.items()
