"""Node kinds: nodes of one kind are alike to every task, those of another may be faster, slower or of no use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Protocol

from bftrain.values.curve import SpeedCurve

ANY_KIND: Final = ""  # of nodes without a kind
OTHER_KIND: Final = "other"  # the same, where that of other nodes is: in a log, and in a live run
MOST_NODES: Final = 1 << 20  # more than any machine has: names of so many are made at once
CLUSTER_FORM: Final = "write v100=36,p100=36,k80=36, or 128 where all nodes are alike"


class SpeedsByKind(Protocol):
    """Anything with speeds by kind."""

    @property
    def curve(self) -> SpeedCurve:
        """Speed where nodes have no kinds."""
        ...

    @property
    def curves(self) -> Mapping[str, SpeedCurve]:
        """Speed by kind; empty if kinds do not matter."""
        ...


def curve_on(task: SpeedsByKind, kind: str) -> SpeedCurve | None:
    """Give the speed on nodes of ``kind``, for those of no kind ``curve``; ``None`` if the task does not run there."""
    if not task.curves:
        return task.curve
    return task.curves.get(kind, task.curve if kind == ANY_KIND else None)


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
