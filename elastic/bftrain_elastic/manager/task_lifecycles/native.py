"""The native lifecycle: workers stay, and form a new torch.distributed group for each generation.

A worker is *coming* until it reports ready, *ready* while it is in no group, *in* a group, or *going*. Once no worker
is in a group, the ready workers on wanted nodes form the next one, the most advanced first. A group dissolves when its
members are asked to gather at their next commit, or when a member dies.
"""

from __future__ import annotations

import os
from typing import ClassVar, Final

from bftrain_elastic.manager.agent_hub import TaskContext
from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles.failures import WorkerDeath, exit_text, is_connection_trouble, last_word
from bftrain_elastic.manager.task_lifecycles.native_group import GroupMember, GroupMembers, MemberPhase
from bftrain_elastic.manager.task_lifecycles.stalls import FormationWatch
from bftrain_elastic.manager.task_lifecycles.supervision import SupervisedLifecycle
from bftrain_elastic.retry import RetryDelay
from bftrain_elastic.timeouts import TIMEOUTS
from bftrain_elastic.wire.agent_messages import LeftWorker, WorkerExit
from bftrain_elastic.wire.messages import WireMessage
from bftrain_elastic.wire.worker_messages import (
    NO_STEP,
    GroupConfirmed,
    GroupJoined,
    StateMoving,
    StepReport,
    TrainingDone,
    WorkerReady,
    WorkFinished,
)

ASTRAY: Final = 3  # steps outside a group that show that a script does not use groups
# Hint for Gloo's error when ranks call different operations
_MISMATCH: Final = (
    " (its ranks called different operations: do all ranks make the same calls of state.commit() and reduce?)"
)


class NativeLifecycle(SupervisedLifecycle):
    """One task under the native launcher."""

    launcher: ClassVar = "native"  # launcher name for workers
    entrance: ClassVar = "bftrain_elastic.run"  # function that their script calls
    sends_copies: ClassVar = True  # its workers can keep a copy of the state outside the task

    def __init__(self, task: str, job: LauncherJob, context: TaskContext) -> None:
        super().__init__(task, job, context)
        self._members = GroupMembers(job, context, self._nodes, self._supervision, self.launcher)
        self._group = self._members.present
        self._retry = RetryDelay(TIMEOUTS.retry_s, TIMEOUTS.longest_retry_s)  # backoff for lost groups
        self._forming = FormationWatch(job.stall_limit_s)
        self._finished = False  # the program reported that its work is done
        self._left_at = 0.0  # start of the wait for workers to exit, after a failure or the first exit; 0: no wait

    def set_nodes(self, nodes: tuple[str, ...], *, at_once: frozenset[str]) -> None:
        """Keep these nodes; clear those in ``at_once``."""
        if nodes and self._supervision.failure:  # the task gets another try
            self._forming.reset()
        super().set_nodes(nodes, at_once=at_once)

    def _node_leaves(self, node: str) -> None:
        super()._node_leaves(node)
        self._members.growth.node_left(node)

    def _clear(self, nodes: frozenset[str]) -> None:
        for member in self._members:
            if member.node in nodes:
                self._members.dismiss(member, grace_s=0.0)

    def _leave(self, node: str, grace_s: float) -> None:  # noqa: ARG002 - the state moves at the next commit
        for member in self._members.of(MemberPhase.COMING):
            if member.node == node:
                self._members.dismiss(member, grace_s=0.0)

    def spawned(self, worker: str, port: int) -> None:
        """Do nothing: a worker reports itself when it is ready."""

    def exited(self, worker: str, exit: WorkerExit) -> None:  # noqa: A002 - as in TaskLifecycle
        """Remove a worker; after an unexpected exit the group breaks, and a new worker starts."""
        member = self._members.by_name.pop(worker, None)
        if member is None:
            return
        if exit.finished and member.stays and not member.ended and not self._supervision.over:
            member.finished = True
            self._record_finished()
        if self._supervision.done and (member.name == self._group.leader or member.finished):
            if exit.code == 0 or self._finished:
                self._left_at = self._left_at or self._context.now()  # the other workers must follow
            else:
                self._supervision.begin_again()  # the final phase is repeated
        saved = self._supervision.saved.step
        if member.saves and exit.code and member.step > saved:
            how = f"{exit_text(member.name, exit.code)} before the state of step {member.step} was on disk"
            since = f"step {saved}" if saved >= 0 else "the last save"
            self._supervision.note(f"{how}{last_word(exit.tail)}; the task continues from {since}")
        if member.phase is MemberPhase.IN and (not self._supervision.done or self._finished):
            self._group.lost_member(self._context.now())
        stuck = member.phase is MemberPhase.IN and exit.code == os.EX_TEMPFAIL  # it lost its group and exited
        ordered = member.ended or member.phase is MemberPhase.GOING or self._supervision.over
        if not (ordered or stuck) and member.node in self._nodes.all and self._context.slots(member.node):
            self._record_death(member, exit)
        self._left(member.node, self._members)

    def adopt(self, node: str, left: LeftWorker) -> bool:
        """Take over a worker that outlived its manager, unless other workers have the state.

        A complete group runs on unchanged. If some members are missing or have left it, the rest are asked to gather,
        and no completed step is repeated.
        """
        if left.exit is not None:
            return self._adopt_ended(node, left, left.exit)
        others = any(member.step != NO_STEP for member in self._members)
        if node not in self._nodes.wanted or self._supervision.over or (others and not self._members.adopted_at):
            return False
        member = GroupMember(left.worker, node, left.slot, self._context.now())
        self._members.adopted_at = self._members.adopted_at or member.since
        self._members.by_name[member.name] = member
        self._supervision.further(left.step)
        if left.report is not None:  # latest step while there was no manager
            self._supervision.reported(left.report)
        if left.ready is not None:
            self._group.generation = max(self._group.generation, left.place.generation)
            self._ready(member, left.ready)
        elif left.place.generation:
            self._record_group_member(member, left)
        return True

    def on_worker_message(self, worker: str, message: WireMessage) -> None:
        """Handle a worker's message."""
        member = self._members.by_name.get(worker)
        if member is None:
            return
        match message:
            case WorkerReady():
                self._ready(member, message)
            case GroupJoined() | StateMoving() | GroupConfirmed():
                if message.generation == self._group.generation:
                    self._on_formation_progress(message, leads=worker == self._group.leader)
            case StepReport() if member.phase is MemberPhase.COMING:
                member.astray += 1
                if member.astray == ASTRAY and not self._supervision.over:
                    self._fail(f"{worker} trains alone: its script never called {self.entrance}")
            case StepReport():
                self._supervision.note(self._group.reported())
                self._retry.succeeded()
                self._supervision.reported(message)
                self._members.reported(self._supervision.step)
            case TrainingDone(step=step):
                member.done = True
                self._finish(step)
            case WorkFinished():
                member.finished = True
                self._record_finished()
            case _:
                self._supervision.on_worker_message(worker, message)
        self._advance()

    def tick(self, now: float) -> None:
        """Repeat orders that were not followed, stop workers that exceed a time limit, and choose the copy's place."""
        self._supervise(now)
        if self.sends_copies:
            self._members.send_copies()
        members = self._members.group
        for member in self._members.of(MemberPhase.GOING):
            if member.leaves_by is not None and now > member.leaves_by:
                member.leaves_by = None
                self._context.stop(member.name, grace_s=0.0)
        if members and self._group.gather_at and now - self._group.gather_at > TIMEOUTS.repeat_s:
            self._members.gather()
        if members and not self._group.confirmed and not self._group.broken_at and self._forming.overdue(now):
            self._group.break_up(now)  # cuts off waiting members; a lone member is killed
            if len(members) == 1:
                self._members.kill(members[0])
        if members and self._group.broken_at and now - self._group.broken_at > TIMEOUTS.abort_s:
            self._members.leave_broken_group(now)
        self._stop_late(now)
        self._advance()

    def _finish(self, step: int) -> None:
        """Record that the training has finished; the script may continue, for example to evaluate the result."""
        if not self._supervision.done:
            self._supervision.done, self._supervision.failure, self._left_at = True, "", 0.0
            self._supervision.further(step)
            for member in self._members:
                if member.phase in {MemberPhase.COMING, MemberPhase.READY}:
                    self._members.dismiss(member, grace_s=0.0)

    def _record_finished(self) -> None:
        """Record that the program reported its work as done, which stays valid if its processes fail later."""
        if not self._supervision.over:
            self._finished = True
            self._finish(self._supervision.step)

    def _fail(self, reason: str) -> None:
        """Fail the task, and end its workers."""
        self._supervision.failure, self._left_at = reason.strip(), self._context.now()
        for member in self._members:
            self._members.dismiss(member, grace_s=0.0)

    def _stop_late(self, now: float) -> None:
        """Stop workers that do not follow the first one; workers that finished training have until the stall limit."""
        limit_s, waited_s = self._job.stall_limit_s, now - self._left_at
        if not (self._supervision.over and self._left_at) or waited_s <= TIMEOUTS.farewell_s:
            return
        if self._supervision.failure:
            self._left_at = now
            for member in self._members:
                self._context.stop(member.name, grace_s=0.0)
            return
        for member in self._members:
            too_late = bool(limit_s) and waited_s > limit_s
            if member.stays and (too_late or not (member.done or member.finished)):
                text = f"{member.name} did not end within {waited_s:.0f} s after the first worker had"
                self._supervision.note(f"{text}; it is stopped")
                self._members.dismiss(member, grace_s=self._job.stop_grace_s)

    def _supervise(self, now: float) -> None:
        """Judge deaths, and detect stalls."""
        members = self._members.group
        trains = bool(members) and self._group.confirmed and not self._group.broken_at and not self._supervision.over
        (self._supervision.stalls.trains if trains else self._supervision.stalls.rests)(now)
        starts = not (members or self._members.of(MemberPhase.READY) or self._supervision.over)
        coming = self._members.of(MemberPhase.COMING) if starts else []
        verdict = self._supervision.tick(
            {member.name: (member.rank, member.node) for member in members},
            min((member.since for member in coming), default=None),
        )
        failure = verdict.failure or self._forming.given_up(now)
        if failure and not self._supervision.over:
            self._fail(failure)
        elif verdict.restart and members:
            self._group.stalled = True
            self._group.break_up(now)

    def _ready(self, member: GroupMember, message: WorkerReady) -> None:
        member.step, member.store = message.step, message.store
        if member.phase is not MemberPhase.GOING:
            member.phase = MemberPhase.READY
            if member.coming_since is not None:
                self._supervision.failures.started(self._context.now() - member.coming_since)
                member.coming_since = None
            member.since = self._context.now()
        if message.reason and message.generation == self._group.generation:
            self._group.lost_member(self._context.now(), message.reason)
            if not (self._supervision.over or self._group.explained):
                self._supervision.failures.lost(f"{member.name} lost the group: {message.reason}", self._context.now())
        if self._finished and member.phase is MemberPhase.READY:
            self._members.dismiss(member, grace_s=self._job.stop_grace_s)

    def _on_formation_progress(self, message: GroupJoined | StateMoving | GroupConfirmed, *, leads: bool) -> None:
        """Record the progress of the group that forms."""
        match message:
            case StateMoving():
                self._forming.moved(self._context.now())
            case GroupJoined() if leads:
                self._forming.met(self._context.now())
            case GroupConfirmed(step=step, state_bytes=size) if leads:
                self._confirm(step, **({"state_bytes": size} if size else {}))

    def _confirm(self, step: int, **sizes: int) -> None:
        self._group.confirmed, self._members.adopted_at = True, 0.0
        self._forming.reset()
        self._supervision.further(step)
        self._members.confirm(step, self._supervision.step)
        self._supervision.confirmed(self._group.generation, self._members.nodes_of(self._members.group), step, **sizes)

    def _record_death(self, member: GroupMember, end: WorkerExit) -> None:
        text, fatal = exit_text(member.name, end.code), False
        if end.code == 0 and member.phase is MemberPhase.COMING:  # a retry would have the same result
            text, fatal = f"{member.name} exited, and its script never called {self.entrance}", True
        grouped = member.phase is MemberPhase.IN
        nodes = frozenset({member.node, *(self._group.nodes if grouped else ())})
        began_s = self._group.formed_at if grouped else member.since
        started = member.phase is not MemberPhase.COMING
        note = ""
        if not (fatal or self._supervision.failures.left_lately(nodes, self._context.now())) and (
            self._members.joins(member)
        ):
            note = self._members.join_failed(member, f"{text}{last_word(end.tail)}")
            self._supervision.note(note)
        death = WorkerDeath(text, nodes, end, began_s, started, fatal, noted=bool(note))
        self._supervision.died(death)

    def _adopt_ended(self, node: str, left: LeftWorker, end: WorkerExit) -> bool:
        """Handle a worker that exited while there was no manager; return whether this finished the task."""
        if left.report is not None:
            self._supervision.reported(left.report)
        if end.code > 0:
            text = f"{exit_text(left.worker, end.code)} while no manager listened"
            self._supervision.died(WorkerDeath(text, frozenset({node}), end, self._context.now() - end.ago_s))
        if left.done and left.place.rank == 0 and end.code == 0 and not self._supervision.done:
            self._finish(left.step)
            self._left_at = self._context.now()
            self._advance()
        if end.finished and not left.done:
            self._record_finished()
            self._left_at = self._context.now()
            self._advance()
        return (left.done or self._finished) and self._supervision.done

    def _record_group_member(self, member: GroupMember, left: LeftWorker) -> None:
        """Record that a worker is in a group; the group counts as confirmed once all members are found."""
        member.phase, member.step, member.rank, member.joined = MemberPhase.IN, left.step, left.place.rank, 0
        self._group.find(left.place.generation, self._context.now())
        self._forming.began(self._group.formed_at)
        member.coming_since = None
        if left.place.rank == 0:
            self._group.leader = member.name
        if left.done:
            member.done = True
            self._finish(left.step)
        if len(self._members.group) == left.place.workers:
            self._confirm(max(one.step for one in self._members.group))

    def _advance(self) -> None:
        if self._supervision.over or not self._nodes.wanted:
            self._wind_down()
            if self._supervision.over:
                return
        if not (self._supervision.failures.undecided or self._nodes.waiting):
            self._members.spawn_missing()
        self._members.dismiss_newcomers()
        if not self._members.group:
            self._form()
        elif not self._group.broken_at and not self._group.gather_at and self._members.gathering_is_due():
            self._members.gather()

    def _wind_down(self) -> None:
        """Stop workers that a finished or paused task does not need; report its end once all have left."""
        for member in self._members:
            if not self._supervision.over and member.phase is MemberPhase.COMING:
                self._members.dismiss(member, grace_s=0.0)
            elif self._supervision.done and member.stays and member.node not in self._nodes.wanted:
                self._context.stop(member.name, grace_s=self._job.stop_grace_s)  # it evaluates on a node to leave
                member.phase = MemberPhase.GOING
        if not (self._members or self._supervision.end_reported):
            self._supervision.report_end()
            self._group.end()

    def _form(self) -> None:
        ready = self._members.of(MemberPhase.READY)
        if not self._nodes.wanted:
            self._members.disband(ready)
            return
        furthest = max((member.step for member in ready), default=NO_STEP)
        holders = [member for member in ready if member.step == furthest]
        if furthest > 0 and self._members.are_noticed(holders):
            self._members.disband(holders)  # save the state before its last nodes are preempted
            return
        stay, now = self._members.next_members(), self._context.now()
        if not stay or self._retry.waits(now) or any(member.saves for member in self._members):
            return
        if self._members.wait_for_others(stay) or self._delay_next_group(self._group.left(), stay):
            return
        for member in ready:
            if member not in stay and member.node not in self._nodes.wanted:
                self._members.dismiss(member, grace_s=self._job.stop_grace_s)
        self._supervision.note(self._forming.began(now))
        self._members.form(stay)

    def _delay_next_group(self, lost: str, stay: list[GroupMember]) -> bool:
        """Record an unexplained loss of connections between members; return whether to delay the next group.

        Lost connections and timeouts are never the program's fault. Any other error would repeat.
        """
        if not lost:
            return False
        if not self._group.confirmed:
            self._forming.lost(lost)
            self._growth_failed(stay, lost)
        self._retry.failed(self._context.now())
        if not is_connection_trouble(lost):
            self._supervision.died(
                WorkerDeath(
                    text=f"its workers lost each other: {lost}{_MISMATCH if 'preamble' in lost else ''}",
                    nodes=self._group.nodes,
                    exit=WorkerExit(1),
                    began_s=self._group.formed_at,
                )
            )
        return True

    def _growth_failed(self, tried: list[GroupMember], why: str) -> None:
        """Exclude the new members of a group that did not form, if the rest can train."""
        furthest = max(one.step for one in tried)
        new = [one for one in tried if one.step < furthest]
        if new and self._members.on_wanted(one for one in tried if one.step == furthest):
            names, nodes = [one.name for one in new], {one.node for one in new}
            self._supervision.note(self._members.growth.failed(names, nodes, self._context.now(), why))


class HorovodLifecycle(NativeLifecycle):
    """One task under the horovod launcher: the same orders, carried out by Horovod in the workers."""

    launcher: ClassVar = "horovod"
    entrance: ClassVar = "a function under hvd.elastic.run"
    sends_copies: ClassVar = False
