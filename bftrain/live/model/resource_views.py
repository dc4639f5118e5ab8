"""Resources and their use in answers of the API: pools, kinds of nodes, hooks, hours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from bftrain.live.model.task_record import said


class Harvested(msgspec.Struct, frozen=True, kw_only=True):
    """The work done on one day, in the time zone of the daemon's machine."""

    day: Annotated[str, said("YYYY-MM-DD.")]
    samples: float = 0.0
    node_s: Annotated[float, said("Node-seconds held by tasks.")] = 0.0


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The use and the work of one user, project, campaign, month, day or task."""

    of: Annotated[str, said("Whose it is: a user, a project, USER/CAMPAIGN, a month, a day, or #NUMBER of a task.")]
    node_s: Annotated[float, said("Node-seconds held.")]
    gpu_s: Annotated[float, said("GPU-seconds held, by the GPUs of a node that the site tells.")]
    samples: Annotated[float, said("Samples done; steps that were done again count once.")]
    energy_j: Annotated[float, said("Joules, by the watts of a node that the site tells.")]


class KindView(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one kind."""

    pool: Annotated[int, said("Those that are ours.")]
    used: Annotated[int, said("Those that tasks hold.")]


class PoolView(msgspec.Struct, frozen=True, kw_only=True):
    """One of several pools."""

    scheduler: str
    nodes: Annotated[int, said("Nodes that are ours there.")]


class HooksView(msgspec.Struct, frozen=True, kw_only=True):
    """Reports of the scheduler's hooks since the live run began."""

    spool: Annotated[str, said("The folder into which they write.")]
    messages: Annotated[Mapping[str, int], said("How many were heard, by what they report: start, ending, end, check.")]
    silent: Annotated[tuple[str, ...], said("What they should report and have not yet.")] = ()
    last_s: Annotated[float | None, said("When the last message was heard; seconds since 1970.")] = None
