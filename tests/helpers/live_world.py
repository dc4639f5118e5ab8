"""A world for fault tests: nodes that a scheduler lends and takes back, tasks that go on without the daemon.

It keeps the task manager on what must never happen, and lives in the event loop of a test.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

TICK_S = 0.002


@dataclass
class Task:
    """A task as its processes are: they do not know of any daemon."""

    name: str
    steps: int
    done: float = 0.0
    held: set[str] = field(default_factory=set)
    added: bool = False  # in this session
    first_reports: bool = False  # in this session, which nodes it holds
    finished: bool = False
    dropped: bool = False
    reported: int = 0


class World:
    """Nodes, tasks, and the line to the daemon of the moment. ``wrongs`` collects what must never happen."""

    def __init__(self, path: Path, nodes: int, seed: int) -> None:
        self.path = path
        self.nodes = [f"n{number}" for number in range(nodes)]
        self.allowed = set(self.nodes[: nodes // 2])
        self.tasks: dict[str, Task] = {}
        self.wrongs: list[str] = []
        self.sessions = 0
        self.pid = 0  # of the daemon of the moment
        self.taken = 0
        self.orders = 0
        self.decided: Counter[tuple[str, str, tuple[str, ...]]] = Counter()  # orders that only a decision leads to
        self.established = asyncio.Event()
        self._dice = random.Random(seed)  # noqa: S311 - the same world every time
        self._writer: asyncio.StreamWriter | None = None
        self._subscribed = False
        self._news = 0
        self._taken_by: dict[str, int] = {}  # node that is not ours -> number of the news that say so
        self._looked: frozenset[str] | None = None
        self._said: list[str] = []  # by the daemon of the moment

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_unix_server(self._met, self.path)
        self._ticking = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ticking.cancel()
        self._server.close()

    async def _tick(self) -> None:
        last = time.monotonic()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.monotonic()
            for task in self.tasks.values():
                if task.held and not task.finished:
                    task.done = min(task.steps, task.done + (now - last) * 100 * len(task.held) ** 0.9)
                    self._advance(task)
            last = now

    def _advance(self, task: Task) -> None:
        while task.reported < int(task.done):
            task.reported += 1
            size = len(task.held)
            message = {"type": "report", "step": task.reported, "size": size, "samples": 10, "loss": 1 / task.reported}
            self._tell(task, message)
        if task.done >= task.steps:
            task.finished = True
            self._end(task)

    def _end(self, task: Task) -> None:
        held, task.held = sorted(task.held), set()
        if held:
            self._tell(task, {"type": "vacated", "nodes": held})
        self._tell(task, {"type": "done", "step": task.steps})

    def shuffle(self) -> None:
        some = set(self._dice.sample(self.nodes, self._dice.randint(1, max(1, len(self.nodes) // 2))))
        if self._dice.random() < 0.5:
            self.take(some & self.allowed)
        else:
            self.lend(some - self.allowed)

    def take(self, nodes: Iterable[str]) -> None:
        nodes = sorted(nodes)
        if nodes:
            self.taken += len(nodes)
            self.allowed.difference_update(nodes)
            self._say_news(nodes, allowed=False)
            self._taken_by.update(dict.fromkeys(nodes, self._news))

    def lend(self, nodes: Iterable[str]) -> None:
        nodes = sorted(nodes)
        if nodes:
            self.allowed.update(nodes)
            for node in nodes:
                self._taken_by.pop(node, None)
            self._say_news(nodes, allowed=True)

    def _say_news(self, nodes: list[str], *, allowed: bool) -> None:
        self._news += 1
        if self._subscribed:
            self._say({"kind": "news", "allowed": allowed, "nodes": nodes, "number": self._news})

    async def _met(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # It may be killed at any time, also while it writes
        with suppress(ConnectionError, ValueError):
            while line := await reader.readline():
                message = json.loads(line)
                if message["type"] == "hello":
                    self._begin_session(writer, message["pid"])
                if writer is self._writer:
                    self._heard(message)
        if writer is self._writer:
            self._writer, self._subscribed = None, False
        writer.close()

    def _begin_session(self, writer: asyncio.StreamWriter, pid: int) -> None:
        self.sessions += 1
        self.pid = pid
        self._writer, self._subscribed, self._looked = writer, False, None
        self._said.clear()
        self.established.clear()
        for task in self.tasks.values():
            task.added = task.first_reports = False

    def _say(self, message: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    def _tell(self, task: Task, message: dict[str, Any]) -> None:
        self._say({"kind": "message", "message": {"t": time.time(), "task": task.name, **message}})

    def _heard(self, message: dict[str, Any]) -> None:
        self._said.append(str(message)[:300])
        match message["type"]:
            case "subscribe":
                self._subscribed = True
            case "look":
                self._looked = frozenset(self.allowed)
                self._say({"kind": "look", "nodes": sorted(self.allowed)})
            case "heard":
                self._check_returned(message["number"])
            case "add":
                new = message["task"] not in self.tasks
                task = self.tasks.setdefault(message["task"], Task(message["task"], message["steps"]))
                task.added, task.first_reports = True, new
                if task.dropped:
                    self._wrong(f"{task.name} was added again after it was over")
            case "drop":
                self.tasks[message["task"]].dropped = True
                self.tasks[message["task"]].held.clear()
            case "apply":
                self._apply(message["actions"])

    def _apply(self, actions: list[dict[str, Any]]) -> None:
        first = all(
            (action["action"] == "start" or not action["nodes"]) and not self.tasks[action["task"]].first_reports
            for action in actions
        )
        for action in actions:
            self.orders += 1
            nodes = set(action["nodes"])
            if action["action"] == "release":
                for task in self.tasks.values():
                    self._leave(task, nodes)
            else:
                self._order(self.tasks[action["task"]], action["action"], nodes)
        holders = [(node, task.name) for task in self.tasks.values() for node in task.held]
        if len({node for node, _ in holders}) != len(holders):
            self._wrong(f"a node serves two tasks: {sorted(holders)} after {actions}")
        if first and not self.established.is_set() and self._looked is not None:
            self._check_established()

    def _order(self, task: Task, what: str, nodes: set[str]) -> None:
        if task.first_reports and what in {
            "start",
            "grow",
        }:  # before its first report, a start says what the task holds already
            self.decided[what, task.name, tuple(sorted(nodes))] += 1
        match what:
            case "start" if task.dropped:
                self._wrong(f"{task.name} was started after it was over")
            case "start" if task.finished:
                self._end(task)  # it goes on from its last state, and ends
            case "start":
                if task.first_reports and task.held:
                    self._wrong(f"{task.name} was started while it ran on {sorted(task.held)}")
                task.held = nodes
            case "grow" if not task.held and not task.finished:
                self._wrong(f"{task.name} was to grow while it did not run")
            case "grow" if not task.finished:
                task.held |= nodes
            case "stop" if not nodes:
                task.held = set()
            case "shrink" | "stop":
                self._leave(task, nodes)
        task.first_reports = task.first_reports or what == "start" or not nodes

    def _leave(self, task: Task, nodes: set[str]) -> None:
        left = sorted(task.held & nodes)
        task.held -= nodes
        if left:
            self._tell(task, {"type": "vacated", "nodes": left})

    def _wrong(self, text: str) -> None:
        self.wrongs.append("\n".join([text, f"in session {self.sessions}, which said:", *self._said[-15:]]))

    def _check_established(self) -> None:
        """After a restart, nothing may be on a node that the scheduler does not let us use."""
        self.established.set()
        for task in self.tasks.values():
            record = task.held - (self._looked or frozenset()) - self.allowed
            if record:
                self._wrong(f"{task.name} kept {sorted(record)} through a restart")
            if task.added and not task.first_reports and not task.dropped:
                self._wrong(f"it was not said of {task.name} which nodes it holds")
            if task.held and not task.added:
                self._wrong(f"{task.name} runs on {sorted(task.held)}, and this is in no record")

    def _check_returned(self, number: int) -> None:
        """What was taken by news that the daemon has dealt with must be empty."""
        if not self.established.is_set():
            return  # what it heard before it knew what it holds is looked at then
        for task in self.tasks.values():
            record = {node for node in task.held if self._taken_by.get(node, number + 1) <= number}
            if record:
                self._wrong(f"{task.name} kept {sorted(record)} after they were taken")
