"""LSF's queues, parameters and hosts: the limits of pilots, and whether LSF preempts them."""

from __future__ import annotations

import getpass
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from bftrain.errors import NotAvailable
from bftrain.live.schedulers.pilot_backend import LATER, Command, CommandFailed, PilotLimits, Run
from bftrain.live.schedulers.queue_pilots import queue_remarks, unknown_queue

_QUEUES: Final = Command(argv=("bqueues", "-l"))
_PARAMETERS: Final = Command(argv=("bparams", "-a"))
_QUEUE: Final = re.compile(r"^QUEUE:\s*(\S+)", re.MULTILINE)
_PARAMETER: Final = re.compile(r"^\s*(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_RUN_LIMIT: Final = re.compile(r"RUNLIMIT\s+([\d.]+) min")
_POLICY: Final = r"(?<![A-Z_]){}\b(?:[\[(]([^\])]*)[\])])?"  # with the names of other queues, if any
_TERMINATES: Final = re.compile(r"SUSPEND\W.*(bkill|brequeue|kill)|TERMINATE_WHEN\W.*PREEMPT")
_ALL_HOSTS: Final = frozenset({"all", "allremote", "others", "none"})


class LsfQueue(msgspec.Struct, frozen=True, kw_only=True):
    """A queue. ``about`` is the text of ``bqueues -l`` on it, without its description."""

    name: str
    priority: int
    status: str
    slots: float  # that one user, or all, may hold
    about: str

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of its hosts and host groups; none if it has all hosts, or all except some."""
        names = self._names("HOSTS")
        every = not _ALL_HOSTS.isdisjoint(names) or any(name.startswith("~") or "@" in name for name in names)
        return () if every else tuple(name.partition("+")[0].rstrip("/") for name in names)

    def takes(self, user: str) -> bool:
        """Return whether a user may submit jobs, as far as the list of users says so without groups."""
        names = self._names("USERS")
        return user in names or not names or any(name == "all" or name[0] == "~" or name[-1] == "/" for name in names)

    def _names(self, head: str) -> list[str]:
        found = re.search(rf"^{head}:[ \t]*(.*)$", self.about, re.MULTILINE)
        return found[1].split() if found else []

    @property
    def longest_s(self) -> float:
        """The longest time for which its jobs may run."""
        found = _RUN_LIMIT.search(
            self.about.partition("MAXIMUM LIMITS")[2] or self.about.partition("DEFAULT LIMITS")[0]
        )
        return 60 * float(found[1]) if found else LATER

    def has(self, policy: str) -> bool:
        """Return whether it has a scheduling policy, such as EXCLUSIVE."""
        return re.search(_POLICY.format(policy), self.about) is not None

    def preempts(self, other: LsfQueue) -> bool:
        """Return whether its jobs preempt those of another queue."""
        found = re.search(_POLICY.format("PREEMPTIVE"), self.about)
        names = {word.partition("+")[0] for word in (found[1] or "").split()} if found else set()
        return found is not None and self.priority > other.priority and (not names or other.name in names)


def read_queues(said: str) -> dict[str, LsfQueue]:
    """Parse the output of ``bqueues -l``."""
    _, *parts = _QUEUE.split(said)
    return {name: _read_queue(name, text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


def _read_queue(name: str, text: str) -> LsfQueue:
    about = text.partition("PARAMETERS/STATISTICS")[2] or text
    rows = [line.split() for line in about.splitlines() if line.strip()]
    row = dict(zip(rows[0], rows[1], strict=False)) if len(rows) > 1 else {}
    slots = min((float(row[column]) for column in ("MAX", "JL/U") if row.get(column, "").isdecimal()), default=LATER)
    priority = row.get("PRIO", "")
    number = int(priority) if priority.lstrip("-").isdecimal() else 0
    return LsfQueue(name=name, priority=number, status=row.get("STATUS", ""), slots=slots, about=about)


async def ask_parameters(run: Run) -> Mapping[str, str]:
    """Query the parameters of the cluster."""
    return dict(_PARAMETER.findall(await run(_PARAMETERS)))


async def ask_limits(run: Run, name: str, slots: int, parameters: Mapping[str, str]) -> tuple[PilotLimits, LsfQueue]:
    """Query what LSF allows pilots of a queue; raise NotAvailable if it would not preempt them or never start them."""
    queues = read_queues(await run(_QUEUES))
    if not queues:
        raise CommandFailed(_QUEUES.argv, 0, "printed what cannot be read")
    queue = queues.get(name)
    if queue is None:
        raise unknown_queue("LSF", name, "bqueues")
    _check(queue, queues.values(), slots, parameters)
    preempts = queue.has("PREEMPTIVE")
    remarks = queue_remarks(
        name, starts="Inact" not in queue.status, takes="Closed" not in queue.status, preempts=preempts
    )
    if not _TERMINATES.search(queue.about):
        remarks.append(
            f"queue '{name}' suspends preempted jobs, and pilots stay on their nodes until they are cancelled; better "
            "TERMINATE_WHEN=PREEMPT"
        )
    hosts = read_hosts(await run(list_hosts(queue.hosts)))
    limits = PilotLimits(
        running=queue.slots // max(1, slots) if queue.slots < LATER else LATER,
        longest_s=queue.longest_s,
        nodes=frozenset(host for host, _, _ in hosts),
        remarks=tuple(remarks),
    )
    return limits, queue


def _check(queue: LsfQueue, queues: Iterable[LsfQueue], slots: int, parameters: Mapping[str, str]) -> None:
    where, user = f"queue '{queue.name}'", getpass.getuser()
    if not queue.takes(user):
        raise NotAvailable(f"LSF takes no jobs of the user {user} there", where=where, fix="see USERS of bqueues -l")
    if not queue.has("PREEMPTABLE") and not any(other.preempts(queue) for other in queues):
        raise NotAvailable(
            "LSF never preempts pilots there, so others would wait: the queue is not PREEMPTABLE, and no queue of a "
            "higher priority is PREEMPTIVE for it",
            where=where,
            fix="have a queue with PREEMPTION=PREEMPTABLE and a low PRIORITY in lsb.queues",
        )
    fix = "or set slots in [scheduler] to the number of slots of a host"
    if not slots and not queue.has("EXCLUSIVE"):
        raise NotAvailable(
            "LSF gives its jobs no whole hosts", where=where, fix=f"set EXCLUSIVE=Y in lsb.queues, {fix}"
        )
    if not slots and "EXCLUSIVE" not in parameters.get("PREEMPT_JOBTYPE", ""):
        raise NotAvailable(
            "LSF never preempts jobs that hold a whole host, so others would wait for pilots",
            where="PREEMPT_JOBTYPE",
            fix=f"add EXCLUSIVE to PREEMPT_JOBTYPE in lsb.params, {fix}",
        )


def list_hosts(names: Sequence[str]) -> Command:
    """Build the command that lists hosts, all of them if no names are given."""
    return Command(argv=("bhosts", "-w", *names))


def read_hosts(said: str) -> list[tuple[str, str, str]]:
    """Parse the output of ``bhosts -w``: name, status and number of slots that jobs hold."""
    head, *rows = [line.split() for line in said.splitlines() if line.strip()] or [[]]
    found = [dict(zip(head, row, strict=False)) for row in rows]
    return [(row.get("HOST_NAME", ""), row.get("STATUS", ""), row.get("NJOBS", "")) for row in found]


def read_idle(said: str) -> frozenset[str]:
    """Return the hosts that take jobs and have none."""
    return frozenset(host for host, status, jobs in read_hosts(said) if status == "ok" and jobs == "0")


def default_priority(parameters: Mapping[str, str]) -> int:
    """Return the priority of jobs that name none, half of the highest; 0 if jobs of this LSF have no priorities."""
    highest = parameters.get("MAX_USER_PRIORITY", "").split()[:1]
    return math.ceil(int(highest[0]) / 2) if highest and highest[0].isdecimal() else 0
