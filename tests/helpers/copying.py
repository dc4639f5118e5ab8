"""Copies of states: one copy server, and a site whose agents keep copies while one task trains."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from bftrain_elastic.agent.copy_server import CopyServer
from bftrain_elastic.manager import launchers
from bftrain_elastic.wire.agent_messages import FROM_PREFORK, CopyServing
from bftrain_elastic.wire.copy_stream import copy_key
from bftrain_elastic.wire.messages import Message, WireMessage, decode, read_message
from bftrain_elastic.wire.worker_messages import CopyPlace
from tests.helpers.local_stage import LocalStage

MB = 1_000_000
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


class Server:
    """A copy server in a thread, and the agent's side of it."""

    secret = b"s" * 32

    def __init__(self, limit_mb: float = 1000.0) -> None:
        self.agent, theirs = socket.socketpair()
        self.agent.settimeout(30)
        self._lines = self.agent.makefile("rb")
        self.server = CopyServer(theirs, "127.0.0.1", self.secret, int(limit_mb * MB))
        threading.Thread(target=self.server.run, daemon=True).start()
        self.hear()
        serving = self.hear()
        assert isinstance(serving, CopyServing)
        self.port = serving.port

    def hear(self) -> WireMessage | None:
        return read_message(FROM_PREFORK, decode(self._lines.readline()))

    def place(self, task: str = "t", secret: bytes | None = None) -> CopyPlace:
        return CopyPlace("127.0.0.1", self.port, task, copy_key(secret or self.secret, task).hex())


@contextmanager
def served(limit_mb: float = 1000.0) -> Iterator[Server]:
    server = Server(limit_mb)
    try:
        yield server
    finally:
        server._lines.close()  # noqa: SLF001 - or the socket stays open
        server.agent.close()


class CopySite(LocalStage):
    """Agents that keep copies within ``copies_mb``, and a task with a state of ``state_mb``, a quarter of it constant.

    Without ``disk``, states cannot be written to disk.
    """

    def __init__(
        self, folder: Path, *nodes: str, state_mb: float = 40.0, copies_mb: float = 4000.0, disk: bool = False
    ) -> None:
        script, words = folder / "train.py", int(state_mb * 250_000)
        script.write_text(SCRIPT.format(disk=disk, frozen=words // 4, changing=words - words // 4, step_s=0.02))
        super().__init__(launchers.native, [str(script)], nodes=nodes, copies_mb=copies_mb)

    def __enter__(self) -> Self:
        super().__enter__()
        self.task = self.new()
        return self

    def of(self, what: str) -> list[Message]:
        """Return all messages of one type about the task."""
        return self.messages.of(what, self.task)

    def first(self, what: str, since: int = 0, true: Callable[[Message], bool] = lambda _: True) -> Message:
        """Wait for the first message of a type after ``since`` messages for which something is true."""

        def found() -> list[Message]:
            return [one for one in self.messages.of(what, self.task, since) if true(one)]

        self.messages.until(lambda: bool(found()), what)
        return found()[0]

    def start(self, *nodes: str) -> int:
        """Start the task, and return the step from which it trains."""
        since = len(self.messages.all)
        self.do("start", self.task, *nodes)
        step: int = self.first("confirmed", since)["step"]
        return step

    def copied(self, since: int | None = None, *, there: bool = True) -> Message:
        """Wait for the next copy outside the task, or the first after ``since`` messages; or until there is none."""
        since = len(self.messages.all) if since is None else since
        return self.first("copied", since, lambda one: (one["step"] > 0) is there)

    def moved_to(self, since: int) -> str:
        """Wait until, after ``since`` messages, a copy is lost and another one is there; return its node."""
        lost = self.copied(since, there=False)
        node: str = self.copied(self.messages.all.index(lost))["node"]
        return node

    def kill(self, *nodes: str, agents: bool = True, of_task: bool = True) -> None:
        """Kill all processes of the task on nodes, with the ``agents``, whose nodes return with other ones."""
        at_s = time.time()
        for node in nodes if agents else ():
            self.agents.running[node].kill()
        self.launcher.apply([{"action": "release", "nodes": list(nodes)}])
        if of_task:
            self.messages.until(
                lambda: any(one["t"] >= at_s for what in ("paused", "vacated") for one in self.of(what)), "released"
            )
        for node in nodes if agents else ():
            self.messages.until(lambda node=node: node not in self.hub_nodes(), f"{node} is gone")
            self.find(node)

    def repeated_s(self, since: int, step: int) -> float:
        """Return the time that steps after ``step`` had taken before the message number ``since``."""
        reports = [one for one in self.messages.all[:since] if one["type"] == "report"]
        return float(
            reports[-1]["t"] - max((one["t"] for one in reports if one["step"] <= step), default=reports[0]["t"])
        )
