"""A cluster without a batch scheduler: its nodes are the machines whose agents connect.

People, or systemd, start the agents with ``bftrain agent``. A node belongs to the pool while its agent is connected.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

import msgspec

from bftrain.live.schedulers.base import AgentOrder, Allowed, News, Post, Scheduler, Site, Taken, scheduler_settings

_log = logging.getLogger(__name__)


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """No settings: agents report names, kinds and GPUs of their nodes."""


class ClusterScheduler(Scheduler):
    """The nodes with a connected agent."""

    name = "cluster"
    agents_suffice = True
    agents_stay = True
    ends_agents = False  # the agents of a former daemon may still run workers

    def __init__(self) -> None:
        self._gpus: dict[str, int] = {}  # connected node -> its number of GPUs
        self._post: Post | None = None

    async def run(self, post: Post, agent: AgentOrder) -> None:
        """Report nodes as they come and go, and print the command that adds one."""
        self._post = post
        options = dict(zip(agent.argv, agent.argv[1:], strict=False))
        words = [f"{name} {options[name]}" for name in ("--manager", "--secret") if name in options]
        _log.info("add nodes, on each: bftrain agent %s", " ".join(words))
        await asyncio.Event().wait()

    async def look(self) -> frozenset[str] | None:
        """Return the connected nodes."""
        return frozenset(self._gpus)

    def want(self, nodes: int, without: Collection[str] = ()) -> None:
        """Do nothing: idle nodes wait for the next task."""

    async def give_back(self, nodes: Collection[str]) -> None:
        """Do nothing: no other users wait for the nodes."""

    async def leave(self) -> None:
        """Do nothing: agents wait for the next daemon."""

    def registered(self, node: str, gpus: int) -> None:
        """Add a node."""
        self._gpus[node] = gpus
        self._tell(Allowed(nodes=(node,)))

    def gone(self, node: str) -> None:
        """Remove a node."""
        if self._gpus.pop(node, None) is not None:
            self._tell(Taken(nodes=(node,)))

    def gpus_of(self, node: str) -> float:
        """Return the number of GPUs that a node's agent reported."""
        return float(self._gpus.get(node, 0))

    def _tell(self, news: News) -> None:
        if self._post is not None:
            self._post(news)


def make(table: Mapping[str, object], site: Site) -> Scheduler:  # noqa: ARG001 - the signature of all schedulers
    """Build the scheduler of a cluster from its table in the site's settings."""
    scheduler_settings(table, ClusterSettings)
    return ClusterScheduler()
