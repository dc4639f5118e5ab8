"""Failures: decides which worker exits count against their program.

A death may be a failure or a preemption: a scheduler signals every process of a node at the same time, and workers may
exit before their agent reports anything. So each death is judged after ``settle_s`` seconds. If a node of its group
leaves meanwhile, the death counts as a preemption and is ignored.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from bftrain_elastic.errors import OWN_ERROR
from bftrain_elastic.wire.agent_messages import WorkerExit

ALLOWED: Final = 3  # number of failures of the program, with no step between them, that fails the task
ALLOWED_FROM_OUTSIDE: Final = 10  # the same for workers killed from outside
_LETTERS: Final = 200
_OWN_ERROR_CHARACTERS: Final = 2000  # limit for errors of this package, which finish with a fix
_SHELL: Final = 128  # offset that shells add to a signal number
_FROM_OUTSIDE: Final = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGHUP, signal.SIGINT})
# Words of errors about lost connections or members; with any other error, the program itself failed
_CONNECTION: Final = (
    "connection",
    "timed out",
    "timeout",
    "broken pipe",
    "refused",
    "unreachable",
    "socket",
    "peer",
    "remote process",
    "store",
    "shut down",
    "shutdown",
    "aborted",
)


@dataclass(frozen=True, slots=True)
class WorkerDeath:
    """An unexpected exit of a worker, or of a whole group."""

    text: str  # worker and kind of exit
    nodes: frozenset[str]  # nodes of its group, including its own
    exit: WorkerExit
    began_s: float  # start time of the worker, or of its group
    started: bool = True  # its start-up had finished
    fatal: bool = False  # a retry would have the same result
    noted: bool = False  # another note has reported it

    @property
    def from_outside(self) -> bool:
        """Whether an external signal killed it, such as SIGKILL or SIGTERM."""
        code = self.exit.code
        number = -code if code < 0 else code - _SHELL
        return number in _FROM_OUTSIDE


@dataclass(slots=True)
class _Pending:
    death: WorkerDeath
    at_s: float
    step: int  # step of the task at that time
    counts: bool  # not a consequence of another death


@dataclass(eq=False)
class FailurePolicy:
    """Counts the deaths of one task. A completed step resets the count."""

    _settle_s: float
    _pending: list[_Pending] = field(default_factory=list)
    _left: dict[str, float] = field(default_factory=dict)  # node -> time when it left or announced that; oldest first
    _last_s: float = -math.inf  # time of the latest death
    _last_counted_s: float = -math.inf  # time of the latest death that was not a consequence of another one
    _step: int = -1
    _own: int = 0
    _outside: int = 0
    _lost: list[tuple[float, str]] = field(default_factory=list)  # time and reason of each lost connection
    start_up_s: float = 0.0  # learned start-up time of the program

    def started(self, took_s: float) -> None:
        """Record the program's start-up time in seconds."""
        self.start_up_s = max(took_s, self.start_up_s / 2)

    def died(self, death: WorkerDeath, now: float, step: int) -> None:
        """Record a death, to be judged later."""
        if self.left_lately(death.nodes, now):
            return
        counts = death.began_s >= self._last_counted_s
        self._last_s, self._last_counted_s = now, now if counts else self._last_counted_s
        self._pending.append(_Pending(death, now, step, counts=counts))

    def lost(self, text: str, now: float) -> None:
        """Record a member's lost connection; it is reported if no death or leaving node explains it."""
        self._lost.append((now, text))

    def left_lately(self, nodes: Iterable[str], now: float) -> bool:
        """Return whether any of these nodes left less than ``settle_s`` seconds ago."""
        return any(now - self._left.get(node, -math.inf) <= self._settle_s for node in nodes)

    def left_since(self, nodes: Iterable[str], at_s: float) -> bool:
        """Return whether any of these nodes left since then, as far as remembered."""
        return any(self._left.get(node, -math.inf) >= at_s for node in nodes)

    def node_leaves(self, node: str, now: float) -> None:
        """Record that a node leaves: workers that died on it, or with it, were preempted."""
        self._left.pop(node, None)
        self._left[node] = now
        while now - self._left[oldest := next(iter(self._left))] > self._settle_s:  # thousands may leave together
            del self._left[oldest]
        if self._pending:
            self._pending = [one for one in self._pending if node not in one.death.nodes]

    def reset(self) -> None:
        """Forget all deaths: the task gets another try."""
        self._pending = []
        self._step, self._own, self._outside = -1, 0, 0

    @property
    def undecided(self) -> bool:
        """Whether unjudged failures of the program could fail the task, so that a retry should wait."""
        waiting = sum(one.counts and not one.death.from_outside for one in self._pending)
        return bool(waiting) and (self._own + waiting >= ALLOWED or any(one.death.fatal for one in self._pending))

    def judge(self, now: float, note: Callable[[str], None]) -> str:
        """Judge the deaths that are old enough to rule out a preemption; return why the task has failed if it has."""
        wait_s = max(self._settle_s, 1.0)
        while self._lost and now - self._lost[0][0] > wait_s:
            at_s, text = self._lost.pop(0)
            if at_s - max(self._last_s, *self._left.values(), -math.inf) > wait_s:
                note(text)
        due = [one for one in self._pending if now - one.at_s > self._settle_s]
        self._pending = [one for one in self._pending if one not in due]
        for one in due:
            if one.counts and (reason := self._count(one.death, one.step)):
                # A consequence may contain the reason, even if its report arrived first
                wave = [other.death for other in (*due, *self._pending) if other is one or not other.counts]
                return _with_last_words(reason, one.death, wave)
            if not one.death.noted:
                note(f"{one.death.text}{last_word(one.death.exit.tail)}; it is started again")
        return ""

    def _count(self, death: WorkerDeath, step: int) -> str:
        """Count a death; return its description if it is fatal or the limit is reached."""
        if death.fatal:
            return death.text
        if step > self._step:
            self._step, self._own, self._outside = step, 0, 0
        if not death.from_outside:
            self._own += 1
            return death.text if self._own >= ALLOWED else ""
        if not death.started:
            return ""  # a program that was killed while it loads has not failed
        self._outside += 1
        return f"{death.text}, like earlier ones" if self._outside >= ALLOWED_FROM_OUTSIDE else ""


def exit_text(worker: str, code: int) -> str:
    """Return a description of a worker's exit."""
    signals = {int(one): one.name for one in signal.Signals}
    return (
        f"{worker} ended with {code}"
        if code >= 0
        else f"{worker} was killed by {signals.get(-code, f'signal {-code}')}"
    )


def last_word(tail: str) -> str:
    """Return the last line of a worker's output, formatted to follow the description of its exit."""
    last = tail.strip().rpartition("\n")[2].strip()
    return f" ({last[: _OWN_ERROR_CHARACTERS if last.startswith(OWN_ERROR) else _LETTERS]})" if last else ""


def is_connection_trouble(reason: str) -> bool:
    """Return whether an error means a lost connection or member, rather than a mistake of the program."""
    text = reason.lower()
    # Gloo's preamble error: ranks called different operations, which is a mistake of the program
    return any(word in text for word in _CONNECTION) and "preamble" not in text


def _with_last_words(reason: str, death: WorkerDeath, wave: list[WorkerDeath]) -> str:
    """Append the output of the original death: the first one that reports no lost connection."""
    deaths = [death, *(other for other in wave if other is not death)]
    tails = [one.exit.tail.strip() for one in deaths if one.exit.tail.strip()]
    own = [text for text in tails if not is_connection_trouble(text.rpartition("\n")[2])]
    return f"{reason}\n{next(iter(own or tails), '')}".strip()
