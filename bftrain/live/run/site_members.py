"""SiteMembers: the share of each member of a site, by what the site's scheduler says is idle."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from bftrain.errors import BadConfig, NotAvailable
from bftrain.live.model.callers import ourselves
from bftrain.live.model.member_views import MemberReport, MemberShare
from bftrain.live.nodes.member_shares import MemberShares
from bftrain.live.schedulers.port import Scheduler
from bftrain.values.sharing import Entity

_LOOK_S: Final = 2.0  # for which an answer of the scheduler holds


class SiteMembers:
    """Answers the reports of members, this live run among them."""

    def __init__(self, scheduler: Scheduler, entities: Mapping[str, Entity]) -> None:
        self._idle: Any = getattr(scheduler, "idle", None)
        if self._idle is None:
            raise BadConfig(
                f"scheduler '{scheduler.name}' does not say which nodes are idle", where="members", fix="leave it out"
            )
        self.shares = MemberShares(entities)
        self._count, self._counted_s = 0, float("-inf")

    async def report(self, user: str, report: MemberReport) -> int:
        """Return how many nodes a user's live run may hold."""
        if time.monotonic() - self._counted_s >= _LOOK_S:
            self._counted_s = time.monotonic()
            try:
                self._count = await self._idle()
            except NotAvailable:  # nothing is known to be idle
                self._count = 0
        return self.shares.report(user, report, self._count)

    async def ask(self, report: MemberReport) -> MemberShare:
        """Answer this live run, whose pauses and drained nodes are its own."""
        return MemberShare(nodes=await self.report(ourselves().user, report))
