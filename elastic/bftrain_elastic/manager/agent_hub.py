"""The hub: the manager's connections to all agents, in a separate thread.

All calls of task lifecycles happen in this thread, so they need no locks. Other threads use :meth:`AgentHub.call`.
"""

from __future__ import annotations

import selectors
import signal
import threading
import time
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NoReturn

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.manager.copy_places import CopyPlaces
from bftrain_elastic.manager.hub_inputs import AgentConnection, AgentListener, RunningWorker, ThreadCalls
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import TaskLifecycle
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire import agent_messages as wire
from bftrain_elastic.wire.agent_messages import LeftWorker, WorkerExit
from bftrain_elastic.wire.authenticated_stream import ALIVE_TEXT
from bftrain_elastic.wire.messages import Message, WireMessage, read_message
from bftrain_elastic.wire.worker_messages import FROM_WORKER

OnEvent = Callable[[Message], None]

_IMMEDIATE_CAUSES: Final = frozenset({"preempted", "cancelled", "failed"})
_KILLED: Final = WorkerExit(-9)  # exit of a worker that never started, or that lost its agent
_ENDS: Final = 10_000  # number of remembered worker exits


@dataclass(eq=False)
class AgentTask:
    """One task; ``make`` builds a lifecycle."""

    name: str
    launcher: str
    job: LauncherJob
    make: Callable[[], TaskLifecycle]
    nodes: tuple[str, ...] = ()  # allocated, oldest first
    limit: int | None = None  # run on the first of these nodes only

    def __post_init__(self) -> None:
        """Build the first lifecycle."""
        self.lifecycle = self.make()


class AgentTasks:
    """All tasks of a hub's launchers, with their nodes and lifecycles. Used in the hub's thread."""

    def __init__(self, hub: AgentHub) -> None:
        self._hub = hub
        self._tasks: dict[str, AgentTask] = {}
        self._by_node: dict[str, list[AgentTask]] | None = None  # None after a change

    def add(self, task: AgentTask) -> None:
        """Add a task without nodes."""
        self._tasks[task.name] = task
        if task.job.argv[0].endswith(".py") and not task.job.has_own_environment:
            self._hub.expect_scripts(task.name)

    def drop(self, name: str) -> None:
        """Forget a task and its copies, and kill its processes."""
        task = self._tasks.pop(name, None)
        self._by_node = None
        self._hub.drop_task(name)
        if task is not None:
            self._hub.forget_copies(task.job.identity)

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
            # Other workers report their exits
            if empty := left - self._hub.nodes_with(task.name) if left else left:
                self._hub.emit({"type": "vacated", "task": task.name, "nodes": sorted(empty)})
        self._hub.clear(frozenset(now.difference(*(task.nodes for task in self._tasks.values()))))

    def _apply_one(
        self, launcher: str, action: Mapping[str, Any], before: dict[AgentTask, tuple[str, ...]]
    ) -> frozenset[str]:
        """Update the nodes of tasks, and note those before; return the nodes that tasks must leave immediately."""
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
            self._hub.drop_task(name)
            task.lifecycle, task.nodes, task.limit, self._by_node = task.make(), (), None, None
            self.add(task)
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
        names += [name for name in self._tasks if leaves and name not in names and node in self._hub.nodes_with(name)]
        for name in names:
            self.tell(name, tell)

    def adopt(self, name: str, node: str, left: LeftWorker) -> bool:
        """Return whether a worker of another manager belongs to a task here: it continues, or its exit is reported.

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
    """Connections to all agents. ``tell`` is called in the hub's thread; agents connect to ``address``.

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
        self._keep_s, self._silence_s = keep_s, None if keep_s is None else silence_s
        self._on_event = emit
        self._selector = selectors.DefaultSelector()
        self._agent_listener = AgentListener(
            self._selector, secret, (bind, port), on_message=self._on_message, on_lost=self._lost
        )
        self.address = self._agent_listener.address
        self._agents: dict[str, AgentConnection] = {}
        self.tasks = AgentTasks(self)  # used in the hub's thread, as the copies
        self._owners: dict[str, RunningWorker] = {}  # owners of running workers
        self._ends: dict[str, bool] = {}  # exited worker -> whether its agent reported the exit
        self._names = 0  # number of names given so far
        self._waiting: dict[str, wire.SpawnWorker] = {}  # workers that wait until their node has room for them
        self._script_tasks: set[str] = set()
        self.copies = CopyPlaces(self._emit_of_copies)
        self.kind_of: Callable[[str], str] = lambda _: ""  # a node's kind, where nodes have kinds
        self._ending = False
        self._holding = False  # worker starts are suspended
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
        self.call(lambda: self._hold(holding=True))

    def start_workers(self) -> None:
        """Start the suspended workers, and start later ones immediately."""
        self.call(lambda: self._hold(holding=False))

    def beat(self) -> None:
        """Send agents a heartbeat. The daemon calls this, because this thread would outlive a daemon that hangs."""
        if self._silence_s is not None:
            self.call(self._beat)

    def nodes(self) -> dict[str, int]:
        """Return the registered nodes with their slots."""
        return self.ask(lambda: {name: agent.slots for name, agent in self._agents.items()})

    def close(self) -> None:
        """Send a goodbye to all agents, and end."""
        if self._thread.is_alive():
            self.call(self._end)
            self._thread.join(10.0)
        if not self._thread.is_alive():  # only now: a call wakes the thread by writing to it
            self.close_calls()

    # -- for tasks, in the hub's thread

    def agent(self, node: str) -> AgentConnection | None:
        """Return the connection of the agent on ``node``, or None."""
        return self._agents.get(node)

    def new_name(self, task: str, node: str, slot: int) -> str:
        """Return a new worker name; names are never reused."""
        self._names += 1
        return f"{task}/{node}/{slot}/{self.epoch}-{self._names}"

    def expect_scripts(self, task: str) -> None:
        """Make agents import the modules that scripts need, now and on connection, until the task is dropped."""
        if not self._script_tasks:
            for agent in self._agents.values():
                agent.send(wire.ExpectScripts())
        self._script_tasks.add(task)

    @property
    def expects_scripts(self) -> bool:
        """Whether agents import the modules of scripts, and report when they have."""
        return bool(self._script_tasks)

    def spawn(self, node: str, order: wire.SpawnWorker) -> None:
        """Start a worker as soon as its node has no worker of another task."""
        self._owners[order.worker] = RunningWorker(order.task, node, order.slot)
        self._waiting[order.worker] = order
        self._start_waiting()

    def send(self, worker: str, message: WireMessage) -> None:
        """Send a worker a message, if it runs."""
        self._send_agent_of(worker, wire.MessageToWorker(worker, message.to_dict()))

    def inspect(self, worker: str) -> None:
        """Request a dump of a worker's stacks into its log; its task receives the state of its process."""
        self._send_agent_of(worker, wire.InspectWorker(worker))

    def stop(self, worker: str, grace_s: float) -> None:
        """Stop a worker; a waiting worker is dropped."""
        if self._waiting.pop(worker, None) is not None:
            self.call(lambda: self._ended(worker, _KILLED))  # deferred: the caller is the worker's lifecycle
        else:
            self._send_agent_of(worker, wire.StopWorker(worker, grace_s))

    def clear(self, nodes: frozenset[str]) -> None:
        """Kill all workers on these nodes, including workers of other managers."""
        for worker in self._take_waiting(nodes):
            self._ended(worker, _KILLED)
        for node in nodes:
            if (agent := self._agents.get(node)) is not None and agent.workers:
                agent.send(wire.ClearNode())

    def drop_task(self, task: str) -> None:
        """Kill all workers of a task, and let agents drop their exit records."""
        self._script_tasks.discard(task)
        for worker, _ in self._workers_of({task}):
            self.stop(worker, 0.0)
        self._ends = {worker: reported for worker, reported in self._ends.items() if not worker.startswith(f"{task}/")}
        for agent in self._agents.values():
            agent.send(wire.ForgetWorkers(task))

    def forget_copies(self, identity: str) -> None:
        """Drop the copies of a task's state."""
        self.copies.forget(identity)
        for agent in self._agents.values():
            agent.send(wire.DropCopy(identity))

    def busy(self, tasks: Collection[str]) -> bool:
        """Return whether any worker of these tasks is left."""
        return bool(self._workers_of(tasks))

    def nodes_with(self, task: str) -> frozenset[str]:
        """Return the nodes where workers of a task run or are being started."""
        return frozenset(owner.node for _, owner in self._workers_of({task}))

    def emit(self, event: Message) -> None:
        """Send an event to the manager. Catches its errors: all tasks depend on the hub."""
        now = time.time()
        if event.get("type") == "report":  # its time t is from the clock of another machine
            event = {"received_at": now, **event}
        try:
            self._on_event({"t": now, **event})
        except Exception:  # noqa: BLE001 - it is not ours
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

    def _hold(self, *, holding: bool) -> None:
        self._holding = holding
        self._start_waiting()

    def _end(self) -> None:
        self._ending = True
        for agent in self._agents.values():
            agent.send(wire.Goodbye())

    def _on_message(self, agent: AgentConnection, plain: Message) -> None:
        message = read_message(wire.FROM_AGENT, plain)
        if not agent.node:
            if not isinstance(message, wire.RegisterAgent):
                raise BadMessage("an agent registers first")
            self._register(agent, message)
            return
        match message:
            case wire.MessageFromWorker() | wire.WorkerSpawned() | wire.WorkerInspected():
                if (owner := self._owners.get(message.worker)) is not None:
                    self._forward(owner.task, message)
            case wire.WorkerExited():
                exit_ = WorkerExit(message.code, message.tail, message.finished, message.stopped)
                if agent.workers.pop(message.worker, None) is not None:
                    self._ended(message.worker, exit_, reported=True)
                self._start_waiting()
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
                    found = read_message(FROM_WORKER, content)
                except BadMessage as error:  # its agent would have rejected it
                    self.emit({"type": "note", "task": task, "text": f"{worker}: {error}"})
                else:
                    if found is not None:
                        tell(task, lambda lifecycle: lifecycle.on_worker_message(worker, found))
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
        agent.send(wire.Welcome(self.epoch, self._keep_s, self._silence_s, wire.VERSION))
        if self._script_tasks:
            agent.send(wire.ExpectScripts())
        for left in message.workers:
            self._adopt(agent, left)
        for left in message.ended:
            self._on_earlier_exit(agent, left)
        if self._ending:
            agent.send(wire.Goodbye())
        about = {"slots": slots, "pid": message.pid, "kind": message.kind, "gpus": message.gpus}
        self.emit({"type": "registered", "node": node, **about})
        self.tasks.tell_node(node, lambda lifecycle: lifecycle.node_up(node))
        self._start_waiting()

    def _refuse(self, agent: AgentConnection, node: str, reason: str) -> NoReturn:
        """Reject an agent permanently: two agents of a node would keep replacing each other."""
        agent.send(wire.AgentRefused(reason))
        self.emit({"type": "refused", "node": node, "reason": reason})
        raise BadMessage(reason)

    def _never_name_again(self, worker: str) -> None:
        epoch, _, number = worker.rpartition("/")[2].partition("-")
        if epoch == str(self.epoch) and number.isdecimal():
            self._names = max(self._names, int(number))

    def _adopt(self, agent: AgentConnection, left: LeftWorker) -> None:
        """Take over a worker of an earlier manager or connection; kill it if no task claims it."""
        worker, task, slot = left.worker, left.task, left.slot
        self._never_name_again(worker)
        agent.workers[worker] = self._owners[worker] = RunningWorker(task, agent.node, slot)
        if self.tasks.adopt(task, agent.node, left):
            return
        self._owners.pop(worker, None)
        agent.workers[worker] = RunningWorker(
            "", agent.node, slot
        )  # keeps the slot blocked until this worker has exited
        agent.send(wire.ForgetWorkers(task, worker))
        agent.send(wire.StopWorker(worker))

    def _on_earlier_exit(self, agent: AgentConnection, left: LeftWorker) -> None:
        """Report, once, a worker that exited while there was no manager; unneeded exits are dropped by the agent.

        The agent keeps an exit that was already reported, for the next manager.
        """
        worker, task = left.worker, left.task
        self._never_name_again(worker)
        if self._ends.get(worker):
            return
        self._remember_end(worker, reported=True)
        if not self.tasks.adopt(task, agent.node, left):
            agent.send(wire.ForgetWorkers(task, worker))

    def _lost(self, agent: AgentConnection, reason: str, after_s: float = 0.0) -> None:
        node = agent.node
        if not node or self._agents.get(node) is not agent:
            if agent.left_at:
                self.emit({"type": "agent_ended", "node": node, "after_s": time.monotonic() - agent.left_at})
            return
        del self._agents[node]
        self.copies.left(node)
        for worker in [*agent.workers, *self._take_waiting({node})]:
            self._ended(worker, _KILLED)
        more = {"reason": reason, "noticed": agent.noticed, "after_s": after_s}
        self.emit({"type": "gone", "node": node, **more})
        self.tasks.tell_node(node, lambda lifecycle: lifecycle.node_gone(node))

    def _workers_of(self, tasks: Collection[str]) -> list[tuple[str, RunningWorker]]:
        return [(worker, owner) for worker, owner in self._owners.items() if owner.task in tasks]

    def _ended(self, worker: str, exit_: WorkerExit, *, reported: bool = False) -> None:
        """Report a worker's exit to its task: its agent reported it (``reported``), or is gone."""
        self._remember_end(worker, reported=reported)
        if (owner := self._owners.pop(worker, None)) is not None:
            self.tasks.tell(owner.task, lambda lifecycle: lifecycle.exited(worker, exit_))

    def _remember_end(self, worker: str, *, reported: bool) -> None:
        self._ends[worker] = reported
        while len(self._ends) > _ENDS:
            del self._ends[next(iter(self._ends))]

    def _send_agent_of(self, worker: str, message: WireMessage) -> None:
        if (owner := self._owners.get(worker)) is not None and owner.node in self._agents:
            self._agents[owner.node].send(message)

    def _take_waiting(self, nodes: Collection[str]) -> list[str]:
        """Remove the workers waiting for these nodes; return their names."""
        taken = [worker for worker in self._waiting if self._owners[worker].node in nodes]
        for worker in taken:
            del self._waiting[worker]
        return taken

    def _start_waiting(self) -> None:
        """Start waiting workers with a free node and slot."""
        for worker, order in () if self._holding else list(self._waiting.items()):
            agent = self._agents.get(self._owners[worker].node)
            if agent is not None and agent.has_room(order):
                del self._waiting[worker]
                agent.workers[worker] = self._owners[worker]
                agent.send(order)
