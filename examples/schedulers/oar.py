"""OAR: pilots of the type besteffort, which OAR stops when other jobs want their nodes. Not tested on an OAR."""

import getpass
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from bftrain.config import from_mapping
from bftrain.live.schedulers.backend import (
    Command,
    CommandFailed,
    Pilot,
    PilotBackend,
    PilotLimits,
    PilotOrder,
    PilotState,
    Run,
    Trouble,
    pilot_script,
)
from bftrain.live.schedulers.base import AgentOrder, Site
from bftrain.live.schedulers.pilots import PilotJobs, PilotSettings

STATES = {
    "Waiting": PilotState.WAITING,
    "Hold": PilotState.WAITING,
    "toLaunch": PilotState.WAITING,
    "Launching": PilotState.WAITING,
    "Running": PilotState.RUNNING,
    "Suspended": PilotState.STOPPED,
    "Terminated": PilotState.LEFT,
    "Error": PilotState.TAKEN,
}


class Settings(PilotSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OAR's own site settings, in addition to the settings of all pilots."""

    project: str = "default"


def make(table: Mapping[str, Any], site: Site) -> PilotJobs:
    """Create the scheduler from the table [scheduler] of the settings, without its name."""
    settings = from_mapping(table, Settings, where="scheduler")
    return PilotJobs(Oar(settings), settings, site)


class Oar(PilotBackend):
    """Submits, lists and cancels pilots by OAR's commands."""

    name = "oar"
    programs = ("oarsub", "oarstat", "oardel", "oarnodes")
    remedy = "run this where OAR's commands are installed"
    cancels = ("oardel",)
    troubles = (
        ("not exist|already (killed|terminated)|not found", Trouble.GONE),
        ("quota|[Tt]oo many", Trouble.LIMIT),
        ("[Cc]annot connect|database|did not answer", Trouble.AWAY),
        ("[Uu]nknown|[Bb]ad|denied|not allowed|cannot be run", Trouble.REFUSED),
    )
    avoids = True  # OAR can keep a pilot off some nodes

    def __init__(self, settings: Settings) -> None:
        self.project = settings.project

    def script(self, order: AgentOrder, site: Site) -> str:
        """Return the job script."""
        return pilot_script(order, site, 'read -r node <"$OAR_NODEFILE"')

    async def limits(self, run: Run) -> PilotLimits:  # noqa: ARG002 - OAR has no limits to query
        """Return no limits."""
        return PilotLimits()

    async def submit(self, run: Run, order: PilotOrder, count: int) -> int:  # noqa: ARG002 - one job per command
        """Submit one pilot."""
        hours, seconds = divmod(int(order.seconds), 3600)
        size = f"/nodes=1,walltime={hours}:{seconds // 60}:{seconds % 60}"
        words = ["oarsub", "-t", "besteffort", "-n", order.mark, "--project", self.project, "-l", size]
        words += ["-O", "/dev/null", "-E", "/dev/null"]
        if order.avoid:
            words += ["-p", "network_address NOT IN ({})".format(", ".join(f"'{node}'" for node in order.avoid))]
        await run(Command(argv=(*words, f"sh -c {shlex.quote(order.script)}")))
        return 1

    async def pilots(self, run: Run, name: str) -> Sequence[Pilot]:
        """List our jobs with this name."""
        command = Command(argv=("oarstat", "-f", "-J", "-u", getpass.getuser()))
        output = await run(command)
        try:
            jobs = json.loads(output or "{}")
            return [_pilot(id_, job) for id_, job in jobs.items() if (job["name"] or "").startswith(f"{name}.")]
        except (ValueError, KeyError) as error:  # an empty list would mean that there are no pilots
            raise CommandFailed(command.argv, 0, "unreadable output") from error

    async def idle(self, run: Run) -> frozenset[str]:
        """Return the nodes that are alive and have no job."""
        resources = json.loads(await run(Command(argv=("oarnodes", "-J")))).values()
        used = {row["network_address"] for row in resources if row["state"] != "Alive" or row.get("jobs")}
        return frozenset(row["network_address"] for row in resources) - used


def _pilot(id_: str, job: Mapping[str, Any]) -> Pilot:
    nodes, start_s = job["assigned_network_address"], float(job["startTime"] or 0)
    return Pilot(
        id=id_,
        state=STATES.get(job["state"], PilotState.ENDING),
        node=nodes[0] if nodes else "",
        mark=job["name"],
        start_s=start_s,
        end_s=start_s + job["walltime"] if start_s else None,
    )
