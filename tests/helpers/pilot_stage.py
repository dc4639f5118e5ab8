"""A batch scheduler in memory, and pilots that are kept in stock there."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest

from bftrain import Availability
from bftrain.live.schedulers.backend import (
    ALIVE,
    CommandFailed,
    CommandRunner,
    Pilot,
    PilotBackend,
    PilotLimits,
    PilotOrder,
    PilotState,
    Run,
    Trouble,
)
from bftrain.live.schedulers.base import AgentOrder, Allowed, News, Remark, Site, Taken
from bftrain.live.schedulers.pilots import PilotJobs, PilotSettings

AGENT = AgentOrder(argv=("agent", "{node}"))


class ToyScheduler(PilotBackend):
    """A batch scheduler in memory: it starts pilots on idle nodes whenever it is asked anything."""

    name = "toy"
    avoids = True

    def __init__(self, *nodes: str) -> None:
        self.nodes = list(nodes)
        self.jobs: dict[str, Pilot] = {}
        self.orders: list[PilotOrder] = []
        self.ids = itertools.count()
        self.away = False
        self.forgets = False  # jobs that are over
        self.most = 1000
        self.most_s = float("inf")
        self.refused_s = float("inf")
        self.starts = True
        self.planned: dict[str, float] = {}
        self.allowed = PilotLimits()
        self.asked = 0

    def available(self) -> Availability:
        return Availability(ok=True)

    def script(self, order: AgentOrder, _: Site) -> str:
        return " ".join(order.argv)

    async def limits(self, _: Run) -> PilotLimits:
        self.answer()
        return self.allowed

    async def submit(self, _: Run, order: PilotOrder, count: int) -> int:
        self.answer()
        self.orders.append(order)
        if len([job for job in self.jobs.values() if job.state in ALIVE]) + count > self.most:
            raise CommandFailed(("submit",), 1, "too many")
        if order.seconds > self.refused_s:
            raise CommandFailed(("submit",), 1, "Requested time limit is invalid")
        if order.seconds > self.most_s:
            raise CommandFailed(("submit",), 1, "too many")
        for _number in range(count):
            id_ = str(next(self.ids))
            self.jobs[id_] = Pilot(id=id_, state=PilotState.WAITING, mark=order.mark)
        return count

    async def pilots(self, _: Run, name: str) -> Sequence[Pilot]:
        self.answer()
        assert name == "bftrain-t"
        avoided = {node for order in self.orders[-1:] for node in order.avoid}
        for job in [*self.jobs.values()]:
            idle = [node for node in self.idle_now() if node not in avoided]
            if self.starts and idle and job.state is PilotState.WAITING:
                self.change(job.id, PilotState.RUNNING, node=idle[0], start_s=time.time())
        return [job for job in self.jobs.values() if job.state in ALIVE or not self.forgets]

    async def cancel(self, _: Run, ids: Collection[str]) -> None:
        self.answer()
        for id_ in ids:
            self.change(id_, PilotState.TAKEN)

    async def idle(self, _: Run) -> frozenset[str]:
        self.answer()
        return frozenset(self.idle_now())

    async def plans(self, _: Run, _name: str) -> Mapping[str, float]:
        self.answer()
        return self.planned

    def trouble(self, failed: CommandFailed) -> Trouble:
        return Trouble.LIMIT if failed.error_text == "too many" else Trouble.AWAY

    def answer(self) -> None:
        self.asked += 1
        if self.away:
            raise CommandFailed(("toy",), 1, "not reachable")

    def idle_now(self) -> list[str]:
        held = {job.node for job in self.jobs.values() if job.state in ALIVE}
        return [node for node in self.nodes if node not in held]

    def change(self, id_: str, state: PilotState, **more: Any) -> None:  # noqa: ANN401 - fields of a pilot
        end = {"end_s": time.time()} if state not in ALIVE else {}
        self.jobs[id_] = msgspec.structs.replace(self.jobs[id_], state=state, **end, **more)

    def count(self, *states: PilotState) -> int:
        return sum(job.state in states for job in self.jobs.values())

    def take(self, node: str, *, why: PilotState = PilotState.TAKEN) -> None:
        """Take a node from us, and from the machine."""
        self.nodes.remove(node)
        (id_,) = [job.id for job in self.jobs.values() if job.node == node and job.state in ALIVE]
        self.change(id_, why)


class PilotStage:
    """A scheduler over a toy, running, and what it posts."""

    def __init__(
        self,
        folder: Path,
        *nodes: str,
        toy: ToyScheduler | None = None,
        owner: str = "",
        **settings: Any,  # noqa: ANN401 - settings
    ) -> None:
        self.toy = toy or ToyScheduler(*nodes)
        self.news: list[News] = []
        known = {"pending": 2, "lengths_s": (3600.0,), "poll_s": 0.05, "submits_per_min": 100_000.0, **settings}
        self.scheduler = PilotJobs(
            self.toy, PilotSettings(**known), Site(name="t", folder=folder, owner=owner), CommandRunner(timeout_s=1)
        )
        self.running: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    def begin(self, agent: AgentOrder = AGENT) -> None:
        self.running = asyncio.create_task(self.scheduler.run(self.news.append, agent))

    async def end(self) -> None:
        assert self.running is not None
        self.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.running

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        for _ in range(1000):
            if holds():
                return
            assert self.running is None or not self.running.done(), self.running
            self.scheduler.hint()
            await asyncio.sleep(0.01)
        pytest.fail(f"{what}: {self.news} {self.toy.jobs}")

    async def fail_all_pilots(self) -> None:
        """Let each pilot that starts fail, for 300 looks."""
        for _ in range(300):
            for job in [*self.toy.jobs.values()]:
                if job.state is PilotState.RUNNING:
                    self.toy.change(job.id, PilotState.FAILED)
            self.scheduler.hint()
            await asyncio.sleep(0.001)

    def idle_nodes(self) -> dict[str, float | None]:
        ours: dict[str, float | None] = {}
        for one in self.news:
            match one:
                case Allowed():
                    ours |= dict.fromkeys(one.nodes, one.until_s)
                case Taken():
                    for node in one.nodes:
                        del ours[node]
        return ours

    def remarks(self) -> str:
        return "\n".join(one.text for one in self.news if isinstance(one, Remark))
