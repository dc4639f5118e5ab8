"""Slurm: for ordinary users with pilot jobs in a preemptable partition or QOS, or for operators.

Command builders, parsers and a table of states. Times are requested in seconds since 1970.
"""

from __future__ import annotations

import getpass
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from bftrain.errors import BadConfig, NotAvailable
from bftrain.live.schedulers.backend import (
    LATER,
    Command,
    CommandFailed,
    Pilot,
    PilotBackend,
    PilotLimits,
    PilotOrder,
    PilotState,
    Run,
    Trouble,
    earliest,
    length_s,
    pilot_script,
)
from bftrain.live.schedulers.base import AgentOrder, Scheduler, Site, Word, scheduler_settings
from bftrain.live.schedulers.pilots import NodeWatch, PilotJobs, PilotSettings, WatchSettings
from bftrain.node_units import GPU, NODE, slot_name
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
    "NODE_FAIL": PilotState.TAKEN,  # hardware failure, not the pilot's
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
_NICE: Final = 10_000  # nice offset between pilot lengths: longer pilots start first
_LIST: Final = "%i|%A|%T|%S|%e|%k|%N|%r"
_PLANS: Final = "%j|%S|%Y"
# States of nodes, and marks behind them, that administrators set to empty a node: maintenance, reboot, power down
_EMPTIED: Final = re.compile(r"(drain|maint|fail).*|.*[$@^!%]")
# sbatch options that users must not set: pilots in an unchecked place would obstruct other jobs, or never be found
_RESERVED_OPTIONS: Final = ("partition", "qos", "nodes", "job-name", "comment", "array", "requeue", "time", "clusters")
_WORD: Final = re.compile(r"--(\w[\w-]+)(?:=.*)?|-([pqNJatM]).*", re.DOTALL)


def _chosen_by_us(word: str) -> bool:
    """Return whether an sbatch option, possibly shortened as in ``--part=main``, contradicts our own."""
    found = _WORD.fullmatch(word)
    return found is not None and (found[2] is not None or any(name.startswith(found[1]) for name in _RESERVED_OPTIONS))


class SlurmSettings(PilotSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of pilots in Slurm; "" is Slurm's default."""

    partition: Word = ""
    qos: Word = ""
    account: Word = ""
    arrays: bool = True  # submit many pilots as one job array

    def __post_init__(self) -> None:
        if word := next(filter(_chosen_by_us, self.options), ""):
            what, fix = (
                f"'{word}' contradicts how pilots are submitted",
                "omit it: partition, qos and lengths_s are keys",
            )
            checks.reject(self, "options", what, fix)
        if not self.partition and not self.qos:
            checks.reject(self, "partition", "is missing", "set a partition or qos with preemptible jobs")


def make(table: Mapping[str, object], site: Site) -> Scheduler:
    """Build the scheduler from the settings of a site."""
    settings = scheduler_settings(table, SlurmSettings)
    if site.unit == GPU:
        check_options(settings.options)
    return PilotJobs(Slurm(settings, site.grace_s, site.unit), settings, site)


class Slurm(PilotBackend):
    """Slurm's commands and parsers of their output."""

    name = "slurm"
    programs = PROGRAMS
    remedy = REMEDY
    cancels = ("scancel",)
    troubles = TROUBLES
    variables = EPOCHS
    avoids = True
    commands = (1, 3, 7)

    def __init__(self, settings: SlurmSettings, grace_s: float = 0.0, unit: str = NODE) -> None:
        self._settings = settings
        self._grace_s = grace_s
        self.unit = unit
        self.together = settings.arrays
        self.partitions = (settings.partition,) if settings.partition and not settings.qos else ()
        self._slots: dict[str, str] = {}  # slots of single-GPU pilots, by job number

    def script(self, order: AgentOrder, site: Site) -> str:
        """Return the job script; it names the node, or its GPU, as Slurm does.

        At the start of a partition's GraceTime, Slurm signals the steps of a job but not its script. With a grace
        period, the agent is therefore a step. It requests all processors of the node; the default is a single one.
        """
        start = _AS_STEP if self._grace_s else ""
        if self.unit == GPU:
            words, check = SLOT_WORDS, CHECK_SLOT
            return pilot_script(order, site, LOG_NAME, start, words=words, check=check)
        return pilot_script(order, site, "node=$SLURMD_NODENAME", start)

    @property
    def gpus(self) -> float:
        """GPUs that a pilot asks for, such as by --gres=gpu:4; 0 if it asks for none."""
        return 1.0 if self.unit == GPU else gpus_asked(self._settings.options)

    async def limits(self, run: Run) -> PilotLimits:
        """Query the limits of pilots, and all reasons why they would not be preempted."""
        return await ask_limits(run, self._settings, self._grace_s, self.unit)

    async def submit(self, run: Run, order: PilotOrder, count: int) -> int:
        """Submit pilots: all as one array, or without arrays a single one."""
        submitted = count if self._settings.arrays else 1
        await run(self.sbatch(order, submitted))
        return submitted

    async def refused(self, run: Run, order: PilotOrder) -> str:
        """Return why Slurm can never accept such a pilot, such as an unknown account or QOS; "" if it may."""
        command = self.sbatch(order, 1)
        try:
            await run(Command(argv=(*command.argv, "--test-only"), stdin=command.stdin))
        except CommandFailed as error:
            return error.error_text if _NEVER.search(error.error_text) else ""
        return ""

    def sbatch(self, order: PilotOrder, count: int) -> Command:
        """Build the command that submits pilots; the script is passed by stdin, which leaves no file behind."""
        known = self._settings
        words = ["sbatch", "--parsable", f"--job-name={order.name}", f"--comment={order.mark}"]
        words += [f"--{name}={value}" for name in ("partition", "qos", "account") if (value := getattr(known, name))]
        part = [] if gpus_asked(known.options) else [ONE_GPU]
        words += ["--nodes=1", "--ntasks=1", *(part if self.unit == GPU else ["--exclusive"])]
        words += ["--no-requeue", "--output=/dev/null", "--input=/dev/null"]
        words += [f"--time={math.ceil(order.seconds / 60)}", f"--nice={order.rank * _NICE}"]
        words += [f"--exclude={fold(order.avoid)}"] if order.avoid else []
        words += [f"--array=1-{count}"] if count > 1 else []
        return Command(argv=(*words, *known.options), stdin=order.script)

    async def pilots(self, run: Run, name: str) -> Sequence[Pilot]:
        """List our jobs, including recently finished jobs."""
        command = squeue(name)
        try:
            pilots = list(read_pilots(await run(command)))
        except ValueError as error:  # an error must not look like an empty list
            raise CommandFailed(command.argv, 0, f"printed what cannot be read: {error}") from error
        return await self._on_slots(run, pilots) if self.unit == GPU else pilots

    async def _on_slots(self, run: Run, pilots: Sequence[Pilot]) -> Sequence[Pilot]:
        """Set the slot of each pilot; finished pilots with unknown slots keep their node name."""
        self._slots = {one.number: slot for one in pilots if (slot := self._slots.get(one.number))}
        if fresh := [one.number for one in pilots if one.state in HOLDING and one.number not in self._slots]:
            try:
                output = await run(job_details(fresh))
            except CommandFailed as error:
                if self.trouble(error) is not Trouble.GONE:
                    raise
                output = error.printed  # the remaining jobs
            self._slots |= read_slots(output)
        return [
            replace(one, node=self._slots.get(one.number, "" if one.state in HOLDING else one.node)) for one in pilots
        ]

    async def idle(self, run: Run) -> frozenset[str]:
        """Return the idle nodes of the partition, or one slot for each idle GPU of shared nodes."""
        if self.unit == GPU:
            return read_idle_gpus(await run(node_gpus(self._settings.partition)))
        return read_idle(await run(sinfo(self._settings.partition)))

    async def plans(self, run: Run, name: str) -> Mapping[str, float]:
        """Return from when on Slurm has planned jobs on nodes, or reserves them."""
        jobs = read_plans(await run(Command(argv=("squeue", "--noheader", "--start", f"--format={_PLANS}"))), name)
        reserved: dict[str, float] = {}
        with suppress(CommandFailed):  # planned jobs still count
            reserved = read_reservations(await run(Command(argv=("scontrol", "show", "reservation", "--oneliner"))))
        return earliest((*reserved.items(), *jobs.items()))

    async def draining(self, run: Run, nodes: Sequence[str]) -> Mapping[str, str]:
        """Return the subset of ``nodes`` that administrators drain or reboot, with state and reason."""
        words = ("sinfo", "--noheader", "--Node", "--all", f"--nodes={fold(nodes)}", "--format=%N|%T|%E")
        return read_drains(await run(Command(argv=words)))


def sinfo(partition: str) -> Command:
    """Build the command that lists idle nodes, one a line."""
    where = (f"--partition={partition}",) if partition else ()
    return Command(argv=("sinfo", "--noheader", "--Node", "--responding", "--states=idle", *where, "--format=%N|%t"))


def squeue(name: str) -> Command:
    """Build the command that lists our jobs with one name, each array task on its own line."""
    options = ("--noheader", "--array", "--me", f"--name={name}", "--states=all", f"--format={_LIST}")
    return Command(argv=("squeue", *options))


def read_pilots(output: str) -> Iterator[Pilot]:
    """Parse the output of :func:`squeue`; raise ``ValueError`` if it has another form."""
    for line in output.splitlines():
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


def read_idle(output: str) -> frozenset[str]:
    """Parse the idle nodes; a suffix of the state marks sleeping, planned or unresponsive nodes."""
    rows = (line.partition("|") for line in output.splitlines())
    return frozenset(node for node, _, state in rows if state.strip() == "idle")


def read_drains(output: str) -> dict[str, str]:
    """Parse the nodes that are to be empty, with their state and the administrator's reason."""
    rows = (line.split("|", 2) for line in output.splitlines() if line.count("|") > 1)
    found = ((node, state, "" if reason.strip() == "none" else f", {reason.strip()}") for node, state, reason in rows)
    return {node: f"{state}{reason}" for node, state, reason in found if _EMPTIED.fullmatch(state)}


def read_plans(output: str, name: str) -> dict[str, float]:
    """Parse the earliest time from which each node is planned for other jobs."""
    rows = ([*line.rsplit("|", 2), "", ""][:3] for line in output.splitlines())
    planned = ((_seconds(start), _nodes({"Nodes": nodes})) for job, start, nodes in rows if job != name)
    return earliest((node, at_s) for at_s, nodes in planned if at_s is not None for node in nodes)


def read_reservations(output: str) -> dict[str, float]:
    """Parse the start times of future reservations by node."""
    rows = (dict(_PAIR.findall(line)) for line in output.splitlines())
    future = ((_seconds(row.get("StartTime", "")), _nodes(row)) for row in rows if row.get("State") == "INACTIVE")
    return earliest((node, at_s) for at_s, nodes in future if at_s is not None for node in nodes)


def _seconds(text: str) -> float | None:
    return float(text) if text.isdecimal() and text.isascii() else None


# -- as an operator: agents wait on every node, and nodes that Slurm calls idle are ours


class SlurmNodesSettings(WatchSettings, frozen=True, kw_only=True):
    """The nodes to watch; "" means all."""

    partition: Word = ""


def make_nodes(table: Mapping[str, object], _site: Site) -> Scheduler:
    """Build the scheduler from the settings of a site."""
    settings = scheduler_settings(table, SlurmNodesSettings)
    return NodeWatch("slurm-nodes", sinfo(settings.partition), read_idle, settings, REMEDY)


# -- limits of pilots, and whether Slurm preempts them immediately

_ASSOCIATION: Final = "GrpJobs,GrpSubmit,GrpTRES,MaxJobs,MaxSubmit,MaxWall"
_QOS: Final = (
    "Name,Preempt,PreemptMode,GraceTime,GrpJobs,GrpSubmit,GrpTRES,MaxJobsPU,MaxSubmitPU,MaxTRESPU,MaxJobsPA,MaxSubmitPA,"
    "MaxWall"
)
_RUNNING_LIMITS: Final = frozenset({"GrpJobs", "MaxJobs", "MaxJobsPU", "MaxJobsPA"})
_SUBMITTED_LIMITS: Final = frozenset({"GrpSubmit", "MaxSubmit", "MaxSubmitPU", "MaxSubmitPA"})
_NODE_LIMITS: Final = frozenset({"GrpTRES", "MaxTRESPU"})
_PILOT_TRES: Final = {NODE: ("node",), GPU: ("node", "gres/gpu")}  # a pilot takes one of each of these resources
_PAIR: Final = re.compile(r"(?:^| )(\w+)=(\S*)")
_SETTING: Final = re.compile(r"^(\w+) += (.*)$", re.MULTILINE)


async def ask_limits(run: Run, chosen: SlurmSettings, grace_s: float, unit: str = NODE) -> PilotLimits:
    """Query Slurm's limits for pilots, and whether its configuration preempts them immediately.

    Problems are pilots that are not preempted, as they would delay other jobs, and single-GPU pilots where Slurm knows
    no GPUs, no node has any, or jobs get whole nodes. Slow preemption is only a remark. Raise NotAvailable if there is
    no such partition.
    """
    config = dict(_SETTING.findall(await run(Command(argv=("scontrol", "show", "config")))))
    if "PreemptType" not in config:  # an unreadable answer, not a Slurm without preemption
        raise CommandFailed(("scontrol", "show", "config"), 0, "printed what cannot be read")
    by_partition = config["PreemptType"].strip() == "preempt/partition_prio"
    partitions = await _partitions(run) if chosen.partition or by_partition else []
    partition = _chosen(partitions, chosen.partition)
    accounting = config.get("AccountingStorageType", "").strip() == "accounting_storage/slurmdbd"
    rows = await _accounted(run, chosen, partition) if accounting else []
    gpus = await _gpu_problem(run, config, chosen.partition, partition) if unit == GPU else None
    # Limits on nodes and GPUs stand in texts such as ``cpu=400,node=10,gres/gpu=40``
    pairs = [pair.partition("=") for row in rows for name in _NODE_LIMITS for pair in row.get(name, "").split(",")]
    at_once = [_number(number) for kind, _, number in pairs if kind in _PILOT_TRES[unit]]
    walls = [row.get("MaxWall", "") for row in rows]
    found = [*([gpus] if gpus else []), *_preemption(config, partition, rows, chosen, grace_s)]
    if by_partition:
        found += _lower_tier(partition, partitions)
    elif accounting and (unfit := await _qos_problem(run, chosen.qos)):
        found.append(unfit)
    remarks = [one for one in found if isinstance(one, str)]
    if partition.get("State", "UP") != "UP":
        remarks.append(f"partition '{partition.get('PartitionName')}' is {partition['State']}, so pilots only wait")
    return PilotLimits(
        running=min([_least(rows, _RUNNING_LIMITS), *at_once]),
        submitted=min(_least(rows, _SUBMITTED_LIMITS), _number(config.get("MaxJobCount", ""))),
        # A limit without colons would be in minutes; Slurm prints none
        longest_s=min(length_s(text) if ":" in text else LATER for text in (partition.get("MaxTime", ""), *walls)),
        nodes=_nodes(partition),
        cluster=config.get("ClusterName", "").strip(),
        remarks=tuple(remarks),
        problems=tuple(one for one in found if isinstance(one, NotAvailable)),
    )


async def _partitions(run: Run) -> list[Mapping[str, str]]:
    command = Command(argv=("scontrol", "show", "partition", "--all", "--oneliner"))
    rows: list[Mapping[str, str]] = [dict(_PAIR.findall(line)) for line in (await run(command)).splitlines()]
    if found := [row for row in rows if "PartitionName" in row]:
        return found
    raise CommandFailed(command.argv, 0, "printed what cannot be read")


def _chosen(partitions: Iterable[Mapping[str, str]], name: str) -> Mapping[str, str]:
    """Return the partition of pilots (default: Slurm's default partition)."""
    if not name:
        return next((one for one in partitions if one.get("Default") == "YES"), {})
    try:
        return next(one for one in partitions if one["PartitionName"] == name)
    except StopIteration:
        raise NotAvailable("Slurm has no such partition", where=f"partition '{name}'", fix="see sinfo") from None


def _lower_tier(pilots: Mapping[str, str], partitions: Iterable[Mapping[str, str]]) -> Iterator[str | NotAvailable]:
    """Yield a problem if jobs of the default partition, or of all other partitions, would wait for pilots.

    Otherwise yield a remark on waiting partitions with ``PreemptMode=OFF``.
    """
    name, tier, nodes = pilots.get("PartitionName", ""), _tier(pilots), _nodes(pilots)
    others = [
        one
        for one in partitions
        if one["PartitionName"] != name and (not nodes or not (theirs := _nodes(one)) or nodes & theirs)
    ]
    waiting = [one for one in others if _tier(one) <= tier]
    default = [one for one in waiting if one.get("Default") == "YES"]
    if default or len(waiting) == len(others):
        whose = f"jobs of partition '{default[0]['PartitionName']}'" if default else "jobs of all other partitions"
        yield NotAvailable(
            f"Slurm never preempts pilots for {whose}, which would wait: PriorityTier={tier:g} is not below theirs",
            where=f"partition '{name}'",
            fix="give all other partitions a higher PriorityTier in slurm.conf, see the tutorial",
        )
    elif names := [one["PartitionName"] for one in waiting if one.get("PreemptMode") == "OFF"]:
        yield f"jobs of {', '.join(names)} wait for pilots: their PriorityTier is not above the {tier:g} of '{name}'"


async def _qos_problem(run: Run, name: str) -> NotAvailable | None:
    """Return a problem unless jobs of another QOS may preempt pilots, as far as that can be asked."""
    fix = "name the QOS of [scheduler] in Preempt of the other QOS: sacctmgr modify qos normal set preempt=scavenger"
    if not name:
        return NotAvailable("Slurm preempts by QOS, but no qos is set for pilots", where="[scheduler] qos", fix=fix)
    try:
        rows = read_table(await run(Command(argv=("sacctmgr", "--parsable2", "show", "qos", "format=Name,Preempt"))))
    except CommandFailed:
        return None  # some sites restrict this query
    preempted = {row["Name"]: row["Preempt"].split(",") for row in rows if row.keys() >= {"Name", "Preempt"}}
    if preempted and name not in preempted:
        return NotAvailable("Slurm has no such QOS", where=f"QOS '{name}'", fix="see sacctmgr show qos")
    if preempted and not any(name in names for names in preempted.values()):
        what = "Slurm never preempts pilots there, so other jobs would wait: no QOS may preempt it"
        return NotAvailable(what, where=f"QOS '{name}'", fix=fix)
    return None


def _tier(partition: Mapping[str, str]) -> float:
    return _number(partition.get("PriorityTier", "1"))


def _nodes(partition: Mapping[str, str]) -> frozenset[str]:
    try:
        return frozenset(expand(partition["Nodes"]))
    except (KeyError, ValueError):  # none, or (null)
        return frozenset()


async def _accounted(run: Run, chosen: SlurmSettings, partition: Mapping[str, str]) -> list[Mapping[str, str]]:
    """Query the accounting limits of our associations, of the QOS, and of the partition's QOS."""
    names = [name for name in (chosen.qos, partition.get("QoS", "N/A")) if name and name != "N/A"]
    account = (f"account={chosen.account}",) if chosen.account else ()
    asked = [("assoc", "where", f"user={getpass.getuser()}", *account, f"format={_ASSOCIATION}")]
    asked += [("qos", "where", f"name={name}", f"format={_QOS}") for name in names]
    rows: list[Mapping[str, str]] = []
    for words in asked:
        try:
            rows += read_table(await run(Command(argv=("sacctmgr", "--parsable2", "show", *words))))
        except CommandFailed:
            continue  # some sites restrict this query; sbatch's answer will show the limit
    return rows


def read_table(output: str) -> list[Mapping[str, str]]:
    """Parse the output of sacctmgr with ``--parsable2``: a line of names, and lines of values."""
    head, *lines = output.splitlines() or [""]
    names = head.split("|")
    return [dict(zip(names, line.split("|"), strict=False)) for line in lines]


def _preemption(
    config: Mapping[str, str],
    partition: Mapping[str, str],
    rows: Iterable[Mapping[str, str]],
    chosen: SlurmSettings,
    grace_s: float,
) -> Iterator[str | NotAvailable]:
    """Yield a problem if pilots are never preempted, else remarks on slow preemption.

    ``grace_s`` is how long agents use a node after SIGTERM.
    """
    kind = config.get("PreemptType", "").strip()
    qos = next((row for row in rows if chosen.qos and row.get("Name") == chosen.qos), {})
    mode = partition.get("PreemptMode", "") if kind == "preempt/partition_prio" else qos.get("PreemptMode", "")
    if not mode or mode == "cluster":
        mode = config.get("PreemptMode", "").strip()
    mode = mode.upper()
    if kind not in {"preempt/partition_prio", "preempt/qos"} or mode in {"", "OFF"}:
        where = f"partition '{chosen.partition}'" if kind != "preempt/qos" else f"QOS '{chosen.qos}'"
        yield NotAvailable(
            f"Slurm never preempts pilots there, so other jobs would wait: PreemptType={kind}, PreemptMode={mode}",
            where=where,
            fix="have a partition with PreemptMode=CANCEL, GraceTime=0 and a low PriorityTier, see the tutorial",
        )
        return
    if "CANCEL" not in mode:
        yield f"PreemptMode is {mode}, with which nodes are given back later or pilots wait long; better CANCEL"
    grace = (partition if kind == "preempt/partition_prio" else qos).get("GraceTime", "0")
    slurm_s = length_s(grace) if grace.strip("0:") else 0.0
    if slurm_s and not grace_s:
        yield f"GraceTime is {grace}, so other users' jobs may wait that long for pilot nodes; set it to 0"
    elif slurm_s and grace_s > slurm_s:
        yield f"GraceTime is {grace}, and agents would use {grace_s:g} s; make [agents] grace_s smaller"
    exempt = config.get("PreemptExemptTime", "").strip()
    if exempt not in {"", "00:00:00", "NONE"}:
        yield f"PreemptExemptTime is {exempt}, so other users' jobs may wait that long for pilot nodes; set it to 0"


def _least(rows: Iterable[Mapping[str, str]], names: Iterable[str]) -> float:
    return min((_number(row.get(name, "")) for row in rows for name in names), default=math.inf)


def _number(text: str) -> float:
    text = text.strip()
    return float(text) if text.isdecimal() else math.inf


# -- GPUs of shared nodes: each pilot requests one GPU and has a slot such as ``n1/gpu3``. Slurm starts such pilots on
# the idle GPUs of a node, and preempts only the number a job needs. Slurm's job lists omit the GPU's index, so it is
# queried once for each pilot

ONE_GPU: Final = "--gres=gpu:1"
LOG_NAME: Final = "node=$SLURMD_NODENAME-gpu$SLURM_JOB_GPUS"  # $node is the name of the pilot's log
SLOT_WORDS: Final = {"node": '"$SLURMD_NODENAME/gpu$SLURM_JOB_GPUS"', "host": '"$SLURMD_NODENAME"'}
CHECK_SLOT: Final = """\
case $SLURM_JOB_GPUS in
''|*[!0-9]*) echo "SLURM_JOB_GPUS='$SLURM_JOB_GPUS' is not one GPU: does gres.conf name their files?"; exit 64 ;;
esac
"""
_ASKED: Final = re.compile(r"--(?:gres=(?:.*,)?gpu|gpus-per-node=|gpus=)(?::?[A-Za-z_][\w-]*)?:?(\d+)?(?:,.*)?")
_COUNT: Final = re.compile(r"(?:^|,)gpu(?::[A-Za-z_][\w.-]*)?:(\d+)")
_JOB: Final = re.compile(r"\bJobId=(\d+) .*? Nodes=(\S+) .*?\bGRES=\S*?\bgpu[:\w.-]*\(IDX:(\d+)\)")
_MOST_REQUESTS: Final = 32  # requests to the controller, which needs milliseconds for each
_SHARED_STATES: Final = frozenset({"idle", "mix"})  # states of nodes that can start another job
_ROW: Final = "NodeList:256|,StateCompact:32|,Gres:512|,GresUsed:512"


def gpus_asked(options: Iterable[str]) -> float:
    """Return the GPUs that options of sbatch ask for, such as ``--gres=gpu:4``; 0 if they ask for none."""
    return max((float(one[1] or 1) for one in filter(None, map(_ASKED.fullmatch, options))), default=0.0)


def check_options(options: Iterable[str]) -> None:
    """Raise if sbatch options contradict single-GPU pilots."""
    if (gpus := gpus_asked(options)) > 1:
        what = f'asks for {gpus:g} GPUs, and with unit = "gpu" each pilot has one'
        raise BadConfig(what, where="[scheduler] options", fix='omit it, or set "--gres=gpu:TYPE:1"')
    if any(option.startswith("--exclusive") for option in options):
        what = '--exclusive asks for whole nodes, against unit = "gpu"'
        raise BadConfig(what, where="[scheduler] options", fix="omit one of them")


async def _gpu_problem(
    run: Run, config: Mapping[str, str], name: str, partition: Mapping[str, str]
) -> NotAvailable | None:
    """Return a problem if Slurm cannot allocate single GPUs of a partition's nodes."""
    types, select = (config.get(key, "").strip() for key in ("GresTypes", "SelectType"))
    where, fix = f"partition '{name}'" if name else "Slurm", 'leave out unit = "gpu", for whole nodes'
    if GPU not in types.split(","):
        return NotAvailable(f"Slurm knows no GPUs: GresTypes={types or '(null)'}", where=where, fix=fix)
    if select == "select/linear" or partition.get("OverSubscribe") == "EXCLUSIVE":
        setting = f"SelectType={select}" if select == "select/linear" else "OverSubscribe=EXCLUSIVE"
        return NotAvailable(f"jobs get whole nodes there, not single GPUs: {setting}", where=where, fix=fix)
    if not any(total for _, _, total, _ in _gpu_rows(await run(node_gpus(name)))):
        return NotAvailable(
            "no node has GPUs there", where=where, fix=f"{fix}; sinfo --Format=NodeList,Gres shows them"
        )
    return None


def node_gpus(partition: str) -> Command:
    """Build the command that lists each node's state, GPUs and allocated GPUs, one node a line."""
    where = (f"--partition={partition}",) if partition else ()
    return Command(argv=("sinfo", "--noheader", "--Node", "--responding", *where, f"--Format={_ROW}"))


def read_idle_gpus(output: str) -> frozenset[str]:
    """Parse one slot for each idle GPU on nodes that can start jobs.

    Slurm may not report which GPUs of a node are allocated, so slot numbers start after the number of allocated GPUs.
    """
    return frozenset(
        slot_name(node, GPU, number)
        for node, state, total, used in _gpu_rows(output)
        if state in _SHARED_STATES
        for number in range(used, total)
    )


def _gpu_rows(output: str) -> Sequence[tuple[str, str, int, int]]:
    """Return name, state, GPUs and allocated GPUs of each node."""
    rows = ([part.strip() for part in line.split("|")] for line in output.splitlines())
    return [(row[0], row[1], _count(row[2]), _count(row[3])) for row in rows if len(row) == _ROW.count(",") + 1]


def _count(gres: str) -> int:
    """Return the GPUs in a list such as ``gpu:a100:3(IDX:0,2-3),mps:0``."""
    return sum(map(int, _COUNT.findall(gres)))


def job_details(numbers: Sequence[str]) -> Command:
    """Build the command that describes jobs with their GPUs, one a line; many jobs by one request for all."""
    argv = ("scontrol", "--details", "--oneliner")
    if len(numbers) > _MOST_REQUESTS:
        return Command(argv=(*argv, "show", "job"))
    return Command(argv=argv, stdin="".join(f"show job {number}\n" for number in numbers))


def read_slots(output: str) -> dict[str, str]:
    """Parse the slots of single-GPU jobs by job number."""
    found = (_JOB.search(line) for line in output.splitlines())
    return {one[1]: slot_name(one[2], GPU, int(one[3])) for one in found if one}
