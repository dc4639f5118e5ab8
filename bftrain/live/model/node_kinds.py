"""The kinds of nodes of a site, and the GPUs and watts of a node of each kind."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from bftrain import text_formats
from bftrain.errors import BadValue
from bftrain.node_units import NODE, is_slot, node_of
from bftrain.nodesets import expand
from bftrain.values.curve import ANY_KIND, OTHER_KIND, SpeedCurve

Sets = Mapping[str, str | tuple[str, ...]]  # kind: a node set, or several

_FIX: Final = 'write v100 = "n[001-036]", or a list of such node sets'


def by_node(sets: Sets) -> dict[str, str]:
    """Return the kind of each named node; errors name the kind."""
    found: dict[str, str] = {}
    for kind, given in sets.items():
        if not kind or kind != kind.strip() or not kind.isprintable():
            raise BadValue("is no name of a kind", where=kind, fix=_FIX)
        if kind == OTHER_KIND:
            what = "is the kind of all nodes that [kinds] does not name"
            raise BadValue(what, where=kind, fix="leave it out, or choose another name")
        try:
            nodes = [node for text in ((given,) if isinstance(given, str) else given) if text for node in expand(text)]
        except ValueError as error:
            raise BadValue(str(error), where=kind, fix=_FIX) from error
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
    """The kinds of nodes; false if nodes have no kinds.

    An unnamed node among named nodes has a kind of its own, as in an exported journal: the speed of tasks with
    curves by kind is unknown there.
    """

    named: Mapping[str, str] = field(default_factory=dict)
    unit: str = NODE  # GPUs are of their node's kind; how many there are is not known

    def __bool__(self) -> bool:
        """Return whether nodes have kinds."""
        return bool(self.named)

    def of(self, node: str) -> str:
        """Return the kind of a node."""
        return self.named.get(node) or self.named.get(node_of(node), OTHER_KIND if self.named else ANY_KIND)

    def parted(self, nodes: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the nodes of each kind."""
        found: dict[str, list[str]] = {}
        for node in nodes:
            found.setdefault(self.of(node), []).append(node)
        yield from ((kind, tuple(found[kind])) for kind in sorted(found))

    def unfit(self, min_nodes: int, curves: Mapping[str, SpeedCurve]) -> str:
        """Return why nodes here can never hold a task with these ``curves`` by kind; empty if they can."""
        if not curves:
            return ""
        if not self.named:
            return "this site names no kinds of nodes"
        counts = Counter(self.named.values())
        most = max(counts[kind] for kind in curves)
        if OTHER_KIND in curves or min_nodes <= most or (most and self.unit != NODE):
            return ""
        there = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        needed = text_formats.counted(min_nodes, "node")
        return f"it needs {needed} of one kind and runs on {', '.join(curves)} only; there are {there}"


@dataclass(frozen=True, slots=True)
class NodeRates:
    """The GPUs and watts of a node, by kind, and the projects of users; a slot has one GPU."""

    gpus: Mapping[str, float] = field(default_factory=dict)  # kind -> GPUs; "": all remaining kinds
    watts: Mapping[str, float] = field(default_factory=dict)
    projects: Mapping[str, str] = field(default_factory=dict)  # user -> project
    kind_of: Callable[[str], str] = lambda _: ""
    gpus_of: Callable[[str], float] = lambda _: 0.0  # default: unknown

    def of(self, node: str) -> tuple[float, float]:
        """Return the GPUs and the watts of a node."""
        kind = self.kind_of(node)
        gpus = self.gpus.get(kind, self.gpus.get("", 0.0)) if any(self.gpus.values()) else self.gpus_of(node)
        watts = self.watts.get(kind, self.watts.get("", 0.0))
        return (1.0, watts / gpus if gpus else watts) if is_slot(node) else (gpus, watts)
