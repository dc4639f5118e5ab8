"""NodeKinds: of which kind each node of a site is, as its settings say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from bftrain import text_formats
from bftrain.errors import BadValue
from bftrain.nodesets import expand
from bftrain.values.curve import SpeedCurve
from bftrain.values.kinds import ANY_KIND, OTHER_KIND

Sets = Mapping[str, str | tuple[str, ...]]  # kind: a node set, or several

_FIX: Final = 'write v100 = "n[001-036]", or a list of such node sets'


def by_node(sets: Sets) -> dict[str, str]:
    """Give the kind of every node that is named; an error names the kind as its place."""
    found: dict[str, str] = {}
    for kind, given in sets.items():
        if not kind or kind != kind.strip() or not kind.isprintable():
            raise BadValue("is no name of a kind", where=kind, fix=_FIX)
        if kind == OTHER_KIND:
            what = "is the kind of all nodes that [kinds] does not name"
            raise BadValue(what, where=kind, fix="leave it out, or choose another name")
        nodes = list(_nodes(kind, (given,) if isinstance(given, str) else given))
        if not nodes:
            raise BadValue("is given to no node", where=kind, fix=_FIX)
        for node in nodes:
            other = found.setdefault(node, kind)
            if other != kind:
                what = f"node '{node}' is of kind '{other}' already"
                raise BadValue(what, where=kind, fix="give every node one kind")
    return found


@dataclass(frozen=True, slots=True)
class NodeKinds:
    """The kinds of nodes, by those that are ``named``; false where nodes have no kinds.

    A node without a name among named ones is of a kind of its own, as it is in the log that a journal is exported to:
    the speed of a task with curves by kind is unknown there.
    """

    named: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Return whether nodes have kinds."""
        return bool(self.named)

    def of(self, node: str) -> str:
        """Give the kind of a node."""
        return self.named.get(node, OTHER_KIND if self.named else ANY_KIND)

    def parted(self, nodes: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Part nodes by their kind."""
        found: dict[str, list[str]] = {}
        for node in nodes:
            found.setdefault(self.of(node), []).append(node)
        yield from ((kind, tuple(found[kind])) for kind in sorted(found))

    def unfit(self, min_nodes: int, curves: Mapping[str, SpeedCurve]) -> str:
        """Say why nodes here can never hold a task, or not as its ``curves`` by kind ask for; nothing if they can."""
        if not curves:
            return ""
        if not self.named:
            return "this site names no kinds of nodes"
        counts = Counter(self.named.values())
        if OTHER_KIND in curves or min_nodes <= max(counts[kind] for kind in curves):
            return ""
        there = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        only = ", ".join(curves)
        return (
            f"it needs {text_formats.counted(min_nodes, 'node')} of one kind and runs on {only} only; there are {there}"
        )


def _nodes(kind: str, sets: Iterable[str]) -> Iterator[str]:
    for text in sets:
        try:
            yield from expand(text) if text else ()
        except ValueError as error:
            raise BadValue(str(error), where=kind, fix=_FIX) from error
