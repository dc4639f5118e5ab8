"""Node manager: turns reports of the scheduler, the agents and the operators into events, and gives nodes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from bftrain.live.decision_loop import DecisionLoop
from bftrain.live.model.site_config import NodeKinds, Times
from bftrain.live.nodes.reconcile import NodeTracker, node_events
from bftrain.live.schedulers.pools import in_words, keep_running
from bftrain.live.schedulers.port import AgentOrder, Allowed, News, Remark, Scheduler, Taken
from bftrain.live.tasks.launcher_pool import LauncherPool
from bftrain.values.curve import OTHER_KIND
from bftrain.values.events import NodesJoined, NodesLeft

_SWEEP_S: Final = 10.0  # between two times that nodes are given back which should have been


@dataclass(eq=False, repr=False)
class NodeManager:
    """Keeps the pool what it should be. Everything belongs to the event loop."""

    _scheduler: Scheduler
    node_tracker: NodeTracker
    _launcher_pool: LauncherPool
    _decision_loop: DecisionLoop
    _times: Times
    _remark: Callable[[str], None]
    kinds: NodeKinds

    def __post_init__(self) -> None:
        self.gentle: set[str] = set()  # nodes that are left in a planned way
        self._loop = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._since_look: list[News] | None = None
        self._wanted: tuple[int, frozenset[str], Mapping[str, int]] | None = None
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

    async def check(self, agent: AgentOrder, patience_s: float) -> None:
        """Raise ``NotAvailable`` if the scheduler can never work with the site's settings, as far as it knows."""
        check = getattr(self._scheduler, "check", None)
        if check is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await check(agent)

    def run(self, agent: AgentOrder) -> None:
        """Listen to the scheduler from now on, and ask it now and then."""
        self._start(self._run(agent))

    def open(self) -> None:
        """Change the pool from now on; and ask the scheduler now and then, in case that its news got lost."""
        self._opened = True

        async def look_often() -> None:
            while True:
                await asyncio.sleep(self._times.look_s)
                if await self.look(self._times.look_s) is not None:
                    self.look_over()

        self._start(look_often())

    async def look(self, patience_s: float) -> frozenset[str] | None:
        """Ask the scheduler which nodes are ours; news that came meanwhile are newer than the answer."""
        self._since_look = []
        try:
            async with asyncio.timeout(patience_s):
                allowed = await self._scheduler.look()
        except Exception as error:  # noqa: BLE001 - a scheduler of others may do anything
            self._remark(f"scheduler '{self._scheduler.name}' cannot be asked: {in_words(error)}")
            allowed = None
        since, self._since_look = self._since_look or [], None
        if allowed is not None:
            if not self._scheduler.agents_suffice:
                self._hurry(self.node_tracker.ours - allowed)
            self.node_tracker.allow_only(allowed)
            for news in since:
                self.news(news)
        return allowed

    def news(self, news: News) -> None:
        """Take in what the scheduler says."""
        if self._since_look is not None:
            self._since_look.append(news)
        match news:
            case Allowed():
                self.node_tracker.allow(news.nodes, news.until_s)
            case Taken():
                self.node_tracker.take(news.nodes)
                self._hurry([node for node in news.nodes if node not in self._deadlines])  # these have their grace
            case Remark():
                self._remark(news.text)
                return
        if self._soon is None:
            self._soon = self._loop.call_soon(self.look_over)

    def want(self, nodes: int, drained: frozenset[str], by_kind: Mapping[str, int]) -> None:
        """Tell the scheduler how many nodes could be used, and of which kind how many."""
        if not self._closed and (nodes, drained, by_kind) != self._wanted:
            self._wanted = (nodes, drained, by_kind)
            if (want_kinds := getattr(self._scheduler, "want_kinds", None)) is not None:
                want_kinds(by_kind)
            self._scheduler.want(nodes, drained)

    def keep_hours(self) -> None:
        """Leave nodes of pools whose hours are over, and use those of pools whose hours have begun; now and then."""
        off_hours = getattr(self._scheduler, "off_hours", None)
        if off_hours is not None and not self._closed and (off := off_hours()) != self.node_tracker.off_hours:
            self.node_tracker.off_hours = off
            self.leave(off)

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
                self.node_tracker.came(node)
            else:
                self.node_tracker.went(node)
                self._hurry((node,))
        self.look_over()
        if self.node_tracker.paused:  # a pilot that waited has begun
            self.give_back([node for node, came in changes if came])
        self._scheduler.hint()
        self._moved.set()

    def notice(self, node: str, grace_s: float) -> None:
        """Leave a node in a planned way that the scheduler takes in ``grace_s`` seconds.

        Its agent leaves by itself when no worker is left there, so it is given back only if that takes too long.
        """
        if node not in self.node_tracker.present or node in self._deadlines:
            return
        self._scheduler.noticed(node)

        def over() -> None:
            self._hurry((node,))
            self.give_back((node,))

        self._deadlines[node] = self._loop.call_later(grace_s, over)
        self.node_tracker.noticed.add(node)
        self.leave((node,))

    async def reunite(self, patience_s: float) -> None:
        """Give agents that were known the time to come back; the nodes of those that do not count as lost."""
        await self._until(lambda: not self.node_tracker.expected or self._closed, patience_s)
        lost = self.node_tracker.expected
        self.node_tracker.expect(())
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
        loop = self._decision_loop
        if events := tuple(node_events(loop.pool, self.node_tracker.ours, loop.now, self.kinds)):
            loop.on_events(*events)

    def leave(self, nodes: Collection[str]) -> None:
        """Have nodes given up in a planned way; the caller has said that they are no longer ours."""
        self.gentle.update(self._decision_loop.pool.intersection(nodes))
        self.look_over()

    def leave_all(self) -> None:
        """Give up all nodes in a planned way, and those at once on which an agent has nothing to do."""
        idle = self.node_tracker.present - self._decision_loop.pool - self._launcher_pool.lingering
        self.leave(self._decision_loop.pool)
        self.give_back(sorted(idle.difference(self._deadlines)))

    def joined(self, event: NodesJoined) -> None:
        """Keep nodes that were on their way out; say which are of no kind that is named."""
        if event.kind == OTHER_KIND:
            some = f"node '{event.nodes[0]}'" + (f" and {len(event.nodes) - 1} others" if event.nodes[1:] else "")
            self._remark(f"{some}: [kinds] names no kind")
        self.gentle.difference_update(event.nodes)
        self._launcher_pool.keep(event.nodes)

    def left(self, event: NodesLeft) -> None:
        """Let go of nodes that were left in a planned way and on which nothing was."""
        left = self.gentle.intersection(event.nodes) - self._launcher_pool.lingering
        self.give_back(sorted(left.difference(self._deadlines)))

    def vacated(self, task: str, nodes: Sequence[str]) -> None:
        """Let go of nodes that a task was asked to leave, now that it has."""
        vacated = self._launcher_pool.vacated(task, nodes)
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
        overdue = self._launcher_pool.overdue(self._times.drain_s).difference(self._deadlines)
        if overdue:
            self._launcher_pool.clear(overdue)
            self.give_back(sorted(overdue))
            self._moved.set()
        if time.monotonic() - self._swept >= _SWEEP_S:
            self._swept = time.monotonic()
            tracker = self.node_tracker
            unused = tracker.drained | tracker.off_hours
            idle = set(tracker.present if tracker.paused else unused & tracker.present)
            idle -= self._decision_loop.pool | self._launcher_pool.lingering
            self.give_back(sorted(idle - self._giving))

    async def drain(self, *, began: bool) -> None:
        """Leave all nodes in a planned way, if it ``began``, and end everything of ours at the scheduler."""
        self._closed = True
        self._moved.set()
        self.node_tracker.closed = True
        if began:
            self.leave(self._decision_loop.pool)
            pool, tracker = self._launcher_pool, self.node_tracker
            # Not on those whose agents have not come back: tasks cannot give them up
            await self._until(
                lambda: not (pool.lingering & tracker.present if tracker.agents_used else pool.lingering),
                self._times.drain_s,
            )
            self._launcher_pool.clear(self._launcher_pool.lingering)
        self.close()
        try:
            await self._scheduler.leave()
        except Exception as error:  # noqa: BLE001 - a scheduler of others may do anything
            self._broke(error)

    def close(self) -> None:
        """Listen no more."""
        self._closed = True
        for job in self._jobs:
            job.cancel()
        for deadline in self._deadlines.values():
            deadline.cancel()

    def _broke(self, error: Exception) -> None:
        self._remark(f"scheduler '{self._scheduler.name}': {in_words(error)}")

    def _hurry(self, nodes: Collection[str]) -> None:
        """Nodes are taken, and there is no time for a planned change."""
        for node in self._deadlines.keys() & set(nodes):
            self._deadlines.pop(node).cancel()
        self.gentle.difference_update(nodes)
        self._launcher_pool.clear(nodes)
        self._moved.set()

    async def _until(self, true: Callable[[], bool], patience_s: float) -> None:
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
        await keep_running(lambda: self._scheduler.run(self.news, agent), self._broke)

    async def _give_back(self, nodes: tuple[str, ...]) -> None:
        self._giving.update(nodes)
        try:
            await self._scheduler.give_back(nodes)
        except Exception as error:  # noqa: BLE001 - a scheduler of others may do anything
            self._broke(error)
        finally:
            self._giving.difference_update(nodes)
