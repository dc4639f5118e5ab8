"""The hub: the manager's side of all agents' connections, in a thread of its own.

Whatever the courses do happens in this thread, so they need no locks. Others reach it through :meth:`Hub.call`.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from bftrain_elastic.errors import BadMessage
from bftrain_elastic.guests import Guest
from bftrain_elastic.messages import Message, inner_of, inners_of, text_of, whole_of
from bftrain_elastic.sealed import Sealed
from bftrain_elastic.wires import Wire
from bftrain_elastic.words import checked

R = TypeVar("R")
Tell = Callable[[Message], None]

_TICK_S: Final = 0.1
_SILENCE_S: Final = 10.0  # agents speak each second, if their node lets them
_STRANGER_S: Final = 5.0  # within which a connection has to prove who it is
_STRANGERS: Final = 256
_HIDDEN: Final = "@"  # agents of such names are no nodes


class Listener(Protocol):
    """Who wants to know what happens to agents and workers: a launcher."""

    def node_up(self, node: str) -> None: ...  # noqa: D102 - as in Course
    def node_gone(self, node: str) -> None: ...  # noqa: D102 - as in Course
    def adopt(self, task: str, node: str, left: Message) -> bool: ...  # noqa: D102 - as in Course
    def spawned(self, task: str, worker: str, port: int) -> None: ...  # noqa: D102 - as in Course
    def said(self, task: str, worker: str, message: Message) -> None: ...  # noqa: D102 - as in Course
    def exited(self, task: str, worker: str, code: int, tail: str) -> None: ...  # noqa: D102 - as in Course
    def tick(self, now: float) -> None: ...  # noqa: D102 - as in Course


@dataclass(frozen=True)
class _Waiting:
    """A worker that is to be started when its node is free of other tasks."""

    node: str
    task: str
    listener: Listener
    message: Message


class Hub:
    """Talks to all agents. ``tell`` is called from the hub's thread; ``address`` is where agents find it.

    With ``closed`` nobody is let in before :meth:`open`: a manager that was restarted first says which tasks are to
    hold which nodes, so that workers that went on without it are known when their agents come back.
    """

    def __init__(
        self, tell: Tell, secret: bytes, *, bind: str = "127.0.0.1", port: int = 0, closed: bool = False
    ) -> None:
        self._tell = tell
        self._secret = secret
        self._door = socket.create_server((bind, port), backlog=1024)
        self._door.settimeout(0)
        self.address: tuple[str, int] = self._door.getsockname()[:2]
        self._selector = selectors.DefaultSelector()
        self._guests: set[Guest] = set()
        self._agents: dict[str, Guest] = {}
        self._listeners: list[Listener] = []
        self._owners: dict[str, tuple[Listener, str, str]] = {}  # worker -> (who started it, task, node)
        self._waiting: list[_Waiting] = []
        self._calls: deque[Callable[[], object]] = deque()
        self._wake, self._woken = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._count = 0  # of workers
        self._ending = False
        self._opened = False
        self._thread = threading.Thread(target=self._run, name="bftrain-hub", daemon=True)
        self._thread.start()
        if not closed:
            self.open()

    # -- from any thread

    def open(self) -> None:
        """Let agents in; once is enough."""
        self.call(self._open)

    def call(self, function: Callable[[], object]) -> None:
        """Let the hub's thread call ``function`` soon."""
        self._calls.append(function)
        with suppress(BlockingIOError):
            os.write(self._woken, b".")

    def ask(self, function: Callable[[], R], timeout_s: float = 60.0) -> R:
        """Let the hub's thread call ``function``, and give what it gives. Not from the hub's own thread."""
        answer: Future[R] = Future()

        def run() -> None:
            try:
                answer.set_result(function())
            except BaseException as error:  # noqa: BLE001 - it belongs to whoever asked
                answer.set_exception(error)

        self.call(run)
        return answer.result(timeout_s)

    def nodes(self) -> dict[str, int]:
        """Give the registered nodes, and how many workers each takes."""
        return self.ask(lambda: {name: agent.slots for name, agent in self._agents.items() if name[0] != _HIDDEN})

    def close(self) -> None:
        """Say goodbye to all agents, and end."""
        if self._thread.is_alive():
            self.call(self._end)
            self._thread.join(10.0)
        if not self._thread.is_alive() and self._woken >= 0:  # not before: whoever wakes the thread writes to it
            os.close(self._wake)
            os.close(self._woken)
            self._wake = self._woken = -1

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
        self._count += 1
        return f"{task}/{node}/{slot}/{self._count}"

    def spawn(self, listener: Listener, node: str, task: str, message: Message) -> None:
        """Start a worker as soon as no other task is left on its node."""
        self._owners[message["worker"]] = (listener, task, node)
        self._waiting.append(_Waiting(node, task, listener, message))
        self._start_waiting()

    def say(self, worker: str, message: Message) -> None:
        """Send a worker a message, if it is there."""
        agent = self._agent_of(worker)
        if agent is not None:
            agent.say({"do": "tell", "worker": worker, "message": message})

    def stop(self, worker: str, grace_s: float) -> None:
        """Stop a worker; one that has not been started yet never will."""
        for waiting in self._waiting:
            if waiting.message["worker"] == worker:
                self._waiting.remove(waiting)
                self.call(lambda: self._ended(worker, -9, ""))  # later: whoever stops it is in the midst of something
                return
        agent = self._agent_of(worker)
        if agent is not None:
            agent.say({"do": "stop", "worker": worker, "grace_s": grace_s})

    def clear(self, nodes: frozenset[str]) -> None:
        """Kill all workers on these nodes now, whoever started them."""
        for waiting in [one for one in self._waiting if one.node in nodes]:
            self._waiting.remove(waiting)
            self._ended(waiting.message["worker"], -9, "")
        for node in nodes:
            agent = self._agents.get(node)
            if agent is not None and agent.workers:
                agent.say({"do": "clear"})

    def kill_task(self, listener: Listener, task: str) -> None:
        """Kill all workers of a task."""
        for worker, (owner, name, _) in list(self._owners.items()):
            if owner is listener and name == task:
                self.stop(worker, 0.0)

    def busy(self, listener: Listener) -> bool:
        """Tell whether any worker that ``listener`` started is left."""
        return any(owner is listener for owner, _, _ in self._owners.values())

    def nodes_with(self, listener: Listener, task: str) -> frozenset[str]:
        """Give the nodes on which workers of a task are, or are about to be."""
        return frozenset(node for owner, name, node in self._owners.values() if owner is listener and name == task)

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
        self._selector.register(self._wake, selectors.EVENT_READ, lambda _: self._woken_up())
        next_tick = time.monotonic()
        while not (self._ending and not self._agents):
            for key, events in self._selector.select(max(0.0, next_tick - time.monotonic())):
                key.data(events)
            while self._calls:
                self._safely(self._calls.popleft())
            now = time.monotonic()
            if now >= next_tick:
                next_tick = now + _TICK_S
                self._on_tick(now)
        for guest in list(self._guests):
            if guest.wire is not None:
                guest.wire.end("the hub ends")
        self._selector.close()
        self._door.close()

    @staticmethod
    def _safely(function: Callable[[], object]) -> None:
        try:
            function()
        except Exception:  # noqa: BLE001 - one call that goes wrong is no end to all tasks
            traceback.print_exc()

    def _open(self) -> None:
        if not self._opened:
            self._opened = True
            self._selector.register(self._door, selectors.EVENT_READ, lambda _: self._let_in())

    def _woken_up(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake, 4096)

    def _end(self) -> None:
        self._ending = True
        for agent in self._agents.values():
            agent.say({"do": "bye"})

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
            case "said" | "odd" | "spawned" | "exited":
                self._heard_of(guest, text_of(message, "worker"), message)
            case "warm" if guest.node[0] != _HIDDEN:
                self.tell({"told": "warm", "node": guest.node})
            case "leaving":
                if guest.wire is not None:
                    guest.wire.end(f"it left: {text_of(message, 'reason')}")
            case _:  # alive, and what later versions may say
                pass

    def _heard_of(self, guest: Guest, worker: str, message: Message) -> None:
        listener, task, _ = self._owners.get(worker, (None, "", ""))
        match message["say"]:
            case "said" if listener is not None:
                try:
                    words = checked(inner_of(message, "message"))
                except BadMessage as error:
                    self._note(task, worker, error.what)
                else:
                    if words is not None:
                        listener.said(task, worker, words)
            case "odd" if listener is not None:
                self._note(task, worker, text_of(message, "text"))
            case "spawned" if listener is not None:
                listener.spawned(task, worker, whole_of(message, "port"))
            case "exited":
                if guest.workers.pop(worker, None) is not None:
                    self._ended(worker, whole_of(message, "code"), text_of(message, "tail"))
                self._start_waiting()

    def _note(self, task: str, worker: str, text: str) -> None:
        self.tell({"told": "note", "task": task, "text": f"{worker}: {text}"})

    def _register(self, guest: Guest, message: Message) -> None:
        if message.get("say") != "register":
            raise BadMessage("an agent registers first")
        node, slots = text_of(message, "node"), whole_of(message, "slots")
        if not node or slots < 1:
            raise BadMessage("an agent has a name and at least one slot")
        older = self._agents.get(node)
        if older is not None and older.wire is not None:
            older.wire.end("another agent of this name came")
        guest.node, guest.slots, guest.address = node, slots, text_of(message, "address")
        self._agents[node] = guest
        guest.say({"do": "welcome"})
        for left in inners_of(message, "workers"):
            self._adopt(guest, left)
        if self._ending:
            guest.say({"do": "bye"})
        if node[0] != _HIDDEN:
            self.tell({"told": "registered", "node": node, "slots": slots, "pid": whole_of(message, "pid")})
        for listener in list(self._listeners):
            listener.node_up(node)
        self._start_waiting()

    def _adopt(self, guest: Guest, left: Message) -> None:
        """Find a worker that was started for a manager, or a connection, that is no more its task; or end it."""
        worker, task = text_of(left, "worker"), text_of(left, "task")
        number = worker.rpartition("/")[2]
        self._count = max(self._count, int(number) if number.isdecimal() else 0)
        for listener in self._listeners:
            guest.workers[worker], self._owners[worker] = task, (listener, task, guest.node)
            if listener.adopt(task, guest.node, left):
                return
            del self._owners[worker]
        guest.workers[worker] = None  # so nothing else starts there before it is gone
        guest.say({"do": "stop", "worker": worker, "grace_s": 0.0})

    def _lost(self, guest: Guest, reason: str) -> None:
        self._guests.discard(guest)
        if not guest.node or self._agents.get(guest.node) is not guest:
            return
        del self._agents[guest.node]
        ended = [*guest.workers, *(one.message["worker"] for one in self._waiting if one.node == guest.node)]
        self._waiting = [one for one in self._waiting if one.node != guest.node]
        for worker in ended:
            self._ended(worker, -9, "")
        if guest.node[0] != _HIDDEN:
            self.tell({"told": "gone", "node": guest.node, "reason": reason})
        for listener in list(self._listeners):
            listener.node_gone(guest.node)

    def _ended(self, worker: str, code: int, tail: str) -> None:
        if worker in self._owners:
            listener, task, _ = self._owners.pop(worker)
            listener.exited(task, worker, code, tail)

    def _agent_of(self, worker: str) -> Guest | None:
        return self._agents.get(self._owners[worker][2]) if worker in self._owners else None

    def _start_waiting(self) -> None:
        for waiting in list(self._waiting):
            agent = self._agents.get(waiting.node)
            if agent is not None and all(task == waiting.task for task in agent.workers.values()):
                self._waiting.remove(waiting)
                agent.workers[waiting.message["worker"]] = waiting.task
                agent.say(waiting.message)
