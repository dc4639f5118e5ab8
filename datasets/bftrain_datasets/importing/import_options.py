"""Options of an import."""

from __future__ import annotations

from typing import Any

import msgspec

from bftrain.values import checks


class ImportOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How records are read and what is made of them; each field is an option of ``bftrain import``.

    ``nodes`` are the machine's, in order, and ``node_count`` how many there are where only a number is known.
    ``window`` ends and ``down`` windows are seconds UTC. ``down_suspected`` makes suspected downtime down;
    ``keep_end`` keeps the time after the last job of a dump of ended jobs started.
    """

    format: str | None = None
    timezone: str | None = None
    nodes: tuple[str, ...] | None = None
    node_count: int | None = None
    window: tuple[float | None, float | None] = (None, None)
    down: tuple[tuple[float | None, float | None], ...] = ()
    down_suspected: bool = False
    downtime_after_s: float = 3600.0
    preemptible: tuple[str, ...] = ()
    min_gap_s: float = 0.0
    keep_end: bool = False
    counts: bool = False
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        if self.nodes is not None:
            checks.names(self, "nodes")
        if self.node_count is not None:
            checks.integer(self, "node_count", at_least=1)
        checks.names(self, "preemptible")
        checks.number(self, "min_gap_s", at_least=0)
        checks.number(self, "downtime_after_s", above=0)

    def to_dict(self) -> dict[str, Any]:
        """Give the options that differ from their defaults, as they go into a log's provenance."""
        default = ImportOptions()
        names = (name for name in self.__struct_fields__ if getattr(self, name) != getattr(default, name))
        return {name: getattr(self, name) for name in names}
