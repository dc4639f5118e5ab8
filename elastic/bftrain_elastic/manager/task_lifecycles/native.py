"""The native course: workers stay, and form a new torch.distributed group for each generation.

A worker is *coming* until it says ready, *ready* while it is in no group, *in* a group, or *going*. A group is formed
when no worker is in one any more: of the ready workers on wanted nodes the furthest first. It is dissolved by
asking its members to gather at their next commit, or by the death of one of them.
"""

from __future__ import annotations

import os
from typing import ClassVar, Final

from bftrain_elastic.manager.job import LauncherJob
from bftrain_elastic.manager.task_lifecycles import LeftWorker, TaskContext, WorkerExit
from bftrain_elastic.manager.task_lifecycles.failures import WorkerDeath, exit_text, is_connection_trouble, last_word
from bftrain_elastic.manager.task_lifecycles.forming import FormationWatch
from bftrain_elastic.manager.task_lifecycles.given_nodes import GivenNodes
from bftrain_elastic.manager.task_lifecycles.group_choice import GroupChoice
from bftrain_elastic.manager.task_lifecycles.health import GroupHealth
from bftrain_elastic.manager.task_lifecycles.members import (
    NOTHING,
    GroupMember,
    GroupMembers,
    MemberPhase,
    death_of,
    go_orders,
    nodes_of,
)
from bftrain_elastic.manager.task_lifecycles.present_group import ABORT_S, PresentGroup
from bftrain_elastic.manager.task_lifecycles.supervision import TaskSupervision
from bftrain_elastic.manager.task_lifecycles.training_end import TrainingEnd
from bftrain_elastic.manager.task_lifecycles.worker_orders import WorkerOrders
from bftrain_elastic.retry import RetryDelay
from bftrain_elastic.wire.messages import Message

REPEAT_S: Final = 2.0  # how soon a notice that was not followed is repeated
ASTRAY: Final = 3  # steps in no group that show that a script does not know of groups
RETRY_S: Final = 0.25  # before the second try to form a group that did not form; twice as long each time
LONGEST_RETRY_S: Final = 8.0
# What Gloo says in its own words when ranks call different operations
_MISMATCH: Final = " (its ranks called different operations: does each of them call state.commit() and reduce alike?)"


class NativeLifecycle:
    """One task under the native launcher."""

    launcher: ClassVar = "native"  # its name for workers
    entrance: ClassVar = "bftrain_elastic.run"  # what their script calls

    def __init__(self, task: str, job: LauncherJob, floor: TaskContext) -> None:
        self._task = task
        self._job = job
        self._floor = floor
        self._nodes = GivenNodes(floor)
        self._members = GroupMembers()
        self._adopted_at = 0.0  # since when workers of a former manager are being taken over; 0: none are
        self._group = PresentGroup()
        self._choice = GroupChoice(floor, self._nodes, self._members)
        self._retry = RetryDelay(RETRY_S, LONGEST_RETRY_S)  # of groups that were lost
        self._supervision = TaskSupervision(job, floor)
        self._forming = FormationWatch(job.stall_limit_s)
        self._health = GroupHealth()
        self._orders = WorkerOrders(
            job, floor, self._members, self._group, self._health, self._supervision.saving, launcher=self.launcher
        )
        self._end = TrainingEnd(job, floor, self._members, self._orders, self._supervision)

    # -- what happened

    def want(self, nodes: tuple[str, ...], *, at_once: frozenset[str]) -> None:
        """Hold these nodes; clear those ``at_once``."""
        self._nodes.give(nodes)
        for node in sorted(at_once):
            self._supervision.node_leaves(node)
        for member in self._members:
            if member.node in at_once:
                self._orders.dismiss(member, grace_s=0.0)
        if nodes and not self._end.done:
            if self._end.failure:  # it gets another try
                self._supervision.reset()
                self._forming.reset()
            self._end.begin_again()
        self._settle()

    def node_up(self, node: str) -> None:
        """Start what is wanted there."""
        self._nodes.came(node)
        self._settle()

    def node_gone(self, node: str) -> None:
        """Go on with the rest; the ends of the workers there were reported before."""
        self._nodes.went(node)
        self._supervision.node_leaves(node)
        self._settle()

    def notice(self, node: str, grace_s: float) -> None:  # noqa: ARG002 - the agent ends what stays longer
        """Leave a node at the next commit: the state goes to other nodes, or to the folder if there are none."""
        self._nodes.notice(node)
        self._supervision.node_leaves(node)
        for member in self._members.on(node):
            if member.phase is MemberPhase.COMING:
                self._orders.dismiss(member, grace_s=0.0)
        self._settle()

    def inspected(self, worker: str, process_state: str) -> None:
        """Know the state of a worker's process."""
        self._supervision.inspected(worker, process_state)

    def spawned(self, worker: str, port: int) -> None:
        """Nothing to do: a worker says itself when it is ready."""

    def exited(self, worker: str, exit: WorkerExit) -> None:  # noqa: A002 - as in Course
        """Forget a worker; unless that was ordered, others have lost it and another takes its place."""
        member = self._members.pop(worker)
        if member is None:
            return
        if exit.finished and member.stays and not member.ended and not self._end.over:
            member.finished = True
            self._end.take_finished()
        self._end.exited(member, exit, leads=member.name == self._group.leader)
        if member.saves and exit.code and self._supervision.saving.lacks(member.step):
            how = f"{exit_text(member.name, exit.code)} before the state of step {member.step} was on disk"
            self._supervision.note(f"{how}{last_word(exit.tail)}; the task goes on {self._supervision.saving.words}")
        if member.phase is MemberPhase.IN and (not self._end.done or self._end.finished):
            self._group.lost_member(self._floor.now())
            self._health.died()
        stuck = member.phase is MemberPhase.IN and exit.code == os.EX_TEMPFAIL  # it lost the others, and ended itself
        ordered = member.ended or member.phase is MemberPhase.GOING or self._end.over
        if not (ordered or stuck) and member.node in self._nodes.all and self._floor.slots(member.node):
            self._supervision.died(death_of(member, exit, self._group.nodes, self._group.formed_at, self.entrance))
        if not self._members.on(member.node):
            self._floor.tell({"type": "vacated", "nodes": [member.node]})
        self._settle()

    def adopt(self, node: str, left: LeftWorker) -> bool:
        """Take over a worker that went on without a manager, unless there are others that have the state.

        A group that is found whole goes on as it is. If some of its members do not turn up, or have left it, the
        others are asked to gather; so nothing that was done is done again.
        """
        if left.exit is not None:
            return self._take_over_ended(node, left, left.exit)
        others = any(member.step != NOTHING for member in self._members)
        if node not in self._nodes.wanted or self._end.over or (others and not self._adopted_at):
            return False
        member = GroupMember(left.worker, node, left.slot, 0, self._floor.now())
        self._adopted_at = self._adopted_at or member.since
        self._members.add(member)
        self._supervision.further(left.step)
        if left.report is not None:  # of what it did without a manager
            self._supervision.reported(left.report)
        if left.ready is not None:
            self._group.generation = max(self._group.generation, left.generation)
            self._ready(member, left.ready)
        elif left.generation:
            self._find_in_group(member, left)
        return True

    def said(self, worker: str, message: Message) -> None:
        """Hear what a worker says."""
        member = self._members.get(worker)
        if member is None:
            return
        match message.get("type"):
            case "ready":
                self._ready(member, message)
            case "joined" if message["generation"] == self._group.generation and worker == self._group.leader:
                self._forming.met(self._floor.now())
            case "confirmed" if message["generation"] == self._group.generation and worker == self._group.leader:
                self._confirm(int(message["step"]))
            case "report" if member.phase is MemberPhase.COMING:
                self._count_astray(member)
            case "report":
                if note := self._health.reported(float(message["t"]), asked=self._group.gather_at > 0):
                    self._supervision.note(note)
                self._retry.succeeded()
                self._supervision.reported(message)
            case "done" | "finished":
                self._take_end(member, message)
            case _:
                self._supervision.heard(worker, message)
        self._settle()

    def tick(self, now: float) -> None:
        """Repeat what was not followed, and end what takes too long."""
        self._supervise(now)
        members = self._members.group
        for member in self._members.of(MemberPhase.GOING):
            if member.leaves_by is not None and now > member.leaves_by:
                member.leaves_by = None
                self._floor.stop(member.name, grace_s=0.0)
        if members and self._group.gather_at and now - self._group.gather_at > REPEAT_S:
            self._orders.gather()
        if members and not self._group.confirmed and not self._group.broken_at and self._forming.overdue(now):
            self._cut_short(members, now)
        if members and self._group.broken_at and now - self._group.broken_at > ABORT_S:
            self._orders.leave_broken_group(now)
        self._end.tick(now)
        self._settle()

    # -- what follows

    def _supervise(self, now: float) -> None:
        """Judge deaths, and notice that nothing gets any further."""
        members = self._members.group
        trains = bool(members) and self._group.confirmed and not self._group.broken_at and not self._end.over
        (self._supervision.stalls.trains if trains else self._supervision.stalls.rests)(now)
        coming = (
            []
            if members or self._members.of(MemberPhase.READY) or self._end.over
            else self._members.of(MemberPhase.COMING)
        )
        verdict = self._supervision.tick(
            {member.name: (member.rank, member.node) for member in members},
            min((member.since for member in coming), default=None),
        )
        failure = verdict.failure or self._forming.given_up(now)
        if failure and not self._end.over:
            self._end.fail(failure)
        elif verdict.restart and members:
            self._group.stalled = True
            self._group.break_up(now)

    def _cut_short(self, members: list[GroupMember], now: float) -> None:
        """End a group that takes too long to form: members that wait are cut off, one that is alone is ended."""
        self._group.break_up(now)
        if len(members) == 1:
            self._orders.kill(members[0])

    def _count_astray(self, member: GroupMember) -> None:
        """Know of a worker that trains by itself, as others do on the other nodes."""
        member.astray += 1
        if member.astray == ASTRAY and not self._end.over:
            self._end.fail(f"{member.name} trains by itself: its script never called {self.entrance}")

    def _ready(self, member: GroupMember, message: Message) -> None:
        member.step = int(message["step"])
        host, port = message["store"]
        member.store = (str(host), int(port))
        if member.phase is not MemberPhase.GOING:
            member.phase = MemberPhase.READY
            if member.coming_since is not None:
                self._supervision.failures.started(self._floor.now() - member.coming_since)
                member.coming_since = None
            member.since = self._floor.now()
        if message.get("reason") and message.get("generation") == self._group.generation:
            self._group.lost_member(self._floor.now())
            self._health.lost(str(message["reason"]))
            if not self._end.over:
                self._supervision.lost(f"{member.name} lost the group: {message['reason']}")
        if self._end.finished and member.phase is MemberPhase.READY:
            self._orders.dismiss(member, grace_s=self._job.stop_grace_s)

    def _confirm(self, step: int) -> None:
        self._group.confirmed, self._adopted_at = True, 0.0
        self._forming.confirmed(self._floor.now(), learn=step > 0)
        self._supervision.further(step)
        for member in self._members.group:
            member.step = step
        nodes = nodes_of(self._members.group, self._nodes.wanted)
        event = {"type": "confirmed", "generation": self._group.generation, "size": len(nodes)}
        self._floor.tell({**event, "nodes": nodes, "step": step})

    def _take_end(self, member: GroupMember, message: Message) -> None:
        """Know that a worker's training is over, or that the program says that its work is done."""
        if message["type"] == "done":
            member.done = True
            self._end.finish(int(message["step"]))
        else:
            member.finished = True
            self._end.take_finished()

    def _take_over_ended(self, node: str, left: LeftWorker, end: WorkerExit) -> bool:
        """Take in a worker that ended while no manager listened; return whether the task ended with it."""
        if left.report is not None:
            self._supervision.reported(left.report)
        if end.code > 0:
            text = f"{exit_text(left.worker, end.code)} while no manager listened"
            self._supervision.died(WorkerDeath(text, node, frozenset({node}), end, self._floor.now() - end.ago_s))
        if left.done and left.rank == 0 and end.code == 0 and not self._end.done:
            self._end.finish(left.step)
            self._end.first_left(again=True)
            self._settle()
        if end.finished and not left.done:
            self._end.take_finished()
            self._end.first_left(again=True)
            self._settle()
        return (left.done or self._end.finished) and self._end.done

    def _find_in_group(self, member: GroupMember, left: LeftWorker) -> None:
        """Know that a worker is in a group; once all are there it is as good as confirmed."""
        member.phase, member.step, member.rank = MemberPhase.IN, left.step, left.rank
        self._group.find(left.generation, self._floor.now())
        self._forming.began(self._group.formed_at)
        member.coming_since = None
        if left.rank == 0:
            self._group.leader = member.name
        if left.done:
            member.done = True
            self._end.finish(left.step)
        if len(self._members.group) == left.workers:
            self._confirm(max(one.step for one in self._members.group))

    def _settle(self) -> None:
        """Do everything that is due."""
        wanted = self._nodes.wanted
        if self._end.done:
            self._end.leave_unwanted(wanted)
        if self._end.over or not wanted:
            if self._end.tell():
                self._group.end()
            if self._end.over:
                return
        self._spawn_missing()
        if not self._members.group:
            self._form()
        elif not self._group.broken_at and not self._group.gather_at and self._gathering_is_due():
            self._orders.gather()

    def _gathering_is_due(self) -> bool:
        if self._group.confirmed:
            return self._choice.change_is_due()
        return self._choice.takeover_is_over(self._adopted_at)

    def _spawn_missing(self) -> None:
        if self._supervision.failures.undecided or self._nodes.waiting:
            return
        for node in self._nodes.wanted:
            slots = self._job.workers_per_node or self._floor.slots(node)
            if not self._floor.slots(node):
                continue
            there = {member.slot for member in self._members if member.node == node and member.stays}
            leaving = any(member.node == node and not member.stays for member in self._members)
            for slot in range(slots):
                if slot not in there and not leaving:
                    self._orders.spawn(node, slot)

    def _form(self) -> None:
        """Form a group of the workers that are ready; no worker is in one."""
        ready = self._members.of(MemberPhase.READY)
        if not self._nodes.wanted:
            self._orders.disband(ready)
            return
        furthest = max((member.step for member in ready), default=NOTHING)
        holders = [member for member in ready if member.step == furthest]
        if furthest > 0 and self._choice.are_noticed(holders):
            self._orders.disband(holders)  # the state goes to the folder before the nodes of all that hold it are taken
            return
        stay, now = self._choice.next_members(), self._floor.now()
        if not stay or self._retry.waits(now) or any(member.saves for member in self._members):
            return
        if self._choice.wait_for_others(stay, self._adopted_at) or self._try_later(self._health.left(), stay):
            return
        for member in ready:
            if member not in stay:
                self._orders.dismiss(member, grace_s=self._job.stop_grace_s)
        nodes = nodes_of(stay, self._nodes.wanted)
        self._group.form(stay[0].name, nodes, now)
        self._adopted_at = 0.0
        if note := self._forming.began(now):
            self._supervision.note(note)
        for member, order in go_orders(stay, self._group.generation, len(nodes)):
            member.phase, member.rank = MemberPhase.IN, int(order["rank"])
            self._floor.say(member.name, order)

    def _try_later(self, lost: str, stay: list[GroupMember]) -> bool:
        """Know why members lost each other, if no death explains it; return whether to wait before the next group.

        Lost connections and time-outs are never the program's fault. Anything else is a mistake that will come again.
        """
        if not lost:
            return False
        if not self._group.confirmed:
            self._forming.lost(lost)
        self._retry.failed(self._floor.now())
        if not is_connection_trouble(lost):
            self._supervision.died(
                WorkerDeath(
                    text=f"its workers lost each other: {lost}{_MISMATCH if 'preamble' in lost else ''}",
                    node=stay[0].node,
                    nodes=self._group.nodes,
                    exit=WorkerExit(1),
                    began_s=self._group.formed_at,
                )
            )
        return True
