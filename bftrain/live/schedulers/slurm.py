"""Slurm, as an ordinary user: pilots in a partition or under a QOS whose jobs are preempted.

Built of command builders, parsers and a table of states. Times are asked for in seconds since 1970.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from bftrain.config import from_mapping
from bftrain.live.schedulers import slurm_limits
from bftrain.live.schedulers.command_runner import CommandRunner, in_pieces
from bftrain.live.schedulers.executables import found_all
from bftrain.live.schedulers.pilot_backend import (
    Command,
    CommandFailed,
    Pilot,
    PilotLimits,
    PilotOrder,
    PilotState,
    Run,
    Trouble,
)
from bftrain.live.schedulers.pilot_manager import PilotJobs, PilotSettings
from bftrain.live.schedulers.pilot_script import pilot_script
from bftrain.live.schedulers.port import AgentOrder, Scheduler, Site
from bftrain.nodesets import expand, fold
from bftrain.ports import Availability
from bftrain.values import checks

PROGRAMS: Final = ("sbatch", "squeue", "scancel", "sinfo", "scontrol")
REMEDY: Final = "apt-get install slurm-client, or run this where Slurm's commands are installed"
_AS_STEP: Final = 'srun --quiet --nodes=1 --ntasks=1 --cpus-per-task="${SLURM_CPUS_ON_NODE:-1}"'
EPOCHS: Final = {"SLURM_TIME_FORMAT": "%s"}

STATES: Final[Mapping[str, PilotState]] = {
    "PENDING": PilotState.WAITING,
    "CONFIGURING": PilotState.WAITING,  # its node is being booted
    "REQUEUED": PilotState.WAITING,
    "REQUEUE_HOLD": PilotState.WAITING,
    "REQUEUE_FED": PilotState.WAITING,
    "SPECIAL_EXIT": PilotState.WAITING,
    "RESV_DEL_HOLD": PilotState.WAITING,
    "RUNNING": PilotState.RUNNING,
    "RESIZING": PilotState.RUNNING,
    "SIGNALING": PilotState.RUNNING,
    "STAGE_OUT": PilotState.ENDING,
    "SUSPENDED": PilotState.STOPPED,
    "STOPPED": PilotState.STOPPED,
    "COMPLETING": PilotState.ENDING,
    "PREEMPTED": PilotState.TAKEN,
    "CANCELLED": PilotState.TAKEN,
    "TIMEOUT": PilotState.TAKEN,
    "REVOKED": PilotState.TAKEN,
    "DEADLINE": PilotState.TAKEN,
    "NODE_FAIL": PilotState.TAKEN,  # the node went down, which is no fault of the pilot
    "COMPLETED": PilotState.LEFT,
    "BOOT_FAIL": PilotState.FAILED,
    "FAILED": PilotState.FAILED,
    "LAUNCH_FAILED": PilotState.FAILED,
    "OUT_OF_MEMORY": PilotState.FAILED,
}

# What a command says -> what follows; the first that fits
TROUBLES: Final[tuple[tuple[str, Trouble], ...]] = (
    (r"Invalid job id|already completing or completed|Job/step already", Trouble.GONE),
    (
        r"QOS\w*Limit|Assoc\w*Limit|submit limit|temporarily unable|too many|exceeds? .*(MaxJobCount|array)",
        Trouble.LIMIT,
    ),
    (r"Unable to contact|timed? out|did not answer|connect|Socket|not responding|I/O error|standby", Trouble.AWAY),
    (r"[Ii]nvalid|not permitted|[Pp]ermission|denied|not available|cannot be run|unrecognized", Trouble.REFUSED),
)

_NICE: Final = 10_000  # by which longer pilots come before shorter ones
_LIST: Final = "%i|%A|%T|%S|%e|%k|%N|%r"
_PLANS: Final = "%j|%S|%Y"


class SlurmSettings(PilotSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What pilots are in Slurm; "" leaves it to Slurm."""

    partition: str = ""
    qos: str = ""
    account: str = ""
    options: tuple[str, ...] = ()  # more words for sbatch, such as --gres=gpu:4
    arrays: bool = True  # submit many pilots as one job array

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        for name in ("partition", "qos", "account"):
            if getattr(self, name):
                checks.text(self, name)
        checks.texts(self, "options")
        if not self.partition and not self.qos:
            checks.reject(
                self, "partition", "is missing", "name the partition, or the qos, whose jobs Slurm may preempt"
            )


def make(table: Mapping[str, object], site: Site) -> Scheduler:
    """Make the scheduler out of the settings of a site."""
    settings = from_mapping(table, SlurmSettings, where="scheduler")
    return PilotJobs(
        Slurm(settings, site.grace_s), settings, site, CommandRunner(timeout_s=settings.command_timeout_s, more=EPOCHS)
    )


class Slurm:
    """Slurm's commands, and what they print."""

    name = "slurm"
    avoids = True

    def __init__(self, settings: SlurmSettings, grace_s: float = 0.0) -> None:
        self._settings = settings
        self._grace_s = grace_s

    def available(self) -> Availability:
        """Say whether Slurm's commands are here."""
        return found_all(PROGRAMS, REMEDY)

    def script(self, order: AgentOrder, site: Site) -> str:
        """Write the job: the node has the name by which Slurm knows it.

        At the beginning of a partition's GraceTime Slurm signals the steps of a job only, not its script. So where
        there is a grace the agent is a step. It has all processors of the node, or a step would get one.
        """
        return pilot_script(order, site, "node=$SLURMD_NODENAME", _AS_STEP if self._grace_s else "")

    async def limits(self, run: Run) -> PilotLimits:
        """Ask what is allowed; NotAvailable if pilots would not be preempted."""
        known = self._settings
        chosen = slurm_limits.Chosen(known.partition, known.qos, known.account, self._grace_s)
        return await slurm_limits.ask(run, chosen)

    async def submit(self, run: Run, order: PilotOrder, count: int) -> int:
        """Submit pilots, together if that is wanted."""
        together = count if self._settings.arrays else 1
        await run(self.sbatch(order, together))
        return together

    def sbatch(self, order: PilotOrder, count: int) -> Command:
        """Build the command that submits pilots; the script comes by stdin, so no file is left."""
        known = self._settings
        words = ["sbatch", "--parsable", f"--job-name={order.name}", f"--comment={order.mark}"]
        words += [f"--{name}={value}" for name in ("partition", "qos", "account") if (value := getattr(known, name))]
        words += ["--nodes=1", "--ntasks=1", "--exclusive", "--no-requeue", "--output=/dev/null", "--input=/dev/null"]
        words += [f"--time={math.ceil(order.seconds / 60)}", f"--nice={order.rank * _NICE}"]
        words += [f"--exclude={fold(order.avoid)}"] if order.avoid else []
        words += [f"--array=1-{count}"] if count > 1 else []
        return Command(argv=(*words, *known.options), stdin=order.script)

    async def pilots(self, run: Run, name: str) -> Sequence[Pilot]:
        """List our jobs, those that ended lately too."""
        command = squeue(name)
        try:
            return list(read_pilots(await run(command)))
        except ValueError as error:  # not to be taken for no pilots at all
            raise CommandFailed(command.argv, 0, f"printed what cannot be read: {error}") from error

    async def cancel(self, run: Run, ids: Collection[str]) -> None:
        """Cancel jobs."""
        for piece in in_pieces(tuple(ids)):
            try:
                await run(Command(argv=("scancel", *piece)))
            except CommandFailed as error:
                if self.trouble(error) is not Trouble.GONE:
                    raise

    async def idle(self, run: Run) -> frozenset[str]:
        """Name the idle nodes of the partition."""
        return read_idle(await run(sinfo(self._settings.partition)))

    async def plans(self, run: Run, name: str) -> Mapping[str, float]:
        """Say for which nodes Slurm has planned jobs, and from when on."""
        return read_plans(await run(Command(argv=("squeue", "--noheader", "--start", f"--format={_PLANS}"))), name)

    def trouble(self, failed: CommandFailed) -> Trouble:
        """Say what follows from what a command said."""
        return next((kind for words, kind in TROUBLES if re.search(words, failed.said)), Trouble.AWAY)


def sinfo(partition: str) -> Command:
    """Build the command that lists idle nodes, one a line."""
    where = (f"--partition={partition}",) if partition else ()
    return Command(argv=("sinfo", "--noheader", "--Node", "--responding", "--states=idle", *where, "--format=%N|%t"))


def squeue(name: str) -> Command:
    """Build the command that lists our jobs of one name, each task of an array on a line of its own."""
    argv = ("squeue", "--noheader", "--array", "--me", f"--name={name}", "--states=all", f"--format={_LIST}")
    return Command(argv=argv)


def read_pilots(said: str) -> Iterator[Pilot]:
    """Read what :func:`squeue` asked for; ``ValueError`` if it is something else."""
    for line in said.splitlines():
        id_, number, state, start, end, comment, node, why = line.split("|", _LIST.count("|"))
        yield Pilot(
            id=id_,
            state=STATES.get(state, PilotState.ENDING),  # unknown: neither used nor replaced
            node=node,
            mark=comment,
            start_s=_seconds(start) or 0.0,
            end_s=_seconds(end),
            number=number,
            why=why,
        )


def read_idle(said: str) -> frozenset[str]:
    """Read names of idle nodes; a mark behind the state means that a node is asleep, planned or does not answer."""
    rows = (line.partition("|") for line in said.splitlines())
    return frozenset(node for node, _, state in rows if state.strip() == "idle")


def read_plans(said: str, name: str) -> dict[str, float]:
    """Read when nodes are planned for others: the earliest time of each."""
    plans: dict[str, float] = {}
    for line in said.splitlines():
        job, start, nodes = [*line.rsplit("|", 2), "", ""][:3]
        start_s = _seconds(start)
        if job == name or start_s is None or nodes in {"", "(null)", "N/A"}:
            continue
        try:
            planned = expand(nodes)
        except ValueError:
            continue
        for node in planned:
            plans[node] = min(start_s, plans.get(node, math.inf))
    return plans


def _seconds(text: str) -> float | None:
    return float(text) if text.isdecimal() and text.isascii() else None
