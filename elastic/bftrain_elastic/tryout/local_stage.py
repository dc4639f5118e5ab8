"""A stage: agents on this machine, one launcher, and what it tells, to try launchers on."""

from __future__ import annotations

import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Protocol, Self

from bftrain_elastic.agent.prefork_server import PRELOADED
from bftrain_elastic.agent.process_tree import children, descendants, kill
from bftrain_elastic.manager.agent_hub import AgentHub, Tell
from bftrain_elastic.tryout import sample_script
from bftrain_elastic.tryout.leftovers import alive, listening
from bftrain_elastic.tryout.local_agents import LocalAgents
from bftrain_elastic.wire.messages import Message
from bftrain_elastic.wire.shared_secret import make_secret

PATIENCE_S: Final = 60.0
TRIAL: Final = (str(sample_script.__file__),)


class LauncherNonconformance(AssertionError):
    """A launcher does not do what its port demands."""


class LauncherPort(Protocol):
    """The Launcher port, as far as it is checked here."""

    name: str

    def add(self, task: str, job: dict[str, Any]) -> None: ...  # noqa: D102 - as in the port Launcher
    def apply(self, actions: Sequence[dict[str, Any]]) -> None: ...  # noqa: D102 - as in the port Launcher
    def drop(self, task: str) -> None: ...  # noqa: D102 - as in the port Launcher
    def close(self) -> None: ...  # noqa: D102 - as in the port Launcher


class MessageLog:
    """All messages of a launcher, and a way to wait for more."""

    def __init__(self) -> None:
        self.all: list[Message] = []
        self._news = threading.Condition()

    def __call__(self, message: Message) -> None:
        """Take in a message."""
        with self._news:
            self.all.append(message)
            self._news.notify_all()

    def of(self, what: str, task: str, since: int = 0) -> list[Message]:
        """Return all messages of one type about a task."""
        return [one for one in self.all[since:] if one["type"] == what and one.get("task") == task]

    def until(self, true: Callable[[], bool], words: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until something is true; ``words`` say what."""
        with self._news:
            if not self._news.wait_for(true, timeout_s):
                last = [one for one in self.all if one["type"] not in {"report", "in_memory", "on_disk"}][-8:]
                raise LauncherNonconformance(f"{words}: not within {timeout_s:g} s; its last messages: {last}")

    def steps(self, task: str, size: int, count: int = 5) -> None:
        """Wait for ``count`` more steps at ``size`` nodes."""
        since = len(self.all)
        self.until(
            lambda: len([one for one in self.of("report", task, since) if one["size"] == size]) >= count,
            f"{task}: {count} steps at size {size}",
        )


class LocalStage:
    """Agents on this machine, a launcher, and what it tells. ``make`` is a factory as the registry knows it.

    ``grace_s`` is how long agents go on after SIGTERM, ``settle_s`` how long a preemption may take to reach all
    processes of a node. Workers, nurseries and agents can be sent signals, and the manager can be replaced.
    """

    def __init__(
        self,
        make: Callable[[Tell, AgentHub], LauncherPort],
        script: Sequence[str] = TRIAL,
        *,
        nodes: Sequence[str] = ("n1", "n2", "n3", "n4"),
        preload: Sequence[str] = PRELOADED,
        slots: int = 1,
        epoch: int = 1,
        grace_s: float = 0.0,
        settle_s: float = 0.5,
    ) -> None:
        self.epoch = epoch
        self._settle_s = settle_s
        self._grace_s = grace_s
        self._jobs: dict[str, dict[str, Any]] = {}
        self._held: dict[str, list[str]] = {}
        self._slots = slots
        self._make = make
        self._script = tuple(script)
        self._nodes = tuple(nodes)
        self._preload = preload
        self._tasks = 0
        self._doors: set[str] = set()

    def __enter__(self) -> Self:
        with ExitStack() as begun:  # what has begun is ended if the rest cannot begin
            self.folder = Path(tempfile.mkdtemp(prefix="bftrain-stage-"))
            begun.callback(shutil.rmtree, self.folder, ignore_errors=True)
            begun.callback(self._find_doors)
            self._begin(begun)
            self._begun = begun.pop_all()
        return self

    def _begin(self, begun: ExitStack) -> None:
        """Start manager, agents and launcher; ``begun`` ends them, or what was put in their place meanwhile."""
        self._secret = make_secret(self.folder / "secret")
        self.messages = MessageLog()
        (self.folder / "tmp").mkdir()
        self.hub = AgentHub(self.messages, self._secret, epoch=self.epoch, settle_s=self._settle_s)
        self.agents = LocalAgents(
            self.hub,
            self.folder / "secret",
            preload=self._preload,
            slots=self._slots,
            tmp=self.folder / "tmp",
            grace_s=self._grace_s,
        )
        begun.callback(self.agents.close)
        begun.callback(self._close_hub)
        self.launcher = self._make(self.messages, self.hub)
        begun.callback(self._close_launcher)
        self.agents.start(*self._nodes)
        self.messages.until(lambda: len(self.hub_nodes()) == len(self._nodes), "all agents are registered")

    def __exit__(self, kind: object, *_: object) -> None:
        pids = self.below()
        ports = {port for _, port in listening(pids)}
        for agent in self.agents.running.values():
            agent.send_signal(signal.SIGCONT)  # it may have been stopped
        self._begun.close()
        if kind is None:  # or that is what is to be seen
            self._nothing_is_left(pids, ports)
            if self._doors:
                raise LauncherNonconformance(f"agents that ended left {self._doors} behind")

    def _close_hub(self) -> None:
        self.hub.close()  # the present one: the first may have been replaced

    def _close_launcher(self) -> None:
        self.launcher.close()  # likewise

    def _find_doors(self) -> None:
        """Note the sockets that agents have left behind."""
        self._doors = {path.name for path in (self.folder / "tmp").glob("bftrain*")}

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
        """Add a task of the script with these words, and give its name."""
        self._tasks += 1
        task = f"{self.launcher.name}{self._tasks}"
        self._jobs[task] = {"argv": [*self._script, *words], "folder": str(self.folder / task), **more}
        self._held[task] = []
        self.launcher.add(task, self._jobs[task])
        return task

    def do(self, action: str, task: str, *nodes: str, **more: str) -> None:
        """Let the launcher carry out one action."""
        self.apply({"action": action, "task": task, "nodes": list(nodes), **more})

    def apply(self, *actions: dict[str, Any]) -> None:
        """Let the launcher carry out actions at once, and know which nodes each task holds then."""
        for action in actions:
            for task, held in self._held.items():
                if action.get("task", task) != task:
                    continue
                if action["action"] in {"start", "grow"}:
                    held += [node for node in action["nodes"] if node not in held]
                else:
                    held[:] = [node for node in held if node not in action["nodes"]]
        self.launcher.apply(actions)

    def lose(self, node: str) -> None:
        """Take a node as a scheduler does."""
        if hasattr(self.launcher, "lose"):  # a launcher without agents
            self.launcher.lose(node)
        else:
            self.agents.terminate(node)

    def find(self, node: str) -> None:
        """Give a node back."""
        if not hasattr(self.launcher, "lose"):
            self.agents.start(node)
            self.messages.until(lambda: node in self.hub_nodes(), f"{node} is registered again")

    def end(self, task: str) -> None:
        """Drop a task, and demand that nothing of it is left."""
        self._drop(task)
        self._no_worker_is_left(f"of {task}")

    def restore(self) -> None:
        """Drop all tasks and start the agents that are missing: what a check that failed leaves behind."""
        for task in list(self._jobs):
            self._drop(task)
        registered = self.hub_nodes()
        for node in self._nodes:
            agent = self.agents.running.get(node)
            if agent is not None and (node not in registered or agent.poll() is not None):
                self.agents.terminate(node)
            if node not in self.agents.running:
                self.agents.start(node)
        self._no_worker_is_left("of tasks that were dropped")
        self.messages.until(lambda: self.hub_nodes() == set(self._nodes), "all agents are registered")

    def _drop(self, task: str) -> None:
        self._jobs.pop(task, None)
        self._held.pop(task, None)
        self.launcher.drop(task)

    def _no_worker_is_left(self, of_what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while left := self.leftovers():
            if time.monotonic() > deadline:
                raise LauncherNonconformance(f"processes are left {of_what}: {left}")
            time.sleep(0.01)

    def replace_manager(self) -> None:
        """Let the manager end as if it were killed, and start the next one at the same address.

        It knows the tasks that are not over, and the nodes that each holds by :meth:`do` and :meth:`apply`.
        """
        port = self.hub.address[1]
        self.hub.abandon()
        self.epoch += 1
        self.hub = AgentHub(
            self.messages, self._secret, port=port, closed=True, epoch=self.epoch, settle_s=self._settle_s
        )
        self.launcher = self._make(self.messages, self.hub)
        for task, job in self._jobs.items():
            if not self.messages.of("done", task) and not self.messages.of("failed", task):
                self.launcher.add(task, job)
                if self._held[task]:
                    self.launcher.apply([{"action": "start", "task": task, "nodes": list(self._held[task])}])
        self.hub.open()

    def processes(self, part: str, node: str) -> list[int]:
        """Return the processes of a node that are its ``agent``, its ``nursery``, or a ``worker``."""
        agent = self.agents.running[node].pid
        found = [agent]
        for _ in range(("agent", "nursery", "worker").index(part)):
            found = [child for pid in found for child in children(pid)]
        return found

    def send(self, number: int, part: str, node: str) -> list[int]:
        """Send a signal to the agent, the nursery or the workers of a node; return to which processes."""
        pids = self.processes(part, node)
        for pid in pids:
            kill(pid, number)
        return pids

    def below(self) -> set[int]:
        """Give all processes of the agents, themselves included."""
        agents = {agent.pid for agent in self.agents.running.values()}
        return agents | {pid for agent in agents for pid in descendants(agent)}

    def _nothing_is_left(self, pids: Iterable[int], ports: set[int]) -> None:
        """Demand that no process lives any more and no port is open; the kernel may need a moment for both."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := (alive(pids), ports & {port for _, port in listening()})) != (set(), set()):
            if time.monotonic() > deadline:
                raise LauncherNonconformance(f"after close() there are processes {left[0]} and open ports {left[1]}")
            time.sleep(0.02)

    def leftovers(self) -> list[int]:
        """Give the processes below the agents that are neither agents nor nurseries."""
        found = []
        for agent in self.agents.running.values():
            own = list(descendants(agent.pid))
            found += own[1:]  # the first is the nursery
        return found
