"""Messages between the manager and the agent of a node, and between an agent and its prefork server.

Messages of a user's script are carried inside as JSON objects, which ``worker_messages.FROM_WORKER`` validates.
"""

from __future__ import annotations

from typing import Final

from bftrain_elastic.wire.messages import Count, Environment, Message, Port, Texts, WireMessage, by_type
from bftrain_elastic.wire.worker_messages import StepReport, WorkerReady

# Rises with incompatible changes, such as a new meaning of a field; 0: not stated
VERSION: Final = 1


class FromManager(WireMessage):
    """A message from the manager to an agent."""


class FromAgent(WireMessage):
    """A message from an agent to the manager."""


class ToPrefork(WireMessage):
    """A message from an agent to a prefork server, or its copy server."""


class FromPrefork(WireMessage):
    """A message from a prefork server, or the copy server, to its agent."""


class GroupPlace(WireMessage, name="place"):
    """The place of a worker in its group; the agent reports it to a later manager."""

    generation: int = 0  # 0: in no group
    rank: int = 0
    workers: int = 0


class WorkerExit(WireMessage, name="exit"):
    """The exit of a worker: its exit code (negative: the signal that killed it) and its last output.

    ``finished``: the program reported that its work is done, by ``finish()``, its exit code or a file. ``stopped``: the
    program reported an exit on request, or its agent killed it; ignore the exit code then. ``ago_s``: seconds since an
    exit that happened while there was no manager.
    """

    code: int
    tail: str = ""
    finished: bool = False
    stopped: bool = False
    ago_s: float = 0.0


class LeftWorker(WireMessage, name="left", kw_only=True):
    """A worker, running or exited, as its agent describes it to a new manager.

    ``step`` is the latest step that it mentioned, ``go`` its place in the latest group that it was ordered to form,
    ``ready`` its message when it left that group or started. ``done``: it reported the end of its training. ``report``
    is its latest step report. ``exit`` is set if the worker has exited.
    """

    worker: str
    task: str = ""
    slot: int
    step: int
    go: GroupPlace | None = None
    ready: WorkerReady | None = None
    done: bool = False
    report: StepReport | None = None
    exit: WorkerExit | None = None

    @property
    def place(self) -> GroupPlace:
        """Its place in its last group."""
        return self.go or GroupPlace()


class Welcome(FromManager, name="welcome"):
    """The agent is registered; ``epoch`` counts the starts of the manager.

    ``keep_s``: seconds that workers continue while the manager is gone; None: until the agent gives up. ``silence_s``:
    the manager sends ``Alive`` each second; after this many seconds of silence it counts as lost, and workers stop.
    """

    epoch: int = 1
    keep_s: float | None = None
    silence_s: float | None = None
    version: int = 0


def of_later_version(node: str, version: int) -> str:
    """Return the reason for rejecting an agent of a later version."""
    what = f"the agent on node '{node}' uses messages of version {version}, and the manager version {VERSION}"
    return f"{what}: install the same version of bftrain for both"


class Goodbye(FromManager, name="bye"):
    """The manager exits, and the agent must exit with it."""


class AgentRefused(FromManager, name="refused"):
    """The agent must exit: another one is on its node, or it is of a later version."""

    reason: str


class SpawnWorker(FromManager, ToPrefork, name="spawn", kw_only=True):
    """Start a worker; the agent passes it to a prefork server with the complete environment.

    A ``warm`` worker is a script, run by a fork of a process with torch; a cold one is any command. ``place`` is its
    place in its group. An exit with ``finish_code``, or with 0 while ``finish_file`` exists, means that the work is
    done.
    """

    worker: str
    task: str
    argv: Texts
    env: Environment
    cwd: str
    log: str
    slot: int = 0
    warm: bool = False
    want_port: bool = False
    all_gpus: bool = False
    place: GroupPlace | None = None
    finish_code: int | None = None
    finish_file: str = ""


class ExpectScripts(FromManager, name="expect_scripts"):
    """Import the modules that scripts need: a task may soon start a script here."""


class MessageToWorker(FromManager, name="message"):
    """A message that the agent passes to a worker."""

    worker: str
    message: Message


class StopWorker(FromManager, name="stop"):
    """Send a worker SIGTERM, and SIGKILL after ``grace_s`` seconds; 0: SIGKILL immediately."""

    worker: str
    grace_s: float = 0.0


class InspectWorker(FromManager, name="inspect"):
    """Request a dump of a worker's stacks into its log, and the state of its process."""

    worker: str


class ForgetWorkers(FromManager, name="forget"):
    """Forget the exit of one worker of a task, or of all its workers."""

    task: str
    worker: str = ""


class ClearNode(FromManager, name="clear"):
    """Kill all workers on the node."""


class DropCopy(FromManager, ToPrefork, name="drop_copy"):
    """Free the in-memory copy of a task's state; the agent passes this on to its copy server.

    ``task`` is the identity of the task.
    """

    task: str


class RegisterAgent(FromAgent, name="register", kw_only=True):
    """The first message of an agent: its running workers, and the workers that exited while there was no manager.

    ``instance`` is unique, so that a manager can distinguish two agents on one node. ``kind`` is the node's kind, or
    "" if the manager's settings determine it; ``gpus`` counts the GPUs that its workers use.
    """

    node: str
    address: str
    slots: int
    pid: int
    instance: str = ""
    epoch: int = 0
    version: int = 0
    kind: str = ""
    gpus: int = 0
    workers: tuple[LeftWorker, ...] = ()
    ended: tuple[LeftWorker, ...] = ()


class Alive(FromManager, FromAgent, ToPrefork, name="alive"):
    """A heartbeat: of a manager and to prefork servers each second, of an agent while it is silent."""


class AgentWarm(FromAgent, name="warm"):
    """The prefork server for scripts has imported its modules."""


class PreemptionNotice(FromAgent, name="notice"):
    """The scheduler takes the node in ``grace_s`` seconds."""

    grace_s: float


class AgentLeaving(FromAgent, name="leaving"):
    """The agent exits; killing its workers took ``after_s`` seconds."""

    reason: str
    after_s: float = 0.0


class MessageFromWorker(FromAgent, name="worker_message"):
    """A message of a worker that the agent passes on."""

    worker: str
    message: Message


class WorkerSpawned(FromAgent, name="spawned"):
    """A worker was started; ``port`` is its free port, or 0."""

    worker: str
    pid: int
    port: int


class WorkerInspected(FromAgent, name="inspected"):
    """The state of a worker's process in Linux's notation; "" for a missing process."""

    worker: str
    state: str


class WorkerExited(FromAgent, name="exited"):
    """A worker exited; the fields are those of :class:`WorkerExit`."""

    worker: str
    code: int
    tail: str = ""
    finished: bool = False
    stopped: bool = False


class CopyHeld(FromAgent, FromPrefork, name="copy_held"):
    """The node has a copy of a task's state in memory, of ``size`` bytes; ``step`` -1: it has no room for the state.

    ``task`` is the identity of the task, not its name.
    """

    task: str
    lineage: Count
    step: int
    size: Count


class CopyDropped(FromAgent, FromPrefork, name="copy_dropped"):
    """The copy that an earlier :class:`CopyHeld` reported is gone, by a :class:`DropCopy`."""

    task: str


class CopyServing(FromAgent, FromPrefork, name="copies"):
    """The node keeps copies of other nodes' states in ``limit`` bytes, and workers connect to ``port``.

    With ``limit`` 0 its copy server is gone, and all copies with it. ``held`` are its copies; ``age_s`` is the time in
    seconds since its agent started.
    """

    port: Port
    limit: Count
    age_s: float = 0.0
    held: tuple[CopyHeld, ...] = ()


class SignalProcess(ToPrefork, name="signal"):
    """Send a signal to a worker."""

    pid: int
    signal: int


class InspectProcess(ToPrefork, name="inspect"):
    """Request a dump of a warm worker's stacks into its log."""

    pid: int


class PreforkWarm(FromPrefork, name="warm"):
    """All modules are imported except the ``missing`` ones; workers can be started."""

    missing: Texts = ()


class ProcessStarted(FromPrefork, name="started"):
    """A worker was forked."""

    worker: str
    pid: int


class ProcessEnded(FromPrefork, name="ended"):
    """A worker exited; ``asked_to_end``: it had a handler for a SIGTERM of the agent."""

    worker: str
    code: int
    asked_to_end: bool = False


class SignalNotice(FromPrefork, name="notice"):
    """A scheduler sent a signal to all processes of the node."""

    signal: str


FROM_MANAGER: Final = by_type(FromManager)
FROM_AGENT: Final = by_type(FromAgent)
TO_PREFORK: Final = by_type(ToPrefork)
FROM_PREFORK: Final = by_type(FromPrefork)
