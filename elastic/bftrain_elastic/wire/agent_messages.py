"""Messages between the manager and the agent of a node, and between an agent and its prefork server.

Messages of a user's script are carried inside as JSON objects, validated by ``messages.checked``.
"""

from __future__ import annotations

from typing import Final

from bftrain_elastic.wire.messages import Environment, Message, Messages, MessageTable, Texts, TypedMessage

# Rises with incompatible changes, such as another meaning of a field; 0: not stated
VERSION: Final = 1

# -- from the manager to an agent


class Welcome(TypedMessage, name="welcome"):
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


class Goodbye(TypedMessage, name="bye"):
    """The manager ends, and the agent must end too."""


class AgentRefused(TypedMessage, name="refused"):
    """Another agent is on the node: this one must end."""

    reason: str


class SpawnWorker(TypedMessage, name="spawn", kw_only=True):
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
    place: Message | None = None
    finish_code: int | None = None
    finish_file: str = ""


class ExpectScripts(TypedMessage, name="expect_scripts"):
    """Import what scripts need: a task may soon start one here."""


class MessageToWorker(TypedMessage, name="message"):
    """A message that the agent passes to a worker."""

    worker: str
    message: Message


class StopWorker(TypedMessage, name="stop"):
    """Send a worker SIGTERM, and SIGKILL after ``grace_s`` seconds; 0: SIGKILL at once."""

    worker: str
    grace_s: float = 0.0


class InspectWorker(TypedMessage, name="inspect"):
    """Request a dump of a worker's stacks into its log, and the state of its process."""

    worker: str


class ForgetWorkers(TypedMessage, name="forget"):
    """Forget how one worker of a task ended, or all of them."""

    task: str
    worker: str = ""


class ClearNode(TypedMessage, name="clear"):
    """Kill all workers on the node."""


# -- from an agent to the manager


class RegisterAgent(TypedMessage, name="register", kw_only=True):
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
    workers: Messages = ()
    ended: Messages = ()


class Alive(TypedMessage, name="alive"):
    """A sign of life: from the manager each second, from an agent that sent nothing else for three."""


class AgentWarm(TypedMessage, name="warm"):
    """The prefork server for scripts has imported its modules."""


class PreemptionNotice(TypedMessage, name="notice"):
    """The scheduler takes the node in ``grace_s`` seconds."""

    grace_s: float


class AgentLeaving(TypedMessage, name="leaving"):
    """The agent ends; killing its workers took ``after_s`` seconds."""

    reason: str
    after_s: float = 0.0


class MessageFromWorker(TypedMessage, name="worker_message"):
    """A message of a worker that the agent passes on."""

    worker: str
    message: Message


class InvalidWorkerMessage(TypedMessage, name="invalid_message"):
    """A worker sent a malformed message; ``text`` says what is wrong."""

    worker: str
    text: str


class WorkerSpawned(TypedMessage, name="spawned"):
    """A worker was started; ``port`` is the port that was found for it, or 0."""

    worker: str
    pid: int
    port: int


class WorkerInspected(TypedMessage, name="inspected"):
    """The state of a worker's process as Linux names it; "" if there is none."""

    worker: str
    state: str


class WorkerExited(TypedMessage, name="exited"):
    """A worker ended: its exit code, its last output, and its own last message."""

    worker: str
    code: int
    tail: str = ""
    finished: bool = False
    stopped: bool = False


# -- from an agent to a prefork server


class SignalProcess(TypedMessage, name="signal"):
    """Send a signal to a worker."""

    pid: int
    signal: int


class InspectProcess(TypedMessage, name="inspect"):
    """Request a dump of a warm worker's stacks into its log."""

    pid: int


# -- from a prefork server to its agent


class PreforkWarm(TypedMessage, name="warm"):
    """All modules are imported except those that are ``missing``; workers can be started."""

    missing: Texts = ()


class ProcessStarted(TypedMessage, name="started"):
    """A worker was forked."""

    worker: str
    pid: int


class ProcessEnded(TypedMessage, name="ended"):
    """A worker ended; ``asked_to_end``: it ran when it received SIGTERM."""

    worker: str
    code: int
    asked_to_end: bool = False


class SignalNotice(TypedMessage, name="notice"):
    """A scheduler sent a signal to all processes of the node."""

    signal: str


FROM_MANAGER: Final = MessageTable(
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
FROM_AGENT: Final = MessageTable(
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
TO_PREFORK: Final = MessageTable(SpawnWorker, SignalProcess, InspectProcess, Alive)
FROM_PREFORK: Final = MessageTable(PreforkWarm, ProcessStarted, ProcessEnded, SignalNotice)
