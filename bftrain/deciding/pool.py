"""NodePool: which nodes are idle now, which of them no task holds, and who joined together with whom."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class NodePool:
    """The idle nodes by name.

    Nodes that join in one step form a group with a number that only grows: they became idle together, so they
    will probably leave together, and a small number means long idle. All containers keep insertion order, so the
    same events always give the same choices.
    """

    __slots__ = ("_free", "_group", "_next_group")

    def __init__(self) -> None:
        self._group: dict[str, int] = {}
        self._free: dict[int, dict[str, None]] = {}
        self._next_group = 0

    def __len__(self) -> int:
        """Give the number of idle nodes, held by tasks or not."""
        return len(self._group)

    @property
    def free(self) -> Mapping[int, Mapping[str, None]]:
        """Nodes that no task holds, by group; groups without such nodes are absent."""
        return self._free

    def is_free(self, node: str) -> bool:
        """Say whether ``node`` is idle and no task holds it."""
        return node in self._free.get(self._group.get(node, -1), ())

    def join(self, nodes: Iterable[str]) -> list[str]:
        """Add nodes as one new group; gives those that were in the pool already and stay as they were."""
        known = self._group
        group = self._next_group
        fresh = {node: None for node in nodes if node not in known}
        if fresh:
            self._next_group += 1
            self._free[group] = fresh
            known.update(dict.fromkeys(fresh, group))
        return [node for node in nodes if node not in fresh]

    def leave(self, nodes: Iterable[str]) -> dict[str, int]:
        """Forget nodes that the main scheduler took back; gives those that were in the pool, with their group."""
        gone = {node: group for node in nodes if (group := self._group.pop(node, None)) is not None}
        for node, group in gone.items():
            self._drop_free(node, group)
        return gone

    def take(self, nodes: Iterable[str]) -> dict[str, int]:
        """Mark free nodes as held by a task; gives node -> group."""
        taken = {node: self._group[node] for node in nodes}
        for node, group in taken.items():
            self._drop_free(node, group)
        return taken

    def give_back(self, nodes: Iterable[str]) -> None:
        """Mark held nodes as free again; those that left the pool meanwhile are passed over."""
        for node in nodes:
            group = self._group.get(node)
            if group is not None:
                self._free.setdefault(group, {})[node] = None

    def _drop_free(self, node: str, group: int) -> None:
        members = self._free.get(group)
        if members is not None:
            members.pop(node, None)
            if not members:
                del self._free[group]
