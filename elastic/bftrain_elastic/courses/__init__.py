"""Courses: one task's life under one launcher, without I/O. A course is told what happened and says what to do.

All calls happen in the hub's thread, and none may block.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bftrain_elastic.jobs import Job
from bftrain_elastic.messages import Message, inner_of, text_of, whole_of
from bftrain_elastic.words import checked


@dataclass(frozen=True, slots=True)
class Left:
    """A worker that went on without its manager, as the agent on its node knows it."""

    worker: str
    slot: int
    step: int  # the last one it spoke of; -1: of none
    generation: int  # of the group that it was told to form last; 0: of none
    rank: int  # there
    workers: int  # there
    ready: Message | None  # what it said when it left that group, or was born
    done: bool  # it said so

    @classmethod
    def read(cls, plain: Message) -> Left:
        """Read what an agent says of a worker."""
        go = inner_of(plain, "go") if plain.get("go") else {}
        return cls(
            worker=text_of(plain, "worker"),
            slot=whole_of(plain, "slot"),
            step=whole_of(plain, "step"),
            generation=whole_of(go, "generation") if go else 0,
            rank=whole_of(go, "rank") if go else 0,
            workers=whole_of(go, "workers") if go else 0,
            ready=checked(inner_of(plain, "ready")) if plain.get("ready") else None,
            done=plain.get("done") is True,
        )


class Floor(Protocol):
    """What a course may ask for."""

    def now(self) -> float:
        """Seconds on a clock that does not run backwards."""
        ...

    def slots(self, node: str) -> int:
        """How many workers a node takes; 0 where no agent is registered."""
        ...

    def address(self, node: str) -> str:
        """Where other nodes reach this one."""
        ...

    def name(self, node: str, slot: int) -> str:
        """Give a name for a new worker, which no other has or had."""
        ...

    def spawn(
        self,
        node: str,
        worker: str,
        *,
        argv: Sequence[str],
        env: Mapping[str, str],
        slot: int = 0,
        warm: bool = True,
        want_port: bool = False,
        all_gpus: bool = False,
    ) -> None:
        """Start ``worker`` on ``node`` as soon as no other task is left there.

        A warm one is a script, run by a fork of a process that has imported torch; the other is any command.
        With ``want_port`` a free port of the node is chosen, told to the course, and put into MASTER_PORT.
        It sees the GPU of its slot, or with ``all_gpus`` all that are its agent's.
        """
        ...

    def say(self, worker: str, message: Message) -> None:
        """Send a worker a message."""
        ...

    def stop(self, worker: str, *, grace_s: float) -> None:
        """Send SIGTERM, and SIGKILL ``grace_s`` later; 0: SIGKILL at once."""
        ...

    def tell(self, told: Message) -> None:
        """Tell the manager; task and time are added."""
        ...


class Course(Protocol):
    """What a launcher does with one task."""

    def want(self, nodes: tuple[str, ...], *, at_once: frozenset[str]) -> None:
        """Hold these nodes, oldest first; leave those ``at_once`` now, and others when it costs nothing."""
        ...

    def node_up(self, node: str) -> None:
        """Know that an agent registered."""
        ...

    def node_gone(self, node: str) -> None:
        """Know that an agent left; the ends of its workers were told before."""
        ...

    def adopt(self, node: str, left: Left) -> bool:
        """Take over a worker that was started for a manager that is no more; if not, it is killed.

        It was told nothing yet, and it is asked before ``node_up``.
        """
        ...

    def spawned(self, worker: str, port: int) -> None:
        """Know that a worker was started, and which port was found if one was wanted."""
        ...

    def said(self, worker: str, message: Message) -> None:
        """Hear what a worker says."""
        ...

    def exited(self, worker: str, code: int, tail: str) -> None:
        """Know that a worker ended: its exit code (negative: the signal that killed it) and its last words."""
        ...

    def tick(self, now: float) -> None:
        """Look at the clock, ten times a second."""
        ...


MakeCourse = Callable[[str, Job, Floor], Course]
