"""Slurm, PBS and Flux without their commands: backends of each, orders for pilots, and a runner that plays answers."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from bftrain.live import examples
from bftrain.live.schedulers import flux, pbs, slurm
from bftrain.live.schedulers.backend import (
    ALIVE,
    Command,
    CommandFailed,
    CommandRunner,
    Pilot,
    PilotBackend,
    PilotLimits,
    PilotOrder,
    PilotState,
    Run,
    Trouble,
    environment,
)
from bftrain.live.schedulers.base import AgentOrder, HooksView, News, PoolSettings, Scheduler, Site, pools_of
from bftrain.live.schedulers.hooks import READER, HookListener, HookNews, HookSpool, read_line
from bftrain.live.schedulers.pilots import blocked
from bftrain.live.schedulers.slurm import SlurmSettings

__all__ = [
    "ALIVE", "READER", "AgentOrder", "Command", "CommandFailed", "CommandRunner", "HookListener", "HookNews",
    "HookSpool", "HooksView", "News", "Pilot", "PilotBackend", "PilotLimits", "PilotState", "PoolSettings", "Run",
    "Scheduler", "Site", "Trouble", "blocked", "environment", "flux", "hook_text", "install_hook", "pbs", "pools_of",
    "read_line", "slurm",
]  # fmt: skip  # product names for tests, which import them from here alone

SITE: Final = Site(name="t", folder=Path("/nowhere"))
ORDER: Final = PilotOrder(
    name="bftrain-t", mark="bftrain-t.12ab", script="#!/bin/sh\n# Idle\numask 077\nexec true\n", seconds=3600.0, rank=1
)
AGENT: Final = AgentOrder(argv=("agent", "--node", "{node}"))


def hook_text(kind: str, spool: Path) -> str:
    """Return the hook that ``bftrain live --example`` prints, with the folder of the spool."""
    return examples.text(f"{kind}-hook").replace("@SPOOL@", str(spool))


def install_hook(kind: str, *, spool: Path, hook: Path, owner: str = "") -> None:
    """Write a hook, and make the spool of ``owner``."""
    hook.write_text(hook_text(kind, spool))
    hook.chmod(0o755)
    spool.mkdir(mode=0o700)
    if owner:
        shutil.chown(spool, owner)


class Said:
    """Answers commands: by the words they begin with, the first that fits; an exception is raised."""

    def __init__(self, **answers: str | Exception) -> None:
        self.answers = {words.replace("_", " "): answer for words, answer in answers.items()}
        self.asked: list[tuple[str, ...]] = []

    async def __call__(self, command: Command) -> str:
        self.asked.append(command.argv)
        words = " ".join(command.argv)
        answer = next((answer for begin, answer in self.answers.items() if words.startswith(begin)), "")
        if isinstance(answer, Exception):
            raise answer
        return answer

    @property
    def programs(self) -> list[str]:
        return [argv[0] for argv in self.asked]


def failed(said: str, printed: str = "") -> CommandFailed:
    return CommandFailed(("it",), 1, said, printed)


def of_slurm(unit: str = "node", grace_s: float = 0.0, **settings: Any) -> slurm.Slurm:  # noqa: ANN401 - settings of any kind
    return slurm.Slurm(SlurmSettings(**{"partition": "pilot", **settings}), grace_s, unit)


def of_pbs(**settings: Any) -> pbs.Pbs:  # noqa: ANN401 - as above
    return pbs.Pbs(pbs.PbsSettings(**{"queue": "idle", **settings}))


def of_flux(**settings: Any) -> flux.Flux:  # noqa: ANN401 - as above
    return flux.Flux(flux.FluxSettings(**settings))
