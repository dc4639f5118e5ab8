"""SharedScheduler: wraps a scheduler so that a live run takes only its share of a site's nodes.

It reports its held and usable nodes to the site, which replies with the number that it may hold. While the site does
not reply, it keeps its nodes and takes no more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import Any, Final

from bftrain.errors import BftrainError
from bftrain.live.model.member_views import MemberReport, MemberShare
from bftrain.live.schedulers.port import AgentOrder, Allowed, News, Post, Remark, Scheduler, Taken

_REPORT_S: Final = 2.0  # between two reports; a change of demand is reported at once
_SOONEST_S: Final = 0.2

AskSite = Callable[[MemberReport], Awaitable[MemberShare]]


class SharedScheduler:
    """A scheduler with a limit set by a site. Other attributes are those of the wrapped scheduler."""

    def __init__(self, scheduler: Scheduler, ask: AskSite) -> None:
        self._scheduler = scheduler
        self._ask = ask
        self._wanted: tuple[int, Collection[str]] = (0, ())
        self._share: MemberShare | None = None  # none while the site does not answer
        self._nodes: set[str] = set()  # those that the scheduler lets us use
        self._changed = asyncio.Event()
        self.fewest = 1  # set by the live run: the fewest nodes of use to one of its tasks

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - as that of the scheduler
        return getattr(self._scheduler, name)

    @property
    def share(self) -> int | None:
        """Number of nodes that may be held, if the site says so."""
        return None if self._share is None else self._share.nodes

    def above_share(self, held: int) -> int:
        """Return how many of the held nodes are to be given back."""
        return 0 if self._share is None else max(0, held - self._share.nodes)

    def to_leave(self) -> frozenset[str]:
        """Return the nodes that must not be used now, because the scheduler or the site drains them."""
        inner: frozenset[str] = getattr(self._scheduler, "to_leave", frozenset)()
        return inner | self._nodes.intersection(self._drained)

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        """Set the largest number of nodes, and report it."""
        self._wanted = (nodes, without)
        self._apply()
        self._changed.set()

    async def look(self) -> frozenset[str] | None:
        """Return the nodes that the scheduler lets us use now."""
        found = await self._scheduler.look()
        if found is not None:
            self._nodes = set(found)
        return found

    async def run(self, post: Post, agent: AgentOrder) -> None:
        """Run the scheduler, and report often."""

        def hear(news: News) -> None:
            if isinstance(news, Allowed):
                self._nodes.update(news.nodes)
            elif isinstance(news, Taken):
                self._nodes.difference_update(news.nodes)
            post(news)

        reporting = asyncio.create_task(self._report_often(post), name="report to the site")
        try:
            await self._scheduler.run(hear, agent)
        finally:
            reporting.cancel()

    async def _report_often(self, post: Post) -> None:
        silent = False
        while True:
            self._changed.clear()
            report = MemberReport(wanted=self._wanted[0], fewest=self.fewest, held=len(self._nodes))
            try:
                self._share = await self._ask(report)
            except BftrainError as error:
                self._share = None
                if not silent:
                    post(Remark(text=f"the site gives no share, so no more nodes are taken: {error}"))
                silent = True
            else:
                if silent:
                    post(Remark(text="the site gives a share again"))
                silent = False
            self._apply()
            await asyncio.sleep(_SOONEST_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(_REPORT_S):
                    await self._changed.wait()

    @property
    def _drained(self) -> tuple[str, ...]:
        return () if self._share is None else self._share.drained

    def _apply(self) -> None:
        nodes, without = self._wanted
        most = len(self._nodes) if self._share is None else self._share.nodes
        self._scheduler.want(min(nodes, most), {*without, *self._drained})
