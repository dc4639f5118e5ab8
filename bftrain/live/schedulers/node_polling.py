"""Schedulers that are polled, and those among them that are only watched.

Polls run at regular intervals, after hints, and immediately after a hook report. A watched scheduler needs read access
alone: agents wait on every node, and its state of nodes decides. A starting job takes its nodes before the next poll.
"""

from __future__ import annotations

import asyncio
import math
import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

from bftrain.errors import NotAvailable
from bftrain.live import timeouts
from bftrain.live.schedulers.backend import CommandFailed, CommandRunner, Run
from bftrain.live.schedulers.base import (
    AgentOrder,
    Allowed,
    PollSettings,
    Positive,
    Post,
    Remark,
    Scheduler,
    SchedulerFacts,
    SiteFinding,
    Taken,
    fine,
    problem,
)
from bftrain.live.schedulers.hooks import HookNews, HookTally, What, examine_spool, listening
from bftrain.ports import Availability
from bftrain.text_formats import counted

Ask = Callable[[Run], Awaitable[frozenset[str]]]
"""Asks a scheduler for its idle nodes."""


class PolledScheduler(Scheduler):
    """Polls in rounds, and posts each remark once while its text stays the same."""

    def __init__(self, name: str, settings: PollSettings, run: CommandRunner, *expected: What) -> None:
        """``expected`` are the events that hooks report of every job."""
        self.name = name
        self._polls, self._run = settings, run
        self._post: Post = lambda _: None
        self._hinted = asyncio.Event()
        self._remarked: dict[str, str] = {}  # topic -> last remark
        self.hooks = HookTally(settings.spool, *expected)

    @abstractmethod
    async def _round(self, agent: AgentOrder) -> float:
        """Poll and act; return the seconds until the next poll at the latest."""

    @abstractmethod
    async def _examine(self, agent: AgentOrder) -> Sequence[SiteFinding]:
        """Check the settings of the scheduler."""

    @abstractmethod
    def _hear(self, heard: Sequence[HookNews]) -> None:
        """Apply reports of hooks."""

    def _retry_s(self, failures: int) -> float:
        """Return the seconds until the next poll after that many failed polls in a row, less one."""
        return min(timeouts.TIMEOUTS.scheduler_retry_most_s, self._polls.poll_s * 2.0**failures)

    def facts(self) -> SchedulerFacts:
        """Return hook counts, and the number of commands."""
        return SchedulerFacts(hooks=self.hooks.report, commands_a_minute=self._run.in_last_minute)

    async def examine(self, agent: AgentOrder) -> Sequence[SiteFinding]:
        """Check the settings of the scheduler, and the spool of hooks."""
        found: Sequence[SiteFinding]
        try:
            found = await self._examine(agent)
        except CommandFailed as error:
            fix = "run this where its commands work; bftrain doctor tests them"
            found = (problem("scheduler", NotAvailable(f"{self.name} does not answer: {error}", fix=fix)),)
        except NotAvailable as error:
            found = (problem("scheduler", error),)
        return (*found, examine_spool(self._polls.spool, self._polls.spool_writers))

    async def run(self, post: Post, agent: AgentOrder) -> None:
        """Poll, and post changes."""
        self._post = post
        for text in filter(None, self._remarked.values()):  # remarks found by ``check``
            post(Remark(text=text))
        failures = 0
        with listening(self._polls.spool, self._polls.spool_writers, self._hear, post):
            while True:
                self._hinted.clear()
                try:
                    again_s = await self._round(agent)
                    if self._remarked.pop("controller", ""):
                        post(Remark(text=f"{self.name} answers again"))
                    failures = 0
                except CommandFailed as error:
                    self._remark("controller", f"{self.name} does not answer: {error}")
                    again_s, failures = self._retry_s(failures), min(failures + 1, 10)
                await self._pause(again_s, listen=not failures)

    async def _pause(self, seconds: float, *, listen: bool) -> None:
        """Wait until the time or the next hint, with a minimum between two polls."""
        gap_s = min(timeouts.TIMEOUTS.look_gap_s, seconds)
        await asyncio.sleep(gap_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds - gap_s):
                await (self._hinted.wait() if listen else asyncio.sleep(seconds))

    def _remark(self, topic: str, text: str) -> None:
        if self._remarked.get(topic, "") != text:
            self._remarked[topic] = text
            if text:
                self._post(Remark(text=text))


class WatchSettings(PollSettings, frozen=True, kw_only=True):
    """Settings of watched schedulers."""

    poll_s: Positive = 2.0


class NodeWatch(PolledScheduler):
    """A scheduler that lends its idle nodes; agents already run on all nodes."""

    keep_workers_s: float | None = 0.0  # no daemon stops workers when a job starts, so agents do it

    def __init__(
        self, name: str, ask: Ask, settings: WatchSettings, run: CommandRunner, available: Callable[[], Availability]
    ) -> None:
        super().__init__(name, settings, run, "start", "end")
        self._ask, self._available = ask, available
        self._allowed: frozenset[str] = frozenset()
        self._starting: set[str] = set()  # nodes with job starts since the last poll
        self._ended: dict[str, float] = {}  # nodes of finished jobs that are not idle yet -> since when

    def available(self) -> Availability:
        """Return whether the commands of the scheduler are installed."""
        return self._available()

    async def _examine(self, agent: AgentOrder) -> Sequence[SiteFinding]:  # noqa: ARG002 - agents run on all nodes already
        idle = await self._ask(self._run)
        return (fine("scheduler", f"{self.name} answers; {counted(len(idle), 'node')} idle now"),)

    async def _round(self, agent: AgentOrder) -> float:  # noqa: ARG002 - as above
        self._starting.clear()
        idle = await self._ask(self._run) - self._starting  # jobs that started during the query count
        before, self._allowed = self._allowed, idle
        if gone := before - idle:
            self._post(Taken(nodes=tuple(sorted(gone))))
        if came := idle - before:
            self._post(Allowed(nodes=tuple(sorted(came))))
        return min(self._polls.poll_s, self._until_tidy_s())

    async def look(self) -> frozenset[str] | None:
        """Return the idle nodes."""
        try:
            idle = await self._ask(self._run) - self._starting
        except CommandFailed:
            return None
        self._allowed |= idle  # our nodes from now on, so a loss is reported
        return idle

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        """Ignore the request: nodes are not reserved."""

    async def give_back(self, nodes: Collection[str]) -> None:
        """Return immediately: the scheduler can use its nodes at any time."""

    async def leave(self) -> None:
        """Return immediately: this scheduler started no agents."""

    def _until_tidy_s(self) -> float:
        """Return when to poll again after hooks reported an end but the node is not idle yet: soon, then less often."""
        now = time.monotonic()
        self._ended = {
            node: since
            for node, since in self._ended.items()
            if node not in self._allowed and now - since < timeouts.TIMEOUTS.node_tidying_s
        }
        return max(timeouts.TIMEOUTS.look_gap_s, now - max(self._ended.values())) if self._ended else math.inf

    def _hear(self, heard: Sequence[HookNews]) -> None:
        """Return nodes where a job starts; poll immediately after an exit, as another job may have started."""
        self.hooks.on_messages(heard)
        self._starting.update(node for one in heard if one.what == "start" for node in one.nodes)
        if taken := self._allowed & self._starting:
            self._allowed -= taken
            self._post(Taken(nodes=tuple(sorted(taken))))
        now = time.monotonic()
        for one in heard:
            if one.what == "end":
                self._ended |= dict.fromkeys(one.nodes, now)
            elif one.what == "start":
                self._ended = {node: since for node, since in self._ended.items() if node not in one.nodes}
        if any(one.what != "ending" for one in heard):
            self._hinted.set()
