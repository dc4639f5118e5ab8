"""A daemon for fault tests: real process, journal and API; its scheduler and launcher stand in the test's world.

``python -m tests.helpers.live_child`` imports everything once, and then forks a daemon for each line it reads. A line
says where in its work the daemon is to be killed: before or after the n-th call of something.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from bftrain import Availability, Journal, Limits, Solution, ValueTable, registry
from bftrain.config import LiveSettings
from bftrain.live import process, timeouts
from bftrain.live.daemon.task_manager import LauncherPool, TaskManager
from bftrain.live.daemon.task_store import TaskStore
from bftrain.live.model.site_config import Agents, SiteSettings, Times
from bftrain.live.process import LiveProcess
from bftrain.live.schedulers.base import AgentOrder, Allowed, Post, Scheduler, Site, Taken
from bftrain_solvers.exact import solver as exact

HERE = "tests.helpers.live_child"
POINTS: dict[str, tuple[type, str]] = {
    "events": (Journal, "append_events"),
    "decision": (Journal, "append_decision"),
    "change": (Journal, "change"),
    "keep": (Journal, "keep"),
    "orders": (LauncherPool, "carry_out"),
    "establish": (LauncherPool, "establish"),
    "add": (LauncherPool, "add"),
    "drop": (LauncherPool, "drop"),
    "remember": (TaskStore, "add"),
    "finish": (TaskManager, "finish"),
    "begin": (TaskStore, "begin"),
}


class Link:
    """Our end of the line to the world."""

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(path)
        self._lock = threading.Lock()
        self.heard: dict[str, Callable[[dict[str, Any]], object]] = {}
        self.say({"type": "hello", "pid": os.getpid()})
        threading.Thread(target=self._listen, daemon=True).start()

    def say(self, message: dict[str, Any]) -> None:
        with self._lock:
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _listen(self) -> None:
        with suppress(OSError):  # the world ends
            for line in self._socket.makefile("rb"):
                message = json.loads(line)
                if message["kind"] in self.heard:
                    self.heard[message["kind"]](message)


link: Link


class WorldScheduler(Scheduler):
    name = "world"

    def available(self) -> Availability:
        return Availability(ok=True)

    async def run(self, post: Post, agent: AgentOrder) -> None:  # noqa: ARG002 - the port's signature
        loop = asyncio.get_running_loop()

        def heard(message: dict[str, Any]) -> None:
            kind = Allowed if message["allowed"] else Taken
            post(kind(nodes=tuple(message["nodes"])))
            # What follows from it is done when its turn in the loop comes, which is before ours
            loop.call_soon(lambda: link.say({"type": "heard", "number": message["number"]}))

        link.heard["news"] = lambda message: loop.call_soon_threadsafe(heard, message)
        link.say({"type": "subscribe"})
        await asyncio.Event().wait()

    async def look(self) -> frozenset[str] | None:
        answer: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        loop = asyncio.get_running_loop()
        link.heard["look"] = lambda message: loop.call_soon_threadsafe(answer.set_result, message["nodes"])
        link.say({"type": "look"})
        return frozenset(await answer)

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        pass

    async def give_back(self, nodes: Collection[str]) -> None:
        pass

    async def leave(self) -> None:
        link.say({"type": "leave"})


class WorldLauncher:
    name = "world"

    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        link.heard["message"] = lambda message: tell(message["message"])

    def add(self, task: str, job: Mapping[str, Any]) -> None:
        link.say({"type": "add", "task": task, "steps": int(job["argv"][1])})

    def apply(self, actions: Sequence[Mapping[str, Any]]) -> None:
        link.say({"type": "apply", "actions": [dict(action) for action in actions]})

    def drop(self, task: str) -> None:
        link.say({"type": "drop", "task": task})

    def close(self) -> None:
        link.say({"type": "close"})


class SlowSolver:
    """Takes its time, so that things happen while it thinks."""

    name = "slow"

    def available(self) -> Availability:
        return Availability(ok=True)

    def solve(self, table: ValueTable, limits: Limits) -> Solution:
        time.sleep(0.02 * (hash(table.problem.tasks[0].name) % 3) / 2 if table.problem.tasks else 0)
        return exact.solve(table, limits)


slow = SlowSolver()


def make_scheduler(table: Mapping[str, object], site: Site) -> WorldScheduler:  # noqa: ARG001 - the port's signature
    return WorldScheduler()


def make_launcher(tell: Callable[[dict[str, Any]], None], hub: object) -> WorldLauncher:  # noqa: ARG001 - as above
    return WorldLauncher(tell)


def site_of(folder: Path, solver: str) -> SiteSettings:
    return SiteSettings(
        folder=str(folder),
        state=str(folder),
        launcher="world",
        scheduler={"name": "world"},
        deciding=LiveSettings(solver=solver, max_tasks=6),
        agents=Agents(used=False),
        times=Times(drain_s=5.0),
    )


def die_at(point: str, when: str, number: int) -> None:
    """Die before or after the ``number``-th call of something."""
    owner, name = POINTS[point]
    function = getattr(owner, name)
    calls = count(1)

    def wrapped(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as it takes
        mine = next(calls) == number
        if mine and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*args, **kwargs)
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, wrapped)


def live(order: dict[str, Any]) -> None:
    global link  # noqa: PLW0603 - one for each process
    folder = Path(order["folder"])
    with (folder / "words").open("ab", buffering=0) as words:
        os.dup2(words.fileno(), 1)
        os.dup2(words.fileno(), 2)
    link = Link(order["world"])
    if "point" in order:
        die_at(order["point"], order["when"], order["number"])
    asyncio.run(LiveProcess(site_of(folder, order["solver"])).run())


PARTS = {"scheduler": ("world", "make_scheduler"), "launcher": ("world", "make_launcher"), "solver": ("slow", "slow")}


def main() -> None:
    built_in: Any = registry.BUILT_IN
    for port, (name, attribute) in PARTS.items():
        built_in[port][name] = f"{HERE}:{attribute}"
    timeouts.LIMITS = replace(timeouts.LIMITS, snapshot_steps=25)  # so that restarts begin there too
    registry.load("solver", "exact")
    registry.load("solver", "greedy")
    assert process
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                live(json.loads(line))
                code = 0
            finally:
                sys.stdout.flush()
                os._exit(code)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.modules[HERE] = sys.modules["__main__"]
    main()
