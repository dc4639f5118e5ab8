"""``--cluster``: a machine whose nodes never leave, as ``v100=36,p100=36,k80=36``, or ``128`` where all are alike."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLE: Final = "v100=36,p100=36,k80=36"
MOST_NODES: Final = 1 << 20  # more than any machine has: names of so many are made at once
_REMEDY: Final = f"write {EXAMPLE}, or 128 where all nodes are alike"


class ClusterType(click.ParamType["Mapping[str, int]"]):
    """How many nodes there are of each kind; the kind without a name is that of nodes that are all alike."""

    name = "KIND=NODES,.."

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Mapping[str, int]:
        """Read the text."""
        try:
            return cluster_of(str(value))
        except ValueError as error:
            self.fail(f"{error}; {_REMEDY}", param, ctx)


def cluster_of(text: str) -> Mapping[str, int]:
    """Read how many nodes there are by kind, in the order given; a ``ValueError`` says what is wrong."""
    if "=" not in text:
        return MappingProxyType({"": _count(text, "")})
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
