"""Port of queue policies: chooses which jobs a simulated main scheduler starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bftrain_datasets.scheduling.cluster import SimulatedCluster


@runtime_checkable
class QueuePolicy(Protocol):
    """Says which waiting jobs start, in a main scheduler that is simulated. It is made by a factory.

    One that wants to be asked at some time though nothing happens then has an attribute ``wake_s``; one that promises
    starts has ``promises``, the first promise by job.
    """

    @property
    def name(self) -> str:
        """The name it is asked for by."""
        ...

    def starts(self, cluster: SimulatedCluster) -> Sequence[int]:
        """Give the waiting jobs that start now; together they need no more nodes than are free."""
        ...
