"""PBS Professional and OpenPBS: for ordinary users with pilot jobs in a preemptable queue, or for operators.

Command builders, parsers and a table of states, like Slurm's. The site must delete or requeue jobs of that queue when
others want their nodes (preempt_order D or R); suspended jobs would remain on their nodes.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from bftrain.live.schedulers.node_polling import NodeWatch, WatchSettings
from bftrain.live.schedulers.pilot_backend import (
    Command,
    CommandFailed,
    CommandRunner,
    Pilot,
    PilotLimits,
    PilotOrder,
    PilotState,
    Run,
    Trouble,
    found_all,
    in_pieces,
    pilot_script,
)
from bftrain.live.schedulers.pilot_manager import PilotJobs
from bftrain.live.schedulers.pool_settings import scheduler_settings
from bftrain.live.schedulers.port import AgentOrder, Scheduler, Site
from bftrain.live.schedulers.queue_pilots import QueueBackend, QueueSettings, queue_remarks, unknown_queue
from bftrain.values import checks

PROGRAMS: Final = ("qsub", "qstat", "qdel", "qselect", "pbsnodes")
REMEDY: Final = "run this where PBS's commands are installed"
MARK: Final = "BFTRAIN_PILOT"  # the variable that carries a pilot's mark

STATES: Final[Mapping[str, PilotState]] = {
    "Q": PilotState.WAITING,
    "H": PilotState.WAITING,  # held
    "W": PilotState.WAITING,  # for its time
    "T": PilotState.WAITING,  # moved to this server
    "B": PilotState.RUNNING,  # an array that began
    "R": PilotState.RUNNING,
    "S": PilotState.STOPPED,
    "U": PilotState.STOPPED,
    "E": PilotState.ENDING,
    "M": PilotState.TAKEN,  # moved to another server
    "X": PilotState.LEFT,
    "F": PilotState.LEFT,  # unless one of the next two tables says more
}
SUBSTATES: Final[Mapping[str, PilotState]] = {"91": PilotState.TAKEN, "93": PilotState.FAILED}
SIGNALLED: Final = frozenset({"143", "137", "271", "265"})  # exit codes of jobs killed by SIGTERM or SIGKILL

TROUBLES: Final[tuple[tuple[str, Trouble], ...]] = (
    (r"Unknown Job Id|Job has finished|[Ii]nvalid for (the )?state", Trouble.GONE),
    (r"would exceed|limit of jobs|Maximum number of jobs", Trouble.LIMIT),
    (r"[Cc]onnect|timed? out|did not answer|End of File|No route", Trouble.AWAY),
    (r"[Uu]nknown|[Uu]nauthori[sz]ed|rejected|[Ii]llegal|[Ii]nvalid|exceeds|denied|cannot be run", Trouble.REFUSED),
)
_HIGH: Final = 150  # PBS lets jobs of queues with such a priority preempt others
_FEW: Final = 200  # jobs whose estimated start is asked for


class PbsSettings(QueueSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of pilots in PBS."""

    select: str = "1:ncpus=1"  # together with place=exclhost: one whole host
    account: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.text(self, "select")


def make(table: Mapping[str, object], site: Site) -> Scheduler:
    """Build the scheduler from the settings of a site."""
    settings = scheduler_settings(table, PbsSettings)
    return PilotJobs(Pbs(settings), settings, site, CommandRunner(timeout_s=settings.command_timeout_s))


class Pbs(QueueBackend):
    """PBS's commands and parsers of their output."""

    name = "pbs"
    programs = PROGRAMS
    remedy = REMEDY
    cancels = "qdel"
    troubles = TROUBLES
    avoids = False  # a job can ask for nodes, but not for all except some

    def __init__(self, settings: PbsSettings) -> None:
        self._settings = settings
        self._history: tuple[str, ...] = ("-x",)  # whether the server remembers jobs that are over
        self._json: tuple[str, ...] = ("-F", "json")

    def script(self, order: AgentOrder, site: Site) -> str:
        """Return the job script; the node has the name of its host."""
        return pilot_script(order, site, 'read -r node <"$PBS_NODEFILE"; node=${node%%.*}')

    async def limits(self, run: Run) -> PilotLimits:
        """Query the limits of the queue. PBS shows only operators how its jobs are preempted."""
        name = self._settings.queue
        try:
            found = await self._read(run, "Queue", "qstat", "-Q", "-f", *self._json, name)
        except CommandFailed as error:
            if self.trouble(error) is not Trouble.REFUSED:
                raise
            raise unknown_queue("PBS", name, "qstat -Q") from error
        queue = next(iter(found.values()), {})
        remarks = queue_remarks(
            name,
            starts=str(queue.get("started", "True")) == "True",
            takes=str(queue.get("enabled", "True")) == "True",
            preempts=int(queue.get("Priority") or 0) >= _HIGH,
        )
        user, longest = getpass.getuser(), length(queue.get("resources_max.walltime"))
        return PilotLimits(
            running=limit(queue.get("max_run"), user),
            submitted=limit(queue.get("max_queued"), user),
            longest_s=float("inf") if longest is None else longest,
            remarks=tuple(remarks),
        )

    def submission(self, order: PilotOrder) -> Command:
        """Build the command that submits a pilot; the script is passed by stdin."""
        known = self._settings
        words = ["qsub", "-N", order.name, "-q", known.queue, "-S", "/bin/sh", "-j", "oe", "-o", "/dev/null"]
        words += ["-r", "y", "-W", "umask=077", "-v", f"{MARK}={order.mark}", "-p", str(max(-1024, -100 * order.rank))]
        words += ["-l", f"select={known.select}", "-l", "place=exclhost", "-l", f"walltime={int(order.seconds)}"]
        words += ["-A", known.account] if known.account else []
        return Command(argv=(*words, *known.options), stdin=order.script)

    async def pilots(self, run: Run, name: str) -> Sequence[Pilot]:
        """List our jobs, including those that ended lately if the server remembers them."""
        words = ("qselect", "-u", getpass.getuser(), "-N", name)
        try:
            said = await run(Command(argv=(*words, *self._history)))
        except CommandFailed as error:
            if not self._history or not re.search(r"histor", error.said):
                raise
            self._history = ()
            said = await run(Command(argv=words))
        jobs: dict[str, Attributes] = {}
        for piece in in_pieces(said.split()):
            jobs |= await self._read(run, "Jobs", "qstat", "-f", *self._history, *self._json, *piece)
        return list(read_pilots(jobs))

    async def idle(self, run: Run) -> frozenset[str]:
        """Return the nodes that are free and have no job."""
        return read_idle(await self._read(run, "nodes", "pbsnodes", "-a", *self._json))

    async def plans(self, run: Run, name: str) -> Mapping[str, float]:
        """Return for which nodes PBS has estimated a start of other jobs, and when."""
        ids = (await run(Command(argv=("qselect", "-s", "Q")))).split()[:_FEW]
        jobs = await self._read(run, "Jobs", "qstat", "-f", *self._json, *ids) if ids else {}
        return read_plans(jobs, name)

    async def _read(self, run: Run, kind: str, *argv: str) -> dict[str, Attributes]:
        """Run a command and parse its output, without jobs that have gone meanwhile."""
        try:
            said = await run(Command(argv=argv))
        except CommandFailed as error:
            knows_none = self._json and re.search(r"usage|invalid option|illegal option", error.said)
            if self.trouble(error) is not Trouble.GONE and not knows_none:
                raise
            said = "{no JSON" if knows_none else error.printed
        try:
            return read(said, kind)
        except ValueError as error:
            if not self._json:
                raise CommandFailed(argv, 0, "what it printed cannot be read") from error
        self._json = ()  # a version that writes no JSON, or a faulty one
        return await self._read(run, kind, *(word for word in argv if word not in {"-F", "json"}))


def read_pilots(jobs: Mapping[str, Attributes]) -> Iterator[Pilot]:
    """Parse pilots from jobs."""
    for id_, job in jobs.items():
        start_s = moment(job.get("stime")) or 0.0
        length_s = length(job.get("Resource_List.walltime"))
        state = STATES.get(str(job.get("job_state")), PilotState.ENDING)
        end_s = start_s + length_s if start_s and length_s else None
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


def read_idle(nodes: Mapping[str, Attributes]) -> frozenset[str]:
    """Return the nodes that are free and have no job."""
    return frozenset(name for name, node in nodes.items() if node.get("state") == "free" and not node.get("jobs"))


def read_plans(jobs: Mapping[str, Attributes], name: str) -> dict[str, float]:
    """Return the earliest time from which each node is planned for other jobs."""
    plans: dict[str, float] = {}
    for job in jobs.values():
        start_s = moment(job.get("estimated.start_time"))
        if start_s is None or job.get("Job_Name") == name:
            continue
        for node in vnodes(str(job.get("estimated.exec_vnode", ""))):
            plans[node] = min(start_s, plans.get(node, start_s))
    return plans


Attributes = Mapping[str, Any]

_HEAD: Final = re.compile(r"Job Id: (\S+)|Queue: (\S+)|(\S+)")
_CLOCK: Final = re.compile(r"(?:(\d+):)?(\d+):(\d+)")
_MONTHS: Final = "JanFebMarAprMayJunJulAugSepOctNovDec"
_TIME: Final = re.compile(r"\w{3} (\w{3}) +(\d+) (\d+):(\d+):(\d+) (\d{4})")


# -- what commands print: JSON where the version has it, else lines of `name = value`


def read(said: str, kind: str) -> dict[str, Attributes]:
    """Parse jobs (``kind`` Jobs), queues (Queue) or nodes (nodes): attributes by name.

    Nested attributes are named as in lines, such as ``Resource_List.walltime``. Raise ``ValueError`` if it cannot be
    parsed: some versions print variables of jobs as invalid JSON.
    """
    if not said.lstrip().startswith("{"):
        return dict(_lines(said))
    found = msgspec.json.decode(said, type=dict[str, Any]).get(kind, {})
    return {name: dict(_flat(given)) for name, given in msgspec.convert(found, dict[str, dict[str, Any]]).items()}


def _flat(given: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in given.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def _lines(said: str) -> Iterator[tuple[str, Attributes]]:
    name, attributes, last = "", dict[str, Any](), ""
    for line in said.splitlines():
        if line.startswith("\t"):  # the value goes on
            attributes[last] = attributes.get(last, "") + line[1:]
        elif line[:1].isspace():
            last, _, value = line.strip().partition(" = ")
            attributes[last] = value
        elif line and (head := _HEAD.match(line)):
            if name:
                yield name, attributes
            name, attributes, last = next(filter(None, head.groups())), {}, ""
    if name:
        yield name, attributes


def variable(job: Attributes, name: str) -> str:
    """Return a variable of a job's environment."""
    if f"Variable_List.{name}" in job:
        return str(job[f"Variable_List.{name}"])
    found = re.search(rf"(?:^|,){re.escape(name)}=([^,]*)", str(job.get("Variable_List", "")))
    return found[1] if found else ""


def host(job: Attributes) -> str:
    """Return the host of a job on one node: ``node7`` of ``node7/0*4``, without a domain."""
    return str(job.get("exec_host", "")).partition("/")[0].partition(".")[0]


def vnodes(text: str) -> tuple[str, ...]:
    """Return the names in ``(node7:ncpus=4)+(node8:ncpus=4)``."""
    return tuple(dict.fromkeys(part.strip("()").partition(":")[0] for part in text.split("+") if part.strip("()")))


def moment(text: object) -> float | None:
    """Parse a time such as ``Sat Nov 21 10:10:12 2026``, which is local, or seconds since 1970."""
    if isinstance(text, int | float) or str(text).isdecimal():
        return float(str(text))
    found = _TIME.match(str(text))
    if found is None or found[1] not in _MONTHS:
        return None
    month = _MONTHS.index(found[1]) // 3 + 1
    day, hour, minute, second, year = map(int, found.groups()[1:])
    try:
        return datetime(year, month, day, hour, minute, second).astimezone().timestamp()
    except ValueError:
        return None


def length(text: object) -> float | None:
    """Parse a duration such as ``24:00:00`` into seconds."""
    if str(text).isdecimal():
        return float(str(text))
    found = _CLOCK.fullmatch(str(text))
    if found is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return 3600.0 * hours + 60 * minutes + seconds


def limit(text: object, user: str) -> float:
    """Return the limit for a user from a list such as ``[u:PBS_GENERIC=10], [u:jane=20], [o:PBS_ALL=100]``."""
    rules = dict(re.findall(r"([ougp]:[^=\]\s]+)=(\d+)", str(text or "")))
    own = rules.get(f"u:{user}", rules.get("u:PBS_GENERIC"))
    return min((float(number) for number in (own, rules.get("o:PBS_ALL")) if number), default=float("inf"))


# -- as an operator: agents wait on every node, and nodes that PBS calls free are ours while no job is on them


class PbsNodesSettings(WatchSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings for queries of nodes to PBS; ``json`` is for versions that support it."""

    json: bool = True


def make_nodes(table: Mapping[str, object], _site: Site) -> Scheduler:
    """Build the scheduler from the settings of a site."""
    settings = scheduler_settings(table, PbsNodesSettings)
    command = Command(argv=("pbsnodes", "-a", "-F", "json") if settings.json else ("pbsnodes", "-a"))

    async def ask(run: Run) -> frozenset[str]:
        return read_idle(read(await run(command), "nodes"))

    run = CommandRunner(timeout_s=settings.command_timeout_s)
    return NodeWatch("pbs-nodes", ask, settings, run, lambda: found_all(("pbsnodes",), REMEDY))
