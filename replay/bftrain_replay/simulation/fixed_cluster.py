"""Fixed clusters: permanent nodes as a log, and the stop conditions of a replay on them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from bftrain.errors import BadInput, BadValue
from bftrain.values.curve import ANY_KIND
from bftrain.values.task import TaskSpec
from bftrain_datasets.log.eventlog import IDLE, EventLog
from bftrain_datasets.log.provenance import LogProvenance

FOREVER_S: Final = 1e15  # thirty million years: a larger clock loses millisecond precision
MADE_BY: Final = "fixed cluster"
_ODD: Final = re.compile(r"[^\w.]+")
_MOST_NAMED: Final = 3


class EndReason(StrEnum):
    """Stop reason of a replay on a fixed cluster."""

    ALL_DONE = "all_done"  # every task is finished
    UNTIL = "until"  # the time that was given is over
    STANDSTILL = "standstill"  # tasks are left, but no further event is possible
    INTERRUPTED = "interrupted"


WORDS: Final[Mapping[EndReason, str]] = {
    EndReason.ALL_DONE: "all tasks are done",
    EndReason.UNTIL: "the time given with --until is over",
    EndReason.STANDSTILL: "the remaining tasks get no nodes, and no event will change that",
    EndReason.INTERRUPTED: "it was interrupted",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCluster:
    """The number of nodes by kind (a uniform cluster has one unnamed kind), and the latest stop in seconds."""

    nodes: Mapping[str, int]
    until_s: float | None = None

    def __post_init__(self) -> None:
        """Raise for a stop time that lets no task finish."""
        if self.until_s is not None and not 0.0 < self.until_s < math.inf:
            what = f"must be a finite number above 0, not {self.until_s:g}"
            raise BadValue(what, where="FixedCluster.until_s", fix="omit it to continue until all tasks are done")

    @property
    def text(self) -> str:
        """The nodes in the notation of the command line: ``v100=36,k80=4``."""
        if set(self.nodes) == {ANY_KIND}:
            return str(self.nodes[ANY_KIND])
        return ",".join(f"{kind}={count}" for kind, count in self.nodes.items())

    def log(self, end_s: float | None = None) -> EventLog:
        """Return it as a log from 0 with permanently idle nodes."""
        return idle_log(
            tuple(_names(self.nodes)),
            {} if set(self.nodes) == {ANY_KIND} else self.nodes,
            (FOREVER_S if self.until_s is None else self.until_s) if end_s is None else end_s,
            LogProvenance(made_by=MADE_BY, options={"cluster": self.text}),
        )

    def check(self, tasks: Sequence[TaskSpec]) -> None:
        """Raise for tasks that never fit, and for endless tasks without another stop condition."""
        unfit = never_held(tasks, self.nodes)
        if unfit:
            fix = "omit them, or give the cluster more nodes of a kind that they run on"
            raise BadInput(f"this cluster can never hold {unfit}", where="tasks", fix=fix)
        if not tasks:
            raise BadInput("no tasks", where="tasks", fix="add tasks")
        endless = [spec.name for spec in tasks if spec.work_samples is None]
        if endless and self.until_s is None:
            what = f"task '{endless[0]}' never finishes, so the replay would not end"
            raise BadInput(what, where="tasks", fix="set its work_samples, or --until")


def idle_log(names: tuple[str, ...], by_kind: Mapping[str, int], end_s: float, provenance: LogProvenance) -> EventLog:
    """Return a log from 0 with permanently idle nodes, ordered by kind if they have any."""
    kinds = np.zeros(0, dtype=np.int32)
    if by_kind:
        kinds = np.repeat(np.arange(len(by_kind), dtype=np.int32), list(by_kind.values()))
    return EventLog(
        node_names=names,
        times=np.zeros(1),
        offsets=np.array([0, len(names)], dtype=np.int64),
        nodes=np.arange(len(names), dtype=np.int32),
        states=np.full(len(names), IDLE, dtype=np.int8),
        end_s=end_s,
        kind_names=tuple(by_kind),
        node_kinds=kinds,
        provenance=provenance,
    )


def never_held(tasks: Sequence[TaskSpec], nodes: Mapping[str, int]) -> str:
    """Return the tasks that never fit on these nodes, with reasons; "" if all fit."""
    unfit = [spec for spec in tasks if not fits(spec, nodes)]
    text = "; ".join(_why_not(spec, nodes) for spec in unfit[:_MOST_NAMED])
    return text + (f"; and {len(unfit) - _MOST_NAMED:,} others" if len(unfit) > _MOST_NAMED else "")


def fits(spec: TaskSpec, largest: Mapping[str, int]) -> bool:
    """Return whether a task can run within that many nodes of each kind."""
    for kind, count in largest.items():
        curve, most = spec.curve_on(kind), min(spec.max_nodes, count)
        if curve is not None and spec.min_nodes <= most and curve.speeds(most)[spec.min_nodes :].any():
            return True
    return False


def _why_not(spec: TaskSpec, nodes: Mapping[str, int]) -> str:
    able = {kind: count for kind, count in nodes.items() if spec.curve_on(kind) is not None}
    if not able:
        known = ", ".join(spec.curves)
        return f"task '{spec.name}', which runs on {known} only"
    largest = max(able.values())
    if spec.min_nodes > largest:
        of_kind = " of one kind" if len(nodes) > 1 else ""
        return f"task '{spec.name}', which needs {spec.min_nodes:,} nodes{of_kind} where it can have up to {largest:,}"
    return f"task '{spec.name}', with speed 0 at every possible size"


def _names(nodes: Mapping[str, int]) -> Iterator[str]:
    """Yield node names by kind and number: ``v100-01``."""
    stems = [_ODD.sub("-", kind).strip("-") or "n" for kind in nodes]
    if len(set(stems)) < len(stems):
        stems = [f"kind{number}" for number in range(1, len(stems) + 1)]
    for stem, count in zip(stems, nodes.values(), strict=True):
        width = len(str(count))
        yield from (f"{stem}-{number:0{width}d}" for number in range(1, count + 1))
