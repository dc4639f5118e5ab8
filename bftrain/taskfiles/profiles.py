"""Measured speeds of seven image models on 1 to 64 nodes of Summit, and what rescaling them cost.

The figures are those published with BFTrainer (Liu, Kettimuthu, Papka, Foster: "BFTrainer: Low-Cost Training of
Neural Networks on Unfillable Supercomputer Nodes", arXiv:2106.12091): images per second.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import msgspec

from bftrain.errors import UnknownName
from bftrain.values.curve import SpeedCurve

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE: Final = "BFTrainer, arXiv:2106.12091"
MEASURED_WORK_SAMPLES: Final = 1.3e8
GROW_COST_S: Final = 18.0
SHRINK_COST_S: Final = 12.0

_NODES: Final = (1, 2, 4, 8, 16, 32, 64)
_RATES: Final[Mapping[str, tuple[float, ...]]] = {
    "alexnet": (7115, 13072, 21066, 40485, 74003, 130762, 202135),
    "resnet18": (5219, 10583, 20436, 39584, 78024, 144763, 262723),
    "mnasnet": (3246, 6002, 11489, 23076, 43900, 83474, 160494),
    "mobilenet": (3040, 5893, 11386, 22025, 42488, 82268, 155214),
    "shufflenet": (2831, 5259, 9988, 20379, 38895, 74125, 145082),
    "vgg16": (1193, 2389, 4692, 9258, 18349, 36209, 70152),
    "densenet": (990, 1953, 3850, 7608, 14993, 28812, 57774),
}
PROFILE_NAMES: Final[tuple[str, ...]] = tuple(_RATES)


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """A model as it was measured: speed in samples/s by size, seconds to grow and to shrink, and who says so.

    The costs are means over the models; growing took 17 to 19 s and shrinking 11 to 13 s.
    """

    name: str
    curve: SpeedCurve
    grow_cost_s: float
    shrink_cost_s: float
    source: str


@cache
def profiles() -> Mapping[str, Profile]:
    """All bundled profiles by name, the fastest model first."""
    return MappingProxyType(
        {
            name: Profile(
                name=name,
                curve=SpeedCurve(nodes=_NODES, rate=rates),
                grow_cost_s=GROW_COST_S,
                shrink_cost_s=SHRINK_COST_S,
                source=SOURCE,
            )
            for name, rates in _RATES.items()
        }
    )


def profile(name: str, *, where: str | None = None) -> Profile:
    """Give the bundled profile of this name, or say which there are."""
    known = profiles()
    if name not in known:
        raise UnknownName.among("profile", name, known, where=where)
    return known[name]


def profile_with(curve: SpeedCurve) -> Profile | None:
    """Give the bundled profile with exactly this curve, if there is one."""
    return next((known for known in profiles().values() if known.curve == curve), None)
