"""The nodes of a machine, from its records or the options, and the sets of them that jobs held."""

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

MOST_KNOWN: Final = 1 << 25  # letters and nodes of the cached node sets, to bound memory
_NUMBERS: Final = re.compile(r"\d[\d,]*-[\d,-]*\Z")
_LIST: Final = re.compile(r"\[[^\[\]]*\]\Z")
_AROUND_NAMES: Final = " \t\"'"


@dataclass(slots=True)
class HeldNodes:
    """A node set: its number of nodes of the machine, of other nodes, and of repeated names.

    If GPUs or cores are counted, it has ``units`` of each of ``nodes`` (numbers or slots); ``assumed`` names the
    finding if they are not fully known.
    It has a ``number`` once a job that held it is used; until then ``nodes`` are stored here.
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
    """Assigns each node its index: given nodes in their order, others at their first mention.

    ``known_sets`` caches node sets as written.
    """

    def __init__(self, nodes: Sequence[str] | None, tally: FindingsTally) -> None:
        self.places = {name: place for place, name in enumerate(nodes or ())}
        self.is_fixed = nodes is not None
        self.known_sets: dict[str, HeldNodes] = {}
        self._known = 0
        self._tally = tally

    def name(self, node: str) -> None:
        """Add a node."""
        if not self.is_fixed:
            self.places.setdefault(node, len(self.places))

    def spellings(self) -> Mapping[str, str]:
        """Return names that differ from another in case, or by the domain in one of them, with that other name."""
        return {} if self.is_fixed else same_nodes(self.places)

    def known_as(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return the names that are other spellings of a known node, such as with a domain, with that node's name."""
        strange = [name for name in names if name not in self.places]
        same = same_nodes((*self.places, *strange)) if strange else {}
        known = {same.get(name, name): name for name in self.places}
        return {name: known[short] for name in strange if (short := same.get(name, name)) in known}

    def join(self, same: Mapping[str, str]) -> list[int]:
        """Merge names of the same node; return the new index of each former index."""
        kept = {name: place for place, name in enumerate(name for name in self.places if name not in same)}
        moved = [kept[same.get(name, name)] for name in self.places]
        self.places = kept
        return moved

    def shares_of(self, nodes: str, units: str, expand: Callable[[str], Sequence[str]]) -> HeldNodes:
        """Return the units held of each node (``unit_sets.shares_of``); raise ``ValueError`` if unreadable."""
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
                assumed="hosts_incomplete" if summed else "units_assumed" if counted else "",
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
        """Return the nodes of a set as written, with ``said`` as their recorded number; None if it is no node set."""
        known = self.known_sets.get(text)
        if known is not None:
            return known
        try:
            names = expand(text)
        except ValueError:
            names = _listed(text)
            if not names:
                return None
            self._tally.note("notation")
        places = self.places
        written = list(dict.fromkeys(names))
        if said and len(written) != said:
            return HeldNodes(0, len(written))  # not trusted, so its names are not added to the machine
        if self.is_fixed:
            nodes = [places[name] for name in written if name in places]
        else:
            nodes = [places.setdefault(name, len(places)) for name in written]
            self._check_places()
        return self._remember(text, HeldNodes(len(nodes), len(written) - len(nodes), len(names) - len(written), nodes))


def is_range_of(count: int, nodes: str) -> bool:
    """Return whether bare numbers such as 0-127 are a node set of ``count`` nodes."""
    try:
        return bool(_NUMBERS.match(nodes)) and len(expand_set(f"[{nodes}]")) == count
    except ValueError:
        return False


def same_nodes(names: Iterable[str]) -> dict[str, str]:
    """Return names that are other spellings of a node, each with the first name without a domain.

    A name with a domain equals the one without, unless names of two domains begin with it.
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
    """Return the names in a list such as ``[12, 13]`` or ``['n1', 'n2']``, or with blanks; none if invalid."""
    inner = text.strip()
    inner = inner[1:-1] if _LIST.match(inner) else inner
    names = [part.strip(_AROUND_NAMES) for part in inner.split(",")]
    try:
        return expand_set(",".join(names)) if all(names) else []
    except ValueError:
        return []
