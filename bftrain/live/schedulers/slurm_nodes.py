"""Slurm, as an operator: agents wait on every node, and nodes that Slurm calls idle are ours."""

from __future__ import annotations

from collections.abc import Mapping

from bftrain.config import from_mapping
from bftrain.live.schedulers import slurm
from bftrain.live.schedulers.command_runner import CommandRunner
from bftrain.live.schedulers.executables import found_all
from bftrain.live.schedulers.node_polling import NodeWatch, WatchSettings
from bftrain.live.schedulers.pilot_backend import Run
from bftrain.live.schedulers.port import Scheduler, Site
from bftrain.ports import Availability
from bftrain.values import checks


class SlurmNodesSettings(WatchSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which nodes are looked at; "" means all."""

    partition: str = ""

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        if self.partition:
            checks.text(self, "partition")


def make(table: Mapping[str, object], _site: Site) -> Scheduler:
    """Make the scheduler out of the settings of a site."""
    settings = from_mapping(table, SlurmNodesSettings, where="scheduler")
    command = slurm.sinfo(settings.partition)

    async def ask(run: Run) -> frozenset[str]:
        return slurm.read_idle(await run(command))

    return NodeWatch("slurm-nodes", ask, settings, CommandRunner(timeout_s=settings.command_timeout_s), available)


def available() -> Availability:
    """Say whether Slurm's commands are here."""
    return found_all(("sinfo",), slurm.REMEDY)
