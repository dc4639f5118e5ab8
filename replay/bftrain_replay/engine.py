"""The engine: drives the decision core through a log on a virtual clock, and books what comes of it.

The same Harvester decides as in live mode; only the clock and the tasks are simulated. A moment costs time in
proportion to the nodes that change and the tasks that compete, not to the machine or to the queue.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import numpy as np

from bftrain.errors import BadInput, Fault
from bftrain.values import checks
from bftrain.values.actions import Action, Cause, Grow, Release, Shrink, Start, Stop
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskFinished, TaskSubmitted
from bftrain_replay.decisions import DecisionColumns
from bftrain_replay.ledger import Ledger, Unused
from bftrain_replay.progress import TaskProgress
from bftrain_replay.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from bftrain.values.curve import SpeedCurve
    from bftrain.values.decision import Decision
    from bftrain.values.task import TaskSpec
    from bftrain_datasets.eventlog import EventLog

    KeepGoing = Callable[[float, int], bool]


class Decider(Protocol):
    """What the engine asks of the decision core; a Harvester is one."""

    def absorb(self, *events: Event) -> Sequence[Action]:
        """Take in events of one moment; gives what must be done at once."""
        ...

    def decide(self, time_s: float) -> Decision:
        """Divide the pool anew."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one pass through a log left behind."""

    complete: bool
    tasks: tuple[TaskProgress | TaskSpec, ...]  # in the order given; a bare spec never arrived
    ledger: Ledger
    decisions: DecisionColumns
    wall_s: float


def run(log: EventLog, tasks: Sequence[TaskSpec], decider: Decider, *, keep_going: KeepGoing | None = None) -> Run:
    """Replay ``log`` against ``tasks``, whose ``submit_s`` counts from the log's start.

    ``keep_going(simulated seconds, decisions)`` is asked at every moment; when it says no, the run ends there as
    an incomplete one whose books are in order all the same.
    """
    twice = checks.repeated([spec.name for spec in tasks])
    if twice is not None:
        raise BadInput(f"two tasks are called '{twice}'", where="tasks", fix="give every task its own name")
    return _Engine(log, tasks, decider, keep_going or _always).run()


def _always(_simulated_s: float, _decisions: int) -> bool:
    return True


class _Engine:
    """The state of one run."""

    def __init__(self, log: EventLog, tasks: Sequence[TaskSpec], decider: Decider, keep_going: KeepGoing) -> None:
        self._log = log
        self._specs = tasks
        self._decider = decider
        self._keep_going = keep_going
        self._timeline = Timeline(log, tasks)
        self._ledger = Ledger()
        self._decisions = DecisionColumns()
        self._arrived: dict[str, TaskProgress] = {}
        self._unfinished = 0
        self._latest_s = -math.inf  # the latest moment that was dealt with
        self._pool = 0
        self._used = 0
        self._running = 0
        self._full_size = 0  # nodes that all running tasks would hold at their maximum
        self._changed: dict[str, TaskProgress] = {}
        self._speeds: dict[tuple[SpeedCurve, int], list[float]] = {}

    def run(self) -> Run:
        begun = perf_counter()
        self._ledger.open(0.0, 0, 0, {})
        now_s, complete = self._moments()
        if complete:
            self._fill_up()
        self._close(now_s)
        return Run(
            complete=complete,
            tasks=tuple(self._arrived.get(spec.name, spec) for spec in self._specs),
            ledger=self._ledger,
            decisions=self._decisions,
            wall_s=perf_counter() - begun,
        )

    def _moments(self) -> tuple[float, bool]:
        """Go from moment to moment while there is time and work left; gives when it stopped, and if at the end."""
        end_s, timeline = self._log.span_s, self._timeline
        while self._unfinished or timeline.arrivals_left:
            now_s = timeline.next_s()
            if now_s >= end_s:
                break
            if not self._keep_going(now_s, len(self._decisions)):
                return now_s, False
            self._moment(now_s)
            self._latest_s = now_s
        return end_s, True

    def _moment(self, now_s: float) -> None:
        events = list(self._events(now_s))
        self._apply(self._decider.absorb(*events), now_s)
        begun = perf_counter()
        decision = self._decider.decide(now_s)
        self._decisions.add(decision, perf_counter() - begun)
        self._apply(decision.actions, now_s)
        for task in self._changed.values():
            self._timeline.expect(task)
        self._changed.clear()
        if (decision.pool, decision.used) != (self._pool, self._used):
            raise Fault(
                f"the decision counts {decision.used} of {decision.pool} nodes used, "
                f"the engine {self._used} of {self._pool}",
                where=f"at {now_s!r} s",
            )
        self._ledger.open(now_s, self._pool, self._used, self._unused(decision.sizes))

    def _events(self, now_s: float) -> Iterable[Event]:
        left, joined = self._timeline.nodes_at(now_s)
        self._pool += len(joined) - len(left)
        if left:
            yield NodesLeft(time_s=now_s, nodes=left)
        for task in self._timeline.finishes_at(now_s):
            self._finish(task, now_s)
            yield TaskFinished(time_s=now_s, task=task.spec.name)
        if joined:
            yield NodesJoined(time_s=now_s, nodes=joined)
        for spec in self._timeline.arrivals_at(now_s):
            self._arrived[spec.name] = TaskProgress(spec, self._speeds_of(spec), now_s)
            self._unfinished += 1
            yield TaskSubmitted(time_s=now_s, spec=spec)

    def _speeds_of(self, spec: TaskSpec) -> list[float]:
        largest = min(spec.max_nodes, len(self._log.node_names))  # nobody holds more nodes than there are
        key = (spec.curve, largest)
        if key not in self._speeds:
            self._speeds[key] = spec.curve.speeds(largest).tolist()
        return self._speeds[key]

    def _finish(self, task: TaskProgress, now_s: float) -> None:
        self._used -= task.size
        self._running -= 1
        self._full_size -= task.spec.max_nodes
        self._unfinished -= 1
        task.finish(now_s)

    def _apply(self, actions: Iterable[Action], now_s: float) -> None:
        """Carry actions out, as a launcher would; a task that has just finished has nothing more to lose."""
        for action in actions:
            if isinstance(action, Release):
                continue
            task = self._arrived[action.task]
            if task.finish_s is not None:
                continue
            before, was_running = task.size, task.size > 0
            _act(task, action, now_s)
            self._used += task.size - before
            if (task.size > 0) != was_running:
                step = -1 if was_running else 1
                self._running += step
                self._full_size += step * task.spec.max_nodes
            self._changed[action.task] = task

    def _unused(self, sizes: Mapping[str, int]) -> dict[Unused, int]:
        """Say why the nodes that are left over do not work (docs/semantics.md)."""
        left = self._pool - self._used
        if left == 0:
            return {}
        room, too_small = self._full_size - self._used, False
        if room < left and len(sizes) > self._running:
            for name, size in sizes.items():
                if size == 0:
                    spec = self._arrived[name].spec
                    if spec.min_nodes <= left:
                        room += spec.max_nodes
                    else:
                        too_small = True
        wanted = min(left, room)
        if too_small:
            reason = Unused.BELOW_MINIMUM
        elif self._unfinished > len(sizes):
            reason = Unused.TASK_CAP
        else:
            reason = Unused.AT_MAXIMUM if sizes else Unused.NO_TASK
        return {Unused.NOT_WORTH: wanted, reason: left - wanted}

    def _fill_up(self) -> None:
        """Book the rest of a log in which there is nothing left to do."""
        if self._unfinished or self._timeline.arrivals_left:
            return
        times = self._log.times - self._log.start_s
        sizes = self._log.pool_sizes()
        first = int(np.searchsorted(times, self._latest_s, side="right"))
        for time_s, pool in zip(times[first:].tolist(), sizes[first:].tolist(), strict=True):
            self._ledger.open(time_s, pool, 0, {Unused.NO_TASK: pool})

    def _close(self, now_s: float) -> None:
        for task in list(self._timeline.finishes_at(now_s)):
            self._finish(task, now_s)
        for task in self._arrived.values():
            if task.finish_s is None:
                task.settle(now_s)
        self._ledger.close(now_s)
        self._ledger.check(self._log, (task.node_s for task in self._arrived.values()))


def _act(task: TaskProgress, action: Start | Grow | Shrink | Stop, now_s: float) -> None:
    count = len(action.nodes)
    match action:
        case Start():
            task.start(now_s, count)
        case Grow():
            task.grow(now_s, count)
        case Shrink(cause=cause):
            task.shrink(now_s, count, preempted=cause is Cause.PREEMPTED)
        case Stop(cause=cause):
            if count != task.size:
                raise Fault(f"task '{task.spec.name}' holds {task.size} nodes, but a stop names {count}")
            task.stop(now_s, preempted=cause in {Cause.PREEMPTED, Cause.BELOW_MINIMUM})
