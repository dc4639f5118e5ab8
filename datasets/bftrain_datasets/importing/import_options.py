"""Options of an import."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from bftrain.errors import BadInput, suggestion
from bftrain.node_units import NODE, UNITS
from bftrain.values import checks

CORES: Final = "cores"
ALL_CLUSTERS: Final = ("all", "*")  # a shell may expand the star to file names
SHARINGS: Final = ("none", CORES)


def listed(text: str) -> tuple[str, ...]:
    """Split a comma-separated list."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


class ImportOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of an import; each field is an option of ``bftrain import``.

    ``nodes`` lists the machine's nodes in order; ``node_count`` is their number if the names are unknown. ``window``
    and ``down`` are times in seconds UTC; ``down_nodes`` are node names with such a window. ``down_suspected`` marks
    suspected downtime as down. ``keep_end`` keeps the time after the last start in a dump of finished jobs. ``cluster``
    selects one of several clusters in the records, or ``all`` to read all as one machine. With ``sharing`` = ``cores``,
    the number of busy nodes is computed from the cores in use. ``unit`` is the resource counted as idle: ``node``,
    ``gpu`` or ``core``; a node has ``node_units`` units, or the number in ``node_units_of`` for its node set. ``map``
    sets the meaning of columns in a table of jobs, such as ``start=began:ms``; ``preset`` is the name of a public data
    set.
    """

    format: str | None = None
    timezone: str | None = None
    nodes: tuple[str, ...] | None = None
    node_count: int | None = None
    window: tuple[float | None, float | None] = (None, None)
    down: tuple[tuple[float | None, float | None], ...] = ()
    down_nodes: tuple[tuple[tuple[str, ...], float | None, float | None], ...] = ()
    down_suspected: bool = False
    downtime_after_s: float = 3600.0
    preemptible: tuple[str, ...] = ()
    min_gap_s: float = 0.0
    keep_end: bool = False
    counts: bool = False
    columns: tuple[str, ...] | None = None
    cluster: str | None = None
    sharing: str = "none"
    map: tuple[str, ...] = ()
    preset: str | None = None
    unit: str = NODE
    node_units: int | None = None
    node_units_of: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        if self.nodes is not None:
            checks.names(self, "nodes")
        if self.node_count is not None:
            checks.integer(self, "node_count", at_least=1)
        checks.names(self, "preemptible")
        if self.sharing not in SHARINGS:
            raise BadInput(
                f"sharing cannot be '{self.sharing}'", where="sharing", fix=suggestion(self.sharing, SHARINGS)
            )
        if self.unit not in UNITS:
            raise BadInput(f"unit cannot be '{self.unit}'", where="unit", fix=suggestion(self.unit, UNITS))
        if self.node_units is not None:
            checks.integer(self, "node_units", at_least=1)
        if self.unit == NODE and (self.node_units is not None or self.node_units_of):
            raise BadInput("whole nodes have no number of GPUs or cores", where="unit", fix="choose gpu or core")
        checks.number(self, "min_gap_s", at_least=0)
        checks.number(self, "downtime_after_s", above=0)

    def to_dict(self) -> dict[str, Any]:
        """Return the options that differ from their defaults, for a log's provenance."""
        default = ImportOptions()
        names = (name for name in self.__struct_fields__ if getattr(self, name) != getattr(default, name))
        return {name: getattr(self, name) for name in names}
