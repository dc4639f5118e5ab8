"""Node sets as schedulers write them, such as ``nid[0001-0004,7]``, turned into names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bftrain.errors import BadInput

if TYPE_CHECKING:
    from pathlib import Path

MOST_NODES: Final = 1_000_000  # of one machine; more than that is a slip of the pen, such as n[1-1000000000]
REMEDY: Final = "write it as the scheduler does, such as nid[0001-0064,70] or a1,a2"

_COMMA: Final = re.compile(r",(?![^\[]*\])")  # outside of brackets
_SIMPLE: Final = re.compile(r"[\w.-]+\Z")
_ONE_BRACKET: Final = re.compile(r"([\w.-]*)\[(\d[\d,-]*)\]([\w.-]*)\Z")
_NUMBERS: Final = re.compile(r"\d+")


def expand(text: str) -> list[str]:
    """Names in a node set, in the order in which they are written; ``ValueError`` if it is none.

    A name that is written twice comes twice.
    """
    names: list[str] = []
    for piece in _COMMA.split(text):
        if piece:
            names += _expand_piece(piece)
        if len(names) > MOST_NODES:
            raise ValueError(f"{text[:60]!r} names more than {MOST_NODES} nodes")
    if not names:
        raise ValueError("it names no node")
    return names


def _expand_piece(piece: str) -> list[str]:
    if _SIMPLE.match(piece):
        return [piece]
    match = _ONE_BRACKET.match(piece)
    if match:  # by far the most frequent form, and ten times as fast here as in the library
        before, numbers, after = match.groups()
        return [before + number + after for part in numbers.split(",") for number in _numbers(part, piece)]
    return _by_library(piece)


def _numbers(part: str, piece: str) -> list[str]:
    first, dash, last = part.partition("-")
    if not first.isdigit() or (dash and not last.isdigit()):
        raise ValueError(f"{piece[:60]!r} is no node set")
    if not dash:
        return [first]
    low, high, width = int(first), int(last), len(first)
    if not low <= high < low + MOST_NODES:
        raise ValueError(f"{piece[:60]!r} does not rise, or names more than {MOST_NODES} nodes")
    return [str(number).zfill(width) for number in range(low, high + 1)]


def _by_library(piece: str) -> list[str]:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException  # noqa: PLC0415 - seldom needed

    try:
        found = NodeSet(piece, resolver=RESOLVER_NOGROUP)
        names = [str(name) for name in found] if len(found) <= MOST_NODES else []
    except (NodeSetException, OverflowError, MemoryError) as error:
        raise ValueError(f"{piece[:60]!r} is no node set") from error
    if not names or not all(_SIMPLE.match(name) for name in names):
        raise ValueError(f"{piece[:60]!r} is no node set")
    return names


def natural_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Key that sorts n2 before n10."""
    parts: list[tuple[int, int, str]] = []
    begin = 0
    for number in _NUMBERS.finditer(name):
        parts.append((0, 0, name[begin : number.start()]))
        parts.append((1, int(number[0]), number[0]))
        begin = number.end()
    parts.append((0, 0, name[begin:]))
    return tuple(parts)


def node_list(text: str, file: Path | None = None) -> tuple[str, ...]:
    """Names that ``--nodes`` asks for: a node set, or a file of node sets with ``#`` comments."""
    if file is None:
        return _listed(text, "--nodes")
    from bftrain_datasets.storage import text_lines  # noqa: PLC0415 - only where a file is given

    names: list[str] = []
    for number, line in text_lines(file):
        content = line.partition("#")[0].strip()
        if content:
            names += [name for part in content.split() for name in _listed(part, f"{file}:{number}")]
    if not names:
        raise BadInput("names no node", where=str(file), fix="write one node set a line")
    return tuple(dict.fromkeys(names))


def _listed(text: str, where: str) -> tuple[str, ...]:
    try:
        return tuple(dict.fromkeys(expand(text)))
    except ValueError as error:
        raise BadInput(f"no node set: {error}", where=where, fix=REMEDY) from error
