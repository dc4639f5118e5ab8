"""Node sets as schedulers write them, such as ``nid[0001-0004,7]``: expand to names, and fold names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

MOST_NODES: Final = 1_000_000  # limit per machine; more is a typing error, such as n[1-1000000000]
LONGEST_NAME: Final = 255
LONGEST_PIECE: Final = 4096  # characters of a piece that ClusterShell expands
REMEDY: Final = "write it as the scheduler does, such as nid[0001-0064,70] or a1,a2"

_SIMPLE: Final = re.compile(r"[\w.-]+\Z")
ONE_BRACKET: Final = re.compile(r"([\w.-]*)\[(\d[\d,-]*)\]([\w.-]*)\Z")
_LETTERS: Final = re.compile(r"[\w.,/\[\]-]+\Z")
_MARKS: Final = re.compile(r"[\[\],]")
_BRACKETS: Final = re.compile(r"\[([^\[\]]*)\]")
_NUMBERS: Final = re.compile(r"\d+")


def expand(text: str) -> list[str]:
    """Return the names in a node set; raise ``ValueError`` if invalid.

    Names keep their order and repetitions, except in pieces with several brackets or steps.
    """
    names: list[str] = []
    for piece in _pieces(text) if "[" in text else text.split(","):
        if piece:
            names += _expand_piece(piece)
        if len(names) > MOST_NODES:
            raise ValueError(f"{text[:60]!r} has more than {MOST_NODES} nodes")
    if not names:
        raise ValueError("the node set is empty")
    return names


def _pieces(text: str) -> Iterator[str]:
    begin, depth = 0, 0
    for part in _MARKS.finditer(text):
        if part[0] == "[":
            depth += 1
        elif part[0] == "]":
            depth -= 1
        elif depth == 0:
            yield text[begin : part.start()]
            begin = part.end()
    yield text[begin:]


def _expand_piece(piece: str) -> list[str]:
    if _SIMPLE.match(piece) and len(piece) <= LONGEST_NAME:
        return [piece]
    match = ONE_BRACKET.match(piece)
    if match:  # the most frequent form by far, ten times faster than ClusterShell
        before, numbers, after = match.groups()
        ranges = [_bounds(part, piece) for part in numbers.split(",")]
        _check_count(piece, sum(high - low + 1 for low, high, _ in ranges))
        if len(before) + len(after) + max(max(width, len(str(high))) for _, high, width in ranges) > LONGEST_NAME:
            raise ValueError(f"{piece[:60]!r} has a name longer than {LONGEST_NAME} letters")
        return [
            before + str(number).zfill(width) + after for low, high, width in ranges for number in range(low, high + 1)
        ]
    return _expand_by_library(piece)


def _bounds(part: str, piece: str) -> tuple[int, int, int]:
    """Return the bounds of ``3`` or ``01-12``, and the minimum number of digits."""
    first, dash, last = part.partition("-")
    last = last if dash else first
    if not first.isdigit() or not last.isdigit() or len(first) > LONGEST_NAME or len(last) > LONGEST_NAME:
        raise ValueError(f"{piece[:60]!r} is not a node set")
    low, high = int(first), int(last)
    if low > high:
        raise ValueError(f"{piece[:60]!r} has a range that does not rise")
    return low, high, len(first)


def _check_count(piece: str, count: int) -> None:
    if count > MOST_NODES:
        raise ValueError(f"{piece[:60]!r} has more than {MOST_NODES} nodes")


def _expand_by_library(piece: str) -> list[str]:
    """Expand rarer forms (several brackets, steps) by ClusterShell, after size checks, as it expands them fully."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException  # noqa: PLC0415 - rarely needed

    brackets = _BRACKETS.findall(piece)
    if not brackets or len(piece) > LONGEST_PIECE or not _LETTERS.match(piece):  # ClusterShell has operators, as in a!b
        raise ValueError(f"{piece[:60]!r} is not a node set")
    count = 1
    for bracket in brackets:
        ranges = [_bounds(part.partition("/")[0], piece) for part in bracket.split(",")]
        count *= sum(high - low + 1 for low, high, _ in ranges)
        _check_count(piece, count)
    try:
        names = [str(name) for name in NodeSet(piece, resolver=RESOLVER_NOGROUP)]
    except (NodeSetException, OverflowError) as error:
        raise ValueError(f"{piece[:60]!r} is not a node set") from error
    if not all(_SIMPLE.match(name) and len(name) <= LONGEST_NAME for name in names):
        raise ValueError(f"{piece[:60]!r} is not a node set")
    return names


def fold(names: Iterable[str]) -> str:
    """Return names folded to a node set."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet  # noqa: PLC0415 - only needed for long lists

    return str(NodeSet.fromlist(list(names), resolver=RESOLVER_NOGROUP))


def natural_order(name: str) -> tuple[tuple[int, int, str, str], ...]:
    """Return a sort key that orders n2 before n10."""
    parts: list[tuple[int, int, str, str]] = []
    begin = 0
    for number in _NUMBERS.finditer(name):
        parts.append((0, 0, name[begin : number.start()], ""))
        digits = number[0].lstrip("0")
        parts.append((1, len(digits), digits, number[0]))  # sorts numbers of any size by length and then by digit
        begin = number.end()
    parts.append((0, 0, name[begin:], ""))
    return tuple(parts)
