"""Several pools (partitions, QOS, clusters and schedulers) behind the interface of a single scheduler.

Each pool has its own limits and kind of nodes.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from bftrain.errors import BftrainError, NotAvailable
from bftrain.live import timeouts
from bftrain.live.schedulers.base import (
    AgentOrder,
    Allowed,
    News,
    PoolSettings,
    PoolView,
    Post,
    Remark,
    Scheduler,
    SchedulerFacts,
    Taken,
)
from bftrain.ports import Availability


@dataclass(eq=False)
class SchedulerPool:
    """One pool, and its nodes that the scheduler lets us use."""

    settings: PoolSettings
    scheduler: Scheduler
    nodes: set[str] = field(default_factory=set)
    heard: bool = False  # whether a query of its scheduler ever succeeded


class SchedulerPools(Scheduler):
    """All pools as one scheduler. Remarks of a pool start with its name."""

    def __init__(self, pools: Collection[SchedulerPool]) -> None:
        self.pools = tuple(pools)
        each = [pool.scheduler for pool in self.pools]
        self.name = "+".join(dict.fromkeys(one.name for one in each))
        self.agents_suffice = all(one.agents_suffice for one in each)
        self.unit = each[0].unit
        keep = [one.keep_workers_s for one in each if one.keep_workers_s is not None]
        self.keep_workers_s = min(keep, default=None)
        self._wanted: tuple[int, Collection[str]] | None = None
        self._by_kind: Mapping[str, int] = {}

    @property
    def ends_agents(self) -> bool:
        """Whether all pools terminate agents."""
        return all(pool.scheduler.ends_agents for pool in self.pools)

    def available(self) -> Availability:
        """Return whether the commands of all schedulers are installed."""
        return next(
            (state for pool in self.pools if not (state := pool.scheduler.available()).ok), Availability(ok=True)
        )

    async def check(self, agent: AgentOrder) -> None:
        """Raise ``NotAvailable`` if the settings of a pool can never work."""
        for pool in self.pools:
            try:
                await pool.scheduler.check(agent)
            except NotAvailable as error:
                where = f"pool '{pool.settings.label}'" + (f": {error.where}" if error.where else "")
                raise NotAvailable(error.what, where=where, fix=error.fix) from error

    async def run(self, post: Post, agent: AgentOrder) -> None:
        """Run all schedulers; a failed scheduler is restarted without disturbing the rest."""
        async with asyncio.TaskGroup() as group:
            for pool in self.pools:
                group.create_task(self._run(pool, post, agent))

    async def _run(self, pool: SchedulerPool, post: Post, agent: AgentOrder) -> None:
        def tell(news: News) -> None:
            self._hear(pool, news)
            post(Remark(text=f"pool '{pool.settings.label}': {news.text}") if isinstance(news, Remark) else news)

        await keep_running(
            lambda: pool.scheduler.run(tell, agent), lambda error: tell(Remark(text=f"it broke: {in_words(error)}"))
        )

    def _hear(self, pool: SchedulerPool, news: News) -> None:
        match news:
            case Allowed():
                for other in self.pools:
                    other.nodes.difference_update(news.nodes)
                pool.nodes.update(news.nodes)
            case Taken():
                pool.nodes.difference_update(news.nodes)
            case _:
                return
        self._share_out()

    async def look(self) -> frozenset[str] | None:
        """Return the nodes of all pools, the last known ones of a pool that does not answer.

        ``None`` if one never did.
        """
        found = await asyncio.gather(*(pool.scheduler.look() for pool in self.pools))
        for pool, nodes in zip(self.pools, found, strict=True):
            if nodes is not None:
                pool.nodes, pool.heard = set(nodes), True
        self._share_out()
        return frozenset().union(*(pool.nodes for pool in self.pools)) if all(one.heard for one in self.pools) else None

    def want_kinds(self, by_kind: Mapping[str, int]) -> None:
        """Set the number of usable nodes of each kind; other kinds are limited by the total only."""
        self._by_kind = by_kind

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        """Set the largest number of nodes in total."""
        self._wanted = (nodes, without)
        self._share_out()

    def _share_out(self) -> None:
        """Request the missing nodes from each pool, limited by the demand for its kind."""
        if self._wanted is None:
            return
        nodes, without = self._wanted
        held = sum(len(pool.nodes) for pool in self.pools)
        for pool in self.pools:
            most = min(nodes, self._by_kind.get(pool.settings.kind, nodes))
            pool.scheduler.want(max(0, min(most, nodes - held + len(pool.nodes))), without)

    def hint(self) -> None:
        """Let all schedulers look soon."""
        for pool in self.pools:
            pool.scheduler.hint()

    def noticed(self, node: str) -> None:
        """Pass the notice to the pool of the node, or to all if it is unknown."""
        for pool in self._of((node,)):
            pool.scheduler.noticed(node)

    async def give_back(self, nodes: Collection[str]) -> None:
        """Release nodes to their pools."""
        await _all_of(pool.scheduler.give_back(nodes) for pool in self._of(nodes))

    async def leave(self) -> None:
        """Cancel all our jobs in all pools."""
        await _all_of(pool.scheduler.leave() for pool in self.pools)

    def _of(self, nodes: Collection[str]) -> tuple[SchedulerPool, ...]:
        known = set().union(*(pool.nodes for pool in self.pools))
        if not known.issuperset(nodes):
            return self.pools
        return tuple(pool for pool in self.pools if not pool.nodes.isdisjoint(nodes))

    def to_leave(self) -> frozenset[str]:
        """Return the nodes that the schedulers drain."""
        return frozenset().union(*(pool.scheduler.to_leave() for pool in self.pools))

    def gpus_of(self, node: str) -> float:
        """Return the GPUs requested by the pilot on a node; 0 if unknown."""
        return next((pool.scheduler.gpus_of(node) for pool in self.pools if node in pool.nodes), 0.0)

    def facts(self) -> SchedulerFacts:
        """Return what all pools know together; reports of hooks from the first pool that has some."""
        each = [(pool, pool.scheduler.facts()) for pool in self.pools]
        commands = [found.commands_a_minute for _, found in each if found.commands_a_minute is not None]
        pilots = Counter[str]()
        for _, found in each:
            pilots.update(found.pilots or {})
        return SchedulerFacts(
            cluster="+".join(dict.fromkeys(found.cluster for _, found in each if found.cluster)),
            nodes=frozenset().union(*(found.nodes for _, found in each)),
            node_kinds={node: pool.settings.kind for pool, found in each if pool.settings.kind for node in found.nodes},
            pilots=dict(pilots),
            partitions=tuple(dict.fromkeys(name for _, found in each for name in found.partitions)),
            hooks=next((found.hooks for _, found in each if found.hooks is not None), None),
            pools={
                pool.settings.label: PoolView(scheduler=pool.settings.name, nodes=len(pool.nodes))
                for pool in self.pools
            },
            commands_a_minute=sum(commands) if commands else None,
        )


async def keep_running(run: Callable[[], Coroutine[Any, Any, None]], broke: Callable[[Exception], None]) -> None:
    """Run a scheduler for ever: restart it with growing delays; ``broke`` receives its errors."""
    again_s = timeouts.TIMEOUTS.scheduler_retry_s
    while True:
        began = time.monotonic()
        try:
            await run()
        except Exception as error:  # noqa: BLE001 - a third-party scheduler may raise anything; retry
            broke(error)
        if time.monotonic() - began >= timeouts.TIMEOUTS.scheduler_retry_most_s:
            again_s = timeouts.TIMEOUTS.scheduler_retry_s
        await asyncio.sleep(again_s)
        again_s = min(2 * again_s, timeouts.TIMEOUTS.scheduler_retry_most_s)


async def _all_of(jobs: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run all jobs, and raise the first error when all are done."""
    for result in await asyncio.gather(*jobs, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result


def in_words(error: Exception) -> str:
    """Return the message of bftrain errors; prefix the type of any other error."""
    return str(error) if isinstance(error, BftrainError) else f"{type(error).__name__}: {error}"
