"""PBS Professional and OpenPBS, as an ordinary user: pilots in a queue whose jobs are preempted.

Built of command builders, parsers and a table of states, like Slurm's. A site lets jobs of that queue be deleted, or
put back into the queue, when others want their nodes (preempt_order D or R); suspended ones would stay in the way.
"""

from __future__ import annotations

import getpass
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from bftrain.config import from_mapping
from bftrain.errors import NotAvailable
from bftrain.live.schedulers import pbs_read
from bftrain.live.schedulers.command_runner import CommandRunner, in_pieces
from bftrain.live.schedulers.executables import found_all
from bftrain.live.schedulers.pbs_read import Attributes, read
from bftrain.live.schedulers.pilot_backend import (
    Command,
    CommandFailed,
    Pilot,
    PilotLimits,
    PilotOrder,
    PilotState,
    Run,
    Trouble,
)
from bftrain.live.schedulers.pilot_manager import PilotJobs, PilotSettings
from bftrain.live.schedulers.pilot_script import pilot_script
from bftrain.live.schedulers.port import AgentOrder, Scheduler, Site
from bftrain.ports import Availability
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
SIGNALLED: Final = frozenset({"143", "137", "271", "265"})  # exit codes of who was killed by SIGTERM or SIGKILL

TROUBLES: Final[tuple[tuple[str, Trouble], ...]] = (
    (r"Unknown Job Id|Job has finished|[Ii]nvalid for (the )?state", Trouble.GONE),
    (r"would exceed|limit of jobs|Maximum number of jobs", Trouble.LIMIT),
    (r"[Cc]onnect|timed? out|did not answer|End of File|No route", Trouble.AWAY),
    (r"[Uu]nknown|[Uu]nauthori[sz]ed|rejected|[Ii]llegal|[Ii]nvalid|exceeds|denied|cannot be run", Trouble.REFUSED),
)
_HIGH: Final = 150  # PBS lets jobs of queues with such a priority preempt others
_FEW: Final = 200  # jobs whose estimated start is asked for


class PbsSettings(PilotSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What pilots are in PBS."""

    queue: str
    select: str = "1:ncpus=1"  # together with place=exclhost: one whole host
    account: str = ""
    options: tuple[str, ...] = ()  # more words for qsub

    def __post_init__(self) -> None:
        """Check every field."""
        super().__post_init__()
        checks.text(self, "queue")
        checks.text(self, "select")
        checks.texts(self, "options")


def make(table: Mapping[str, object], site: Site) -> Scheduler:
    """Make the scheduler out of the settings of a site."""
    settings = from_mapping(table, PbsSettings, where="scheduler")
    return PilotJobs(Pbs(settings), settings, site, CommandRunner(timeout_s=settings.command_timeout_s))


class Pbs:
    """PBS's commands, and what they print."""

    name = "pbs"
    avoids = False  # a job can ask for nodes, but not for all except some

    def __init__(self, settings: PbsSettings) -> None:
        self._settings = settings
        self._history: tuple[str, ...] = ("-x",)  # whether the server remembers jobs that are over
        self._json: tuple[str, ...] = ("-F", "json")

    def available(self) -> Availability:
        """Say whether PBS's commands are here."""
        return found_all(PROGRAMS, REMEDY)

    def script(self, order: AgentOrder, site: Site) -> str:
        """Write the job: the node has the name of its host."""
        return pilot_script(order, site, 'read -r node <"$PBS_NODEFILE"; node=${node%%.*}')

    async def limits(self, run: Run) -> PilotLimits:
        """Ask what the queue allows. Whether its jobs are preempted, and how, PBS tells operators only."""
        name = self._settings.queue
        try:
            found = await self._read(run, "Queue", "qstat", "-Q", "-f", *self._json, name)
        except CommandFailed as error:
            if self.trouble(error) is not Trouble.REFUSED:
                raise
            raise NotAvailable("PBS has no such queue", where=f"queue '{name}'", fix="see qstat -Q") from error
        queue = next(iter(found.values()), {})
        remarks = [
            text
            for text, holds in (
                (f"queue '{name}' starts no jobs now", str(queue.get("started", "True")) != "True"),
                (f"queue '{name}' takes no jobs now", str(queue.get("enabled", "True")) != "True"),
                (f"jobs of queue '{name}' preempt others'", int(queue.get("Priority") or 0) >= _HIGH),
            )
            if holds
        ]
        user = getpass.getuser()
        longest = pbs_read.length(queue.get("resources_max.walltime"))
        return PilotLimits(
            running=pbs_read.limit(queue.get("max_run"), user),
            submitted=pbs_read.limit(queue.get("max_queued"), user),
            longest_s=float("inf") if longest is None else longest,
            remarks=tuple(remarks),
        )

    async def submit(self, run: Run, order: PilotOrder, count: int) -> int:
        """Submit one pilot."""
        await run(self.qsub(order))
        return min(count, 1)

    def qsub(self, order: PilotOrder) -> Command:
        """Build the command that submits a pilot; the script comes by stdin."""
        known = self._settings
        words = ["qsub", "-N", order.name, "-q", known.queue, "-S", "/bin/sh", "-j", "oe", "-o", "/dev/null"]
        words += ["-r", "y", "-W", "umask=077", "-v", f"{MARK}={order.mark}", "-p", str(max(-1024, -100 * order.rank))]
        words += ["-l", f"select={known.select}", "-l", "place=exclhost", "-l", f"walltime={int(order.seconds)}"]
        words += ["-A", known.account] if known.account else []
        return Command(argv=(*words, *known.options), stdin=order.script)

    async def pilots(self, run: Run, name: str) -> Sequence[Pilot]:
        """List our jobs, those that ended lately too if the server remembers them."""
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

    async def cancel(self, run: Run, ids: Collection[str]) -> None:
        """Delete jobs."""
        for piece in in_pieces(tuple(ids)):
            try:
                await run(Command(argv=("qdel", *piece)))
            except CommandFailed as error:
                if self.trouble(error) is not Trouble.GONE:
                    raise

    async def idle(self, run: Run) -> frozenset[str]:
        """Name the nodes that are free and have no job."""
        return read_idle(await self._read(run, "nodes", "pbsnodes", "-a", *self._json))

    async def plans(self, run: Run, name: str) -> Mapping[str, float]:
        """Say for which nodes PBS has estimated a start of others' jobs, and when."""
        ids = (await run(Command(argv=("qselect", "-s", "Q")))).split()[:_FEW]
        jobs = await self._read(run, "Jobs", "qstat", "-f", *self._json, *ids) if ids else {}
        return read_plans(jobs, name)

    def trouble(self, failed: CommandFailed) -> Trouble:
        """Say what follows from what a command said."""
        return next((kind for words, kind in TROUBLES if re.search(words, failed.said)), Trouble.AWAY)

    async def _read(self, run: Run, kind: str, *argv: str) -> dict[str, Attributes]:
        """Run a command and read what it prints; jobs that have gone meanwhile are left out."""
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
        self._json = ()  # a version that knows no JSON, or not well enough
        return await self._read(run, kind, *(word for word in argv if word not in {"-F", "json"}))


def read_pilots(jobs: Mapping[str, Attributes]) -> Iterator[Pilot]:
    """Read jobs."""
    for id_, job in jobs.items():
        start_s = pbs_read.moment(job.get("stime")) or 0.0
        length_s = pbs_read.length(job.get("Resource_List.walltime"))
        state = STATES.get(str(job.get("job_state")), PilotState.ENDING)
        end_s = start_s + length_s if start_s and length_s else None
        if state is PilotState.LEFT:
            state = SUBSTATES.get(str(job.get("substate")), state)
            state = PilotState.TAKEN if str(job.get("Exit_status")) in SIGNALLED else state
            end_s = pbs_read.moment(job.get("mtime"))
        held = state is not PilotState.WAITING
        yield Pilot(
            id=id_,
            state=state,
            node=pbs_read.host(job) if held else "",
            mark=pbs_read.variable(job, MARK),
            start_s=start_s if held else 0.0,
            end_s=end_s if held else None,
            why=str(job.get("comment", "")),
        )


def read_idle(nodes: Mapping[str, Attributes]) -> frozenset[str]:
    """Read names of nodes that are free and have no job."""
    return frozenset(name for name, node in nodes.items() if node.get("state") == "free" and not node.get("jobs"))


def read_plans(jobs: Mapping[str, Attributes], name: str) -> dict[str, float]:
    """Read when nodes are planned for others: the earliest time of each."""
    plans: dict[str, float] = {}
    for job in jobs.values():
        start_s = pbs_read.moment(job.get("estimated.start_time"))
        if start_s is None or job.get("Job_Name") == name:
            continue
        for node in pbs_read.vnodes(str(job.get("estimated.exec_vnode", ""))):
            plans[node] = min(start_s, plans.get(node, start_s))
    return plans
