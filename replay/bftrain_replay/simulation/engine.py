"""The engine: drives the decision core through a log on a virtual clock, and accounts for every node-second.

The same Harvester decides as in live mode; only the clock and the tasks are simulated. An event costs time in
proportion to the nodes that change and the tasks that compete, not to the machine or to the queue.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bftrain.deciding.goodput import batches_by_size, by_progress
from bftrain.deciding.harvester import Harvester
from bftrain.errors import BadInput, Fault
from bftrain.values import checks
from bftrain.values.actions import Action, Release, Start
from bftrain.values.curve import SpeedCurve
from bftrain.values.decision import decision_of
from bftrain.values.events import Event, NodesJoined, NodesLeft, TaskFinished, TaskMeasured, TaskSubmitted
from bftrain.values.task import TaskSpec
from bftrain.values.wire import unchecked
from bftrain_datasets.log.eventlog import EventLog
from bftrain_datasets.log.measures import pool_sizes_by_kind
from bftrain_replay.simulation.compiled_core import CompiledCore, Step, compiled_core
from bftrain_replay.simulation.fixed_cluster import FOREVER_S, EndReason
from bftrain_replay.simulation.node_time_ledger import PLAIN, HarvestOverTime, Ledger, UnusedReason
from bftrain_replay.simulation.rules import DecisionDelay, ReplayRules
from bftrain_replay.simulation.run_records import PROVEN, AllocationRecorder, DecisionColumns
from bftrain_replay.simulation.task_progress import LossTimes, SpreadNodes, TaskProgress, carry_out
from bftrain_replay.simulation.unused_nodes import NodesByKind, why_unused
from bftrain_solvers.knapsack.compiled_allocation import (
    BELOW_MINIMUM_STOP,
    GROW,
    PREEMPTED_SHRINK,
    SHRINK,
    START,
    STOP,
    STORED_AT_ONCE,
)

KeepGoing = Callable[[float, int], bool]

# Templates of events: their copies are not checked again, since the log and the tasks are
_LEFT: Final = NodesLeft(time_s=0.0, nodes=("node",))
_JOINED: Final = NodesJoined(time_s=0.0, nodes=("node",))
_FINISHED: Final = TaskFinished(time_s=0.0, task="task")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRun:
    """Raw results of one pass through a log."""

    complete: bool
    tasks: tuple[TaskProgress | TaskSpec, ...]  # input order; a bare spec never arrived
    ledger: Ledger
    decisions: DecisionColumns
    harvest: HarvestOverTime
    losses: LossTimes
    wall_s: float
    allocations: AllocationRecorder | None = None
    pools: Mapping[str, NDArray[np.int64]] | None = None  # idle nodes of each kind in the ledger's intervals
    ended: EndReason | None = None  # stop reason on a fixed cluster


def pools_at(log: EventLog, times_s: NDArray[np.float64]) -> dict[str, NDArray[np.int64]]:
    """Return the idle nodes of each kind at times since the log's start; without kinds under an empty name."""
    places = np.searchsorted(log.times - log.start_s, times_s, side="right") - 1
    return {kind: sizes[places] for kind, sizes in pool_sizes_by_kind(log).items()}


def run(
    log: EventLog,
    tasks: Sequence[TaskSpec],
    decider: Harvester,
    *,
    rules: ReplayRules | None = None,
    decision_delay: DecisionDelay | None = None,
    keep_going: KeepGoing | None = None,
    allocations: AllocationRecorder | None = None,
    fixed: bool = False,
) -> EngineRun:
    """Replay ``log`` against ``tasks``; ``submit_s`` counts from the log's start.

    By default the rules are realistic and every decision takes effect immediately. ``keep_going(simulated_seconds,
    decisions)`` is called at every moment; return False to interrupt the run. An interrupted run is incomplete and its
    ledger stays consistent. ``allocations`` records the holder of each node over time. Set ``fixed`` for a log with
    permanent nodes: the run stops when all tasks are done or no further event is possible.
    """
    twice = checks.repeated([spec.name for spec in tasks])
    if twice is not None:
        raise BadInput(f"two tasks are called '{twice}'", where="tasks", fix="give every task its own name")
    rules = rules or ReplayRules()
    given = (log, tasks, decider, rules, decision_delay or DecisionDelay(), keep_going, allocations)
    believed = rules.wrong.believed if rules.wrong is not None else None
    core = None
    if rules.learnt is None:
        core = compiled_core(decider, log, tasks, believed, records=allocations is not None)
    return (Engine(*given) if core is None else _CompiledEngine(core, *given)).run(fixed=fixed)


class Engine:
    """One replay, decided by a Harvester."""

    def __init__(
        self,
        log: EventLog,
        tasks: Sequence[TaskSpec],
        decider: Harvester,
        rules: ReplayRules,
        decision_delay: DecisionDelay,
        keep_going: KeepGoing | None,
        allocations: AllocationRecorder | None,
    ) -> None:
        self._log, self._specs, self._decider = log, tasks, decider
        self._rules, self._decision_delay, self._keep_going = rules, decision_delay, keep_going
        self._allocations = allocations
        self._tells_work_left, self._chooses_batches = decider.uses_work_left, decider.chooses_batches
        self._timeline = rules.timeline(log, tasks)
        self._kinds = NodesByKind(log) if log.kind_names else None
        self._kind: dict[str, str] = {}  # kind of each task's current or latest nodes, on logs with kinds
        self._ledger = Ledger(PLAIN if self._kinds is None else UnusedReason)
        self._decisions = DecisionColumns()
        self._harvest = HarvestOverTime(log.span_s)
        self._losses = LossTimes()
        self._arrived: dict[str, TaskProgress] = {}
        self._unfinished = 0
        self._latest_s = -math.inf  # the latest moment that was handled
        self._pool = self._used = self._running = 0
        self._full_size = 0  # sum of the largest sizes of all running tasks
        self._changed: dict[TaskProgress, None] = {}
        self._advancing: dict[str, TaskProgress] = {}  # filled only if decisions use the tasks' work left
        self._batch_specs: dict[str, TaskSpec] = {}  # tasks that set batches, as they arrived
        self._speeds: dict[tuple[SpeedCurve, int], list[float]] = {}

    def run(self, *, fixed: bool = False) -> EngineRun:
        """Replay; see :func:`run`."""
        begun = perf_counter()
        if fixed:
            self._harvest = HarvestOverTime(None)
        self._ledger.open(0.0, 0, 0, {})
        now_s, ended = self._moments()
        if fixed:
            now_s = self._log.span_s if ended is EndReason.UNTIL else max(self._latest_s, 0.0)
        elif ended is not EndReason.INTERRUPTED:
            now_s = self._log.span_s
            self._fill_up()
        self._harvest.sample_until(now_s)
        for task in list(self._timeline.finishes_at(now_s)):
            self._finish(task, now_s)
        for task in self._arrived.values():
            if task.finish_s is None:
                task.advance_to(now_s)
        self._close_allocations(now_s)
        self._harvest.close(now_s)
        self._ledger.close(now_s)
        self._ledger.check(self._log, (task.node_s for task in self._arrived.values()))
        return EngineRun(
            complete=ended is not EndReason.INTERRUPTED,
            ended=ended if fixed else None,
            pools=pools_at(self._log, self._ledger.times_s) if self._log.kind_names else None,
            tasks=tuple(self._arrived.get(spec.name) or self._by_progress(spec) for spec in self._specs),
            ledger=self._ledger,
            decisions=self._decisions,
            harvest=self._harvest,
            losses=self._losses,
            wall_s=perf_counter() - begun,
            allocations=self._allocations,
        )

    def _moments(self) -> tuple[float, EndReason]:
        """Process moments while time and work remain; return the last moment and the stop reason."""
        end_s, timeline, now_s = self._log.span_s, self._timeline, 0.0
        while self._unfinished or timeline.arrivals_left:
            moment_s = timeline.next_s()
            now_s = min(moment_s, self._decision_delay.due_s)
            if now_s >= end_s:
                return now_s, EndReason.STANDSTILL if now_s == math.inf and end_s >= FOREVER_S else EndReason.UNTIL
            if self._keep_going is not None and not self._keep_going(now_s, len(self._decisions)):
                return now_s, EndReason.INTERRUPTED
            if now_s > self._harvest.next_s:
                self._harvest.sample_until(now_s)
            if now_s >= moment_s:
                self._take_in(now_s)
                self._decision_delay.call(now_s)
            if self._decision_delay.due_s <= now_s:
                unused = self._decide(now_s)
            else:  # nodes are free until the next decision; once all tasks are finished there will be none
                waiting = self._unfinished or timeline.arrivals_left
                reason = UnusedReason.UNDECIDED if waiting else UnusedReason.NO_TASK
                unused = {reason: self._pool - self._used}
            self._reschedule_finishes()
            self._ledger.open(now_s, self._pool, self._used, unused)
            self._latest_s = now_s
        return now_s, EndReason.ALL_DONE

    def _decide(self, now_s: float) -> dict[UnusedReason, int]:
        """Divide the pool again; return the reasons for unused nodes."""
        if self._tells_work_left:
            self._decider.absorb(*self._work_left(now_s))
        if self._rules.learnt is not None:
            running = (task for task in self._arrived.values() if task.size and task.finish_s is None)
            self._decider.absorb(*self._rules.learnt.measured(running, self._kind, now_s))
        begun = perf_counter()
        decision = self._decider.decide(now_s)
        self._decisions.add(decision, perf_counter() - begun)
        self._decision_delay.decided(now_s, decision.solve_s)
        self._apply(decision.actions, now_s)
        if (decision.pool, decision.used) != (self._pool, self._used):
            raise Fault(
                f"the decision counts {decision.used} of {decision.pool} nodes used, "
                f"the engine {self._used} of {self._pool}",
                where=f"at {now_s!r} s",
            )
        return self._unused(decision.sizes)

    def _take_in(self, now_s: float) -> None:
        change = self._timeline.nodes_at(now_s)
        left, joined = (change[0].names, change[1].names) if change is not None else ((), ())
        self._pool += len(joined) - len(left)
        if self._kinds is not None:
            self._kinds.leave(left)
        events: list[Event] = [unchecked(_LEFT, time_s=now_s, nodes=left)] if left else []
        if events and self._rules.losses_first:
            self._absorb(events, now_s)
            self._reschedule_finishes()
            events = []
        for task in self._timeline.finishes_at(now_s):
            self._finish(task, now_s)
            events.append(unchecked(_FINISHED, time_s=now_s, task=task.spec.name))
        for kind, nodes in self._log.by_kind(joined):
            events.append(unchecked(_JOINED, time_s=now_s, nodes=nodes, kind=kind))
            if self._kinds is not None:
                self._kinds.join(kind, len(nodes))
        for spec in self._timeline.arrivals_at(now_s):
            believed = self._arrive(spec, now_s)
            if self._rules.learnt is not None:
                self._rules.learnt.submitted(spec, believed)
            events.append(TaskSubmitted(time_s=now_s, spec=believed))
        self._absorb(events, now_s)

    def _arrive(self, spec: TaskSpec, now_s: float) -> TaskSpec:
        """Add an arriving task; return it as decisions believe it to be."""
        advances = self._by_progress(spec)
        task = self._rules.progress(advances, self._speeds_of(advances, advances.curve), now_s)
        task.losses, task.number = self._losses, len(self._arrived)
        if spec.batch is not None:
            self._batch_specs[spec.name] = spec
        if advances.spread is not None:
            task.spread = SpreadNodes(advances.spread, self._rules.place_of)
        self._arrived[spec.name] = task
        self._unfinished += 1
        wrong = self._rules.wrong
        return spec if wrong is None else wrong.believed(spec)

    def _absorb(self, events: Sequence[Event], now_s: float) -> None:
        self._apply(self._decider.absorb(*events), now_s)

    def _work_left(self, now_s: float) -> Iterable[Event]:
        """Yield the work left of the tasks that advanced since the last decision."""
        for name, task in self._advancing.items():
            task.advance_to(now_s)
            if task.finish_s is None and task.work_left_samples < math.inf:
                yield TaskMeasured(time_s=now_s, task=name, work_left_samples=task.work_left_samples)
        self._advancing = {name: task for name, task in self._advancing.items() if task.size}

    def _reschedule_finishes(self) -> None:
        for task in self._changed:
            self._timeline.expect(task)
        self._harvest.note(*self._changed)
        self._changed.clear()

    def _speeds_of(self, spec: TaskSpec, curve: SpeedCurve) -> list[float]:
        """Return the speeds by size."""
        largest = min(spec.max_nodes, len(self._log.node_names))  # a task cannot exceed the cluster
        key = (curve, largest)
        if key not in self._speeds:
            self._speeds[key] = curve.speeds(largest).tolist()
        return self._speeds[key]

    def _curve_on(self, spec: TaskSpec, kind: str) -> SpeedCurve:
        curve = spec.curve_on(kind)
        if curve is None:
            raise Fault(f"task '{spec.name}' is placed on kind '{kind}', which it cannot use", where="decision")
        return curve

    def _by_progress(self, spec: TaskSpec) -> TaskSpec:
        return by_progress(spec, chosen=self._chooses_batches)

    def _batch(self, name: str, size: int) -> int:
        """Return the batch with which a task trains on its current nodes."""
        batches = batches_by_size(self._batch_specs[name], self._kind.get(name, ""), chosen=self._chooses_batches)
        return batches[size] if batches else 0

    def _finish(self, task: TaskProgress, now_s: float) -> None:
        before = task.size
        task.finish(now_s)
        self._leave(task, before, now_s)

    def _leave(self, task: TaskProgress, before: int, now_s: float) -> None:
        """Count a task out that had ``before`` nodes."""
        self._unfinished -= 1
        self._count(task, before)
        if before and self._kinds is not None:
            self._kinds.changed(task, self._kind[task.spec.name], before)
        self._harvest.note(task)
        self._end_allocation(task, now_s)

    def _end_allocation(self, task: TaskProgress, now_s: float) -> None:
        if self._allocations is not None:
            self._allocations.end(task.spec.name, now_s)

    def _close_allocations(self, now_s: float) -> None:
        if self._allocations is not None:
            self._allocations.close(now_s)

    def _apply(self, actions: Iterable[Action], now_s: float) -> None:
        """Carry out actions, as a launcher would; a task that has just finished loses no work."""
        for action in actions:
            if type(action) is Release:
                continue
            name = action.task
            task = self._arrived[name]
            if task.finish_s is not None:
                continue
            before = task.size
            if self._kinds is not None and type(action) is Start:
                kind = self._kind[name] = self._common_kind(action.nodes)
                task.set_speeds(self._speeds_of(task.spec, self._curve_on(task.spec, kind)), kind)
            carry_out(task, action, now_s)
            if name in self._batch_specs:
                task.batch = self._batch(name, task.size)
            if self._kinds is not None:
                self._kinds.changed(task, self._kind[name], before)
            if self._allocations is not None:
                self._allocations.act(action, now_s)
            self._count(task, before)
            self._changed[task] = None
            if self._tells_work_left:
                self._advancing[name] = task

    def _common_kind(self, nodes: Sequence[str]) -> str:
        kinds = {self._log.kind_of[node] for node in nodes}
        if len(kinds) != 1:
            raise Fault(f"nodes of {len(kinds)} kinds are given to one task: {', '.join(sorted(kinds))}")
        return kinds.pop()

    def _count(self, task: TaskProgress, before: int) -> None:
        """Count the nodes of a task that had ``before`` nodes."""
        self._used += task.size - before
        if (task.size == 0) != (before == 0):
            step = 1 if task.size else -1
            self._running += step
            self._full_size += step * task.spec.max_nodes

    def _unused(self, sizes: Mapping[str, int]) -> dict[UnusedReason, int]:
        if self._kinds is not None:
            return self._kinds.why_unused(sizes, unfinished=self._unfinished, task_of=self._arrived.__getitem__)
        return why_unused(
            self._pool - self._used,
            room=self._full_size - self._used,
            sizes=sizes,
            running=self._running,
            unfinished=self._unfinished,
            spec_of=lambda name: self._arrived[name].spec,
        )

    def _fill_up(self) -> None:
        """Account for the rest of the log after the last task."""
        if self._unfinished or self._timeline.arrivals_left:
            return
        times = self._log.times - self._log.start_s
        sizes = self._log.pool_sizes()
        first = int(np.searchsorted(times, self._latest_s, side="right"))
        for time_s, pool in zip(times[first:].tolist(), sizes[first:].tolist(), strict=True):
            self._ledger.open(time_s, pool, 0, {UnusedReason.NO_TASK: pool})


class _CompiledEngine(Engine):
    """One replay, decided by a compiled core, for which nodes and tasks are numbers."""

    def __init__(self, core: CompiledCore, *given: Any) -> None:  # noqa: ANN401 - those of the engine
        super().__init__(*given)
        self._core = core
        self._tasks: list[TaskProgress] = []  # tasks by number
        self._recorded: list[int] = []  # each task's number in the recorded allocations; -1 before its first start

    def _take_in(self, now_s: float) -> None:
        core, pool = self._core, self._pool
        change = self._timeline.nodes_at(now_s)
        left = change[0].end - change[0].first if change is not None else 0
        happened = change is not None
        if change is not None and left and self._rules.losses_first:
            self._apply_numbers(core.leave(change[0], now_s), now_s)
            self._reschedule_finishes()
        for task in self._timeline.finishes_at(now_s):
            self._finish(task, now_s)
            happened = True
        if change is not None:
            if left and not self._rules.losses_first:
                self._apply_numbers(core.leave(change[0], now_s), now_s)
            core.join(change[1], now_s)
            self._pool += change[1].end - change[1].first - left
        for spec in self._timeline.arrivals_at(now_s):
            believed = self._arrive(spec, now_s)
            task = self._arrived[spec.name]
            self._tasks.append(task)
            self._recorded.append(-1)
            core.submit(task.number, believed)
            happened = True
        core.pass_time(now_s if happened else None, pool, left)

    def _decide(self, now_s: float) -> dict[UnusedReason, int]:
        begun = perf_counter()
        step = self._core.decide(now_s)
        self._record(step, now_s, begun)
        self._decision_delay.decided(now_s, step.solve_s)
        self._apply_numbers(step.actions, now_s)
        self._store_allocations()
        if (used := self._core.allocation.state.used) != self._used:
            what = f"the decision counts {used} nodes used, the engine {self._used}"
            raise Fault(what, where=f"at {now_s!r} s")
        return self._unused(self._sizes()) if self._used < self._pool else {}

    def _sizes(self) -> dict[str, int]:
        allocation, tasks = self._core.allocation, self._tasks
        names = (tasks[number].spec.name for number in self._core.competing)
        return dict(zip(names, allocation.sizes(), strict=True))

    def _record(self, step: Step, now_s: float, begun: float) -> None:
        """Record a decision that was requested at ``begun`` on the wall clock."""
        numbers = iter(step.size_changes)
        changes = [(self._tasks[number].spec.name, size) for number, size in zip(numbers, numbers, strict=True)]
        nodes, choice = (self._pool, self._core.allocation.state.used), step.choice
        if choice is None:
            times_s = step.solve_s, perf_counter() - begun
            proven = now_s, step.value, step.value  # its own bound
            self._decisions.add_row(*proven, times_s, (*nodes, step.competing), PROVEN, changes, PROVEN[0])
            self._decisions.add_notes(now_s, step.notes)
            return
        solution = choice.solution
        decision = decision_of(
            time_s=now_s,
            number=len(self._decisions) + 1,
            pool=nodes[0],
            used=nodes[1],
            sizes=self._sizes(),
            value=choice.value,
            bound=solution.bound,
            solver=solution.solver,
            termination=solution.termination,
            quality=choice.quality,
            solver_words=solution.solver_words,
            fallback=choice.fallback,
            solve_s=solution.wall_s,
            notes=tuple(step.notes),
            kinds={},
            batches={},
        )
        self._decisions.add(decision, perf_counter() - begun, changes)

    def _apply_numbers(self, actions: Sequence[int], now_s: float) -> None:
        """Carry out actions: kind, task, nodes, kind, ..."""
        tasks, changed, numbers = self._tasks, self._changed, iter(actions)
        for act, number, count in zip(numbers, numbers, numbers, strict=True):
            task = tasks[number]
            changed[task] = None
            if act == GROW:
                task.grow(now_s, count)
                self._used += count
            elif act in (SHRINK, PREEMPTED_SHRINK):
                task.shrink(now_s, count, preempted=act == PREEMPTED_SHRINK)
                self._used -= count
            elif act == START:
                if self._allocations is not None and self._recorded[number] < 0:
                    self._recorded[number] = self._allocations.number(task.spec.name)
                task.start(now_s, count)
                self._count(task, 0)
            else:
                task.stop(now_s, preempted=act != STOP, some_remain=act == BELOW_MINIMUM_STOP)
                self._count(task, count)

    def _end_allocation(self, task: TaskProgress, now_s: float) -> None:
        self._core.finish(task.number, now_s)

    def _store_allocations(self, least: int = STORED_AT_ONCE) -> None:
        """Record finished allocations, if there are at least so many."""
        if self._allocations is not None and (found := self._core.allocation.finished(least)) is not None:
            task, node, from_s, to_s = found
            self._allocations.add_finished(np.array(self._recorded, dtype=np.int32)[task], node, from_s, to_s)

    def _close_allocations(self, now_s: float) -> None:
        if self._allocations is None:
            return
        for number in sorted(range(len(self._tasks)), key=self._recorded.__getitem__):
            if self._tasks[number].finish_s is None:
                self._core.allocation.release(number, now_s)
        self._store_allocations(1)
