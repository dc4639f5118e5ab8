"""What every batch scheduler has in common when pilots are its jobs: a few commands, what they print, and its states.

A *pilot* is a job of ours on one whole node, in a partition or queue whose jobs are taken away whenever others want the
node. All it does is run an agent. The part that submits, lists and cancels such jobs under one scheduler is a
:class:`Batch`; the rest is the same for all and stands in :mod:`bftrain.live.schedulers.pilot_manager`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import ClassVar, Final, Protocol

import msgspec

from bftrain.errors import BadValue, NotAvailable
from bftrain.live.schedulers.port import AgentOrder, Site
from bftrain.ports import Availability

LATER: Final = float("inf")


class PilotState(StrEnum):
    """What a pilot is doing. Each scheduler has a table from its own words to these."""

    WAITING = "waiting"  # in the queue
    RUNNING = "running"  # holds its node
    STOPPED = "stopped"  # suspended: its agent is frozen, its node works for another job
    ENDING = "ending"  # its processes are being ended
    TAKEN = "taken"  # over: preempted, cancelled, out of time
    LEFT = "left"  # over: its agent ended by itself, with exit code 0
    FAILED = "failed"  # over: it could not be started, or ended with another code


ALIVE: Final = frozenset({PilotState.WAITING, PilotState.RUNNING, PilotState.STOPPED, PilotState.ENDING})


class Pilot(msgspec.Struct, frozen=True, kw_only=True):
    """One pilot as its scheduler lists it. ``id`` is what it is cancelled by, ``number`` what hooks call it."""

    id: str
    state: PilotState
    node: str = ""
    mark: str = ""  # of the order it was submitted with
    start_s: float = 0.0  # since 1970; of a waiting one, when it will probably start
    end_s: float | None = None  # when it ended, or when its time will be over
    number: str = ""
    why: str = ""  # it waits


class PilotOrder(msgspec.Struct, frozen=True, kw_only=True):
    """What a pilot is submitted with. ``mark`` changes with everything else: who waits with another one is stale."""

    name: str
    mark: str
    script: str
    seconds: float  # how long it may hold a node
    rank: int = 0  # 0 for the longest; those of a higher rank are to start after those of a lower one
    avoid: tuple[str, ...] = ()  # nodes it must not get


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A program to run, without a shell; ``stdin`` is what it reads."""

    argv: tuple[str, ...]
    stdin: str = ""


class Trouble(StrEnum):
    """What follows from a command that failed."""

    AWAY = "away"  # no answer: try again soon, the world may have changed meanwhile
    LIMIT = "limit"  # no more jobs than now are allowed
    REFUSED = "refused"  # so it will never work: people have to change something
    GONE = "gone"  # there is no such job any more


class CommandFailed(NotAvailable):
    """A scheduler's command ended with an error, could not be run or took too long."""

    exit_code: ClassVar[int] = 4

    def __init__(self, argv: Sequence[str], code: int, said: str, printed: str = "") -> None:
        super().__init__(said.strip() or f"exit code {code}", where=argv[0])
        self.argv = tuple(argv)
        self.code = code
        self.said = said
        self.printed = printed  # to stdout: a part of what was asked for, perhaps

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.argv, self.code, self.said, self.printed))


Run = Callable[[Command], Awaitable[str]]
"""Runs a command and gives what it printed, or raises :class:`CommandFailed`."""


class PilotLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What the site allows us; ``remarks`` are for people."""

    running: float = LATER  # pilots at once
    submitted: float = LATER  # pilots that run or wait
    longest_s: float = LATER  # for which a pilot may hold a node
    nodes: frozenset[str] = frozenset()  # all that there are, as far as known
    remarks: tuple[str, ...] = ()


class PilotBackend(Protocol):
    """How one batch scheduler submits, lists and cancels pilots. Everything else is done for it."""

    name: str
    avoids: bool
    """Whether pilots can be kept off some nodes."""

    def available(self) -> Availability:
        """Say whether its commands are here, without talking to it."""
        ...

    def script(self, order: AgentOrder, site: Site) -> str:
        """Write the job: what runs on the node."""
        ...

    async def limits(self, run: Run) -> PilotLimits:
        """Ask what the site allows; NotAvailable if pilots would stand in the way of others' jobs."""
        ...

    async def submit(self, run: Run, order: PilotOrder, count: int) -> int:
        """Submit pilots; gives how many, which may be fewer."""
        ...

    async def pilots(self, run: Run, name: str) -> Sequence[Pilot]:
        """List our jobs of this name, those that ended lately too if the scheduler remembers them."""
        ...

    async def cancel(self, run: Run, ids: Collection[str]) -> None:
        """Cancel pilots; those that are gone already are no error."""
        ...

    async def idle(self, run: Run) -> frozenset[str]:
        """Return the idle nodes that pilots could get."""
        ...

    async def plans(self, run: Run, name: str) -> Mapping[str, float]:
        """Say when nodes are planned for jobs that wait and are not of this name: seconds since 1970 by node."""
        ...

    def trouble(self, failed: CommandFailed) -> Trouble:
        """Say what follows from a failed command."""
        ...


def check_site(site: Site) -> None:
    """Hold a site's name to what every scheduler takes in the name of a job."""
    if not site.name.isascii() or not site.name.replace("-", "").replace("_", "").isalnum():
        raise BadValue(
            f"must be letters, digits, '-' and '_', not {site.name!r}", where="Site.name", fix="such as 'physics'"
        )


def job_name(site: Site) -> str:
    """Give the name of all pilots of a site, by which people and we recognise them."""
    return f"bftrain-{site.name}"


def log_folder(site: Site) -> Path:
    """Give the folder of the pilots' logs, one a node."""
    return site.folder / "pilots"
