"""What became of one task in a replay."""

from __future__ import annotations

from enum import StrEnum

import msgspec

SECONDS_AN_HOUR = 3600.0


class TaskState(StrEnum):
    """What had become of a task when the replay ended."""

    FINISHED = "finished"
    RUNNING = "running"
    WAITING = "waiting"  # it had arrived, and held no node
    DROPPED = "dropped"  # cancelled, or failed for good: in what a journal recorded only
    NOT_ARRIVED = "not_arrived"


class TaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One task. Times are seconds since the log's start; ``owed_samples`` is loss that was still to be paid.

    ``waits`` counts the stretches of time in which it had arrived and held no node, ``waited_s`` adds them up. Its work
    would take ``shortest_s`` if nothing were in its way, and ``alone_s`` on its n-th part of everything.
    """

    name: str
    state: TaskState
    submit_s: float
    first_start_s: float | None = None
    finish_s: float | None = None
    starts: int = 0
    rescales: int = 0
    preemptions: int = 0
    waits: int = 0
    waited_s: float = 0.0
    node_s: float = 0.0
    work_samples: float | None = None
    done_samples: float = 0.0
    lost_preemption_samples: float = 0.0
    lost_rescaling_samples: float = 0.0
    lost_start_up_samples: float = 0.0
    lost_unnoticed_samples: float = 0.0
    owed_samples: float = 0.0
    user: str = ""
    campaign: str = ""
    deadline_s: float | None = None
    shortest_s: float | None = None
    alone_s: float | None = None

    @property
    def node_h(self) -> float:
        """Node-hours that it held."""
        return self.node_s / SECONDS_AN_HOUR
