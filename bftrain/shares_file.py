"""Shares file: who shares the nodes by which weight and within which quota, and what nodes of a kind cost."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from bftrain import config
from bftrain.values import checks
from bftrain.values.mapped import Mapped
from bftrain.values.sharing import Entity


class SharesFile(Mapped, frozen=True, kw_only=True):
    """What stands in one: the tables ``entities`` and ``prices`` of the settings, and nothing else."""

    entities: Mapping[str, Entity] = msgspec.field(default_factory=dict)
    prices: Mapping[str, float] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check both tables."""
        checks.mapped(self, "entities", Entity)
        checks.positive(self, "prices")

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that it gives; a table that is not there leaves them as they are."""
        return {name: table for name in self.__struct_fields__ if (table := getattr(self, name))}


def load_shares(path: Path) -> SharesFile:
    """Read a shares file. A user may be given a number alone, which is the weight."""
    text = config.read(path)
    data = config.parsed(text, str(path))
    entities = data.get("entities")
    if isinstance(entities, dict):
        data = {**data, "entities": {name: _entity(given) for name, given in entities.items()}}
    return config.from_mapping(data, SharesFile, where=str(path), text=text)


def _entity(given: object) -> object:
    weight = isinstance(given, int | float) and not isinstance(given, bool)
    return {"weight": given} if weight else given
