"""Events: what happened, and when. Events are the only thing that moves the decision core."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bftrain.values import checks
from bftrain.values.curve import SpeedCurve
from bftrain.values.task import TaskSpec
from bftrain.values.wire import Mapped


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


class _Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="event"):
    time_s: float

    def __post_init__(self) -> None:
        checks.number(self, "time_s")


class _NodeEvent(_Event, frozen=True, kw_only=True):
    nodes: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.names(self, "nodes")


class _TaskEvent(_Event, frozen=True, kw_only=True):
    task: str

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.text(self, "task")


class NodesJoined(_NodeEvent, frozen=True, kw_only=True, tag="nodes_joined", omit_defaults=True):
    """Nodes became idle: they are ours to use until they leave. Those of one event are all of one ``kind``."""

    kind: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.optional_text(self, "kind")


class NodesLeft(_NodeEvent, frozen=True, kw_only=True, tag="nodes_left"):
    """The main scheduler took nodes back, or they went down: a preemption, never refused and never delayed."""


class TaskSubmitted(_Event, frozen=True, kw_only=True, tag="task_submitted"):
    """A task was handed in."""

    spec: TaskSpec

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.instance(self, "spec", TaskSpec)


class TaskFinished(_TaskEvent, frozen=True, kw_only=True, tag="task_finished"):
    """A task reached the end of its work."""


class TaskCancelled(_TaskEvent, frozen=True, kw_only=True, tag="task_cancelled"):
    """Its owner does not want the task any more."""


class TaskPaused(_TaskEvent, frozen=True, kw_only=True, tag="task_paused"):
    """Its owner wants the task to give up its nodes and to wait, for as long as it is not resumed."""


class TaskResumed(_TaskEvent, frozen=True, kw_only=True, tag="task_resumed"):
    """Its owner wants a paused task to compete again; its place in the queue is the one it had."""


class TaskFailed(_TaskEvent, frozen=True, kw_only=True, tag="task_failed"):
    """The processes of a task died by themselves; it waits for another try unless it failed too often."""

    reason: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.words(self, "reason")


class TaskMeasured(_TaskEvent, frozen=True, kw_only=True, tag="task_measured"):
    """Something about a task is known better than before; what is ``None`` stays as it was."""

    curve: SpeedCurve | None = None
    curves: Mapping[str, SpeedCurve] | None = None
    grow_cost_s: float | None = None
    shrink_cost_s: float | None = None
    start_cost_s: float | None = None
    work_left_samples: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.curve is not None:
            checks.instance(self, "curve", SpeedCurve)
        if self.curves is not None:
            checks.mapped(self, "curves", SpeedCurve)
        costs = ("grow_cost_s", "shrink_cost_s", "start_cost_s")
        checks.optional_number(self, *costs, "work_left_samples", at_least=0.0)

    __reduce__ = Mapped.__reduce__


Event = (
    NodesJoined
    | NodesLeft
    | TaskSubmitted
    | TaskFinished
    | TaskCancelled
    | TaskPaused
    | TaskResumed
    | TaskFailed
    | TaskMeasured
)
