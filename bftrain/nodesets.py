"""Node sets as schedulers write them, such as ``nid[0001-0004,7]``, and names folded into them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Final

MOST_NODES: Final = 100_000
_LONGEST: Final = 1_000_000  # letters
_NAME: Final = re.compile(r"[\w.-]{1,255}", re.ASCII)
_LETTERS: Final = re.compile(r"[\w.,\[\]-]*", re.ASCII)
_PIECE: Final = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_BRACKET: Final = re.compile(r"\[([^\[\]]*)\]")
_RANGE: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def expand(text: str) -> tuple[str, ...]:
    """Names in a node set; ``ValueError`` if it is none, or names more nodes than any machine has."""
    names = text.split(",") if "[" not in text else _by_library(text)
    if not all(_NAME.fullmatch(name) for name in names):
        raise ValueError(f"{text[:60]!r} is no node set")
    return tuple(names)


def fold(names: Iterable[str]) -> str:
    """Write names as a node set."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet  # noqa: PLC0415 - only where many are named

    return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))


def _by_library(text: str) -> list[str]:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException  # noqa: PLC0415 - seldom needed

    # The library knows more operators than schedulers do, and makes all names at once: so look before
    if len(text) > _LONGEST or not _LETTERS.fullmatch(text) or sum(map(_count, _PIECE.findall(text))) > MOST_NODES:
        raise ValueError(f"{text[:60]!r} is no node set, or a very large one")
    try:
        return [str(name) for name in NodeSet(text, resolver=RESOLVER_NOGROUP)]
    except (NodeSetException, OverflowError) as error:
        raise ValueError(f"{text[:60]!r} is no node set") from error


def _count(piece: str) -> float:
    """How many names a piece stands for: infinitely many if it is none."""
    return math.prod(sum(map(_width, bracket.split(","))) for bracket in _BRACKET.findall(piece))


def _width(part: str) -> float:
    found = _RANGE.fullmatch(part)
    if found is None:
        return math.inf
    return max(0, int(found[2] or found[1]) - int(found[1])) + 1
