"""LSF: for ordinary users, with pilot jobs in a queue whose jobs LSF preempts.

Command builders, parsers and a table of states, written from the documentation of LSF 10.1. They were tried with
commands made up from that documentation, and not on a real LSF.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from bftrain.live.schedulers.lsf_queues import ask_limits, ask_parameters, default_priority, list_hosts, read_idle
from bftrain.live.schedulers.lsf_times import length_s, moment, read_reservations
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
    pilot_script,
)
from bftrain.live.schedulers.pilot_manager import PilotJobs
from bftrain.live.schedulers.pool_settings import scheduler_settings
from bftrain.live.schedulers.port import AgentOrder, Scheduler, Site
from bftrain.live.schedulers.queue_pilots import QueueBackend, QueueSettings
from bftrain.values import checks

ONCE: Final = {"LSB_NTRIES": "1"}  # else commands try again for ever while LSF is away or takes no more jobs

STATES: Final[Mapping[str, PilotState]] = {
    "PEND": PilotState.WAITING,
    "PSUSP": PilotState.WAITING,  # held
    "WAIT": PilotState.WAITING,
    "PROV": PilotState.WAITING,  # its host is being booted
    "RUN": PilotState.RUNNING,
    "USUSP": PilotState.STOPPED,
    "SSUSP": PilotState.STOPPED,
    "DONE": PilotState.LEFT,
    "EXIT": PilotState.FAILED,  # unless LSF ended it
}  # UNKWN and ZOMBI, of hosts that do not answer, are neither used nor replaced
_ENDED_BY_LSF: Final = re.compile(
    r"TERM_(PREEMPT|\w*OWNER|\w*ADMIN|RUNLIMIT|DEADLINE|WINDOW|LOAD|BUCKET_KILL|EXTERNAL_SIGNAL|ZOMBI\w*)\b"
)
_SIGNALLED: Final = frozenset({"130", "143", "137"})  # exit codes of jobs that SIGINT, SIGTERM or SIGKILL ended

TROUBLES: Final[tuple[tuple[str, Trouble], ...]] = (
    (r"[Nn]o matching job|already finished|is not found|[Nn]o \w*\s?job found", Trouble.GONE),
    (r"threshold|limit|[Tt]oo many", Trouble.LIMIT),  # of jobs; or of their length, and shorter ones may be accepted
    (r"is down|not respond|[Cc]annot connect|Please wait|did not answer|timed? out|RPC", Trouble.AWAY),
    (
        r"[Nn]o such|[Bb]ad |cannot use|closed|denied|not permitted|[Nn]ot submitted|cannot be run|llegal",
        Trouble.REFUSED,
    ),
)
_COLUMNS: Final = "jobid stat exec_host start_time run_time runtimelimit exit_code exit_reason job_description"


class LsfSettings(QueueSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of pilots in LSF."""

    slots: int = 0  # of one host that a pilot asks for; 0: the whole host (bsub -x)
    project: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.integer(self, "slots", at_least=0)
        if self.project:
            checks.text(self, "project")


def make(table: Mapping[str, object], site: Site) -> Scheduler:
    """Build the scheduler from the settings of a site."""
    settings = scheduler_settings(table, LsfSettings)
    return PilotJobs(Lsf(settings), settings, site, CommandRunner(timeout_s=settings.command_timeout_s, more=ONCE))


class Lsf(QueueBackend):
    """LSF's commands and parsers of their output."""

    name = "lsf"
    programs = ("bsub", "bjobs", "bkill", "bqueues", "bparams", "bhosts")
    remedy = "run this where LSF's commands are installed"
    cancels = "bkill"
    troubles = TROUBLES
    avoids = True

    def __init__(self, settings: LsfSettings) -> None:
        self._settings = settings
        self._priority = 0  # of the longest pilots; 0: jobs have none
        self._hosts: tuple[str, ...] = ()  # of the queue; none: all

    def script(self, order: AgentOrder, site: Site) -> str:
        """Return the job script; the node has the name that LSF gives its host."""
        return pilot_script(order, site, "node=${LSB_HOSTS%% *}")

    async def limits(self, run: Run) -> PilotLimits:
        """Query the limits of pilots; raise NotAvailable if pilots would not be preempted."""
        parameters = await ask_parameters(run)
        limits, queue = await ask_limits(run, self._settings.queue, self._settings.slots, parameters)
        self._priority, self._hosts = default_priority(parameters), queue.hosts
        return limits

    def submission(self, order: PilotOrder) -> Command:
        """Build the command that submits a pilot; the script is passed by stdin."""
        known = self._settings
        words = ["bsub", "-J", order.name, "-Jd", order.mark, "-q", known.queue, "-o", "/dev/null"]
        words += ["-n", str(known.slots), "-R", "span[hosts=1]"] if known.slots else ["-n", "1", "-x"]
        words += ["-W", str(math.ceil(order.seconds / 60))]
        words += ["-sp", str(max(1, self._priority - order.rank))] if self._priority else []
        words += ["-P", known.project] if known.project else []
        others = " && ".join(f"hname!='{node}'" for node in order.avoid)
        words += ["-R", f"select[{others}]"] if others else []
        return Command(argv=(*words, *known.options), stdin=order.script)

    async def pilots(self, run: Run, name: str) -> Sequence[Pilot]:
        """List our jobs, including those that ended lately."""
        command = Command(argv=("bjobs", "-a", "-J", name, "-o", _COLUMNS, "-json"))
        try:
            said = await run(command)
        except CommandFailed as error:
            if self.trouble(error) is not Trouble.GONE:
                raise
            return []  # it says so when there are none
        try:
            return list(read_pilots(said, time.time()))
        except msgspec.DecodeError as error:  # not to be taken for no pilots at all
            raise CommandFailed(command.argv, 0, f"printed what cannot be read: {error}") from error

    async def idle(self, run: Run) -> frozenset[str]:
        """Return the idle hosts of the queue."""
        return read_idle(await run(list_hosts(self._hosts)))

    async def plans(self, run: Run, _name: str) -> Mapping[str, float]:
        """Return when advance reservations of nodes begin."""
        return read_reservations(await run(Command(argv=("brsvs", "-w"))), time.time())


class JobRecord(msgspec.Struct, frozen=True, rename="upper"):
    """A job as ``bjobs -json`` prints it; all values are texts."""

    jobid: str = ""
    stat: str = ""
    exec_host: str = ""
    start_time: str = ""
    run_time: str = ""
    runtimelimit: str = ""
    exit_code: str = ""
    exit_reason: str = ""
    job_description: str = ""
    error: str = ""  # in place of all others


class JobRecords(msgspec.Struct, frozen=True, rename="upper"):
    """The output of ``bjobs -json``."""

    records: list[JobRecord]


def read_pilots(said: str, now_s: float) -> Iterator[Pilot]:
    """Parse pilots; raise ``msgspec.DecodeError`` if the output has another form."""
    for job in msgspec.json.decode(said[max(0, said.find("{")) :], type=JobRecords).records:
        if job.error:  # a job that is gone
            continue
        state = STATES.get(job.stat, PilotState.ENDING)
        if state is PilotState.FAILED and (_ENDED_BY_LSF.search(job.exit_reason) or job.exit_code in _SIGNALLED):
            state = PilotState.TAKEN
        ran_s, most_s = length_s(job.run_time, 1), length_s(job.runtimelimit, 60)
        # Times without a year and seconds are all that LSF prints of a start, and run_time counts seconds
        start_s = now_s - ran_s if state is PilotState.RUNNING else moment(job.start_time, now_s)
        over = state in {PilotState.LEFT, PilotState.FAILED, PilotState.TAKEN}
        lasts_s = ran_s if over else most_s
        held = state is not PilotState.WAITING
        yield Pilot(
            id=job.jobid,
            state=state,
            node=host(job.exec_host) if held else "",
            mark=job.job_description,
            start_s=start_s if held else 0.0,
            end_s=start_s + lasts_s if held and start_s and lasts_s else None,
        )


def host(text: str) -> str:
    """Return the host of a job on one host: ``n1`` of ``4*n1`` and of ``n1:n1``."""
    return text.partition(":")[0].rpartition("*")[2].strip("-")
