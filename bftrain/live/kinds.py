"""Kinds: of which kind each node of a site is, as its settings say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from bftrain.errors import BadValue
from bftrain.live.schedulers.nodesets import expand
from bftrain.values.kinds import ANY_KIND

Sets = Mapping[str, str | tuple[str, ...]]  # kind: a node set, or several

_FIX: Final = 'write v100 = "n[001-036]", or a list of such node sets'


def by_node(sets: Sets) -> dict[str, str]:
    """Give the kind of every node that is named; what is wrong is told with the kind as its place."""
    found: dict[str, str] = {}
    for kind, given in sets.items():
        if not kind or " " in kind or not kind.isprintable():
            raise BadValue("is no name of a kind", where=kind, fix=_FIX)
        nodes = list(_nodes(kind, (given,) if isinstance(given, str) else given))
        if not nodes:
            raise BadValue("is given to no node", where=kind, fix=_FIX)
        for node in nodes:
            other = found.setdefault(node, kind)
            if other != kind:
                what = f"node '{node}' is of kind '{other}' already"
                raise BadValue(what, where=kind, fix="give every node one kind")
    return found


def parted(nodes: Iterable[str], kinds: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Part nodes by their kind, those of no kind first."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        found.setdefault(kinds.get(node, ANY_KIND), []).append(node)
    yield from ((kind, tuple(found[kind])) for kind in sorted(found))


def _nodes(kind: str, sets: Iterable[str]) -> Iterator[str]:
    for text in sets:
        try:
            yield from expand(text) if text else ()
        except ValueError as error:
            raise BadValue(str(error), where=kind, fix=_FIX) from error
