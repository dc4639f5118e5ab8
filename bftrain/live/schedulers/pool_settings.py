"""PoolSettings: one of the tables [[scheduler]]: a partition, a QOS, a cluster or a scheduler beside others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from bftrain.config import from_mapping
from bftrain.errors import BadConfig
from bftrain.node_units import GPU, NODE
from bftrain.values import checks, wire

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_SCHEDULER: Final = "name"  # the key that names it
_REMOVED: Final = ("when", "timezone")  # keys of earlier versions


class PoolSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a pool beside its scheduler's own ones, which are in ``table``."""

    name: str  # of its scheduler
    pool: str = ""  # what the pool is called; a single one may have no name
    kind: str = ""  # of its nodes that [kinds] does not name
    unit: str = NODE  # what tasks get: whole nodes, or single GPUs of nodes that others' jobs may share
    table: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        checks.text(self, "name")
        if self.pool and not _NAME.fullmatch(self.pool):
            checks.reject(self, "pool", f"must be up to 40 letters, digits, '-' and '_', not {self.pool!r}")
        checks.one_of(self, "unit", (NODE, GPU))
        if self.kind:
            checks.text(self, "kind")

    @property
    def plain(self) -> bool:
        """Whether nothing is said that a scheduler alone would not do."""
        return not (self.pool or self.kind)

    @property
    def label(self) -> str:
        """The name that is shown."""
        return self.pool or self.name


_OWN: Final = frozenset(PoolSettings.__struct_fields__) - {"table"}
Settings = TypeVar("Settings", bound=msgspec.Struct)


def scheduler_settings(table: Mapping[str, Any], kind: type[Settings]) -> Settings:
    """Read the scheduler's own settings from a pool's ``table``; errors suggest the pool's keys too."""
    return from_mapping(table, kind, where="[scheduler]", beside=_OWN)


def pools_of(given: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> tuple[PoolSettings, ...]:
    """Read a table [scheduler], or the list [[scheduler]]; each but one has a name of its own."""
    tables = [given] if isinstance(given, Mapping) else list(given)
    if not tables:
        raise BadConfig("names no scheduler", where="[[scheduler]]", fix='such as name = "slurm"')
    pools: list[PoolSettings] = []
    for number, table in enumerate(tables, start=1):
        where = "[scheduler]" if isinstance(given, Mapping) else f"[[scheduler]] number {number}"
        if not isinstance(table.get(_SCHEDULER), str):
            raise BadConfig("has no name", where=where, fix='such as name = "slurm"')
        if removed := [key for key in _REMOVED if key in table]:
            fix = "run bftrain live pause and bftrain live resume from cron"
            raise BadConfig(f"'{removed[0]}' was removed", where=where, fix=fix)
        own = {key: table[key] for key in table if key in _OWN}
        pool = wire.convert({**own, "table": {key: table[key] for key in table if key not in _OWN}}, PoolSettings)
        if any(pool.pool == other.pool for other in pools):
            what = f"there is another pool called '{pool.pool}'" if pool.pool else "there is another one without a name"
            raise BadConfig(what, where=where, fix='name each: pool = "gpu"')
        if pools and pool.unit != pools[0].unit:
            what = f'has unit = "{pool.unit}", and the first one has "{pools[0].unit}"'
            raise BadConfig(what, where=where, fix="give all the same unit, or run a live run for each")
        pools.append(pool)
    return tuple(pools)
