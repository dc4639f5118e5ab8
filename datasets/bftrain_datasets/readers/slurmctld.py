"""Reader of Slurm's ``slurmctld.log``: lines with the start of a job and its nodes, and lines with its end."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Final

from bftrain.nodesets import expand
from bftrain_datasets.importing.job_checks import RecordIntake
from bftrain_datasets.importing.open_jobs import OpenJob
from bftrain_datasets.importing.raw_file import RawFile
from bftrain_datasets.importing.text_cells import first_lines, nodes_of, state_of
from bftrain_datasets.log.eventlog import NodeState

name: Final = "slurmctld"
about: Final = "Slurm: the log of slurmctld, at its level info"

_Taker = Callable[[re.Match[str], float, RecordIntake], None]

AT_ONCE_S: Final = 1.0  # within this time lines of several threads may be out of order

# [2026-11-20T09:44:28.863], with a zone, with a thread after it; or without brackets, as in the system journal
_LINE: Final = re.compile(
    r"\[?(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d+)?)(Z|[+-]\d\d:?\d\d)?[^\]\s]*\]? ?(.*)", re.DOTALL
)
_JOB: Final = r"[Jj]ob[ _]?(?:[Ii][Dd])?[= ]\s?(\d+(?:\+\d+|_\d+|_\[[^\]]*\])?)(?: ?\((\d+)\))?"
_ALLOCATED: Final = re.compile(
    rf"(?:Allocate|_slurm_rpc_allocate_resources:?) {_JOB} NodeList=(\S+)(?: #CPUs=\S*)?(?: Partition=(\S+))?"
)
_STARTED: Final = re.compile(rf"Started {_JOB} (?:in (\S+) )?on (\S+)")
_DONE: Final = re.compile(
    rf"job_complete: (?:requeue )?{_JOB} (?:.{{0,100}} )?(?:done|per user/system request|due to node failure)"
)
_PREEMPTED: Final = re.compile(
    rf"preempted {_JOB} (?:has been (?:requeued|killed|checkpointed|cancelled|canceled)|had to be killed)"
)
_FAILED: Final = re.compile(rf"(?:Killing|[Rr]equeue(?: job)?) {_JOB} (?:on failed node|due to failure of node)")
_TIMED_OUT: Final = re.compile(rf"ime limit (?:exhausted|reached) for {_JOB}")
_REQUEUED: Final = re.compile(rf"Requeu(?:ing|e) {_JOB}")
_REFUSED: Final = re.compile(
    rf"(?:Security violation, REQUEST_KILL_JOB RPC for|job_str_signal\(\) uid=\d+) {_JOB}"
    r"(?: sig=\d+ returned: Access| from)"
)
_KILLED: Final = re.compile(rf"REQUEST_KILL_JOB {_JOB}")
_NODE_LINES: Final = (
    # literal for a quick search, pattern, whether the nodes go out, and the reason, which ends separately
    ("not responding", re.compile(r"Nodes? (\S+) not responding, setting DOWN"), True, "down"),
    ("not responding", re.compile(r"Nodes? (\S+) not responding\s*\Z"), True, "silent"),
    ("now responding", re.compile(r"[Nn]odes? (\S+) now responding"), False, "silent"),
    ("drain_nodes: ", re.compile(r"drain_nodes: node (\S+) state set to DRAIN"), True, "drain"),
    ("etting node ", re.compile(r"[Ss]etting node (\S+) (?:state )?to (?:DOWN|INVAL)"), True, "down"),
    ("unexpectedly", re.compile(r"Node (\S+) unexpectedly rebooted"), True, "down"),
    ("Prolog ", re.compile(r"Prolog (?:failed|or job env setup failure) on node ([^\s,]+)"), True, "drain"),
    ("returned to service", re.compile(r"[Nn]ode (\S+) returned to service"), False, ""),
)
_SET: Final = re.compile(r"update_node: node (\S+) state set to (\S+)")
BACK: Final = frozenset({"RESUME", "UNDRAIN", "ALLOCATED", "MIXED", "POWER_UP"})
# A node that is powered down starts again for a job, without any line in the log
OTHER_ORDERS: Final = frozenset(
    {"NO_CHANGE", "POWER_DOWN", "POWER_DOWN_ASAP", "POWER_DOWN_FORCE", "CANCEL_REBOOT", "REBOOT", "REBOOT_ISSUED"}
)


def recognises(head: bytes) -> bool:
    """Return whether one of the first lines has a time and slurmctld's message on a job or node."""
    for text in first_lines(head):
        stamped = _LINE.match(text)
        if stamped and (_meaning(stamped[4]) or "slurmctld version " in stamped[4]):
            return True
    return False


def _meaning(message: str) -> tuple[_Taker, re.Match[str]] | None:
    """Return the handler of a message with its match, None for irrelevant messages."""
    for words, pattern, take in _MEANINGS:
        if words in message:
            match = pattern.search(message)
            if match:
                return take, match
    return None


def read(file: RawFile, intake: RecordIntake) -> None:
    """Read every line."""
    last: re.Match[str] | None = None
    latest_s = -math.inf
    for number, text in file.lines():
        if not text.strip():
            continue
        intake.row(number)
        stamped = _LINE.match(text)
        if stamped is None:
            intake.set_aside("malformed")
            continue
        last = stamped
        meaning = _meaning(stamped[4])
        if meaning is None:
            intake.set_aside("other_record")
            continue
        try:
            time_s = _time(stamped, intake)
        except ValueError:
            intake.set_aside("bad_time")
            continue
        if time_s < latest_s - AT_ONCE_S:
            intake.note("clock_step")
        latest_s = max(latest_s, time_s)
        take, match = meaning
        take(match, time_s, intake)
    if last is not None:  # the log was written up to here
        try:
            intake.observed(_time(last, intake))
        except ValueError:
            return


def _time(stamped: re.Match[str], intake: RecordIntake) -> float:
    day, clock, zone, _ = stamped.groups()
    return intake.seconds(f"{day}T{clock}{zone or ''}")


def _key(match: re.Match[str]) -> str:
    """Return the number of a job; a task of an array has its own in parentheses."""
    return match[2] or match[1]


def _begin(match: re.Match[str], time_s: float, intake: RecordIntake, *, nodes: int, queue: int) -> None:
    """Record the start of a job, with nodes and queue from these groups of the match."""
    if not nodes_of(match[nodes]):
        intake.set_aside("other_record")  # the job was queued
        return
    try:
        expand(match[nodes])
    except ValueError:
        intake.set_aside("bad_nodes")
        return
    key = _key(match)
    job = OpenJob(
        job=key,
        start_s=time_s,
        nodes=match[nodes],
        queue=match[queue] or "",
        place=intake.place(),
        also=() if match[1] == key else (match[1], re.split(r"[_+]", match[1])[0]),
    )
    if intake.open_jobs.begin(job):
        intake.use()
    else:
        intake.set_aside("duplicate")


def _end(match: re.Match[str], time_s: float, intake: RecordIntake, *, preempted: bool = False) -> None:
    """Record the end of a job, the first one in the log."""
    key = _key(match)
    known = intake.open_jobs.end(key, time_s)
    if known is not None:
        intake.job(key, known.start_s, time_s, known.nodes, queue=known.queue, preempted=preempted)
    elif intake.open_jobs.recently_ended(key):
        intake.set_aside("other_record")
    else:
        _end_before_start(key, time_s, intake, counts=True)


def _end_before_start(key: str, time_s: float, intake: RecordIntake, *, counts: bool) -> None:
    intake.open_jobs.end_before_start(key, time_s, intake.place(), counts=counts)
    if counts:
        intake.use()  # until all files are read; then the row may be set aside
    else:
        intake.set_aside("other_record")


def _ended_if_open(match: re.Match[str], time_s: float, intake: RecordIntake) -> None:
    """Record a message that follows the end of a job, in case the end itself is missing."""
    if intake.open_jobs.get(_key(match)) is not None:
        _end(match, time_s, intake)
    else:
        intake.set_aside("other_record")


def _killed(match: re.Match[str], time_s: float, intake: RecordIntake) -> None:
    """Record a request to cancel: the job's end if no other message has it."""
    found = [job for each in _named(match[1]) for job in intake.open_jobs.named(each)]
    for job in found:
        if job.may_end_s is None:
            job.may_end_s = time_s
    if found:
        intake.use()
    else:
        _end_before_start(_key(match), time_s, intake, counts=False)


def _not_killed(match: re.Match[str], _: float, intake: RecordIntake) -> None:
    for each in _named(match[1]):
        for job in intake.open_jobs.named(each):
            job.may_end_s = None
    intake.use()


def _named(text: str) -> list[str]:
    if "[" not in text:
        return [text]
    try:
        return expand(text.partition("%")[0].rstrip("]") + "]")
    except ValueError:
        return []


def _set_by_hand(match: re.Match[str], time_s: float, intake: RecordIntake) -> None:
    word = match[2].upper().rstrip("*~#")
    state = state_of(word)
    if word in OTHER_ORDERS or (word not in BACK and state is None):
        intake.set_aside("other_record")
    else:
        out = word not in BACK and state != NodeState.IDLE
        _report_nodes(match, time_s, intake, out=out, why="down" if out else "")


def _report_nodes(match: re.Match[str], time_s: float, intake: RecordIntake, *, out: bool, why: str) -> None:
    try:
        names = expand(match[1])
    except ValueError:
        intake.set_aside("bad_nodes")
        return
    for each in names:
        intake.name_node(each)
        intake.outages.tell(each, time_s, out=out, why=why)
    intake.use()


# For each meaning: a literal for a quick search, pattern and handler
_MEANINGS: Final[tuple[tuple[str, re.Pattern[str], _Taker], ...]] = (
    ("llocate", _ALLOCATED, partial(_begin, nodes=3, queue=4)),
    ("Started ", _STARTED, partial(_begin, nodes=4, queue=3)),
    ("job_complete: ", _DONE, _end),
    ("preempted ", _PREEMPTED, partial(_end, preempted=True)),
    (" fail", _FAILED, _end),
    ("ime limit ", _TIMED_OUT, _end),
    ("Requeu", _REQUEUED, _ended_if_open),
    ("KILL_JOB", _KILLED, _killed),
    ("KILL_JOB", _REFUSED, _not_killed),
    ("job_str_signal", _REFUSED, _not_killed),
    ("update_node: ", _SET, _set_by_hand),
    *((words, pattern, partial(_report_nodes, out=out, why=why)) for words, pattern, out, why in _NODE_LINES),
)
