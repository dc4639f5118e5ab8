"""The hub: the manager's connections to all agents, in a separate thread.

All calls of task lifecycles happen in this thread, so they need no locks. Other threads use :meth:`AgentHub.call`.
"""

from __future__ import annotations

import selectors
import signal
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, NoReturn, Protocol

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.manager.copy_places import CopyPlaces
from bftrain_elastic.manager.hub_inputs import AgentConnection, AgentListener, ThreadCalls
from bftrain_elastic.manager.hub_workers import KILLED, HubWorkers
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire import agent_messages as wire
from bftrain_elastic.wire.agent_messages import LeftWorker, SpawnWorker, WorkerExit
from bftrain_elastic.wire.authenticated_stream import ALIVE_TEXT
from bftrain_elastic.wire.messages import Message, WireMessage, read_message
from bftrain_elastic.wire.worker_messages import FROM_WORKER, CopyPlace

OnEvent = Callable[[Message], None]

_IMMEDIATE_CAUSES: Final = frozenset({"preempted", "cancelled", "failed"})


class TaskLifecycle(Protocol):
    """The per-task part of a launcher. It may also have ``set_batch(batch)``: train with it from the next group on."""

    def set_nodes(self, nodes: tuple[str, ...], *, at_once: frozenset[str]) -> None:
        """Run on these nodes, oldest first; leave those in ``at_once`` now, and other nodes when it costs no work."""

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
        """Leave a node that the scheduler takes in ``grace_s`` seconds: move the state to other nodes, or save it."""

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


class TaskContext:
    """The services for a lifecycle: nodes, workers, messages to workers, and events for the manager.

    ``settle_s`` are the seconds that a preemption may need to reach all processes of a node and its agent. Before that,
    a worker's exit may be a failure or a preemption.
    """

    settle_s: float

    def __init__(self, hub: AgentHub, task: str, job: LauncherJob) -> None:
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
        return self._hub.workers.new_name(self._task, node, slot)

    def spawn(self, node: str, worker: str, *, env: Mapping[str, str], **how: Any) -> None:  # noqa: ANN401 - fields of SpawnWorker
        """Start ``worker`` for the job on ``node`` as soon as its slot is free and no other task is left there.

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
        self._hub.workers.spawn(node, SpawnWorker(worker=worker, **ends | how))

    def inspect(self, worker: str) -> None:
        """Request a dump of a worker's stacks into its log; ``inspected`` receives the state of its process."""
        self._hub.workers.inspect(worker)

    def send(self, worker: str, message: WireMessage) -> None:
        """Send a worker a message."""
        self._hub.workers.send(worker, message)

    def stop(self, worker: str, *, grace_s: float) -> None:
        """Send SIGTERM, and SIGKILL ``grace_s`` seconds later; 0: SIGKILL immediately."""
        self._hub.workers.stop(worker, grace_s)

    def copy_place(self, nodes: Sequence[str]) -> CopyPlace | None:
        """Return the copy server for the state of a task on these nodes, if there is one outside of them."""
        return self._hub.copies.choose(self._job.identity, nodes, self.now())

    def newest_copy(self) -> CopyPlace | None:
        """Return the copy server with the newest copy of the state."""
        return self._hub.copies.newest(self._job.identity)

    def emit(self, event: Message) -> None:
        """Send an event to the manager; task and time are added."""
        self._hub.emit({"task": self._task, **event})


@dataclass(eq=False)
class AgentTask:
    """One task; ``make`` builds a lifecycle."""

    name: str
    launcher: str
    job: LauncherJob
    make: Callable[[], TaskLifecycle]
    nodes: tuple[str, ...] = ()  # allocated, oldest first
    limit: int | None = None  # number of these nodes to run on, from the oldest; None: all

    def __post_init__(self) -> None:
        """Build the first lifecycle."""
        self.lifecycle = self.make()


class AgentTasks:
    """All tasks of a hub's launchers, with their nodes and lifecycles. Used in the hub's thread."""

    def __init__(self, hub: AgentHub) -> None:
        self._hub = hub
        self._tasks: dict[str, AgentTask] = {}
        self._scripts: set[str] = set()  # tasks with a script that an agent's prefork server runs
        self._by_node: dict[str, list[AgentTask]] | None = None  # tasks by node; None after a change

    def add(self, task: AgentTask) -> None:
        """Add a task without nodes; agents import the modules that scripts need, now and on connection."""
        self._tasks[task.name] = task
        if task.job.argv[0].endswith(".py") and not task.job.has_own_environment:
            if not self._scripts:
                self._hub.send_all(wire.ExpectScripts())
            self._scripts.add(task.name)

    @property
    def expects_scripts(self) -> bool:
        """Whether any task is a script that an agent's prefork server runs."""
        return bool(self._scripts)

    def drop(self, name: str) -> None:
        """Forget a task and its copies, and kill its processes."""
        task = self._tasks.pop(name, None)
        self._scripts.discard(name)
        self._by_node = None
        self._hub.workers.drop_task(name)
        if task is not None:
            self._hub.copies.forget(task.job.identity)
            self._hub.send_all(wire.DropCopy(task.job.identity))

    def apply(self, launcher: str, actions: Sequence[Mapping[str, Any]]) -> None:
        """Carry out actions in their JSON form."""
        now: set[str] = set()  # nodes to leave immediately
        before: dict[AgentTask, tuple[str, ...]] = {}
        for action in actions:
            now |= self._apply_one(launcher, action, before)
        self._by_node = None
        for task, held in before.items():
            if task.nodes and not held:
                self._hub.emit({"type": "starting", "task": task.name, "nodes": list(task.nodes)})
            self._update_nodes(task, frozenset(now))
            left = set(held) - set(task.nodes) - now
            # On the other nodes, workers report their exits
            if empty := left - self._hub.workers.nodes_with(task.name) if left else left:
                self._hub.emit({"type": "vacated", "task": task.name, "nodes": sorted(empty)})
        self._hub.workers.clear(now.difference(*(task.nodes for task in self._tasks.values())))

    def _apply_one(
        self, launcher: str, action: Mapping[str, Any], before: dict[AgentTask, tuple[str, ...]]
    ) -> frozenset[str]:
        """Update the nodes of tasks, and add the previous ones to ``before``; return the nodes to leave immediately."""
        kind, nodes, name = action["action"], frozenset(action["nodes"]), action.get("task", "")
        grows, releases, task = kind in {"start", "grow"}, kind == "release", self._tasks.get(name)
        if grows and task is None:
            reason = f"the {launcher} launcher does not know what to run for it"
            self._hub.emit({"type": "failed", "task": name, "reason": reason})
        holders = (one for one in self._tasks.values() if not nodes.isdisjoint(one.nodes))
        for one in holders if releases else filter(None, [task]):
            before.setdefault(one, one.nodes)
            if grows:
                one.nodes += tuple(node for node in action["nodes"] if node not in one.nodes)
            else:
                one.nodes = tuple(node for node in one.nodes if node not in nodes)
        return nodes if releases or (task and action.get("cause") in _IMMEDIATE_CAUSES) else frozenset()

    def narrow(self, name: str, size: int | None) -> None:
        """Let a task run on only the first ``size`` of its nodes; None: on all."""
        if (task := self._tasks.get(name)) is not None:
            task.limit = None if size is None else max(1, size)
            self._update_nodes(task, frozenset())

    def _update_nodes(self, task: AgentTask, now: frozenset[str]) -> None:
        running, at_once = task.nodes[: task.limit], now.difference(task.nodes)
        self.tell(task.name, lambda lifecycle: lifecycle.set_nodes(running, at_once=at_once))

    def tell(self, name: str, tell: Callable[[TaskLifecycle], object]) -> object:
        """Call a task's lifecycle. An error fails only this task; its next start has a new lifecycle."""
        if (task := self._tasks.get(name)) is None:
            return False
        try:
            return tell(task.lifecycle)
        except Exception as error:  # noqa: BLE001 - a launcher of others may do anything
            traceback.print_exc()
            self._hub.workers.drop_task(name)
            task.lifecycle, task.nodes, task.limit, self._by_node = task.make(), (), None, None
            reason = f"the {task.launcher} launcher broke: {type(error).__name__}: {error}"
            self._hub.emit({"type": "failed", "task": name, "reason": reason})
            return False

    def tell_node(self, node: str, tell: Callable[[TaskLifecycle], object], *, leaves: bool = False) -> None:
        """Call the lifecycles of the tasks on the node; if it ``leaves``, also of tasks with workers there."""
        if self._by_node is None:
            self._by_node = {}
            for task in self._tasks.values():
                for one in task.nodes:
                    self._by_node.setdefault(one, []).append(task)
        names = [task.name for task in self._by_node.get(node, ())]
        if leaves:
            nodes_with = self._hub.workers.nodes_with
            names += [name for name in self._tasks if name not in names and node in nodes_with(name)]
        for name in names:
            self.tell(name, tell)

    def adopt(self, name: str, node: str, left: LeftWorker) -> bool:
        """Pass a worker of an earlier manager, or its exit, to its task; return whether the task accepts it.

        A running worker must be on a node of its task; for an exited one the node does not matter.
        """
        task = self._tasks.get(name)
        if task is None or (left.exit is None and node not in task.nodes):
            return False
        return bool(self.tell(name, lambda lifecycle: lifecycle.adopt(node, left)))

    def of_identity(self, identity: str) -> str:
        """Return the task with an identity, or ""."""
        return next((name for name, task in self._tasks.items() if task.job.identity == identity), "")

    def tick(self, now: float) -> None:
        """Call all lifecycles."""
        for name in list(self._tasks):
            self.tell(name, lambda lifecycle: lifecycle.tick(now))


class AgentHub(ThreadCalls):
    """Connections to all agents, which connect to ``address``. ``emit`` receives events, in the hub's thread.

    With ``closed``, the hub accepts agents only after :meth:`open`: a restarted manager first assigns nodes to tasks,
    and then knows the running workers when their agents reconnect. ``epoch`` counts the starts of the manager: agents
    reject managers older than the newest one they obeyed. ``settle_s`` is the time in seconds that a preemption may
    need to reach all processes of a node. ``keep_s`` is the field of :class:`Welcome`; with it, call :meth:`beat` each
    second. Agents that hear nothing stop their workers: with 0 soon, otherwise just before their nodes are given up.
    """

    def __init__(
        self,
        emit: OnEvent,
        secret: bytes,
        *,
        bind: str = "127.0.0.1",
        port: int = 0,
        closed: bool = False,
        epoch: int = 1,
        settle_s: float = 0.5,
        keep_s: float | None = None,
    ) -> None:
        super().__init__()
        self.epoch = epoch
        self.settle_s = settle_s
        silence_s = TIMEOUTS.partition_s if keep_s else TIMEOUTS.manager_silence_s
        self._welcome = wire.Welcome(epoch, keep_s, None if keep_s is None else silence_s, wire.VERSION)
        self._on_event = emit
        self._selector = selectors.DefaultSelector()
        self._agent_listener = AgentListener(
            self._selector, secret, (bind, port), on_message=self._on_message, on_lost=self._lost
        )
        self.address = self._agent_listener.address
        self._agents: dict[str, AgentConnection] = {}
        self.tasks = AgentTasks(self)  # used in the hub's thread, as the workers and copies
        self.workers = HubWorkers(
            self._agents,
            epoch,
            lambda owner, worker, exit_: self.tasks.tell(owner.task, lambda one: one.exited(worker, exit_)),
            self.call,
        )
        self.copies = CopyPlaces(self._emit_of_copies)
        self.kind_of: Callable[[str], str] = lambda _: ""  # a node's kind, where nodes have kinds
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="bftrain-hub", daemon=True)
        self._thread.start()
        if not closed:
            self.open()

    # -- from any thread

    def open(self) -> None:
        """Accept agents; may be called again."""
        self.call(self._agent_listener.open)

    def hold_workers(self) -> None:
        """Suspend worker starts until :meth:`start_workers`: nodes with unconnected agents may still run workers."""
        self.call(lambda: self.workers.hold(holding=True))

    def start_workers(self) -> None:
        """Start the suspended workers, and start later ones immediately."""
        self.call(lambda: self.workers.hold(holding=False))

    def beat(self) -> None:
        """Send agents a heartbeat. The daemon calls this, because this thread would outlive a daemon that hangs."""
        if self._welcome.silence_s is not None:
            self.call(self._beat)

    def nodes(self) -> dict[str, int]:
        """Return the nodes with a connected agent, and their slots."""
        return self.ask(lambda: {name: agent.slots for name, agent in self._agents.items()})

    def close(self) -> None:
        """Send a goodbye to all agents, and stop the thread once they have left."""
        if self._thread.is_alive():
            self.call(self._end)
            self._thread.join(10.0)
        if not self._thread.is_alive():  # only now: a call wakes the thread by writing to it
            self.close_calls()

    # -- for tasks, in the hub's thread

    def agent(self, node: str) -> AgentConnection | None:
        """Return the connection of the agent on ``node``, or None."""
        return self._agents.get(node)

    def send_all(self, message: WireMessage) -> None:
        """Send all agents a message."""
        for agent in self._agents.values():
            agent.send(message)

    def emit(self, event: Message) -> None:
        """Send an event to the manager. Catches its errors: all tasks depend on the hub."""
        now = time.time()
        if event.get("type") == "report":  # its time t is from the clock of another machine
            event = {"received_at": now, **event}
        try:
            self._on_event({"t": now, **event})
        except Exception:  # noqa: BLE001 - the receiver may raise anything
            traceback.print_exc()

    def _run(self) -> None:
        self._selector.register(self.descriptor, selectors.EVENT_READ, lambda _: self.drain())
        next_tick = time.monotonic()
        while not self._ending or self._agents:
            for key, events in self._selector.select(max(0.0, next_tick - time.monotonic())):
                key.data(events)
            self.make_calls()
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + TIMEOUTS.hub_tick_s
                self._agent_listener.tick(now)
                self.tasks.tick(now)
        self._agent_listener.end_all()
        self._selector.close()
        self._agent_listener.close()

    def _beat(self) -> None:
        for agent in self._agents.values():
            agent.write(agent.sealed.seal_text(ALIVE_TEXT))

    def _end(self) -> None:
        self._ending = True
        self.send_all(wire.Goodbye())

    def _on_message(self, agent: AgentConnection, plain: Message) -> None:
        message = read_message(wire.FROM_AGENT, plain)
        if not agent.node:
            if not isinstance(message, wire.RegisterAgent):
                raise BadMessage("an agent registers first")
            self._register(agent, message)
            return
        match message:
            case wire.MessageFromWorker() | wire.WorkerSpawned() | wire.WorkerInspected():
                if (task := self.workers.task_of(message.worker)) is not None:
                    self._forward(task, message)
            case wire.WorkerExited():
                exit_ = WorkerExit(message.code, message.tail, message.finished, message.stopped)
                if agent.workers.pop(message.worker, None) is not None:
                    self.workers.ended(message.worker, exit_, reported=True)
                self.workers.start_waiting()
            case wire.AgentWarm():
                self.emit({"type": "warm", "node": agent.node})
            case wire.PreemptionNotice(grace_s=grace_s):
                agent.noticed = True
                self.copies.leaves(agent.node)
                self.emit({"type": "notice", "node": agent.node, "grace_s": grace_s})
                self.tasks.tell_node(agent.node, lambda lifecycle: lifecycle.notice(agent.node, grace_s), leaves=True)
            case wire.AgentLeaving(reason=reason, after_s=after_s):
                agent.noticed |= reason == signal.SIGTERM.name
                agent.left_at = time.monotonic()  # the connection closes with its process
                self._lost(agent, f"it left: {reason}", after_s)
            case _:  # also Alive, and messages of later versions
                self._on_copies(agent, message)

    def _on_copies(self, agent: AgentConnection, message: WireMessage | None) -> None:
        now = time.monotonic()
        match message:
            case wire.CopyHeld():
                for held in self._known_copies(agent, [message]):
                    self.copies.held(agent.node, held, now)
            case wire.CopyDropped(task=task):
                self.copies.dropped(agent.node, task)
            case wire.CopyServing():
                serving = replace(message, held=self._known_copies(agent, message.held))
                self.copies.serves(agent.node, agent.address, serving, agent.send, now)

    def _known_copies(self, agent: AgentConnection, copies: Sequence[wire.CopyHeld]) -> tuple[wire.CopyHeld, ...]:
        """Return the copies whose task is here; the agent drops the rest."""
        for copy in copies:
            if not self.tasks.of_identity(copy.task):
                agent.send(wire.DropCopy(copy.task))
        return tuple(copy for copy in copies if self.tasks.of_identity(copy.task))

    def _emit_of_copies(self, event: Message) -> None:
        if task := self.tasks.of_identity(event["task"]):
            self.emit({**event, "task": task})

    def _forward(self, task: str, message: WireMessage) -> None:
        tell = self.tasks.tell
        match message:
            case wire.MessageFromWorker(worker=worker, message=content):
                try:
                    report = read_message(FROM_WORKER, content)
                except BadMessage as error:  # unlikely: its agent has checked it
                    self.emit({"type": "note", "task": task, "text": f"{worker}: {error}"})
                else:
                    if report is not None:
                        tell(task, lambda lifecycle: lifecycle.on_worker_message(worker, report))
            case wire.WorkerSpawned(worker=worker, port=port):
                tell(task, lambda lifecycle: lifecycle.spawned(worker, port))
            case wire.WorkerInspected(worker=worker, state=state):
                tell(task, lambda lifecycle: lifecycle.inspected(worker, state))

    def _register(self, agent: AgentConnection, message: wire.RegisterAgent) -> None:
        node, slots = message.node, message.slots
        if not node or slots < 1:
            raise BadMessage("an agent has a name and at least one slot")
        if message.epoch > self.epoch:
            agent.send(wire.Welcome(self.epoch))  # tells the agent the reason
            raise BadMessage("it obeys a newer manager")
        if message.version > wire.VERSION:
            self._refuse(agent, node, wire.of_later_version(node, message.version))
        identity = (message.pid, message.instance)
        older = self._agents.get(node)
        if older is not None:
            if older.identity != identity and time.monotonic() - older.heard_at < TIMEOUTS.successor_s:
                others = f"another agent is on node '{node}', process {older.identity[0]}"
                self._refuse(agent, node, f"{others}; process {message.pid} must exit")
            older.end("its agent connected again, or another agent uses its name")
        agent.identity, agent.node, agent.slots, agent.address = identity, node, slots, message.address
        self._agents[node] = agent
        agent.send(self._welcome)
        if self.tasks.expects_scripts:
            agent.send(wire.ExpectScripts())
        for left in (*message.workers, *message.ended):
            self.workers.adopt(agent, left, partial(self.tasks.adopt, left.task, node, left))
        if self._ending:
            agent.send(wire.Goodbye())
        about = {"slots": slots, "pid": message.pid, "kind": message.kind, "gpus": message.gpus}
        self.emit({"type": "registered", "node": node, **about})
        self.tasks.tell_node(node, lambda lifecycle: lifecycle.node_up(node))
        self.workers.start_waiting()

    def _refuse(self, agent: AgentConnection, node: str, reason: str) -> NoReturn:
        """Reject an agent permanently: two agents of a node would keep replacing each other."""
        agent.send(wire.AgentRefused(reason))
        self.emit({"type": "refused", "node": node, "reason": reason})
        raise BadMessage(reason)

    def _lost(self, agent: AgentConnection, reason: str, after_s: float = 0.0) -> None:
        node = agent.node
        if not node or self._agents.get(node) is not agent:
            if agent.left_at:
                self.emit({"type": "agent_ended", "node": node, "after_s": time.monotonic() - agent.left_at})
            return
        del self._agents[node]
        self.copies.left(node)
        for worker in [*agent.workers, *self.workers.take_waiting({node})]:
            self.workers.ended(worker, KILLED)
        more = {"reason": reason, "noticed": agent.noticed, "after_s": after_s}
        self.emit({"type": "gone", "node": node, **more})
        self.tasks.tell_node(node, lambda lifecycle: lifecycle.node_gone(node))
