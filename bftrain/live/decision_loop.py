"""DecisionLoop: takes events in, has departures handed back at once, and has the rest decided while the loop goes on.

What must not wait (departures, what ended, what its owner stops) is taken in at any time. What can wait (nodes that
join, new tasks, measurements) waits while a solver thinks, so its answer is still worth something. An answer to a
question that was outdated meanwhile is thrown away and solved again; if that happens too often the fallback
answers instead. Every decision so follows from all events before it in the journal, and comes out again from there.

Orders that a departure demands go out before anything is written: should we die in between, the outside tells us
again. What is decided is written down before it is ordered: no task is started that is not remembered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Final, Protocol

from msgspec.structs import replace

from bftrain.config import Settings
from bftrain.deciding.decision_request import DecisionRequest
from bftrain.deciding.harvester import Harvester
from bftrain.deciding.solve_with_fallback import ChosenSizes
from bftrain.errors import BftrainError, Fault
from bftrain.journal import Journal, Statement
from bftrain.values.actions import Action
from bftrain.values.decision import Decision
from bftrain.values.events import Event, NodesJoined, TaskMeasured, TaskResumed, TaskSubmitted

_CAN_WAIT: Final = (NodesJoined, TaskSubmitted, TaskResumed, TaskMeasured)
_OUTDATED: Final = 3  # answers in a row, before the fallback is asked instead
_OVERTIME_S: Final = 10.0  # beyond its deadline, before a solver is given up as hanging
_KEEP_EVERY: Final = 1000  # steps
HURRY: Final = "events came faster than it answered"
HANGS: Final = "it did not come back"


class DecisionListener(Protocol):
    """Receives the steps of the decision loop, in the event loop."""

    def order(self, actions: Sequence[Action]) -> None:
        """Have actions carried out; returns at once."""
        ...

    def due(self) -> Sequence[Statement]:
        """Give what is to be written together with the next events or decision."""
        ...

    def asking(self, time_s: float) -> Sequence[Event]:
        """Give what the decision core should know before it decides."""
        ...

    def absorbed(self, events: Sequence[Event]) -> None:
        """Know that events were taken in, and what they demanded was ordered; what is due now is written with them."""
        ...

    def written(self, events: Sequence[Event]) -> None:
        """Know that events are written down: they will not happen again."""
        ...

    def decided(self, decision: Decision) -> None:
        """Know what was decided, written down and ordered."""
        ...

    def remark(self, text: str) -> None:
        """Know of something odd."""
        ...

    def broke(self, error: BaseException) -> None:
        """Know that it cannot go on: the journal cannot be written, for instance."""
        ...


class DecisionLoop:
    """Drives one Harvester with its journal, in an event loop. ``clock`` gives seconds since 1970."""

    def __init__(
        self,
        harvester: Harvester,
        journal: Journal,
        settings: Settings,
        watcher: DecisionListener,
        *,
        clock: Callable[[], float],
        settle_s: float = 0.0,
    ) -> None:
        self._harvester = harvester
        self._journal = journal
        self._settings = settings
        self._watcher = watcher
        self._clock = clock
        self._settle_s = settle_s
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Event] = []  # while a solver thinks
        self._question: DecisionRequest | None = None
        self._thinker: _Thinker | None = None
        self._overtime: asyncio.TimerHandle | None = None
        self._next: asyncio.Handle | None = None
        self._outdated = 0
        self._hurry = ""
        self._held_back = True
        self._ended = False
        self._kept_at = len(journal)

    # -- what happens

    @property
    def now(self) -> float:
        """The time on the clock of the events, which never runs backwards."""
        return max(self._harvester.time_s, self._clock())

    @property
    def pool(self) -> frozenset[str]:
        """The nodes in use, those included that wait to be taken in."""
        joining = {node for event in self._waiting if isinstance(event, NodesJoined) for node in event.nodes}
        return self._harvester.pool | joining

    @property
    def idle(self) -> bool:
        """Whether everything that happened so far was decided."""
        return self._question is None and self._next is None and not self._waiting

    def happened(self, *events: Event, sync: bool = False) -> None:
        """Take events in: at once, or when the solver has answered if they can wait.

        With ``sync`` what is due is safe against a power cut when this returns, whether they wait or not.
        """
        self._waiting.extend(events)
        if self._question is None or not all(isinstance(event, _CAN_WAIT) for event in events):
            self._absorb(sync=sync)
        elif sync:
            self._guarded(lambda: self._journal.change(*self._watcher.due()))

    def decide(self) -> None:
        """See that a decision is made: after a restart, and when decisions were held back until now."""
        self._held_back = False
        self._soon()

    def hold_back(self) -> None:
        """Decide nothing until :meth:`decide` is called; departures are handed back all the same."""
        self._held_back = True

    def close(self) -> None:
        """Do nothing any more."""
        self._ended = True
        for handle in (self._next, self._overtime):
            if handle is not None:
                handle.cancel()
        self._dismiss()

    # -- taking in

    def _absorb(self, *, sync: bool = False, then_decide: bool = True) -> None:
        if not self._waiting or self._ended:
            return
        now = self.now
        events = tuple(replace(event, time_s=now) for event in self._waiting)
        self._waiting.clear()
        actions = self._harvester.absorb(*events)
        if not self._ordered(actions) or not self._carried(lambda: self._watcher.absorbed(events)):
            return
        if self._guarded(lambda: self._journal.append_events(events, self._watcher.due(), sync=sync)):
            self._watcher.written(events)
            if then_decide:
                self._soon()

    def _ordered(self, actions: Sequence[Action]) -> bool:
        return not actions or self._carried(lambda: self._watcher.order(actions))

    def _carried(self, carry_out: Callable[[], None]) -> bool:
        """Have something carried out, and give up if it goes wrong: what is written would not be what is known."""
        try:
            carry_out()
        except Exception as error:  # noqa: BLE001 - a launcher of others may do anything
            self.close()
            self._watcher.broke(error if isinstance(error, BftrainError) else _fault(error))
            return False
        return True

    def _guarded(self, write: Callable[[], None]) -> bool:
        """Write, and give up if that cannot be done: the next start finds out what happened."""
        try:
            write()
        except BftrainError as error:
            self.close()
            self._watcher.broke(error)
            return False
        return True

    # -- deciding

    def _soon(self) -> None:
        """Ask once all is taken in that is waiting in the loop now."""
        if self._next is None and self._question is None and not self._held_back and not self._ended:
            if self._settle_s > 0:
                self._next = self._loop.call_later(self._settle_s, self._ask)
            else:
                self._next = self._loop.call_soon(self._ask)

    def _ask(self) -> None:
        self._next = None
        if self._held_back:
            return
        self._waiting.extend(self._watcher.asking(self.now))
        self._absorb(then_decide=False)
        if self._ended:
            return
        question = self._question = self._harvester.ask(self.now)
        self._overtime = self._loop.call_later(self._settings.solver_deadline_s + _OVERTIME_S, self._give_up)
        hurry, self._hurry = self._hurry, ""
        if self._thinker is None:
            self._thinker = _Thinker()
        self._thinker.do(lambda: self._think(question, hurry))

    def _think(self, question: DecisionRequest, hurry: str) -> None:
        """Look for an answer, in the solver's thread: there is one at a time, unless one hangs."""
        answer: ChosenSizes | Exception
        try:
            answer = self._harvester.answer(question, hurry=hurry)
        except Exception as error:  # noqa: BLE001 - a metric or a solver of others may do anything; the loop says it
            answer = error
        with suppress(RuntimeError):  # the loop is closed: no one waits any more
            self._loop.call_soon_threadsafe(self._answered, question, answer)

    def _answered(self, question: DecisionRequest, answer: ChosenSizes | Exception) -> None:
        if question is not self._question or self._ended:
            return  # it was given up
        self._question = None
        if self._overtime is not None:
            self._overtime.cancel()
        if isinstance(answer, Exception):
            self._watcher.remark(f"no decision: {type(answer).__name__}: {answer}")
            self._absorb()  # and sizes stay as they are until something happens
            return
        if self._harvester.outdated(question):
            self._outdated += 1
            self._hurry = HURRY if self._outdated >= _OUTDATED else ""
            self._soon()
            return
        self._outdated = 0
        self._settle(question, answer)

    def _settle(self, question: DecisionRequest, choice: ChosenSizes) -> None:
        try:
            decision = self._harvester.settle(question, choice)
        except BftrainError as error:  # a placement of others that breaks may leave anything behind
            self.close()
            self._watcher.broke(error)
            return
        if not self._guarded(lambda: self._journal.append_decision(decision, self._watcher.due(), sync=False)):
            return
        if not self._ordered(decision.actions):
            return
        self._watcher.decided(decision)
        self._keep()
        self._absorb()

    def _keep(self) -> None:
        if len(self._journal) - self._kept_at >= _KEEP_EVERY:
            self._kept_at = len(self._journal)
            self._guarded(lambda: self._journal.keep(self._settings, self._harvester.standing))

    def _give_up(self) -> None:
        """Leave a solver that does not come back to itself; the fallback answers."""
        self._watcher.remark(f"solver '{self._settings.solver}' hangs; the fallback decides")
        self._question, self._hurry = None, HANGS
        self._dismiss()
        self._absorb()
        self._soon()

    def _dismiss(self) -> None:
        if self._thinker is not None:
            self._thinker.end()
            self._thinker = None


class _Thinker:
    """A thread in which solvers think. It stays: to start one for each question would take longer than most answers."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        Thread(target=self._run, name="bftrain-solver", daemon=True).start()

    def do(self, job: Callable[[], None]) -> None:
        """Have something done when all before is."""
        self._jobs.put(job)

    def end(self) -> None:
        """Let the thread end, once it comes back from what it does."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _fault(error: Exception) -> Fault:
    return Fault(f"orders could not be given: {type(error).__name__}: {error}")
