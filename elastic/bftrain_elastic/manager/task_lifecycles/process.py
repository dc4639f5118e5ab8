"""The process lifecycle: runs any command, and restarts it from its own checkpoint at each change of size.

For programs that cannot change their group. A command runs on every node (and every slot), with torchrun's environment
variables: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT. As under torchrun, it sees all GPUs
of the node; its own GPU has the number LOCAL_RANK. On SIGTERM it has ``stop_grace_s`` seconds to write its checkpoint,
into the folder BFTRAIN_FOLDER or elsewhere.

An exit code of 0 alone is ambiguous, because preempted programs also return it. It counts as done once the nodes have
stayed for another ``settle_s`` seconds, or immediately if the program reports that it is finished.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Final

from bftrain_elastic.manager.agent_hub import TaskContext
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles.failures import WorkerDeath, exit_text, last_word
from bftrain_elastic.manager.task_lifecycles.supervision import SupervisedLifecycle
from bftrain_elastic.retry import RetryDelay
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.agent_messages import GroupPlace, LeftWorker, WorkerExit
from bftrain_elastic.wire.messages import WireMessage
from bftrain_elastic.wire.worker_messages import StepReport, TrainingDone, WorkFinished

# A program that has not reported after this multiple of the longest start-up may have stalled
START_UPS: Final = 1.5


def _epoch_of(worker: str) -> int:
    """Return the manager epoch in a worker's name, or 0."""
    epoch, dash, _ = worker.rpartition("/")[2].partition("-")
    return int(epoch) if dash and epoch.isdecimal() else 0


@dataclass(eq=False)
class GroupProcess:
    """One process of the current generation."""

    name: str
    node: str
    rank: int
    slot: int
    stopping: bool = False
    done_at: float | None = None  # time when it reported that it is done


class ProcessLifecycle(SupervisedLifecycle):
    """One task under the process launcher."""

    launcher: ClassVar = "process"  # launcher name for workers

    def __init__(self, task: str, job: LauncherJob, context: TaskContext) -> None:
        super().__init__(task, job, context)
        self._running: dict[str, GroupProcess] = {}
        self._used: tuple[str, ...] = ()  # nodes of the current generation
        self._to_start: list[GroupProcess] = []  # processes waiting for rank 0's port
        self._age = (0, 0)  # present generation: epoch of the manager that started it, and its number
        self._taking_over = False  # another manager started the processes, and some are still unknown
        self._size_of_group = 0
        self._confirmed = True
        self._began_at = 0.0  # start time of the current generation
        self._since = inf  # start time of the youngest process
        self._ended: dict[int, tuple[float, str]] = {}  # ranks that exited with success -> time and node
        self._trained = False  # rank 0 reported that its training is done
        self._reported = False  # the current generation has reported a step
        self._finished_at: float | None = None  # time when the program reported that its work is done
        self._retry = RetryDelay(TIMEOUTS.retry_s, TIMEOUTS.longest_retry_s)
        self._broken = False  # the current group lost a member

    def _clear(self, nodes: frozenset[str]) -> None:
        self._stop_all(0.0, nodes)

    def _leave(self, node: str, grace_s: float) -> None:
        """Let all processes write their checkpoints; they restart elsewhere."""
        if node in self._used:
            self._stop_all(grace_s)

    def adopt(self, node: str, left: LeftWorker) -> bool:
        """Take over a process of another manager, or its exit.

        A group runs on untouched once all its ranks are known. Processes of an incomplete group are stopped, and
        restart from their checkpoint.
        """
        place = left.place
        age = (_epoch_of(left.worker), place.generation)
        if self._supervision.over or not place.workers or age < self._age:
            return False
        # Accepted also from a node that was given up: the work is done
        if left.exit is not None and left.exit.finished:
            self._finished_at, self._supervision.end_reported = self._finished_at or self._context.now(), False
        elif node not in self._nodes.all:
            if left.exit is None or left.exit.code or left.exit.stopped:
                return False
            self._supervision.end_reported = False  # it exited before its node was given up, and may have finished
        if age > self._age:
            self._stop_all(0.0)  # stop the processes of an older group
            self._age, self._size_of_group = age, place.workers
            self._ended, self._trained = {}, False
        process = GroupProcess(left.worker, node, place.rank, left.slot)
        self._supervision.further(left.step)
        self._trained |= left.done and place.rank == 0
        if left.report is not None:  # latest step while there was no manager
            self._supervision.reported(left.report)
        self._began_at = self._since = self._context.now()
        self._taking_over = True
        if left.exit is None:
            self._running[left.worker] = process
            self._confirmed = False
        else:
            self._ended_by_itself(process, left.exit)
        if self._whole():  # the complete group continues unchanged
            used = {process.node for process in self._running.values()} | {node for _, node in self._ended.values()}
            self._used = tuple(node for node in self._nodes.all if node in used)
            self._taking_over = False
            if self._running and not any(process.stopping for process in self._running.values()):
                self._confirm()
        return True

    def spawned(self, worker: str, port: int) -> None:
        """Start the other ranks once rank 0 has its port."""
        self._since = self._context.now()
        first = self._running.get(worker)
        if first is None or first.rank or not self._to_start:
            return
        waiting, self._to_start = self._to_start, []
        for process in waiting:
            if not first.stopping:
                self._launch(process, self._context.address(first.node), port)

    def on_worker_message(self, worker: str, message: WireMessage) -> None:
        """Handle a message of a process."""
        if (process := self._running.get(worker)) is None:
            return
        match message:
            case StepReport():
                self._supervision.reported(message)
                self._retry.succeeded()
                if not self._reported:
                    self._supervision.failures.started(self._context.now() - self._began_at)
                self._reported = True
                self._confirm()
            case TrainingDone(step=step):
                self._supervision.further(step)
                self._trained |= process.rank == 0
                process.done_at = process.done_at or self._context.now()
            case WorkFinished():
                process.done_at = process.done_at or self._context.now()
                self._finished_at = self._finished_at or self._context.now()
            case _:
                self._supervision.on_worker_message(worker, message)
        self._advance()

    def exited(self, worker: str, exit: WorkerExit) -> None:  # noqa: A002 - as in TaskLifecycle
        """Handle the exit of a process."""
        process = self._running.pop(worker, None)
        if process is None:
            return
        # It may have exited while the order to stop was on its way
        by_itself = not process.stopping or (exit.code == 0 and not exit.stopped)
        if by_itself or exit.finished or self._finished_at is not None:
            self._ended_by_itself(process, exit)
        elif self._broken and exit.code > 0:  # it may have died first, even if another death was reported earlier
            self._record_death(process, exit)
        self._left(process.node, self._running.values())

    def tick(self, now: float) -> None:
        """Assume that a silent command runs, and check time limits."""
        if self._running and not self._confirmed and now - self._since > TIMEOUTS.silent_command_s and self._whole():
            self._confirm()
        if self._finished_at is not None:
            self._end_rest(now, self._finished_at)
        elif self._taking_over and not self._may_reconnect(now):
            self._stop_all(self._job.stop_grace_s)  # the rest of their group is missing
        self._supervise(now)
        self._advance()

    def _end_rest(self, now: float, finished_at: float) -> None:
        """Stop the processes that exceed their time limit after the program reported that its work is done."""
        for process in self._running.values():
            if process.done_at is None and self._ended and now - finished_at > TIMEOUTS.farewell_s:
                self._stop(process, self._job.stop_grace_s)
            elif now - max(finished_at, process.done_at or 0.0) > TIMEOUTS.epilogue_s and not process.stopping:
                self._supervision.note(
                    f"{process.name} did not end {TIMEOUTS.epilogue_s:g} s after the work was done; it is killed"
                )
                self._stop(process, self._job.stop_grace_s)

    def _node_leaves(self, node: str) -> None:
        super()._node_leaves(node)
        if node in self._used and self._finished_at is None:
            self._ended = {}  # the exits with 0 of a moment ago were preemptions
            self._retry.succeeded()

    def _supervise(self, now: float) -> None:
        start_up_s = START_UPS * self._supervision.failures.start_up_s
        started = self._reported or now - self._since > max(TIMEOUTS.silent_command_s, start_up_s)
        stops = any(process.stopping for process in self._running.values())
        stalls = self._supervision.stalls
        if not (self._running and started) or stops or self._supervision.over or self._finished_at is not None:
            stalls.rests(now)
        elif stalls.pace_s > 0:  # a pace is known after two steps, for programs that report steps
            stalls.trains(now)
        ranks = {process.name: (process.rank, process.node) for process in self._running.values()}
        verdict = self._supervision.tick(ranks)
        if verdict.failure and not self._supervision.over:
            self._supervision.failure = verdict.failure
            self._stop_all(0.0)
        elif verdict.restart:
            self._stop_all(TIMEOUTS.broken_grace_s)

    def _advance(self) -> None:
        supervision = self._supervision
        if self._running:
            planned = not self._nodes.wanted or (self._confirmed and self._nodes_changed)
            if supervision.over or (planned and not self._is_ending):
                self._stop_all(self._job.stop_grace_s)
            return
        self._to_start = []
        if (self._ended or self._finished_at is not None) and not supervision.over and not self._decide_end():
            return
        if supervision.over or not self._nodes.wanted:
            self._confirmed |= not supervision.end_reported
            supervision.report_end(finished=self._finished_at is not None)
            return
        nodes, undecided = self._nodes.here, supervision.failures.undecided
        if nodes and not (self._nodes.waiting or undecided or self._retry.waits(self._context.now())):
            self._start(nodes)

    @property
    def _is_ending(self) -> bool:
        """Whether a rank has just exited with 0. The other ranks will follow, so a planned change can wait."""
        now = self._context.now()
        return any(now - ended_at <= TIMEOUTS.farewell_s for ended_at, _ in self._ended.values())

    @property
    def _nodes_changed(self) -> bool:
        nodes = self._nodes.here
        return bool(nodes) and nodes != self._used and not self._nodes.waiting

    def _ended_by_itself(self, process: GroupProcess, end: WorkerExit) -> None:
        now = self._context.now()
        if end.finished or (end.code == 0 and process.rank == 0 and self._trained):
            self._finished_at = self._finished_at or now - end.ago_s
        nodes = {process.node, *self._used}
        taken = not self._context.slots(process.node) or self._supervision.failures.left_lately(nodes, now)
        if end.finished or (end.code == 0 and not end.stopped and not taken):
            self._ended[process.rank] = (now - end.ago_s, process.node)
            return
        if self._finished_at is not None:
            return  # its time limit is over, and the work is done
        if end.code and not end.stopped and self._context.slots(process.node):
            self._record_death(process, end)
            if not taken or not self._supervision.failures.left_since(nodes, self._began_at):
                self._retry.failed(now)
        self._broken = bool(end.code)
        self._stop_all(min(TIMEOUTS.broken_grace_s, self._job.stop_grace_s))

    def _decide_end(self) -> bool:
        """Decide the outcome when all processes have exited and some returned 0; return whether that is decided."""
        now, ended = self._context.now(), self._ended
        if not self._whole() and self._may_reconnect(now):
            return False  # ranks of its group may still reconnect, with their latest reports
        if self._finished_at is None:
            if self._nodes.waiting:
                return False  # a younger group may still reconnect
            if len(ended) < self._size_of_group:
                self._ended = {}  # other ranks failed
                return True
            if now - max(at_s for at_s, _ in ended.values()) <= self._context.settle_s:
                return False
            if self._supervision.is_early:
                self._ended, self._supervision.failure = {}, self._supervision.ended_early()
                return True
        self._supervision.done = True
        return True

    def _record_death(self, process: GroupProcess, end: WorkerExit) -> None:
        """Record a failed exit. A process that reports lost members only noticed another death."""
        if end.code == os.EX_TEMPFAIL and self._size_of_group > 1:  # a single process has no member to lose
            text = f"{process.name} lost the group{last_word(end.tail)}; it is started again"
            self._supervision.failures.lost(text, self._context.now())
        else:
            text, nodes = exit_text(process.name, end.code), frozenset({process.node, *self._used})
            started = self._supervision.stalls.pace_s > 0 or self._confirmed
            self._supervision.died(WorkerDeath(text, nodes, end, self._began_at, started))

    def _whole(self) -> bool:
        return len({process.rank for process in self._running.values()} | set(self._ended)) == self._size_of_group

    def _may_reconnect(self, now: float) -> bool:
        """Return whether more processes of another manager may still turn up."""
        return self._nodes.waiting or (self._taking_over and now - self._since <= TIMEOUTS.company_s)

    def _start(self, nodes: tuple[str, ...]) -> None:
        self._used, self._confirmed, self._reported, self._since = nodes, False, False, inf
        self._ended, self._finished_at, self._trained = {}, None, False
        self._began_at, self._taking_over, self._broken = self._context.now(), False, False
        places = enumerate((node, slot) for node in nodes for slot in range(self._slots(node)))
        processes = [GroupProcess(self._context.name(node, slot), node, rank, slot) for rank, (node, slot) in places]
        self._size_of_group = len(processes)
        self._age = (_epoch_of(processes[0].name), self._age[1] + 1)
        self._to_start = processes[1:]
        self._launch(processes[0], self._context.address(processes[0].node), 0)

    def _slots(self, node: str) -> int:
        return self._job.workers_per_node or self._context.slots(node)

    def _launch(self, process: GroupProcess, address: str, port: int) -> None:
        """Start a process with torchrun's environment variables. The port of rank 0 is 0: its agent picks one."""
        env = {
            "BFTRAIN_LAUNCHER": self.launcher,
            "BFTRAIN_SIZE": str(len(self._used)),
            "RANK": str(process.rank),
            "LOCAL_RANK": str(process.slot),
            "LOCAL_WORLD_SIZE": str(self._slots(process.node)),
            "WORLD_SIZE": str(self._size_of_group),
            "MASTER_ADDR": address,
            **({"MASTER_PORT": str(port)} if port else {}),
            **({"BFTRAIN_BATCH": str(self._nodes.batch)} if self._nodes.batch else {}),
        }
        self._running[process.name] = process
        self._context.spawn(
            process.node,
            process.name,
            env=env,
            slot=process.slot,
            warm=self._job.argv[0].endswith(".py"),
            want_port=process.rank == 0,
            all_gpus=True,
            place=GroupPlace(self._age[1], process.rank, self._size_of_group),
        )

    def _confirm(self) -> None:
        if self._confirmed or not self._whole():
            return
        self._confirmed = True
        self._supervision.confirmed(self._age[1], self._used, self._supervision.step)

    def _stop_all(self, grace_s: float, nodes: Iterable[str] | None = None) -> None:
        for process in self._running.values():
            if nodes is None or process.node in nodes:
                self._stop(process, grace_s)

    def _stop(self, process: GroupProcess, grace_s: float) -> None:
        if not process.stopping or grace_s == 0:
            process.stopping = True
            self._context.stop(process.name, grace_s=grace_s)
