"""Node manager: turns reports of the scheduler, the agents and the operators into events, and gives nodes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from bftrain.live.decision_loop import DecisionLoop
from bftrain.live.model.node_kinds import NodeKinds
from bftrain.live.model.site_config import Times
from bftrain.live.nodes import reconcile
from bftrain.live.nodes.usable_nodes import NodeTracker
from bftrain.live.schedulers.port import AgentOrder, Allowed, News, Remark, Scheduler, Taken
from bftrain.live.tasks.launcher_pool import LauncherPool
from bftrain.values.events import NodesJoined, NodesLeft
from bftrain.values.kinds import OTHER_KIND

_AGAIN_S: Final = 1.0  # before a scheduler that broke is run again; twice as long each time
_MOST_AGAIN_S: Final = 60.0
_LASTED_S: Final = 60.0  # what ran so long did work
_SWEEP_S: Final = 10.0  # between two times that nodes are given back which should have been


class NodeManager:
    """Keeps the pool what it should be. Everything belongs to the event loop."""

    def __init__(
        self,
        scheduler: Scheduler,
        ground: NodeTracker,
        carriers: LauncherPool,
        stepper: DecisionLoop,
        times: Times,
        remark: Callable[[str], None],
        kinds: NodeKinds,
    ) -> None:
        self.ground = ground
        self.kinds = kinds
        self.gentle: set[str] = set()  # nodes that are left in a planned way
        self._scheduler = scheduler
        self._carriers = carriers
        self._stepper = stepper
        self._times = times
        self._remark = remark
        self._loop = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._since_look: list[News] | None = None
        self._wanted: tuple[int, frozenset[str]] | None = None
        self._idle_since = self._swept = time.monotonic()
        self._giving: set[str] = set()  # nodes that the scheduler is just asked to take
        self._deadlines: dict[str, asyncio.TimerHandle] = {}  # noticed nodes -> when their grace is over
        self._jobs: set[asyncio.Task[None]] = set()
        self._moved = asyncio.Event()
        self._opened = self._closed = False

    # -- the scheduler

    @property
    def ends_agents(self) -> bool:
        """Whether nothing of ours is left on a node that the scheduler does not let us use."""
        return bool(getattr(self._scheduler, "ends_agents", self._scheduler.agents_suffice))

    def run(self, agent: AgentOrder) -> None:
        """Listen to the scheduler from now on, and ask it now and then."""
        self._start(self._run(agent))

    def open(self) -> None:
        """Change the pool from now on; and ask the scheduler now and then, in case that its news got lost."""
        self._opened = True
        self._start(self._look_often())

    async def look(self, patience_s: float) -> frozenset[str] | None:
        """Ask the scheduler which nodes are ours; news that came meanwhile are newer than the answer."""
        self._since_look = []
        try:
            async with asyncio.timeout(patience_s):
                allowed = await self._scheduler.look()
        except Exception as error:  # noqa: BLE001 - a scheduler of others may do anything
            self._remark(f"scheduler '{self._scheduler.name}' cannot be asked: {type(error).__name__}: {error}")
            allowed = None
        since, self._since_look = self._since_look or [], None
        if allowed is not None:
            if not self._scheduler.agents_suffice:
                self._hurry(self.ground.ours - allowed)
            self.ground.allow_only(allowed)
            for news in since:
                self.news(news)
        return allowed

    def news(self, news: News) -> None:
        """Take in what the scheduler says."""
        if self._since_look is not None:
            self._since_look.append(news)
        match news:
            case Allowed():
                self.ground.allow(news.nodes, news.until_s)
            case Taken():
                self.ground.take(news.nodes)
                self._hurry([node for node in news.nodes if node not in self._deadlines])  # these have their grace
            case Remark():
                self._remark(news.text)
                return
        if self._soon is None:
            self._soon = self._loop.call_soon(self.look_over)

    def want(self, nodes: int, drained: frozenset[str]) -> None:
        """Tell the scheduler how many nodes could be used."""
        if not self._closed and (nodes, drained) != self._wanted:
            self._wanted = (nodes, drained)
            self._scheduler.want(nodes, drained)

    def rest(self, pool: frozenset[str]) -> None:
        """Hold no nodes when there has been nothing to do for a while; looked at now and then."""
        if self._wanted is None or self._wanted[0] or not pool or not self._scheduler.agents_suffice:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > self._times.idle_s:
            self._idle_since = time.monotonic()
            self.give_back(sorted(pool))

    # -- agents

    def agents(self, changes: Sequence[tuple[str, bool]]) -> None:
        """Know which agents came (true) and went, in this order."""
        for node, came in changes:
            if came:
                self.ground.came(node)
            else:
                self.ground.went(node)
                self._hurry((node,))
        self.look_over()
        self._scheduler.hint()
        self._moved.set()

    def signalled(self, node: str) -> None:
        """Pass on that the scheduler ordered the agent of a node to end."""
        self._scheduler.noticed(node)

    def notice(self, node: str, grace_s: float) -> None:
        """Leave a node in a planned way that the scheduler takes in ``grace_s`` seconds.

        Its agent leaves by itself when no worker is left there, so it is given back only if that takes too long.
        """
        if node not in self.ground.present or node in self._deadlines:
            return
        self.signalled(node)
        self._deadlines[node] = self._loop.call_later(grace_s, self._grace_is_over, node)
        self.ground.notice(node)
        self.leave((node,))

    def _grace_is_over(self, node: str) -> None:
        self._hurry((node,))
        self.give_back((node,))

    async def reunite(self, patience_s: float) -> None:
        """Give agents that were known the time to come back; the nodes of those that do not count as lost."""
        await self._until(lambda: not self.ground.expected or self._closed, patience_s)
        lost = self.ground.expected
        self.ground.expect(())
        self.look_over()
        if self._scheduler.agents_suffice:
            self.give_back(sorted(lost))  # a pilot whose agent hangs holds a node for nothing

    # -- the pool

    def look_over(self) -> None:
        """See that the pool is what is ours."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if not self._opened:
            return  # what we knew before is looked at first
        events = tuple(reconcile.nodes(self._stepper.pool, self.ground.ours, self._stepper.now, self.kinds))
        if events:
            self._stepper.happened(*events)

    def leave(self, nodes: Collection[str]) -> None:
        """Have nodes given up in a planned way; the caller has said that they are no longer ours."""
        self.gentle.update(self._stepper.pool.intersection(nodes))
        self.look_over()

    def joined(self, event: NodesJoined) -> None:
        """Keep nodes that were on their way out; say which are of no kind that is named."""
        if event.kind == OTHER_KIND:
            some = f"node '{event.nodes[0]}'" + (f" and {len(event.nodes) - 1} others" if event.nodes[1:] else "")
            self._remark(f"{some}: [kinds] names no kind")
        self.gentle.difference_update(event.nodes)
        self._carriers.keep(event.nodes)

    def left(self, event: NodesLeft) -> None:
        """Let go of nodes that were left in a planned way and on which nothing was."""
        left = self.gentle.intersection(event.nodes) - self._carriers.lingering
        self.give_back(sorted(left.difference(self._deadlines)))

    def vacated(self, task: str, nodes: Sequence[str]) -> None:
        """Let go of nodes that a task was asked to leave, now that it has."""
        vacated = self._carriers.vacated(task, nodes)
        self.give_back([node for node in vacated if node not in self._deadlines])
        self._moved.set()

    def give_back(self, nodes: Collection[str]) -> None:
        """Let go of nodes at the scheduler."""
        if nodes and not self._closed:
            self._start(self._give_back(tuple(nodes)))

    def sweep(self) -> None:
        """Let go of nodes that tasks do not give up in time, or that were not taken when given back; now and then.

        Drained nodes are given back until their agents are gone: a request may fail, we may have been killed between
        a drain and the end of it, and a pilot that waited may begin on a drained node.
        """
        overdue = self._carriers.overdue(self._times.drain_s).difference(self._deadlines)
        if overdue:
            self._carriers.clear(overdue)
            self.give_back(sorted(overdue))
            self._moved.set()
        if time.monotonic() - self._swept >= _SWEEP_S:
            self._swept = time.monotonic()
            world = self.ground.world
            idle = (world.present & world.drained) - self._stepper.pool - self._carriers.lingering
            self.give_back(sorted(idle - self._giving))

    async def drain(self, *, began: bool) -> None:
        """Leave all nodes in a planned way, if it ``began``, and end everything of ours at the scheduler."""
        self._closed = True
        self._moved.set()
        self.ground.close()
        if began:
            self.leave(self._stepper.pool)
            await self._until(lambda: not self._lingering_there, self._times.drain_s)
            self._carriers.clear(self._carriers.lingering)
        self.close()
        try:
            await self._scheduler.leave()
        except Exception as error:  # noqa: BLE001 - a scheduler of others may do anything
            self._remark(f"scheduler '{self._scheduler.name}': {type(error).__name__}: {error}")

    def close(self) -> None:
        """Listen no more."""
        self._closed = True
        for job in self._jobs:
            job.cancel()
        for deadline in self._deadlines.values():
            deadline.cancel()

    # -- within

    @property
    def _lingering_there(self) -> frozenset[str]:
        """The nodes that tasks are about to give up; not those whose agents have not come back, for these cannot."""
        lingering = self._carriers.lingering
        return lingering & self.ground.present if self.ground.world.agents_used else lingering

    def _hurry(self, nodes: Collection[str]) -> None:
        """Nodes are taken, and there is no time for a planned change."""
        for node in nodes:
            deadline = self._deadlines.pop(node, None)
            if deadline is not None:
                deadline.cancel()
        self.gentle.difference_update(nodes)
        self._carriers.clear(nodes)
        self._moved.set()

    async def _until(self, true: Callable[[], bool], patience_s: float) -> None:
        """Wait until something of agents and nodes is so, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while not true():
                    self._moved.clear()
                    await self._moved.wait()

    def _start(self, job: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(job)
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)

    async def _run(self, agent: AgentOrder) -> None:
        again_s = _AGAIN_S
        while True:
            began = time.monotonic()
            try:
                await self._scheduler.run(self.news, agent)
            except Exception as error:  # noqa: BLE001 - a scheduler of others may do anything; it is tried again
                self._remark(f"scheduler '{self._scheduler.name}': {type(error).__name__}: {error}")
            if time.monotonic() - began >= _LASTED_S:
                again_s = _AGAIN_S
            await asyncio.sleep(again_s)
            again_s = min(2 * again_s, _MOST_AGAIN_S)

    async def _look_often(self) -> None:
        while True:
            await asyncio.sleep(self._times.look_s)
            if await self.look(self._times.look_s) is not None:
                self.look_over()

    async def _give_back(self, nodes: tuple[str, ...]) -> None:
        self._giving.update(nodes)
        try:
            await self._scheduler.give_back(nodes)
        except Exception as error:  # noqa: BLE001 - a scheduler of others may do anything
            self._remark(f"scheduler '{self._scheduler.name}': {type(error).__name__}: {error}")
        finally:
            self._giving.difference_update(nodes)
