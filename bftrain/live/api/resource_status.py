"""The resources in the status of a live run: nodes by kind and by pool, and reports of hooks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bftrain.live.model.resource_views import HooksView, KindView, PoolView
from bftrain.live.schedulers.pools import SchedulerPool

if TYPE_CHECKING:
    from bftrain.live.run.daemon import LiveDaemon


def hooks(daemon: LiveDaemon) -> HooksView | None:
    """Return what hooks reported; none where the site names no spool."""
    found = getattr(daemon.opened.scheduler, "hooks", None)
    if found is None or not found.spool:
        return None
    return HooksView(spool=found.spool, messages=dict(found.counts), silent=found.silent, last_s=found.last_s)


def pools(daemon: LiveDaemon) -> dict[str, PoolView]:
    """Return the pools, if the site has several or one with a name or a kind."""
    return {
        one.settings.label: PoolView(scheduler=one.settings.name, nodes=len(one.nodes))
        for one in scheduler_pools(daemon)
    }


def scheduler_pools(daemon: LiveDaemon) -> tuple[SchedulerPool, ...]:
    """Return the pools of the scheduler, if it has several or one with a name or a kind."""
    found: tuple[SchedulerPool, ...] = getattr(daemon.opened.scheduler, "pools", ())
    return found


def kinds(daemon: LiveDaemon) -> dict[str, KindView]:
    """Count nodes by kind, if nodes have kinds: all that the site names, and the others if there are some."""
    harvester, known = daemon.harvester, daemon.node_manager.kinds
    if not known:
        return {}
    pool = Counter(map(known.of, harvester.pool))
    used = Counter(known.of(node) for nodes in harvester.held.values() for node in nodes)
    named = (*daemon.site.kinds, *(one.kind for one in daemon.site.pools if one.kind))
    return {kind: KindView(pool=pool[kind], used=used[kind]) for kind in dict.fromkeys((*named, *pool))}
