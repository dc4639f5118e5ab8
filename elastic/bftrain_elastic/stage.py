"""A stage: agents on this machine, one launcher, and what it tells, to try launchers on."""

from __future__ import annotations

import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, Self

from bftrain_elastic import trial
from bftrain_elastic.footprints import alive, listening
from bftrain_elastic.hub import Hub, Tell
from bftrain_elastic.local import LocalAgents
from bftrain_elastic.messages import Message
from bftrain_elastic.nursery import PRELOADED
from bftrain_elastic.processes import descendants
from bftrain_elastic.secret import make_secret

PATIENCE_S: Final = 60.0
TRIAL: Final = (str(trial.__file__),)


class Nonconformance(AssertionError):
    """A launcher does not do what its port demands."""


class Launches(Protocol):
    """The Launcher port, as far as it is checked here."""

    name: str

    def add(self, task: str, job: dict[str, Any]) -> None: ...  # noqa: D102 - as in the port Launcher
    def apply(self, actions: Sequence[dict[str, Any]]) -> None: ...  # noqa: D102 - as in the port Launcher
    def drop(self, task: str) -> None: ...  # noqa: D102 - as in the port Launcher
    def close(self) -> None: ...  # noqa: D102 - as in the port Launcher


class Told:
    """Everything a launcher told, and a way to wait for more of it."""

    def __init__(self) -> None:
        self.all: list[Message] = []
        self._news = threading.Condition()

    def __call__(self, told: Message) -> None:
        """Take in what is told."""
        with self._news:
            self.all.append(told)
            self._news.notify_all()

    def of(self, what: str, task: str, since: int = 0) -> list[Message]:
        """Give all of one kind that were told about a task."""
        return [one for one in self.all[since:] if one["told"] == what and one.get("task") == task]

    def until(self, true: Callable[[], bool], words: str, timeout_s: float = PATIENCE_S) -> None:
        """Wait until something is true; ``words`` say what."""
        with self._news:
            if not self._news.wait_for(true, timeout_s):
                last = [one for one in self.all if one["told"] not in {"report", "committed", "saved"}][-8:]
                raise Nonconformance(f"{words}: not within {timeout_s:g} s; the last it told: {last}")

    def steps(self, task: str, size: int, count: int = 5) -> None:
        """Wait for ``count`` more steps at ``size`` nodes."""
        since = len(self.all)
        self.until(
            lambda: len([one for one in self.of("report", task, since) if one["size"] == size]) >= count,
            f"{task}: {count} steps at size {size}",
        )


class Stage:
    """Agents on this machine, a launcher, and what it tells. ``make`` is a factory as the registry knows it."""

    def __init__(
        self,
        make: Callable[[Tell, Hub], Launches],
        script: Sequence[str] = TRIAL,
        *,
        nodes: Sequence[str] = ("n1", "n2", "n3", "n4"),
        preload: Sequence[str] = PRELOADED,
        slots: int = 1,
    ) -> None:
        self._slots = slots
        self._make = make
        self._script = tuple(script)
        self._nodes = tuple(nodes)
        self._preload = preload
        self._tasks = 0

    def __enter__(self) -> Self:
        self.folder = Path(tempfile.mkdtemp(prefix="bftrain-stage-"))
        secret = make_secret(self.folder / "secret")
        self.told = Told()
        self.hub = Hub(self.told, secret)
        (self.folder / "tmp").mkdir()
        self.agents = LocalAgents(
            self.hub, self.folder / "secret", preload=self._preload, slots=self._slots, tmp=self.folder / "tmp"
        )
        self.launcher = self._make(self.told, self.hub)
        self.agents.start(*self._nodes)
        self.told.until(lambda: len(self.hub_nodes()) == len(self._nodes), "all agents are registered")
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        pids = self.below()
        ports = {port for _, port in listening(pids)}
        self.launcher.close()
        self.hub.close()
        self.agents.close()
        doors = {path.name for path in (self.folder / "tmp").glob("bftrain*")}
        shutil.rmtree(self.folder, ignore_errors=True)
        if kind is None:  # or that is what is to be seen
            self._nothing_is_left(pids, ports)
            if doors:
                raise Nonconformance(f"agents that ended left {doors} behind")

    def hub_nodes(self) -> set[str]:
        """Give the nodes whose agents are there, as they were told."""
        there: set[str] = set()
        for one in self.told.all:
            if one["told"] == "registered":
                there.add(one["node"])
            elif one["told"] == "gone":
                there.discard(one["node"])
        return there

    def new(self, *words: str, **more: Any) -> str:  # noqa: ANN401 - a job's own fields
        """Add a task of the script with these words, and give its name."""
        self._tasks += 1
        task = f"{self.launcher.name}{self._tasks}"
        self.launcher.add(task, {"argv": [*self._script, *words], "folder": str(self.folder / task), **more})
        return task

    def do(self, action: str, task: str, *nodes: str, **more: str) -> None:
        """Let the launcher carry out one action."""
        self.launcher.apply([{"action": action, "task": task, "nodes": list(nodes), **more}])

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
            self.told.until(lambda: node in self.hub_nodes(), f"{node} is registered again")

    def end(self, task: str) -> None:
        """Forget a task, and know that nothing of it is left."""
        self.launcher.drop(task)
        deadline = time.monotonic() + PATIENCE_S
        while self.leftovers() and time.monotonic() < deadline:
            time.sleep(0.01)
        if self.leftovers():
            raise Nonconformance(f"processes are left of {task}: {self.leftovers()}")

    def below(self) -> set[int]:
        """Give all processes of the agents, themselves included."""
        agents = {agent.pid for agent in self.agents.running.values()}
        return agents | {pid for agent in agents for pid in descendants(agent)}

    def _nothing_is_left(self, pids: Iterable[int], ports: set[int]) -> None:
        """Demand that no process lives any more and no port is open; the kernel may need a moment for both."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := (alive(pids), ports & {port for _, port in listening()})) != (set(), set()):
            if time.monotonic() > deadline:
                raise Nonconformance(f"after close() there are processes {left[0]} and open ports {left[1]}")
            time.sleep(0.02)

    def leftovers(self) -> list[int]:
        """Give the processes below the agents that are neither agents nor nurseries."""
        found = []
        for agent in self.agents.running.values():
            own = list(descendants(agent.pid))
            found += own[1:]  # the first is the nursery
        return found
