"""The hub: the manager's side of all agents' connections, in a thread of its own.

Whatever the courses do happens in this thread, so they need no locks. Others reach it through :meth:`Hub.call`.
"""

from __future__ import annotations

import selectors
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Final, TypeVar

from bftrain_elastic.courses import Exit
from bftrain_elastic.errors import BadMessage
from bftrain_elastic.guests import Guest, RunningWorker
from bftrain_elastic.messages import Message, inner_of, inners_of, number_of, text_of, whole_of
from bftrain_elastic.sealed import Sealed
from bftrain_elastic.spawn_queue import Listener, SpawnQueue, WaitingWorker
from bftrain_elastic.thread_calls import ThreadCalls
from bftrain_elastic.wires import Wire
from bftrain_elastic.words import checked
from bftrain_elastic.worker_registry import WorkerOwner, WorkerRegistry

R = TypeVar("R")
Tell = Callable[[Message], None]

_TICK_S: Final = 0.1
_SILENCE_S: Final = 10.0  # agents speak each second, if their node lets them
_STRANGER_S: Final = 5.0  # within which a connection has to prove who it is
_STRANGERS: Final = 256
_HIDDEN: Final = "@"  # agents of such names are no nodes
_KILLED: Final = Exit(-9)  # of workers that were never started, or whose agent is gone


class Hub:
    """Talks to all agents. ``tell`` is called from the hub's thread; ``address`` is where agents find it.

    With ``closed`` nobody is let in before :meth:`open`: a manager that was restarted first says which tasks are to
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
        self._secret = secret
        self._door = socket.create_server((bind, port), backlog=1024)
        self._door.settimeout(0)
        self.address: tuple[str, int] = self._door.getsockname()[:2]
        self._selector = selectors.DefaultSelector()
        self._guests: set[Guest] = set()
        self._agents: dict[str, Guest] = {}
        self._listeners: list[Listener] = []
        self._workers = WorkerRegistry(epoch)
        self._waiting = SpawnQueue()
        self._calls = ThreadCalls()
        self._ending = False
        self._abandoned = False
        self._opened = False
        self._holding = False  # no worker is started
        self._thread = threading.Thread(target=self._run, name="bftrain-hub", daemon=True)
        self._thread.start()
        if not closed:
            self.open()

    # -- from any thread

    def open(self) -> None:
        """Let agents in; once is enough."""
        self.call(self._open)

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
        """End without a word to anybody, as if this process had been killed."""
        self._finish(self._fall_silent)

    def _finish(self, end: Callable[[], None]) -> None:
        if self._thread.is_alive():
            self.call(end)
            self._thread.join(10.0)
        if not self._thread.is_alive():  # not before: whoever wakes the thread writes to it
            self._calls.close()

    # -- for launchers, in the hub's thread

    def attach(self, listener: Listener) -> None:
        """Tell ``listener`` what happens from now on."""
        self._listeners.append(listener)
        for node in self._agents:
            listener.node_up(node)

    def detach(self, listener: Listener) -> None:
        """Tell ``listener`` no more."""
        self._listeners.remove(listener)

    def agent(self, node: str) -> Guest | None:
        """Give what is known of the agent on ``node``."""
        return self._agents.get(node)

    def new_name(self, task: str, node: str, slot: int) -> str:
        """Give a name that no worker has or had."""
        return self._workers.new_name(task, node, slot)

    def spawn(self, listener: Listener, node: str, task: str, message: Message) -> None:
        """Start a worker as soon as no other task is left on its node."""
        self._workers.add(message["worker"], WorkerOwner(listener, task, node))
        self._waiting.add(WaitingWorker(node, task, message))
        self._start_waiting()

    def say(self, worker: str, message: Message) -> None:
        """Send a worker a message, if it is there."""
        agent = self._agent_of(worker)
        if agent is not None:
            agent.say({"do": "tell", "worker": worker, "message": message})

    def inspect(self, worker: str) -> None:
        """Have a worker's stacks written into its log; the listener is told the state of its process."""
        agent = self._agent_of(worker)
        if agent is not None:
            agent.say({"do": "inspect", "worker": worker})

    def stop(self, worker: str, grace_s: float) -> None:
        """Stop a worker; one that has not been started yet never will."""
        if self._waiting.remove(lambda one: one.name == worker):
            self.call(lambda: self._ended(worker, _KILLED))  # later: whoever stops it is in the midst of something
            return
        agent = self._agent_of(worker)
        if agent is not None:
            agent.say({"do": "stop", "worker": worker, "grace_s": grace_s})

    def clear(self, nodes: frozenset[str]) -> None:
        """Kill all workers on these nodes now, whoever started them."""
        for worker in self._waiting.on(nodes):
            self._ended(worker, _KILLED)
        for node in nodes:
            agent = self._agents.get(node)
            if agent is not None and agent.workers:
                agent.say({"do": "clear"})

    def forget(self, task: str) -> None:
        """Let agents forget how the workers of a task ended: no manager will ask for it."""
        self._workers.forget(task)
        for agent in self._agents.values():
            agent.say({"do": "forget", "task": task})

    def kill_task(self, listener: Listener, task: str) -> None:
        """Kill all workers of a task."""
        for worker, owner in self._workers.of(listener):
            if owner.task == task:
                self.stop(worker, 0.0)

    def busy(self, listener: Listener) -> bool:
        """Tell whether any worker that ``listener`` started is left."""
        return any(True for _ in self._workers.of(listener))

    def nodes_with(self, listener: Listener, task: str) -> frozenset[str]:
        """Give the nodes on which workers of a task are, or are about to be."""
        return frozenset(owner.node for _, owner in self._workers.of(listener) if owner.task == task)

    def tell(self, told: Message) -> None:
        """Tell the manager; whatever happens there must not end the hub, on which all tasks depend."""
        now = time.time()
        if told.get("told") == "report":  # whose t is from the clock of another machine
            told = {"heard": now, **told}
        try:
            self._tell({"t": now, **told})
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
        for guest in list(self._guests):
            if guest.wire is not None:
                guest.wire.end("the hub ends")
        self._selector.close()
        self._door.close()

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            self._selector.register(self._door, selectors.EVENT_READ, lambda _: self._let_in())

    def _hold(self, *, holding: bool) -> None:
        self._holding = holding
        self._start_waiting()

    def _end(self) -> None:
        self._ending = True
        for agent in self._agents.values():
            agent.say({"do": "bye"})

    def _fall_silent(self) -> None:
        self._abandoned, self._tell = True, lambda _: None
        self._listeners.clear()
        self._workers.clear()

    def _on_tick(self, now: float) -> None:
        for guest in list(self._guests):
            silent = now - (guest.heard_at or guest.since)
            if silent > (_SILENCE_S if guest.node else _STRANGER_S) and guest.wire is not None:
                guest.wire.end(f"nothing heard for {silent:.0f} s")
        for listener in list(self._listeners):
            listener.tick(now)

    # -- agents

    def _let_in(self) -> None:
        with suppress(BlockingIOError, ConnectionError):
            connection, _ = self._door.accept()
            if sum(not guest.node for guest in self._guests) >= _STRANGERS:
                connection.close()
                return
            guest = Guest(Sealed(self._secret, "manager"), time.monotonic())
            self._guests.add(guest)
            guest.wire = Wire(
                self._selector, connection, lambda data: self._arrived(guest, data), lambda why: self._lost(guest, why)
            )
            guest.wire.send(guest.sealed.greeting)

    def _arrived(self, guest: Guest, data: bytes) -> None:
        try:
            for message in guest.sealed.feed(data):
                guest.heard_at = time.monotonic()
                self._heard(guest, message)
        except BadMessage as error:
            if guest.wire is not None:
                guest.wire.end(str(error))
        except Exception:  # noqa: BLE001 - whatever goes wrong with one agent is no end to the others
            traceback.print_exc()
            if guest.wire is not None:
                guest.wire.end("it said what this manager cannot take")

    def _heard(self, guest: Guest, message: Message) -> None:
        if not guest.node:
            self._register(guest, message)
            return
        match message.get("say"):
            case "said" | "odd" | "spawned" | "inspected" | "exited":
                self._heard_of(guest, text_of(message, "worker"), message)
            case "warm" if guest.node[0] != _HIDDEN:
                self.tell({"told": "warm", "node": guest.node})
            case "notice":
                self._take_notice(guest, number_of(message, "grace_s"))
            case "leaving":
                reason = text_of(message, "reason")
                guest.noticed |= reason == signal.SIGTERM.name
                if guest.wire is not None:
                    guest.wire.end(f"it left: {reason}")
            case _:  # alive, and what later versions may say
                pass

    def _heard_of(self, guest: Guest, worker: str, message: Message) -> None:
        if message["say"] == "exited":
            exit_ = Exit.read(message)
            if guest.workers.pop(worker, None) is not None:
                self._ended(worker, exit_, said=True)
            self._start_waiting()
        elif (owner := self._workers.owner(worker)) is not None:
            self._hand_on(owner.listener, owner.task, worker, message)

    def _hand_on(self, listener: Listener, task: str, worker: str, message: Message) -> None:
        match message["say"]:
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
        self.tell({"told": "note", "task": task, "text": f"{worker}: {text}"})

    def _take_notice(self, guest: Guest, grace_s: float) -> None:
        guest.noticed = True
        if guest.node[0] != _HIDDEN:
            self.tell({"told": "notice", "node": guest.node, "grace_s": grace_s})
        for listener in list(self._listeners):
            listener.notice(guest.node, grace_s)

    def _register(self, guest: Guest, message: Message) -> None:
        if message.get("say") != "register":
            raise BadMessage("an agent registers first")
        node, slots = text_of(message, "node"), whole_of(message, "slots")
        if not node or slots < 1:
            raise BadMessage("an agent has a name and at least one slot")
        if "epoch" in message and whole_of(message, "epoch") > self.epoch:
            guest.say({"do": "welcome", "epoch": self.epoch})  # so it knows why
            raise BadMessage("it obeys a newer manager")
        older = self._agents.get(node)
        if older is not None and older.wire is not None:
            older.wire.end("another agent of this name came")
        guest.node, guest.slots, guest.address = node, slots, text_of(message, "address")
        self._agents[node] = guest
        guest.say({"do": "welcome", "epoch": self.epoch})
        for left in inners_of(message, "workers"):
            self._adopt(guest, left)
        for left in inners_of(message, "ended"):
            self._hear_of_end(guest, left)
        if self._ending:
            guest.say({"do": "bye"})
        if node[0] != _HIDDEN:
            self.tell({"told": "registered", "node": node, "slots": slots, "pid": whole_of(message, "pid")})
        for listener in list(self._listeners):
            listener.node_up(node)
        self._start_waiting()

    def _adopt(self, guest: Guest, left: Message) -> None:
        """Find a worker that was started for a manager, or a connection, that is no more its task; or end it."""
        worker, task, slot = self._workers.read(left)
        for listener in self._listeners:
            guest.workers[worker] = RunningWorker(task, slot)
            self._workers.add(worker, WorkerOwner(listener, task, guest.node))
            if listener.adopt(task, guest.node, left):
                return
            self._workers.remove(worker)
        guest.workers[worker] = RunningWorker(None, slot)  # so nothing else starts there before it is gone
        guest.say({"do": "forget", "task": task, "worker": worker})
        guest.say({"do": "stop", "worker": worker, "grace_s": 0.0})

    def _hear_of_end(self, guest: Guest, left: Message) -> None:
        """Tell of a worker that ended while nobody listened, once; its agent forgets it if that is no news to anybody.

        An end that was told already is kept by the agent, for the manager after this one.
        """
        worker, task, _ = self._workers.read(left)
        if self._workers.end_is_known(worker):
            return
        self._workers.remember_end(worker, said=True)
        if not any(listener.adopt(task, guest.node, left) for listener in self._listeners):
            guest.say({"do": "forget", "task": task, "worker": worker})

    def _lost(self, guest: Guest, reason: str) -> None:
        self._guests.discard(guest)
        if not guest.node or self._agents.get(guest.node) is not guest:
            return
        del self._agents[guest.node]
        for worker in [*guest.workers, *self._waiting.on({guest.node})]:
            self._ended(worker, _KILLED)
        if guest.node[0] != _HIDDEN:
            self.tell({"told": "gone", "node": guest.node, "reason": reason, "noticed": guest.noticed})
        for listener in list(self._listeners):
            listener.node_gone(guest.node)

    def _ended(self, worker: str, exit_: Exit, *, said: bool = False) -> None:
        self._workers.ended(worker, exit_, said=said)

    def _agent_of(self, worker: str) -> Guest | None:
        owner = self._workers.owner(worker)
        return self._agents.get(owner.node) if owner is not None else None

    def _start_waiting(self) -> None:
        if self._holding:
            return
        for agent, waiting in self._waiting.ready(self._agents):
            agent.workers[waiting.name] = RunningWorker(waiting.task, waiting.message["slot"])
            agent.say(waiting.message)
