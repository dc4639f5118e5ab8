"""Accounting of PBS Professional, OpenPBS and Torque: ``MM/DD/YYYY HH:MM:SS;E;id;key=value ...``, one record a line."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from bftrain_datasets.importing.open_jobs import OpenJob
from bftrain_datasets.importing.text_cells import first_lines
from bftrain_datasets.log.time_formats import SMALLEST_EPOCH_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from bftrain_datasets.importing.job_checks import RecordIntake
    from bftrain_datasets.importing.raw_file import RawFile

name: Final = "pbs"
about: Final = "PBS Professional, OpenPBS and Torque: the accounting files of the server"

_RECORD: Final = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d:\d\d:\d\d)(?:\.\d+)?;([A-Za-z]);([^;]*);(.*)", re.DOTALL)
_QUOTED: Final = re.compile(r'"[^"]*"')
_NAME: Final = re.compile(r"[\w.-]+\Z")
_PORT: Final = re.compile(r":\d+\Z")


class PbsRecord:
    """One line: its ``kind``, the ``job`` and its fields. ``when`` is the local time of writing, as ISO."""

    __slots__ = ("_text", "job", "kind", "when")

    def __init__(self, match: re.Match[str]) -> None:
        month, day, year, clock, self.kind, self.job, text = match.groups()
        self.when = f"{year}-{month}-{day}T{clock}"
        plain = _QUOTED.sub("", text) if '"' in text else text  # a quoted text may look like a key
        self._text = f" {plain} "

    def value(self, key: str) -> str:
        """Give the value of a key, or nothing."""
        begin = self._text.find(f" {key}=")
        if begin < 0:
            return ""
        begin += len(key) + 2
        return self._text[begin : self._text.index(" ", begin)]

    def nodes(self) -> str:
        """Give where the job runs, as written: hosts and, after a blank, vnodes."""
        return f"{self.value('exec_host')} {self.value('exec_vnode')}"


def recognises(head: bytes) -> bool:
    """Say whether one of the first lines is a record."""
    return any(_RECORD.match(line) for line in first_lines(head))


def places_of(text: str) -> list[str]:
    """Names of the nodes in hosts and vnodes as written, such as ``n1/0*4+n2/0 (n1:ncpus=4)+(n2:ncpus=1)``.

    A host may be made of several vnodes, such as ``n1[0]``. It is idle only when all of them are, so hosts are the
    nodes. Where vnodes are no part of their hosts, as on a machine whose jobs start from a service node, they are.
    """
    host_text, _, vnode_text = text.partition(" ")
    hosts = [_PORT.sub("", slot.partition("/")[0]) for slot in host_text.split("+") if slot]
    chunks = vnode_text.replace("(", "").replace(")", "").split("+")
    vnodes = [chunk.partition(":")[0].partition("[")[0] for chunk in chunks if chunk]
    known = {host.partition(".")[0] for host in hosts}
    chosen = hosts if hosts and all(vnode.partition(".")[0] in known for vnode in vnodes) else vnodes or hosts
    names = list(dict.fromkeys(chosen))
    if not names or not all(_NAME.match(each) for each in names):
        raise ValueError(f"{text[:60]!r} names no node")
    return names


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every record."""
    for number, line in file.lines():
        if not line.strip() or line.startswith("#"):
            continue
        intake.row(number)
        match = _RECORD.match(line)
        if match is None:
            intake.set_aside("malformed")
            continue
        record = PbsRecord(match)
        take = _KINDS.get(record.kind)
        if take is None or "[]" in record.job:  # the parent of an array holds nothing itself
            intake.set_aside("other_record")
            continue
        try:
            take(record, intake)
        except ValueError:
            intake.set_aside("bad_time")


def _started(record: PbsRecord, intake: RecordIntake) -> None:
    start_s = _time(record.value("start"), intake)
    if start_s is None:
        start_s = intake.seconds(record.when)
    job = OpenJob(
        job=record.job,
        start_s=start_s,
        nodes=_nodes(record),
        queue=record.value("queue"),
        place=intake.place(),
        expand=places_of,
    )
    if intake.open_jobs.begin(job):
        intake.use()
    else:
        intake.set_aside("duplicate")


def _ended(record: PbsRecord, intake: RecordIntake) -> None:
    """Take the end of a run: the record tells all of it, or else that of its start does."""
    start_s = _time(record.value("start"), intake)
    end_s = _time(record.value("end"), intake)
    if end_s is None:
        end_s = intake.seconds(record.when)
    known = intake.open_jobs.end(record.job, end_s)
    if known is None:
        intake.open_jobs.end_unseen(record.job, end_s, intake.place(), start_s=start_s or end_s, counts=False)
    elif start_s is None or known.start_s > start_s:  # the job gave nodes back, and holds fewer since then
        start_s = known.start_s
    nodes = _nodes(record) or (known.nodes if known else "")
    queue = record.value("queue") or (known.queue if known else "")
    intake.job(record.job, start_s, end_s, nodes, queue=queue, expand=places_of)


def _shrinks(record: PbsRecord, intake: RecordIntake) -> None:
    """Take an update: what the job held up to now. The record that goes with it says what it keeps."""
    known = intake.open_jobs.get(record.job)
    until_s = intake.seconds(record.when)
    if known is None or until_s <= known.start_s:
        intake.set_aside("other_record")
        return
    start_s, known.start_s = known.start_s, until_s
    intake.job(record.job, start_s, until_s, _nodes(record) or known.nodes, queue=known.queue, expand=places_of)


def _goes_on(record: PbsRecord, intake: RecordIntake) -> None:
    known, nodes = intake.open_jobs.get(record.job), _nodes(record)
    if known is None or not nodes:
        intake.set_aside("other_record")
        return
    known.nodes = nodes
    intake.use()


def _may_end(record: PbsRecord, intake: RecordIntake) -> None:
    """Take a job's deletion, for the case that no record of its end follows."""
    known = intake.open_jobs.get(record.job)
    if known is None:
        intake.set_aside("other_record")
        return
    known.may_end_s = max(known.start_s, intake.seconds(record.when))
    intake.use()


_KINDS: Final[dict[str, Callable[[PbsRecord, RecordIntake], None]]] = {
    "S": _started,
    "T": _started,  # Torque: again, from a checkpoint
    "E": _ended,
    "R": _ended,  # to be run again
    "C": _ended,  # Torque: stopped at a checkpoint
    "u": _shrinks,
    "c": _goes_on,
    "s": _goes_on,
    "A": _may_end,
    "D": _may_end,
}


def _nodes(record: PbsRecord) -> str:
    nodes = record.nodes()
    return "" if nodes.isspace() else nodes


def _time(text: str, intake: RecordIntake) -> float | None:
    """Seconds UTC of an epoch, None if there is none."""
    if text in {"", "0"}:
        return None
    time_s = intake.clock.epoch(float(text))
    if time_s < SMALLEST_EPOCH_S:
        raise ValueError(f"{text!r} is no epoch")
    return time_s
