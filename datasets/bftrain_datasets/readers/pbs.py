"""Accounting of PBS Professional, OpenPBS, Torque and Cobalt: ``date time;kind;job;key=value ...``.

File: ``server_priv/accounting/YYYYMMDD``. Records ``S`` and ``T`` start
a job; ``E``, ``R``, ``C``, ``D`` and ``A`` end it; ``u``, ``c`` and ``s`` change its nodes. Hosts are the
nodes; vnodes count only where they are no part of a host.

| key | required | meaning |
|---|---|---|
| ``start``, ``end`` | yes | epochs |
| ``exec_host`` | yes | hosts, such as ``n1/0*4+n2/1``; ``resources_used.location`` in Cobalt |
| ``exec_vnode`` | | vnodes with ``ncpus`` and ``ngpus``; Torque has ``exec_gpus`` |
| ``queue`` | | queue |
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from math import prod
from typing import Final

from bftrain.node_units import CORE, GPU, NODE
from bftrain.nodesets import expand
from bftrain_datasets.importing.findings import SkippedRow
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.job_columns import OpenJob
from bftrain_datasets.importing.machine_nodes import Share, Units, slots_of
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_columns import first_lines, moments
from bftrain_datasets.log.time_formats import SMALLEST_EPOCH_S

name: Final = "pbs"
about: Final = "PBS Professional, OpenPBS, Torque and Cobalt: the accounting files of the server"

tells_units: Final = (GPU, CORE)  # the resources in the records
NOTHING: Final = "None"  # written by Cobalt
# A record may be preceded by a program or file name, as in a system log or in grep output
_RECORD: Final = re.compile(
    r"(?:[^;]{0,200}[: ])?(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d)(?:\.\d+)?;([A-Za-z]);([^;]*);(.*)", re.DOTALL
)
_QUOTED: Final = re.compile(r'"([^"]*)"')
_NAME: Final = re.compile(r"[\w.-]+\Z")
_PREFIX: Final = re.compile(r"\A[a-z]+:(?=[A-Za-z])")  # torque:n1/0
_PORT: Final = re.compile(r":\d+\Z")
_DIGITS: Final = string.digits + string.ascii_uppercase
_NUMBERS: Final = re.compile(r"\d[\d,-]*\Z")
# A Blue Gene/Q block: two corners of a box in five dimensions, and its number of nodes
_BLOCK: Final = re.compile(r"(\w+)-([0-9A-Z]{5})-([0-9A-Z]{5})-(\d{1,6})\Z")


class _Record:
    """One line: its ``kind``, the ``job`` and its fields. ``when`` is the local time of writing, as ISO."""

    __slots__ = ("_text", "job", "kind", "when")

    def __init__(self, match: re.Match[str]) -> None:
        month, day, year, clock, self.kind, self.job, text = match.groups()
        self.when = f"{year}-{month}-{day}T{clock}"
        # Mask quoted text, which may look like a key
        plain = _QUOTED.sub(_masked_quotes, text) if '"' in text else text
        self._text = f" {plain} "

    def value(self, key: str) -> str:
        """Return the value of a key, or an empty text."""
        begin = self._text.find(f" {key}=")
        if begin < 0:
            return ""
        begin += len(key) + 2
        value = self._text[begin : self._text.index(" ", begin)]
        return "" if value == NOTHING else value

    def nodes(self) -> str:
        """Return the job's nodes as written: hosts and, after a blank, vnodes; empty if neither is recorded."""
        hosts = self.value("exec_host") or self.value("resources_used.location")
        nodes = f"{hosts} {self.value('exec_vnode')}"
        return "" if nodes.isspace() else nodes

    def units(self, unit: str) -> Units:
        """Return the GPUs or cores that the job used on each node, as numbers or slots, if counted."""
        try:
            return 0 if unit == NODE or not self.nodes() else self._units(unit)
        except ValueError:
            return None

    def _units(self, unit: str) -> tuple[Share, ...]:
        if unit == GPU and self.value("exec_gpus"):  # Torque: n1-gpu/0+n1-gpu/1
            slots = (slot.partition("/") for slot in self.value("exec_gpus").split("+"))
            return tuple(share for name, _, text in slots for share in slots_of(name.removesuffix("-gpu"), text))
        names = {name.partition(".")[0]: name for name in places_of(self.nodes())}
        key, found = _VNODE_RESOURCES[unit], Counter[str]()
        for chunk in _vnode_chunks(self.value("exec_vnode")):
            vnode, *resources = chunk.split(":")
            name = vnode.partition("[")[0]
            for resource in resources:
                if resource.startswith(key) and resource[len(key) :].isdecimal():
                    found[names.get(name.partition(".")[0], name)] += int(resource[len(key) :])
        if found or unit == GPU:
            return tuple(found.items())
        return _cores_of(self.value("exec_host"))


_VNODE_RESOURCES: Final = {GPU: "ngpus=", CORE: "ncpus="}


def _cores_of(hosts: str) -> tuple[Share, ...]:
    """Return the cores as numbers (``n1/0*4+n2/0*4``), or as slots in Torque's notation (``n1/0-3+n2/0``)."""
    found = [(host, slots) for host, slots in _host_chunks(hosts) if slots]
    if "*" in hosts:
        return tuple((host, int(slots.partition("*")[2] or 1)) for host, slots in found)
    return tuple(share for host, slots in found for share in slots_of(host, slots))


def _host_chunks(hosts: str) -> list[tuple[str, str]]:
    """Return each host with its slots, of ``n1/0*4+torque:n2:15002/1`` for example ``n1, 0*4`` and ``n2, 1``."""
    chunks = (_PREFIX.sub("", chunk).partition("/") for chunk in hosts.split("+") if chunk)
    return [(_PORT.sub("", host), slots) for host, _, slots in chunks]


def _vnode_chunks(vnodes: str) -> list[str]:
    """Return each vnode with its resources, such as ``n1[0]:ncpus=4``."""
    return [chunk for chunk in vnodes.replace("(", "").replace(")", "").split("+") if chunk]


def _masked_quotes(quoted: re.Match[str]) -> str:
    return "" if " " in quoted[1] or "=" in quoted[1] else quoted[1]


def recognises(head: bytes) -> bool:
    """Return whether one of the first lines is a record."""
    return any(_RECORD.match(line) for line in first_lines(head))


def places_of(text: str) -> list[str]:
    """Return the node names in hosts and vnodes as written, such as ``n1/0*4+n2/0 (n1:ncpus=4)+(n2:ncpus=1)``.

    A host may consist of several vnodes, such as ``n1[0]``. It is idle only when all its vnodes are, so the nodes are
    hosts. If vnodes are not part of their hosts, as on a machine with jobs launched from a service node, the nodes are
    vnodes. Raises ``ValueError`` if unreadable.
    """
    host_text, _, vnode_text = text.partition(" ")
    if not vnode_text and not set(host_text) & set("/+"):
        return _cobalt_places(host_text)
    hosts = [host for host, _ in _host_chunks(host_text)]
    vnodes = [chunk.partition(":")[0].partition("[")[0] for chunk in _vnode_chunks(vnode_text)]
    known = {host.partition(".")[0] for host in hosts}
    chosen = hosts if hosts and all(vnode.partition(".")[0] in known for vnode in vnodes) else vnodes or hosts
    names = list(dict.fromkeys(chosen))
    if not names or not all(_NAME.match(each) for each in names):
        raise ValueError(f"{text[:60]!r} has no node")
    return names


def _cobalt_places(text: str) -> list[str]:
    """Return the node names in Cobalt's notation: numbers such as ``0-4,7``, ``n1:n2``, or a block of Blue Gene/Q."""
    block = _BLOCK.match(text)
    if _NUMBERS.match(text):
        names = expand(f"[{text}]")
    elif block is not None:
        sides = [range(int(low, 36), int(high, 36) + 1) for low, high in zip(block[2], block[3], strict=True)]
        if prod(map(len, sides)) != int(block[4]):  # the block wraps around the torus, or is not a block
            raise ValueError(f"{text[:60]!r} is not a block")
        names = [f"{block[1]}-{''.join(map(_DIGITS.__getitem__, place))}" for place in product(*sides)]
    else:
        names = _PORT.sub("", text).split(":")
    if not all(_NAME.match(each) for each in names):
        raise ValueError(f"{text[:60]!r} has no node")
    return names


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every record."""
    lines = ((number, line) for number, line in file.lines() if line.strip() and not line.startswith("#"))
    intake.take_rows(lines, partial(_add_record, intake=intake))


def _add_record(line: str, intake: RecordIntake) -> None:
    match = _RECORD.match(line)
    if match is None:
        raise SkippedRow("malformed")
    record = _Record(match)
    take = _KINDS.get(record.kind)
    if take is None or "[]" in record.job:  # an array's parent uses no nodes itself
        raise SkippedRow("other_record")
    server = record.job.partition(".")[2].partition(".")[0]  # the domain is optional
    if server and intake.is_other_cluster(server):
        raise SkippedRow("not_selected")
    take(record, intake)


def _started(record: _Record, intake: RecordIntake) -> None:
    start_s = _time(record.value("start"), intake)
    job = OpenJob(
        job=record.job,
        start_s=intake.seconds(record.when) if start_s is None else start_s,
        nodes=record.nodes(),
        queue=record.value("queue"),
        place=intake.place(),
        expand=places_of,
        units=record.units(intake.options.unit),
        user=record.value("user"),
        submit_s=_submitted(record, intake),
    )
    if not intake.open_jobs.begin(job):
        raise SkippedRow("duplicate")
    intake.use()


def _ended(record: _Record, intake: RecordIntake) -> None:
    """Record a finished run, from this record alone or together with its start record."""
    try:
        start_s, end_s = _time(record.value("start"), intake), _time(record.value("end"), intake)
    except ValueError:
        start_s, end_s = moments(partial(_time, intake=intake), record.value("start"), record.value("end"))
        intake.job(record.job, start_s, end_s, record.nodes(), expand=places_of)
        return
    if end_s is None:
        end_s = intake.seconds(record.when)
    known = intake.open_jobs.end(record.job, end_s)
    if known is None:
        intake.open_jobs.end_before_start(record.job, start_s or end_s, end_s)
    elif start_s is None or known.start_s > start_s:  # the job released nodes since its start
        start_s = known.start_s
    nodes = record.nodes() or (known.nodes if known else "")
    queue = record.value("queue") or (known.queue if known else "")
    units = _units_of(record, known, intake)
    user, submit_s = record.value("user"), _submitted(record, intake)
    intake.job(
        *(record.job, start_s, end_s, nodes), queue=queue, expand=places_of, units=units, user=user, submit_s=submit_s
    )


def _shrinks(record: _Record, intake: RecordIntake) -> None:
    """Record the nodes used until an update; the accompanying record has the nodes that the job keeps."""
    known = intake.open_jobs.get(record.job)
    until_s = intake.seconds(record.when)
    if known is None or until_s <= known.start_s:
        raise SkippedRow("other_record")
    nodes, units = record.nodes() or known.nodes, _units_of(record, known, intake)
    intake.open_job(replace(known, nodes=nodes, units=units), until_s)
    known.start_s = until_s


def _continued(record: _Record, intake: RecordIntake) -> None:
    known, nodes = intake.open_jobs.get(record.job), record.nodes()
    if known is None or not nodes:
        raise SkippedRow("other_record")
    known.nodes, known.units = nodes, record.units(intake.options.unit)
    intake.use()


def _may_end(record: _Record, intake: RecordIntake) -> None:
    """Record a job's deletion, in case no record of its end follows."""
    known = intake.open_jobs.get(record.job)
    if known is None:
        raise SkippedRow("other_record")
    known.may_end_s = max(known.start_s, intake.seconds(record.when))
    intake.use()


_KINDS: Final[dict[str, Callable[[_Record, RecordIntake], None]]] = {
    "S": _started,
    "T": _started,  # Torque: again, from a checkpoint
    "E": _ended,
    "R": _ended,  # rerun
    "C": _ended,  # Torque: stopped at a checkpoint
    "u": _shrinks,
    "c": _continued,
    "s": _continued,
    "A": _may_end,
    "D": _may_end,
}


def _submitted(record: _Record, intake: RecordIntake) -> float | None:
    text = record.value("ctime")
    return intake.clock.uncounted(text) if text.isdecimal() else None


def _units_of(record: _Record, known: OpenJob | None, intake: RecordIntake) -> Units:
    units = record.units(intake.options.unit)
    return known.units if known is not None and units is not None and not units else units


def _time(text: str, intake: RecordIntake) -> float | None:
    if text in {"", "0"}:
        return None
    time_s = intake.clock.epoch(float(text))
    if time_s < SMALLEST_EPOCH_S:
        raise ValueError(f"{text!r} is not an epoch")
    return time_s
