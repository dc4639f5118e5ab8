"""What a Slurm allows pilots, and whether it takes their nodes away at once: read from its own configuration.

A pilot that is not preempted would make others wait, so that is refused. What only makes things slower is remarked.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from bftrain.errors import NotAvailable
from bftrain.live.schedulers.pilot_backend import Command, CommandFailed, PilotLimits, Run
from bftrain.nodesets import expand

_ASSOCIATION: Final = "GrpJobs,GrpSubmit,GrpTRES,MaxJobs,MaxSubmit,MaxWall"
_QOS: Final = (
    "Name,Preempt,PreemptMode,GraceTime,GrpJobs,GrpSubmit,GrpTRES,MaxJobsPU,MaxSubmitPU,MaxTRESPU,MaxJobsPA,MaxSubmitPA,"
    "MaxWall"
)
_RUNNING: Final = frozenset({"GrpJobs", "MaxJobs", "MaxJobsPU", "MaxJobsPA"})
_SUBMITTED: Final = frozenset({"GrpSubmit", "MaxSubmit", "MaxSubmitPU", "MaxSubmitPA"})
_NODES: Final = frozenset({"GrpTRES", "MaxTRESPU"})
_PAIR: Final = re.compile(r"(?:^| )(\w+)=(\S*)")
_LENGTH: Final = re.compile(r"(?:(\d+)-)?(\d+):(\d+):(\d+)")
_SETTING: Final = re.compile(r"^(\w+) += (.*)$", re.MULTILINE)


class Chosen(msgspec.Struct, frozen=True):
    """Where pilots go; ``grace_s`` is how long agents use a node after SIGTERM."""

    partition: str
    qos: str
    account: str
    grace_s: float = 0.0


async def ask(run: Run, chosen: Chosen) -> PilotLimits:
    """Ask Slurm for its rules; NotAvailable if pilots would not be preempted."""
    config = dict(_SETTING.findall(await run(Command(argv=("scontrol", "show", "config")))))
    partition: Mapping[str, str] = {}
    if chosen.partition:
        partition = await _partition(run, chosen.partition)
    rows: list[Mapping[str, str]] = []
    accounting = config.get("AccountingStorageType", "").strip() == "accounting_storage/slurmdbd"
    if accounting:
        rows = await _accounted(run, chosen, partition)
    if "PreemptType" not in config:  # not to be taken for a Slurm without preemption
        raise CommandFailed(("scontrol", "show", "config"), 0, "printed what cannot be read")
    walls = [row.get("MaxWall", "") for row in rows]
    remarks = [*_preemption(config, partition, rows, chosen), *_state(partition)]
    return PilotLimits(
        running=min(_least(rows, _RUNNING), _fewest_nodes(rows)),
        submitted=min(_least(rows, _SUBMITTED), _number(config.get("MaxJobCount", ""))),
        longest_s=min(_seconds(text) for text in (partition.get("MaxTime", ""), *walls)),
        nodes=_nodes(partition),
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


def _nodes(partition: Mapping[str, str]) -> frozenset[str]:
    try:
        return frozenset(expand(partition["Nodes"]))
    except (KeyError, ValueError):  # none, or (null)
        return frozenset()


async def _accounted(run: Run, chosen: Chosen, partition: Mapping[str, str]) -> list[Mapping[str, str]]:
    """Ask the accounting for the limits of our associations, of the QOS, and of the partition's QOS."""
    names = [name for name in (chosen.qos, partition.get("QoS", "N/A")) if name and name != "N/A"]
    account = (f"account={chosen.account}",) if chosen.account else ()
    argvs = [("sacctmgr", "--parsable2", "show", "assoc", "where", "user=" + _me(), *account, f"format={_ASSOCIATION}")]
    argvs += [("sacctmgr", "--parsable2", "show", "qos", "where", f"name={name}", f"format={_QOS}") for name in names]
    rows: list[Mapping[str, str]] = []
    for argv in argvs:
        try:
            rows += read_table(await run(Command(argv=argv)))
        except CommandFailed:
            continue  # not all users may ask; sbatch's answer will show it
    return rows


def read_table(said: str) -> list[Mapping[str, str]]:
    """Read what sacctmgr prints with ``--parsable2``: a line of names, and lines of values."""
    head, *lines = said.splitlines() or [""]
    names = head.split("|")
    return [dict(zip(names, line.split("|"), strict=False)) for line in lines]


def _preemption(
    config: Mapping[str, str], partition: Mapping[str, str], rows: Iterable[Mapping[str, str]], chosen: Chosen
) -> Iterator[str]:
    """Refuse what is never preempted; remark what is preempted slowly."""
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
    grace_s = _seconds(grace) if ":" in grace else _number(grace or "0")
    if grace_s and not chosen.grace_s:
        yield f"GraceTime is {grace}, and others' jobs may wait so long for pilots' nodes; better 0"
    elif grace_s and chosen.grace_s > grace_s:
        yield f"GraceTime is {grace}, and agents would use {chosen.grace_s:g} s; make [agents] grace_s smaller"
    exempt = config.get("PreemptExemptTime", "").strip()
    if exempt not in {"", "00:00:00", "NONE"}:
        yield f"PreemptExemptTime is {exempt}, and others' jobs may wait so long for pilots' nodes; better 0"


def _state(partition: Mapping[str, str]) -> Iterator[str]:
    if partition.get("State", "UP") != "UP":
        yield f"partition '{partition.get('PartitionName')}' is {partition['State']}, so pilots only wait"


def _least(rows: Iterable[Mapping[str, str]], names: Iterable[str]) -> float:
    return min((_number(row.get(name, "")) for row in rows for name in names), default=math.inf)


def _fewest_nodes(rows: Iterable[Mapping[str, str]]) -> float:
    """Read limits on nodes out of texts such as ``cpu=400,node=10``."""
    pairs = (pair.partition("=") for row in rows for name in _NODES for pair in row.get(name, "").split(","))
    return min((_number(number) for kind, _, number in pairs if kind == "node"), default=math.inf)


def _number(text: str) -> float:
    text = text.strip()
    return float(text) if text.isdecimal() else math.inf


def _seconds(text: str) -> float:
    """Read a length such as ``1-12:00:00``."""
    found = _LENGTH.fullmatch(text)
    if found is None:
        return math.inf
    days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 86_400.0 * days + 3_600 * hours + 60 * minutes + seconds


def _me() -> str:
    import getpass  # noqa: PLC0415 - needed once

    return getpass.getuser()
