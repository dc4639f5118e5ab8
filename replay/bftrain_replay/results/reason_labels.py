"""Reasons in few words: why idle nodes did not work, and to what work was lost. docs/semantics.md has the many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bftrain_replay.accounting.node_time_ledger import Unused
from bftrain_replay.simulation.task_progress import Loss

if TYPE_CHECKING:
    from collections.abc import Mapping

UNUSED: Final[Mapping[Unused, str]] = {
    Unused.NO_TASK: "no task left",
    Unused.TASK_CAP: "too few compete",
    Unused.AT_MAXIMUM: "tasks are full",
    Unused.BELOW_MINIMUM: "too few nodes",
    Unused.NOT_WORTH: "not worth it",
    Unused.UNDECIDED: "not yet decided",
    Unused.OTHER_KIND: "of the other kind",
}
LOST: Final[Mapping[Loss, str]] = {
    Loss.PREEMPTION: "preemption",
    Loss.RESCALING: "rescaling",
    Loss.START_UP: "start-up",
    Loss.UNNOTICED: "finished unnoticed",
}
