"""Shares file: who shares the nodes by which weight and within which quota, and what nodes of a kind cost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec

from bftrain import config
from bftrain.errors import BadConfig, BadValue, suggestion
from bftrain.toml_lines import line_of
from bftrain.values import checks
from bftrain.values.mapped import Mapped
from bftrain.values.sharing import Entity

_FIXES: Final[Mapping[str, str]] = {
    "entities": 'write NAME = 2, or NAME = { weight = 2, inside = "fifo", nodes = 16, tasks = 4 }',
    "prices": "write KIND = 2.5",
}


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
    source = _Source(str(path), text)
    data = config.parsed(text, str(path))
    source.check_keys((), data, SharesFile.__struct_fields__)
    entities = {name: _entity(source, name, given) for name, given in source.table(data, "entities").items()}
    for kind, price in source.table(data, "prices").items():
        try:
            SharesFile(prices={kind: price})
        except BadValue:
            what = f"must be a number above 0, not {price!r:.60}" if kind else "a kind has a name"
            source.refuse(("prices", kind), what)
    return SharesFile(entities=entities, prices=source.table(data, "prices"))


@dataclass(frozen=True, slots=True)
class _Source:
    """The file, to say where what is wrong stands."""

    path: str
    text: str

    def table(self, data: Mapping[str, Any], name: str) -> Mapping[str, Any]:
        found = data.get(name, {})
        if not isinstance(found, dict):
            self.refuse((name,), f"must be a table, not {found!r:.60}")
        return found

    def check_keys(self, keys: tuple[str, ...], data: Collection[str], known: Collection[str]) -> None:
        for key in data:
            if key not in known:
                where = ": ".join([self._place((*keys, key)), *([".".join(keys)] if keys else [])])
                raise BadConfig(f"unknown key '{key}'", where=where, fix=suggestion(key, known))

    def refuse(self, keys: tuple[str, ...], what: str) -> NoReturn:
        raise BadConfig(what, where=f"{self._place(keys)}: {'.'.join(keys)}", fix=_FIXES[keys[0]])

    def _place(self, keys: tuple[str, ...]) -> str:
        line = line_of(self.text, keys)
        return f"{self.path}:{line}" if line else self.path


def _entity(source: _Source, name: str, given: object) -> Entity:
    keys = ("entities", name)
    if isinstance(given, dict):
        source.check_keys(keys, given, Entity.__struct_fields__)
        parts = given
    elif isinstance(given, int | float) and not isinstance(given, bool):
        parts = {"weight": given}
    else:
        source.refuse(keys, f"must be a weight or a table, not {given!r:.60}")
    try:
        return Entity(**parts)
    except BadValue as error:
        part = (error.where or "").removeprefix(f"{Entity.__name__}.")
        source.refuse((*keys, part) if isinstance(given, dict) else keys, error.what)
