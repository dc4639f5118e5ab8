"""The nodes of a machine, as its records or the options name them, and the sets of them that jobs held."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bftrain.errors import BadInput
from bftrain.nodesets import MOST_NODES
from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing import unit_sets
from bftrain_datasets.importing.findings import FindingsTally

MOST_KNOWN: Final = 1 << 25  # letters and nodes of the node sets that are remembered, so that memory stays bounded
_NUMBERS: Final = re.compile(r"\d[\d,]*-[\d,-]*\Z")
_LIST: Final = re.compile(r"\[[^\[\]]*\]\Z")
_AROUND_NAMES: Final = " \t\"'"


@dataclass(slots=True)
class HeldNodes:
    """A node set: how many nodes of the machine it has, how many others, how many were written again.

    Where GPUs or cores are counted, it has so many of these on so many nodes, and ``units`` say which or how many of
    each of ``nodes``; ``assumed`` names the finding if that is not all known.
    It has a ``number`` as soon as a job that held it is used; until then ``nodes`` are kept here.
    """

    size: int
    unknown: int = 0
    repeated: int = 0
    nodes: Sequence[int] = ()
    number: int = -1
    units: Sequence[int] = ()
    of_nodes: int = 0
    assumed: str = ""


class MachineNodes:
    """Gives each node its place: those that are given, or else each at its first mention.

    ``known_sets`` keep what node sets as written are.
    """

    def __init__(self, nodes: Sequence[str] | None, tally: FindingsTally) -> None:
        self.places = {name: place for place, name in enumerate(nodes or ())}
        self.is_fixed = nodes is not None
        self.known_sets: dict[str, HeldNodes] = {}
        self._known = 0
        self._tally = tally

    def name(self, node: str) -> None:
        """Say that there is this node."""
        if not self.is_fixed:
            self.places.setdefault(node, len(self.places))

    def spellings(self) -> Mapping[str, str]:
        """Return names that differ from another in case, or in a domain that one of them has, with that other."""
        return {} if self.is_fixed else same_nodes(self.places)

    def known_as(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return for each of these names that is another spelling of a node, as with a domain, that node's own."""
        strange = [name for name in names if name not in self.places]
        same = same_nodes((*self.places, *strange)) if strange else {}
        known = {same.get(name, name): name for name in self.places}
        return {name: known[short] for name in strange if (short := same.get(name, name)) in known}

    def join(self, same: Mapping[str, str]) -> list[int]:
        """Take these names for one node each; return the place that each former place becomes."""
        kept = {name: place for place, name in enumerate(name for name in self.places if name not in same)}
        moved = [kept[same.get(name, name)] for name in self.places]
        self.places = kept
        return moved

    def shares_of(self, nodes: str, units: str, expand: Callable[[str], Sequence[str]]) -> HeldNodes:
        """Return what is held of which node (``unit_sets.shares_of``); ``ValueError`` if that cannot be read."""
        key = f"{nodes}\n{units}"
        known = self.known_sets.get(key)
        if known is not None:
            return known
        names = list(dict.fromkeys(expand(nodes)))
        shares = unit_sets.shares_of(names, units)
        places = self.places
        if not self.is_fixed:
            for name, _ in shares:
                places.setdefault(name, len(places))
            self._check_places()
        found = [(places[name], number) for name, number in shares if name in places]
        total, size = (sum(max(number, 1) for _, number in of) for of in (shares, found))
        summed = unit_sets.is_total(units) and len(names) > 1
        counted = any(number >= 0 for _, number in shares)
        return self._remember(
            key,
            HeldNodes(
                size,
                total - size,
                nodes=[place for place, _ in found],
                units=[number for _, number in found],
                of_nodes=len(names),
                assumed="units_divided" if summed else "units_numbered" if counted else "",
            ),
        )

    def _check_places(self) -> None:
        if len(self.places) > MOST_NODES:
            raise BadInput(f"more than {MOST_NODES:,} different nodes", where=self._tally.where, fix="name --nodes")

    def _remember(self, key: str, held: HeldNodes) -> HeldNodes:
        self._known += len(key) + len(held.nodes)
        if self._known > MOST_KNOWN:
            self.known_sets.clear()
            self._known = len(key) + len(held.nodes)
        self.known_sets[key] = held
        return held

    def set_of(self, text: str, expand: Callable[[str], Sequence[str]], said: int) -> HeldNodes | None:
        """Return the nodes of a set as written, of which a record says that they are so many; None if it is none."""
        known = self.known_sets.get(text)
        if known is not None:
            return known
        try:
            names = expand(text)
        except ValueError:
            names = _listed(text)
            if not names:
                return None
            self._tally.note("listed_nodes")
        places = self.places
        written = list(dict.fromkeys(names))
        if said and len(written) != said:
            return HeldNodes(0, len(written))  # not trusted, so none of them is a node of the machine for it
        if self.is_fixed:
            nodes = [places[name] for name in written if name in places]
        else:
            nodes = [places.setdefault(name, len(places)) for name in written]
            self._check_places()
        return self._remember(text, HeldNodes(len(nodes), len(written) - len(nodes), len(names) - len(written), nodes))


def is_range_of(count: int, nodes: str) -> bool:
    """Whether bare numbers such as 0-127 are a node set of so many nodes."""
    try:
        return bool(_NUMBERS.match(nodes)) and len(expand_set(f"[{nodes}]")) == count
    except ValueError:
        return False


def same_nodes(names: Iterable[str]) -> dict[str, str]:
    """Give for each name that is another spelling of a node the first of those without a domain.

    A name with a domain is the one without, unless names of two domains begin with it.
    """
    spelt: dict[str, list[str]] = {}
    for name in names:
        spelt.setdefault(name.lower(), []).append(name)
    domains: dict[str, list[str]] = {}
    for low in spelt:
        short, dot, _ = low.partition(".")
        if dot and short in spelt:
            domains.setdefault(short, []).append(low)
    for short, full in domains.items():
        if len(full) == 1:
            spelt[short] += spelt.pop(full[0])
    return {other: first for first, *others in spelt.values() for other in others}


def _listed(text: str) -> list[str]:
    """Names in a list such as ``[12, 13]`` or ``['n1', 'n2']``, or with blanks; none if they are no names."""
    inner = text.strip()
    inner = inner[1:-1] if _LIST.match(inner) else inner
    names = [part.strip(_AROUND_NAMES) for part in inner.split(",")]
    try:
        return expand_set(",".join(names)) if all(names) else []
    except ValueError:
        return []
