"""PBS, as an operator: agents wait on every node, and nodes that PBS calls free are ours while no job is on them."""

from __future__ import annotations

from collections.abc import Mapping

from bftrain.config import from_mapping
from bftrain.live.schedulers import pbs
from bftrain.live.schedulers.command_runner import CommandRunner
from bftrain.live.schedulers.executables import found_all
from bftrain.live.schedulers.node_polling import NodeWatch, WatchSettings
from bftrain.live.schedulers.pbs_read import read
from bftrain.live.schedulers.pilot_backend import Command, Run
from bftrain.live.schedulers.port import Scheduler, Site
from bftrain.ports import Availability


class PbsNodesSettings(WatchSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How PBS is asked for its nodes; ``json`` is for versions that know it."""

    json: bool = True


def make(table: Mapping[str, object], _site: Site) -> Scheduler:
    """Make the scheduler out of the settings of a site."""
    settings = from_mapping(table, PbsNodesSettings, where="scheduler")
    command = Command(argv=("pbsnodes", "-a", "-F", "json") if settings.json else ("pbsnodes", "-a"))

    async def ask(run: Run) -> frozenset[str]:
        return pbs.read_idle(read(await run(command), "nodes"))

    return NodeWatch("pbs-nodes", ask, settings, CommandRunner(timeout_s=settings.command_timeout_s), available)


def available() -> Availability:
    """Say whether PBS's commands are here."""
    return found_all(("pbsnodes",), pbs.REMEDY)
