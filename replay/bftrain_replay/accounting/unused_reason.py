"""Leftover: why nodes that a decision left over do not work (docs/semantics.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bftrain_replay.accounting.node_time_ledger import UnusedReason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bftrain.values.task import TaskSpec


def why_unused(
    left: int,
    *,
    room: int,
    sizes: Mapping[str, int],
    running: int,
    unfinished: int,
    spec_of: Callable[[str], TaskSpec],
) -> dict[UnusedReason, int]:
    """Say why ``left`` nodes do not work.

    ``room`` is how many nodes the running tasks could still take, ``sizes`` those of all that compete, of which
    ``running`` hold nodes; ``unfinished`` counts also the tasks that may not compete.
    """
    if left == 0:
        return {}
    too_small = False
    if room < left and len(sizes) > running:
        for name, size in sizes.items():
            if size == 0:
                spec = spec_of(name)
                if spec.min_nodes <= left:
                    room += spec.max_nodes
                else:
                    too_small = True
    wanted = min(left, room)
    if too_small:
        reason = UnusedReason.BELOW_MINIMUM
    elif unfinished > len(sizes):
        reason = UnusedReason.TASK_CAP
    else:
        reason = UnusedReason.AT_MAXIMUM if sizes else UnusedReason.NO_TASK
    return {UnusedReason.NOT_WORTH: wanted, reason: left - wanted}
