"""Slurm's limits for pilots, and whether its configuration preempts them at once."""

from __future__ import annotations

import getpass
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from bftrain.errors import NotAvailable
from bftrain.live.schedulers.pilot_backend import Command, CommandFailed, PilotLimits, Run
from bftrain.live.schedulers.slurm_gpus import check_gpus
from bftrain.live.schedulers.slurm_settings import SlurmSettings
from bftrain.node_units import GPU, NODE
from bftrain.nodesets import expand

_ASSOCIATION: Final = "GrpJobs,GrpSubmit,GrpTRES,MaxJobs,MaxSubmit,MaxWall"
_QOS: Final = (
    "Name,Preempt,PreemptMode,GraceTime,GrpJobs,GrpSubmit,GrpTRES,MaxJobsPU,MaxSubmitPU,MaxTRESPU,MaxJobsPA,MaxSubmitPA,"
    "MaxWall"
)
_RUNNING_LIMITS: Final = frozenset({"GrpJobs", "MaxJobs", "MaxJobsPU", "MaxJobsPA"})
_SUBMITTED_LIMITS: Final = frozenset({"GrpSubmit", "MaxSubmit", "MaxSubmitPU", "MaxSubmitPA"})
_NODE_LIMITS: Final = frozenset({"GrpTRES", "MaxTRESPU"})
_OF_A_PILOT: Final = {NODE: ("node",), GPU: ("node", "gres/gpu")}  # of which each pilot has one
_PAIR: Final = re.compile(r"(?:^| )(\w+)=(\S*)")
_LENGTH: Final = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)")
_SETTING: Final = re.compile(r"^(\w+) += (.*)$", re.MULTILINE)


async def ask_limits(run: Run, chosen: SlurmSettings, grace_s: float, unit: str = NODE) -> PilotLimits:
    """Query what Slurm allows pilots, and from its configuration whether it preempts them at once.

    Pilots that are not preempted would delay other jobs, so that is NotAvailable, and so are pilots of single GPUs
    where Slurm hands out whole nodes. Slow preemption is a remark.
    """
    config = dict(_SETTING.findall(await run(Command(argv=("scontrol", "show", "config")))))
    if "PreemptType" not in config:  # an unreadable answer, not a Slurm without preemption
        raise CommandFailed(("scontrol", "show", "config"), 0, "printed what cannot be read")
    by_partition = config["PreemptType"].strip() == "preempt/partition_prio"
    partitions = await _partitions(run) if chosen.partition or by_partition else []
    partition = _chosen(partitions, chosen.partition)
    accounting = config.get("AccountingStorageType", "").strip() == "accounting_storage/slurmdbd"
    rows = await _accounted(run, chosen, partition) if accounting else []
    if unit == GPU:
        await check_gpus(run, config, chosen.partition, partition)
    # Limits on nodes and GPUs stand in texts such as ``cpu=400,node=10,gres/gpu=40``
    pairs = [pair.partition("=") for row in rows for name in _NODE_LIMITS for pair in row.get(name, "").split(",")]
    at_once = [_number(number) for kind, _, number in pairs if kind in _OF_A_PILOT[unit]]
    walls = [row.get("MaxWall", "") for row in rows]
    remarks = list(_preemption(config, partition, rows, chosen, grace_s))
    if by_partition:
        remarks += _lower_tier(partition, partitions)
    elif accounting:
        await _check_qos(run, chosen.qos)
    if partition.get("State", "UP") != "UP":
        remarks.append(f"partition '{partition.get('PartitionName')}' is {partition['State']}, so pilots only wait")
    return PilotLimits(
        running=min([_least(rows, _RUNNING_LIMITS), *at_once]),
        submitted=min(_least(rows, _SUBMITTED_LIMITS), _number(config.get("MaxJobCount", ""))),
        longest_s=min(_length_s(text) for text in (partition.get("MaxTime", ""), *walls)),
        nodes=_nodes(partition),
        cluster=config.get("ClusterName", "").strip(),
        remarks=tuple(remarks),
    )


async def _partitions(run: Run) -> list[Mapping[str, str]]:
    command = Command(argv=("scontrol", "show", "partition", "--all", "--oneliner"))
    rows: list[Mapping[str, str]] = [dict(_PAIR.findall(line)) for line in (await run(command)).splitlines()]
    if found := [row for row in rows if "PartitionName" in row]:
        return found
    raise CommandFailed(command.argv, 0, "printed what cannot be read")


def _chosen(partitions: Iterable[Mapping[str, str]], name: str) -> Mapping[str, str]:
    """Return the partition of pilots: Slurm's default without a name."""
    if not name:
        return next((one for one in partitions if one.get("Default") == "YES"), {})
    try:
        return next(one for one in partitions if one["PartitionName"] == name)
    except StopIteration:
        raise NotAvailable("Slurm has no such partition", where=f"partition '{name}'", fix="see sinfo") from None


def _lower_tier(pilots: Mapping[str, str], partitions: Iterable[Mapping[str, str]]) -> Iterator[str]:
    """Raise unless other partitions' jobs preempt pilots by their tier, and yield a remark on those that wait."""
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
        raise NotAvailable(
            f"Slurm never preempts pilots for {whose}, which would wait: PriorityTier={tier:g} is not below theirs",
            where=f"partition '{name}'",
            fix="give the partitions of others a higher PriorityTier in slurm.conf, see the tutorial",
        )
    if names := [one["PartitionName"] for one in waiting if one.get("PreemptMode") == "OFF"]:
        yield f"jobs of {', '.join(names)} wait for pilots: their PriorityTier is not above {tier:g}, that of '{name}'"


async def _check_qos(run: Run, name: str) -> None:
    """Raise unless jobs of another QOS may preempt pilots, as far as that can be asked."""
    fix = "name the QOS of [scheduler] in Preempt of others: sacctmgr modify qos normal set preempt=scavenger"
    if not name:
        raise NotAvailable("Slurm preempts by QOS, and none is named for pilots", where="[scheduler] qos", fix=fix)
    try:
        rows = read_table(await run(Command(argv=("sacctmgr", "--parsable2", "show", "qos", "format=Name,Preempt"))))
    except CommandFailed:
        return  # not all users may ask
    preempted = {row["Name"]: row["Preempt"].split(",") for row in rows if row.keys() >= {"Name", "Preempt"}}
    if preempted and name not in preempted:
        raise NotAvailable("Slurm has no such QOS", where=f"QOS '{name}'", fix="see sacctmgr show qos")
    if preempted and not any(name in names for names in preempted.values()):
        what = "Slurm never preempts pilots there, so others would wait: no QOS may preempt it"
        raise NotAvailable(what, where=f"QOS '{name}'", fix=fix)


def _tier(partition: Mapping[str, str]) -> float:
    return _number(partition.get("PriorityTier", "1"))


def _nodes(partition: Mapping[str, str]) -> frozenset[str]:
    try:
        return frozenset(expand(partition["Nodes"]))
    except (KeyError, ValueError):  # none, or (null)
        return frozenset()


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
