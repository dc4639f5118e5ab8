"""Slurm: for ordinary users with pilot jobs in a preemptable partition or QOS, or for operators.

Command builders, parsers and a table of states. Times are requested in seconds since 1970.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from bftrain.live.schedulers import slurm_gpus
from bftrain.live.schedulers.node_polling import NodeWatch, WatchSettings
from bftrain.live.schedulers.pilot_backend import (
    Command,
    CommandBackend,
    CommandFailed,
    CommandRunner,
    Pilot,
    PilotLimits,
    PilotOrder,
    PilotState,
    Run,
    Trouble,
    found_all,
    pilot_script,
)
from bftrain.live.schedulers.pilot_manager import PilotJobs
from bftrain.live.schedulers.pool_settings import scheduler_settings
from bftrain.live.schedulers.port import AgentOrder, Scheduler, Site
from bftrain.live.schedulers.slurm_limits import ask_limits
from bftrain.live.schedulers.slurm_settings import SlurmSettings
from bftrain.node_units import GPU, NODE
from bftrain.nodesets import expand, fold
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

# Pattern in a command's output -> consequence; the first match counts
TROUBLES: Final[tuple[tuple[str, Trouble], ...]] = (
    (r"Invalid job id|already completing or completed|Job/step already", Trouble.GONE),
    (
        r"QOS\w*Limit|Assoc\w*Limit|submit limit|temporarily unable|too many|exceeds? .*(MaxJobCount|array)",
        Trouble.LIMIT,
    ),
    (r"Unable to contact|timed? out|did not answer|connect|Socket|not responding|I/O error|standby", Trouble.AWAY),
    (r"[Ii]nvalid|not permitted|[Pp]ermission|denied|not available|cannot be run|unrecognized", Trouble.REFUSED),
)

_NEVER: Final = re.compile(
    r"Invalid (partition|qos|account|generic resource|feature|--\S+ specification)|unrecognized option|ambiguous",
    re.IGNORECASE,
)
HOLDING: Final = frozenset({PilotState.RUNNING, PilotState.STOPPED})  # states of pilots on a slot
_NICE: Final = 10_000  # by which longer pilots come before shorter ones
_LIST: Final = "%i|%A|%T|%S|%e|%k|%N|%r"
_PLANS: Final = "%j|%S|%Y"
# States of nodes, and marks behind them, that administrators set to empty a node: maintenance, reboot, power down
_EMPTIED: Final = re.compile(r"(drain|maint|fail).*|.*[$@^!%]")


def make(table: Mapping[str, object], site: Site) -> Scheduler:
    """Build the scheduler from the settings of a site."""
    settings = scheduler_settings(table, SlurmSettings)
    if site.unit == GPU:
        slurm_gpus.check_options(settings.options)
    run = CommandRunner(timeout_s=settings.command_timeout_s, more=EPOCHS)
    return PilotJobs(Slurm(settings, site.grace_s, site.unit), settings, site, run)


class Slurm(CommandBackend):
    """Slurm's commands and parsers of their output."""

    name = "slurm"
    programs = PROGRAMS
    remedy = REMEDY
    cancels = "scancel"
    troubles = TROUBLES
    avoids = True

    def __init__(self, settings: SlurmSettings, grace_s: float = 0.0, unit: str = NODE) -> None:
        self._settings = settings
        self._grace_s = grace_s
        self.unit = unit
        self.partitions = (settings.partition,) if settings.partition and not settings.qos else ()
        self._slots: dict[str, str] = {}  # of pilots of one GPU, by number

    def script(self, order: AgentOrder, site: Site) -> str:
        """Return the job script; it names the node, or its GPU, as Slurm does.

        At the beginning of a partition's GraceTime Slurm signals the steps of a job only, not its script. So where
        there is a grace the agent is a step. It has all processors of the node, or a step would get one.
        """
        start = _AS_STEP if self._grace_s else ""
        if self.unit == GPU:
            words, check = slurm_gpus.SLOT_WORDS, slurm_gpus.CHECK_SLOT
            return pilot_script(order, site, slurm_gpus.FIND_SLOT, start, words=words, check=check)
        return pilot_script(order, site, "node=$SLURMD_NODENAME", start)

    @property
    def gpus(self) -> float:
        """GPUs that a pilot asks for, such as by --gres=gpu:4; 0 if it asks for none."""
        return 1.0 if self.unit == GPU else slurm_gpus.gpus_asked(self._settings.options)

    async def limits(self, run: Run) -> PilotLimits:
        """Query the limits of pilots; raise NotAvailable if pilots would not be preempted."""
        return await ask_limits(run, self._settings, self._grace_s, self.unit)

    async def submit(self, run: Run, order: PilotOrder, count: int) -> int:
        """Submit pilots, as one array if possible."""
        await run(self.sbatch(order, together := count if self._settings.arrays else 1))
        return together

    async def refused(self, run: Run, order: PilotOrder) -> str:
        """Return why Slurm can never accept such a pilot, such as an unknown account or QOS; "" if it may."""
        command = self.sbatch(order, 1)
        try:
            await run(Command(argv=(*command.argv, "--test-only"), stdin=command.stdin))
        except CommandFailed as error:
            return error.said if _NEVER.search(error.said) else ""
        return ""

    def sbatch(self, order: PilotOrder, count: int) -> Command:
        """Build the command that submits pilots; the script is passed by stdin, so that no file is left."""
        known = self._settings
        words = ["sbatch", "--parsable", f"--job-name={order.name}", f"--comment={order.mark}"]
        words += [f"--{name}={value}" for name in ("partition", "qos", "account") if (value := getattr(known, name))]
        part = [] if slurm_gpus.gpus_asked(known.options) else [slurm_gpus.ONE_GPU]
        words += ["--nodes=1", "--ntasks=1", *(part if self.unit == GPU else ["--exclusive"])]
        words += ["--no-requeue", "--output=/dev/null", "--input=/dev/null"]
        words += [f"--time={math.ceil(order.seconds / 60)}", f"--nice={order.rank * _NICE}"]
        words += [f"--exclude={fold(order.avoid)}"] if order.avoid else []
        words += [f"--array=1-{count}"] if count > 1 else []
        return Command(argv=(*words, *known.options), stdin=order.script)

    async def pilots(self, run: Run, name: str) -> Sequence[Pilot]:
        """List our jobs, including those that ended lately."""
        command = squeue(name)
        try:
            pilots = list(read_pilots(await run(command)))
        except ValueError as error:  # not to be taken for no pilots at all
            raise CommandFailed(command.argv, 0, f"printed what cannot be read: {error}") from error
        return await self._on_slots(run, pilots) if self.unit == GPU else pilots

    async def _on_slots(self, run: Run, pilots: Sequence[Pilot]) -> Sequence[Pilot]:
        """Name the slot of each pilot; one that is over and was never seen on its slot keeps the name of its node."""
        self._slots = {one.number: slot for one in pilots if (slot := self._slots.get(one.number))}
        if fresh := [one.number for one in pilots if one.state in HOLDING and one.number not in self._slots]:
            try:
                said = await run(slurm_gpus.job_details(fresh))
            except CommandFailed as error:
                if self.trouble(error) is not Trouble.GONE:
                    raise
                said = error.printed  # of all others
            self._slots |= slurm_gpus.read_slots(said)
        return [
            replace(one, node=self._slots.get(one.number, "" if one.state in HOLDING else one.node)) for one in pilots
        ]

    async def idle(self, run: Run) -> frozenset[str]:
        """Return the idle nodes of the partition, or as many slots as GPUs of shared nodes are idle."""
        if self.unit == GPU:
            return slurm_gpus.read_idle_gpus(await run(slurm_gpus.node_gpus(self._settings.partition)))
        return read_idle(await run(sinfo(self._settings.partition)))

    async def plans(self, run: Run, name: str) -> Mapping[str, float]:
        """Return from when on Slurm has planned jobs on nodes."""
        return read_plans(await run(Command(argv=("squeue", "--noheader", "--start", f"--format={_PLANS}"))), name)

    async def draining(self, run: Run, nodes: Sequence[str]) -> Mapping[str, str]:
        """Return those of the nodes that administrators drain or reboot, with state and reason."""
        words = ("sinfo", "--noheader", "--Node", "--all", f"--nodes={fold(nodes)}", "--format=%N|%T|%E")
        return read_drains(await run(Command(argv=words)))


def sinfo(partition: str) -> Command:
    """Build the command that lists idle nodes, one a line."""
    where = (f"--partition={partition}",) if partition else ()
    return Command(argv=("sinfo", "--noheader", "--Node", "--responding", "--states=idle", *where, "--format=%N|%t"))


def squeue(name: str) -> Command:
    """Build the command that lists our jobs of one name, each task of an array on a line of its own."""
    options = ("--noheader", "--array", "--me", f"--name={name}", "--states=all", f"--format={_LIST}")
    return Command(argv=("squeue", *options))


def read_pilots(said: str) -> Iterator[Pilot]:
    """Parse the output of :func:`squeue`; raise ``ValueError`` if it has another form."""
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
    """Parse names of idle nodes; a mark behind the state means that a node sleeps, is planned or does not answer."""
    rows = (line.partition("|") for line in said.splitlines())
    return frozenset(node for node, _, state in rows if state.strip() == "idle")


def read_drains(said: str) -> dict[str, str]:
    """Parse the nodes that are to be empty, with their state and the administrator's reason."""
    rows = (line.split("|", 2) for line in said.splitlines() if line.count("|") > 1)
    found = ((node, state, "" if reason.strip() == "none" else f", {reason.strip()}") for node, state, reason in rows)
    return {node: f"{state}{reason}" for node, state, reason in found if _EMPTIED.fullmatch(state)}


def read_plans(said: str, name: str) -> dict[str, float]:
    """Parse the earliest time from which each node is planned for other jobs."""
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


# -- as an operator: agents wait on every node, and nodes that Slurm calls idle are ours


class SlurmNodesSettings(WatchSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The nodes to watch; "" means all."""

    partition: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.partition:
            checks.text(self, "partition")


def make_nodes(table: Mapping[str, object], _site: Site) -> Scheduler:
    """Build the scheduler from the settings of a site."""
    settings = scheduler_settings(table, SlurmNodesSettings)
    command = sinfo(settings.partition)

    async def ask(run: Run) -> frozenset[str]:
        return read_idle(await run(command))

    run = CommandRunner(timeout_s=settings.command_timeout_s)
    return NodeWatch("slurm-nodes", ask, settings, run, lambda: found_all(("sinfo",), REMEDY))
