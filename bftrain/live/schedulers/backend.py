"""The interface to batch schedulers with pilot jobs: a few commands, parsers of their output, and job states.

A *pilot* is a bftrain job on one whole node, or on one GPU, in a partition or queue with preemption. It only runs an
agent, and the scheduler preempts it for any other job. A :class:`PilotBackend` submits, lists and cancels such jobs
under one scheduler; the common part is in :mod:`bftrain.live.schedulers.pilots`.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from asyncio.subprocess import Process, SubprocessStreamProtocol
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from bftrain.errors import NotAvailable
from bftrain.live.schedulers.base import PLACES, AgentOrder, Site
from bftrain.node_units import NODE
from bftrain.ports import Availability

LATER: Final = float("inf")


class PilotState(StrEnum):
    """The state of a pilot. Each scheduler has a table from its own states to these."""

    WAITING = "waiting"  # waits in the queue
    RUNNING = "running"
    STOPPED = "stopped"  # suspended: its agent is frozen, its node works for another job
    ENDING = "ending"  # its processes are terminating
    TAKEN = "taken"  # finished: preempted, cancelled, timed out
    LEFT = "left"  # finished: the agent exited with code 0
    FAILED = "failed"  # finished: failed to start, or exited with a non-zero code


ALIVE: Final = frozenset({PilotState.WAITING, PilotState.RUNNING, PilotState.STOPPED, PilotState.ENDING})


class Pilot(msgspec.Struct, frozen=True, kw_only=True):
    """One pilot as its scheduler lists it. ``id`` is used to cancel it, ``number`` is its number in hooks' reports."""

    id: str
    state: PilotState
    node: str = ""
    mark: str = ""  # its order's mark
    start_s: float = 0.0  # seconds since 1970; for a waiting pilot, the expected start
    end_s: float | None = None  # end time, or time limit
    number: str = ""
    why: str = ""  # reason for waiting


class PilotOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a pilot. ``mark`` contains their digest: a waiting pilot with another mark is stale."""

    name: str
    mark: str
    script: str
    seconds: float  # time limit on a node
    rank: int = 0  # 0 for the longest pilots; higher ranks should start later
    avoid: tuple[str, ...] = ()  # nodes to exclude


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command line that runs without a shell; ``stdin`` is its input."""

    argv: tuple[str, ...]
    stdin: str = ""


class Trouble(StrEnum):
    """The consequence of a failed command."""

    AWAY = "away"  # no response: retry soon, the state may have changed meanwhile
    LIMIT = "limit"  # the limit on jobs is reached
    REFUSED = "refused"  # permanent error: an operator must change the settings
    GONE = "gone"  # the job no longer exists


class CommandFailed(NotAvailable):
    """A scheduler command failed, could not start or timed out."""

    exit_code: ClassVar[int] = 4

    def __init__(self, argv: Sequence[str], code: int, error_text: str, printed: str = "") -> None:
        super().__init__(error_text.strip() or f"exit code {code}", where=argv[0])
        self.argv = tuple(argv)
        self.code = code
        self.error_text = error_text
        self.printed = printed  # stdout, possibly incomplete

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.argv, self.code, self.error_text, self.printed))


Run = Callable[[Command], Awaitable[str]]
"""Runs a command and returns its output, or raises :class:`CommandFailed`."""


class PilotLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of the site; ``remarks`` are for people, ``problems`` are reasons why pilots can never work."""

    running: float = LATER  # limit on running pilots
    submitted: float = LATER  # pilots that run or wait
    longest_s: float = LATER  # longest time limit of a pilot
    nodes: frozenset[str] = frozenset()  # all that there are, as far as known
    cluster: str = ""  # the scheduler's cluster name, if known
    remarks: tuple[str, ...] = ()
    problems: tuple[NotAvailable, ...] = ()


PILOT_LOGS: Final = "pilots"  # the folder of their logs


def log_folder(site: Site) -> Path:
    """Return the folder of the pilots' logs, one for each node."""
    return site.folder / PILOT_LOGS


_NOT_RUN: Final = 127
_TOO_SLOW: Final = 124
_BUFFERED: Final = 1 << 16  # output bytes before a command blocks
_ERROR_CHARACTERS: Final = 500  # longest kept part of an error message
# Options in the environment would change what commands print and do; we may run in a job; and BFTRAIN_ is ours
_OPTIONS: Final = (
    "SLURM_",
    "SBATCH_",
    "SQUEUE_",
    "SINFO_",
    "SCANCEL_",
    "SCONTROL_",
    "SACCTMGR_",
    "PBS_",
    "QSUB_",
    "BFTRAIN_",
)
_KEPT: Final = frozenset({"SLURM_CONF", "PBS_CONF_FILE", "PBS_DEFAULT", "PBS_SERVER", "PBS_EXEC"})


_MINUTE_S: Final = 60.0
_MOST_WORDS: Final = 500  # jobs on one command line


class CommandRunner:
    """Runs commands with a timeout of ``timeout_s`` each. ``more`` extends their environment."""

    def __init__(self, *, timeout_s: float = 20.0, more: Mapping[str, str] | None = None) -> None:
        self._timeout_s = timeout_s
        self._env = {**environment(os.environ), **(more or {})}
        self._begun: deque[float] = deque()  # start times of commands in the last minute

    @property
    def in_last_minute(self) -> int:
        """The number of commands in the last minute: each costs the scheduler a request."""
        while self._begun and self._begun[0] < time.monotonic() - _MINUTE_S:
            self._begun.popleft()
        return len(self._begun)

    async def __call__(self, command: Command) -> str:
        """Run a command and return its output; raise CommandFailed on failure or timeout."""
        argv, loop = command.argv, asyncio.get_running_loop()
        self._begun.append(time.monotonic())
        try:
            # The same as ``create_subprocess_exec``, which hides its transport
            transport, protocol = await loop.subprocess_exec(
                lambda: SubprocessStreamProtocol(limit=_BUFFERED, loop=loop),
                *argv,
                stdin=subprocess.PIPE if command.stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=self._env,
                umask=0o077,  # jobs inherit it
                start_new_session=True,
            )
        except OSError as error:
            raise CommandFailed(argv, _NOT_RUN, f"cannot be run: {error.strerror}") from error
        process = Process(transport, protocol, loop)
        try:
            async with asyncio.timeout(self._timeout_s):
                out, err = await process.communicate(command.stdin.encode() or None)
        except TimeoutError as error:
            raise CommandFailed(argv, _TOO_SLOW, f"did not answer within {self._timeout_s:g} s") from error
        finally:
            await _clean_up(transport, process)
        code = process.returncode
        if code:
            error_text = (err or out).decode(errors="replace").strip()
            raise CommandFailed(argv, code, error_text[-_ERROR_CHARACTERS:], out.decode(errors="replace"))
        return out.decode(errors="replace")


async def _clean_up(transport: asyncio.SubprocessTransport, process: Process) -> None:
    """Kill a command that still runs, and close its pipes."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    # Descendants in other sessions may keep the pipes open for long, and the wait includes the pipes
    for number in range(3):
        pipe = transport.get_pipe_transport(number)
        if isinstance(pipe, asyncio.WriteTransport) and pipe.get_write_buffer_size():
            pipe.abort()  # a regular close would wait for pending writes
        elif pipe is not None:
            pipe.close()
    await process.wait()


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for commands and jobs, without variables of a surrounding job and options for commands."""
    return {name: value for name, value in given.items() if name in _KEPT or not name.startswith(_OPTIONS)}


def found_all(programs: Sequence[str], remedy: str) -> Availability:
    """Return whether all ``programs`` are on PATH, without running any."""
    missing = [program for program in programs if shutil.which(program) is None]
    if not missing:
        return Availability(ok=True)
    return Availability(ok=False, reason=f"no command {', '.join(missing)} here", fix=remedy)


_NODE_WORDS: Final = {"node": '"$node"', "host": '"$node"'}
_SCRIPT: Final = """\
#!/bin/sh
# A pilot of bftrain: it holds one idle node until the scheduler wants it back.
umask 077
{find_node}
case $node in ''|*/*) exit 64 ;; esac
exec >>{folder}/"$node".log 2>&1 </dev/null
{check}exec {start}{command}
"""


def pilot_script(
    order: AgentOrder,
    site: Site,
    find_node: str,
    start: str = "",
    *,
    words: Mapping[str, str] = _NODE_WORDS,
    check: str = "",
) -> str:
    """Return the job script; ``find_node`` is a line of sh that sets ``$node`` to the name of its node and its log.

    ``start`` is a scheduler command that starts the agent, if the job itself must not start it. ``words`` are sh
    expressions for the agent's registered name and its host; ``check`` are lines that exit a job that cannot work.
    """
    # Words are quoted for sh, with those names in place of ``{node}`` and ``{host}``
    pieces = (
        "".join(words[part] if place % 2 else part and shlex.quote(part) for place, part in enumerate(split))
        for split in map(PLACES.split, order.argv)
    )
    command = " ".join(piece or "''" for piece in pieces)
    folder = shlex.quote(str(log_folder(site)))
    begin = start and f"{start} "
    return _SCRIPT.format(find_node=find_node, folder=folder, check=check, start=begin, command=command)


class PilotBackend(ABC):
    """The commands by which one batch scheduler submits, lists and cancels pilots.

    A subclass sets the class variables and implements the abstract methods; all other members have defaults.
    """

    name: str
    programs: ClassVar[tuple[str, ...]] = ()
    remedy: ClassVar[str] = ""  # fix for missing programs
    cancels: ClassVar[tuple[str, ...]] = ()  # the command that cancels the jobs that follow
    troubles: ClassVar[Sequence[tuple[str, Trouble]]] = ()  # pattern in the output -> consequence; first match
    variables: ClassVar[Mapping[str, str]] = {}  # environment of the commands
    together: bool = False  # whether one command submits any number of pilots
    avoids: bool = False  # whether pilots can be kept off some nodes
    # Commands of a poll, of a query of plans and drained nodes, and of a query of limits
    commands: ClassVar[tuple[int, int, int]] = (1, 0, 1)
    unit: str = NODE
    partitions: tuple[str, ...] = ()  # partitions that cannot preempt pilots

    @property
    def gpus(self) -> float:
        """GPUs that a pilot requests; 0 if unknown."""
        return 0.0

    def available(self) -> Availability:
        """Return whether its commands are installed, without calling the scheduler."""
        return found_all(self.programs, self.remedy)

    @abstractmethod
    def script(self, order: AgentOrder, site: Site) -> str:
        """Return the job script."""

    @abstractmethod
    async def limits(self, run: Run) -> PilotLimits:
        """Query the site's limits; raise NotAvailable, or return problems, if pilots would delay others' jobs."""

    @abstractmethod
    async def pilots(self, run: Run, name: str) -> Sequence[Pilot]:
        """List our jobs with this name, including recently finished jobs if the scheduler remembers them."""

    @abstractmethod
    async def idle(self, run: Run) -> frozenset[str]:
        """Return the idle nodes that pilots could get."""

    def submission(self, order: PilotOrder) -> Command:
        """Build the command that submits one pilot."""
        raise NotImplementedError

    async def submit(self, run: Run, order: PilotOrder, count: int) -> int:
        """Submit pilots; return the submitted number, which may be smaller."""
        await run(self.submission(order))
        return min(count, 1)

    async def cancel(self, run: Run, ids: Collection[str]) -> None:
        """Cancel pilots; unknown ids are ignored."""
        words = tuple(ids)
        for begin in range(0, len(words), _MOST_WORDS):
            try:
                await run(Command(argv=(*self.cancels, *words[begin : begin + _MOST_WORDS])))
            except CommandFailed as error:
                if self.trouble(error) is not Trouble.GONE:
                    raise

    async def plans(self, run: Run, name: str) -> Mapping[str, float]:  # noqa: ARG002 - of subclasses that can tell
        """Return when nodes are planned for waiting jobs of other names: seconds since 1970 by node."""
        return {}

    async def draining(self, run: Run, nodes: Sequence[str]) -> Mapping[str, str]:  # noqa: ARG002 - as above
        """Return the subset of ``nodes`` that administrators drain or reboot, with the reason."""
        return {}

    async def waiting_jobs(self, run: Run) -> Sequence[int]:  # noqa: ARG002 - as above
        """Return the size of each pending job, if the scheduler does not preempt pilots for pending jobs."""
        return ()

    async def refused(self, run: Run, order: PilotOrder) -> str:  # noqa: ARG002 - as above
        """Return why the scheduler can never accept such a pilot; "" if it may."""
        return ""

    def trouble(self, failed: CommandFailed) -> Trouble:
        """Return the consequence of a failed command."""
        return next((kind for words, kind in self.troubles if re.search(words, failed.error_text)), Trouble.AWAY)


def unknown_queue(product: str, queue: str, see: str) -> NotAvailable:
    """Return the error for a queue that does not exist; ``see`` is the command that lists queues."""
    return NotAvailable(f"{product} has no such queue", where=f"queue '{queue}'", fix=f"see {see}")


def queue_remarks(queue: str, *, starts: bool, takes: bool) -> list[str]:
    """Return remarks on a queue that starts or accepts no jobs now."""
    remarks = {f"queue '{queue}' starts no jobs now": starts, f"queue '{queue}' takes no jobs now": takes}
    return [text for text, good in remarks.items() if not good]


_TIME_LIMIT: Final = re.compile(r"(?:(?:(?:(\d+)-)?(\d+):)?(\d+):)?(\d+)", re.ASCII)


def length_s(text: object) -> float:
    """Parse a time limit such as ``1-12:00:00``, ``90:00`` or ``90`` (s); infinite for 0 and other text: UNLIMITED."""
    if (found := _TIME_LIMIT.fullmatch(str(text))) is None:
        return LATER
    days, hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return 86_400.0 * days + 3600.0 * hours + 60.0 * minutes + seconds or LATER


def earliest(plans: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Return the earliest time planned for each node."""
    found: dict[str, float] = {}
    for node, at_s in plans:
        found[node] = min(at_s, found.get(node, at_s))
    return found
