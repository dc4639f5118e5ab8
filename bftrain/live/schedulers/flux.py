"""Flux: pilot jobs that yield voluntarily, because Flux does not preempt jobs.

Each round lists the pending jobs in Flux and cancels enough pilots for their nodes. Other jobs therefore wait for a
pilot's node for up to one polling interval plus the cancellation. Tested with flux-core 0.88.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

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
    pilot_script,
    queue_remarks,
    unknown_queue,
)
from bftrain.live.schedulers.base import AgentOrder, Positive, Scheduler, Site, Word, scheduler_settings
from bftrain.live.schedulers.pilots import PilotJobs, PilotSettings
from bftrain.nodesets import expand
from bftrain.values import checks

STATES: Final[Mapping[str, PilotState]] = {
    "DEPEND": PilotState.WAITING,
    "PRIORITY": PilotState.WAITING,
    "SCHED": PilotState.WAITING,
    "RUN": PilotState.RUNNING,
    "CLEANUP": PilotState.ENDING,
}
RESULTS: Final[Mapping[str, PilotState]] = {
    "COMPLETED": PilotState.LEFT,
    "CANCELED": PilotState.TAKEN,
    "TIMEOUT": PilotState.TAKEN,
    "FAILED": PilotState.FAILED,
}
_SIGNALLED: Final = frozenset({143, 137})  # exit codes after SIGTERM or SIGKILL
TROUBLES: Final[tuple[tuple[str, Trouble], ...]] = (
    (r"job is inactive|unknown job id", Trouble.GONE),
    (r"exceeds policy limit|limit", Trouble.LIMIT),  # time limit: shorter pilots may be accepted
    (r"[Uu]nable to connect|onnection|did not answer|timed? out|not responding", Trouble.AWAY),
    (r"not a valid|[Ii]nvalid|disabled|denied|not permitted|unsatisfiable|unrecognized|cannot be run", Trouble.REFUSED),
)
_PILOT_PREFIX: Final = "bftrain-"  # jobs of such names are pilots of some site
_LOWEST: Final = 1  # urgency of the shortest pilots; a job that names none has 16
_LATELY: Final = "--since=-600s"
# The default queue has a star; without queues, the name is empty
_QUEUES: Final = "{queuem}|{enabled.ascii}|{started.ascii}|{limits.timelimit}"
_LIST_QUEUES: Final = Command(argv=("flux", "queue", "list", "--no-header", f"--format={_QUEUES}"))


class FluxSettings(PilotSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of pilots in Flux; "" is its default queue."""

    queue: Word = ""
    poll_s: Positive = 2.0  # other jobs wait so long for the nodes of pilots

    def __post_init__(self) -> None:
        # The pilots of another queue would not be listed
        if any(word.startswith(("-q", "--queue")) for word in self.options):
            checks.reject(self, "options", "must not name a queue", "use queue")


def make(table: Mapping[str, object], site: Site) -> Scheduler:
    """Build the scheduler from the settings of a site."""
    settings = scheduler_settings(table, FluxSettings)
    return PilotJobs(Flux(settings), settings, site)


class FluxJob(msgspec.Struct, frozen=True):
    """A job as ``flux jobs --json`` prints it; unknown values are missing there."""

    id: int
    state: str
    name: str = ""
    result: str = ""
    returncode: int = 0
    nodelist: str = ""
    t_run: float = 0.0
    t_inactive: float = 0.0
    expiration: float = 0.0
    priority: int = 0
    nnodes: int = 0
    ncores: int = 0
    ntasks: int = 0


class FluxJobs(msgspec.Struct, frozen=True):
    """The output of ``flux jobs --json``."""

    jobs: list[FluxJob]


class Flux(PilotBackend):
    """Flux's commands and parsers of their output."""

    name = "flux"
    programs = ("flux",)
    remedy = "run this where Flux is installed, and FLUX_URI names the instance if it is not the system's"
    cancels = ("flux", "cancel")
    troubles = TROUBLES
    avoids = True
    commands = (2, 0, 2)

    def __init__(self, settings: FluxSettings) -> None:
        self._settings = settings
        self._cores = 1.0  # cores per node

    def script(self, order: AgentOrder, site: Site) -> str:
        """Return the job script; the node name comes from Flux."""
        return pilot_script(order, site, "node=$(flux getattr hostname)")

    async def limits(self, run: Run) -> PilotLimits:
        """Query the queue and the nodes of the instance; raise NotAvailable if there is no such queue."""
        name = self._settings.queue
        rows = [line.split("|") for line in (await run(_LIST_QUEUES)).splitlines()]
        queues = {queue.removesuffix("*"): (queue, *cells) for queue, *cells in rows}
        found = queues.get(name) if name else next((row for row in queues.values() if row[0][-1:] in {"", "*"}), None)
        if found is None and name:
            raise unknown_queue("Flux", name, "flux queue list")
        if found is None:
            raise NotAvailable("Flux has no default queue", where="queue", fix="name one, see flux queue list")
        queue, enabled, started, longest = found
        remarks = queue_remarks(queue.removesuffix("*"), starts=started == "y", takes=enabled == "y")
        remarks.append(
            f"Flux preempts no jobs: pilots are cancelled when other jobs wait, checked every "
            f"{self._settings.poll_s:g} s"
        )
        nodelist, nodes, cores = (await run(list_nodes("all", "{nodelist} {nnodes} {ncores}"))).split()
        self._cores = max(1.0, int(cores) / max(1, int(nodes)))
        longest_s = float(longest)
        return PilotLimits(
            longest_s=longest_s if longest_s < math.inf else LATER,
            nodes=frozenset(expand(nodelist)),
            remarks=tuple(remarks),
        )

    def submission(self, order: PilotOrder) -> Command:
        """Build the command that submits a pilot; the name of the job is its mark."""
        known = self._settings
        words = ["flux", "submit", "-N1", "-n1", "--exclusive", f"--job-name={order.mark}", "--output=/dev/null"]
        words += [f"--time-limit={math.ceil(order.seconds)}s", f"--urgency={max(_LOWEST, 3 - order.rank)}"]
        words += [f"--queue={known.queue}"] if known.queue else []
        words += [f"--requires=-host:{','.join(order.avoid)}"] if order.avoid else []
        return Command(argv=(*words, *known.options, "sh", "-c", order.script))

    async def pilots(self, run: Run, name: str) -> Sequence[Pilot]:
        """List our jobs, including recently finished jobs."""
        return list(read_pilots(await _jobs(run, "-a", _LATELY, "--count=0"), name))

    async def idle(self, run: Run) -> frozenset[str]:
        """Return the nodes that are up and have no job."""
        return read_idle(await run(list_nodes("free,allocated", "{state} {nodelist}")))

    async def waiting_jobs(self, run: Run) -> Sequence[int]:
        """Return the size of each pending job of other users, the next job first."""
        return read_sizes(await _jobs(run, "-A", "--filter=sched"), self._cores)


async def _jobs(run: Run, *words: str) -> list[FluxJob]:
    command = Command(argv=("flux", "jobs", *words, "--json"))
    output = await run(command)
    try:
        return msgspec.json.decode(output, type=FluxJobs).jobs
    except msgspec.DecodeError as error:  # an error must not look like an empty list
        raise CommandFailed(command.argv, 0, f"printed what cannot be read: {error}") from error


def list_nodes(states: str, form: str) -> Command:
    """Build the command that lists nodes of some states."""
    return Command(argv=("flux", "resource", "list", f"--states={states}", "--no-header", f"--format={form}"))


def read_pilots(jobs: Sequence[FluxJob], name: str) -> Iterator[Pilot]:
    """Yield the pilots of a site; their jobs have its name and a digest."""
    for job in jobs:
        if not job.name.startswith(f"{name}."):
            continue
        over = job.state == "INACTIVE"
        state = RESULTS.get(job.result, PilotState.FAILED) if over else STATES.get(job.state, PilotState.ENDING)
        if state is PilotState.FAILED and job.returncode in _SIGNALLED:
            state = PilotState.TAKEN
        yield Pilot(
            id=str(job.id),
            state=state,
            node=job.nodelist,
            mark=job.name,
            start_s=job.t_run,
            end_s=(job.t_inactive if over else job.expiration) or None,
        )


def read_idle(output: str) -> frozenset[str]:
    """Parse a line of free and a line of allocated nodes; a partly allocated node is in both."""
    rows = {
        state: expand(nodes) if nodes else () for state, _, nodes in (one.partition(" ") for one in output.splitlines())
    }
    return frozenset(rows.get("free", ())) - frozenset(rows.get("allocated", ()))


def read_sizes(jobs: Sequence[FluxJob], cores: float) -> list[int]:
    """Return the sizes of pending jobs other than pilots, by descending priority; jobs on hold are left out."""
    waiting = [job for job in jobs if job.priority > 0 and not job.name.startswith(_PILOT_PREFIX)]
    ranked = sorted(waiting, key=lambda job: (-job.priority, job.id))
    return [job.nnodes or math.ceil(max(job.ncores, job.ntasks, 1) / cores) for job in ranked]
