"""Schemas of the API: requests and answers. Their JSON forms are described at ``/v1/openapi.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec.structs import fields

from bftrain.errors import BadInput
from bftrain.live.model.resource_views import Harvested, HooksView, KindView, PoolView
from bftrain.live.model.task_record import NAME, LiveTaskRecord, LiveTaskState, Run, is_name, said
from bftrain.values import checks
from bftrain.values.batch_scaling import BatchScaling
from bftrain.values.curve import SpeedCurve
from bftrain.values.spread import SpreadSpeeds
from bftrain.values.task import TaskSpec

MOST_NODES: Final = 1_000_000
_MOST_NAMED: Final = 100_000
_STATES: Final = ("running", "waiting", "paused", "done", "failed", "cancelled")
_NODE_STATES: Final = ("used", "free", "drained", "draining", "away")
RUN_STATES: Final = ("starting", "reuniting", "running", "paused", "draining", "broken")


Seconds = Annotated[float, said("Seconds since 1970.")]
Unit = Annotated[str, said("What counts as a node: whole nodes, or single GPUs.", enum=("node", "gpu"))]


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task as it is handed in. Without a ``name`` it gets one, without a ``curve`` its speed is measured."""

    run: Run
    max_nodes: Annotated[int, said("The most nodes that it can use.", minimum=1, maximum=MOST_NODES)]
    min_nodes: Annotated[int, said("The fewest on which it can run.", minimum=1, maximum=MOST_NODES)] = 1
    name: Annotated[str, said("What to call it; made from what it runs if it is empty.", pattern=f"^({NAME})?$")] = ""
    launcher: Annotated[str, said("native, process, torchrun, ...; the site's if it is empty.")] = ""
    curve: Annotated[SpeedCurve | None, said("Its speed by size, as far as it is known.")] = None
    curves: Annotated[
        Mapping[str, SpeedCurve],
        said(
            "The same by kind of node, where the site tells kinds apart: then it runs on these kinds only.",
            propertyNames={"minLength": 1},
        ),
    ] = {}
    kinds: Annotated[
        tuple[Annotated[str, said("A kind of nodes.", minLength=1)], ...],
        said("The only kinds on which it runs, as fast on each, where the site tells kinds apart."),
    ] = ()
    work_samples: Annotated[float | None, said("Its whole work.", exclusiveMinimum=0)] = None
    grow_cost_s: Annotated[float, said("What growing costs, until it is measured.", minimum=0)] = 0.0
    shrink_cost_s: Annotated[float, said("What shrinking costs, until it is measured.", minimum=0)] = 0.0
    start_cost_s: Annotated[float, said("What starting costs, until it is measured.", minimum=0)] = 0.0
    weight: Annotated[float, said("What it counts under some objectives.", minimum=0)] = 1.0
    deadline_s: Annotated[float | None, said("When it should be done; seconds since 1970.")] = None
    campaign: Annotated[str, said("What it belongs to.")] = ""
    after: Annotated[
        tuple[Annotated[str, said("A name, or #NUMBER.", minLength=1)], ...],
        said("Tasks that have to be done before it gets nodes; it is cancelled if one of them fails or is cancelled."),
    ] = ()
    batch: Annotated[BatchScaling | None, said("Its batches and noise scale, for the objective goodput.")] = None
    spread: Annotated[SpreadSpeeds | None, said("Its speed on more places than it needs, such as racks.")] = None

    def __post_init__(self) -> None:
        """Check what a TaskSpec made of it would not."""
        if self.name and not is_name(self.name):
            checks.reject(
                self,
                "name",
                f"must be up to 100 letters, digits, '.', '_' and '-', and begin with a letter or digit: {self.name!r}",
            )
        if "" in checks.mapped(self, "curves", SpeedCurve):
            checks.reject(self, "curves", "a kind of nodes has no name", "leave it out, or give curve instead")
        if not all(checks.texts(self, "kinds")):
            checks.reject(self, "kinds", "holds an empty name")
        if self.kinds and self.curves:
            checks.reject(self, "kinds", "cannot be given together with curves by kind", "leave out kinds")
        if not all(checks.texts(self, "after")):
            checks.reject(self, "after", "holds an empty name")
        if checks.integer(self, "max_nodes", at_least=1) > MOST_NODES:
            checks.reject(self, "max_nodes", f"must be at most {MOST_NODES}")
        if checks.integer(self, "min_nodes", at_least=1) > self.max_nodes:
            checks.reject(self, "max_nodes", f"is {self.max_nodes}, below min_nodes = {self.min_nodes}")


_OF_A_SPEC: Final = frozenset(field.name for field in fields(TaskSpec))


def spec_fields(given: Submission) -> dict[str, Any]:
    """Return the fields of a TaskSpec that a submission sets, without name and curve, which are optional."""
    names = _OF_A_SPEC.intersection(Submission.__struct_fields__) - {"name", "curve"}
    return {name: getattr(given, name) for name in names}


def view_fields(spec: TaskSpec) -> dict[str, Any]:
    """Return the fields of a TaskSpec that a task's view shows."""
    return {
        name: getattr(spec, name) for name in _OF_A_SPEC.intersection(TaskView.__struct_fields__) - {"name", "user"}
    }


class Nodes(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nodes by name."""

    nodes: Annotated[
        tuple[Annotated[str, said("The name of a node.", minLength=1)], ...],
        said("Which ones.", minItems=1, maxItems=_MOST_NAMED, uniqueItems=True),
    ]

    def __post_init__(self) -> None:
        """Check the names."""
        if not 1 <= len(checks.names(self, "nodes")) <= _MOST_NAMED:
            checks.reject(self, "nodes", f"must be 1 to {_MOST_NAMED} names")


class TaskView(msgspec.Struct, frozen=True, kw_only=True):
    """A task as its owner sees it."""

    number: Annotated[int, said("Its own for ever: it can be asked for as #NUMBER.")]
    name: Annotated[str, said("Its own while it is unfinished.")]
    user: Annotated[str, said("Whose it is.")]
    state: Annotated[str, said("How it stands.", enum=_STATES)]
    launcher: str
    unit: Unit = "node"
    nodes: Annotated[tuple[str, ...], said("The nodes that it holds.")] = ()
    running: Annotated[int, said("On how many of them it is known to run.")] = 0
    min_nodes: int
    max_nodes: int
    submitted_s: Seconds
    started_s: Annotated[float | None, said("When it held nodes for the first time; seconds since 1970.")] = None
    ended_s: Annotated[float | None, said("Seconds since 1970.")] = None
    work_samples: Annotated[float | None, said("Its whole work, if that was said.")] = None
    samples: Annotated[float, said("Done so far; steps that were done again count once.")] = 0.0
    done_samples: Annotated[
        float, said("How many of its work that is: if it says its batches, in samples of the initial one.")
    ] = 0.0
    step: Annotated[int, said("The furthest one reported.")] = 0
    in_memory_step: Annotated[
        int,
        said("The last step that survives the loss of some of its nodes: two nodes hold the state, or the disk does."),
    ] = 0
    committed_step: Annotated[
        int, said("The last step that survives the loss of all its nodes: the state is on disk.")
    ] = 0
    loss: Annotated[float | None, said("The last one reported.")] = None
    speed: Annotated[float, said("Samples/s now.")] = 0.0
    speeds: Annotated[Mapping[int, float], said("Samples/s as measured, by size.")] = {}
    costs: Annotated[Mapping[str, float], said("Seconds of grow, shrink and start, as measured.")] = {}
    node_s: Annotated[float, said("Node-seconds held so far.")] = 0.0
    rescales: Annotated[int, said("Changes of size that were decided.")] = 0
    preemptions: Annotated[int, said("Moments at which it lost nodes to the main scheduler.")] = 0
    failures: Annotated[int, said("How often its processes died by themselves.")] = 0
    weight: float = 1.0
    deadline_s: Annotated[float | None, said("Seconds since 1970.")] = None
    campaign: str = ""
    folder: Annotated[str, said("Where its commits and logs are.")] = ""
    argv: Annotated[tuple[str, ...], said("What is run.")] = ()
    reason: Annotated[str, said("Why it failed, or its last trouble.")] = ""
    waits: Annotated[str, said("Why an unfinished one holds no nodes.")] = ""

    @property
    def size(self) -> int:
        """The number of nodes that it holds."""
        return len(self.nodes)

    @property
    def done(self) -> float | None:
        """The share of its work that is done, if it is known."""
        return min(1.0, self.done_samples / self.work_samples) if self.work_samples else None


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """A node."""

    name: str
    state: Annotated[str, said("Whether it is ours, and used.", enum=_NODE_STATES)]
    task: Annotated[str, said("What runs there, if it is yours to know.")] = ""
    agent: Annotated[bool, said("Whether our agent runs there.")] = False
    until_s: Annotated[float | None, said("When it will probably be wanted, if known; seconds since 1970.")] = None
    kind: Annotated[str, said("Of which kind it is, where the site tells kinds apart; other: none that it names.")] = ""


class Remarked(msgspec.Struct, frozen=True, kw_only=True):
    """A notice: its text, when it was last repeated, and how often."""

    time_s: Seconds
    text: str
    times: int = 1


class LastDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The last decision, in short."""

    time_s: Seconds
    number: int
    value: Annotated[float, said("Of the objective.")]
    solver: str
    solve_s: Annotated[float, said("Seconds that it took.")]
    fallback: Annotated[str, said("What was taken instead of the solver's answer, and why.")] = ""


class StatusView(msgspec.Struct, frozen=True, kw_only=True):
    """The overall status, without owners of tasks."""

    version: str
    site: str
    state: Annotated[str, said("How far the live run is.", enum=RUN_STATES)]
    user: Annotated[str, said("Who runs it.")]
    pid: int
    scheduler: str
    solver: str
    objective: str
    since_s: Annotated[float, said("When it began; seconds since 1970.")]
    now_s: Seconds
    unit: Unit = "node"
    pool: Annotated[int, said("Nodes that are ours.")]
    used: Annotated[int, said("Nodes that tasks hold.")]
    kinds: Annotated[Mapping[str, KindView], said("The same by kind, where the site tells kinds apart.")] = {}
    pools: Annotated[
        Mapping[str, PoolView], said("The same by pool, where the site has several, or one with a name or a kind.")
    ] = {}
    agents: Annotated[int, said("Nodes with an agent.")]
    drained: Annotated[int, said("Nodes that must not be used.")]
    running: Annotated[int, said("Tasks that hold nodes.")]
    waiting: Annotated[int, said("Tasks that would like to.")]
    paused: Annotated[int, said("Tasks that must wait.")]
    over: Annotated[int, said("Tasks that are done, failed or cancelled.")]
    speed: Annotated[float, said("Samples/s of all tasks.")]
    steps: Annotated[int, said("Entries of the journal.")]
    paused_until_s: Annotated[float | None, said("When a pause ends, if it does; seconds since 1970.")] = None
    decision: LastDecision | None = None
    hooks: Annotated[HooksView | None, said("What hooks reported; null where the site names no spool.")] = None
    commands_a_minute: Annotated[
        int | None, said("Commands to the batch scheduler in the last minute; null where none are needed.")
    ] = None
    harvested: Annotated[tuple[Harvested, ...], said("The last days, today last.")] = ()
    remarks: Annotated[tuple[Remarked, ...], said("What was odd, the latest last.")] = ()
    addresses: Annotated[tuple[str, ...], said("Where it listens.")] = ()


class PageView(msgspec.Struct, frozen=True, kw_only=True):
    """The address of the status page (empty: there is none), and the file of its token."""

    address: str
    token_file: str


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """A log file of a task: what a worker on one slot of a node printed."""

    name: str
    size: Annotated[int, said("In bytes.")]
    changed_s: Seconds


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error: what is wrong, where, and how to fix it."""

    what: Annotated[str, said("What is wrong.")]
    where: Annotated[str | None, said("Where that was found.")] = None
    fix: Annotated[str | None, said("What can be done about it.")] = None


class Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a request that is wrong."""

    error: Problem


class NotFound(BadInput):
    """The thing does not exist or belongs to another user; the answer is the same."""


class NotAllowed(BadInput):
    """Only operators may do that."""


class NotNow(BadInput):
    """The request cannot be served in the present state."""


def state_of(record: LiveTaskRecord, held: int) -> str:
    """Return the state of a task in one word."""
    if record.state is LiveTaskState.SUBMITTED:
        return "running" if held else "waiting"
    return str(record.state)


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The time that the history covers, in cells of ``width_s`` seconds."""

    span_s: float
    width_s: float


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


class TaskRow(msgspec.Struct, frozen=True, kw_only=True):
    """A task in short; ``since_s`` is its start or, before that, its submission."""

    number: int
    name: str
    user: str
    state: str
    size: int
    min_nodes: int
    max_nodes: int
    samples: float
    done_samples: float
    work_samples: float | None
    step: int
    loss: float | None
    speed: float
    since_s: float
    ended_s: float | None
    node_s: float
    rescales: int
    preemptions: int
    failures: int

    @property
    def done(self) -> float | None:
        """The share of its work that is done, if it is known."""
        return min(1.0, self.done_samples / self.work_samples) if self.work_samples else None


class TaskChanges(msgspec.Struct, frozen=True, kw_only=True):
    """New and changed tasks, and the numbers of those that are no longer shown.

    ``more`` counts further tasks: of very many only running ones and the first waiting ones are shown.
    """

    changed: tuple[TaskRow, ...] = ()
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
