"""Port of round policies, which choose the tasks of the next round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bftrain_replay.rounds.contenders import CompetingTasks


@runtime_checkable
class RoundPolicy(Protocol):
    """Chooses the tasks that run in a round. A factory makes one for every run.

    One whose priorities change only when tasks or nodes come or go says so by an attribute ``steady = True``: rounds
    between are then gone through in one step. One that lets no task run until some time says until when by an
    attribute ``due_s``, which is infinite while it does not wait: that is no standstill.
    """

    @property
    def name(self) -> str:
        """The name it is asked for by."""
        ...

    def priorities(self, contenders: CompetingTasks) -> NDArray[np.float64]:
        """Give a number a task, or a number by task and kind of nodes; the largest goes first, minus infinity never."""
        ...
