"""NodeManager: turns reports of scheduler, agents and operators into events, and returns nodes.

The daemon calls it with the nodes of the pool, and passes its events to the decision loop. NodeTracker combines the
reports into the usable nodes, and ``node_events`` brings the pool in line with them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from bftrain.live import timeouts
from bftrain.live.daemon.task_manager import LauncherPool
from bftrain.live.model.site_config import NodeKinds, Times
from bftrain.live.schedulers.base import AgentOrder, Allowed, News, Remark, Scheduler, Taken, in_words, keep_running
from bftrain.node_units import node_of
from bftrain.values.curve import OTHER_KIND
from bftrain.values.events import Event, NodesJoined, NodesLeft

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class NodeManager:
    """Keeps the pool in line with the reports. All methods run in the event loop.

    After a call the daemon asks for new :meth:`events`. ``changed`` is called when there may be events without a call
    of the daemon: after reports of the scheduler, and when agents had time to reconnect after a restart.
    """

    _scheduler: Scheduler
    node_tracker: NodeTracker
    _launcher_pool: LauncherPool
    _times: Times
    kinds: NodeKinds
    _changed: Callable[[], None]

    def __post_init__(self) -> None:
        self.vacating: set[str] = set()  # nodes that tasks leave as in a planned change
        self._loop = asyncio.get_running_loop()
        self._soon: asyncio.Handle | None = None
        self._since_look: list[News] | None = None
        self._wanted: tuple[int, frozenset[str], Mapping[str, int]] | None = None
        self._idle_since = self._swept = time.monotonic()
        self._giving: set[str] = set()  # nodes whose release is in progress
        self._deadlines: dict[str, asyncio.TimerHandle] = {}  # noticed nodes -> end of their grace period
        self._jobs: set[asyncio.Task[None]] = set()
        self._moved = asyncio.Event()
        self._opened = self._closed = self._misnamed = False

    async def check(self, agent: AgentOrder, patience_s: float) -> None:
        """Raise ``NotAvailable`` if the scheduler can never work with the site's settings, as far as it knows."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._scheduler.check(agent)

    def run(self, agent: AgentOrder) -> None:
        """Run the scheduler: it posts reports, and keeps agents on idle nodes."""
        self._start(keep_running(lambda: self._scheduler.run(self.news, agent), self._broke))

    def open(self) -> None:
        """Start to change the pool; poll the scheduler in case that a message was lost."""
        self._opened = True

        async def look_often() -> None:
            while True:
                await asyncio.sleep(self._times.look_s)
                if await self.look(self._times.look_s) is not None:
                    self._changed()

        self._start(look_often())

    async def look(self, patience_s: float) -> frozenset[str] | None:
        """Query the scheduler for our nodes; messages that arrive meanwhile override the answer."""
        self._since_look = []
        try:
            async with asyncio.timeout(patience_s):
                allowed = await self._scheduler.look()
        except Exception as error:  # noqa: BLE001 - a third-party scheduler may raise anything
            _log.warning("scheduler '%s' cannot be asked: %s", self._scheduler.name, in_words(error))
            allowed = None
        since, self._since_look = self._since_look or [], None
        if allowed is not None:
            if not self._scheduler.agents_suffice:
                self.release_now(self.node_tracker.ours - allowed)
            self.node_tracker.set_allowed(allowed)
            for news in since:
                self.news(news)
        return allowed

    def news(self, news: News) -> None:
        """Apply a report of the scheduler."""
        if self._since_look is not None:
            self._since_look.append(news)
        match news:
            case Allowed():
                self.node_tracker.allow(news.nodes, news.until_s)
            case Taken():
                self.node_tracker.take(news.nodes)
                self.release_now([node for node in news.nodes if node not in self._deadlines])  # not in a grace period
            case Remark():
                _log.warning("%s", news.text)
                return
        if self._soon is None:
            self._soon = self._loop.call_soon(self._changed)

    def want(self, nodes: int, drained: frozenset[str], by_kind: Mapping[str, int]) -> None:
        """Report to the scheduler how many nodes tasks can use, in total and by kind."""
        if not self._closed and (nodes, drained, by_kind) != self._wanted:
            self._wanted = (nodes, drained, by_kind)
            self._scheduler.want_kinds(by_kind)
            self._scheduler.want(nodes, drained)

    def leave_drained(self, pool: frozenset[str]) -> None:
        """Leave nodes while the scheduler drains them, then use them again; called at intervals."""
        off = self._scheduler.to_leave()
        if not self._closed and off != self.node_tracker.to_leave:
            self.node_tracker.to_leave = off
            self.leave(off, pool)

    def release_when_idle(self, pool: frozenset[str]) -> None:
        """Release all nodes when there has been no work for a while; called periodically."""
        if self._wanted is None or self._wanted[0] or not pool or not self._scheduler.agents_suffice:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > self._times.idle_s:
            self._idle_since = time.monotonic()
            self.give_back(sorted(pool))

    def agents(self, changes: Sequence[tuple[str, bool]]) -> None:
        """Apply connects (true) and disconnects of agents, in the order in which they happened."""
        for node, came in changes:
            if came:
                self.node_tracker.came(node)
            else:
                self.node_tracker.went(node)
                self.release_now((node,))
        if self.node_tracker.paused:  # a waiting pilot has started
            self.give_back([node for node, came in changes if came])
        self._scheduler.hint()
        self._moved.set()

    def notice(self, node: str, grace_s: float, pool: frozenset[str]) -> None:
        """Vacate a node as planned before the scheduler takes it in ``grace_s`` seconds.

        Its agent exits after its last worker, so the node is returned explicitly only if that takes too long.
        """
        if node not in self.node_tracker.present or node in self._deadlines:
            return
        self._scheduler.noticed(node)

        def over() -> None:
            self.release_now((node,))
            self.give_back((node,))

        self._deadlines[node] = self._loop.call_later(grace_s, over)
        self.node_tracker.noticed.add(node)
        self.leave((node,), pool)

    async def reunite(self, patience_s: float) -> None:
        """Wait for known agents to reconnect; nodes of missing agents are lost."""
        await self._until(lambda: not self.node_tracker.expected or self._closed, patience_s)
        lost = self.node_tracker.expected
        self.node_tracker.expect(())
        self._changed()
        if self._scheduler.agents_suffice:
            self.give_back(sorted(lost))  # a pilot with a hanging agent wastes its node

    def events(self, pool: frozenset[str], now: float) -> tuple[Event, ...]:
        """Return the events that bring the pool in line with the usable nodes."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        if not self._opened:
            return ()  # known nodes are checked first
        return tuple(node_events(pool, self.node_tracker.ours, now, self.kinds))

    def leave(self, nodes: Collection[str], pool: frozenset[str]) -> None:
        """Let tasks vacate nodes as in a planned change; the caller has marked the nodes as no longer ours."""
        self.vacating.update(pool.intersection(nodes))

    def preempted(self, left: Collection[str]) -> frozenset[str]:
        """Return the departed nodes that were preempted, not released for a drain, a pause or the shutdown."""
        given_up = self.vacating | self.node_tracker.not_to_use
        return frozenset(left) - (given_up - self.node_tracker.noticed)

    def leave_all(self, pool: frozenset[str]) -> None:
        """Vacate all nodes as planned, and nodes with idle agents immediately."""
        idle = self.node_tracker.present - pool - self._launcher_pool.lingering
        self.leave(pool, pool)
        self.give_back(sorted(idle.difference(self._deadlines)))

    def joined(self, event: NodesJoined) -> None:
        """Keep nodes that were about to be vacated; warn of nodes of no named kind."""
        if event.kind == OTHER_KIND:
            some = f"node '{event.nodes[0]}'" + (f" and {len(event.nodes) - 1} others" if event.nodes[1:] else "")
            _log.warning("%s: [kinds] names no kind", some)
        self.vacating.difference_update(event.nodes)
        self._launcher_pool.keep(event.nodes)

    def left(self, event: NodesLeft) -> None:
        """Give back departed nodes that were to be vacated and have no task left."""
        left = self.vacating.intersection(event.nodes) - self._launcher_pool.lingering
        self.give_back(sorted(left.difference(self._deadlines)))

    def vacated(self, task: str, nodes: Sequence[str]) -> None:
        """Give back nodes that a task has vacated on request."""
        vacated = self._launcher_pool.vacated(task, nodes)
        self.give_back([node for node in vacated if node not in self._deadlines])
        self._moved.set()

    def give_back(self, nodes: Collection[str]) -> None:
        """Release nodes to the scheduler."""
        if nodes and not self._closed:
            self._start(self._give_back(tuple(nodes)))

    def release_overdue(self, pool: frozenset[str]) -> None:
        """Return nodes that tasks do not vacate in time, and nodes whose release failed; called periodically.

        Drained nodes are released repeatedly until their agents have exited: a request may fail, the daemon may have
        been killed during a drain, and a waiting pilot may start on a drained node.
        """
        overdue = self._launcher_pool.overdue(self._times.drain_s).difference(self._deadlines)
        if overdue:
            self._launcher_pool.clear(overdue)
            self.give_back(sorted(overdue))
            self._moved.set()
        if time.monotonic() - self._swept >= timeouts.TIMEOUTS.sweep_s:
            self._swept = time.monotonic()
            self._check_names()
            tracker = self.node_tracker
            idle = set(tracker.present if tracker.paused else tracker.not_to_use & tracker.present)
            idle -= pool | self._launcher_pool.lingering
            self.give_back(sorted(idle - self._giving))

    def _check_names(self) -> None:
        """Warn about an agent whose node name differs from the scheduler's, for example by a domain."""
        tracker = self.node_tracker
        if self._misnamed or self._scheduler.agents_suffice or not tracker.agents_used:
            return
        agents = {node.partition(".")[0]: node for node in tracker.present - tracker.allowed}
        for node in sorted(tracker.allowed - tracker.present) if agents else ():
            if (other := agents.get(node.partition(".")[0])) is not None:
                what = f"the scheduler calls a node '{node}' and its agent '{other}', so it is not used"
                self._misnamed = True  # one warning is enough
                _log.warning("%s: start agents with --node and the scheduler's name", what)
                return

    def use_none(self, pool: frozenset[str]) -> None:
        """Vacate the nodes of the pool, and use no nodes from now on."""
        self._closed = self.node_tracker.closed = True
        self._moved.set()
        self.leave(pool, pool)

    async def drain(self) -> None:
        """Wait until the nodes are vacated, and end all our jobs at the scheduler."""
        if self._opened:
            pool, tracker = self._launcher_pool, self.node_tracker
            # Without nodes whose agents are missing: tasks cannot vacate these
            await self._until(
                lambda: not (pool.lingering & tracker.present if tracker.agents_used else pool.lingering),
                self._times.drain_s,
            )
            self._launcher_pool.clear(self._launcher_pool.lingering)
        self.close()
        try:
            await self._scheduler.leave()
        except Exception as error:  # noqa: BLE001 - a third-party scheduler may raise anything
            self._broke(error)

    def close(self) -> None:
        """Stop listening."""
        self._closed = True
        for job in self._jobs:
            job.cancel()
        for deadline in self._deadlines.values():
            deadline.cancel()

    def _broke(self, error: Exception) -> None:
        _log.warning("scheduler '%s': %s", self._scheduler.name, in_words(error))

    def release_now(self, nodes: Collection[str]) -> None:
        """Release preempted nodes immediately, without planned changes."""
        for node in self._deadlines.keys() & set(nodes):
            self._deadlines.pop(node).cancel()
        self.vacating.difference_update(nodes)
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

    async def _give_back(self, nodes: tuple[str, ...]) -> None:
        self._giving.update(nodes)
        try:
            await self._scheduler.give_back(nodes)
        except Exception as error:  # noqa: BLE001 - a third-party scheduler may raise anything
            self._broke(error)
        finally:
            self._giving.difference_update(nodes)


class NodeTracker:
    """Combines the reports of the scheduler, the agents and operators on nodes.

    ``agents_suffice``: a connected agent proves that its node is ours. ``agents_used``: without agents a node is ours
    by the scheduler's report alone.
    """

    def __init__(self, *, agents_suffice: bool, agents_used: bool) -> None:
        self._agents_suffice = agents_suffice
        self.agents_used = agents_used
        self.allowed: set[str] = set()  # nodes that the scheduler lends us
        self.taken: set[str] = set()  # nodes that it has reclaimed since
        self.present: set[str] = set()  # an agent is registered there
        self.expected: set[str] = set()  # nodes whose agents may still reconnect after a restart
        self.drained: frozenset[str] = frozenset()  # nodes that must not be used
        self.to_leave: frozenset[str] = frozenset()  # drained by the scheduler
        self.noticed: set[str] = set()  # nodes whose preemption was announced by their agents
        self.until_s: dict[str, float] = {}  # expected times of preemption, if known
        self.closed = False  # no nodes are used any longer
        self.paused = False  # no node is used during a pause

    @property
    def ours(self) -> AbstractSet[str]:
        """The nodes to use now, without nodes in doubt; not to be kept, as it may change with the next report.

        Called for every event, so thousands of nodes are copied only if necessary.
        """
        if self.paused or self.closed:
            return frozenset()
        found: AbstractSet[str] = self.allowed
        if self.agents_used:
            found = self.present | self.expected if self.expected else self.present
            if not self._agents_suffice and not found <= self.allowed:
                found = found & self.allowed
        for without in (self.taken, self.not_to_use, self.noticed):
            found = found - without if without else found
        return found

    @property
    def not_to_use(self) -> frozenset[str]:
        """The nodes, and their GPUs, that operators or the scheduler drain."""
        left = self.drained | self.to_leave
        known = (self.present, self.expected, self.allowed) if left else ()
        return left.union(name for names in known for name in names if node_of(name) in left)

    def allow(self, nodes: Collection[str], until_s: float | None) -> None:
        """Record that the scheduler lets us use nodes."""
        self.allowed.update(nodes)
        self.taken.difference_update(nodes)
        for node in nodes:
            if until_s is None:
                self.until_s.pop(node, None)
            else:
                self.until_s[node] = until_s

    def take(self, nodes: Collection[str]) -> None:
        """Record that the scheduler takes nodes back. If agents suffice, a new agent makes them ours again."""
        self.allowed.difference_update(nodes)
        if self._agents_suffice:
            self.taken.update(self.present.union(self.expected).intersection(nodes))
            self.expected -= set(nodes)  # their pilots have finished, and all processes in them
        for node in nodes:
            self.until_s.pop(node, None)

    def set_allowed(self, nodes: Collection[str]) -> None:
        """Record the complete set of nodes that the scheduler lets us use."""
        self.take(self.allowed.difference(nodes))
        self.allowed = set(nodes)

    def came(self, node: str) -> None:
        """Record that an agent registered."""
        self.went(node)
        self.present.add(node)

    def went(self, node: str) -> None:
        """Record that an agent disconnected, and forget the node's earlier reports."""
        self.present.discard(node)
        self.expected.discard(node)
        self.taken.discard(node)
        self.noticed.discard(node)

    def expect(self, nodes: Iterable[str]) -> None:
        """Set the nodes whose agents still have time to reconnect."""
        self.expected = set(nodes) - self.present


def node_events(
    pool: AbstractSet[str], ours: AbstractSet[str], time_s: float, kinds: NodeKinds, mistaken: Collection[str] = ()
) -> Iterator[Event]:
    """Yield the events that turn ``pool`` into ``ours``, one node kind per event; departures first.

    Nodes of a ``mistaken`` kind leave, and join with the right one.
    """
    left = {*(pool - ours), *mistaken}
    if left:
        yield NodesLeft(time_s=time_s, nodes=tuple(sorted(left)))
    for kind, joined in kinds.grouped(sorted((ours - pool) | (ours & left))):
        yield NodesJoined(time_s=time_s, nodes=joined, kind=kind)
