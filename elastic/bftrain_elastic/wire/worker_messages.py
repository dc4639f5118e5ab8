"""Messages between a worker and its agent, which passes them on to the manager and back."""

from __future__ import annotations

from typing import Final

from bftrain_elastic.wire.messages import Count, NotNegative, Port, ShortText, Size, WireMessage, by_type

NO_STEP: Final = -1  # step of a worker or a copy that has no complete state


class FromWorker(WireMessage):
    """A message from a worker to its agent, and on to the manager."""


class WorkerReady(FromWorker, name="ready"):
    """The worker is in no group, at ``step``; it would lead one at ``store``. It left ``generation`` for ``reason``."""

    step: int
    generation: int
    store: tuple[str, Port]
    reason: ShortText


class GroupJoined(FromWorker, name="joined"):
    """All members of the group have met."""

    generation: int


class StateMoving(FromWorker, name="moving"):
    """Progress of a state transfer, in bytes."""

    generation: int
    moved: Count


class GroupConfirmed(FromWorker, name="confirmed"):
    """The group trains from ``step`` on; its state has ``state_bytes``."""

    generation: int
    step: int
    state_bytes: Count = 0


class StepReport(FromWorker, name="report"):
    """A step is done, on ``size`` nodes.

    ``total`` counts the samples since step ``since``, ``noise`` is the noise scale.
    """

    t: float
    step: int
    size: Size
    samples: Count
    loss: float | None
    total: Count | None = None
    since: int = 0
    nan: bool = False
    restarted: bool = False
    noise: NotNegative | None = None


class StateInMemory(FromWorker, name="in_memory"):
    """All members have a copy of this step's state."""

    step: int


class StateOnDisk(FromWorker, name="on_disk"):
    """The folder has this step's state; writing took ``took_s`` seconds."""

    step: int
    took_s: NotNegative = 0.0


class StateNotOnDisk(FromWorker, name="not_on_disk"):
    """The state of a step could not be written."""

    step: int
    reason: ShortText


class TrainingDone(FromWorker, name="done"):
    """The script's training is over."""

    step: int


class TrainingStopped(FromWorker, name="stopped"):
    """The script stops on request."""

    step: int


class WorkFinished(FromWorker, name="finished"):
    """The script reports that its work is done."""


class WorkerPosition(FromWorker, name="position"):
    """The worker's position, and the number of its group's commits."""

    place: ShortText
    line: ShortText
    commits: Count


class ReplicasDiffer(FromWorker, name="drift"):
    """The model of ``rank`` differs from that of rank 0; 0: of some rank, as workers of earlier releases report."""

    step: int
    rank: Count = 0


class ToWorker(WireMessage):
    """A message to a worker."""


class CopyPlace(WireMessage, name="copy_place"):
    """A copy server on a node outside the task; ``task`` is the identity of the task.

    The agent adds the key for this identity, which never leaves the node.
    """

    host: str
    port: Port
    task: str = ""
    key: str = ""


class FormGroup(ToWorker, name="go"):
    """Become ``rank`` of the next group, which runs on ``size`` nodes and meets at ``store``.

    With ``sync`` the state is sent to the members that lack it. ``batch``: samples per step; 0: the script decides.
    ``copy``: a copy server with a copy of the state.
    """

    generation: int
    rank: int
    workers: int
    size: int
    store: tuple[str, int]
    sync: bool = True
    batch: int = 0
    copy: CopyPlace | None = None


class GatherMembers(ToWorker, name="gather"):
    """Leave the group at the next commit."""

    generation: int


class LeaveTask(ToWorker, name="leave"):
    """Exit; with ``save`` write the state first, and retry for ``grace_s`` seconds."""

    save: bool = False
    grace_s: float = 0.0


class AbortGroup(ToWorker, name="abort"):
    """A member is dead: cut the connections to the other members."""


class SendCopies(ToWorker, name="send_copies"):
    """Keep a copy of the state on this copy server (None: on none) while this worker leads its group."""

    copy: CopyPlace | None = None


class AskPosition(ToWorker, name="position"):
    """Request a :class:`WorkerPosition`."""


FROM_WORKER: Final = by_type(FromWorker)
TO_WORKER: Final = by_type(ToWorker)
