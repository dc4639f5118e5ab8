"""SpeedCurve: how fast a task runs on how many nodes; and the kinds of nodes.

Nodes of one kind are alike to every task, those of another may be faster, slower or of no use.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from bftrain.values import checks

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SpeedCurve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, cache_hash=True):
    """Speed in samples/s as a function of size, from measured points.

    Between points the curve is linear; size 0 has speed 0 and belongs to every curve, so below the first point
    the speed is proportional to the size. Beyond the last point nothing was measured: the speed stays flat there.
    Curves need be neither concave nor monotone; a rate of 0 says that the task does not run at that size.
    """

    nodes: tuple[int, ...]
    rate: tuple[float, ...]

    def __post_init__(self) -> None:
        nodes = checks.integers(self, "nodes")
        rate = checks.numbers(self, "rate")
        if not nodes:
            checks.reject(self, "nodes", "has no point", "give at least one measured size")
        if len(rate) != len(nodes):
            checks.reject(self, "rate", f"has {len(rate)} values for {len(nodes)} sizes")
        if nodes[0] < 1:
            checks.reject(self, "nodes", f"starts at {nodes[0]}, but the smallest size is 1")
        if any(b <= a for a, b in pairwise(nodes)):
            checks.reject(self, "nodes", "must rise strictly", "sort the points and drop repeated sizes")
        if min(rate) < 0:
            checks.reject(self, "rate", f"has the negative speed {min(rate):g}")

    @property
    def last_measured(self) -> int:
        """The largest size with a measured speed."""
        return self.nodes[-1]

    def speed(self, size: float) -> float:
        """Speed in samples/s at ``size`` nodes; between whole sizes it stands for having now the one, now the other."""
        return float(np.interp(size, (0, *self.nodes), (0.0, *self.rate)))

    def speeds(self, largest: int) -> NDArray[np.float64]:
        """Speeds at sizes 0, 1, ..., ``largest``."""
        return np.interp(np.arange(largest + 1), (0, *self.nodes), (0.0, *self.rate))

    def note(self, largest: int) -> str:
        """Say that sizes up to ``largest`` go beyond what was measured; nothing if they do not."""
        last = self.last_measured
        return f"nothing measured beyond {last} nodes, taken as flat there" if last < largest else ""


ANY_KIND: Final = ""  # of nodes without a kind
OTHER_KIND: Final = "other"  # the same, where that of other nodes is: in a log, and in a live run
MOST_NODES: Final = 1 << 20  # more than any machine has: names of so many are made at once
CLUSTER_FORM: Final = "write v100=36,p100=36,k80=36, or 128 where all nodes are alike"


def curve_on(curve: SpeedCurve, curves: Mapping[str, SpeedCurve], kind: str) -> SpeedCurve | None:
    """Give the speed on nodes of ``kind``, for those of no kind ``curve``; ``None`` if the task does not run there."""
    return curves.get(kind, curve if kind == ANY_KIND else None) if curves else curve


def cluster_of(text: str) -> Mapping[str, int]:
    """Read how many nodes there are by kind, in the order given; a ``ValueError`` says what is wrong."""
    if "=" not in text:
        return MappingProxyType({ANY_KIND: _count(text, "")})
    found: dict[str, int] = {}
    for part in text.split(","):
        kind, _, count = (word.strip() for word in part.partition("="))
        if not kind or not kind.isprintable():
            raise ValueError(f"'{part}' names no kind")
        if kind in found:
            raise ValueError(f"'{kind}' comes twice")
        found[kind] = _count(count, f" of '{kind}'")
    if sum(found.values()) > MOST_NODES:
        raise ValueError(f"{sum(found.values()):,} nodes are more than any machine has")
    return MappingProxyType(found)


def _count(text: str, whose: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(MOST_NODES)):
        raise ValueError(f"{text.strip()[:40]!r} is no number of nodes{whose}")
    if not 1 <= int(digits) <= MOST_NODES:
        raise ValueError(f"{int(digits):,} nodes{whose} are {'more than any machine has' if int(digits) else 'none'}")
    return int(digits)
