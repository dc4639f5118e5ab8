"""Contenders: what a policy is shown at the begin of a round. The port, ``RoundPolicy``, is in ``bftrain.ports``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bftrain.values.task import TaskSpec
    from bftrain_replay.rounds.gangs import TaskGangs

    Floats = NDArray[np.float64]
    Places = NDArray[np.intp]


class TaskProgressColumns:
    """How far all tasks are, in columns; of those that have not come yet, nothing. ``service_s`` is by task and kind.

    ``kind`` is the number of the kind on which it ran in the round before, -1 if it did not run. ``overhead_s`` is
    what is left of its start.
    """

    __slots__ = ("kind", "left", "overhead_s", "service_s")

    def __init__(self, gangs: TaskGangs) -> None:
        self.left = gangs.work.copy()
        self.service_s = np.zeros(gangs.speeds.shape)
        self.overhead_s = np.zeros(len(gangs))
        self.kind = np.full(len(gangs), -1, dtype=np.intp)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompetingTasks:
    """The tasks that have come and are not done, in order of arrival; every column has one value for each of them.

    ``place`` numbers a task among all of the run. ``free`` are the nodes of each kind that are there in this round.
    ``version`` changes whenever tasks or nodes came or went.
    """

    gangs: TaskGangs
    progress: TaskProgressColumns
    place: Places
    free: Places
    time_s: float
    round_s: float
    version: int

    def __len__(self) -> int:
        """How many there are."""
        return self.place.size

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of nodes, in the order of all columns by kind."""
        return self.gangs.kinds

    @property
    def tasks(self) -> list[TaskSpec]:
        """The tasks themselves: names, users, curves, deadlines."""
        return [self.gangs.specs[place] for place in self.place.tolist()]

    @property
    def submit_s(self) -> Floats:
        """When each was submitted."""
        return self.gangs.submit_s[self.place]

    @property
    def nodes(self) -> Places:
        """How many nodes each needs."""
        return self.gangs.nodes[self.place]

    @property
    def weight(self) -> Floats:
        """The weight of each."""
        return self.gangs.weight[self.place]

    @property
    def speeds(self) -> Floats:
        """Samples/s by task and kind; 0 where it cannot run."""
        return self.gangs.speeds[self.place]

    @property
    def left_samples(self) -> Floats:
        """Work left; infinite for a task that never ends by itself."""
        return self.progress.left[self.place]

    @property
    def left_s(self) -> Floats:
        """How long the work left takes on the kind that is fastest for it."""
        left_s: Floats = self.left_samples / self.speeds.max(axis=1)
        return left_s

    @property
    def service_s(self) -> Floats:
        """For how long each has run, by task and kind."""
        return self.progress.service_s[self.place]

    @property
    def received_node_s(self) -> Floats:
        """Node-seconds that each has received."""
        received: Floats = self.progress.service_s[self.place].sum(axis=1) * self.nodes
        return received

    @property
    def kind(self) -> Places:
        """On which kind each ran in the round before, by number; -1 if it did not run."""
        return self.progress.kind[self.place]
