"""The hub: the manager's side of all agents' connections, in a thread of its own.

All calls of task lifecycles happen in this thread, so they need no locks. Others use :meth:`AgentHub.call`.
"""

from __future__ import annotations

import selectors
import signal
import threading
import time
import traceback
from collections.abc import Callable
from typing import Final, TypeVar

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.manager.agent_connection import AgentConnection, RunningWorker
from bftrain_elastic.manager.agent_listener import AgentListener
from bftrain_elastic.manager.spawn_queue import HubListener, SpawnQueue, WaitingWorker
from bftrain_elastic.manager.task_lifecycles import WorkerExit
from bftrain_elastic.manager.thread_calls import ThreadCalls
from bftrain_elastic.manager.worker_registry import WorkerOwner, WorkerRegistry
from bftrain_elastic.wire.messages import Message, inner_of, inners_of, number_of, text_of, whole_of
from bftrain_elastic.wire.worker_messages import checked

R = TypeVar("R")
Tell = Callable[[Message], None]

_TICK_S: Final = 0.1
_HIDDEN: Final = "@"  # agents of such names are no nodes
_KILLED: Final = WorkerExit(-9)  # of workers that were never started, or whose agent is gone


class AgentHub:
    """Talks to all agents. ``tell`` is called from the hub's thread; ``address`` is where agents find it.

    With ``closed`` no agent is let in before :meth:`open`: a manager that was restarted first says which tasks are to
    hold which nodes, so that workers that went on without it are known when their agents come back. ``epoch`` counts
    the starts of the manager: agents refuse one that is older than another that they obeyed. ``settle_s`` is how long
    a preemption may take to reach all processes of a node.
    """

    def __init__(
        self,
        tell: Tell,
        secret: bytes,
        *,
        bind: str = "127.0.0.1",
        port: int = 0,
        closed: bool = False,
        epoch: int = 1,
        settle_s: float = 0.5,
    ) -> None:
        self.epoch = epoch
        self.settle_s = settle_s
        self._tell = tell
        self._selector = selectors.DefaultSelector()
        self._agent_listener = AgentListener(
            self._selector, secret, (bind, port), on_message=self._heard, on_lost=self._lost
        )
        self.address = self._agent_listener.address
        self._agents: dict[str, AgentConnection] = {}
        self._listeners: list[HubListener] = []
        self._workers = WorkerRegistry(epoch)
        self._waiting = SpawnQueue()
        self._calls = ThreadCalls()
        self._ending = False
        self._abandoned = False
        self._holding = False  # no worker is started
        self._thread = threading.Thread(target=self._run, name="bftrain-hub", daemon=True)
        self._thread.start()
        if not closed:
            self.open()

    # -- from any thread

    def open(self) -> None:
        """Let agents in; once is enough."""
        self.call(self._agent_listener.open)

    def hold_workers(self) -> None:
        """Start no worker before :meth:`start_workers`: where agents have not come back, workers may still live."""
        self.call(lambda: self._hold(holding=True))

    def start_workers(self) -> None:
        """Start the workers that were held back, and others at once."""
        self.call(lambda: self._hold(holding=False))

    def call(self, function: Callable[[], object]) -> None:
        """Let the hub's thread call ``function`` soon."""
        self._calls.add(function)

    def ask(self, function: Callable[[], R], timeout_s: float = 60.0) -> R:
        """Let the hub's thread call ``function``, and give what it gives. Not from the hub's own thread."""
        return self._calls.ask(function, timeout_s)

    def nodes(self) -> dict[str, int]:
        """Give the registered nodes, and how many workers each takes."""
        return self.ask(lambda: {name: agent.slots for name, agent in self._agents.items() if name[0] != _HIDDEN})

    def close(self) -> None:
        """Say goodbye to all agents, and end."""
        self._finish(self._end)

    def abandon(self) -> None:
        """End without a message, as if this process had been killed."""
        self._finish(self._fall_silent)

    def _finish(self, end: Callable[[], None]) -> None:
        if self._thread.is_alive():
            self.call(end)
            self._thread.join(10.0)
        if not self._thread.is_alive():  # not before: a call wakes the thread by writing to it
            self._calls.close()

    # -- for launchers, in the hub's thread

    def attach(self, listener: HubListener) -> None:
        """Tell ``listener`` what happens from now on."""
        self._listeners.append(listener)
        for node in self._agents:
            listener.node_up(node)

    def detach(self, listener: HubListener) -> None:
        """Tell ``listener`` no more."""
        self._listeners.remove(listener)

    def agent(self, node: str) -> AgentConnection | None:
        """Give what is known of the agent on ``node``."""
        return self._agents.get(node)

    def new_name(self, task: str, node: str, slot: int) -> str:
        """Give a name that no worker has or had."""
        return self._workers.new_name(task, node, slot)

    def spawn(self, listener: HubListener, node: str, task: str, message: Message) -> None:
        """Start a worker as soon as no other task is left on its node."""
        self._workers.add(message["worker"], WorkerOwner(listener, task, node))
        self._waiting.add(WaitingWorker(node, task, message))
        self._start_waiting()

    def say(self, worker: str, message: Message) -> None:
        """Send a worker a message, if it is there."""
        agent = self._agent_of(worker)
        if agent is not None:
            agent.say({"type": "tell", "worker": worker, "message": message})

    def inspect(self, worker: str) -> None:
        """Have a worker's stacks written into its log; the listener receives the state of its process."""
        agent = self._agent_of(worker)
        if agent is not None:
            agent.say({"type": "inspect", "worker": worker})

    def stop(self, worker: str, grace_s: float) -> None:
        """Stop a worker; one that has not been started yet never will."""
        if self._waiting.remove(lambda one: one.name == worker):
            self.call(lambda: self._ended(worker, _KILLED))  # later: its course is in the midst of something
            return
        agent = self._agent_of(worker)
        if agent is not None:
            agent.say({"type": "stop", "worker": worker, "grace_s": grace_s})

    def clear(self, nodes: frozenset[str]) -> None:
        """Kill all workers on these nodes now, also those of other managers."""
        for worker in self._waiting.on(nodes):
            self._ended(worker, _KILLED)
        for node in nodes:
            agent = self._agents.get(node)
            if agent is not None and agent.workers:
                agent.say({"type": "clear"})

    def forget(self, task: str) -> None:
        """Let agents forget how the workers of a task ended: no manager will ask for it."""
        self._workers.forget(task)
        for agent in self._agents.values():
            agent.say({"type": "forget", "task": task})

    def kill_task(self, listener: HubListener, task: str) -> None:
        """Kill all workers of a task."""
        for worker, owner in self._workers.of(listener):
            if owner.task == task:
                self.stop(worker, 0.0)

    def busy(self, listener: HubListener) -> bool:
        """Tell whether any worker that ``listener`` started is left."""
        return any(True for _ in self._workers.of(listener))

    def nodes_with(self, listener: HubListener, task: str) -> frozenset[str]:
        """Give the nodes on which workers of a task are, or are about to be."""
        return frozenset(owner.node for _, owner in self._workers.of(listener) if owner.task == task)

    def tell(self, event: Message) -> None:
        """Send to the manager; an error there must not end the hub, on which all tasks depend."""
        now = time.time()
        if event.get("type") == "report":  # whose t is from the clock of another machine
            event = {"heard": now, **event}
        try:
            self._tell({"t": now, **event})
        except Exception:  # noqa: BLE001 - it is not ours
            traceback.print_exc()

    # -- the loop

    def _run(self) -> None:
        self._selector.register(self._calls.descriptor, selectors.EVENT_READ, lambda _: self._calls.calm())
        next_tick = time.monotonic()
        while not (self._abandoned or (self._ending and not self._agents)):
            for key, events in self._selector.select(max(0.0, next_tick - time.monotonic())):
                key.data(events)
            self._calls.run()
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + _TICK_S
                self._on_tick(now)
        self._agent_listener.end_all()
        self._selector.close()
        self._agent_listener.close()

    def _hold(self, *, holding: bool) -> None:
        self._holding = holding
        self._start_waiting()

    def _end(self) -> None:
        self._ending = True
        for agent in self._agents.values():
            agent.say({"type": "bye"})

    def _fall_silent(self) -> None:
        self._abandoned, self._tell = True, lambda _: None
        self._listeners.clear()
        self._workers.clear()

    def _on_tick(self, now: float) -> None:
        self._agent_listener.tick(now)
        for listener in list(self._listeners):
            listener.tick(now)

    # -- agents

    def _heard(self, agent: AgentConnection, message: Message) -> None:
        if not agent.node:
            self._register(agent, message)
            return
        match message.get("type"):
            case "said" | "odd" | "spawned" | "inspected" | "exited":
                self._heard_of(agent, text_of(message, "worker"), message)
            case "warm" if agent.node[0] != _HIDDEN:
                self.tell({"type": "warm", "node": agent.node})
            case "notice":
                self._take_notice(agent, number_of(message, "grace_s"))
            case "leaving":
                reason = text_of(message, "reason")
                agent.noticed |= reason == signal.SIGTERM.name
                agent.end(f"it left: {reason}")
            case _:  # alive, and what later versions may say
                pass

    def _heard_of(self, agent: AgentConnection, worker: str, message: Message) -> None:
        if message["type"] == "exited":
            exit_ = WorkerExit.read(message)
            if agent.workers.pop(worker, None) is not None:
                self._ended(worker, exit_, said=True)
            self._start_waiting()
        elif (owner := self._workers.owner(worker)) is not None:
            self._hand_on(owner.listener, owner.task, worker, message)

    def _hand_on(self, listener: HubListener, task: str, worker: str, message: Message) -> None:
        match message["type"]:
            case "said":
                try:
                    words = checked(inner_of(message, "message"))
                except BadMessage as error:
                    self._note(task, worker, error.what)
                else:
                    if words is not None:
                        listener.said(task, worker, words)
            case "odd":
                self._note(task, worker, text_of(message, "text"))
            case "spawned":
                listener.spawned(task, worker, whole_of(message, "port"))
            case "inspected":
                listener.inspected(task, worker, text_of(message, "state"))

    def _note(self, task: str, worker: str, text: str) -> None:
        self.tell({"type": "note", "task": task, "text": f"{worker}: {text}"})

    def _take_notice(self, agent: AgentConnection, grace_s: float) -> None:
        agent.noticed = True
        if agent.node[0] != _HIDDEN:
            self.tell({"type": "notice", "node": agent.node, "grace_s": grace_s})
        for listener in list(self._listeners):
            listener.notice(agent.node, grace_s)

    def _register(self, agent: AgentConnection, message: Message) -> None:
        if message.get("type") != "register":
            raise BadMessage("an agent registers first")
        node, slots = text_of(message, "node"), whole_of(message, "slots")
        if not node or slots < 1:
            raise BadMessage("an agent has a name and at least one slot")
        if "epoch" in message and whole_of(message, "epoch") > self.epoch:
            agent.say({"type": "welcome", "epoch": self.epoch})  # so it knows why
            raise BadMessage("it obeys a newer manager")
        older = self._agents.get(node)
        if older is not None:
            older.end("another agent of this name came")
        agent.node, agent.slots, agent.address = node, slots, text_of(message, "address")
        self._agents[node] = agent
        agent.say({"type": "welcome", "epoch": self.epoch})
        for left in inners_of(message, "workers"):
            self._adopt(agent, left)
        for left in inners_of(message, "ended"):
            self._hear_of_end(agent, left)
        if self._ending:
            agent.say({"type": "bye"})
        if node[0] != _HIDDEN:
            self.tell({"type": "registered", "node": node, "slots": slots, "pid": whole_of(message, "pid")})
        for listener in list(self._listeners):
            listener.node_up(node)
        self._start_waiting()

    def _adopt(self, agent: AgentConnection, left: Message) -> None:
        """Find a worker that was started for a manager, or a connection, that is no more its task; or end it."""
        worker, task, slot = self._workers.read(left)
        for listener in self._listeners:
            agent.workers[worker] = RunningWorker(task, slot)
            self._workers.add(worker, WorkerOwner(listener, task, agent.node))
            if listener.adopt(task, agent.node, left):
                return
            self._workers.remove(worker)
        agent.workers[worker] = RunningWorker(None, slot)  # so nothing else starts there before it is gone
        agent.say({"type": "forget", "task": task, "worker": worker})
        agent.say({"type": "stop", "worker": worker, "grace_s": 0.0})

    def _hear_of_end(self, agent: AgentConnection, left: Message) -> None:
        """Report a worker that ended without a manager, once; its agent forgets it if no launcher can use that.

        An end that was reported already is kept by the agent, for the manager after this one.
        """
        worker, task, _ = self._workers.read(left)
        if self._workers.end_is_known(worker):
            return
        self._workers.remember_end(worker, said=True)
        if not any(listener.adopt(task, agent.node, left) for listener in self._listeners):
            agent.say({"type": "forget", "task": task, "worker": worker})

    def _lost(self, agent: AgentConnection, reason: str) -> None:
        if not agent.node or self._agents.get(agent.node) is not agent:
            return
        del self._agents[agent.node]
        for worker in [*agent.workers, *self._waiting.on({agent.node})]:
            self._ended(worker, _KILLED)
        if agent.node[0] != _HIDDEN:
            self.tell({"type": "gone", "node": agent.node, "reason": reason, "noticed": agent.noticed})
        for listener in list(self._listeners):
            listener.node_gone(agent.node)

    def _ended(self, worker: str, exit_: WorkerExit, *, said: bool = False) -> None:
        self._workers.ended(worker, exit_, said=said)

    def _agent_of(self, worker: str) -> AgentConnection | None:
        owner = self._workers.owner(worker)
        return self._agents.get(owner.node) if owner is not None else None

    def _start_waiting(self) -> None:
        if self._holding:
            return
        for agent, waiting in self._waiting.ready(self._agents):
            agent.workers[waiting.name] = RunningWorker(waiting.task, waiting.message["slot"])
            agent.say(waiting.message)
