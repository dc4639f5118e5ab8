"""TaskSupervision: tracks a task's steps, losses, deaths and stalls for all lifecycles, and reports notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from bftrain_elastic.manager.agent_hub import TaskContext
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles.failures import ALLOWED, FailurePolicy, WorkerDeath
from bftrain_elastic.manager.task_lifecycles.stalls import StallAction, StallInspection, StallWatch
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.messages import WireMessage
from bftrain_elastic.wire.worker_messages import (
    AskPosition,
    ReplicasDiffer,
    StateInMemory,
    StateNotOnDisk,
    StateOnDisk,
    StepReport,
    WorkerPosition,
)

_WRITES: Final = 5.0  # time for writing the state before an exit as a multiple of the previous write
_BAD_LOSSES: Final = 3  # consecutive bad losses before a report
_STARTS: Final = 10.0  # limit of a program's start-up as a multiple of the usual time
DRIFT: Final = "the models of its workers differ"  # start of each note on replicas
DRIFT_FIX: Final = (
    "exchange all gradients, for example with model = state.parallel(), step on every rank, and keep model, optimizer "
    "and schedule in the State"
)
_DONE_SHARE: Final = 0.9  # an exit with 0 before this share of the work is early


@dataclass(eq=False)
class AssignedNodes:
    """The nodes of a task: nodes to run on, and nodes with agents that have not connected yet.

    An agent that lost its manager keeps its workers for a while. After a restart of the manager, a task starts no
    process before all its remaining ones are known: two processes could have the same rank.
    """

    _context: TaskContext
    all: tuple[str, ...] = ()  # oldest first
    batch: int = 0  # samples per step over all nodes, as decided; 0: the script decides
    noticed: set[str] = field(default_factory=set)  # nodes with a preemption notice
    _absent: dict[str, float] = field(default_factory=dict)  # nodes that have no connected agent -> since when
    _gone: set[str] = field(default_factory=set)  # nodes that lost their agent and all workers

    @property
    def wanted(self) -> tuple[str, ...]:
        """The nodes to run on: all except nodes with a preemption notice."""
        return tuple([node for node in self.all if node not in self.noticed]) if self.noticed else self.all

    @property
    def here(self) -> tuple[str, ...]:
        """The nodes to run on that have an agent."""
        slots = self._context.slots
        return tuple([node for node in self.wanted if slots(node)])  # each task calls this ten times a second

    def assign(self, nodes: tuple[str, ...]) -> None:
        """Set all nodes of the task."""
        self.noticed -= set(nodes) - set(self.all)  # a node that returns has a new agent
        self.all = nodes
        here = {node for node in nodes if self._context.slots(node)}
        self._gone = self._gone.intersection(nodes) - here
        now, waited_for = self._context.now(), set(nodes) - here - self._gone
        self._absent = {node: self._absent.get(node, now) for node in sorted(waited_for)}

    def agent_changed(self, node: str, *, there: bool) -> None:
        """Record that the agent of a node connected or left."""
        self.noticed.discard(node)
        self._absent.pop(node, None)
        (self._gone.discard if there else self._gone.add)(node)

    @property
    def waiting(self) -> bool:
        """Whether an agent with workers of another manager may still connect."""
        now = self._context.now()
        return any(now - since <= TIMEOUTS.absence_s for since in self._absent.values())


@dataclass(frozen=True, slots=True)
class StallVerdict:
    """The consequence for a lifecycle: restart its workers, or fail with a reason."""

    restart: bool = False
    failure: str = ""


@dataclass(eq=False)
class LossWatch:
    """Detects a loss that becomes NaN or infinite; a script that never reported a finite loss is exempt."""

    bad: int = 0  # consecutive bad losses
    _since: tuple[float, int] = (0.0, 0)  # time and step of the first one
    _was_good: bool = False  # a finite loss was reported

    def reported(self, message: StepReport, now: float) -> str:
        """Record a step; return a note after several bad losses."""
        self._was_good |= message.loss is not None
        self.bad = self.bad + 1 if message.nan else 0
        if self.bad == 1:
            self._since = (now, message.step)
        return self._text() if self.bad == _BAD_LOSSES else ""

    def diverged(self, now: float, limit_s: float) -> str:
        """Return the reason for failing the task if its loss has been bad for longer than the limit; 0: no limit."""
        bad_s = now - self._since[0]
        gone = self._was_good and self.bad >= _BAD_LOSSES and 0 < limit_s < bad_s
        return f"{self._text()}, for {bad_s:.0f} s" if gone else ""

    def _text(self) -> str:
        return f"its loss is not a number (NaN or infinite) since step {self._since[1]}"


@dataclass(eq=False)
class SampleCount:
    """Counts the samples of a task, as far as its program reports them."""

    _done: float | None = None
    _from_zero: bool = False  # its step and sample counts restart at 0 with each process

    def reported(self, message: StepReport, before: int) -> None:
        """Record a step; the task had reached the step ``before``."""
        # A program that counts from 0 again may have restored a checkpoint or not: its progress is unknown
        self._from_zero |= message.since <= 0 and message.step < before
        if (total := message.total) is not None:
            step = max(before, message.step)
            done = total if message.since <= 0 else total * step / max(1, step - message.since)
            self._done = max(done, self._done or 0.0)

    @property
    def done(self) -> float | None:
        """All samples so far; None if unknown."""
        return None if self._from_zero else self._done


class TaskSupervision:
    """Watches one task, and reports notes to its owner."""

    def __init__(self, job: LauncherJob, context: TaskContext) -> None:
        self._job = job
        self._context = context
        self.failures = FailurePolicy(context.settle_s)
        self.stalls = StallWatch(job.stall_limit_s)
        self.step = 0  # furthest reported step
        self._samples = SampleCount()
        self._losses = LossWatch()
        self.saved = StateOnDisk(-1)  # latest step on disk; -1: unknown
        self._unwritten_step = -1  # latest step that could not be written
        self._inspection: StallInspection | None = None  # None: no stall
        self._early_ends = (0, -1)  # consecutive exits with 0 before the work was done, and the step of the latest
        self._drift_step = 0  # step of the latest note on diverging replicas
        self.done = False  # the training has finished
        self.failure = ""  # reason of the failure
        self.end_reported = True  # the outcome or the pause was reported to the manager

    def reported(self, message: StepReport) -> None:
        """Record and report a step."""
        now = self._context.now()
        self.stalls.step(now, message.step)
        self._inspection = None
        self._samples.reported(message, self.step)
        self.further(message.step)
        self.note(self._losses.reported(message, now))
        event = message.to_dict()
        if message.noise is None:  # few scripts report it
            del event["noise"]
        self._context.emit(event)

    def further(self, step: int) -> None:
        """Record that the task has reached at least this step."""
        self.step = max(self.step, step)

    def died(self, death: WorkerDeath) -> None:
        """Record a worker's unexpected exit."""
        self.failures.died(death, self._context.now(), self.step)

    def node_leaves(self, node: str) -> None:
        """Record that a node leaves now or in a moment."""
        self.failures.node_leaves(node, self._context.now())

    def on_worker_message(self, worker: str, message: WireMessage) -> None:
        """Handle the worker messages common to all launchers."""
        match message:
            case StateNotOnDisk(step=step, reason=reason):
                if self._unwritten_step < 0:
                    self.note(f"the state of step {step} is not on disk: {reason}; it is tried again")
                self._unwritten_step = max(self._unwritten_step, step)
            case StateOnDisk(step=step, took_s=took_s):
                self.saved = StateOnDisk(max(self.saved.step, step), took_s or self.saved.took_s)
                if 0 <= self._unwritten_step <= step:
                    self.note(f"saving the state works again, since step {step}")
                    self._unwritten_step = -1
                self._committed(message.type, step)
            case StateInMemory(step=step):
                self._committed(message.type, step)
            case WorkerPosition():
                if self._inspection is not None:
                    self._inspection.position(worker, message)
            case ReplicasDiffer(step=step, rank=rank):
                if not 0 < step < 2 * self._drift_step:  # repeat the note only when the step has doubled
                    self._drift_step = step
                    which = f": rank {rank} is not as rank 0" if rank else ""
                    self.note(f"{DRIFT} at step {step}{which} ({DRIFT_FIX})")

    def _committed(self, where: str, step: int) -> None:
        self.further(step)
        self._context.emit({"type": where, "step": step})

    def inspected(self, worker: str, process_state: str) -> None:
        """Record the state of a worker's process."""
        if self._inspection is not None:
            self._inspection.process_state(worker, process_state)

    @property
    def over(self) -> bool:
        """Whether no new workers are started."""
        return self.done or bool(self.failure)

    def begin_again(self) -> None:
        """Continue: the task has nodes again, or its last phase is repeated. A failed task gets another try."""
        if self.failure:
            self.failures.reset()
            self.stalls = StallWatch(self._job.stall_limit_s)
            self._inspection, self._losses.bad, self._early_ends = None, 0, (0, -1)
        self.done, self.failure, self.end_reported = False, "", False

    @property
    def write_limit_s(self) -> float:
        """The time limit in seconds for a worker to write the state."""
        return max(TIMEOUTS.least_write_s, _WRITES * self.saved.took_s)

    @property
    def is_early(self) -> bool:
        """Whether an exit code of 0 is not enough to count the work as done."""
        done, work = self._samples.done, self._job.work_samples
        return self._job.reports_its_end or (done is not None and work is not None and done < _DONE_SHARE * work)

    def ended_early(self) -> str:
        """Count an exit with 0 before the work was done; return the failure's reason if the limit is reached."""
        count, step = self._early_ends
        count = count + 1 if self.step == step else 1
        self._early_ends = (count, self.step)
        progress = f"after step {self.step}"
        if self._job.work_samples is not None and self._samples.done is not None:
            progress = f"after {self._samples.done:,.0f} of {self._job.work_samples:,.0f} samples"
        how = "without saying that it is finished" if self._job.reports_its_end else "before its work was done"
        text = f"it exited with 0 {progress}, {how}"
        if count >= ALLOWED:
            return f"{text}, {ALLOWED} times with no step in between"
        self.note(f"{text}; it is started again")
        return ""

    def tick(self, ranks: Mapping[str, tuple[int, str]], starting_since: float | None = None) -> StallVerdict:
        """Do periodic work. ``ranks`` are the training workers, ``starting_since`` the start time of the rest."""
        now = self._context.now()
        failure = self.failures.judge(now, self.note)
        inspection = self._inspection
        if inspection is not None and not inspection.complete and inspection.is_over(now):
            inspection.complete = True
            self.note(f"{self._stall(now)}; the stacks of all ranks are in its logs")
        failure = (
            failure or self._never_started(now, starting_since) or self._losses.diverged(now, self._job.stall_limit_s)
        )
        if failure:
            return StallVerdict(failure=failure)
        match self.stalls.check(now):
            case StallAction.LOOK:
                # All ranks report their position, and write their stacks into their logs
                self._inspection = StallInspection(ranks, now)
                for worker in ranks:
                    self._context.send(worker, AskPosition())
                    self._context.inspect(worker)
            case StallAction.RESTART:
                self.note(f"{self._stall(now)}; its workers are restarted")
                return StallVerdict(restart=True)
            case StallAction.GIVE_UP:
                return StallVerdict(failure=self._stall(now))
        return StallVerdict()

    def note(self, text: str) -> None:
        """Report a note for the task's owner, unless it is empty."""
        if text:
            self._context.emit({"type": "note", "text": text})

    def confirmed(self, generation: int, nodes: Sequence[str], step: int, **sizes: int) -> None:
        """Report that a group trains, with the size of its state in bytes."""
        event = {"type": "confirmed", "generation": generation, "size": len(nodes)}
        self._context.emit({**event, "nodes": list(nodes), "step": step, **sizes})

    def report_end(self, *, finished: bool = True) -> None:
        """Report, once, that all workers have left: the task is done, has failed, or is paused."""
        if self.end_reported:
            return
        self.end_reported = True
        if self.done:
            self._context.emit({"type": "done", "step": self.step, "finished": finished})
        elif self.failure:
            self._context.emit({"type": "failed", "reason": self.failure})
        else:
            self._context.emit({"type": "paused", "step": self.step})

    def _stall(self, now: float) -> str:
        pace = f", and recent steps took up to {self.stalls.pace_s:.2g} s" if self.stalls.pace_s else ""
        where = f": {self._inspection.text()}" if self._inspection is not None and self._inspection.complete else ""
        return f"no step for {self.stalls.without_s(now):.0f} s{pace}{where}"

    def _never_started(self, now: float, starting_since: float | None) -> str:
        limit_s, took_s = self._job.stall_limit_s, now - (now if starting_since is None else starting_since)
        if not limit_s or took_s <= max(limit_s, TIMEOUTS.least_start_s, _STARTS * self.failures.start_up_s):
            return ""
        return f"its workers were started {took_s:.0f} s ago, and none is ready"


class OnNode(Protocol):
    """A worker."""

    node: str


class SupervisedLifecycle:
    """The common part of the lifecycles of all launchers."""

    def __init__(self, _task: str, job: LauncherJob, context: TaskContext) -> None:
        self._job = job
        self._context = context
        self._nodes = AssignedNodes(context)
        self._supervision = TaskSupervision(job, context)

    def set_nodes(self, nodes: tuple[str, ...], *, at_once: frozenset[str]) -> None:
        """Keep these nodes; clear those in ``at_once``."""
        self._nodes.assign(nodes)
        for node in sorted(at_once):
            self._node_leaves(node)
        if nodes and not self._supervision.done:
            self._supervision.begin_again()
        self._clear(at_once)
        self._advance()

    def notice(self, node: str, grace_s: float) -> None:
        """Leave a node before its preemption; the agent ends the processes that stay longer."""
        self._nodes.noticed.add(node)
        self._node_leaves(node)
        self._leave(node, grace_s)
        self._advance()

    def set_batch(self, batch: int) -> None:
        """Set the samples per step of all workers together; applied as soon as they may form a new group."""
        if batch != self._nodes.batch:
            self._nodes.batch = batch
            self._advance()

    def node_up(self, node: str) -> None:
        """Start the wanted workers there."""
        self._nodes.agent_changed(node, there=True)
        self._advance()

    def node_gone(self, node: str) -> None:
        """Continue on the remaining nodes; the exits of this node's workers were reported before."""
        self._nodes.agent_changed(node, there=False)
        self._node_leaves(node)
        self._advance()

    def inspected(self, worker: str, process_state: str) -> None:
        """Record the state of a worker's process."""
        self._supervision.inspected(worker, process_state)

    def _node_leaves(self, node: str) -> None:
        self._supervision.node_leaves(node)

    def _left(self, node: str, others: Iterable[OnNode]) -> None:
        """Handle the exit of a worker, and report an empty node; ``others`` are the remaining workers."""
        if not any(one.node == node for one in others):
            self._context.emit({"type": "vacated", "nodes": [node]})
        self._advance()

    def _clear(self, nodes: frozenset[str]) -> None:
        """Kill the workers on these nodes."""
        raise NotImplementedError

    def _leave(self, node: str, grace_s: float) -> None:
        """Stop the workers that cannot wait for a planned change to leave a node with a preemption notice."""
        raise NotImplementedError

    def _advance(self) -> None:
        """Do all pending work."""
        raise NotImplementedError
