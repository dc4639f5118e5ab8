"""AdmissionUpdate: events of tasks and use of nodes, as reported to an admission that keeps state."""

from __future__ import annotations

import msgspec

from bftrain.values.task import TaskSpec


class TaskInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A task as it is known now; ``work_left_samples`` as far as is known, ``None`` if it has no end."""

    spec: TaskSpec
    work_left_samples: float | None = None


class AdmissionUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """What happened up to ``time_s``: ``used`` nodes were held since the news before, then tasks ended and came.

    The tasks ``finished`` reached the end of their work, those ``dropped`` were cancelled or given up; after that
    others ``entered``. Of those ``changed`` something is known better.
    """

    time_s: float
    used: int = 0
    finished: tuple[str, ...] = ()
    dropped: tuple[str, ...] = ()
    entered: tuple[TaskInfo, ...] = ()
    changed: tuple[TaskInfo, ...] = ()
