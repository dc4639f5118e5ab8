"""DecisionLoop: applies events, returns nodes immediately, and decides in a solver thread.

Urgent events (departures, finished and failed tasks, owners' requests to stop) are applied at any time. All other
events (joining nodes, new and resumed tasks, measurements) wait while a solver runs, which keeps its answer valid. An
answer to an outdated problem is dropped and solved again; after several attempts, the fallback answers. Each decision
therefore follows from all earlier events in the journal, and a re-run of the journal reproduces it.

Departure orders are sent before they are written: after a crash, scheduler and agents report the departures again. A
decision is written before it is ordered, so the journal knows every running task.

No decisions are made while the journal cannot be written, for example on a full disk. Events are still applied and
their orders sent; writing them is retried in sequence.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

from bftrain.config import LiveSettings
from bftrain.deciding.harvester import DecisionRequest, Harvester
from bftrain.deciding.solve_with_fallback import ChosenSizes
from bftrain.errors import BftrainError, Fault
from bftrain.journal import Journal, JournalStalled
from bftrain.live import timeouts
from bftrain.live.daemon.node_manager import NodeManager
from bftrain.live.daemon.task_manager import LauncherPool, TaskManager
from bftrain.live.daemon.task_store import TaskStore
from bftrain.live.model.schemas import LastDecision
from bftrain.values.actions import Action, Grow, Shrink, Start, Stop
from bftrain.values.decision import Decision
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskMeasured, TaskResumed, TaskSubmitted
from bftrain.values.wire import unchecked

_log = logging.getLogger(__name__)
_CAN_WAIT: Final = (NodesJoined, TaskSubmitted, TaskResumed, TaskMeasured)
_OUTDATED: Final = 3  # consecutive outdated answers before the fallback solver is used
HURRY: Final = "events arrived faster than it answered"
HANGS: Final = "it did not return"


@dataclass(eq=False, repr=False)
class DecisionLoop:
    """Drives one Harvester with its journal, in an event loop; orders go to ``launchers``.

    ``observe`` receives ("events", applied events) and ("decision", a decision whose orders were sent).
    """

    _harvester: Harvester
    _journal: Journal
    _settings: LiveSettings
    _store: TaskStore
    _tasks: TaskManager
    _nodes: NodeManager
    _launchers: LauncherPool
    _observe: Callable[[str, Any], None]
    _settle_s: float = 0.0  # delay of decisions, to join events that follow one another

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.broken: asyncio.Future[BaseException] = self._loop.create_future()  # the fatal error
        self.last_decision: LastDecision | None = None
        self._waiting: list[Event] = []  # events that arrive while a solver works
        self._request: DecisionRequest | None = None
        # Jobs of the solver thread, until None arrives. Starting a thread would take longer than most solutions
        self._solver_queue: SimpleQueue[Callable[[], None] | None] | None = None
        self._overtime: asyncio.TimerHandle | None = None
        self._next: asyncio.Handle | None = None
        self._outdated = 0
        self._round = 0  # number of the latest decided round, counted from 1970
        self._hurry_reason = ""
        self._held_back = True
        self._ended = False
        self._unwritten: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()  # writes and their callbacks
        self.stalled: JournalStalled | None = None  # why the journal cannot be written now
        self._again: asyncio.TimerHandle | None = None
        # Step of the last snapshot, also of an earlier run: otherwise short runs would never store one
        self._kept_at = self._journal.stood_at

    @property
    def now(self) -> float:
        """The time on the clock of the events, which never runs backwards."""
        return self._tasks.now

    @property
    def pool(self) -> frozenset[str]:
        """The available nodes, including those of events that are not applied yet."""
        joining = {node for event in self._waiting if isinstance(event, NodesJoined) for node in event.nodes}
        return self._harvester.pool | joining if joining else self._harvester.pool

    def on_events(self, *events: Event, sync: bool = False) -> None:
        """Apply events: immediately if urgent, otherwise after the solver's answer.

        With ``sync``, the events and the store's pending changes are on disk when this returns.
        """
        self._waiting.extend(events)
        if self._request is None or not all(isinstance(event, _CAN_WAIT) for event in events):
            self._absorb(sync=sync)
        elif sync:
            self.write()

    def write(self, *, sync: bool = True) -> bool:
        """Write the due statements of the store; return whether they are written."""
        due = self._store.due()
        return not due or self.perform(lambda: self._journal.change(*due, sync=sync))

    def decide(self) -> None:
        """Request a decision: after a restart, or after :meth:`hold_back`."""
        self._held_back = False
        self._soon()

    def hold_back(self) -> None:
        """Make no decision until :meth:`decide` is called; leaving nodes are still handed back."""
        self._held_back = True

    def break_off(self, error: BaseException) -> None:
        """Stop with an error; the next start recovers."""
        self.close()
        if not self.broken.done():
            self.broken.set_result(error)

    def close(self) -> None:
        """Stop."""
        self._ended = True
        for handle in (self._next, self._overtime, self._again):
            if handle is not None:
                handle.cancel()
        self._dismiss()

    def _absorb(self, *, sync: bool = False, then_decide: bool = True) -> None:
        if not self._waiting or self._ended:
            return
        now = self.now
        events = tuple(unchecked(event, time_s=now) for event in self._waiting)  # only checked when they were made
        self._waiting.clear()
        actions = self._harvester.absorb(*events)
        if not self._ordered(actions) or not self._guarded(lambda: self._absorbed(events)):
            return
        due = self._store.due()
        written = self.perform(lambda: self._journal.append_events(events, due, sync=sync), self._tasks.written)
        if written and then_decide:
            self._soon()

    def _absorbed(self, events: Sequence[Event]) -> None:
        """Update tasks and nodes after the orders of events are sent."""
        gone = {node for event in events if isinstance(event, NodesLeft) for node in event.nodes}
        self._tasks.hold(events[-1].time_s, gone=self._nodes.preempted(gone))
        for event in events:
            self._tasks.on_event(event)
            if isinstance(event, NodesLeft):
                self._nodes.left(event)
            elif isinstance(event, NodesJoined):
                self._nodes.joined(event)
        self._observe("events", events)

    def _ordered(self, actions: Sequence[Action]) -> bool:
        """Send orders to the launchers; return whether the loop continues."""
        return not actions or self._guarded(lambda: self._launchers.carry_out(actions, vacating=self._nodes.vacating))

    def _guarded(self, step: Callable[[], None]) -> bool:
        """Run a step; return whether the loop continues.

        After a failure, journal and memory may differ, so the loop stops and the next start recovers.
        """
        try:
            step()
        except Exception as error:  # noqa: BLE001 - a third-party launcher may raise anything
            fault = Fault(f"orders could not be given: {type(error).__name__}: {error}")
            self.break_off(error if isinstance(error, BftrainError) else fault)
            return False
        return True

    def perform(self, step: Callable[[], None], then: Callable[[], None] = lambda: None) -> bool:
        """Write a step after earlier pending ones, now or when the journal is writable, then call ``then``.

        Return whether it is written.
        """
        self._unwritten.append((step, then))
        return self.stalled is None and self._write_all()

    def _write_all(self) -> bool:
        while self._unwritten and not self._ended:
            step, then = self._unwritten[0]
            try:
                step()
            except JournalStalled as error:
                self._again = self._loop.call_later(timeouts.TIMEOUTS.journal_retry_s, self._write_all)
                if self.stalled is None:
                    self.stalled = error
                    _log.warning(
                        "until the journal can be written, new tasks are rejected and tasks get no nodes: %s", error
                    )
                return False
            except BftrainError as error:
                self.break_off(error)
                return False
            self._unwritten.popleft()
            then()
        if self.stalled is not None and not self._ended:
            self.stalled = None
            _log.warning("the journal is written again: new tasks are accepted, and tasks get nodes")
            self._soon()
        return not self._ended

    def _soon(self, *, again: bool = False) -> None:
        """Request a decision once all waiting events are applied; with a policy, at the start of the next round.

        ``again``: the last answer was outdated, so do not wait for the next round.
        """
        if (
            self._next is None
            and self._request is None
            and not self._held_back
            and not self._ended
            and self.stalled is None
        ):
            wait_s = self._settle_s if not self._settings.policy else 0.0 if again else self._until_round_s()
            if wait_s > 0:
                self._next = self._loop.call_later(wait_s, self._ask)
            else:
                self._next = self._loop.call_soon(self._ask)

    def _until_round_s(self) -> float:
        """Return the seconds until the next round, which starts at a multiple of its length."""
        now, round_s = self.now, self._settings.round_s
        return (max(math.floor(now / round_s), self._round) + 1) * round_s - now

    def _ask(self) -> None:
        self._next = None
        if self._held_back or self.stalled is not None:
            return
        if self._harvester.uses_work_left:
            self._waiting.extend(self._tasks.work_left(self.now))
        self._absorb(then_decide=False)
        if self._ended or self.stalled is not None:
            return
        request = self._request = self._harvester.ask(self.now)
        self._round = round(request.time_s / self._settings.round_s)
        self._overtime = self._loop.call_later(
            self._settings.solver_deadline_s + timeouts.TIMEOUTS.solver_overtime_s, self._give_up
        )
        hurry, self._hurry_reason = self._hurry_reason, ""
        if self._solver_queue is None:
            self._solver_queue = SimpleQueue()
            Thread(target=_work, args=(self._solver_queue,), name="bftrain-solver", daemon=True).start()

        def solve() -> None:
            """Solve, in the solver's thread: one problem at a time, unless a solver hangs."""
            answer: ChosenSizes | Exception
            try:
                answer = self._harvester.answer(request, hurry=hurry)
            except Exception as error:  # noqa: BLE001 - a third-party objective or solver may raise anything
                answer = error
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._answered, request, answer)

        self._solver_queue.put(solve)

    def _answered(self, request: DecisionRequest, answer: ChosenSizes | Exception) -> None:
        if request is not self._request or self._ended:
            return  # abandoned
        self._request = None
        if self._overtime is not None:
            self._overtime.cancel()
        if isinstance(answer, Exception):
            _log.warning("no decision: %s: %s", type(answer).__name__, answer)
            self._absorb()  # sizes stay unchanged until the next event
            if self._settings.policy:
                self._soon()
            return
        if self.stalled is not None:
            return  # asked again when the journal is writable
        if self._harvester.outdated(request):
            self._outdated += 1
            self._hurry_reason = HURRY if self._outdated >= _OUTDATED else ""
            self._soon(again=True)
            return
        self._outdated = 0
        self._settle(request, answer)

    def _settle(self, request: DecisionRequest, choice: ChosenSizes) -> None:
        try:
            decision = self._harvester.finish_decision(request, choice)
        except BftrainError as error:  # a failing third-party placement may leave any state
            self.break_off(error)
            return
        due = self._store.due()
        self.perform(
            lambda: self._journal.append_decision(decision, due, sync=False), lambda: self._carry_out(decision)
        )
        if self.stalled is not None:  # the journal cannot be written: nodes are released without a record
            self._ordered([action for action in decision.actions if isinstance(action, Shrink | Stop)])
        self._absorb()

    def _carry_out(self, decision: Decision) -> None:
        """Send the orders of a written decision."""
        actions = decision.actions if self.stalled is None else tuple(self._valid_actions(decision.actions))
        if decision.batches and not self._guarded(lambda: self._tasks.hand_batches(decision.batches)):
            return
        if not self._ordered(actions):
            return
        self._tasks.hold(decision.time_s, decided=True)
        self._tasks.narrow()  # sizes whose speed is to be measured
        self.last_decision = LastDecision(
            time_s=decision.time_s,
            number=decision.number,
            value=decision.value,
            solver=decision.solver,
            solve_s=decision.solve_s,
            fallback=decision.fallback,
        )
        for note in filter(None, (*decision.notes, decision.fallback)):
            _log.warning("%s", note)
        self._observe("decision", decision)
        if len(self._journal) - self._kept_at >= timeouts.LIMITS.snapshot_steps and self.stalled is None:
            self._kept_at = len(self._journal)
            self.perform(lambda: self._journal.keep(self._settings, self._harvester.snapshot))
        if self._settings.policy and self._harvester.unfinished:
            self._soon()

    def _valid_actions(self, actions: Sequence[Action]) -> Iterator[Action]:
        """Yield the starts and growths of a delayed decision, without nodes and tasks that have left meanwhile."""
        for action in actions:
            if isinstance(action, Start | Grow):
                held = self._harvester.held.get(action.task, ())
                nodes = tuple(node for node in action.nodes if node in held)
                if nodes:
                    yield (Grow if len(held) > len(nodes) else Start)(task=action.task, nodes=nodes)

    def _give_up(self) -> None:
        """Abandon a solver that does not return; the fallback answers."""
        _log.warning("solver '%s' hangs; the fallback decides", self._settings.solver)
        self._request, self._hurry_reason = None, HANGS
        self._dismiss()
        self._absorb()
        self._soon()

    def _dismiss(self) -> None:
        if self._solver_queue is not None:
            self._solver_queue.put(None)
            self._solver_queue = None


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
