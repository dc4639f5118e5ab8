"""Task lifecycles: the logic of one task under one launcher, free of I/O: events in, orders out.

All calls happen in the hub's thread, and must not block.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.wire.agent_messages import LeftWorker, SpawnWorker, WorkerExit
from bftrain_elastic.wire.messages import Message, WireMessage
from bftrain_elastic.wire.worker_messages import CopyPlace


class _Copies(Protocol):
    def choose(self, task: str, nodes: Sequence[str], now: float, /) -> CopyPlace | None: ...
    def newest(self, task: str, /) -> CopyPlace | None: ...


class _Agent(Protocol):
    slots: int
    address: str


class _Hub(Protocol):
    """The hub, which imports this module."""

    settle_s: float
    kind_of: Callable[[str], str]

    @property
    def copies(self) -> _Copies: ...
    def agent(self, node: str, /) -> _Agent | None: ...
    def new_name(self, task: str, node: str, slot: int, /) -> str: ...
    def spawn(self, node: str, order: SpawnWorker, /) -> None: ...
    def inspect(self, worker: str, /) -> None: ...
    def send(self, worker: str, message: WireMessage, /) -> None: ...
    def stop(self, worker: str, grace_s: float, /) -> None: ...
    def emit(self, event: Message, /) -> None: ...


class TaskContext:
    """The services for a lifecycle: nodes, workers, messages to workers, and events for the manager.

    ``settle_s`` are the seconds that a preemption may need to reach all processes of a node and its agent. Before that,
    a worker's exit may be a failure or a preemption.
    """

    settle_s: float

    def __init__(self, hub: _Hub, task: str, job: LauncherJob) -> None:
        self._hub = hub
        self._task = task
        self._job = job
        self.settle_s = hub.settle_s

    def now(self) -> float:
        """Return seconds on a monotonic clock."""
        return time.monotonic()

    def slots(self, node: str) -> int:
        """Return the number of workers a node takes; 0 if no agent is registered there."""
        agent = self._hub.agent(node)
        return agent.slots if agent else 0

    def address(self, node: str) -> str:
        """Return the node's address for connections from other nodes."""
        agent = self._hub.agent(node)
        return agent.address if agent else ""

    def name(self, node: str, slot: int) -> str:
        """Return a name for a new worker; names are never reused."""
        return self._hub.new_name(self._task, node, slot)

    def spawn(self, node: str, worker: str, *, env: Mapping[str, str], **how: Any) -> None:  # noqa: ANN401 - fields of SpawnWorker
        """Start ``worker`` for the job on ``node`` as soon as no other task is left there.

        ``env`` is added to the job's environment; ``how`` are fields of ``SpawnWorker``, with the job's as defaults. A
        warm worker, the default, is a script, run by a fork of a process that has imported torch; a cold one is any
        command. ``want_port`` picks a free port of the node, passes it to the lifecycle, and sets MASTER_PORT. The
        worker sees the GPU of its slot, or with ``all_gpus`` all GPUs of its agent. ``place`` is returned in
        :class:`LeftWorker`.
        """
        job, kind = self._job, self._hub.kind_of(node)
        env = {**job.env, "BFTRAIN_FOLDER": job.folder, **({"BFTRAIN_KIND": kind} if kind else {}), **env}
        argv, warm = job.command(env, warm=how.get("warm", True))
        log = f"{job.logs}/{node.replace('/', '_')}-{how.get('slot', 0)}.log"
        ends = {"finish_code": job.finish_code, "finish_file": job.finish_path}
        how |= {"task": self._task, "argv": argv, "warm": warm, "env": env, "cwd": job.cwd, "log": log}
        self._hub.spawn(node, SpawnWorker(worker=worker, **ends | how))

    def inspect(self, worker: str) -> None:
        """Request a dump of a worker's stacks into its log; ``inspected`` receives the state of its process."""
        self._hub.inspect(worker)

    def send(self, worker: str, message: WireMessage) -> None:
        """Send a worker a message."""
        self._hub.send(worker, message)

    def stop(self, worker: str, *, grace_s: float) -> None:
        """Send SIGTERM, and SIGKILL ``grace_s`` seconds later; 0: SIGKILL immediately."""
        self._hub.stop(worker, grace_s)

    def copy_place(self, nodes: Sequence[str]) -> CopyPlace | None:
        """Return the copy server for the state of a task on these nodes, if there is one outside of them."""
        return self._hub.copies.choose(self._job.identity, nodes, self.now())

    def newest_copy(self) -> CopyPlace | None:
        """Return the copy server with the newest copy of the state."""
        return self._hub.copies.newest(self._job.identity)

    def emit(self, event: Message) -> None:
        """Send an event to the manager; task and time are added."""
        self._hub.emit({"task": self._task, **event})


class TaskLifecycle(Protocol):
    """The per-task part of a launcher."""

    def set_nodes(self, nodes: tuple[str, ...], *, at_once: frozenset[str]) -> None:
        """Keep these nodes, oldest first; leave the nodes in ``at_once`` now, and the rest when it costs no work."""

    def node_up(self, node: str) -> None:
        """Handle the registration of an agent."""

    def node_gone(self, node: str) -> None:
        """Handle the departure of an agent; the exits of its workers were reported before."""

    def adopt(self, node: str, left: LeftWorker) -> bool:
        """Take over a worker of an earlier manager; return whether to keep it, otherwise it is killed.

        Called before ``node_up``. With ``left.exit``, the worker has already exited; its agent forgets the exit if the
        result is false, or when the task is dropped or a worker is started on its slot.
        """

    def notice(self, node: str, grace_s: float) -> None:
        """Leave a node that the scheduler takes in ``grace_s`` seconds: hand the state over, or save it."""

    def inspected(self, worker: str, process_state: str) -> None:
        """Receive the state of a worker's process in Linux's notation: ``T`` is stopped; "" if it has exited."""

    def spawned(self, worker: str, port: int) -> None:
        """Handle the start of a worker, with its port if one was requested."""

    def on_worker_message(self, worker: str, message: WireMessage) -> None:
        """Handle a worker's message."""

    def exited(self, worker: str, exit: WorkerExit) -> None:  # noqa: A002 - the field's word
        """Handle the exit of a worker."""

    def tick(self, now: float) -> None:
        """Do periodic work, ten times a second."""


MakeLifecycle = Callable[[str, LauncherJob, TaskContext], TaskLifecycle]


def epoch_of(worker: str) -> int:
    """Return the manager epoch in a worker's name, or 0."""
    epoch, dash, _ = worker.rpartition("/")[2].partition("-")
    return int(epoch) if dash and epoch.isdecimal() else 0
