"""Reasons in few words: why idle nodes did not work, and to what work was lost. docs/semantics.md has the many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bftrain_replay.accounting.node_time_ledger import UnusedReason
from bftrain_replay.simulation.task_progress import SampleLoss

if TYPE_CHECKING:
    from collections.abc import Mapping

UNUSED: Final[Mapping[UnusedReason, str]] = {
    UnusedReason.NO_TASK: "no task left",
    UnusedReason.TASK_CAP: "too few compete",
    UnusedReason.AT_MAXIMUM: "tasks are full",
    UnusedReason.BELOW_MINIMUM: "too few nodes",
    UnusedReason.NOT_WORTH: "not worth it",
    UnusedReason.UNDECIDED: "not yet decided",
    UnusedReason.OTHER_KIND: "of the other kind",
}
LOST: Final[Mapping[SampleLoss, str]] = {
    SampleLoss.PREEMPTION: "preemption",
    SampleLoss.RESCALING: "rescaling",
    SampleLoss.START_UP: "start-up",
    SampleLoss.UNNOTICED: "finished unnoticed",
}
