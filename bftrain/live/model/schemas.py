"""Values of a live run: stored tasks, callers, and the requests and answers of the API.

The JSON forms of the API are described at ``/v1/openapi.json``. A caller is the user behind a request, as the kernel
reports it on the Unix socket, or a token over TCP.
"""

from __future__ import annotations

import os
import pwd
import re
import socket
import struct
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from bftrain.errors import BadInput, BftrainError
from bftrain.live.schedulers.base import HooksView, PoolView
from bftrain.nodesets import MOST_NODES
from bftrain.values import checks, wire
from bftrain.values.batch_scaling import BatchScaling
from bftrain.values.curve import SpeedCurve
from bftrain.values.job import END, NotNegative, Run, said
from bftrain.values.spread import SpreadSpeeds
from bftrain.values.task import TaskSpec

_NAME: Final = "[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_LETTERS: Final = "up to 100 letters, digits, '.', '_' and '-', beginning with a letter or digit"
NAME_OR_NONE: Final = wire.pattern_of(_LETTERS, f"^({_NAME})?{END}")


class LiveTaskState(StrEnum):
    """State of a task; a submitted task runs if it has nodes, and waits otherwise."""

    SUBMITTED = "submitted"
    PAUSED = "paused"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


UNFINISHED: Final = frozenset({LiveTaskState.SUBMITTED, LiveTaskState.PAUSED})


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a task by its reports, and its measurements."""

    samples: float = 0.0  # samples of steps, without repetitions
    # Only for tasks that report batch sizes: the equivalent number of samples at the initial batch size
    equivalent_samples: float | None = None
    earlier_samples: float | None = None  # samples of an earlier task in the same folder, if known
    step: int = 0  # the furthest one reported
    in_memory_step: int = 0  # last step whose state is in the memory of two or more nodes
    committed_step: int = 0  # last step whose state is on disk
    loss: float | None = None
    noise_scale: float | None = None  # noise scale of its gradients, smoothed over its reports
    node_s: float = 0.0  # allocated node-seconds
    started_s: float | None = None  # time of the first allocation
    rescales: int = 0  # decided changes of size
    preemptions: int = 0  # number of preemptions
    failures: int = 0
    speeds: Mapping[int, float] = {}  # samples/s by size
    speeds_of: Mapping[str, Mapping[int, float]] = {}  # the same by kind, of tasks with speeds by kind
    settled: tuple[int, ...] = ()  # sizes with a reliable measured speed
    costs: Mapping[str, float] = {}  # seconds of grow, shrink, start
    # The last running sum that started at a step after 0: from which step, to which step, how many samples
    counted_since: int | None = None
    counted_step: int = 0
    counted_total: float = 0.0
    report_stride: int = 0  # smallest number of steps between two reports of a process; 0: unknown

    @property
    def done_samples(self) -> float:
        """Return the finished samples; for tasks that report batch sizes, in samples of the initial size."""
        return self.samples if self.equivalent_samples is None else self.equivalent_samples

    @property
    def harvested(self) -> float:
        """Return the samples that this task has processed itself."""
        return self.samples - (self.earlier_samples or 0.0)


class LiveTaskRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One task. A ``number`` is never reused; a ``name`` can be reused after the task has finished."""

    number: int
    name: str
    uid: int
    user: str
    launcher: str
    spec: TaskSpec  # the submitted description
    guessed: bool  # whether its speed is a guess, as none was given
    run: Run
    submitted_s: float
    state: LiveTaskState = LiveTaskState.SUBMITTED
    ended_s: float | None = None
    reason: str = ""  # why it failed, or its last trouble
    progress: Progress = Progress()

    @property
    def unfinished(self) -> bool:
        """Whether the task is submitted or paused."""
        return self.state in UNFINISHED


_MOST_NAMED: Final = 100_000
_STATES: Final = ("running", "waiting", "paused", "done", "failed", "cancelled")
_NODE_STATES: Final = ("used", "free", "drained", "draining", "away")
_LONGEST_PAUSE_S: Final = 3.2e9  # a hundred years: no clock is driven beyond its end
RUN_STATES: Final = ("starting", "reuniting", "running", "paused", "draining", "broken")


NodeCount = Annotated[int, Meta(ge=1, le=MOST_NODES)]
Name = Annotated[str, Meta(min_length=1)]
PauseSeconds = Annotated[float, Meta(gt=0, le=_LONGEST_PAUSE_S)]
Seconds = Annotated[float, said("Seconds since 1970.")]
Unit = Annotated[str, said("Unit that counts as a node: whole nodes or single GPUs.", schema={"enum": ["node", "gpu"]})]


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A submitted task. Without a ``name`` it gets one; without a ``curve`` its speed is measured."""

    run: Run
    max_nodes: Annotated[NodeCount, said("Maximum number of nodes.")]
    min_nodes: Annotated[NodeCount, said("Minimum number of nodes.")] = 1
    name: Annotated[str, said("Task name; derived from the command if empty.", pattern=NAME_OR_NONE)] = ""
    launcher: Annotated[str, said("native, horovod, process, ...; empty: the site's default.")] = ""
    curve: Annotated[SpeedCurve | None, said("Known speeds by size.")] = None
    curves: Annotated[Mapping[Name, SpeedCurve], said("Known speeds by node kind; it runs on these kinds only.")] = {}
    kinds: Annotated[tuple[Name, ...], said("Node kinds it can use, all equally fast.")] = ()
    work_samples: Annotated[Annotated[float, Meta(gt=0)] | None, said("Total work in samples.")] = None
    grow_cost_s: Annotated[NotNegative, said("Seconds per growth, until measured.")] = 0.0
    shrink_cost_s: Annotated[NotNegative, said("Seconds per shrink, until measured.")] = 0.0
    start_cost_s: Annotated[NotNegative, said("Seconds per start, until measured.")] = 0.0
    weight: Annotated[NotNegative, said("Weight under some objectives.")] = 1.0
    deadline_s: Annotated[float | None, said("Deadline; seconds since 1970.")] = None
    campaign: Annotated[str, said("Campaign.")] = ""
    batch: Annotated[BatchScaling | None, said("Batches and noise scale, for the objective goodput.")] = None
    spread: Annotated[SpreadSpeeds | None, said("Speeds when spread over more racks than necessary.")] = None

    def __post_init__(self) -> None:
        """Check rules that concern several fields."""
        checks.finite(self)
        if self.kinds and self.curves:
            checks.reject(self, "kinds", "cannot be given together with curves by kind", "leave out kinds")
        if self.min_nodes > self.max_nodes:
            checks.reject(self, "max_nodes", f"is {self.max_nodes}, below min_nodes = {self.min_nodes}")


class Pause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pause of harvesting."""

    for_s: Annotated[PauseSeconds | None, said("Seconds; null: until resumed.")] = None

    def __post_init__(self) -> None:
        """Check that the time is finite."""
        checks.finite(self)


class Nodes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes by name."""

    nodes: Annotated[
        tuple[Name, ...], said("Node names.", schema={"uniqueItems": True}, min_length=1, max_length=_MOST_NAMED)
    ]

    def __post_init__(self) -> None:
        """Check that no node is listed twice."""
        checks.names(self, "nodes")


class TaskFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a task, in its view and in updates."""

    number: Annotated[int, said("Permanent number; #NUMBER identifies the task in requests.")]
    name: Annotated[str, said("Name, unique among unfinished tasks.")]
    user: Annotated[str, said("Owner.")]
    state: Annotated[str, said("State of the task.", schema={"enum": _STATES})]
    min_nodes: int
    max_nodes: int
    size: Annotated[int, said("Number of allocated nodes.")] = 0
    since_s: Annotated[float, said("First allocation or, before that, submission; seconds since 1970.")]
    ended_s: Annotated[float | None, said("Seconds since 1970.")] = None
    work_samples: Annotated[float | None, said("Total work, if specified.")] = None
    samples: Annotated[float, said("Samples so far; repeated steps count once.")] = 0.0
    done_samples: Annotated[float, said("The same in samples of the initial batch, if it describes batches.")] = 0.0
    step: Annotated[int, said("Furthest reported step.")] = 0
    loss: Annotated[float | None, said("Last reported loss.")] = None
    speed: Annotated[float, said("Present speed in samples/s.")] = 0.0
    node_s: Annotated[float, said("Node-seconds so far.")] = 0.0
    rescales: Annotated[int, said("Decided size changes.")] = 0
    preemptions: Annotated[int, said("Times that it lost nodes to the main scheduler.")] = 0
    failures: Annotated[int, said("Failures of its processes.")] = 0

    @property
    def done(self) -> float | None:
        """The finished share of its work, if known."""
        return min(1.0, self.done_samples / self.work_samples) if self.work_samples else None


class TaskView(TaskFigures, frozen=True, kw_only=True):
    """A task as its owner sees it."""

    launcher: str
    unit: Unit = "node"
    nodes: Annotated[tuple[str, ...], said("Allocated nodes.")] = ()
    running: Annotated[int, said("Number of nodes with confirmed workers.")] = 0
    submitted_s: Seconds
    started_s: Annotated[float | None, said("First allocation; seconds since 1970.")] = None
    in_memory_step: Annotated[int, said("Last step with its state on two nodes or on disk.")] = 0
    committed_step: Annotated[int, said("Last step with its state on disk or on a node outside the task.")] = 0
    copied_step: Annotated[int, said("Last step with its state in the memory of a node outside the task.")] = 0
    speeds: Annotated[Mapping[int, float], said("Measured samples/s by size.")] = {}
    costs: Annotated[Mapping[str, float], said("Measured seconds of grow, shrink and start.")] = {}
    weight: float = 1.0
    deadline_s: Annotated[float | None, said("Seconds since 1970.")] = None
    campaign: str = ""
    folder: Annotated[str, said("Folder of its commits and logs.")] = ""
    argv: Annotated[tuple[str, ...], said("Command and arguments.")] = ()
    reason: Annotated[str, said("Reason of its failure, or its latest problem.")] = ""
    waits: Annotated[str, said("Reason why an unfinished task has no nodes.")] = ""


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node."""

    name: str
    state: Annotated[str, said("State of the node.", schema={"enum": _NODE_STATES})]
    task: Annotated[str, said("Name of the task on the node, if you may see that task.")] = ""
    agent: Annotated[bool, said("Whether an agent runs there.")] = False
    until_s: Annotated[float | None, said("Expected departure, if known; seconds since 1970.")] = None
    kind: Annotated[str, said("Node kind, if nodes have kinds; other: not listed.")] = ""


class Remarked(msgspec.Struct, frozen=True, kw_only=True):
    """A notice: its text, when it was last repeated, and how often."""

    time_s: Seconds
    text: str
    times: int = 1


class Harvested(msgspec.Struct, frozen=True, kw_only=True):
    """The work done on one day, in the time zone of the daemon's machine."""

    day: Annotated[str, said("YYYY-MM-DD.")]
    samples: float = 0.0
    node_s: Annotated[float, said("Node-seconds of tasks.")] = 0.0


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The use and the work of one user, project, campaign, month, day or task."""

    of: Annotated[str, said("User, project, USER/CAMPAIGN, month, day, or #NUMBER of a task.")]
    node_s: Annotated[float, said("Node-seconds.")]
    gpu_s: Annotated[float, said("GPU-seconds, by the site's GPU numbers.")]
    samples: Annotated[float, said("Samples; repeated steps count once.")]
    energy_j: Annotated[float, said("Joules, by the site's watts per node.")]


class KindView(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of one kind."""

    pool: Annotated[int, said("Available nodes.")]
    used: Annotated[int, said("Allocated nodes.")]


class HandBack(msgspec.Struct, frozen=True, kw_only=True):
    """The hand-back of a node that the scheduler wanted, by the clock of the live run."""

    node: str
    time_s: Annotated[float, said("Time when the agent had killed its workers; seconds since 1970.")]
    kill_s: Annotated[float, said("Seconds to kill the workers.")]
    exit_s: Annotated[float, said("Seconds from then until the agent had left the node.")]


class HarvestingView(msgspec.Struct, frozen=True, kw_only=True):
    """Whether harvesting is paused, and the last hand-backs."""

    paused: bool
    until_s: Annotated[float | None, said("Pause end; seconds since 1970. Null: until resumed.")] = None
    waiting_pilots: Annotated[int, said("Pilots in the scheduler's queue, as far as known.")] = 0
    partitions: Annotated[tuple[str, ...], said("Partitions of pilots without QOS.")] = ()
    handbacks: Annotated[tuple[HandBack, ...], said("Latest hand-backs, oldest first.")] = ()


class LastDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The last decision, in short."""

    time_s: Seconds
    number: int
    value: Annotated[float, said("Value of the objective.")]
    solver: str
    solve_s: Annotated[float, said("Duration in seconds.")]
    fallback: Annotated[str, said("Replacement of the solver's answer, and its reason.")] = ""


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """The overall status, without owners of tasks."""

    version: str
    site: str
    state: Annotated[str, said("State of the live run.", schema={"enum": RUN_STATES})]
    user: Annotated[str, said("User that runs it.")]
    pid: int
    scheduler: str
    solver: str
    objective: str
    policy: Annotated[str, said("Policy of rounds, instead of the solver; empty: none.")] = ""
    round_s: Annotated[float, said("Length of a round in seconds.")] = 0.0
    since_s: Annotated[float, said("Start; seconds since 1970.")]
    now_s: Seconds
    unit: Unit = "node"
    pool: Annotated[int, said("Available nodes.")]
    used: Annotated[int, said("Allocated nodes.")]
    kinds: Annotated[Mapping[str, KindView], said("Nodes by kind, if nodes have kinds.")] = {}
    pools: Annotated[Mapping[str, PoolView], said("Nodes by pool, if the site has several or a named one.")] = {}
    agents: Annotated[int, said("Nodes with an agent.")]
    copies_memory: Annotated[
        str, said("Memory of each node for state copies of other nodes' tasks: a share, or MB.")
    ] = "0"
    drained: Annotated[int, said("Nodes that must not be used.")]
    running: Annotated[int, said("Tasks with nodes.")]
    waiting: Annotated[int, said("Tasks that wait for nodes.")]
    paused: Annotated[int, said("Paused tasks.")]
    over: Annotated[int, said("Finished, failed and cancelled tasks.")]
    speed: Annotated[float, said("Total samples/s of all tasks.")]
    steps: Annotated[int, said("Entries of the journal.")]
    paused_until_s: Annotated[float | None, said("Pause end, if limited; seconds since 1970.")] = None
    decision: LastDecision | None = None
    hooks: Annotated[HooksView | None, said("Hook reports; null if no spool is set.")] = None
    commands_a_minute: Annotated[int | None, said("Scheduler commands in the last minute; null: it needs none.")] = None
    commands_limits: Annotated[
        Mapping[str, float], said("Scheduler commands per minute by the settings: at_rest, and at most submissions.")
    ] = {}
    harvested: Annotated[tuple[Harvested, ...], said("Harvest of the last days with work, in order.")] = ()
    remarks: Annotated[tuple[Remarked, ...], said("Remarks for operators, oldest first.")] = ()
    addresses: Annotated[tuple[str, ...], said("Listening addresses.")] = ()
    token_file: Annotated[str, said("File of the token for the status page and the API over TCP.")] = ""


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """A log file of a task: the output of a worker on one slot of a node."""

    name: str
    size: Annotated[int, said("Size in bytes.")]


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error: what is wrong, where, and how to fix it."""

    what: Annotated[str, said("The problem.")]
    where: Annotated[str | None, said("The location of the problem.")] = None
    fix: Annotated[str | None, said("The fix.")] = None


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to an invalid request."""

    error: Problem


class NotFound(BadInput):
    """The thing does not exist or belongs to another user; the answer is the same."""


class NotAllowed(BadInput):
    """Only operators may do that."""


class NotNow(BadInput):
    """The request cannot be served in the current state."""


# The HTTP status of errors
STATUS: Final[dict[type[BftrainError], int]] = {NotFound: 404, NotAllowed: 403, NotNow: 409}


def state_of(record: LiveTaskRecord, held: int) -> str:
    """Return the state of a task as a word."""
    if record.state is LiveTaskState.SUBMITTED:
        return "running" if held else "waiting"
    return str(record.state)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """Averages over one interval, ``known_s`` seconds of which were observed.

    ``sizes`` maps task numbers to nodes held; number 0 stands for all tasks of other users.
    """

    begin_s: float
    known_s: float
    pool: float
    speed: float  # samples/s
    sizes: Mapping[int, float] = {}


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """An event in words. ``kind`` is joined, left, size, task or failed."""

    number: int
    time_s: float
    kind: str
    text: str


class HistoryView(msgspec.Struct, frozen=True, kw_only=True):
    """The history: cells, the oldest first, the names of the tasks in them, and the latest events.

    In an update it holds only cells that are new or, the last one, more complete.
    """

    span_s: float
    width_s: float
    cells: tuple[Cell, ...] = ()
    names: Mapping[int, str] = {}
    happened: tuple[Happening, ...] = ()


class TaskChanges(msgspec.Struct, frozen=True, kw_only=True):
    """New and changed tasks, and the numbers of those that are no longer shown.

    ``more`` counts further tasks: of very many only running ones and the first waiting ones are shown.
    """

    changed: tuple[TaskFigures, ...] = ()
    gone: tuple[int, ...] = ()
    more: int = 0


class NodeChanges(msgspec.Struct, frozen=True, kw_only=True):
    """New and changed nodes, as ``[state, number of the task on it]``.

    The number is 0 for no task or another user's. ``kinds`` are the kinds of changed nodes that have one.
    """

    changed: Mapping[str, tuple[str, int]] = {}
    kinds: Mapping[str, str] = {}
    gone: tuple[str, ...] = ()


class Update(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The current state and the changes since the last update; the first update is complete.

    ``day`` is the present day at the daemon, in the form of the days of the harvest.
    """

    status: StatusView
    day: str
    tasks: TaskChanges | None = None
    nodes: NodeChanges | None = None
    history: HistoryView | None = None


_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid: as the kernel fills it in


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """The user of a request; operators can see and change all tasks, other users only their own."""

    uid: int
    user: str
    operator: bool

    def may_touch(self, record: LiveTaskRecord) -> bool:
        """Return whether the caller may see and change a task."""
        return self.operator or record.uid == self.uid

    @property
    def name_ending(self) -> str:
        """The suffix of the caller's task names, on sites with names by user."""
        return "" if self.operator else f"@{self.user if re.fullmatch(_NAME, self.user) else self.uid}"


def user_of(uid: int) -> str:
    """Return a user's name, or the number if the user has no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def ourselves() -> Caller:
    """Return the user of this process."""
    return Caller(uid=os.getuid(), user=user_of(os.getuid()), operator=True)


def require_operator(caller: Caller) -> None:
    """Raise unless the caller is an operator."""
    if not caller.operator:
        raise NotAllowed(
            f"'{caller.user}' is not an operator", fix="ask the user that runs it, or see docs/explanation/security.md"
        )


def caller_at_socket(connection: socket.socket, operators: Collection[str]) -> Caller:
    """Return the peer of a Unix socket, as reported by the kernel."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    uid = int(_CREDENTIALS.unpack(found)[1])
    user = user_of(uid)
    return Caller(uid=uid, user=user, operator=uid in {os.getuid(), 0} or user in operators)
