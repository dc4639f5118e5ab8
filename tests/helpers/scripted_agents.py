"""A hub with scripted agents: tests send the messages of agents, and receive those of the manager."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

from bftrain_elastic.manager.agent_hub import AgentHub, TaskContext
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.launchers import AgentLauncher
from bftrain_elastic.wire.agent_messages import GroupPlace, LeftWorker, WorkerExit
from bftrain_elastic.wire.authenticated_stream import AuthenticatedStream
from bftrain_elastic.wire.messages import Message, WireMessage
from bftrain_elastic.wire.worker_messages import AskPosition, TrainingDone

SECRET = b"s" * 32
PATIENCE_S = 30.0

Comes = Callable[..., "Agent"]


class Agent:
    """An agent that says what the test says."""

    def __init__(
        self,
        hub: AgentHub,
        node: str,
        *workers: Message,
        ended: tuple[Message, ...] = (),
        epoch: int = 0,
        secret: bytes = SECRET,
        instance: str = "",
        version: int = 0,
        connection: socket.socket | None = None,
        **more: object,
    ) -> None:
        self._connection = connection or socket.create_connection(hub.address, timeout=PATIENCE_S)
        self._sealed = AuthenticatedStream(secret, "agent")
        self._heard: deque[Message] = deque()
        self._connection.sendall(self._sealed.greeting)
        while not self._sealed.greeted:
            self._heard.extend(self._sealed.feed(self._connection.recv(65536)))
        register = {"type": "register", "node": node, "address": "127.0.0.1", "slots": 2, "pid": 1, "epoch": epoch}
        register |= {"version": version, **more}
        self.send(**register, instance=instance, workers=list(workers), ended=list(ended))

    def send(self, **message: object) -> None:
        self._connection.sendall(self._sealed.seal(message))

    def hear(self, what: str) -> Message:
        """Wait until the manager says ``what``."""
        while True:
            while self._heard:
                message = self._heard.popleft()
                if message["type"] == what:
                    return message
            data = self._connection.recv(65536)
            assert data, f"the hub went away, and '{what}' was waited for"
            self._heard.extend(self._sealed.feed(data))

    def hear_all(self) -> None:
        """Forget all that the manager said until it falls silent for a moment."""
        while not self.hears_nothing():
            self._heard.clear()

    def is_sent_away(self) -> bool:
        """Wait until the hub stops the connection."""
        while data := self._connection.recv(65536):
            list(self._sealed.feed(data))
        return True

    def hears_nothing(self) -> bool:
        self._connection.settimeout(0.2)
        try:
            return not self._heard and not self._connection.recv(65536)
        except TimeoutError:
            return True
        finally:
            self._connection.settimeout(PATIENCE_S)

    def close(self) -> None:
        self._connection.close()


class MessageInbox:
    """The messages that a manager received."""

    def __init__(self) -> None:
        self.all: list[Message] = []
        self.breaks = False
        self._news = threading.Condition()

    def __call__(self, message: Message) -> None:
        with self._news:
            self.all.append(message)
            self._news.notify_all()
        if self.breaks:
            raise ValueError("the manager stumbles")

    def until(self, what: str, count: int = 1) -> Message:
        def enough() -> bool:
            return len([one for one in self.all if one["type"] == what]) >= count

        with self._news:
            assert self._news.wait_for(enough, PATIENCE_S), f"{count} of {what}: {self.all}"
        return [one for one in self.all if one["type"] == what][count - 1]


class Simple:
    """A lifecycle that starts one worker on every node, and takes over the workers that the test names."""

    made: ClassVar[list[Simple]] = []
    adopts = True

    def __init__(self, _task: str, _job: LauncherJob, context: TaskContext) -> None:
        self.context = context
        self.wanted: tuple[str, ...] = ()
        self.started: set[str] = set()
        self.offered: list[LeftWorker] = []
        self.made.append(self)

    def set_nodes(self, nodes: tuple[str, ...], **_: object) -> None:
        self.wanted = nodes
        for node in nodes:
            self.node_up(node)

    def node_up(self, node: str) -> None:
        if self.context.slots(node) and node not in self.started:
            self.started.add(node)
            self.spawn(node)

    def spawn(self, node: str) -> None:
        self.context.spawn(node, self.context.name(node, 0), env={}, place=GroupPlace(3, 0, 1))

    def node_gone(self, node: str) -> None:
        self.started.discard(node)

    def adopt(self, node: str, left: LeftWorker) -> bool:
        self.offered.append(left)
        if left.exit is not None:
            return self.adopts
        if self.adopts:
            self.started.add(node)
            self.context.send(left.worker, AskPosition())
        return self.adopts

    def spawned(self, *_: object) -> None: ...

    def on_worker_message(self, _worker: str, message: WireMessage) -> None:
        if isinstance(message, TrainingDone):
            raise ZeroDivisionError("a mistake in the lifecycle")
        self.context.emit(message.to_dict())

    def notice(self, node: str, grace_s: float) -> None:
        self.context.emit({"type": "note", "text": f"{node} goes in {grace_s} s"})

    def inspected(self, worker: str, process_state: str) -> None:
        self.context.emit({"type": "note", "text": f"{worker} is {process_state}"})

    def exited(self, worker: str, exit: WorkerExit) -> None:  # noqa: A002 - as in TaskLifecycle
        words = "finished" if exit.finished else "stopped" if exit.stopped else "exited"
        self.context.emit({"type": "note", "text": f"{worker} {words} with {exit.code}"})

    def tick(self, now: float) -> None: ...


def abandon(hub: AgentHub) -> None:
    """Stop a hub silently, as if its process had been killed; again has no effect."""
    if not hub._thread.is_alive():  # noqa: SLF001
        return

    def forget() -> None:
        hub._on_event = lambda _: None  # noqa: SLF001
        hub.tasks._tasks.clear()  # noqa: SLF001
        hub._agents.clear()  # noqa: SLF001 - none hears a goodbye

    hub.ask(forget)
    hub.close()


def start(launcher: AgentLauncher, *nodes: str) -> None:
    launcher.apply([{"action": "start", "task": "t", "nodes": list(nodes)}])


def left(worker: str, **more: object) -> Message:
    """Return what an agent says of a worker that another manager started."""
    return {"worker": worker, "task": "t", "slot": 0, "step": 7, "go": None, "ready": None, "done": False, **more}


def report(worker: str, step: int) -> dict[str, Any]:
    """Return what an agent says when a worker reports a step."""
    words = {"type": "report", "t": 5.0, "step": step, "size": 1, "samples": 1, "loss": None}
    return {"type": "worker_message", "worker": worker, "message": words}


def started(comes: Comes, launcher: AgentLauncher) -> tuple[Agent, str]:
    """Start the task on a node; give its agent, and the worker that is to be started there."""
    start(launcher, "n1")
    agent = comes("n1")
    return agent, agent.hear("spawn")["worker"]


def exit_(**more: object) -> Message:
    """Return how a worker ended, as its agent says it."""
    return {"code": 0, "tail": "", "finished": False, "stopped": False, **more}
