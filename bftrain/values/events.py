"""Events with their times: the only input that changes the state of the decision core."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from bftrain.values import checks
from bftrain.values.curve import SpeedCurve
from bftrain.values.task import TaskSpec
from bftrain.values.wire import Mapped


class TaskInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The latest known data of a task; ``work_left_samples`` is ``None`` if unknown or endless."""

    spec: TaskSpec
    work_left_samples: float | None = None


class AdmissionUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Changes up to ``time_s``: ``used`` nodes since the previous update, then finished and new tasks.

    The tasks ``finished`` completed their work, the tasks ``dropped`` were cancelled, renamed or failed too often; then
    the tasks ``entered`` arrived. The tasks ``changed`` have new measurements or a new description.
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
    """Nodes became idle and stay usable until they leave. All nodes of an event have the same ``kind``."""

    kind: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.optional_text(self, "kind")


class NodesLeft(_NodeEvent, frozen=True, kw_only=True, tag="nodes_left"):
    """The main scheduler reclaimed nodes, or they went down: a preemption, which is never rejected or delayed."""


class TaskSubmitted(_Event, frozen=True, kw_only=True, tag="task_submitted"):
    """A task was submitted."""

    spec: TaskSpec

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.instance(self, "spec", TaskSpec)


class TaskFinished(_TaskEvent, frozen=True, kw_only=True, tag="task_finished"):
    """A task completed its work."""


class TaskCancelled(_TaskEvent, frozen=True, kw_only=True, tag="task_cancelled"):
    """The owner cancelled the task."""


class TaskPaused(_TaskEvent, frozen=True, kw_only=True, tag="task_paused"):
    """The owner paused the task: it releases its nodes and waits until it is resumed."""


class TaskResumed(_TaskEvent, frozen=True, kw_only=True, tag="task_resumed"):
    """The owner resumed a paused task, which competes again at its old position in the queue."""


class TaskEdited(_Event, frozen=True, kw_only=True, tag="task_edited", omit_defaults=True):
    """The owner changed the description of the task ``spec.name``.

    The task releases its nodes if the new description excludes its size or its kind of nodes. ``renamed`` is its new
    name, or empty.
    """

    spec: TaskSpec
    renamed: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.instance(self, "spec", TaskSpec)
        checks.optional_text(self, "renamed")

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.spec.name


class TaskFailed(_TaskEvent, frozen=True, kw_only=True, tag="task_failed"):
    """The processes of a task died unexpectedly; the task waits for a retry unless it failed too often."""

    reason: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.words(self, "reason")


class TaskMeasured(_TaskEvent, frozen=True, kw_only=True, tag="task_measured"):
    """New measurements of a task; fields that are ``None`` stay unchanged."""

    curve: SpeedCurve | None = None
    curves: Mapping[str, SpeedCurve] | None = None
    grow_cost_s: float | None = None
    shrink_cost_s: float | None = None
    start_cost_s: float | None = None
    work_left_samples: float | None = None
    noise_scale: float | None = None  # gradient noise scale, in samples

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.instance(self, "curve", SpeedCurve | None)
        if self.curves is not None:
            checks.mapped(self, "curves", SpeedCurve)
        costs = ("grow_cost_s", "shrink_cost_s", "start_cost_s")
        checks.optional_number(self, *costs, "work_left_samples", "noise_scale", at_least=0.0)

    __reduce__ = Mapped.__reduce__


Event = (
    NodesJoined
    | NodesLeft
    | TaskSubmitted
    | TaskFinished
    | TaskCancelled
    | TaskPaused
    | TaskResumed
    | TaskEdited
    | TaskFailed
    | TaskMeasured
)
