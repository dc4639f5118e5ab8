"""First come, first served: no job overtakes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bftrain_datasets.scheduling.cluster import SimulatedCluster
    from bftrain_datasets.scheduling.policy_options import PolicyOptions


class FirstComePolicy:
    """Starts jobs in the order of submission, as long as they fit."""

    name: Final = "fcfs"

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Give the jobs at the head of the queue that fit together."""
        free, started = cluster.free, []
        for job in cluster.waiting:
            free -= cluster.size[job]
            if free < 0:
                break
            started.append(job)
        return started


def make(options: PolicyOptions) -> FirstComePolicy:  # noqa: ARG001 - what all policies are made from
    """Make the policy."""
    return FirstComePolicy()
