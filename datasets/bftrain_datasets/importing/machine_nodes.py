"""The nodes of a machine, from its records or the options, and the sets of them that jobs held."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from bftrain.errors import BadInput
from bftrain.nodesets import LONGEST_NAME, MOST_NODES, ONE_BRACKET
from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing.findings import FindingsTally

MOST_KNOWN: Final = 1 << 25  # letters and nodes of the known node sets, to bound memory
MOST_OF_A_NODE: Final = 1 << 16  # GPUs or cores
_NUMBERS: Final = re.compile(r"\d[\d,]*-[\d,-]*\Z")
_NAME: Final = re.compile(r"[^\s,\[\]]+\Z")
_LIST: Final = re.compile(r"\[[^\[\]]*\]\Z")
_AROUND_NAMES: Final = " \t\"'"
_MOST_DIGITS: Final = 15

Expand = Callable[[str], Sequence[str]]
Share = tuple[str, int]  # a node, and the number of its GPUs or cores; or if negative a slot, -1 being the first
Units = int | tuple[Share, ...] | None  # the sum over all nodes of a job, or its shares; None if unreadable


def numbers_in(text: str) -> list[int]:
    """Return the numbers in ``0-1,5``; raise ``ValueError`` if it is no list of valid slot numbers."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= low <= high < MOST_OF_A_NODE:
            raise ValueError(f"{text[:60]!r} is not a list of GPUs or cores")
        numbers += range(low, high + 1)
    return numbers


def slots_of(node: str, numbers: str) -> tuple[Share, ...]:
    """Return the slots of a node such as ``0-1,5``; raise ``ValueError`` if unreadable."""
    return tuple((node, -1 - number) for number in numbers_in(numbers))


def shares_of(names: Sequence[str], units: int | tuple[Share, ...]) -> Sequence[Share]:
    """Return the units held of each node; a sum is divided evenly, and the first nodes have one more if necessary.

    >>> shares_of(("n1", "n2"), 3)
    [('n1', 2), ('n2', 1)]
    """
    if isinstance(units, tuple):
        if len(units) > MOST_NODES or not all(_NAME.match(name) for name, _ in units):
            raise ValueError(f"{units[:4]!r} is not a list of nodes and their GPUs or cores")
        return list(dict.fromkeys(share for share in units if share[1]))
    each, more = divmod(units, len(names))
    shares = [(name, each + (place < more)) for place, name in enumerate(names)]
    return [share for share in shares if share[1]]


@dataclass(slots=True)
class HeldNodes:
    """A node set: its number of nodes of the machine, of other nodes, and of repeated names.

    If GPUs or cores are counted, it has ``units`` of each of ``nodes`` (numbers or slots) on ``node_count`` nodes;
    ``assumed`` names the finding if they are not fully known. ``reason`` is that to reject its jobs.
    """

    size: int
    unknown: int = 0
    repeated: int = 0
    nodes: Sequence[int] = ()
    units: Sequence[int] = ()
    node_count: int = 0
    assumed: str = ""
    reason: str = ""


OF_NODES: Final = ("no_usage", "bad_nodes", "bad_value")  # reasons to reject a node set
SIZE, UNKNOWN, REPEATED, REASON, STORED, SURE = range(6)  # rows of ``NodeSets.facts``


class NodeSets:
    """Numbers the node sets of jobs as written, so that each is expanded once.

    ``facts[:, number]`` are the size of a set, -1 if it is not known yet, its numbers of other nodes and of repeated
    names, the index of its reason in ``OF_NODES`` or -1, its number in ``JobStays``, or -1 until a job uses it,
    and 1 if all of that is the same for jobs with any count of nodes.
    """

    def __init__(self) -> None:
        self.facts: NDArray[np.int64]
        self.clear()

    def clear(self) -> None:
        """Forget all sets, to bound memory."""
        self.texts: list[str] = []
        self._numbers: dict[Hashable, int] = {}
        self._expands: dict[int, Expand] = {}
        self._units: dict[int, Units] = {}
        self._held: dict[int, HeldNodes] = {}  # sets that no job has used yet
        self._fresh: list[tuple[int, ...]] = []  # facts to write, each with its number
        self._size = 0
        self.facts = np.full((6, 1), -1, dtype=np.int64)

    @property
    def is_large(self) -> bool:
        """Whether the sets need much memory."""
        return self._size > MOST_KNOWN

    def number(self, text: str, expand: Expand = expand_set, units: Units = 0) -> int:
        """Return the number of a node set."""
        key: Hashable = text if expand is expand_set and units == 0 else (text, expand, units)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._new(text)
            if expand is not expand_set:
                self._expands[number] = expand
            if units != 0:
                self._units[number] = units
        return number

    def numbers(self, texts: Sequence[str], expand: Expand = expand_set) -> list[int]:
        """Return the numbers of node sets, most of which are known."""
        if expand is not expand_set:
            return [self.number(text, expand) for text in texts]
        found = map(self._numbers.get, texts)
        return [self.number(text) if number is None else number for text, number in zip(texts, found, strict=True)]

    def _new(self, text: str) -> int:
        self.texts.append(text)
        self._size += len(text) + 8
        if len(self.texts) > self.facts.shape[1]:
            self.facts = np.append(self.facts, np.full_like(self.facts, -1), axis=1)
        return len(self.texts) - 1

    def odd(self, held: HeldNodes) -> int:
        """Number a node set that serves no other jobs."""
        return self.keep(self._new(""), held)

    def expand_of(self, number: int) -> Expand:
        """Return the function that turns the text into names."""
        return self._expands.get(number, expand_set)

    def units_of(self, number: int) -> Units:
        """Return the GPUs or cores held of the nodes."""
        return self._units.get(number, 0)

    def held(self, number: int) -> HeldNodes | None:
        """Return a set that is expanded, without its places if these are stored; None if it is not."""
        held = self._held.get(number)
        if held is None and self.facts[SIZE, number] >= 0:
            size, unknown, repeated, *_ = self.facts[:, number].tolist()
            return HeldNodes(size, unknown, repeated)
        return held

    def keep(self, number: int, held: HeldNodes, *, sure: bool = True) -> int:
        """Keep an expanded set; its facts are written by the next ``write``."""
        self._held[number] = held
        self._size += len(held.nodes)
        reason = OF_NODES.index(held.reason) if held.reason else -1
        self._fresh.append((held.size, held.unknown, held.repeated, reason, -1, sure, number))
        return number

    def write(self) -> None:
        """Write the facts of all sets kept since the last call."""
        if self._fresh:
            *facts, numbers = np.array(self._fresh, dtype=np.int64).T
            self.facts[:, numbers] = facts
            self._fresh.clear()

    def store(self, numbers: NDArray[np.int64], add_set: Callable[[Sequence[int], Sequence[int]], int]) -> None:
        """Pass the places of sets that are used for the first time to ``add_set``, and keep its numbers for them."""
        for number in numbers[self.facts[STORED, numbers] < 0].tolist():
            held = self._held.get(number)
            if held is not None and held.nodes:
                self.facts[STORED, number] = add_set(held.nodes, held.units)
                if held.units:
                    held.nodes = held.units = ()  # what is assumed of units counts for later jobs too
                else:
                    del self._held[number]

    def size_of(self, number: int) -> int:
        """Return the size of a node set, or 0 if unreadable, without adding its nodes to the machine."""
        text = self.texts[number]
        try:
            return len(set(self.expand_of(number)(text))) if text else 0
        except ValueError:
            return 0


class MachineNodes:
    """Assigns each node its index: given nodes in their order, others at their first mention."""

    def __init__(self, nodes: Sequence[str] | None, tally: FindingsTally) -> None:
        self.places = {name: place for place, name in enumerate(nodes or ())}
        self.is_fixed = nodes is not None
        self._tally = tally
        # For each stem and number of digits the places of numbered nodes, -1 for nodes of no machine
        self._numbered: defaultdict[tuple[str, int], dict[int, int]] = defaultdict(dict)

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
        self._numbered.clear()
        return moved

    def held_with_units(self, nodes: str, units: int | tuple[Share, ...], expand: Expand) -> HeldNodes:
        """Return the units held of each node; raise ``ValueError`` if unreadable."""
        names = list(dict.fromkeys(expand(nodes)))
        shares = shares_of(names, units)
        found = [(place, number) for name, number in shares if (place := self._place(name)) >= 0]
        self._check_places()
        total, size = (sum(max(number, 1) for _, number in of) for of in (shares, found))
        summed = isinstance(units, int) and len(names) > 1
        counted = any(number >= 0 for _, number in shares)
        return HeldNodes(
            size,
            total - size,
            nodes=[place for place, _ in found],
            units=[number for _, number in found],
            node_count=len(names),
            assumed="hosts_incomplete" if summed else "units_assumed" if counted else "",
        )

    def held(self, text: str, expand: Expand, recorded_count: int) -> HeldNodes:
        """Return the nodes of a set as written; ``recorded_count`` is their number in the record, or 0."""
        found = self._of_one_bracket(text, recorded_count) if expand is expand_set and text[-1:] == "]" else None
        if found is not None:
            return found
        try:
            names = expand(text)
        except ValueError:
            names = _listed(text)
            if not names:
                return HeldNodes(0, reason="bad_nodes")
            self._tally.note("notation")
        written = list(dict.fromkeys(names))
        if recorded_count and len(written) != recorded_count:  # not trusted, so its names are not added to the machine
            return HeldNodes(0, len(written), reason="bad_nodes")
        nodes = [place for name in written if (place := self._place(name)) >= 0]
        self._check_places()
        return HeldNodes(len(nodes), len(written) - len(nodes), len(names) - len(written), nodes)

    def _place(self, name: str) -> int:
        places = self.places
        return places.get(name, -1) if self.is_fixed else places.setdefault(name, len(places))

    def _of_one_bracket(self, text: str, recorded_count: int) -> HeldNodes | None:
        """Return the nodes of a set such as ``n[1-4,7]`` without the names of those known; None for other forms."""
        match = ONE_BRACKET.match(text)
        if match is None or match[3] or len(match[1]) > LONGEST_NAME - _MOST_DIGITS:
            return None
        stem, pieces = match[1], _spans(match[2])
        size = sum(len(span) for _, span in pieces)
        if not 0 < size <= MOST_NODES:
            return None
        if len(pieces) > 1 and len({number for _, span in pieces for number in span}) < size:
            return None
        if recorded_count and size != recorded_count:
            return HeldNodes(0, size, reason="bad_nodes")
        nodes = list[int]()
        for width, span in pieces:
            known = self._numbered[stem, width]
            try:
                nodes += [known[number] for number in span]
            except KeyError:
                for number in span:
                    place = known[number] = self._place(f"{stem}{number:0{width}d}")
                    nodes.append(place)
                self._check_places()
        if self.is_fixed:
            nodes = [place for place in nodes if place >= 0]
        return HeldNodes(len(nodes), size - len(nodes), 0, nodes)

    def _check_places(self) -> None:
        if len(self.places) > MOST_NODES:
            raise BadInput(f"more than {MOST_NODES:,} different nodes", where=self._tally.where, fix="name --nodes")


def _spans(text: str) -> list[tuple[int, range]]:
    """Return the ranges in ``01-04,7``, each with its number of digits; none for other forms."""
    spans = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or len(part) > _MOST_DIGITS:
            return []
        span = range(int(first), int(last if dash else first) + 1)
        if not 0 < len(span) <= MOST_NODES:
            return []
        spans.append((len(first), span))
    return spans


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
