"""A site whose agents keep copies of states, one training on it, and the loss of all its nodes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from bftrain import registry
from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.wire.authenticated_stream import make_secret
from tests.helpers.processes import LocalAgents

PATIENCE_S = 60.0
TASK = "t"
SCRIPT = """
import os, resource, time
import torch
from bftrain_elastic import State, report, run
torch.set_num_threads(1)
if not {disk}:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
frozen = torch.arange({frozen}, dtype=torch.float32)

def train(state):
    assert torch.equal(state.frozen, frozen) and torch.all(state.table == state.position)
    while True:
        time.sleep({step_s})
        state.position += 1
        state.table.fill_(state.position)
        report(samples=1)
        state.commit()

run(State(position=0, table=torch.zeros({changing}), frozen=frozen.clone()), train)
"""


class CopySite:
    """Agents that keep copies within ``copies_mb``, and a task with a state of ``state_mb``, a quarter of it constant.

    Without ``disk``, states cannot be written to disk.
    """

    def __init__(
        self, folder: Path, *nodes: str, state_mb: float = 40.0, copies_mb: float = 4000.0, disk: bool = False
    ) -> None:
        secret = make_secret(folder / "secret")
        self._news = threading.Condition()
        self.messages: list[dict[str, Any]] = []
        self.hub = AgentHub(self._hear, secret)
        self.launcher = registry.load("launcher", "native")(self._hear, self.hub)
        self.agents = LocalAgents(self.hub, folder / "secret", tmp=folder, preload=("torch",))
        self.agents._words += ["--copies", f"{copies_mb:g}"]  # noqa: SLF001 - of the agents' command line
        self.agents.start(*nodes)
        words = int(state_mb * 250_000)
        script = SCRIPT.format(disk=disk, frozen=words // 4, changing=words - words // 4, step_s=0.02)
        (folder / "train.py").write_text(script)
        self.launcher.add(TASK, {"argv": [str(folder / "train.py")], "folder": str(folder / "task")})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.agents.close()
        self.launcher.close()
        self.hub.close()

    def _hear(self, message: dict[str, Any]) -> None:
        with self._news:
            self.messages.append(message)
            self._news.notify_all()

    def until(self, true: Callable[[dict[str, Any]], bool], since: int = 0) -> dict[str, Any]:
        """Return the first message after ``since`` messages for which something is true."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = [one for one in self.messages[since:] if true(one)][:1]
            return bool(found)

        with self._news:
            last = [one for one in self.messages if one["type"] not in {"report", "in_memory", "on_disk"}]
            assert self._news.wait_for(there, PATIENCE_S), last[-8:]
        return found[0]

    def of(self, what: str) -> list[dict[str, Any]]:
        return [one for one in list(self.messages) if one["type"] == what]

    def start(self, *nodes: str) -> int:
        """Start the task, and return the step from which it trains."""
        since = len(self.messages)
        self.launcher.apply([{"action": "start", "task": TASK, "nodes": list(nodes)}])
        step: int = self.until(lambda one: one["type"] == "confirmed", since)["step"]
        return step

    def steps(self, count: int) -> None:
        """Wait for some more steps."""
        wanted = len(self.of("report")) + count
        self.until(lambda _: len(self.of("report")) >= wanted)

    def grow(self, *nodes: str) -> None:
        """Add nodes to the task."""
        self.launcher.apply([{"action": "grow", "task": TASK, "nodes": list(nodes)}])

    def _copy(self, *, there: bool, since: int | None = None) -> int:
        """Wait for a message about the copy after ``since`` messages; return its number."""
        since = len(self.messages) if since is None else since
        found = self.until(lambda one: one["type"] == "copied" and (one["step"] > 0) is there, since)
        return self.messages.index(found)

    def copied(self) -> int:
        """Wait for the next copy; return its step."""
        step: int = self.messages[self._copy(there=True)]["step"]
        return step

    def copied_to(self, since: int = 0) -> str:
        """Wait for the first copy after ``since`` messages; return its node."""
        node: str = self.messages[self._copy(there=True, since=since)]["node"]
        return node

    def copied_nothing(self, since: int) -> int:
        """Wait until, after ``since`` messages, no copy is outside the task; return the number of the message."""
        return self._copy(there=False, since=since)

    def lose(self, *nodes: str, agents: bool = True, of_task: bool = True) -> None:
        """Kill all processes of the task on nodes, with the ``agents``, whose nodes return with other ones."""
        at_s = time.time()
        for node in nodes if agents else ():
            self.agents.running[node].kill()
        self.launcher.apply([{"action": "release", "nodes": list(nodes)}])
        if of_task:
            self.until(lambda one: one["type"] in {"paused", "vacated"} and one["t"] >= at_s)
        for node in nodes if agents else ():
            self.until(lambda one, node=node: one["type"] == "gone" and one["node"] == node and one["t"] >= at_s)
            self.agents.start(node)

    def repeated_s(self, since: int, step: int) -> float:
        """Return the time that steps after ``step`` had taken before the message number ``since``."""
        reports = [one for one in self.messages[:since] if one["type"] == "report"]
        return reports[-1]["t"] - max((one["t"] for one in reports if one["step"] <= step), default=reports[0]["t"])
