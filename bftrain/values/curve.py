"""SpeedCurve: the speed of a task by number of nodes; and node kinds.

All nodes of a kind are equally fast for a task; nodes of another kind may be faster, slower or unusable.
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
    the speed is proportional to the size. Beyond the last point, without measurements, the speed stays constant.
    Curves need be neither concave nor monotone; a rate of 0 means that the task does not run at that size.
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
        """Return the speed in samples/s at ``size`` nodes; a fractional size is interpolated between two sizes."""
        return float(np.interp(size, (0, *self.nodes), (0.0, *self.rate)))

    def speeds(self, largest: int) -> NDArray[np.float64]:
        """Return the speeds at sizes 0, 1, ..., ``largest``."""
        return np.interp(np.arange(largest + 1), (0, *self.nodes), (0.0, *self.rate))

    def times(self, factor: float) -> SpeedCurve:
        """Return the curve of a task that is ``factor`` times as fast."""
        return SpeedCurve(nodes=self.nodes, rate=tuple(rate * factor for rate in self.rate))

    def note(self, largest: int) -> str:
        """Return a note if sizes up to ``largest`` exceed the measured sizes, otherwise an empty text."""
        last = self.last_measured
        return f"no measurement beyond {last} nodes: the curve is flat there" if last < largest else ""


ANY_KIND: Final = ""  # nodes without a kind
OTHER_KIND: Final = "other"  # their name in logs and live runs where other nodes have a kind
MOST_NODES: Final = 1 << 20  # exceeds any machine; limits the number of generated names
_MOST_AMOUNT: Final = 1e6  # cores, or GB, per node
CLUSTER_FORM: Final = "write v100=36,p100=36,k80=36, or 128 where all nodes are alike"


def curve_on(curve: SpeedCurve, curves: Mapping[str, SpeedCurve], kind: str) -> SpeedCurve | None:
    """Return the speed on nodes of ``kind`` (``curve`` for nodes without a kind), ``None`` if it cannot run."""
    return curves.get(kind, curve if kind == ANY_KIND else None) if curves else curve


def cluster_of(text: str) -> Mapping[str, int]:
    """Parse the number of nodes by kind, in the sequence of the text; raise ``ValueError`` for invalid texts."""
    if "=" not in text:
        return MappingProxyType({ANY_KIND: _count(text, "")})
    found: dict[str, int] = {}
    for part in text.split(","):
        kind, _, count = (word.strip() for word in part.partition("="))
        if not kind or not kind.isprintable():
            raise ValueError(f"'{part}' names no kind")
        if kind in found:
            raise ValueError(f"'{kind}' is listed twice")
        found[kind] = _count(count, f" of '{kind}'")
    if sum(found.values()) > MOST_NODES:
        raise ValueError(f"{sum(found.values()):,} nodes are more than any machine has")
    return MappingProxyType(found)


def amounts_of(text: str) -> Mapping[str, float]:
    """Parse an amount for each node by kind, such as CPU cores; raise ``ValueError`` with the problem."""
    found: dict[str, float] = {}
    for part in text.split(","):
        kind, equals, amount = (word.strip() for word in part.rpartition("="))
        if bool(equals) != bool(kind) or not kind.isprintable() or (not kind and "," in text):
            raise ValueError(f"'{part}' names no kind")
        if kind in found:
            raise ValueError(f"'{kind}' is listed twice")
        try:
            found[kind] = float(amount)
        except ValueError:
            raise ValueError(f"{amount[:40]!r} is not a number") from None
        if not 0.0 < found[kind] <= _MOST_AMOUNT:
            raise ValueError(f"{amount[:40]} is not above 0 and up to {_MOST_AMOUNT:,.0f}")
    return MappingProxyType(found)


def _count(text: str, whose: str) -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > len(str(MOST_NODES)):
        raise ValueError(f"{text.strip()[:40]!r} is not a number of nodes{whose}")
    if not int(digits):
        raise ValueError(f"there must be at least 1 node{whose}")
    if int(digits) > MOST_NODES:
        raise ValueError(f"{int(digits):,} nodes{whose} are more than any machine has")
    return int(digits)
