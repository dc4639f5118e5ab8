"""Watching nodes instead of holding them: agents wait on every node, and what the scheduler says of nodes decides.

This needs nothing but the right to ask. Looks come in regular turns; hooks, if there are any, make them come at once,
and a job that starts takes its nodes from us before we have looked.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from bftrain.live.schedulers.hook_spool import HookNews, HookTally, listening
from bftrain.live.schedulers.pilot_backend import CommandFailed, CommandRunner, Run
from bftrain.live.schedulers.port import AgentOrder, Allowed, Post, Remark, Taken
from bftrain.ports import Availability
from bftrain.values import checks

Ask = Callable[[Run], Awaitable[frozenset[str]]]
"""Asks a scheduler for its idle nodes."""

_BETWEEN_S: Final = 0.2
_MOST_AWAY_S: Final = 60.0
_TIDYING_S: Final = 60.0  # for which a scheduler may tidy up a node whose job has ended


class WatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How often a scheduler is asked for its nodes, and where its hooks write."""

    poll_s: float = 2.0
    command_timeout_s: float = 20.0
    spool: str = ""  # "": no hooks
    spool_writers: tuple[str, ...] = ()  # users besides root and ourselves whose files are believed

    def __post_init__(self) -> None:
        checks.number(self, "poll_s", above=0.0)
        checks.number(self, "command_timeout_s", above=0.0)
        checks.texts(self, "spool_writers")


class NodeWatch:
    """A scheduler whose idle nodes are ours by its word. Agents run on all of them already."""

    agents_suffice = False
    keep_workers_s = 0.0  # without us nothing ends workers where a job starts, so agents end them at once

    def __init__(
        self, name: str, ask: Ask, settings: WatchSettings, run: CommandRunner, available: Callable[[], Availability]
    ) -> None:
        self.name = name
        self.available = available
        self._ask = ask
        self._settings = settings
        self._run = run
        self._allowed: frozenset[str] = frozenset()
        self._starting: set[str] = set()  # nodes on which jobs started since we asked
        self._ended: dict[str, float] = {}  # nodes whose job ended, but that are not idle yet -> since when
        self._hinted = asyncio.Event()
        self._post: Post = lambda _: None
        self._away = ""
        self.hooks = HookTally(settings.spool, "start", "end")

    # -- the port

    async def run(self, post: Post, _agent: AgentOrder) -> None:
        """Look again and again, and post what changed."""
        self._post = post
        failures = 0
        with listening(self._settings.spool, self._settings.spool_writers, self._hear, post):
            while True:
                self._hinted.clear()
                self._starting.clear()
                try:
                    self._found(await self._ask(self._run))
                    if text := self.hooks.unreported(time.monotonic()):
                        post(Remark(text=text))
                    failures = 0
                    self._away = ""
                    wait_s = min(self._settings.poll_s, self._until_tidy_s())
                except CommandFailed as error:
                    if not self._away:
                        self._away = f"{self.name} does not answer: {error}"
                        post(Remark(text=self._away))
                    wait_s = min(self._settings.poll_s * 2.0**failures, _MOST_AWAY_S)
                    failures = min(failures + 1, 10)
                await asyncio.sleep(min(_BETWEEN_S, wait_s))
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, wait_s - _BETWEEN_S)):
                        await self._hinted.wait()

    async def look(self) -> frozenset[str] | None:
        """Return the idle nodes."""
        try:
            idle = await self._ask(self._run) - self._starting
        except CommandFailed:
            return None
        self._allowed |= idle  # they count as ours now, so it is news when they are taken
        return idle

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        """Nothing is held, so nothing is to be let go."""

    def hint(self) -> None:
        """Agents coming and going say nothing of what the scheduler thinks."""

    def noticed(self, node: str) -> None:
        """Nothing is held, so nothing is lost."""

    async def give_back(self, nodes: Collection[str]) -> None:
        """Nothing is held: the scheduler can have its nodes at any time."""

    async def leave(self) -> None:
        """Agents were not started by us."""

    def _until_tidy_s(self) -> float:
        """Say when to look again because hooks reported an end before the node is idle: soon, then ever less often."""
        now = time.monotonic()
        self._ended = {
            node: since for node, since in self._ended.items() if node not in self._allowed and now - since < _TIDYING_S
        }
        return max(_BETWEEN_S, now - max(self._ended.values())) if self._ended else math.inf

    def _found(self, idle: frozenset[str]) -> None:
        idle -= self._starting  # a job started there while we asked, and the answer may be older
        before, self._allowed = self._allowed, idle
        if gone := before - idle:
            self.hooks.on_found(gone, time.monotonic())
            self._post(Taken(nodes=tuple(sorted(gone))))
        if came := idle - before:
            self._post(Allowed(nodes=tuple(sorted(came))))

    def _hear(self, heard: Sequence[HookNews]) -> None:
        """Give nodes back on which a job starts; look at once where one ended, for another may have begun."""
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
