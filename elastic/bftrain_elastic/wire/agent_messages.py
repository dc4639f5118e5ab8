"""Messages between the manager and the agent of a node, and between an agent and its prefork server.

Messages of a user's script are carried inside as JSON objects, which ``worker_messages.FROM_WORKER`` validates.
"""

from __future__ import annotations

from typing import Final

from bftrain_elastic.wire.messages import Environment, Message, Texts, WireMessage, by_type
from bftrain_elastic.wire.worker_messages import StepReport, WorkerReady

# Rises with incompatible changes, such as another meaning of a field; 0: not stated
VERSION: Final = 1

# -- in several messages


class GroupPlace(WireMessage, name="place"):
    """The place of a worker in its group; the agent reports it to a later manager."""

    generation: int = 0  # 0: in no group
    rank: int = 0
    workers: int = 0


class WorkerExit(WireMessage, name="exit"):
    """The end of a worker: its exit code (negative: the signal that killed it) and its last output.

    ``finished``: the program said that its work is done, by ``finish()``, by its exit code or by a file. ``stopped``:
    the program said that it ended on request, or its agent killed it; its exit code then means nothing more. ``ago_s``:
    how long ago it ended, if it ended while there was no manager.
    """

    code: int
    tail: str = ""
    finished: bool = False
    stopped: bool = False
    ago_s: float = 0.0


class LeftWorker(WireMessage, name="left", kw_only=True):
    """A worker that outlived its manager, as the agent on its node describes it.

    ``step`` is the last one that it mentioned, ``go`` the place in the group that it was ordered to form last,
    ``ready`` its message when it left that group, or started. ``done``: it said so. ``report`` is the last step that
    it reported. ``exit`` is set if the worker has ended.
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


# -- from the manager to an agent


class Welcome(WireMessage, name="welcome"):
    """The agent is registered; ``epoch`` counts the starts of the manager.

    ``keep_s`` is how long workers run on without it; None: for as long as the agent has patience. With ``silence_s``
    the manager sends ``Alive`` each second, and counts as lost after so long without one.
    """

    epoch: int = 1
    keep_s: float | None = None
    silence_s: float | None = None
    version: int = 0


def of_later_version(node: str, version: int) -> str:
    """Return why an agent of a later version is refused."""
    what = f"the agent on node '{node}' has messages of version {version}, and the manager knows {VERSION}"
    return f"{what}: let both have the same version of bftrain"


class Goodbye(WireMessage, name="bye"):
    """The manager ends, and the agent must end too."""


class AgentRefused(WireMessage, name="refused"):
    """Another agent is on the node: this one must end."""

    reason: str


class SpawnWorker(WireMessage, name="spawn", kw_only=True):
    """Start a worker; the agent passes it to a prefork server with the whole environment.

    A ``warm`` worker is a script that a fork of a process with torch runs, another one any command. ``place`` is its
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


class ExpectScripts(WireMessage, name="expect_scripts"):
    """Import what scripts need: a task may soon start one here."""


class MessageToWorker(WireMessage, name="message"):
    """A message that the agent passes to a worker."""

    worker: str
    message: Message


class StopWorker(WireMessage, name="stop"):
    """Send a worker SIGTERM, and SIGKILL after ``grace_s`` seconds; 0: SIGKILL at once."""

    worker: str
    grace_s: float = 0.0


class InspectWorker(WireMessage, name="inspect"):
    """Request a dump of a worker's stacks into its log, and the state of its process."""

    worker: str


class ForgetWorkers(WireMessage, name="forget"):
    """Forget how one worker of a task ended, or all of them."""

    task: str
    worker: str = ""


class ClearNode(WireMessage, name="clear"):
    """Kill all workers on the node."""


# -- from an agent to the manager


class RegisterAgent(WireMessage, name="register", kw_only=True):
    """The first message of an agent, with the workers that run or ended without a manager.

    ``instance`` is unique, so that a manager can distinguish two agents on one node.
    """

    node: str
    address: str
    slots: int
    pid: int
    instance: str = ""
    epoch: int = 0
    version: int = 0
    workers: tuple[LeftWorker, ...] = ()
    ended: tuple[LeftWorker, ...] = ()


class Alive(WireMessage, name="alive"):
    """A sign of life: from the manager each second, from an agent that sent nothing else for three."""


class AgentWarm(WireMessage, name="warm"):
    """The prefork server for scripts has imported its modules."""


class PreemptionNotice(WireMessage, name="notice"):
    """The scheduler takes the node in ``grace_s`` seconds."""

    grace_s: float


class AgentLeaving(WireMessage, name="leaving"):
    """The agent ends; killing its workers took ``after_s`` seconds."""

    reason: str
    after_s: float = 0.0


class MessageFromWorker(WireMessage, name="worker_message"):
    """A message of a worker that the agent passes on."""

    worker: str
    message: Message


class InvalidWorkerMessage(WireMessage, name="invalid_message"):
    """A worker sent a malformed message; ``text`` says what is wrong."""

    worker: str
    text: str


class WorkerSpawned(WireMessage, name="spawned"):
    """A worker was started; ``port`` is the port that was found for it, or 0."""

    worker: str
    pid: int
    port: int


class WorkerInspected(WireMessage, name="inspected"):
    """The state of a worker's process as Linux names it; "" if there is none."""

    worker: str
    state: str


class WorkerExited(WireMessage, name="exited"):
    """A worker ended: its exit code, its last output, and its own last message."""

    worker: str
    code: int
    tail: str = ""
    finished: bool = False
    stopped: bool = False


# -- from an agent to a prefork server


class SignalProcess(WireMessage, name="signal"):
    """Send a signal to a worker."""

    pid: int
    signal: int


class InspectProcess(WireMessage, name="inspect"):
    """Request a dump of a warm worker's stacks into its log."""

    pid: int


# -- from a prefork server to its agent


class PreforkWarm(WireMessage, name="warm"):
    """All modules are imported except those that are ``missing``; workers can be started."""

    missing: Texts = ()


class ProcessStarted(WireMessage, name="started"):
    """A worker was forked."""

    worker: str
    pid: int


class ProcessEnded(WireMessage, name="ended"):
    """A worker ended; ``asked_to_end``: it ran when it received SIGTERM."""

    worker: str
    code: int
    asked_to_end: bool = False


class SignalNotice(WireMessage, name="notice"):
    """A scheduler sent a signal to all processes of the node."""

    signal: str


FROM_MANAGER: Final = by_type(
    Welcome,
    Goodbye,
    AgentRefused,
    Alive,
    SpawnWorker,
    ExpectScripts,
    MessageToWorker,
    StopWorker,
    InspectWorker,
    ForgetWorkers,
    ClearNode,
)
FROM_AGENT: Final = by_type(
    RegisterAgent,
    Alive,
    AgentWarm,
    PreemptionNotice,
    AgentLeaving,
    MessageFromWorker,
    InvalidWorkerMessage,
    WorkerSpawned,
    WorkerInspected,
    WorkerExited,
)
TO_PREFORK: Final = by_type(SpawnWorker, SignalProcess, InspectProcess, Alive)
FROM_PREFORK: Final = by_type(PreforkWarm, ProcessStarted, ProcessEnded, SignalNotice)
