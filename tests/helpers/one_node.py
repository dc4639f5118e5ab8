"""One node with a real agent and small workers, and managers that take each other's place."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bftrain_elastic.agent.process_tree import children, descendants
from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.manager.launchers import AgentLauncher
from bftrain_elastic.wire.agent_messages import LeftWorker, SpawnWorker, WorkerExit
from bftrain_elastic.wire.authenticated_stream import make_secret
from bftrain_elastic.wire.messages import Message, WireMessage
from tests.helpers.processes import LocalAgents, alive
from tests.helpers.scripted_agents import abandon

PATIENCE_S = 60.0

_GOES_ON = """
Path("started").touch()
while True:
    time.sleep(0.01)
"""
# What many programs do: they save when they are asked to go, and end well
SAVES = f"""
import signal, sys, time
from pathlib import Path
def save(*_):
    time.sleep(float(sys.argv[1]))
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
{_GOES_ON}"""
SLEEPS = f"""
import time
from pathlib import Path
{_GOES_ON}"""
# Save when asked to go, and ignore a second signal
SAVES_ONCE = f"""
import os, signal, sys, time
from pathlib import Path
def save(*_):
    if Path("saving").exists():
        os._exit(3)
    Path("saving").touch()
    time.sleep(1.0)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
{_GOES_ON}"""
# Does not handle SIGTERM but waits for it, as init programs of containers do
WAITS_FOR_SIGNAL = """
import signal, sys
from pathlib import Path
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
Path("started").touch()
signal.sigwait({signal.SIGTERM})
sys.exit(0)
"""
# Leaves its work to a thread
THREADED = """
import threading, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
def write(name):
    time.sleep(0.5)
    Path(name).touch()
threading.Thread(target=write, args=("thread",)).start()
ThreadPoolExecutor(1).submit(write, "pool")
"""
# Says that it is done with the last thing it does
SPEAKS = """
from bftrain_elastic.wire.worker_messages import StepReport, WorkFinished
from bftrain_elastic.worker.agent_channel import AgentChannel
channel = AgentChannel.from_environment()
channel.send(StepReport(1.0, step=41, size=1, samples=2, loss=None, total=82))
channel.send(WorkFinished())
"""


class RecordingListener:
    """A lifecycle that starts workers and keeps what it hears, and the manager's side of it."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self.takes = True  # what other managers left
        self._news = threading.Condition()

    def _hear(self, *what: object) -> None:
        with self._news:
            self.heard.append(what)
            self._news.notify_all()

    def on_message(self, message: Message) -> None:
        self._hear(message["type"], message.get("node"), message.get("reason", message.get("grace_s")))

    def node_up(self, node: str) -> None:
        self._hear("up", node)

    def node_gone(self, node: str) -> None:
        self._hear("down", node)

    def notice(self, node: str, grace_s: float) -> None:
        self._hear("noticed", node, grace_s)

    def adopt(self, _node: str, left: LeftWorker) -> bool:
        self._hear("left", left)
        return self.takes

    def set_nodes(self, nodes: tuple[str, ...], *, at_once: frozenset[str]) -> None: ...

    def spawned(self, worker: str, _port: int) -> None:
        self._hear("spawned", worker)

    def inspected(self, worker: str, process_state: str) -> None:
        self._hear("inspected", worker, process_state)

    def on_worker_message(self, worker: str, message: WireMessage) -> None:
        self._hear("worker_message", worker, message.type)

    def exited(self, worker: str, exit: WorkerExit) -> None:  # noqa: A002 - as in Course
        self._hear("exited", worker, exit)

    def tick(self, now: float) -> None: ...

    def all(self, what: str) -> list[tuple[Any, ...]]:
        return [one for one in self.heard if one[0] == what]

    def until(self, what: str, count: int = 1) -> tuple[Any, ...]:
        with self._news:
            assert self._news.wait_for(lambda: len(self.all(what)) >= count, PATIENCE_S), f"{what}: {self.heard}"
        return self.all(what)[count - 1]


class OneNode:
    """One node, and one manager after the other at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secret = make_secret(folder / "secret")
        self.epoch = 0
        self.port = 0
        self.hub: AgentHub
        self.manager()

    def manager(self, epoch: int | None = None, *, takes: bool = True) -> RecordingListener:
        """Replace the manager by another one; the former falls silent."""
        if self.epoch:
            abandon(self.hub)
        self.epoch = self.epoch + 1 if epoch is None else epoch
        self.watched = RecordingListener()
        self.watched.takes = takes
        self.hub = AgentHub(self.watched.on_message, self.secret, port=self.port, closed=True, epoch=self.epoch)
        self.port = self.hub.address[1]
        launcher = AgentLauncher("watched", lambda *_: self.watched, self.hub)
        launcher.add("t", {"argv": ["x"], "folder": str(self.folder)})
        launcher.apply([{"action": "start", "task": "t", "nodes": ["n1"]}])
        self.hub.ask(self.watched.heard.clear)
        self.hub.open()
        return self.watched

    def start(self, grace_s: float = 0.0, preload: Sequence[str] = (), words: Sequence[str] = ()) -> None:
        """Start the agent, and wait until it takes orders."""
        options = ("--preload", ",".join(preload), "--grace", f"{grace_s:g}", "--slots", "64", *words)
        self.agents = LocalAgents(self.hub, self.folder / "secret", *options)
        self.agents.start("n1")
        self.agent = self.agents.running["n1"]
        self.watched.until("registered" if preload else "warm")
        until(lambda: children(self.agent.pid), "its prefork server is there")
        self.prefork = children(self.agent.pid)[0]

    def spawn(self, script: str, *words: str, slot: int = 0, **more: object) -> str:
        path = self.folder / f"script{slot}.py"
        path.write_text(script)
        self.ordered = self.hub.ask(lambda: self.hub.workers.new_name("t", "n1", slot))
        fields = {"argv": [str(path), *words], "log": str(self.folder / f"{slot}.log"), "warm": True, **more}
        plain = {"task": "t", "env": {}, "cwd": str(self.folder), "slot": slot, **fields}
        order = SpawnWorker.read({"worker": self.ordered, **plain})
        self.hub.call(lambda: self.hub.workers.spawn("n1", order))
        return self.ordered

    def started(self, script: str, *words: str) -> int:
        """Start a worker, and return its process once it does what its script says."""
        self.spawn(script, *words)
        until((self.folder / "started").exists, "the worker is there")
        return next(worker for prefork in children(self.agent.pid) for worker in children(prefork))

    def close(self) -> None:
        for pid in (self.agent.pid, self.prefork):
            if alive([pid]):
                os.kill(pid, signal.SIGCONT)
        self.agent.kill()
        self.agent.wait(10)
        self.agents.running.clear()
        self.agents.close()
        abandon(self.hub)


def until(true: Callable[[], object], words: str, timeout_s: float = PATIENCE_S) -> None:
    """Wait until something is true; ``words`` say what."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, words
        time.sleep(0.002)


def tree(site: OneNode) -> list[int]:
    return [site.agent.pid, *descendants(site.agent.pid)]
