"""Options for importing a workload."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, tzinfo
from pathlib import Path

from bftrain.errors import BadValue


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadOptions:
    """Settings that a file of jobs does not contain.

    ``format`` selects the reader, by default from the content. ``speeds`` is a throughput table. Tasks get the speeds
    on the ``kinds`` of nodes in it, by default on all; with ``node_kind`` only those on this one.
    ``reference`` is the kind for the ideal duration of a deadline. ``elastic`` allows all measured
    gangs instead of the requested one; ``by_hosts`` keeps their speeds on several hosts. ``per_node`` GPUs or
    processors make a node. Jobs that ``nodes`` nodes can never hold are rejected.

    Only the ``first`` jobs are considered, and only those that arrive in the ``window`` become tasks, from begin
    to end on the file's clock. ``submit_s`` counts from ``begin_s`` (seconds UTC), by default from the first task.
    Times without a zone are in ``zone``. A ``strict`` import ends at the first doubtful row.
    """

    format: str | None = None
    speeds: Path | str | None = None
    node_kind: str | None = None
    kinds: tuple[str, ...] = ()
    reference: str | None = None
    elastic: bool = False
    by_hosts: bool = False
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
        if self.by_hosts and (self.per_node or 1) > 1:
            what, fix = "counts GPUs, and per_node makes nodes of them", "leave one of them out"
            raise BadValue(what, where="WorkloadOptions.by_hosts", fix=fix)
        if self.kinds and self.node_kind is not None:
            fix = "set one of them: the speeds of several kinds, or of one as if there were no other"
            raise BadValue("and node_kind are both set", where="WorkloadOptions.kinds", fix=fix)
