"""The nodes of a machine, from its records or the options, and the node sets used by jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute

from bftrain.errors import BadInput
from bftrain.node_units import NODE
from bftrain.nodesets import LONGEST_NAME, MOST_NODES
from bftrain.nodesets import expand as expand_set
from bftrain_datasets.importing.findings import FindingsTally
from bftrain_datasets.importing.import_options import ImportOptions
from bftrain_datasets.importing.text_columns import lengths_of
from bftrain_datasets.log.arrow_arrays import EMPTY, Column, arrow_texts, numpy_of

MOST_KNOWN: Final = 1 << 25  # maximum number of letters and nodes in stored node sets, to bound memory
MOST_OF_A_NODE: Final = 1 << 16  # maximum number of GPUs or cores per node
_NUMBERS: Final = re.compile(r"\d[\d,]*-[\d,-]*\Z")
_NAME: Final = re.compile(r"[^\s,\[\]]+\Z")
_LIST: Final = re.compile(r"\[[^\[\]]*\]\Z")
_AROUND_NAMES: Final = " \t\"'"
_OUTSIDE: Final = re.compile(r"[;|+\s]+(?![^\[]*\])|,(?![^\[]*\])")
_SLOT: Final = re.compile(r"[^\s,;|@]+@")  # a slot prefix in HTCondor, as in slot1@n1
_MARKS: Final = "[](){}'\" "
# Node sets that are read in columns: ``n[01-04,7]`` or ``n7``, with few digits
_PLAIN_SET: Final = r"^(?P<stem>|[A-Za-z_.-][\w.-]*?)(?:\[(?P<ranges>\d[\d,-]*)\]|(?P<number>\d{1,9}))$"
_RANGE: Final = r"^(?P<low>\d{1,9})(?:-(?P<high>\d{1,9}))?$"
_MOST_AT_ONCE: Final = 1 << 21  # maximum number of nodes in sets expanded together
_NUMBER_BITS: Final = 32  # bits of the number in a node's key; the stem number uses the rest
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1
_MOST_DIGITS: Final = 9
_ZERO: Final = arrow_texts(["0"])[0]

_UNKNOWN, _STRANGER = -2, -1  # place of a node not looked up yet; place of a node outside the machine

Places = NDArray[np.int64]
Expand = Callable[[str], Sequence[str]]
# A node with its number of GPUs or cores; a negative number is a slot, -1 the first
Share = tuple[str, int]
# The total over all nodes of a job, or the job's shares; None if unreadable
Units = int | tuple[Share, ...] | None


def slots_of(node: str, text: str) -> tuple[Share, ...]:
    """Return a node's slots from their numbers, such as ``0-1,5``; raise ``ValueError`` if these are invalid.

    >>> slots_of("n1", "0-1,5")
    (('n1', -1), ('n1', -2), ('n1', -6))
    """
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        low, high = int(first), int(last if dash else first)
        if not 0 <= low <= high < MOST_OF_A_NODE:
            raise ValueError(f"{text[:60]!r} is not a list of GPUs or cores")
        numbers += range(low, high + 1)
    return tuple((node, -1 - number) for number in numbers)


def shares_of(names: Sequence[str], units: int | tuple[Share, ...]) -> Sequence[Share]:
    """Return the units used on each node. A total is divided evenly; the first nodes take the remainder.

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
    """A node set: its numbers of machine nodes, unknown nodes and repeated names.

    If GPUs or cores are counted, the set uses ``units`` of each of ``nodes`` (numbers or slots) on ``node_count``
    nodes; ``assumed`` names the finding if they are not fully known. ``reason`` is the rejection reason of its jobs.
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
SIZE, UNKNOWN, REPEATED, REASON, STORED, SURE, USUAL = range(7)  # rows of ``NodeSets.facts``


class NodeSets:
    """Numbers the nodes of a machine, and the node sets of jobs as written, to expand each set once.

    ``places`` maps node names to indices: nodes from the options in their order, otherwise by first mention. The rows
    of ``facts`` describe each set:

    - its size, or -1 if unknown so far
    - its number of unknown nodes, and of repeated names
    - its reason as an index in ``OF_NODES``, or -1
    - its number in ``JobStays``, or -1
    - 1 if all these are the same for jobs with any count
    - 1 if the set may have the form that ``_Ranges`` parses
    """

    def __init__(
        self, options: ImportOptions, tally: FindingsTally, add_sets: Callable[[Any, Any, Sequence[int]], int]
    ) -> None:
        self.places = {name: place for place, name in enumerate(options.nodes or ())}
        self.is_fixed = options.nodes is not None
        self._options = options
        self._tally = tally
        self._add_sets = add_sets
        self.facts: Places
        self.clear()

    def clear(self) -> None:
        """Forget all sets, to bound memory."""
        self._stems: dict[tuple[str, int], int] = {}  # stems with their number of digits, numbered
        self._keys = np.zeros(0, dtype=np.int64)  # the known numbered nodes, sorted, and their places
        self._key_places = np.zeros(0, dtype=np.int64)
        self.texts: list[str] = []
        self._numbers: dict[Hashable, int] = {}
        self._columns: dict[Expand, tuple[Column, Places]] = {}  # distinct texts of columns, and their numbers
        self._expands: dict[int, Expand] = {}
        self._units: dict[int, Units] = {}
        self._of_units: dict[int, tuple[int, str]] = {}  # nodes of a set with units, and its assumed finding
        self._size = 0
        self.facts = np.full((USUAL + 1, 1), -1, dtype=np.int64)

    @property
    def is_large(self) -> bool:
        """Whether the sets need much memory."""
        return self._size > MOST_KNOWN

    def number(self, text: str, expand: Expand = expand_set, units: Units = 0) -> int:
        """Return the number of a node set."""
        key: Hashable = text if expand is expand_set and units == 0 else (text, expand, units)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = self._add([text], len(text))
            self.facts[USUAL, number] = expand is expand_set and text.isascii()
            if expand is not expand_set:
                self._expands[number] = expand
            if units != 0:
                self._units[number] = units
        return number

    def numbers(self, texts: Column, expand: Expand = expand_set) -> Places:
        """Return the numbers of node sets in a column, -1 for nulls."""
        known, numbers = self._columns.get(expand, (arrow_texts([]), np.zeros(0, dtype=np.int64)))
        encoded = pa.chunked_array([known, texts]).dictionary_encode().chunks[-1]  # continues the known texts
        new = encoded.dictionary.slice(len(known))
        if len(new):
            words = new.to_pylist()
            first = self._add(words, int(lengths_of(new).sum()))
            added = np.arange(first, first + len(words))
            self.facts[USUAL, added] = numpy_of(compute.string_is_ascii(new)) if expand in (expand_set, nodes_in) else 0
            if expand is nodes_in:  # a list in brackets, or ranges of names
                self.facts[USUAL, added[numpy_of(compute.starts_with(new, "["))]] = 0
            if expand is not expand_set:
                self._expands.update(dict.fromkeys(added.tolist(), expand))
            numbers = np.append(numbers, added)
            self._columns[expand] = encoded.dictionary, numbers
        codes = np.where(numpy_of(encoded.is_valid()), numpy_of(encoded.indices), numbers.size)
        return np.append(numbers, -1)[codes]

    def size_of(self, number: int) -> int:
        """Return the size of a node set, or 0 if unreadable, without adding its nodes to the machine."""
        return size_of(self.texts[number], self._expands.get(number, expand_set))

    def resolve(self, numbers: Places, counts: Places, times: Places, go_to: Callable[[int], object]) -> Places:
        """Expand node sets where necessary; return the set of each pair of set and recorded count.

        ``times`` is the number of rows with each pair. The returned set has the rejection reason of these rows, if any.
        ``go_to`` moves to the first row of a set.
        """
        known = self.facts[SIZE, numbers] >= 0
        fresh, at = np.unique(np.where(known, -1, numbers), return_inverse=True)
        ranges = self._ranges_of(fresh)
        plain = (ranges.sizes[at] > 0) & ((counts == 0) | (counts == ranges.sizes[at]))
        chosen, first = np.unique(at[plain], return_index=True)
        order = np.argsort(first)
        chosen, first = chosen[order], np.flatnonzero(plain)[first[order]]
        if numbers.size > 1 and ranges.sizes[chosen].sum() > _MOST_AT_ONCE:
            half = numbers.size // 2
            before = self.resolve(numbers[:half], counts[:half], times[:half], go_to)
            after = self.resolve(numbers[half:], counts[half:], times[half:], lambda row: go_to(row + half))
            return np.concatenate((before, after))
        nodes, sizes = ranges.nodes(chosen), ranges.sizes[chosen]
        unknown = np.flatnonzero(self._places_of(nodes) == _UNKNOWN)
        new, index = np.unique(nodes[unknown], return_index=True)
        # New nodes, and sets to expand one by one, in row order, because nodes are numbered by first mention
        lookups = list(zip(np.repeat(first, sizes)[unknown[index]].tolist(), index.tolist(), new.tolist(), strict=True))
        lookups += [(row, 0, _UNKNOWN) for row in np.flatnonzero(~plain).tolist()]
        found, places, stems = numbers.copy(), dict[int, int](), list(self._stems)
        for row, _, node in sorted(lookups):
            go_to(row)
            if node == _UNKNOWN:
                found[row] = self._held_by(int(numbers[row]), int(counts[row]), int(times[row]))
            else:
                stem, digits = stems[node >> _NUMBER_BITS]
                places[node] = self._place(f"{stem}{node & _NUMBER_MASK:0{digits}d}")
                self._check_places()
        self._keys = np.concatenate((self._keys, np.fromiter(places, np.int64)))
        self._key_places = np.concatenate((self._key_places, np.fromiter(places.values(), np.int64)))
        by_key = np.argsort(self._keys)
        self._keys, self._key_places = self._keys[by_key], self._key_places[by_key]
        self._store(fresh[chosen], sizes, self._places_of(nodes))
        return found

    def _ranges_of(self, numbers: Places) -> _Ranges:
        """Return the ranges of node sets; sets in another form have the size -1."""
        usual = (self.facts[USUAL, numbers] > 0) & (numbers >= 0) & (self._options.unit == NODE)
        pairs = zip(numbers.tolist(), usual.tolist(), strict=True)
        return _Ranges.of([self.texts[number] if is_usual else "" for number, is_usual in pairs], self._stems)

    def _places_of(self, nodes: Places) -> Places:
        """Return the indices of numbered nodes: ``_STRANGER`` outside the machine, ``_UNKNOWN`` if not looked up."""
        if not self._keys.size:
            return np.full(nodes.size, _UNKNOWN, dtype=np.int64)
        index = np.minimum(np.searchsorted(self._keys, nodes), self._keys.size - 1)
        return np.where(self._keys[index] == nodes, self._key_places[index], _UNKNOWN)

    def _place(self, name: str) -> int:
        places = self.places
        return places.get(name, _STRANGER) if self.is_fixed else places.setdefault(name, len(places))

    def _store(self, numbers: Places, sizes: Places, places: Places) -> None:
        """Store expanded sets; ``places`` concatenates their nodes."""
        if not numbers.size:
            return
        kept = places >= 0
        held = np.add.reduceat(kept, np.cumsum(sizes) - sizes, dtype=np.int64)
        stored = self._add_sets(places[kept], held, ()) + np.arange(numbers.size)
        self.facts[:USUAL, numbers] = (
            held,
            sizes - held,
            np.zeros_like(held),
            np.full_like(held, -1),
            stored,
            np.ones_like(held),
        )
        self._size += places.size

    def _add(self, texts: Sequence[str], letters: int) -> int:
        """Number further node sets; return the number of the first."""
        first = len(self.texts)
        self.texts += texts
        self._size += letters + 8 * len(texts)
        lacking = len(self.texts) - self.facts.shape[1]
        if lacking > 0:
            more = np.full((USUAL + 1, max(lacking, first)), -1, dtype=np.int64)
            self.facts = np.append(self.facts, more, axis=1)
        return first

    def _keep(self, number: int, held: HeldNodes, *, sure: bool = True) -> int:
        stored = self._add_sets(held.nodes, [len(held.nodes)], held.units) if held.nodes else -1
        reason = OF_NODES.index(held.reason) if held.reason else -1
        self.facts[:USUAL, number] = held.size, held.unknown, held.repeated, reason, stored, sure
        self._size += len(held.nodes)
        return number

    def _rejected(self, size: int) -> int:
        """Number a set whose jobs are rejected as ``bad_nodes``, and may have used ``size`` nodes."""
        return self._keep(self._add([""], 0), HeldNodes(0, size, reason="bad_nodes"))

    def _held_by(self, number: int, count: int, rows: int) -> int:
        """Return the number of the expanded set used by the rows, or of the set with their rejection reason."""
        text, expand = self.texts[number], self._expands.get(number, expand_set)
        if self._options.unit != NODE:
            if self.facts[SIZE, number] < 0:
                held = self._units_held(text, expand, self._units.get(number, 0))
                self._of_units[number] = held.node_count, held.assumed
                self._keep(number, held, sure=False)
            node_count, assumed = self._of_units[number]
            if count and node_count and node_count != count and self.facts[REASON, number] < 0:
                return self._rejected(0)
            if assumed:
                self._tally.note(assumed, count=rows)
            return number
        may_be_range = text[0].isdigit()
        if count and may_be_range and is_range_of(count, text):
            self._tally.note("notation", count=rows)
            return self._held_by(self.number(f"[{text}]"), count, 0)
        if self.facts[SIZE, number] < 0:
            held = self._held(text, expand, count)
            if held.reason and held.unknown:
                return self._rejected(held.unknown)
            self._keep(number, held, sure=not may_be_range)
        size, unknown, _, reason, *_ = self.facts[:, number].tolist()
        return self._rejected(size + unknown) if count and size + unknown != count and reason < 0 else number

    def _held(self, text: str, expand: Expand, recorded_count: int) -> HeldNodes:
        """Return the nodes of a set as written; ``recorded_count`` is their number in the record, or 0."""
        try:
            names = expand(text)
        except ValueError:
            names = _listed(text)
            if not names:
                return HeldNodes(0, reason="bad_nodes")
            self._tally.note("notation")
        written = list(dict.fromkeys(names))
        # The set is not trusted, so its names are not added to the machine
        if recorded_count and len(written) != recorded_count:
            return HeldNodes(0, len(written), reason="bad_nodes")
        nodes = [place for name in written if (place := self._place(name)) >= 0]
        self._check_places()
        return HeldNodes(len(nodes), len(written) - len(nodes), len(names) - len(written), nodes)

    def _units_held(self, text: str, expand: Expand, units: Units) -> HeldNodes:
        """Return the GPUs or cores used by jobs, by node."""
        try:
            if units is None:
                return HeldNodes(0, reason="bad_nodes")
            total = units if isinstance(units, int) else sum(max(number, 1) for _, number in shares_of((), units))
            named = total and text and not self._options.counts
            held = self._held_with_units(text, units, expand) if named else HeldNodes(total)
        except ValueError:
            return HeldNodes(0, reason="bad_nodes")
        if not held.size + held.unknown:
            held.reason = "no_usage"
        elif held.size > MOST_NODES:
            return HeldNodes(0, reason="bad_value")
        return held

    def _held_with_units(self, text: str, units: int | tuple[Share, ...], expand: Expand) -> HeldNodes:
        """Return the units used on each node; raise ``ValueError`` if unreadable."""
        names = list(dict.fromkeys(expand(text)))
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

    def _check_places(self) -> None:
        if len(self.places) > MOST_NODES:
            raise BadInput(f"more than {MOST_NODES:,} different nodes", where=self._tally.where, fix="name --nodes")

    def name(self, node: str) -> None:
        """Add a node to the machine."""
        if not self.is_fixed:
            self.places.setdefault(node, len(self.places))

    def spellings(self) -> Mapping[str, str]:
        """Map each name that differs from another only by case or domain to that name."""
        return {} if self.is_fixed else same_nodes(self.places)

    def known_as(self, names: Iterable[str]) -> Mapping[str, str]:
        """Return other spellings of known nodes, such as with a domain, with the known name."""
        strange = [name for name in names if name not in self.places]
        same = same_nodes((*self.places, *strange)) if strange else {}
        known = {same.get(name, name): name for name in self.places}
        return {name: known[short] for name in strange if (short := same.get(name, name)) in known}

    def join(self, same: Mapping[str, str]) -> list[int]:
        """Merge equal nodes after all sets are expanded; return the new index of each old index."""
        kept = {name: place for place, name in enumerate(name for name in self.places if name not in same)}
        moved = [kept[same.get(name, name)] for name in self.places]
        self.places = kept
        return moved


@dataclass(frozen=True, slots=True)
class _Ranges:
    """Node sets as ranges of keys: set ``i`` has ``sizes[i]`` nodes in the ranges from ``offsets[i]``.

    Each range has ``counts`` keys, starting at ``keys``. The size of sets in other forms is -1.
    """

    sizes: Places
    offsets: Places
    keys: Places
    counts: Places

    @classmethod
    def of(cls, texts: Sequence[str], stems: dict[tuple[str, int], int]) -> _Ranges:
        """Parse node sets; new stems are numbered together with their number of digits."""

        def texts_of(found: Any, place: int) -> Any:  # noqa: ANN401 - of Arrow
            return compute.fill_null(compute.struct_field(found, [place]), EMPTY)

        sets = compute.extract_regex(arrow_texts(texts), _PLAIN_SET)
        stem, listed, number = (texts_of(sets, place) for place in range(3))
        # A bare number is ambiguous
        alone = compute.if_else(compute.equal(stem, EMPTY), EMPTY, number)
        pieces = compute.split_pattern(compute.if_else(compute.equal(listed, EMPTY), alone, listed), ",")
        offsets = numpy_of(pieces.offsets).astype(np.int64)
        bounds = compute.extract_regex(pieces.flatten(), _RANGE)
        low_text, high_text = (texts_of(bounds, place) for place in range(2))
        high_text = compute.if_else(compute.equal(high_text, EMPTY), low_text, high_text)
        numbers = (compute.if_else(compute.equal(text, EMPTY), _ZERO, text) for text in (low_text, high_text))
        low, high = (numpy_of(text.cast(pa.int64())) for text in numbers)
        which = np.repeat(np.arange(len(texts)), np.diff(offsets))
        digits = numpy_of(compute.binary_length(low_text))
        encoded = stem.dictionary_encode()
        kind, code_of = np.unique(numpy_of(encoded.indices)[which] * (_MOST_DIGITS + 1) + digits, return_inverse=True)
        parts = (divmod(code, _MOST_DIGITS + 1) for code in kind.tolist())
        names = ((encoded.dictionary[place].as_py(), width) for place, width in parts)
        code = np.array([stems.setdefault(name, len(stems)) for name in names], dtype=np.int64)[code_of]
        order = np.lexsort((low, which))
        ordered_set, ordered_low = which[order], low[order]
        twice = (ordered_set[1:] == ordered_set[:-1]) & (ordered_low[1:] <= high[order][:-1])
        odd = (digits == 0) | (high < low) | (high - low >= MOST_NODES)
        odd[order[1:][twice]] = True
        counts = np.where(odd, 0, high - low + 1)
        sizes = np.bincount(which, counts, minlength=len(texts)).astype(np.int64)
        stem_lengths = numpy_of(compute.binary_length(stem))
        long = (sizes > MOST_NODES) | (stem_lengths > LONGEST_NAME - _MOST_DIGITS)
        sizes[(np.bincount(which, odd, minlength=len(texts)) > 0) | long] = -1
        return cls(sizes, offsets, (code << _NUMBER_BITS) + low, counts)

    def nodes(self, chosen: Places) -> Places:
        """Return the keys of all nodes of these sets, concatenated."""
        pieces = ranges_from(self.offsets[chosen], self.offsets[chosen + 1] - self.offsets[chosen])
        return ranges_from(self.keys[pieces], self.counts[pieces])


def size_of(text: str, expand: Expand) -> int:
    """Return the number of different nodes of a set, or 0 if it is empty or unreadable."""
    try:
        return len(set(expand(text))) if text else 0
    except ValueError:
        return 0


def ranges_from(starts: Places, counts: Places) -> Places:
    """Return the numbers of consecutive ranges, each from its start."""
    return np.repeat(starts - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())


def is_range_of(count: int, nodes: str) -> bool:
    """Return whether bare numbers such as 0-127 form a node set of ``count`` nodes."""
    try:
        return bool(_NUMBERS.match(nodes)) and len(expand_set(f"[{nodes}]")) == count
    except ValueError:
        return False


def same_nodes(names: Iterable[str]) -> dict[str, str]:
    """Map each alternative spelling of a node to its first name without a domain.

    A name with a domain equals the short name, unless two domains share this short name.
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


def nodes_in(text: str) -> list[str]:
    """Expand the notations of tables: node sets, lists such as ``[12, 'n3']``, or names with any separator."""
    if "@" in text:
        text = _SLOT.sub("", text)
    if "\n" in text:
        return checked_names(text.split("\n"))
    if text[:1] in "[({":
        return checked_names([part.strip(_MARKS) for part in text.strip(_MARKS).replace(" ", ",").split(",")])
    if not _OUTSIDE.search(text):
        return expand_set(text)
    return [name for part in _OUTSIDE.split(text) if part for name in expand_set(part)]


def checked_names(names: Sequence[str]) -> list[str]:
    """Return the non-empty names; raise ``ValueError`` if one is not a node name."""
    found = [name for name in names if name]
    if not found or not all(name.isprintable() and " " not in name and len(name) < LONGEST_NAME for name in found):
        raise ValueError("it is no list of node names")
    return found


def _listed(text: str) -> list[str]:
    """Return the names in a list such as ``[12, 13]`` or ``['n1', 'n2']``, or with blanks; none if invalid."""
    inner = text.strip()
    inner = inner[1:-1] if _LIST.match(inner) else inner
    names = [part.strip(_AROUND_NAMES) for part in inner.split(",")]
    try:
        return expand_set(",".join(names)) if all(names) else []
    except ValueError:
        return []
