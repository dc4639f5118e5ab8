"""How a workload is to be read."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path

from bftrain.errors import BadValue


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions:
    """What a file of jobs does not say itself.

    ``format`` names the reader, otherwise the content decides. ``speeds`` is a throughput table. Tasks get the speeds
    on the ``kinds`` of nodes in it, by default on all; with ``node_kind`` those on this one, as if there were no other.
    ``reference`` is the kind on which the ideal duration of a deadline is measured. ``elastic`` takes all measured
    gangs instead of the one that the job asked for. ``per_node`` GPUs or processors
    make a node. Jobs that ``nodes`` nodes can never hold are refused.

    Only the ``first`` so many jobs are looked at, and only those become tasks that arrive in the ``window``, from begin
    to end on the file's clock. ``submit_s`` counts from ``begin_s`` (seconds UTC), by default from the first task.
    Times without a zone are in ``zone``. A ``strict`` import ends at the first doubtful row.
    """

    format: str | None = None
    speeds: Path | str | None = None
    node_kind: str | None = None
    kinds: tuple[str, ...] = ()
    reference: str | None = None
    elastic: bool = False
    per_node: int | None = None
    nodes: int | None = None
    begin_s: float | None = None
    window: tuple[float | None, float | None] = (None, None)
    first: int | None = None
    zone: tzinfo = UTC
    strict: bool = False

    def __post_init__(self) -> None:
        for field in ("per_node", "nodes", "first"):
            value = getattr(self, field)
            if value is not None and value < 1:
                raise BadValue(f"must be at least 1, not {value}", where=f"WorkloadOptions.{field}")
        if self.kinds and self.node_kind is not None:
            fix = "give one of them: the speeds of several kinds, or of one as if there were no other"
            raise BadValue("and node_kind are both given", where="WorkloadOptions.kinds", fix=fix)
