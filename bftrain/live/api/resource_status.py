"""The resources in the status of a live run: nodes by kind and by pool, and reports of hooks."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from bftrain.live.model.resource_views import HooksView, KindView, PoolView

if TYPE_CHECKING:
    from bftrain.live.run.daemon import LiveDaemon


def hooks(daemon: LiveDaemon) -> HooksView | None:
    """Return what hooks reported; none where the site names no spool."""
    found = daemon.opened.scheduler.facts().hooks
    if found is None:
        return None
    return HooksView(spool=found.spool, messages=dict(found.counts), silent=found.silent, last_s=found.last_s)


def pools(daemon: LiveDaemon) -> dict[str, PoolView]:
    """Return the pools, if the site has several or one with a name or a kind."""
    return {
        one.label: PoolView(scheduler=one.scheduler, nodes=one.nodes) for one in daemon.opened.scheduler.facts().pools
    }


def kinds(daemon: LiveDaemon) -> dict[str, KindView]:
    """Count nodes by kind, if nodes have kinds: all that the site names, and the others if there are some."""
    harvester, known = daemon.harvester, daemon.node_manager.kinds
    if not known:
        return {}
    pool = Counter(map(known.of, harvester.pool))
    used = Counter(known.of(node) for nodes in harvester.held.values() for node in nodes)
    named = (*daemon.site.kinds, *(one.kind for one in daemon.site.pools if one.kind))
    return {kind: KindView(pool=pool[kind], used=used[kind]) for kind in dict.fromkeys((*named, *pool))}
