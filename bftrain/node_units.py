"""Units of idle time: whole nodes, or GPUs or cores of nodes as slots such as ``n1/gpu3``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from bftrain.nodesets import expand

NODE, GPU, CORE = "node", "gpu", "core"
UNITS: Final = (NODE, GPU, CORE)
SLOT_MARK: Final = "/"  # separates a node from its slot

_WORDS: Final = {GPU: "GPU", CORE: "core"}

_NODE_WORD: Final = re.compile(r"(?<![\w/.<-])([Nn])ode(?=s?(?:-hours?|-seconds?|-time)?(?![\w/-]|\.\w))")
_SLOT: Final = re.compile(r"/(gpu|core)\d+\Z")
_OUTSIDE: Final = re.compile(r",(?![^\[]*\])")


def word_of(unit: str) -> str:
    """Return the noun for a unit.

    >>> word_of("gpu"), word_of("node")
    ('GPU', 'node')
    """
    return _WORDS.get(unit, unit)


def slot_name(node: str, unit: str, number: int) -> str:
    """Return the name of a slot.

    >>> slot_name("n1", "gpu", 3)
    'n1/gpu3'
    """
    return f"{node}{SLOT_MARK}{unit}{number}"


def is_slot(name: str) -> bool:
    """Return whether this is the name of a slot.

    >>> is_slot("n1/gpu3"), is_slot("n1")
    (True, False)
    """
    return bool(_SLOT.search(name))


def unit_of(names: Sequence[str]) -> str:
    """Return the unit of all names; whole nodes if they differ or without names.

    >>> unit_of(["n1/gpu0", "n2/gpu3"]), unit_of(["n1/gpu0", "n2"])
    ('gpu', 'node')
    """
    first = _SLOT.search(names[0]) if names else None
    found = {match[1] if (match := _SLOT.search(name)) else NODE for name in names} if first else {NODE}
    return found.pop() if len(found) == 1 else NODE


def node_of(slot: str) -> str:
    """Return the node of a slot; names without a slash are unchanged.

    >>> node_of("n1/gpu3"), node_of("n1")
    ('n1', 'n1')
    """
    return slot.rpartition(SLOT_MARK)[0] or slot


def host_of(name: str) -> str:
    """Return the place of a GPU or core, its host; whole nodes have none, so they all lie together.

    >>> host_of("n1/gpu3"), host_of("n1")
    ('n1', '')
    """
    host, mark, _ = name.rpartition(SLOT_MARK)
    return host if mark else ""


def expand_slots(text: str) -> list[str]:
    """Return the names in a set of slots or nodes, such as ``n1/gpu[0-3],n2``; raise ``ValueError`` if invalid.

    >>> expand_slots("n1/gpu[0-1],n[2-3]")
    ['n1/gpu0', 'n1/gpu1', 'n2', 'n3']
    """
    names: list[str] = []
    for piece in _OUTSIDE.split(text):
        node, mark, slot = piece.partition(SLOT_MARK)
        names += [f"{each}{mark}{one}" for each in expand(node) for one in (expand(slot) if mark else ("",))]
    return names


def in_words_of(unit: str, text: str) -> str:
    """Return a sentence about nodes as a sentence about the unit.

    >>> in_words_of("gpu", "2 idle node-hours on 3 nodes")
    '2 idle GPU-hours on 3 GPUs'
    """
    word = _WORDS.get(unit)
    if word is None:
        return text
    return _NODE_WORD.sub(lambda match: word[:1].upper() + word[1:] if match[1] == "N" else word, text)


def words_of(unit: str) -> Callable[[str], str]:
    """Return the function that rewrites sentences about nodes for a unit."""
    return partial(in_words_of, unit)
