"""PBS Professional and OpenPBS: for ordinary users with pilot jobs in a preemptable queue, or for operators.

Command builders, parsers and a state table, similar to Slurm's. The site must delete or requeue jobs of that queue
when other jobs need their nodes (preempt_order D or R); suspended jobs would remain on their nodes.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from email.utils import parsedate
from typing import Any, Final

from bftrain.errors import NotAvailable
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
    queue_remarks,
    unknown_queue,
)
from bftrain.live.schedulers.base import AgentOrder, Positive, Scheduler, Site, Text, scheduler_settings
from bftrain.live.schedulers.pilots import NodeWatch, PilotJobs, PilotSettings, WatchSettings
from bftrain.values import checks

PROGRAMS: Final = ("qsub", "qstat", "qdel", "qselect", "pbsnodes")
REMEDY: Final = "run this where PBS's commands are installed"
MARK: Final = "BFTRAIN_PILOT"  # the variable that carries a pilot's mark

STATES: Final[Mapping[str, PilotState]] = {
    "Q": PilotState.WAITING,
    "H": PilotState.WAITING,  # job on hold
    "W": PilotState.WAITING,  # waits for its start time
    "T": PilotState.WAITING,  # moved to this server
    "B": PilotState.RUNNING,  # a started array
    "R": PilotState.RUNNING,
    "S": PilotState.STOPPED,
    "U": PilotState.STOPPED,
    "E": PilotState.ENDING,
    "M": PilotState.TAKEN,  # moved to another server
    "X": PilotState.LEFT,
    "F": PilotState.LEFT,  # default; the next two tables are more specific
}
OVER: Final = frozenset({PilotState.TAKEN, PilotState.LEFT})
SUBSTATES: Final[Mapping[str, PilotState]] = {"91": PilotState.TAKEN, "93": PilotState.FAILED}
# Exit codes of killed jobs: 128 or 256 plus the signal; -29: out of time
SIGNALLED: Final = frozenset({"143", "137", "271", "265", "-29"})

TROUBLES: Final[tuple[tuple[str, Trouble], ...]] = (
    (r"Unknown Job Id|Job has finished|[Ii]nvalid for (the )?state|maintain job history", Trouble.GONE),
    (r"would exceed|limit of jobs|Maximum number of jobs|server resource limits", Trouble.LIMIT),
    (r"[Cc]onnect|timed? out|did not answer|End of File|No route", Trouble.AWAY),
    (r"[Uu]nknown|[Uu]nauthori[sz]ed|rejected|[Ii]llegal|[Ii]nvalid|denied|cannot be run|not enabled", Trouble.REFUSED),
    (r"Bad UID", Trouble.REFUSED),  # rejects root
)
_NODES: Final = Command(argv=("pbsnodes", "-a"))
_HIGH: Final = 150  # PBS's default of preempt_queue_prio: jobs of queues with this Priority or more preempt other jobs
_JOBS_PER_QUERY: Final = 50  # jobs per query by name
_REMEMBERED: Final = 200  # finished jobs kept


class PbsSettings(PilotSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of pilots in PBS."""

    queue: Text
    poll_s: Positive = 45.0  # each poll takes two commands
    select: Text = "1:ncpus=1"  # one full host with place=exclhost
    account: str = ""

    def __post_init__(self) -> None:
        if any(word.startswith("-q") for word in self.options):  # preemption was not checked for another queue
            checks.reject(self, "options", "must not name a queue", "use queue")


def make(table: Mapping[str, object], site: Site) -> Scheduler:
    """Build the scheduler from the settings of a site."""
    settings = scheduler_settings(table, PbsSettings)
    return PilotJobs(Pbs(settings), settings, site)


class Pbs(PilotBackend):
    """PBS's commands and parsers of their output."""

    name = "pbs"
    programs = PROGRAMS
    remedy = REMEDY
    cancels = ("qdel",)
    troubles = TROUBLES
    avoids = False  # jobs can request nodes, but not exclude nodes
    commands = (2, 2, 2)

    def __init__(self, settings: PbsSettings) -> None:
        self._settings = settings
        self._alive: frozenset[str] = frozenset()  # jobs at the last poll
        self._over: dict[str, Attributes] = {}  # recently finished jobs that the server remembers

    def script(self, order: AgentOrder, site: Site) -> str:
        """Return the job script; the node has the name of its host."""
        return pilot_script(order, site, 'read -r node <"$PBS_NODEFILE"; node=${node%%.*}')

    async def limits(self, run: Run) -> PilotLimits:
        """Query the limits of the queue; raise NotAvailable if its jobs are not preempted, or preempt others'."""
        name = self._settings.queue
        queues = read(await run(Command(argv=("qstat", "-Q", "-f"))))
        if name not in queues:
            raise unknown_queue("PBS", name, "qstat -Q")
        queue = queues[name]
        starts, takes = queue.get("started") != "False", queue.get("enabled") != "False"
        remarks = queue_remarks(name, starts=starts, takes=takes)
        try:
            scheds = read(await run(Command(argv=("qmgr", "-c", "list sched"))))
        except CommandFailed as error:
            remarks.append(f"whether PBS preempts jobs of queue '{name}' is not known: {error}")
        else:
            remarks += _preemption(name, queues, scheds)
        user = getpass.getuser()
        return PilotLimits(
            running=limit(queue.get("max_run"), user),
            submitted=limit(queue.get("max_queued"), user),
            longest_s=length_s(queue.get("resources_max.walltime")),
            remarks=tuple(remarks),
        )

    def submission(self, order: PilotOrder) -> Command:
        """Build the command that submits a pilot.

        PBS starts a script under its own shell. SIGTERM kills that shell before the agent, and PBS then waits ten
        seconds before it sends SIGKILL. Without a script, the agent is the job's first process, and its exit finishes
        the job.
        """
        known = self._settings
        words = ["qsub", "-N", order.name, "-q", known.queue, "-j", "oe", "-o", "/dev/null"]
        words += ["-r", "y", "-W", "umask=077", "-v", f"{MARK}={order.mark}", "-p", str(max(-1024, -100 * order.rank))]
        words += ["-l", f"select={known.select}", "-l", "place=exclhost", "-l", f"walltime={int(order.seconds)}"]
        words += ["-A", known.account] if known.account else []
        # In one line, because qstat shows it as it is
        script = "; ".join(line for line in order.script.splitlines() if not line.startswith("#"))
        return Command(argv=(*words, *known.options, "--", "/bin/sh", "-c", script))

    async def pilots(self, run: Run, name: str) -> Sequence[Pilot]:
        """List our jobs, including recently finished jobs if the server remembers them.

        qstat opens one connection for every job name, each from a privileged port, and these are scarce. One request
        therefore lists all jobs of the queue, and only missing jobs are queried by name.
        """
        ids = (await run(Command(argv=("qselect", "-u", getpass.getuser(), "-N", name)))).split()
        listed = await self._jobs(run, self._settings.queue) if ids else {}
        jobs = {id_: listed[id_] for id_ in ids if id_ in listed}
        jobs |= await self._jobs(run, *(id_ for id_ in ids if id_ not in listed))  # a routing queue passes its jobs on
        lost = sorted(self._alive.union(ids).difference(jobs))[:_JOBS_PER_QUERY]
        for id_, job in (await self._jobs(run, *lost, over=True)).items():
            (self._over if STATES.get(job.get("job_state", "")) in OVER else jobs)[id_] = job
        self._alive, self._over = frozenset(jobs), dict([*self._over.items()][-_REMEMBERED:])
        return list(read_pilots(self._over | jobs))

    async def idle(self, run: Run) -> frozenset[str]:
        """Return the nodes that are free and have no job."""
        return read_idle(await run(_NODES))

    async def plans(self, run: Run, name: str) -> Mapping[str, float]:
        """Return for which nodes PBS has estimated a start of other jobs, and when."""
        ids = (await run(Command(argv=("qselect", "-s", "Q", "-tt.gt.197001020000")))).split()[:_JOBS_PER_QUERY]
        return read_plans(await self._jobs(run, *ids), name)

    async def _jobs(self, run: Run, *names: str, over: bool = False) -> dict[str, Attributes]:
        """Return the attributes of jobs, or of all in a queue; deleted jobs are left out."""
        if not names:
            return {}
        argv = ("qstat", *(("-x",) if over else ()), "-f", "-F", "dsv", *names)
        try:
            output = await run(Command(argv=argv))
        except CommandFailed as error:
            if self.trouble(error) is not Trouble.GONE:
                raise
            output = error.printed
        try:
            return read_jobs(output)
        except ValueError as error:
            raise CommandFailed(argv, 0, "its output cannot be read") from error


def _preemption(name: str, queues: Mapping[str, Attributes], scheds: Mapping[str, Attributes]) -> Iterator[str]:
    """Raise if jobs of the queue preempt others' or are never preempted; yield remarks on slow preemption."""
    part = queues[name].get("partition", "")
    sched = next((one for one in scheds.values() if part and part in one.get("partition", "").split(",")), None)
    sched = sched or scheds.get("default", {})
    high = int(sched.get("preempt_queue_prio", _HIGH))
    express = {one for one, queue in queues.items() if int(queue.get("Priority", 0)) >= high}
    where, fix = f"queue '{name}'", "see docs/how-to/live.md#pbs, and 'qmgr -c \"list sched\"'"
    if name in express:
        raise NotAvailable(
            f"its jobs preempt other jobs: its Priority is at least {high}, preempt_queue_prio", where=where, fix=fix
        )
    kinds = set(re.findall(r"\w+", sched.get("preempt_prio", "")))  # these may lower the priority of pilots
    if not express and kinds <= {"express_queue", "normal_jobs"}:
        raise NotAvailable(
            f"PBS never preempts its jobs, so other jobs would wait: no queue has a Priority of {high} or more,"
            " preempt_queue_prio",
            where=where,
            fix=fix,
        )
    order = str(sched.get("preempt_order", "SCR"))
    if order[0] in "SC":
        yield f"PBS first suspends or checkpoints pilots, so they occupy memory for a while (preempt_order = {order})"


def read_pilots(jobs: Mapping[str, Attributes]) -> Iterator[Pilot]:
    """Parse pilots from jobs."""
    for id_, job in jobs.items():
        start_s = moment(job.get("stime")) or 0.0
        limit_s = length_s(job.get("Resource_List.walltime"))
        state = STATES.get(str(job.get("job_state")), PilotState.ENDING)
        end_s = start_s + limit_s if start_s and limit_s < LATER else None
        if state is PilotState.LEFT:
            state = SUBSTATES.get(str(job.get("substate")), state)
            state = PilotState.TAKEN if str(job.get("Exit_status")) in SIGNALLED else state
            end_s = moment(job.get("mtime"))
        held = state is not PilotState.WAITING
        yield Pilot(
            id=id_,
            state=state,
            node=host(job) if held else "",
            mark=variable(job, MARK),
            start_s=start_s if held else 0.0,
            end_s=end_s if held else None,
            why=str(job.get("comment", "")),
        )


def read_idle(output: str) -> frozenset[str]:
    """Parse the nodes that are free and have no job."""
    nodes = read(output)
    return frozenset(name for name, node in nodes.items() if node.get("state") == "free" and not node.get("jobs"))


def read_plans(jobs: Mapping[str, Attributes], name: str) -> dict[str, float]:
    """Return the earliest time from which each node is planned for other jobs."""
    others = (job for job in jobs.values() if job.get("Job_Name") != name)
    starts = ((moment(job.get("estimated.start_time")), str(job.get("estimated.exec_vnode", ""))) for job in others)
    return earliest((node, at_s) for at_s, nodes in starts if at_s is not None for node in vnodes(nodes))


Attributes = Mapping[str, Any]

_HEAD: Final = re.compile(r"(?:(?:Queue:|Sched) )?(\S+)")
_CELL: Final = re.compile(r"(?:[^|\\]|\\.)+")


# -- what commands print. Jobs: one line each, because their owners choose values with any letters. Queues, nodes and
# schedulers: lines of `name = value` below a line with the name. Jobs are not read as JSON, because OpenPBS 23.06.06
# prints only the first of several in this form


def read_jobs(output: str) -> dict[str, Attributes]:
    """Parse jobs that ``qstat -f -F dsv`` printed; raise ``ValueError`` if that cannot be parsed."""
    jobs: dict[str, Attributes] = {}
    for line in filter(None, output.split("\n")):
        head, *cells = (re.sub(r"\\(.)", r"\1", cell) for cell in _CELL.findall(line))
        if not head.startswith("Job Id: ") or not cells:
            raise ValueError(f"{line[:60]!r} is no job")
        jobs[head.removeprefix("Job Id: ")] = dict(cell.split("=", 1) for cell in cells if "=" in cell)
    return jobs


def read(output: str) -> dict[str, Attributes]:
    """Parse attributes by the name of their queue, node or scheduler."""
    return dict(_lines(output))


def _lines(output: str) -> Iterator[tuple[str, Attributes]]:
    name, attributes, last = "", dict[str, Any](), ""
    for line in output.splitlines():
        if line.startswith("\t"):  # continuation line
            attributes[last] = attributes.get(last, "") + line[1:]
        elif line[:1].isspace():
            last, _, value = line.strip().partition(" = ")
            attributes[last] = value
        elif line and (head := _HEAD.match(line)):
            if name:
                yield name, attributes
            name, attributes, last = head[1], {}, ""
    if name:
        yield name, attributes


def variable(job: Attributes, name: str) -> str:
    """Return a variable of a job's environment."""
    found = re.search(rf"(?:^|,){re.escape(name)}=([^,]*)", str(job.get("Variable_List", "")))
    return found[1] if found else ""


def host(job: Attributes) -> str:
    """Return the host of a single-node job: ``node7`` of ``node7/0*4``, without a domain."""
    return str(job.get("exec_host", "")).partition("/")[0].partition(".")[0]


def vnodes(text: str) -> tuple[str, ...]:
    """Return the names in ``(node7:ncpus=4)+(node8:ncpus=4)``."""
    return tuple(dict.fromkeys(part.strip("()").partition(":")[0] for part in text.split("+") if part.strip("()")))


def moment(text: object) -> float | None:
    """Parse a time such as ``Sat Nov 21 10:10:12 2026``, which is local, or seconds since 1970."""
    if str(text).isdecimal():
        return float(str(text))
    try:
        found = parsedate(str(text))
        return datetime(*found[:6]).astimezone().timestamp() if found else None
    except ValueError:
        return None


def limit(text: object, user: str) -> float:
    """Return the limit for a user from a list such as ``[u:PBS_GENERIC=10], [u:jane=20], [o:PBS_ALL=100]``."""
    rules = dict(re.findall(r"([ougp]:[^=\]\s]+)=(\d+)", str(text or "")))
    own = rules.get(f"u:{user}", rules.get("u:PBS_GENERIC"))
    return min((float(number) for number in (own, rules.get("o:PBS_ALL")) if number), default=float("inf"))


# -- as an operator: agents wait on every node, and nodes that PBS calls free are ours while no job is on them


def make_nodes(table: Mapping[str, object], _site: Site) -> Scheduler:
    """Build the scheduler from the settings of a site."""
    settings = scheduler_settings(table, WatchSettings)
    return NodeWatch("pbs-nodes", _NODES, read_idle, settings, REMEDY)
