"""Schedulers that are only watched: agents wait on every node, and the scheduler's state of nodes decides.

Read access to the scheduler is enough. Polls run at regular intervals, and immediately after a hook report; a starting
job takes its nodes before the next poll.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress

import msgspec

from bftrain.errors import NotAvailable
from bftrain.live import timeouts
from bftrain.live.schedulers.backend import CommandFailed, CommandRunner, Run
from bftrain.live.schedulers.base import (
    AgentOrder,
    Allowed,
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
from bftrain.live.schedulers.hooks import HookNews, HookTally, examine_spool, listening
from bftrain.ports import Availability
from bftrain.text_formats import counted

Ask = Callable[[Run], Awaitable[frozenset[str]]]
"""Asks a scheduler for its idle nodes."""


class WatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The polling interval of a scheduler, and the spool of its hooks."""

    poll_s: Positive = 2.0
    command_timeout_s: Positive = 20.0
    spool: str = ""  # "": no hooks
    spool_writers: tuple[str, ...] = ()  # users, in addition to root and this one, with trusted files


class NodeWatch(Scheduler):
    """A scheduler that lends its idle nodes; agents already run on all nodes."""

    keep_workers_s: float | None = 0.0  # no daemon stops workers when a job starts, so agents do it

    def __init__(
        self, name: str, ask: Ask, settings: WatchSettings, run: CommandRunner, available: Callable[[], Availability]
    ) -> None:
        self.name = name
        self._available = available
        self._ask = ask
        self._settings = settings
        self._run = run
        self._allowed: frozenset[str] = frozenset()
        self._starting: set[str] = set()  # nodes with job starts since the last poll
        self._ended: dict[str, float] = {}  # nodes of finished jobs that are not idle yet -> since when
        self._hinted = asyncio.Event()
        self._post: Post = lambda _: None
        self._away = ""
        self.hooks = HookTally(settings.spool, "start", "end")

    def available(self) -> Availability:
        """Return whether the commands of the scheduler are installed."""
        return self._available()

    def facts(self) -> SchedulerFacts:
        """Return hook counts, and the number of commands."""
        return SchedulerFacts(hooks=self.hooks.report, commands_a_minute=self._run.in_last_minute)

    async def examine(self, agent: AgentOrder) -> Sequence[SiteFinding]:  # noqa: ARG002 - agents run on all nodes already
        """Query the idle nodes, and check the spool of hooks."""
        hooks = examine_spool(self._settings.spool, self._settings.spool_writers)
        try:
            idle = await self._ask(self._run)
        except CommandFailed as error:
            fix = "run this where its commands work; bftrain doctor tests them"
            return problem("scheduler", NotAvailable(f"{self.name} does not answer: {error}", fix=fix)), hooks
        return fine("scheduler", f"{self.name} answers; {counted(len(idle), 'node')} idle now"), hooks

    async def run(self, post: Post, agent: AgentOrder) -> None:  # noqa: ARG002 - agents run on all nodes already
        """Poll, and post changes."""
        self._post = post
        failures = 0
        with listening(self._settings.spool, self._settings.spool_writers, self._hear, post):
            while True:
                self._hinted.clear()
                self._starting.clear()
                try:
                    self._found(await self._ask(self._run))
                    failures = 0
                    if self._away:
                        post(Remark(text=f"{self.name} answers again"))
                    self._away = ""
                    wait_s = min(self._settings.poll_s, self._until_tidy_s())
                except CommandFailed as error:
                    if not self._away:
                        self._away = f"{self.name} does not answer: {error}"
                        post(Remark(text=self._away))
                    wait_s = min(self._settings.poll_s * 2.0**failures, timeouts.TIMEOUTS.scheduler_retry_most_s)
                    failures = min(failures + 1, 10)
                await asyncio.sleep(min(timeouts.TIMEOUTS.node_look_gap_s, wait_s))
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, wait_s - timeouts.TIMEOUTS.node_look_gap_s)):
                        await self._hinted.wait()

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
        return max(timeouts.TIMEOUTS.node_look_gap_s, now - max(self._ended.values())) if self._ended else math.inf

    def _found(self, idle: frozenset[str]) -> None:
        idle -= self._starting  # a job started there during the query, so the answer may be stale
        before, self._allowed = self._allowed, idle
        if gone := before - idle:
            self._post(Taken(nodes=tuple(sorted(gone))))
        if came := idle - before:
            self._post(Allowed(nodes=tuple(sorted(came))))

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
