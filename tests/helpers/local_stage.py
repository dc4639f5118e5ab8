"""A stage for trying launchers: agents on this machine, one launcher, and its messages."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final, Self

from bftrain_elastic.agent.prefork_server import PRELOADED
from bftrain_elastic.agent.process_tree import children, descendants, kill
from bftrain_elastic.manager.agent_hub import AgentHub, OnEvent
from bftrain_elastic.tryout.try_script import LocalAgents, TrialMessages
from bftrain_elastic.wire.authenticated_stream import make_secret
from bftrain_elastic.wire.messages import Message
from tests.helpers.pace import busy_s
from tests.helpers.processes import alive, listening
from tests.helpers.sample_scripts import TORCH

PATIENCE_S: Final = 60.0
TRIAL: Final = TORCH


class LauncherNonconformance(AssertionError):
    """A launcher violates its protocol."""


class MessageLog(TrialMessages):
    """All messages of a launcher, with methods that fail if more do not come."""

    def of(self, what: str, task: str, since: int = 0) -> list[Message]:
        """Return all messages of one type about a task."""
        return [one for one in self.all[since:] if one["type"] == what and one.get("task") == task]

    def until(self, true: Callable[[], bool], words: str, timeout_s: float | None = None) -> None:
        """Wait until ``true`` returns true, and raise with ``words`` if it does not; longer on a busy machine."""
        timeout_s = busy_s(PATIENCE_S) if timeout_s is None else timeout_s
        if not self.wait(true, timeout_s):
            last = [one for one in self.all if one["type"] not in {"report", "in_memory", "on_disk"}][-8:]
            raise LauncherNonconformance(f"{words}: not within {timeout_s:g} s; its last messages: {last}")

    def steps(self, task: str, size: int, count: int = 5, timeout_s: float | None = None) -> None:
        """Wait for ``count`` more steps at ``size`` nodes."""
        since = len(self.all)
        self.until(
            lambda: len([one for one in self.of("report", task, since) if one["size"] == size]) >= count,
            f"{task}: {count} steps at size {size}",
            timeout_s,
        )


@dataclass(eq=False)
class LocalStage:
    """Agents on this machine, a launcher, and its messages. ``make`` is a factory as in the registry.

    ``grace_s`` is how long agents run on after SIGTERM. Workers, prefork servers and agents can be sent signals.
    """

    make: Callable[[OnEvent, AgentHub], Any]
    script: Sequence[str] = TRIAL
    _: KW_ONLY
    nodes: Sequence[str] = ("n1", "n2", "n3", "n4")
    preload: Sequence[str] = PRELOADED
    slots: int = 1
    grace_s: float = 0.0
    copies_mb: float = 0.0

    def __post_init__(self) -> None:
        """Start without tasks."""
        self.tasks: list[str] = []  # those that were not dropped
        self._numbers = count(1)

    def __enter__(self) -> Self:
        with ExitStack() as begun:  # ends the started parts if another part cannot start
            self.folder = Path(tempfile.mkdtemp(prefix="bftrain-stage-"))
            begun.callback(shutil.rmtree, self.folder, ignore_errors=True)
            self._begin(begun)
            self._begun = begun.pop_all()
        return self

    def _begin(self, begun: ExitStack) -> None:
        """Start manager, agents and launcher; ``begun`` ends them."""
        self.messages = MessageLog()
        self.hub = AgentHub(self.messages, make_secret(self.folder / "secret"))
        options = ("--preload", ",".join(self.preload), "--slots", str(self.slots))
        options += ("--grace", f"{self.grace_s:g}", "--copies", f"{self.copies_mb:g}")
        self.agents = LocalAgents(self.hub, self.folder / "secret", *options)
        begun.callback(self.agents.close)
        begun.callback(self.hub.close)
        self.launcher = self.make(self.messages, self.hub)
        begun.callback(self.launcher.close)
        self.agents.start(*self.nodes)
        self.messages.until(lambda: len(self.hub_nodes()) == len(self.nodes), "all agents are registered")

    def __exit__(self, kind: object, *_: object) -> None:
        pids = self.below()
        ports = {port for _, port in listening(pids)}
        for agent in self.agents.running.values():
            agent.send_signal(signal.SIGCONT)  # it may have been stopped
        self._begun.close()
        if kind is None:  # or that is what is to be seen
            self._nothing_is_left(pids, ports)

    def hub_nodes(self) -> set[str]:
        """Return the nodes with registered agents, according to the messages."""
        there: set[str] = set()
        for one in self.messages.all:
            if one["type"] == "registered":
                there.add(one["node"])
            elif one["type"] == "gone":
                there.discard(one["node"])
        return there

    def new(self, *words: str, **more: Any) -> str:  # noqa: ANN401 - a job's own fields
        """Add a task that runs the script with these arguments, and return its name."""
        task = f"{self.launcher.name}{next(self._numbers)}"
        self.tasks.append(task)
        self.launcher.add(task, {"argv": [*self.script, *words], "folder": str(self.folder / task), **more})
        return task

    def do(self, action: str, task: str, *nodes: str, **more: str) -> None:
        """Let the launcher carry out one action."""
        self.apply({"action": action, "task": task, "nodes": list(nodes), **more})

    def apply(self, *actions: dict[str, Any]) -> None:
        """Let the launcher carry out actions together."""
        self.launcher.apply(actions)

    def lose(self, node: str) -> None:
        """Take a node as a scheduler does."""
        self.agents.terminate(node)

    def find(self, node: str) -> None:
        """Return a node, as a scheduler does."""
        self.agents.start(node)
        self.messages.until(lambda: node in self.hub_nodes(), f"{node} is registered again")

    def end(self, *tasks: str) -> None:
        """Drop tasks, and raise if anything of them is left."""
        for task in tasks:
            self.launcher.drop(task)
        self.tasks = [task for task in self.tasks if task not in tasks]
        deadline = time.monotonic() + PATIENCE_S
        while left := self.leftovers():
            if time.monotonic() > deadline:
                raise LauncherNonconformance(f"processes are left of {', '.join(tasks)}: {left}")
            time.sleep(0.01)

    def restore(self) -> None:
        """Clean up after a failed check: drop all tasks and start missing agents."""
        for task in self.tasks:
            self.launcher.drop(task)
        registered = self.hub_nodes()
        for node in self.nodes:
            agent = self.agents.running.get(node)
            if agent is not None and (node not in registered or agent.poll() is not None):
                self.agents.terminate(node)
            if node not in self.agents.running:
                self.agents.start(node)
        self.end(*self.tasks)
        self.messages.until(lambda: self.hub_nodes() == set(self.nodes), "all agents are registered")

    def processes(self, part: str, node: str) -> list[int]:
        """Return the processes of a node that are its ``agent``, a ``prefork`` server, or a ``worker``."""
        agent = self.agents.running[node].pid
        found = [agent]
        for _ in range(("agent", "prefork", "worker").index(part)):
            found = [child for pid in found for child in children(pid)]
        return found

    def send(self, number: int, part: str, node: str) -> list[int]:
        """Send a signal to the agent, the prefork servers or the workers of a node; return their process ids."""
        pids = self.processes(part, node)
        for pid in pids:
            kill(pid, number)
        return pids

    def below(self) -> set[int]:
        """Return all processes of the agents, including themselves."""
        agents = {agent.pid for agent in self.agents.running.values()}
        return agents | {pid for agent in agents for pid in descendants(agent)}

    def _nothing_is_left(self, pids: Iterable[int], ports: set[int]) -> None:
        """Raise if a process lives or a port is open; the kernel may need a moment for both."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := (alive(pids), ports & {port for _, port in listening()})) != (set(), set()):
            if time.monotonic() > deadline:
                raise LauncherNonconformance(f"after close() there are processes {left[0]} and open ports {left[1]}")
            time.sleep(0.02)

    def leftovers(self) -> list[int]:
        """Return the processes below the agents that are neither agents nor prefork servers."""
        preforks = [pid for node in self.agents.running for pid in self.processes("prefork", node)]
        return [pid for prefork in preforks for pid in descendants(prefork)]
