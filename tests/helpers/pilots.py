"""Pilots on a scheduler of the tests: our side of it in a thread with its loop, and a hub that their agents find."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar
from unittest import mock

from bftrain.live.schedulers import slurm
from bftrain.live.schedulers.base import (
    AgentOrder,
    Allowed,
    MakeScheduler,
    News,
    Remark,
    Scheduler,
    SchedulerPool,
    SchedulerPools,
    Site,
    Taken,
    pools_of,
)
from bftrain.live.schedulers.hooks import READER, HookListener, HookNews, HookSpool
from bftrain_elastic.manager.agent_hub import AgentHub
from bftrain_elastic.wire.authenticated_stream import make_secret
from tests.helpers.slurm import Slurm, wait_until

R = TypeVar("R")
# Only this module imports these for end-to-end tests
__all__ = [
    "QUICK",
    "READER",
    "AgentOrder",
    "Allowed",
    "HookListener",
    "HookNews",
    "HookSpool",
    "Pilots",
    "SchedulerPool",
    "SchedulerPools",
    "SchedulerRunner",
    "Site",
    "Taken",
    "end_all",
    "pools_of",
]

# Many nodes share this machine, so pilots and the looks at them come sooner than they would on a real one
QUICK = {"partition": "pilot", "pending": 2, "poll_s": 1.0}


class SchedulerRunner:
    """Runs the scheduler that ``make`` makes while it is open; the folder is the shared one. Close leaves pilots alone.

    ``env`` is the environment in which the scheduler's commands find theirs.
    """

    owner = "a"  # the mark of the live run's state

    def __init__(
        self,
        make: MakeScheduler,
        settings: Mapping[str, object],
        folder: Path,
        env: Mapping[str, str],
        *,
        preload: str = "",
        patience_s: float = 30.0,
        hub: AgentHub | None = None,
        hints: bool = True,
    ) -> None:
        self.folder = folder
        self._hints = hints  # tell the scheduler of agents that come and go
        self.news: list[News] = []
        self.messages: list[dict[str, Any]] = []
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.secret = folder / "secret"
        self.hub = hub or AgentHub(self._hear, make_secret(self.secret))
        self._own_hub = hub is None
        with mock.patch.dict(os.environ, env, clear=True):
            self.scheduler: Scheduler = make(settings, Site(name="test", folder=folder, owner=self.owner))
        words = [sys.executable, "-m", "bftrain_elastic.agent", "--manager", f"127.0.0.1:{self.hub.address[1]}"]
        words += ["--secret", str(self.secret), "--node", "{node}", "--preload", preload]
        self.order = AgentOrder(argv=(*words, "--patience", str(patience_s)))
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._running: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        self._running = self.ask(self._begun())
        return self

    def __exit__(self, *_: object) -> None:
        self.end_scheduler()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        if self._own_hub:
            self.hub.close()

    def end_scheduler(self) -> None:
        """End the scheduler's side as a manager that ends does; the hub stays open for the agents."""
        self.ask(self._ended())

    async def _begun(self) -> asyncio.Task[None]:
        return asyncio.create_task(self.scheduler.run(self.news.append, self.order))

    async def _ended(self) -> None:
        assert self._running is not None
        self._running.cancel()
        await asyncio.wait({self._running})  # a command that it is at is killed first, and that takes its time
        self.problem()  # or asyncio complains that the exception was not read

    def _hear(self, message: dict[str, Any]) -> None:
        self.messages.append(message)
        if self._hints and message["type"] in {"registered", "gone"} and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(self.scheduler.hint)

    def ask(self, what: Coroutine[Any, Any, R], timeout_s: float = 60) -> R:
        """Let our loop do something, and give what it gives."""
        return asyncio.run_coroutine_threadsafe(what, self.loop).result(timeout_s)

    def do(self, what: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(what)

    def problem(self) -> BaseException | None:
        """Return what ended the scheduler, if anything did."""
        assert self._running is not None
        ended = self._running.done() and not self._running.cancelled()
        return self._running.exception() if ended else None

    def remarks(self) -> str:
        return "\n".join(one.text for one in self.news if isinstance(one, Remark))

    def agents(self) -> set[str]:
        return set(self.hub.nodes())

    def ours(self) -> set[str]:
        """Name the nodes that are ours by what was posted."""
        ours: set[str] = set()
        for one in self.news:
            match one:
                case Allowed():
                    ours |= set(one.nodes)
                case Taken():
                    ours -= set(one.nodes)
        return ours

    def wait_for(self, nodes: Iterable[str], what: str = "pilots run on these nodes, and on no others") -> None:
        """Wait until agents are registered from these nodes alone, and that was posted too."""
        wanted = set(nodes)
        wait_until(lambda: self.agents() == wanted == self.ours(), f"{what}: {sorted(wanted)}", self.tell)

    def tell(self) -> str:
        logs = "".join(f"{log.name}: {log.read_text()}" for log in (self.folder / "pilots").glob("*.log"))
        return f"{self.problem()}\n{sorted(self.agents())}\n{self.news[-5:]}\n{logs}"

    def gone_at(self, node: str, since_s: float) -> float | None:
        """Return when the agent of a node said goodbye after ``since_s``."""
        times = [
            one["t"] for one in self.messages if one["type"] == "gone" and one["node"] == node and one["t"] >= since_s
        ]
        return min(times, default=None)


class Pilots(SchedulerRunner):
    """Keeps pilots on a Slurm."""

    def __init__(
        self,
        cluster: Slurm,
        folder: Path,
        *,
        preload: str = "",
        patience_s: float = 30.0,
        hub: AgentHub | None = None,
        hints: bool = True,
        **settings: object,
    ) -> None:
        self.cluster = cluster
        more = {"preload": preload, "patience_s": patience_s, "hub": hub, "hints": hints}
        super().__init__(slurm.make, {**QUICK, **settings}, folder, cluster.env, **more)  # type: ignore[arg-type]  # as above

    def jobs(self, *states: str) -> list[str]:
        """Return the ids of pilots in these states of Slurm's, in any that is not over if none is named."""
        which = ",".join(states) or "PENDING,RUNNING,COMPLETING"
        said = self.cluster.run("squeue", "-h", "-r", "-p", "pilot", "-t", which, "-o", "%i").stdout
        return said.split()

    def tell(self) -> str:
        return super().tell() + self.cluster.run("squeue", "-r", "-t", "all", check=False).stdout


def end_all(cluster: Slurm) -> None:
    """Cancel all jobs and wait until all nodes are idle, so that the next test finds them so."""
    cluster.run("scancel", "--user", str(os.getuid()), check=False)
    wait_until(lambda: cluster.idle() == set(cluster.nodes), "all nodes are idle", cluster.logs)
