"""Members: live runs of users, each under its user's account, that share the nodes of a site."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from bftrain.live.model.site_config import Agents, SiteSettings
from bftrain.live.model.task_record import said
from bftrain.values import checks, wire

_OF_THE_SITE = ("name", "kinds", "launcher", "launchers", "environment", "environments", "times")
_OF_ITS_AGENTS = frozenset(Agents.__struct_fields__) - {"port", "python"}
_PRIVATE = frozenset({"spool", "spool_writers"})  # of a scheduler: hooks write for one user


class MemberReport(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A report of a member: what it holds, and what its tasks could use."""

    wanted: Annotated[int, said("Nodes that its tasks could use.", minimum=0)]
    fewest: Annotated[int, said("Nodes below which none of its tasks can run.", minimum=0)] = 1
    held: Annotated[int, said("Nodes on which its pilots run.", minimum=0)]

    def __post_init__(self) -> None:
        """Check the numbers."""
        for name in ("wanted", "fewest", "held"):
            checks.integer(self, name, at_least=0)


class MemberShare(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes that a member may hold now."""

    nodes: Annotated[int, said("How many nodes; what is above it is to be given back.")]
    drained: Annotated[tuple[str, ...], said("Nodes that must not be used.")] = ()


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """A member as the site sees it."""

    user: str
    held: Annotated[int, said("Nodes on which its pilots run.")]
    wanted: Annotated[int, said("Nodes that its tasks could use.")]
    nodes: Annotated[int, said("Nodes that it may hold.")]
    node_s: Annotated[float, said("Node-seconds held since the site's live run began.")]
    silent_s: Annotated[float, said("Seconds since it reported last.")]
    stuck: Annotated[bool, said("Whether it takes no idle nodes though it may.")] = False


def settings_for_members(site: SiteSettings) -> dict[str, Any]:
    """Return the settings of a site that hold for its members too, in the form of a site's file."""
    plain = wire.plain(site)
    tables = plain["scheduler"] if isinstance(plain["scheduler"], list) else [plain["scheduler"]]
    found = {name: plain[name] for name in _OF_THE_SITE}
    found["scheduler"] = [{key: table[key] for key in table if key not in _PRIVATE} for table in tables]
    found["agents"] = {key: plain["agents"][key] for key in sorted(_OF_ITS_AGENTS)}
    return found
