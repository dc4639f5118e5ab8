"""Slurm: for ordinary users with pilot jobs in a preemptable partition or QOS, or for operators.

Command builders, parsers and a table of states. Times are requested in seconds since 1970.
"""

from __future__ import annotations

import getpass
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from bftrain.config import from_mapping
from bftrain.errors import NotAvailable
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
from bftrain.live.schedulers.pilot_manager import PilotJobs, PilotSettings
from bftrain.live.schedulers.port import AgentOrder, Scheduler, Site
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

_NEVER: Final = re.compile(r"Invalid (partition|qos|account|generic resource|feature)", re.IGNORECASE)
_GPUS: Final = re.compile(r"--(?:gres=(?:.*,)?gpu|gpus-per-node=|gpus=)(?::?[A-Za-z_][\w-]*)?:?(\d+)?(?:,.*)?")
_NICE: Final = 10_000  # by which longer pilots come before shorter ones
_LIST: Final = "%i|%A|%T|%S|%e|%k|%N|%r"
_PLANS: Final = "%j|%S|%Y"


class SlurmSettings(PilotSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of pilots in Slurm; "" is Slurm's default."""

    partition: str = ""
    qos: str = ""
    account: str = ""
    options: tuple[str, ...] = ()  # more words for sbatch, such as --gres=gpu:4
    arrays: bool = True  # submit many pilots as one job array

    def __post_init__(self) -> None:
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
    """Build the scheduler from the settings of a site."""
    settings = from_mapping(table, SlurmSettings, where="scheduler")
    return PilotJobs(
        Slurm(settings, site.grace_s), settings, site, CommandRunner(timeout_s=settings.command_timeout_s, more=EPOCHS)
    )


class Slurm(CommandBackend):
    """Slurm's commands and parsers of their output."""

    name = "slurm"
    programs = PROGRAMS
    remedy = REMEDY
    cancels = "scancel"
    troubles = TROUBLES
    avoids = True

    def __init__(self, settings: SlurmSettings, grace_s: float = 0.0) -> None:
        self._settings = settings
        self._grace_s = grace_s

    def script(self, order: AgentOrder, site: Site) -> str:
        """Return the job script; it names the node as Slurm does.

        At the beginning of a partition's GraceTime Slurm signals the steps of a job only, not its script. So where
        there is a grace the agent is a step. It has all processors of the node, or a step would get one.
        """
        return pilot_script(order, site, "node=$SLURMD_NODENAME", _AS_STEP if self._grace_s else "")

    @property
    def gpus(self) -> float:
        """GPUs that a pilot asks for, such as by --gres=gpu:4; 0 if it asks for none."""
        found = filter(None, map(_GPUS.fullmatch, self._settings.options))
        return max((float(one[1] or 1) for one in found), default=0.0)

    async def limits(self, run: Run) -> PilotLimits:
        """Query the limits of pilots; raise NotAvailable if pilots would not be preempted."""
        return await ask_limits(run, self._settings, self._grace_s)

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
        words += ["--nodes=1", "--ntasks=1", "--exclusive", "--no-requeue", "--output=/dev/null", "--input=/dev/null"]
        words += [f"--time={math.ceil(order.seconds / 60)}", f"--nice={order.rank * _NICE}"]
        words += [f"--exclude={fold(order.avoid)}"] if order.avoid else []
        words += [f"--array=1-{count}"] if count > 1 else []
        return Command(argv=(*words, *known.options), stdin=order.script)

    async def pilots(self, run: Run, name: str) -> Sequence[Pilot]:
        """List our jobs, including those that ended lately."""
        command = squeue(name)
        try:
            return list(read_pilots(await run(command)))
        except ValueError as error:  # not to be taken for no pilots at all
            raise CommandFailed(command.argv, 0, f"printed what cannot be read: {error}") from error

    async def idle(self, run: Run) -> frozenset[str]:
        """Return the idle nodes of the partition."""
        return read_idle(await run(sinfo(self._settings.partition)))

    async def plans(self, run: Run, name: str) -> Mapping[str, float]:
        """Return from when on Slurm has planned jobs on nodes."""
        return read_plans(await run(Command(argv=("squeue", "--noheader", "--start", f"--format={_PLANS}"))), name)


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


# -- limits

_ASSOCIATION: Final = "GrpJobs,GrpSubmit,GrpTRES,MaxJobs,MaxSubmit,MaxWall"
_QOS: Final = (
    "Name,Preempt,PreemptMode,GraceTime,GrpJobs,GrpSubmit,GrpTRES,MaxJobsPU,MaxSubmitPU,MaxTRESPU,MaxJobsPA,MaxSubmitPA,"
    "MaxWall"
)
_RUNNING_LIMITS: Final = frozenset({"GrpJobs", "MaxJobs", "MaxJobsPU", "MaxJobsPA"})
_SUBMITTED_LIMITS: Final = frozenset({"GrpSubmit", "MaxSubmit", "MaxSubmitPU", "MaxSubmitPA"})
_NODE_LIMITS: Final = frozenset({"GrpTRES", "MaxTRESPU"})
_PAIR: Final = re.compile(r"(?:^| )(\w+)=(\S*)")
_LENGTH: Final = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)")
_SETTING: Final = re.compile(r"^(\w+) += (.*)$", re.MULTILINE)


async def ask_limits(run: Run, chosen: SlurmSettings, grace_s: float) -> PilotLimits:
    """Query what Slurm allows pilots, and from its configuration whether it preempts them at once.

    Pilots that are not preempted would delay other jobs, so that is NotAvailable. Slow preemption is a remark.
    """
    config = dict(_SETTING.findall(await run(Command(argv=("scontrol", "show", "config")))))
    partition = await _partition(run, chosen.partition) if chosen.partition else {}
    accounting = config.get("AccountingStorageType", "").strip() == "accounting_storage/slurmdbd"
    rows = await _accounted(run, chosen, partition) if accounting else []
    if "PreemptType" not in config:  # not to be taken for a Slurm without preemption
        raise CommandFailed(("scontrol", "show", "config"), 0, "printed what cannot be read")
    # Limits on nodes stand in texts such as ``cpu=400,node=10``
    pairs = [pair.partition("=") for row in rows for name in _NODE_LIMITS for pair in row.get(name, "").split(",")]
    nodes_at_once = [_number(number) for kind, _, number in pairs if kind == "node"]
    walls = [row.get("MaxWall", "") for row in rows]
    remarks = list(_preemption(config, partition, rows, chosen, grace_s))
    if partition.get("State", "UP") != "UP":
        remarks.append(f"partition '{partition.get('PartitionName')}' is {partition['State']}, so pilots only wait")
    try:
        nodes = frozenset(expand(partition["Nodes"]))
    except (KeyError, ValueError):  # none, or (null)
        nodes = frozenset()
    return PilotLimits(
        running=min([_least(rows, _RUNNING_LIMITS), *nodes_at_once]),
        submitted=min(_least(rows, _SUBMITTED_LIMITS), _number(config.get("MaxJobCount", ""))),
        longest_s=min(_length_s(text) for text in (partition.get("MaxTime", ""), *walls)),
        nodes=nodes,
        cluster=config.get("ClusterName", "").strip(),
        remarks=tuple(remarks),
    )


async def _partition(run: Run, name: str) -> Mapping[str, str]:
    try:
        said = await run(Command(argv=("scontrol", "show", "partition", name, "--oneliner")))
    except CommandFailed as error:
        if "not found" not in error.said:
            raise
        raise NotAvailable("Slurm has no such partition", where=f"partition '{name}'", fix="see sinfo") from error
    return dict(_PAIR.findall(said))


async def _accounted(run: Run, chosen: SlurmSettings, partition: Mapping[str, str]) -> list[Mapping[str, str]]:
    """Query the accounting for the limits of our associations, of the QOS, and of the partition's QOS."""
    names = [name for name in (chosen.qos, partition.get("QoS", "N/A")) if name and name != "N/A"]
    account = (f"account={chosen.account}",) if chosen.account else ()
    asked = [("assoc", "where", f"user={getpass.getuser()}", *account, f"format={_ASSOCIATION}")]
    asked += [("qos", "where", f"name={name}", f"format={_QOS}") for name in names]
    rows: list[Mapping[str, str]] = []
    for words in asked:
        try:
            rows += read_table(await run(Command(argv=("sacctmgr", "--parsable2", "show", *words))))
        except CommandFailed:
            continue  # not all users may ask; sbatch's answer will show it
    return rows


def read_table(said: str) -> list[Mapping[str, str]]:
    """Parse the output of sacctmgr with ``--parsable2``: a line of names, and lines of values."""
    head, *lines = said.splitlines() or [""]
    names = head.split("|")
    return [dict(zip(names, line.split("|"), strict=False)) for line in lines]


def _preemption(
    config: Mapping[str, str],
    partition: Mapping[str, str],
    rows: Iterable[Mapping[str, str]],
    chosen: SlurmSettings,
    used_s: float,
) -> Iterator[str]:
    """Raise if pilots are never preempted; yield remarks on slow preemption."""
    kind = config.get("PreemptType", "").strip()
    qos = next((row for row in rows if chosen.qos and row.get("Name") == chosen.qos), {})
    mode = partition.get("PreemptMode", "") if kind == "preempt/partition_prio" else qos.get("PreemptMode", "")
    if not mode or mode == "cluster":
        mode = config.get("PreemptMode", "").strip()
    mode = mode.upper()
    if kind not in {"preempt/partition_prio", "preempt/qos"} or mode in {"", "OFF"}:
        where = f"partition '{chosen.partition}'" if kind != "preempt/qos" else f"QOS '{chosen.qos}'"
        raise NotAvailable(
            f"Slurm never preempts pilots there, so others would wait: PreemptType={kind}, PreemptMode={mode}",
            where=where,
            fix="have a partition with PreemptMode=CANCEL, GraceTime=0 and a low PriorityTier, see the tutorial",
        )
    if "CANCEL" not in mode:
        yield f"PreemptMode is {mode}, with which nodes are given back later or pilots wait long; better CANCEL"
    grace = (partition if kind == "preempt/partition_prio" else qos).get("GraceTime", "0")
    grace_s = _length_s(grace) if ":" in grace else _number(grace or "0")
    if grace_s and not used_s:
        yield f"GraceTime is {grace}, and others' jobs may wait so long for pilots' nodes; better 0"
    elif grace_s and used_s > grace_s:
        yield f"GraceTime is {grace}, and agents would use {used_s:g} s; make [agents] grace_s smaller"
    exempt = config.get("PreemptExemptTime", "").strip()
    if exempt not in {"", "00:00:00", "NONE"}:
        yield f"PreemptExemptTime is {exempt}, and others' jobs may wait so long for pilots' nodes; better 0"


def _least(rows: Iterable[Mapping[str, str]], names: Iterable[str]) -> float:
    return min((_number(row.get(name, "")) for row in rows for name in names), default=math.inf)


def _number(text: str) -> float:
    text = text.strip()
    return float(text) if text.isdecimal() else math.inf


def _length_s(text: str) -> float:
    """Parse a duration such as ``1-12:00:00``."""
    found = _LENGTH.fullmatch(text)
    if found is None:
        return math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 86_400.0 * days + 3_600 * hours + 60 * minutes + seconds


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
    settings = from_mapping(table, SlurmNodesSettings, where="scheduler")
    command = sinfo(settings.partition)

    async def ask(run: Run) -> frozenset[str]:
        return read_idle(await run(command))

    run = CommandRunner(timeout_s=settings.command_timeout_s)
    return NodeWatch("slurm-nodes", ask, settings, run, lambda: found_all(("sinfo",), REMEDY))
