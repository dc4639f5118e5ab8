"""The GPUs or cores that a job held of each node, in the notation of readers.

The notation is one number, the sum over all nodes of the job; or one line per node set: ``4*n[1-2]`` for four of each,
or ``0-1,5:n3`` for specific slots. An empty text, or 0, means none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from bftrain.nodesets import MOST_NODES, expand

MOST_OF_A_NODE: Final = 1 << 16
_COUNTED: Final = re.compile(r"(\d{1,9})\*(.+)\Z")
_NUMBERED: Final = re.compile(r"(\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*):(.+)\Z")

Share = tuple[str, int]  # a node, and the number of its GPUs or cores; or if negative a slot, -1 being the first


def is_total(units: str) -> bool:
    """Return whether only the sum over all nodes is known."""
    return units.isdecimal()


def total_of(units: str) -> int:
    """Return the total number; raise ``ValueError`` if unreadable."""
    if not units or is_total(units):
        return int(units[:12] or 0)
    return sum(max(number, 1) for _, number in _listed(units))


def shares_of(names: Sequence[str], units: str) -> Sequence[Share]:
    r"""Return the units held of each node; a sum is divided evenly, and the first nodes have one more if necessary.

    >>> shares_of(("n1", "n2"), "3"), shares_of((), "2*n1\\n0,3:n2")
    ([('n1', 2), ('n2', 1)], [('n1', 2), ('n2', -1), ('n2', -4)])
    """
    if not is_total(units):
        return _listed(units)
    each, more = divmod(total_of(units), len(names))
    shares = [(name, each + (place < more)) for place, name in enumerate(names)]
    return [share for share in shares if share[1]]


@lru_cache(maxsize=1 << 12)
def _listed(units: str) -> list[Share]:
    found: list[Share] = []
    for line in units.split("\n"):
        counted, numbered = _COUNTED.match(line), _NUMBERED.match(line)
        if counted:
            found += [(name, int(counted[1])) for name in expand(counted[2]) if int(counted[1])]
        elif numbered:
            numbers = numbers_in(numbered[1])
            found += [(name, -1 - number) for name in expand(numbered[2]) for number in numbers]
        else:
            raise ValueError(f"{line[:60]!r} is not a set of units and nodes")
        if len(found) > MOST_NODES:
            raise ValueError(f"{units[:60]!r} has more than {MOST_NODES} of them")
    return list(dict.fromkeys(found))


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
