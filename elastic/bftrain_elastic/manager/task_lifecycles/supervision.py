"""TaskSupervision: tracks a task's steps, losses, deaths and stalls for all lifecycles, and reports notes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import TaskContext
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


class TaskSupervision:
    """Watches one task, and reports notes to its owner."""

    def __init__(self, job: LauncherJob, context: TaskContext) -> None:
        self._job = job
        self._context = context
        self.failures = FailurePolicy(context.settle_s)
        self.stalls = StallWatch(job.stall_limit_s)
        self.step = 0  # furthest reported step
        self.saved_step = -1  # latest step on disk; -1: unknown
        self._write_s = 0.0  # duration of the previous write
        self._unwritten_step = -1  # latest step that could not be written
        self._samples: float | None = None  # samples done so far, if reported
        self._counts_from_zero = False  # its step and sample counts restart at 0 with each process
        self._inspection: StallInspection | None = None
        self._where = ""  # positions of the ranks when the task stalled
        self._lost: list[tuple[float, str]] = []  # time and reason of each lost connection
        self._good_loss = False  # set once a finite loss was reported
        self._bad_losses = 0
        self._bad_since: tuple[float, int] = (0.0, 0)
        self._says_when_finished = job.finish_code is not None or bool(job.finish_file)
        self._drift_step = 0  # step of the latest note on diverging replicas
        self._early_ends = 0  # consecutive exits with 0 before the work was done, with no step since the previous one
        self._early_step = -1  # step of the latest early exit
        self.done = False  # the training has finished
        self.failure = ""  # reason of the failure
        self.end_reported = True  # the outcome or the pause was reported to the manager

    def reported(self, message: StepReport) -> None:
        """Record and report a step."""
        now, step, total, since = self._context.now(), message.step, message.total, message.since
        self.stalls.step(now, step)
        self._inspection, self._where = None, ""
        # A program that counts from 0 again may have restored a checkpoint or not: its progress is unknown
        self._counts_from_zero |= since <= 0 and step < self.step
        self.further(step)
        if total is not None:
            done = float(total) if since <= 0 else total * self.step / max(1, self.step - since)
            self._samples = max(done, self._samples or 0.0)
        self._judge_loss(message, now)
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

    def lost(self, text: str) -> None:
        """Record a member's lost connection; it is reported if no death explains it."""
        self._lost.append((self._context.now(), text))

    def on_worker_message(self, worker: str, message: WireMessage) -> None:
        """Handle the worker messages common to all launchers."""
        match message:
            case StateNotOnDisk(step=step, reason=reason):
                if self._unwritten_step < 0:
                    self.note(f"the state of step {step} is not on disk: {reason}; it is tried again")
                self._unwritten_step = max(self._unwritten_step, step)
            case StateOnDisk(step=step, took_s=took_s):
                self.saved_step = max(self.saved_step, step)
                self._write_s = took_s or self._write_s
                if 0 <= self._unwritten_step <= step:
                    self.note(f"the state is written to disk again, at step {step}")
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
            self._inspection, self._where, self._bad_losses, self._early_ends = None, "", 0, 0
        self.done, self.failure, self.end_reported = False, "", False

    @property
    def write_limit_s(self) -> float:
        """The time limit in seconds for a worker to write the state."""
        return max(TIMEOUTS.least_write_s, _WRITES * self._write_s)

    @property
    def is_early(self) -> bool:
        """Whether an exit code of 0 is not enough to count the work as done."""
        work = None if self._counts_from_zero else self._job.work_samples
        far = work is not None and self._samples is not None and self._samples < _DONE_SHARE * work
        return self._says_when_finished or far

    def ended_early(self) -> str:
        """Count an exit with 0 before the work was done; return the failure's reason if the limit is exceeded."""
        self._early_ends = self._early_ends + 1 if self.step == self._early_step else 1
        self._early_step = self.step
        progress = f"after step {self.step}"
        if self._job.work_samples is not None and self._samples is not None and not self._counts_from_zero:
            progress = f"after {self._samples:,.0f} of {self._job.work_samples:,.0f} samples"
        how = "without saying that it is finished" if self._says_when_finished else "before its work was done"
        text = f"it exited with 0 {progress}, {how}"
        if self._early_ends >= ALLOWED:
            return f"{text}, {ALLOWED} times with no step in between"
        self.note(f"{text}; it is started again")
        return ""

    def tick(self, ranks: Mapping[str, tuple[int, str]], starting_since: float | None = None) -> StallVerdict:
        """Do periodic work. ``ranks`` are the training workers, ``starting_since`` the start time of the rest."""
        now = self._context.now()
        failure = self.failures.judge(now, self.note)
        self._tell_lost(now)
        if self._inspection is not None and self._inspection.complete(now):
            self._where, self._inspection = self._inspection.words(), None
            self.note(f"{self._stall(now)}; the stacks of all ranks are in its logs")
        failure = failure or self._never_started(now, starting_since) or self._diverged(now)
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

    def _tell_lost(self, now: float) -> None:
        wait_s = max(self._context.settle_s, 1.0)
        due = [(at_s, text) for at_s, text in self._lost if now - at_s > wait_s]
        self._lost = [one for one in self._lost if one not in due]
        for at_s, text in due:
            if not self.failures.lost_lately(at_s):
                self.note(text)

    def _stall(self, now: float) -> str:
        pace = f", and the longest step took {self.stalls.pace_s:.2g} s" if self.stalls.pace_s else ""
        where = f": {self._where}" if self._where else ""
        return f"no step for {self.stalls.without_s(now):.0f} s{pace}{where}"

    def _never_started(self, now: float, starting_since: float | None) -> str:
        limit_s, took_s = self._job.stall_limit_s, now - (now if starting_since is None else starting_since)
        if not limit_s or took_s <= max(limit_s, TIMEOUTS.least_start_s, _STARTS * self.failures.start_up_s):
            return ""
        return f"its workers were started {took_s:.0f} s ago, and none is ready"

    def _judge_loss(self, message: StepReport, now: float) -> None:
        if not message.nan:
            self._good_loss |= message.loss is not None
            self._bad_losses = 0
            return
        self._bad_losses += 1
        if self._bad_losses == 1:
            self._bad_since = (now, message.step)
        if self._bad_losses == _BAD_LOSSES:
            self.note(f"its loss is not a number (NaN or infinite) since step {self._bad_since[1]}")

    def _diverged(self, now: float) -> str:
        (at_s, step), limit_s = self._bad_since, self._job.stall_limit_s
        if self._bad_losses < _BAD_LOSSES or not self._good_loss or not limit_s or now - at_s <= limit_s:
            return ""
        return f"its loss is not a number (NaN or infinite) since step {step}, for {now - at_s:.0f} s"


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
