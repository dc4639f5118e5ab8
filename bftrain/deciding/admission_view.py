"""AdmissionView: what an admission can read of waiting tasks and idle nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bftrain.deciding.task_table import TaskTable
from bftrain.values.task import TaskSpec


@dataclass(frozen=True, slots=True)
class AdmissionView:
    """The unfinished tasks that are not paused, in the order they were submitted, at one moment.

    ``pool`` counts the nodes that are idle, held by tasks or not; ``pools`` the same by kind.
    """

    time_s: float
    pools: Mapping[str, int]
    _roster: TaskTable

    @property
    def pool(self) -> int:
        """The number of idle nodes of all kinds, held by tasks or not."""
        return sum(self.pools.values())

    def __iter__(self) -> Iterator[str]:
        """Name them."""
        return self._roster.willing()

    def __contains__(self, task: str) -> bool:
        """Say whether this one is among them."""
        member = self._roster.get(task)
        return member is not None and not member.paused

    def spec(self, task: str) -> TaskSpec:
        """What is known of it now, measurements included."""
        return self._roster[task].spec

    def size(self, task: str) -> int:
        """How many nodes it holds."""
        return self._roster[task].size

    def work_left(self, task: str) -> float | None:
        """How many samples it still has to do, as far as is known; ``None`` if it has no end."""
        return self._roster[task].work_left_samples

    def most_nodes(self, task: str) -> int:
        """How many nodes it could hold now, if it had all of them; 0 if they are too few for it."""
        spec = self.spec(task)
        most = max((count for kind, count in self.pools.items() if spec.curve_on(kind) is not None), default=0)
        return min(most, spec.max_nodes) if most >= spec.min_nodes else 0
