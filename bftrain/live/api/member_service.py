"""MemberService: answers live runs of users that share the nodes of this site."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bftrain.live.model.callers import Caller
from bftrain.live.model.member_views import MemberReport, MemberShare, MemberView, settings_for_members
from bftrain.live.model.schemas import NotAllowed, NotNow
from bftrain.live.model.site_config import SiteSettings

if TYPE_CHECKING:
    from bftrain.live.run.daemon import LiveDaemon
    from bftrain.live.run.site_members import SiteMembers


class MemberService:
    """Answers requests of members. All methods run in the daemon's event loop."""

    def __init__(self, daemon: LiveDaemon) -> None:
        self._daemon = daemon

    def settings(self) -> dict[str, Any]:
        """Return the settings of the site for its members."""
        _ = self._members
        return settings_for_members(self._daemon.site)

    def views(self, caller: Caller) -> tuple[MemberView, ...]:
        """Return the members: all for an operator, else the caller's own."""
        return tuple(one for one in self._members.shares.views if caller.operator or one.user == caller.user)

    async def report(self, caller: Caller, report: MemberReport) -> MemberShare:
        """Return how many nodes the caller's live run may hold."""
        nodes = await self._members.report(caller.user, report)
        drained = tuple(sorted(self._daemon.task_store.drained))
        return MemberShare(nodes=0 if self._daemon.harvesting.paused else nodes, drained=drained)

    @property
    def _members(self) -> SiteMembers:
        if self._daemon.opened.members is None:
            raise NotNow("this live run takes no members", fix="its operator can: members = true in its settings")
        return self._daemon.opened.members


def check_may_submit(caller: Caller, site: SiteSettings) -> None:
    """Raise for users of a site with members: tasks are to run under their own accounts."""
    if site.members and not caller.operator:
        fix = f"bftrain live join {site.socket}, and submit to your own live run"
        raise NotAllowed("tasks of users run under their own accounts here", fix=fix)
